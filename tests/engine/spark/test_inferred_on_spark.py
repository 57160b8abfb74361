"""Inferred columns: Spark infers the same where that is sensible, reads every value as the sample was, and a
job keeps to what was inferred when it began."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.columns import column
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.files.inference import infer
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.job.column_inference import ColumnInference
from watersmeet.runtime.spark.job.run import JobRun, build_outputs
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sources.tables import open_table
from watersmeet.sinks.memory import MemorySink
from watersmeet.spec.model import Source

pytestmark = pytest.mark.spark

CSV = [
    ("i", "BIGINT", ["1", "-9223372036854775808", ""], [1, -(2**63), None]),
    ("n", "DECIMAL(38,0)", ["9" * 38, "1", "-5"], [Decimal("9" * 38), Decimal(1), Decimal(-5)]),
    ("r", "DOUBLE", ["1.5", "-2e-3", "NaN"], [1.5, -0.002, float("nan")]),
    ("b", "BOOLEAN", ["true", "False", ""], [True, False, None]),
    ("d", "DATE", ["2024-02-29", "0001-01-01", "9999-12-31"],
     [date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)]),
    ("t", "TIMESTAMP", ["2024-02-29T10:00:00", "0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"],
     [datetime(2024, 2, 29, 10), datetime(1, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    ("z", "TIMESTAMP", ["2024-02-29T10:00:00Z", "2024-02-29 10:00:00.5+05:30", "2024-02-29T10:00:00-18:00"],
     [datetime(2024, 2, 29, 10), datetime(2024, 2, 29, 4, 30, 0, 500000), datetime(2024, 3, 1, 4)]),
    ("a b.c", "STRING", ["007", "x", "2024-01-01T10:00:00.123456789Z"], None),
    ("größe", "STRING", ["1 2", " 5", "true "], None),
]  # fmt: skip
LIKE_SPARK = {"i": "BIGINT", "r": "DOUBLE", "b": "BOOLEAN", "d": "DATE", "t": "TIMESTAMP", "z": "TIMESTAMP",
              "n": "DECIMAL(38,0)", "a b.c": "STRING", "größe": "STRING"}  # fmt: skip


def rows_of(spark, source):
    """What Spark reads with the inferred columns: names and types, and rows; none is broken."""
    columns = infer(source).columns
    whole = Source(source.name, columns, "file", source.options)
    table = open_table(spark, whole).frame().toArrow()
    if BROKEN in table.column_names:
        assert table.column(BROKEN).null_count == table.num_rows
        table = table.drop_columns([BROKEN])
    return {each.name: str(each.type) for each in columns}, table


def plain(value):
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return "nan" if isinstance(value, float) and value != value else value


def test_csv(spark, tmp_path):
    lines = [",".join(name for name, *_ in CSV)]
    lines += [",".join(values[row] for _, _, values, _ in CSV) for row in range(3)]
    (tmp_path / "1.csv").write_text("\n".join(lines) + "\n")
    types, table = rows_of(spark, Source("a", (), "file", {"path": str(tmp_path), "format": "csv"}))
    assert types == {name: kind for name, kind, _, _ in CSV}
    for name, _, values, expected in CSV:
        wanted = expected if expected is not None else values
        assert list(map(plain, table.column(name).to_pylist())) == list(map(plain, wanted)), name
    own = spark.read.csv(str(tmp_path), header=True, inferSchema=True).schema
    of_spark = {each.name: each.dataType.simpleString().upper() for each in own}
    assert of_spark == LIKE_SPARK


def test_json(spark, tmp_path):
    records = [
        {"i": 1, "n": 2**63, "r": 1, "t": "2024-02-29T10:00:00", "z": "2024-02-29T10:00:00+05:30",
         "o": {"x": 1, "l": ["a"]}, "m": 5, "d": "2024-02-29", "s": "007"},
        {"i": -(2**63), "n": 1, "r": 0.5, "t": None, "o": {"x": None, "l": []}, "m": {"k": 1}},
    ]  # fmt: skip
    (tmp_path / "1.json").write_text("\n".join(map(json.dumps, records)))
    types, table = rows_of(spark, Source("a", (), "file", {"path": str(tmp_path), "format": "json"}))
    own = spark.read.json(str(tmp_path)).schema
    of_spark = {each.name: each.dataType for each in own}
    plain_ones = [name for name in types if name != "o"]
    wanted = types | {"n": "DECIMAL(20,0)"} | dict.fromkeys("tzd", "STRING")
    assert {n: wanted[n] for n in plain_ones} == {n: of_spark[n].simpleString().upper() for n in plain_ones}
    assert types["o"] == "STRUCT<x: BIGINT, l: ARRAY<STRING>>"
    first, second = table.to_pylist()
    assert {name: plain(value) for name, value in first.items()} == {
        "i": 1, "n": Decimal(2**63), "r": 1.0, "t": datetime(2024, 2, 29, 10), "m": "5", "s": "007",
        "z": datetime(2024, 2, 29, 4, 30), "o": {"x": 1, "l": ["a"]}, "d": date(2024, 2, 29),
    }  # fmt: skip
    assert (second["i"], second["n"], second["m"], second["o"]) == (
        -(2**63), Decimal(1), '{"k": 1}', {"x": None, "l": []},
    )  # fmt: skip


def test_parquet(spark, tmp_path):
    now = datetime(2024, 2, 29, 10)
    table = pa.table(
        {
            "i8": pa.array([1], pa.int8()), "i16": pa.array([1], pa.int16()),
            "i32": pa.array([1], pa.int32()), "i64": [1],
            "u8": pa.array([1], pa.uint8()), "u16": pa.array([1], pa.uint16()),
            "u32": pa.array([1], pa.uint32()), "u64": pa.array([1], pa.uint64()),
            "f": pa.array([1], pa.float32()), "r": [0.5], "b": [True], "s": ["x"], "x": [b"x"],
            "fix": pa.array([b"xy"], pa.binary(2)), "d": [now.date()], "day=": [1],
            "t": pa.array([now], pa.timestamp("us")), "z": pa.array([now], pa.timestamp("ms", "UTC")),
            "dec": pa.array([Decimal("1.5")], pa.decimal128(38, 18)), "l": [[1]], "o": [{"a": {"b c": "x"}}],
            "m": pa.array([[("k", [1.5])]], pa.map_(pa.string(), pa.list_(pa.float64()))),
        }
    )  # fmt: skip
    (tmp_path / "k=5").mkdir()
    parquet.write_table(table, tmp_path / "k=5" / "1.parquet")
    parquet.write_table(table.slice(0, 0), tmp_path / "k=5" / "2.parquet")
    source = Source("a", (), "file", {"path": str(tmp_path)})
    types, found = rows_of(spark, source)
    own = spark.read.parquet(str(tmp_path)).schema
    of_spark = {each.name: each.dataType.simpleString().upper() for each in own}
    nested = ("l", "o", "m")
    assert {n: k for n, k in types.items() if n not in (*nested, "k")} == {
        n: k for n, k in of_spark.items() if n not in (*nested, "k")
    }
    assert of_spark["k"] == "INT"
    assert types["k"] == "BIGINT"
    assert [types[n] for n in nested] == [
        "ARRAY<BIGINT>", "STRUCT<a: STRUCT<`b c`: STRING>>", "MAP<STRING, ARRAY<DOUBLE>>",
    ]  # fmt: skip
    assert [of_spark[n] for n in nested] == [
        "ARRAY<BIGINT>", "STRUCT<A:STRUCT<B C:STRING>>", "MAP<STRING,ARRAY<DOUBLE>>",
    ]  # fmt: skip
    assert {n: plain(v) for n, v in found.to_pylist()[0].items()} == table.to_pylist()[0] | {
        "k": 5, "z": now, "m": [("k", [1.5])],
    }  # fmt: skip


JOB = """
CREATE TABLE a (WATERMARK FOR t AS t - INTERVAL '1' SECOND) WITH ('connector' = 'file', 'path' = '{}',
  'format' = 'csv');
