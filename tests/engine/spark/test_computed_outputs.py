"""Columns of changes that the driver computes and stages itself are those that Spark computes and writes, in
values and in types."""

from __future__ import annotations

import os
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import until_caught_up
from watersmeet.engine.spark.tick import tick as tick_module
from watersmeet.engine.spark.tick.nodes import SinkFrame
from watersmeet.errors import WatersmeetError

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
    for file in out.glob("*/*.parquet"):
        table = parquet.read_table(file)
        types.add(tuple((field.name, field.type) for field in table.schema))
        for row in table.to_pylist():
            total[tuple(value for name, value in row.items() if name != "_diff")] += row["_diff"]
    assert len(types) == 1
    return list(types.pop()), total


def test_values_and_types_are_those_of_spark(spark, tmp_path, monkeypatch):
    written(tmp_path)
    staged = []
    stage = SinkFrame._stage
    monkeypatch.setattr(SinkFrame, "_stage", lambda *given: staged.append(1) or stage(*given))
    until_caught_up(spark, JOB.format(folder=tmp_path, out=tmp_path / "own"), tmp_path / "c1")
    assert staged
    staged.clear()
    monkeypatch.setattr(tick_module, "plain_outputs", lambda *_: None)
    until_caught_up(spark, JOB.format(folder=tmp_path, out=tmp_path / "spark"), tmp_path / "c2")
    assert not staged
    own, wanted = sums(tmp_path / "own"), sums(tmp_path / "spark")
    assert own == wanted
    assert sum(1 for diff in wanted[1].values() if diff < 0) >= 3


def test_what_leaves_its_type_stops_the_job_with_its_values(spark, tmp_path):
    written(tmp_path, greatest=2**31 - 1)
    with pytest.raises(WatersmeetError, match="2147483647"):
        until_caught_up(spark, JOB.format(folder=tmp_path, out=tmp_path / "own"), tmp_path / "c1")
    assert not list((tmp_path / "own").glob("out-*"))
