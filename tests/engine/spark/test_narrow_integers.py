"""Integers that do not fit their declared TINYINT or SMALLINT break their record, in Parquet and JSON."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import Running
from tests.support.columns import column
from tests.support.effort import at_effort
from watersmeet.runtime.spark.read_types import cast_to_declared, use_read_types
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sources.frames import read_records
from watersmeet.sinks.memory import MemorySink
from watersmeet.spec.model import Source

pytestmark = pytest.mark.spark

SCHEMAS = at_effort(quick=6, full=60)
RANGES = {"TINYINT": range(-128, 128), "SMALLINT": range(-32_768, 32_768), "INT": range(-(2**31), 2**31)}
NEAR = [0, 1, -128, -129, 127, 128, 255, -32_768, -32_769, 32_767, 32_768, 65_535, 65_536, 70_000, 2**31 - 1]
STORED = {
    "int8": pa.array([-128, 127, None], pa.int8()),
    "uint8": pa.array([0, 127, 128, 255, None], pa.uint8()),
    "int16": pa.array([-32_768, -129, -128, 127, 128, 32_767], pa.int16()),
    "uint16": pa.array([127, 128, 32_767, 32_768, 65_535], pa.uint16()),
    "int32": pa.array([None, *NEAR], pa.int32()),
}


def frame_of(spark: Any, columns: tuple[Any, ...], file: Any) -> Any:
    source = Source("s", columns, "file", {"path": str(file), "format": "parquet"})
    return read_records(spark.read, source, "parquet", str(file))


@pytest.mark.parametrize("declared", ["TINYINT", "SMALLINT"])
def test_integers_that_do_not_fit_break_their_record(spark, tmp_path, declared):
    for name, values in STORED.items():
        file = tmp_path / f"{name}.parquet"
        parquet.write_table(pa.table({"n": values}), file)
        rows = frame_of(spark, (column("N", declared),), file).collect()
        fit = [value for value in values.to_pylist() if value is None or value in RANGES[declared]]
        broken = [value for value in values.to_pylist() if value not in fit]
        assert [row["N"] for row in rows if row[BROKEN] is None] == fit, name
        assert [row[BROKEN] for row in rows if row[BROKEN]] == [f'{{"N":{value}}}' for value in broken], name


@pytest.mark.parametrize("declared", ["n TINYINT", "n STRUCT<m: TINYINT>", "n MAP<STRING, ARRAY<TINYINT>>"])
def test_integers_of_json_that_do_not_fit_break_their_record(spark, tmp_path, declared):
    """Spark's JSON parser takes 128 to 255 for a TINYINT, and 200 would be -56."""
    form = {"n T": "{0}", "n S": '{{"m": {0}}}', "n M": '{{"k": [1, {0}]}}'}[declared[:3]]
    values = [-129, -128, 127, 128, 255, 256, "null"]
    (tmp_path / "a").write_text("".join(f'{{"n": {form.format(value)}}}\n' for value in values))
    name, type_ = declared.split(" ", 1)
    source = Source("s", (column(name, type_),), "file", {"path": str(tmp_path), "format": "json"})
    frame = read_records(spark.read, use_read_types(source), "json", str(tmp_path))
    rows = (
        cast_to_declared(frame, source)
        .selectExpr("to_json(struct(n)) AS n", f"{BROKEN} IS NULL AS fits")
        .collect()
    )
    found = [re.findall(r"-?\d+", row["n"])[-1:] for row in rows if row["fits"]]
    assert [int(each[0]) for each in found[:2]] == [-128, 127]
    assert [row["fits"] for row in rows] == [False, True, True, False, False, False, True]


