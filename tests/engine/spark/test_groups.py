"""Groups whose rows come and go, over files on Spark, which computes what is around them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up

pytestmark = pytest.mark.spark

JOB = """
SET output_mode = changelog;
CREATE TABLE c (ck BIGINT, seg STRING, op STRING)
    WITH ('connector' = 'file', 'path' = '{folder}/c', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE o (ok BIGINT, ck BIGINT, price DECIMAL(12,2), rate DOUBLE, at TIMESTAMP, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/o', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
CREATE TABLE every WITH ('connector' = 'file', 'path' = '{folder}/every', 'format' = 'json');
INSERT INTO out SELECT upper(c.seg) AS seg, count(*) AS n, sum(o.price * (1 - o.rate)) AS r,
    sum(o.price) AS s, avg(o.price) AS m, round(sum(o.rate), 3) AS x, max_by(o.ok, o.at) AS last,
    date_trunc('DAY', min(o.at)) AS day
    FROM o LEFT JOIN c ON c.ck = o.ck GROUP BY upper(c.seg) HAVING count(*) < 3;
INSERT INTO every SELECT count(*) AS n, count(DISTINCT g.seg) AS segs, max(g.n) AS most
    FROM (SELECT seg, count(*) AS n FROM c GROUP BY seg) g;
"""


def order(ok: int, ck: int, price: str, rate: float, day: int, d: int = 1) -> dict[str, Any]:
    return {"ok": ok, "ck": ck, "price": price, "rate": rate, "at": f"2024-01-{day:02}T10:00:00Z", "d": d}


def customer(ck: int, seg: str | None, op: str = "I") -> dict[str, Any]:
    return {"ck": ck, "seg": seg, "op": op}


TICKS = [
    {
        "c": [customer(1, "a"), customer(2, "A"), customer(3, None)],
        "o": [order(1, 1, "10.00", 0.1, 2), order(2, 2, "0.05", 0.2, 1), order(3, 9, "1.00", 0.3, 3)],
    },
    {"c": [customer(2, "A", "D"), customer(2, "b")], "o": [order(4, 1, "2.00", 0.5, 5)]},
    {
        "c": [],
        "o": [order(5, 1, "2.00", 0.5, 6), order(3, 9, "1.00", 0.3, 3, -1), order(7, 7, "1", 1, 1, -1)],
    },
]
SUMS = [
    {
        "out": {
            ("A", 2, 9.04, "10.05", "5.025000", 0.3, 1, "2024-01-01"): 1,
            (None, 1, 0.7, "1.00", "1.000000", 0.3, 3, "2024-01-03"): 1,
        },
        "every": {(3, 2, 1): 1},
    },
    {
        "out": {
            ("A", 2, 10.0, "12.00", "6.000000", 0.6, 4, "2024-01-02"): 1,
            ("B", 1, 0.04, "0.05", "0.050000", 0.2, 2, "2024-01-01"): 1,
            (None, 1, 0.7, "1.00", "1.000000", 0.3, 3, "2024-01-03"): 1,
        },
        "every": {(3, 2, 1): 1},
    },
    {
        "out": {("B", 1, 0.04, "0.05", "0.050000", 0.2, 2, "2024-01-01"): 1},
        "every": {(3, 2, 1): 1},
    },
]


COLUMNS = {"out": ("seg", "n", "r", "s", "m", "x", "last", "day"), "every": ("n", "segs", "most")}


def sums(folder: Path, name: str) -> dict[tuple[Any, ...], int]:
    """The rows of a sink, with the sums of their diffs."""
    total: Counter[tuple[Any, ...]] = Counter()
    for file in (folder / name).glob("**/*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line, parse_float=str)
            row |= {real: round(float(row[real]), 6) for real in ("r", "x") if real in row}
            row |= {"day": row["day"][:10]} if "day" in row else {}
            total[tuple(row.get(column) for column in COLUMNS[name])] += row["_diff"]
    return {row: diff for row, diff in total.items() if diff}


@pytest.mark.full
def test_groups_across_restarts(spark: Any, tmp_path: Path) -> None:
    for number, (tick, wanted) in enumerate(zip(TICKS, SUMS, strict=True)):
        for name, rows in tick.items():
            (tmp_path / name).mkdir(exist_ok=True)
            if rows:
                text = "".join(json.dumps(row) + "\n" for row in rows)
                (tmp_path / name / f"{number}.json").write_text(text)
        running = until_caught_up(spark, JOB.format(folder=tmp_path), tmp_path / "checkpoint")
        assert {name: sums(tmp_path, name) for name in wanted} == wanted
    counts = running.ticks[-1].queries["out"].account
    assert counts["o"]["missing_deletes"] == 1
