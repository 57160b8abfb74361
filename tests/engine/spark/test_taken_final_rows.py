"""Three queries over the same two streams on Spark, of which one joins for all: results are those of the
streams, worked out here in plain Python; what is late is told of each. Their rows are final, or they come and
go, with final rows of windows beside them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.state.manifest import load_newest

pytestmark = pytest.mark.spark

TEXT = """
SET late_output = late;
CREATE TABLE orders (n BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND)
  WITH ('connector' = 'file', 'path' = '{0}/orders', 'format' = 'json');
CREATE TABLE sent (n BIGINT, s TIMESTAMP, place STRING, WATERMARK FOR s AS s - INTERVAL '1' SECOND)
  WITH ('connector' = 'file', 'path' = '{0}/sent', 'format' = 'json');
CREATE TABLE late WITH ('connector' = 'file', 'path' = '{0}/late', 'format' = 'json');
CREATE TABLE every WITH ('connector' = 'file', 'path' = '{0}/every', 'format' = 'parquet');
CREATE TABLE chosen WITH ('connector' = 'file', 'path' = '{0}/chosen', 'format' = 'json');
CREATE TABLE sums WITH ('connector' = 'file', 'path' = '{0}/sums', 'format' = 'json');
INSERT INTO every SELECT o.n, d.place FROM orders o
  LEFT JOIN sent d ON d.n = o.n AND d.s BETWEEN o.t AND o.t + INTERVAL '1' HOUR;
INSERT INTO chosen SELECT x.n + 1 AS more FROM orders x
  LEFT JOIN sent y ON y.n = x.n AND y.s BETWEEN x.t AND x.t + INTERVAL '1' HOUR WHERE y.place IS NULL;
INSERT INTO sums SELECT window_end, count(*) AS times FROM TABLE(TUMBLE(TABLE (
  SELECT a.t AS at FROM orders a
  LEFT JOIN sent b ON b.n = a.n AND b.s BETWEEN a.t AND a.t + INTERVAL '1' HOUR),
  DESCRIPTOR(at), INTERVAL '1' HOUR)) GROUP BY window_start, window_end;
"""


CHANGES = "SET output_mode = changelog;\n" + TEXT.replace(" TIMESTAMP, ", " TIMESTAMP, d INT, ").replace(
    "/orders', 'format' = 'json'", "/orders', 'format' = 'json', 'diff.column' = 'd'"
).replace("/sent', 'format' = 'json'", "/sent', 'format' = 'json', 'diff.column' = 'd'").replace(
    "window_start, window_end;", "window_start, window_end EMIT FINAL;"
)


def time(minute: int) -> str:
    return f"2024-01-01T{minute // 60:02d}:{minute % 60:02d}:00Z"


FIRST = {
    "orders": [(n, n) for n in range(90)],
    "sent": [(n, n + 20) for n in range(0, 90, 3)],
}
DELETED = [(89, 89, -1), (400, 215, -1)]
"""One that is there, and one that is not: in changes."""
SECOND = {
    "orders": [(100, 5), *((n, n) for n in range(200, 230))],
    "sent": [(100, 6), (201, 202), (201, 210)],
}


def write_stream_files(folder: Path, rows: Mapping[str, Sequence[tuple[int, ...]]]) -> None:
    for name, times in rows.items():
        place, column = folder / name, {"orders": "t", "sent": "s"}[name]
        place.mkdir(exist_ok=True)
        lines = [
            {"n": n, column: time(minute), "place": f"p{n}", "d": diff[0] if diff else 1}
            for n, minute, *diff in times
        ]
        staged = folder / "staged.json"
        staged.write_text("".join(json.dumps(line) + "\n" for line in lines))
        staged.rename(place / f"{len(list(place.iterdir()))}.json")


def rows_of(spark: Any, folder: Path, name: str) -> Counter[tuple[Any, ...]]:
    rows = spark.read.format("parquet" if name == "every" else "json").load(f"{folder}/{name}/*").collect()
    counted: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        values = row.asDict()
        values.pop("_tick", None)
        diff = values.pop("_diff", 1)
        counted[tuple(values.values())] += diff
    return Counter({row: times for row, times in counted.items() if times})


@pytest.mark.parametrize(
    "text",
    [pytest.param(TEXT, id="final"), pytest.param(CHANGES, id="changes", marks=pytest.mark.full)],
)
def test_three_queries_of_which_one_joins(spark, tmp_path, text):
    is_changes, text, checkpoint = text is CHANGES, text.format(tmp_path), tmp_path / "checkpoint"
    write_stream_files(tmp_path, FIRST)
    until_caught_up(spark, text, checkpoint)
    manifest = load_newest(Checkpoint(checkpoint).store)
    assert manifest is not None
    kept = {name: [bool(node.elsewhere) for node in query.nodes] for name, query in manifest.queries.items()}
    assert kept == {"every": [False], "chosen": [True], "sums": [True, False]}
    write_stream_files(tmp_path, {**SECOND, "orders": [*SECOND["orders"], *(DELETED if is_changes else [])]})
    done = until_caught_up(spark, text, checkpoint, finish=True)
    orders = [*FIRST["orders"], *SECOND["orders"][1:]]
    if is_changes:
        orders.remove(DELETED[0][:2])
    sent = [*FIRST["sent"], *SECOND["sent"][1:]]
    pairs = [
        (n, t, m) for n, t in orders for m in [m for m, s in sent if m == n and t <= s <= t + 60] or [None]
    ]
    assert rows_of(spark, tmp_path, "every") == Counter(
        (n, None if m is None else f"p{m}") for n, _, m in pairs
    )
    assert rows_of(spark, tmp_path, "chosen") == Counter((n + 1,) for n, _, m in pairs if m is None)
    times = Counter(f"2024-01-01T{t // 60 + 1:02d}" for _, t, _ in pairs)
    sums = spark.read.json(f"{tmp_path}/sums/*").select("window_end", "times").collect()
    assert {row[0][:13]: row[1] for row in sums} == times
    late = spark.read.json(f"{tmp_path}/late/*").collect()
    told = Counter((row["input"], row["watermark_key"], row["watermark"], row["late_by"]) for row in late)
    second = 1_000_000
    missed = {  # by what: of 00:05 and 00:06, by the last times of before
        "o": ("t", "2024-01-01 01:28:59", (84 * 60 - 1) * second),
        "d": ("s", "2024-01-01 01:46:59", (101 * 60 - 1) * second),
    }
    expected = {
        (f"{query}/{alias}", f"{alias}.{column}", mark, late_by)
        for query, aliases in (("every", "od"), ("chosen", "xy"), ("sums", "ab"))
        for alias, (column, mark, late_by) in zip(aliases, missed.values(), strict=True)
    }
    assert told == Counter(expected)
    every, chosen, sums = (result.account for result in done.ticks[-1].queries.values())
    assert every["o"] == chosen["x"] == sums["a"]
    assert every["d"] == chosen["y"] == sums["b"]
    expected_account = {"in": 121, "late": 1, "matched": 31, "padded": 89, "retained": 0}
    if is_changes:
        expected_account |= {"in": 123, "padded": 88, "deleted": 2, "missing_deletes": 1}
    assert every["o"] == expected_account
