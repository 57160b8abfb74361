"""Joins over files whose records say what becomes of rows: inserts, deletes, diffs, and what says nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.observe.account import InputAccount

pytestmark = pytest.mark.spark

JOB = """
SET output_mode = changelog; SET broken_output = broken;
CREATE TABLE c (ck BIGINT, seg STRING, op STRING)
    WITH ('connector' = 'file', 'path' = '{folder}/c', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE o (ok BIGINT, ck BIGINT, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/o', 'format' = 'csv', 'diff.column' = 'd');
CREATE TABLE l (op SMALLINT, ok BIGINT, price DECIMAL(10,2))
    WITH ('connector' = 'file', 'path' = '{folder}/l', 'format' = 'json',
    'op.column' = 'op', 'op.insert' = '1, 11', 'op.delete' = '2');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
CREATE TABLE broken WITH ('connector' = 'file', 'path' = '{folder}/broken', 'format' = 'json');
INSERT INTO out SELECT c.ck, o.ok, l.price FROM c JOIN o ON c.ck = o.ck LEFT JOIN l ON l.ok = o.ok;
"""

TICKS: list[dict[str, list[Any]]] = [
    {
        "c": [{"ck": 1, "seg": "x", "op": "c"}, {"ck": 2, "seg": "y", "op": "c"}],
        "o": ["100,1,1", "101,2,2"],
        "l": [{"ok": 100, "price": "10.50", "op": 1}],
    },
    {
        "c": [{"ck": 1, "seg": "x", "op": "d"}, {"ck": 1, "seg": "z", "op": "c"}, {"ck": 3, "op": "?"}],
        "o": ["101,2,-1", "7,7,-1", "8,8,"],
        "l": [{"ok": 101, "price": "3", "op": 11}, {"ok": 100, "price": "10.5", "op": 2}, {"ok": 5}],
    },
]
SUMS = [
    {(1, 100, "10.50"): 1, (2, 101, None): 2},
    {(1, 100, None): 1, (2, 101, "3.00"): 1},
]


def sums(folder: Path) -> dict[tuple[Any, ...], int]:
    """The rows of the sink, with the sums of their diffs."""
    total: Counter[tuple[Any, ...]] = Counter()
    for file in folder.glob("out/**/*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line, parse_float=str)
            total[row.get("ck"), row.get("ok"), row.get("price")] += row["_diff"]
    return {row: diff for row, diff in total.items() if diff}


def test_sums_of_changes_across_restarts(spark, tmp_path):
    for name in ("c", "o", "l"):
        (tmp_path / name).mkdir()
    for number, (tick, wanted) in enumerate(zip(TICKS, SUMS, strict=True)):
        for name, rows in tick.items():
            lines = ["ok,ck,d", *rows] if name == "o" else [json.dumps(row) for row in rows]
            (tmp_path / name / f"{number}.{'csv' if name == 'o' else 'json'}").write_text(
                "\n".join(lines) + "\n"
            )
        running = until_caught_up(spark, JOB.format(folder=tmp_path), tmp_path / "checkpoint")
        assert sums(tmp_path) == wanted
    counts = running.ticks[-1].queries["out"].account
    told = {name: InputAccount.of(name, of, of["retained"]) for name, of in counts.items()}
    assert (told["o"].deleted, told["o"].missing_deletes, told["c"].deleted) == (2, 1, 2)
    broken = [file.read_text() for file in tmp_path.glob("broken/**/*.json")]
    assert sum('"c"' in text for text in broken) >= 1
