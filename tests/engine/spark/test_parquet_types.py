"""What is refused of declared types and Parquet's is what Spark fails at, or would read in another unit."""

from __future__ import annotations

import os
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyarrow import parquet

from tests.engine.spark.running import Running, until_caught_up
from tests.fuzz.rows import bag, parquet_rows
from tests.support.columns import column
from watersmeet import parse_job, plan_job
from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.runtime.files.first_rows import read_first_rows
from watersmeet.runtime.files.parquet_types import compare_columns
from watersmeet.runtime.spark.sources.tables import open_table
from watersmeet.spec.model import Source

pytestmark = pytest.mark.spark

AT = datetime(2022, 3, 1, 10)
FILES = {
    "bool": pa.array([True]),
    "int8": pa.array([1], pa.int8()),
    "int32": pa.array([1], pa.int32()),
    "int64": pa.array([1], pa.int64()),
    "uint8": pa.array([1], pa.uint8()),
    "uint32": pa.array([1], pa.uint32()),
    "uint64": pa.array([1], pa.uint64()),
    "float": pa.array([1.5], pa.float32()),
    "double": pa.array([1.5]),
    "dictionary": pa.array(["a"]).dictionary_encode(),
    "fixed": pa.array([b"ab"], pa.binary(2)),
    "decimal": pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
    "decimal_in_int32": pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
    "decimal_in_int64": pa.array([Decimal("1.25")], pa.decimal128(15, 2)),
    "whole_decimal": pa.array([Decimal(7)], pa.decimal128(9, 0)),
    "date": pa.array([date(2022, 3, 1)]),
    "us": pa.array([AT], pa.timestamp("us")),
    "utc": pa.array([AT], pa.timestamp("ms", "UTC")),
    "time": pa.array([AT.time()], pa.time32("ms")),
    "time_us": pa.array([AT.time()], pa.time64("us")),
    "ns": pa.array([AT], pa.timestamp("ns")),
    "int96": pa.array([AT], pa.timestamp("ns")),
}
DECLARED = (
    "BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ",
)  # fmt: skip
DECIMALS = {
    "int8": ["DECIMAL(9,0)", "DECIMAL(10,0)", "DECIMAL(11,2)", "DECIMAL(12,2)"],
    "int32": ["DECIMAL(9,0)", "DECIMAL(10,0)", "DECIMAL(11,2)", "DECIMAL(12,2)"],
    "int64": ["DECIMAL(18,0)", "DECIMAL(19,0)", "DECIMAL(20,0)", "DECIMAL(21,2)", "DECIMAL(22,2)"],
    "uint8": ["DECIMAL(20,0)"],
    "uint64": ["DECIMAL(20,0)", "DECIMAL(22,0)", "DECIMAL(38,2)"],
    "decimal_in_int32": ["DECIMAL(9,2)", "DECIMAL(10,2)"],
    "decimal_in_int64": ["DECIMAL(15,2)", "DECIMAL(38,2)"],
    "whole_decimal": ["DECIMAL(9,0)"],
    "decimal": ["DECIMAL(9,2)", "DECIMAL(9,3)", "DECIMAL(10,3)", "DECIMAL(20,0)", "DECIMAL(20,2)"],
    "double": ["DECIMAL(20,2)"],
}

NUMBERS = frozenset({"INT", "BIGINT", "DOUBLE"})
SILENT = {
    **dict.fromkeys(("int8", "int32", "uint8"), frozenset({"DATE"})),
    **dict.fromkeys(("date", "us", "utc", "time", "time_us"), NUMBERS),
    "decimal_in_int32": NUMBERS | {"DATE"},
    "decimal_in_int64": frozenset({"BIGINT"}),
    "whole_decimal": frozenset({"DOUBLE", "DATE"}),
    "decimal": frozenset({"BINARY"}),
}
"""What is refused though Spark reads it: dates and times as numbers of some unit, numbers as dates, and the
digits of decimals."""


