"""Columns that the driver, or tasks, compute and stage themselves are those that Spark computes and writes,
in values and in types."""

from __future__ import annotations

import datetime
import os
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import until_caught_up
from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick, RunningTick
from watersmeet.runtime.spark.tick import arrow_output as plain_module
from watersmeet.runtime.spark.tick import tick as tick_module
from watersmeet.runtime.spark.tick.arrow_output import ArrowOutput

pytestmark = pytest.mark.spark

JOB = """
SET output_mode = changelog;
CREATE TABLE a (k BIGINT, n STRING, i INT, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/a', 'format' = 'parquet', 'diff.column' = 'd',
    'maxFilesPerTrigger' = '1');
CREATE TABLE b (k BIGINT, v DECIMAL(15,2), w DECIMAL(15,2), d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/b', 'format' = 'parquet', 'diff.column' = 'd');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'parquet');
INSERT INTO out SELECT a.n, b.v * (1 - b.w) AS price, upper(a.n) || '!' AS u, a.i + 1 AS i,
    a.i IS NULL AS none, CASE WHEN b.v > 1 THEN a.k ELSE -a.k END AS k
    FROM a JOIN b ON a.k = b.k JOIN b c ON c.k = b.k;
"""

A = [
    {
        "k": [1, 2, 3, 4, 1],
        "n": ["é", None, "", "ß", "e\u0301"],
        "i": [7, None, -1, 0, 7],
        "d": [1, 1, 2, 1, 1],
    },
    {"k": [1, 3, 4], "n": ["é", "", "ß"], "i": [7, -1, 0], "d": [-1, -1, -1]},
]


def written(folder: Path, greatest: int | None = None) -> None:
    for number, rows in enumerate(A):
        path = folder / "a" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        if greatest is not None:
            rows = {**rows, "i": [greatest] * len(rows["i"])}
        types = [("k", pa.int64()), ("n", pa.string()), ("i", pa.int32()), ("d", pa.int32())]
        parquet.write_table(pa.table(rows, pa.schema(types)), path)
        os.utime(path, (1.7e9 + number,) * 2)  # Spark reads the oldest first
    money = pa.decimal128(15, 2)
    values = [None, Decimal("9999999999999.99"), Decimal("-0.01"), Decimal("1.00")]
    (folder / "b").mkdir()
    table = pa.table(
        {"k": [1, 2, 3, 4], "v": values[::-1], "w": values, "d": [1, 1, 1, 1]},
        pa.schema([("k", pa.int64()), ("v", money), ("w", money), ("d", pa.int32())]),
    )
    parquet.write_table(table, folder / "b" / "0.parquet")


def sums(out: Path) -> tuple[list[tuple[str, Any]], Counter[tuple[Any, ...]]]:
    """The types of the files' columns, and what was put out."""
    total: Counter[tuple[Any, ...]] = Counter()
    types = set()
    for file in out.glob("*.parquet"):
        table = parquet.read_table(file)
        types.add(tuple((field.name, field.type) for field in table.schema))
        for row in table.to_pylist():
            total[tuple(value for name, value in row.items() if name != "_diff")] += row["_diff"]
    assert len(types) == 1
    return list(types.pop()), total


def raise_killed(*_: Any) -> None:
    raise EngineError("killed", code="test")