CREATE SINK inferred_out WITH ('connector' = 'memory');
INSERT INTO inferred_out SELECT * FROM a
"""


def test_a_restart_keeps_to_what_was_inferred(spark, tmp_path):
    """Of the files that come later another type would be inferred, or columns left out."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("t,v\n2024-01-01 10:00:00,1\n")

    def ran():
        said = []
        infer = ColumnInference(str(tmp_path / "checkpoint"), said.append)
        job = parse_job(JOB.format(tmp_path / "in"), infer=infer)
        plan = plan_job(job)
        asked = RunSettings(
            str(tmp_path / "checkpoint"), partitions=1, until_caught_up=True, inferred=infer.inferred
        )
        result = JobRun(
            spark, plan, asked, build_outputs(job, plan, asked), Checkpoint(asked.checkpoint)
        ).execute()
        return result.last.queries["inferred_out"].account["a"], infer.inferred["a"], "\n".join(said)

    MemorySink.clear("inferred_out")
    account, columns, said = ran()
    assert columns == (column("t", "TIMESTAMP"), column("v", "BIGINT"))
    assert "inferred from 1 file and 1 record" in said
    (tmp_path / "in" / "2.csv").write_text("t,v\n2024-01-01 11:00:00,x\n2024-01-01 11:00:00,2\n")
    assert [str(each.type) for each in infer(Source("a", (), "file", {"path": str(tmp_path / "in"),
            "format": "csv"})).columns] == ["TIMESTAMP", "STRING"]  # fmt: skip
    account, again, said = ran()
    assert again == columns
    assert "inferred when the job first ran: t TIMESTAMP, v BIGINT" in said
    assert (account["in"], account["broken"]) == (3, 1)
    assert sorted(row["v"] for row in MemorySink.rows("inferred_out")) == [1, 2]