def drawn(rng: random.Random, depth: int = 2) -> tuple[str, pa.DataType, Any]:
    """Return a type as it is declared, as it is in the file, and what draws a value and whether that fits."""
    shape = rng.choice(["", "ARRAY", "MAP", "STRUCT"]) if depth else ""
    if not shape:
        declared = rng.choice([*RANGES, "STRING"])
        if declared == "STRING":
            return declared, pa.string(), lambda: (rng.choice(["a", "", None]), True)

        def number() -> tuple[int | None, bool]:
            value = rng.choice([rng.randrange(100), rng.randrange(100), rng.choice(NEAR), None])
            return value, value is None or value in RANGES[declared]

        return declared, pa.int32(), number
    inner, kind, draw = drawn(rng, depth - 1)
    if shape == "STRUCT":
        other, other_kind, other_draw = drawn(rng, depth - 1)

        def fields() -> tuple[dict[str, Any], bool]:
            (a, fits), (b, other_fits) = draw(), other_draw()
            return {"a b": a, "c": b}, fits and other_fits

        named = pa.struct([("a b", kind), ("c", other_kind)])
        return f"STRUCT<`a b`: {inner}, c: {other}>", named, fields

    def elements() -> tuple[list[Any], bool]:
        values = [draw() for _ in range(rng.randrange(4))]
        return [value for value, _ in values], all(fits for _, fits in values)

    if shape == "ARRAY":
        return f"ARRAY<{inner}>", pa.list_(kind), elements

    def entries() -> tuple[list[Any], bool]:
        (values, fits), keys = elements(), rng.sample([1, 2, 127, 128, 300], 4)
        key_fits = all(key in RANGES["TINYINT"] for key in keys[: len(values)])
        return list(zip(keys, values, strict=False)), fits and key_fits

    return f"MAP<TINYINT, {inner}>", pa.map_(pa.int32(), kind), entries


def test_integers_within_columns_are_looked_at(spark, tmp_path, seed):
    rng = random.Random(seed)
    seen: Counter[bool] = Counter()
    for number in range(SCHEMAS):
        declared, kind, draw = drawn(rng)
        values = [draw() for _ in range(12)]
        file = tmp_path / f"{number}.parquet"
        column_of = pa.array([value for value, _ in values], kind)
        parquet.write_table(pa.table({"v": column_of, "n": pa.array(range(12))}), file)
        rows = frame_of(spark, (column("v", declared), column("n", "BIGINT")), file)
        assert dict(rows.dtypes)["v"].replace(" ", "") == declared.lower().replace(" ", "").replace("`", "")
        is_checked = BROKEN in rows.columns
        found = {row["n"]: row.asDict(recursive=True) for row in rows.collect()}
        written = column_of.to_pylist(maps_as_pydicts="strict")  # as Spark's rows have MAPs, at any depth
        for n, (value, fits) in enumerate(values):
            assert (is_checked and found[n][BROKEN] is not None) is not fits, (seed, declared, value)
            if fits:
                assert found[n]["v"] == written[n], declared
            seen[fits] += 1
    assert min(seen[True], seen[False]) > SCHEMAS


def test_a_job_counts_them_and_sets_them_aside(spark, tmp_path):
    """70000 was read as 4464."""
    (tmp_path / "l").mkdir()
    rows = {"k": pa.array([4464, 70_000], pa.int32()), "t": pa.array([0, 0], pa.timestamp("us", "UTC"))}
    parquet.write_table(pa.table(rows), tmp_path / "l/1.parquet")
    text = f"""SET broken_output = bad;
        CREATE MAPPING l (k SMALLINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND)
          TYPE File OPTIONS ('path' = '{tmp_path}/l', 'format' = 'parquet');
        CREATE MAPPING bad TYPE Memory;
        CREATE MAPPING out TYPE Memory;
        INSERT INTO out SELECT k FROM l;"""
    MemorySink.clear()
    run = Running(spark, text, tmp_path / "state", until_caught_up=True)
    run.to_the_end()
    (counts,) = run.ticks[-1].queries["out"].account.values()
    assert (counts["in"], counts["broken"]) == (2, 1)
    assert [row["k"] for row in MemorySink.rows("out")] == [4464]
    assert [json.loads(row["record"])["k"] for row in MemorySink.rows("bad")] == [70_000]
    MemorySink.clear()