@pytest.fixture
def staged_queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Queries whose rows of a tick the driver stages itself."""
    names: list[str] = []
    run_small = RunningTick.run_inline

    def run_inline_and_record(self, query, number, task, then=None):
        rows = run_small(self, query, number, task, then)
        if then is not None and rows is not None:  # asked with `then`: of the node whose rows go to the sink
            names.append(query)
        return rows

    monkeypatch.setattr(RunningTick, "run_inline", run_inline_and_record)
    return names


def test_values_and_types_are_those_of_spark(spark, tmp_path, monkeypatch, staged_queries):
    written(tmp_path)
    own_job = JOB.format(folder=tmp_path, out=tmp_path / "own")
    with monkeypatch.context() as patched:
        patched.setattr(plain_module, "SUMMED_BYTES", 1)
        patched.setattr(ConcludedTick, "commit", raise_killed)
        with pytest.raises(EngineError, match="killed"):
            until_caught_up(spark, own_job, tmp_path / "c1")
    assert (
        not staged_queries
    )  # what the driver was not to hold went to Spark; the tick is repeated by the driver
    until_caught_up(spark, own_job, tmp_path / "c1")
    assert staged_queries
    staged_queries.clear()
    monkeypatch.setattr(tick_module, "plan_arrow_output", lambda *_: None)
    until_caught_up(spark, JOB.format(folder=tmp_path, out=tmp_path / "spark"), tmp_path / "c2")
    assert not staged_queries
    own, wanted = sums(tmp_path / "own"), sums(tmp_path / "spark")
    assert own == wanted
    assert sum(1 for diff in wanted[1].values() if diff < 0) >= 3


def test_what_leaves_its_type_stops_the_job_with_its_values(spark, tmp_path):
    written(tmp_path, greatest=2**31 - 1)
    with pytest.raises(WatersmeetError, match="2147483647"):
        until_caught_up(spark, JOB.format(folder=tmp_path, out=tmp_path / "own"), tmp_path / "c1")
    assert not list((tmp_path / "own").glob("out-*"))


APPEND = """
SET small_ticks = '{small}';
CREATE TABLE a (k BIGINT, t TIMESTAMP, n STRING, i INT, x DOUBLE, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
    WITH ('connector' = 'file', 'path' = '{folder}/a', 'format' = '{format}');
CREATE TABLE b (k BIGINT, t TIMESTAMP, v DECIMAL(15,2), WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
    WITH ('connector' = 'file', 'path' = '{folder}/b', 'format' = '{format}');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'parquet');
INSERT INTO out SELECT {columns}
    FROM a LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '10' SECONDS;
"""
COLUMNS = """upper(a.n) || '!' AS u, concat(a.n, '-', CAST(b.k AS STRING)) AS c, a.i + 1 AS i, a.x * -1 AS x,
    a.x / 3 AS third, CASE WHEN b.v > 1 THEN a.k ELSE -a.k END AS w, coalesce(b.v, 0) AS v,
    b.v IS NULL AS none, a.t, substring(a.n, 2, 1) AS s, try_divide(a.i, b.v) AS d,
    repeat('é', 3) AS r, 7 AS seven"""


def streams(folder: Path) -> None:
    def at(second: int) -> datetime.datetime:
        return datetime.datetime(2024, 1, 1, 0, 0, second, tzinfo=datetime.UTC)

    texts = ["é", None, "", "ß", "e\u0301", "\U0001f600x"] * 300
    numbers = [7, None, -1, 0, 7, -(2**31)] * 300
    doubles = [0.0, -0.0, float("nan"), float("inf"), None, 1e-300] * 300
    ticks = [at(number % 50) for number in range(1_800)]
    kinds = [("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("n", pa.string()), ("i", pa.int32())]
    a = {"k": list(range(1_800)), "t": ticks, "n": texts, "i": numbers, "x": doubles}
    b = {"k": list(range(0, 1_800, 2)), "t": ticks[::2], "v": [Decimal("0.00"), Decimal("-7.25"), None] * 300}
    for name, rows, types in (
        ("a", a, [*kinds, ("x", pa.float64())]),
        ("b", b, [*kinds[:2], ("v", pa.decimal128(15, 2))]),
    ):
        (folder / name).mkdir()
        parquet.write_table(pa.table(rows, pa.schema(types)), folder / name / "0.parquet")


def read_output(out: Path) -> tuple[list[tuple[str, Any]], Counter[str]]:
    tables = [parquet.read_table(file) for file in out.glob("*.parquet")]
    (types,) = {tuple((field.name, field.type) for field in table.schema) for table in tables}
    return list(types), Counter(str(row) for table in tables for row in table.to_pylist())


def test_columns_of_rows_that_only_come_are_those_of_spark(spark, tmp_path, monkeypatch, staged_queries):
    streams(tmp_path)
    without_spark, planned = [], tick_module.plan_arrow_output

    def plan_and_record(*of: Any) -> ArrowOutput | None:
        found = planned(*of)
        without_spark.extend([] if found is None else [1])
        return found

    monkeypatch.setattr(tick_module, "plan_arrow_output", plan_and_record)

    def run_and_read_output(name: str, small: str) -> tuple[list[tuple[str, Any]], Counter[str]]:
        staged_queries.clear()
        without_spark.clear()
        text = APPEND.format(
            folder=tmp_path, out=tmp_path / name, small=small, format="parquet", columns=COLUMNS
        )
        run = parse_job(text).run
        until_caught_up(spark, text, tmp_path / f"{name}-c", partitions=None, run=run)
        return read_output(tmp_path / name)

    found = run_and_read_output("driver", "auto")
    assert staged_queries
    assert without_spark
    assert run_and_read_output("tasks", "spark") == found
    assert without_spark
    assert not staged_queries
    monkeypatch.setattr(tick_module, "plan_arrow_output", lambda *_: None)
    assert run_and_read_output("spark", "spark") == found
    assert sum(found[1].values()) > 1_000


@pytest.mark.parametrize("small", ["auto", "spark"])
def test_a_column_that_fails_stops_the_job_with_its_values(spark, tmp_path, small):
    streams(tmp_path)
    text = APPEND.format(
        folder=tmp_path, out=tmp_path / "own", small=small, format="parquet", columns="a.k / (a.i + 1) AS q"
    )
    with pytest.raises(WatersmeetError, match=r"DIVIDE_BY_ZERO.*-1"):
        until_caught_up(spark, text, tmp_path / "c", partitions=None, run=parse_job(text).run)
    assert not list((tmp_path / "own").glob("out-*"))
