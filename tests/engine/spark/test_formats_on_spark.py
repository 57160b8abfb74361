"""Types that a format can hold, as this package has them, against what Spark reads and writes."""

from __future__ import annotations

import pytest

from tests.support.columns import column
from watersmeet.sinks.base import TEXT_OPTIONS
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options.files import type_problems

pytestmark = pytest.mark.spark

READ = {
    "BOOLEAN": ("true", "true"),
    "TINYINT": ("1", "1"),
    "BIGINT": ("1", "1"),
    "FLOAT": ("1.5", "1.5"),
    "DOUBLE": ("1.5", "1.5"),
    "DECIMAL(38,38)": ("0.25", "0.25"),
    "STRING": ('"a"', "a"),
    "BINARY": ('"YWI="', "ab"),
    "DATE": ('"2024-01-02"', "2024-01-02"),
    "TIMESTAMP": ('"2024-01-02T03:04:05Z"', "2024-01-02T03:04:05Z"),
    "TIMESTAMP_NTZ": ('"2024-01-02T03:04:05"', "2024-01-02T03:04:05"),
    "VOID": ("null", ""),
    "ARRAY<INT>": ("[1]", "[1]"),
    "ARRAY<BINARY>": ('["YWI="]', "a"),
    "ARRAY<MAP<DATE,INT>>": ('[{"2024-01-01":1}]', "a"),
    "MAP<STRING,INT>": ('{"a":1}', "a"),
    "MAP<INT,INT>": ('{"1":1}', "a"),
    "STRUCT<a:INT>": ('{"a":1}', "a"),
    "STRUCT<a:VOID>": ('{"a":null}', "a"),
    "STRUCT<a:MAP<BIGINT,INT>>": ('{"a":{"1":1}}', "a"),
}
"""By type a value as JSON and as CSV have it."""

WRITTEN = {
    "b": "true", "i": "1Y", "n": "9L", "f": "CAST(1.5 AS FLOAT)", "d": "1.5D", "dec": "1.25", "s": "'a'",
    "bin": "X'6162'", "day": "DATE'2024-01-02'", "ts": "TIMESTAMP'2024-01-02 03:04:05.000006'",
    "ntz": "TIMESTAMP_NTZ'2024-01-02 03:04:05.000006'", "void": "NULL", "a": "array(1)", "m": "map('a', 1)",
    "st": "struct(1 AS a)", "dt": "INTERVAL '1 02:03:04' DAY TO SECOND", "ym": "INTERVAL '1-2' YEAR TO MONTH",
    "ci": "make_interval(0, 1, 0, 1)", "v": "parse_json('{\"a\":1}')",
}  # fmt: skip
"""By name a value of every type that a result may have."""


def is_unsupported_type(type_: str, format_: str) -> bool:
    return bool(type_problems(Source("s", (column("c", type_),), "file", {}), format_))


def works(ask) -> bool:
    try:
        ask()
    except Exception:
        return False
    return True


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_types_of_sources(spark, tmp_path, format_):
    """Files, and the values of records (Kafka)."""

    def build_readers(types):
        values = [READ[each][format_ == "csv"] for each in types]
        if format_ == "json":
            text = "{" + ",".join(f'"c{n}":{value}' for n, value in enumerate(values)) + "}"
        else:
            text = ",".join((*values, "1"))
        place = tmp_path / f"{len(types)}-{abs(hash(tuple(types)))}.{format_}"
        place.write_text(text + "\n")
        ddl = ", ".join((*(f"c{n} {each}" for n, each in enumerate(types)), "n INT", "_x STRING"))
        lines = spark.createDataFrame([(text,)], "t STRING")
        told = "map('columnNameOfCorruptRecord', '_x')"
        yield lambda: [
            *spark.read.schema(ddl).option("columnNameOfCorruptRecord", "_x").format(format_)
            .load(str(place)).toArrow().to_pylist()
        ]  # fmt: skip
        yield lambda: [
            row["r"]
            for row in lines.selectExpr(f"from_{format_}(t, '{ddl}', {told}) AS r").toArrow().to_pylist()
        ]

    held = [each for each in READ if not is_unsupported_type(each, format_)]
    for ask in build_readers(held):
        (row,) = ask()
        assert row["_x"] is None
        missing = [each for n, each in enumerate(held) if row[f"c{n}"] is None and each != "VOID"]
        assert missing == []
    for each in READ:
        if is_unsupported_type(each, format_):
            assert [works(ask) for ask in build_readers([each])] == [False, False], each


@pytest.mark.parametrize("format_", ["json", "csv", "parquet"])
def test_types_of_file_sinks(spark, tmp_path, format_):
    """What is taken is read again as what it was; what is refused Spark does not write, or not so."""

    def frame(names):
        return spark.range(1).selectExpr("id", *(f"{WRITTEN[name]} AS {name}" for name in names))

    def comes_back(names):
        place = str(tmp_path / "-".join(names)[:100])
        frame(names).write.format(format_).options(**TEXT_OPTIONS.get(format_, {})).save(place)
        back = spark.read.schema(frame(names).schema).format(format_).load(place)
        # in SQL: Python has no values of some of them
        rows = back.selectExpr(
            *(f"CAST({n} AS STRING) <=> CAST({WRITTEN[n]} AS STRING) AS {n}" for n in names)
        )
        return [name for name, same in rows.first().asDict().items() if not same]

    held = []
    for name in WRITTEN:
        options = {"path": str(tmp_path / "prepared" / name), "format": format_}
        sink = make_sink(Sink("out", "file", options))
        if works(lambda name=name, sink=sink: sink.prepare(frame([name]).schema)):
            held.append(name)
        else:
            assert not works(lambda name=name: 1 / (not comes_back([name]))), name
    assert comes_back(held) == []


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_types_of_kafka_sinks(spark, format_):
    """The same columns are taken by a topic as by files."""
    frame = spark.range(1)
    for name, sql in WRITTEN.items():
        schema = frame.selectExpr("id", f"{sql} AS {name}").schema
        place = {"bootstrap.servers": "localhost:9092", "topic": "out", "format": format_}
        taken = works(lambda schema=schema, place=place: make_sink(Sink("o", "kafka", place)).prepare(schema))
        by_expression = works(
            lambda name=name, sql=sql: frame.selectExpr(f"to_{format_}(struct({sql} AS {name}))").collect()
        )
        assert by_expression or not taken, name