def is_rejected(declared: str, file: str) -> bool:
    try:
        compare_columns("", Source("a", (column("c", declared),), "file"), file)
    except EngineError:
        return True
    return False


@pytest.mark.parametrize("number", range(len(FILES)), ids=list(FILES))
def test_what_is_refused_is_what_spark_does_not_read(spark, tmp_path, number):
    """All that is not refused is read. Of what is refused a fifth is tried, of each file another: Spark takes
    a quarter of a second to fail."""
    name = list(FILES)[number]
    file = str(tmp_path / "x.parquet")
    old = name == "int96"
    kinds = [*DECLARED, *DECIMALS.get(name, ())]
    more = {"use_deprecated_int96_timestamps": old, "store_decimal_as_integer": name != "decimal"}
    parquet.write_table(pa.table({"c": FILES[name]}), file, **more)
    failing = [each for each in kinds if is_rejected(each, file)]
    assert SILENT.get(name, frozenset()) <= set(failing)
    failing_in_spark = [declared for declared in failing if declared not in SILENT.get(name, ())]
    for declared in failing_in_spark[number % 5 :: 5]:
        with pytest.raises(Py4JJavaError):
            spark.read.schema(f"c {declared}").parquet(file).collect()
    by_us = ("TIMESTAMP", "TIMESTAMP_NTZ") if name == "ns" else ()  # read as BIGINT, see below
    others = {f"c{n}": kind for n, kind in enumerate(kinds) if kind not in (*failing, *by_us)}
    if not others:
        assert name.startswith("time")
        return
    wide = str(tmp_path / "y.parquet")
    parquet.write_table(pa.table(dict.fromkeys(others, FILES[name])), wide, **more)
    schema = ", ".join(f"{column} {kind}" for column, kind in others.items())
    (row,) = spark.read.schema(schema).parquet(wide).collect()
    assert None not in row


NANOS = """CREATE TABLE l (k INT, z TIMESTAMP, w TIMESTAMP_NTZ, n BIGINT, WATERMARK FOR z AS z)
    WITH ('connector' = 'file', 'path' = '{path}/in', 'format' = 'parquet');
CREATE TABLE r (k INT, w TIMESTAMP_NTZ)
    WITH ('connector' = 'file', 'path' = '{path}/in/0', 'format' = 'parquet');
CREATE TABLE o WITH ('connector' = 'file', 'path' = '{path}/out', 'format' = 'parquet');
INSERT INTO o SELECT l.k, unix_micros(l.z) AS z, CAST(l.w AS STRING) AS w, l.n, CAST(r.w AS STRING) AS x
    FROM l LEFT JOIN r FOR SYSTEM_TIME AS OF PROCTIME() AS r ON l.k = r.k;"""


def test_times_in_nanoseconds_are_cut_to_microseconds(spark, tmp_path):
    """As pandas writes them; before 1970 towards the past. A file in another unit is refused."""
    ns = [1_646_128_800_123_456_789, -1, None]
    (tmp_path / "in").mkdir()
    times = pa.array(ns, pa.timestamp("ns"))
    columns = {"k": pa.array([1, 2, 3], pa.int32()), "Z": times.cast(pa.timestamp("ns", "UTC")), "w": times}
    parquet.write_table(pa.table({**columns, "n": times}), tmp_path / "in" / "0")
    notices: list[str] = []
    text = NANOS.format(path=tmp_path)
    until_caught_up(spark, text, tmp_path / "state", on_notice=notices.append)
    first, before = b"2022-03-01 10:00:00.123456", b"1969-12-31 23:59:59.999999"
    rows = {(1, ns[0] // 1000, first, ns[0], first), (2, -1, before, -1, before)}
    assert set(bag(parquet_rows(tmp_path / "out"))) == rows
    assert '"l": z, w has nanoseconds, truncated to microseconds' in notices
    (source,) = plan_job(parse_job(text)).sources
    seen = {(row["k"], row["w"]) for row in read_first_rows(source, 9).rows}
    assert seen == {
        (1, AT.replace(microsecond=123_456)),
        (2, datetime.fromisoformat(before.decode())),
        (3, None),
    }
    in_us = {**columns, "w": pa.array([AT] * 3, pa.timestamp("us")), "n": times}
    parquet.write_table(pa.table(in_us), tmp_path / "in" / "1")
    with pytest.raises(
        EngineError, match=r"w is not in nanoseconds in .*in/1, unlike in the source's oldest"
    ):
        until_caught_up(spark, text, tmp_path / "state")


def test_a_later_file_of_another_unit_is_refused(spark, tmp_path):
    """Times of ms as BIGINT were read beside those of µs."""
    (tmp_path / "in").mkdir()
    text = f"""
        CREATE MAPPING l (t BIGINT, k INT, WATERMARK FOR t AS t - 0)
          TYPE File OPTIONS ('path' = '{tmp_path}/in', 'format' = 'parquet');
        CREATE MAPPING out TYPE Memory;
        INSERT INTO out SELECT k FROM l;"""
    rows = {"k": pa.array([1], pa.int32()), "t": pa.array([1])}
    for number in (1, 3):
        parquet.write_table(pa.table(rows), tmp_path / f"in/{number}.parquet")
    Running(spark, text, tmp_path / "state", until_caught_up=True).to_the_end()
    for number, kind in ((4, pa.timestamp("ms")), (5, pa.int64())):
        table = pa.table(rows | {"t": rows["t"].cast(kind)})
        parquet.write_table(table, tmp_path / f"in/{number}.parquet")
    with pytest.raises(EngineError, match=r"t is declared BIGINT, but is timestamp\[ms\].*4.parquet"):
        Running(spark, text, tmp_path / "state", until_caught_up=True).to_the_end()


@pytest.mark.parametrize(
    ("kind", "value", "declared", "name"),
    [
        (pa.list_(pa.timestamp("ms")), [AT], "ARRAY<BIGINT>", "c.element"),
        (
            pa.struct([("a", pa.int32()), ("D", pa.date32())]),
            {"a": 1, "D": AT.date()},
            "STRUCT<d: INT>",
            "c.D",
        ),
        (pa.map_(pa.string(), pa.time32("ms")), [("a", AT.time())], "MAP<STRING, INT>", "c.value"),
        (pa.list_view(pa.date32()), [AT.date()], "ARRAY<INT>", "c.element"),
        (pa.duration("ms"), 5, "BIGINT", "c"),
        (pa.list_(pa.timestamp("ns")), [AT], "ARRAY<TIMESTAMP>", "c.element"),
    ],
)
def test_units_within_columns_are_refused(tmp_path, kind, value, declared, name):
    file = str(tmp_path / "x.parquet")
    parquet.write_table(pa.table({"b": pa.array([[1]]), "c": pa.array([value], kind)}), file)
    with pytest.raises(EngineError, match=rf"{name} is "):
        compare_columns("", Source("a", (column("c", declared), column("b", "ARRAY<BIGINT>")), "file"), file)


@pytest.mark.parametrize(
    ("kind", "value", "declared", "hint"),
    [
        (
            pa.struct([("t", pa.timestamp("ns", "UTC"))]),
            {"t": AT},
            "STRUCT<t: TIMESTAMP>",
            "declare c.t BIGINT, and cast in a view (timestamp_micros(n DIV 1000) is the time of n",
        ),
        (
            pa.map_(pa.string(), pa.timestamp("ns")),
            [("a", AT)],
            "MAP<STRING, DATE>",
            "declare c.value BIGINT",
        ),
        (pa.timestamp("ns", "UTC"), AT, "DATE", "declare c TIMESTAMP, and cast in a view"),
        (pa.timestamp("ns"), AT, "DATE", "declare c TIMESTAMP_NTZ, and cast in a view"),
        (pa.timestamp("us"), AT, "BIGINT", "declare c TIMESTAMP_NTZ, and cast in a view"),
    ],
)
def test_what_to_declare_for_times_that_are_not_read_as_declared(tmp_path, kind, value, declared, hint):
    """Nanoseconds within others are read as numbers alone, and a cast takes a number for seconds."""
    file = str(tmp_path / "x.parquet")
    parquet.write_table(pa.table({"c": pa.array([value], kind)}), file)
    with pytest.raises(EngineError) as refused:
        compare_columns("", Source("a", (column("c", declared),), "file"), file)
    assert refused.value.hint.startswith(hint)
    assert ("DIV 1000" in refused.value.hint) == ("BIGINT" in hint)


def test_directories_above_the_source_are_no_partitions(tmp_path):
    folder = tmp_path / "c=1"
    folder.mkdir()
    parquet.write_table(pa.table({"c": [AT.date()]}), folder / "x.parquet")
    source = Source("a", (column("c", "INT"),), "file", {"path": str(folder)})
    with pytest.raises(EngineError, match="c is declared INT, but is date32"):
        compare_columns("", source, str(folder / "x.parquet"))


def test_each_file_of_a_table_is_looked_at_whenever_it_is_read(spark, tmp_path):
    for number, kind in enumerate([pa.int32(), pa.date32(), pa.int32()]):
        column_of = pa.array([10], pa.int32()).cast(kind)
        parquet.write_table(pa.table({"n": column_of}), tmp_path / f"{number}.parquet")
    source = Source("a", (column("n", "INT"),), "file", {"path": str(tmp_path), "format": "parquet"})
    with pytest.raises(EngineError, match=r"n is declared INT, but is date32.*1\.parquet"):
        open_table(spark, source).frame().collect()


LATER = """CREATE TABLE l (k BIGINT, v BIGINT)
    WITH ('connector' = 'file', 'path' = '{path}/in', 'maxFilesPerTrigger' = '1'{options});
CREATE TABLE o WITH ('connector' = 'file', 'path' = '{path}/out', 'format' = 'parquet');
INSERT INTO o SELECT k, v FROM l;"""


@pytest.mark.parametrize("reader", ["auto", "spark"])
def test_later_file_without_a_column_is_reported_or_rejected(spark, tmp_path, reader):
    (tmp_path / "in").mkdir()
    for number, table in enumerate([{"k": [1], "v": [5]}, {"k": [2], "V2": [6]}, {"K": [3], "V": [7]}]):
        parquet.write_table(pa.table(table), tmp_path / "in" / f"{number}")
        os.utime(tmp_path / "in" / f"{number}", (1_700_000_000 + number,) * 2)
    notices: list[str] = []
    text = f"SET file_reader = '{reader}'; " + LATER.format(path=tmp_path, options="")
    until_caught_up(spark, text, tmp_path / "state", on_notice=notices.append)
    assert set(bag(parquet_rows(tmp_path / "out"))) == {(1, 5), (2, None), (3, 7)}
    (notice,) = [notice for notice in notices if "no column" in notice]
    assert f"{tmp_path}/in/1 has no column v: it is NULL for this" in notice
    failing = LATER.format(path=tmp_path, options=", 'on_missing_column' = 'fail'").replace("/out'", "/out2'")
    with pytest.raises(EngineError) as caught:
        until_caught_up(spark, failing, tmp_path / "again")
    assert caught.value.code == "column-missing"
    assert f"{tmp_path}/in/1 has no column v" in str(caught.value)


@pytest.mark.parametrize(("form", "value"), [("parquet", "warn"), ("json", "fail"), ("csv", "null")])
def test_an_option_for_missing_columns_that_does_nothing_is_refused(tmp_path, form, value):
    options = f", 'on_missing_column' = '{value}', 'format' = '{form}'"
    with pytest.raises(WatersmeetError) as caught:
        plan_job(parse_job(LATER.format(path=tmp_path, options=options)))
    assert caught.value.code == "wrong-option"
