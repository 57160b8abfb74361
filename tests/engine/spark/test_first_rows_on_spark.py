"""What is taken of a file for a preview is what Spark reads of it, record by record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from tests.support.columns import column
from watersmeet.runtime.files.first_rows import read_first_rows
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sources.tables import open_table
from watersmeet.spec.model import Source

pytestmark = pytest.mark.spark

TYPES = {
    "i": "BIGINT", "n": "INT", "y": "TINYINT", "r": "DOUBLE", "b": "BOOLEAN", "d": "DATE", "t": "TIMESTAMP",
    "z": "TIMESTAMP_NTZ", "c": "DECIMAL(5,2)", "s": "STRING",
}  # fmt: skip
TEXTS = [
    "", "0", "-0", "1", "+1", " 1", "1 ", "007", "127", "128", "2147483648", "9223372036854775807",
    "9223372036854775808", "1.0", "1.5", "1.005", "123.45", "1234.5", "-123.45", "1e3", "1E-3", ".5", "5.",
    "1e400", "NaN", "nan", "Infinity", "Inf", "0.1", "1.7976931348623157e308", "4.9e-324", "1f", "0x1", "1_0",
    "true", "TRUE", "t", "yes", "null", "NULL", "2024-02-29", "2023-02-29", "0001-01-01",
    "2024-02-29 10:00:00", "2024-02-29T10:00:00.123456", "2024-02-29T10:00:00.1234567",
    "2024-02-29T10:00:00Z",
    "2024-02-29T10:00:00+05:30", "2024-02-29T10:00:00-18:00", "2024-02-29T10:00", "2024-02-29T24:00:00",
    "9999-12-31 23:59:59.999999", "1582-10-10", "1582-10-10 00:00:00", "1900-01-01 00:00:00",
    "a", '"a"', '"a,b"', '""', '"a""b"', '"a\\"b"', 'a"b', "a\\b", "ä", "\U0001f600", "\t", "'", "#",
    " ", "\u2003",
    "٣", '"1"', '"1',
]  # fmt: skip
JSONS = [
    "null", "0", "-0", "-0.0", "1", "127", "128", "2147483648", "9007199254740993", "-9223372036854775807",
    "9223372036854775808", "1.0", "1.5", "1.005", "123.45", "1e3", "1e400", "NaN", "Infinity", "true",
    '"true"', '"1"', '"a"', '"\\u00e4"',
    '"\\ud83d\\ude00"',
    '"\\ud83d"', '"2024-02-29"', '"2023-02-29"', '"2024-02-29 10:00:00"', '"2024-02-29T10:00:00Z"',
    '"2024-02-29T10:00:00.5+05:30"', "[]", "{}", "'a'", '"', '""', "01", "1 2",
]  # fmt: skip


def plain(value):
    if isinstance(value, dict):
        return [(name, plain(each)) for name, each in value.items()]
    if isinstance(value, list):
        return [(each[0], plain(each[1])) if isinstance(each, tuple) else plain(each) for each in value]
    if isinstance(value, datetime) and value.tzinfo:
        value = value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, float) and value != value:
        return "nan"
    whole = isinstance(value, Decimal | int) and not isinstance(value, bool)
    return value if whole else (type(value), value)


def compare_first_rows(spark, source, expected_share):
    """Records that were taken, each as Spark has it; how many there were."""
    whole = Source("a", (column("id", "BIGINT"), *source.columns), "file", source.options)
    taken = read_first_rows(whole, 10_000)
    frame = open_table(spark, whole).frame()
    table = frame.toArrow()
    held = pc.is_in(table["id"], pa.array([row["id"] for row in taken.rows]))  # Python has not all times
    known = {row["id"]: row for row in table.filter(held).to_pylist()}
    wrong = []
    for row in taken.rows:
        of_spark = known[row["id"]]
        if of_spark.get(BROKEN) is not None:
            wrong.append((row, "broken"))
        wrong += [
            (name, of_spark[name], value)
            for name, value in row.items()
            if plain(of_spark[name]) != plain(value)
        ]
    assert not wrong, wrong
    whole_ones = table if BROKEN not in table.schema.names else table.filter(pc.is_null(table[BROKEN]))
    good = len(pc.unique(whole_ones["id"].drop_null()))
    print(f"{len(taken.rows)} taken of {good} that Spark reads")
    assert len(taken.rows) >= expected_share * good
    return taken


@pytest.mark.parametrize("wanted", ["csv", "json"])
def test_every_text_as_every_type(spark, tmp_path, wanted):
    """A file with a record for each value in each column; others are NULL."""
    names, lines, number = list(TYPES), [], 0
    for value in TEXTS if wanted == "csv" else JSONS:
        for name in names:
            number += 1
            if wanted == "csv":
                lines.append(",".join([str(number), *(value if name == each else "" for each in names)]))
            else:
                lines.append(f'{{"id": {number}, "{name}": {value}}}')
    if wanted == "csv":
        lines = [",".join(["id", *names]), *lines, "9001,2", ",".join(["9002"] * 12), "", "  "]
    else:
        lines += [
            '{"id": 9001, "I": 5}',
            '{"id": 9002, "i": 1, "i": 2}',
            "",
            "[]",
            '[{"id": 9003}]',
            "half",
            '{"id": 9004} x',
        ]
    (tmp_path / "1.txt").write_text("\n".join(lines) + "\n")
    columns = tuple(column(name, kind) for name, kind in TYPES.items())
    options = {"path": str(tmp_path), "format": wanted}
    compare_first_rows(spark, Source("a", columns, "file", options), 0.6)


CLOCKS = [
    "2024-02-29T10:00:00Z", "2024-02-29T10:00:00.123456Z", "2024-02-29T10:00:00.1Z",
    "2024-02-29 10:00:00.000001", "2024-02-29T10:00:00+05", "2024-02-29T10:00:00.1234567Z",
    "2024-02-29T10:00:00+05:30", "2024-02-29T10:00:00.5-11:45", "2024-02-29T10:00:00+18:00",
    "2024-02-29T10:00:00+18:01", "2024-02-29T10:00:00+0530", "2024-02-29T10:00:00+05:30:15",
    "2024-02-29T10:00:00 Europe/Paris", "2024-02-29T10:00:00UTC", "2024-02-29t10:00:00z",
    "2024-02-29T10:00:00 Z", "2024-02-29T10", "2024-02-29T10:00Z", "2024-02", "2024",
    "0001-01-01T00:00:00Z", "0001-01-01 00:00:00.000001", "9999-12-31T23:59:59.999999Z",
    "1582-10-04T00:00:00Z", "1582-10-15T00:00:00Z", "1900-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z",
    "2016-12-31T23:59:60Z", "2024-02-30T00:00:00Z", "1709200800", "1709200800000", "epoch", "now", "today",
    " 2024-02-29T10:00:00Z", "2024-2-9 1:2:3", "",
]  # fmt: skip


BEYOND = [
    "0000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z",
    "+294247-01-10T04:00:54.775807Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-18:00",
]  # fmt: skip
"""Times that Spark reads and Python has none of: they are left out of a preview."""


def test_event_times_in_json(spark, tmp_path):
    """Texts of clocks with offsets, microseconds and years of one to six digits; numbers of seconds too."""
    types = {"t": "TIMESTAMP", "z": "TIMESTAMP_NTZ", "d": "DATE", "i": "BIGINT"}
    columns = tuple(column(name, kind) for name, kind in types.items())
    source = Source("a", columns, "file", {"path": str(tmp_path), "format": "json"})
    for text in BEYOND:
        (tmp_path / "1.json").write_text("".join(f'{{"{name}": "{text}"}}\n' for name in types))
        assert read_first_rows(source, 100).rows == []
    values = [json.dumps(text) for text in CLOCKS]
    values += ["0", "-1", "1709200800", "1709200800000", "1709200800000000", "1709200800.5", "1.7e9"]
    cells = [f'"{name}": {value}' for name in types for value in values]
    lines = [f'{{"id": {number}, {cell}}}' for number, cell in enumerate(cells)]
    (tmp_path / "1.json").write_text("\n".join(lines) + "\n")
    taken = compare_first_rows(spark, source, 0.25)
    times = {row["t"] for row in taken.rows}
    assert {
        datetime(1, 1, 1),
        datetime(2024, 2, 29, 4, 30),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
    } <= times


PARTS = {
    "a": "ARRAY<INT>", "aa": "ARRAY<ARRAY<STRING>>", "m": "MAP<STRING,BIGINT>", "s": "STRUCT<p:INT,q:STRING>",
    "x": "ARRAY<STRUCT<p:DECIMAL(5,2),t:TIMESTAMP>>", "f": "MAP<STRING,ARRAY<DOUBLE>>",
    "d": "STRUCT<d:DATE,b:BOOLEAN>",
}  # fmt: skip
NESTED = [
    "null", "[]", "{}", "[null]", "[1]", "[1, null, 2147483648]", '["a"]', "[[]]", '[["a", null], null]', "1",
    '"a"', '{"k": 1}', '{"k": null, "": 2}', '{"k": 1, "k": 2}', '{"k": "1"}', '{"k": 1.0}', '{"1": 2}',
    '{"p": 1, "q": "a"}', '{"q": "a"}', '{"p": 1, "z": [1]}', '{"p": "a", "q": "a"}', '{"p": 1, "p": 2}',
    '{"P": 1}', '[{"p": 1.25, "t": "2024-07-01 10:00:00"}, null, {}]',
    '{"p": 1.25, "t": "2024-07-01 10:00:00"}',
    '[{"p": 1.255}]', '[{"t": "x"}]', '{"k": [0.1, null, 1]}', '{"k": null}', '{"k": ["NaN"]}', '[[1]]',
    '{"d": "2024-02-29", "b": true}', '{"d": "2023-02-29", "b": true}', '{"b": "true"}', '{"\\ud83d": 1}',
    "[1, 2", '{"k": 1',
]  # fmt: skip


def test_every_text_as_every_type_with_parts(spark, tmp_path):
    values = [f'"{name}": {value}' for name in PARTS for value in NESTED]
    lines = [f'{{"id": {number}, {value}}}' for number, value in enumerate(values)]
    (tmp_path / "1.json").write_text("\n".join(lines) + "\n")
    columns = tuple(column(name, kind) for name, kind in PARTS.items())
    compare_first_rows(spark, Source("a", columns, "file", {"path": str(tmp_path), "format": "json"}), 0.6)


def test_parquet_with_parts(spark, tmp_path):
    now = datetime(2024, 2, 29, 10, 0, 0, 1)
    struct = pa.struct([("d", pa.decimal128(5, 2)), ("t", pa.timestamp("us", "UTC"))])
    deep = pa.list_(pa.struct([("y", pa.list_(pa.date32()))]))
    table = pa.table(
        {
            "id": [1, 2, 3], "a": pa.array([[1, None], None, []], pa.list_(pa.int32())),
            "m": pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int64())),
            "s": pa.array([{"d": Decimal("1.50"), "t": now}, None, {"d": None, "t": None}], struct),
            "x": pa.array([[{"y": [now.date()]}], [None], None], deep),
            "n": pa.array([[now], None, None], pa.list_(pa.timestamp("ns"))),
        }
    )  # fmt: skip
    parquet.write_table(table, tmp_path / "1.parquet")
    types = {"a": "ARRAY<INT>", "m": "MAP<STRING,BIGINT>", "s": "STRUCT<d:DECIMAL(5,2),t:TIMESTAMP>",
             "x": "ARRAY<STRUCT<y:ARRAY<DATE>>>"}  # fmt: skip
    columns = tuple(column(name, kind) for name, kind in types.items())
    compare_first_rows(spark, Source("a", columns, "file", {"path": str(tmp_path)}), 1)


def test_parquet(spark, tmp_path):
    now = datetime(2024, 2, 29, 10, 0, 0, 1)
    table = pa.table(
        {
            "id": [1, 2], "i": pa.array([1, None], pa.int8()), "u": pa.array([2**64 - 1, 0], pa.uint64()),
            "f": pa.array([0.1, None], pa.float32()), "s": ["x", None], "x": [b"\xff", b""],
            "d": [now.date(), None], "t": pa.array([now, None], pa.timestamp("us")),
            "z": pa.array([now, None], pa.timestamp("us", "UTC")),
            "ns": pa.array([now, None], pa.timestamp("ns")),
            "c": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        }
    )  # fmt: skip
    (tmp_path / "k=07").mkdir()
    parquet.write_table(table, tmp_path / "k=07" / "1.parquet")
    types = {"I": "BIGINT", "u": "DECIMAL(20,0)", "f": "FLOAT", "s": "STRING", "x": "BINARY", "d": "DATE",
             "t": "TIMESTAMP_NTZ", "z": "TIMESTAMP", "ns": "BIGINT", "c": "DECIMAL(5,2)",
             "k": "STRING"}  # fmt: skip
    columns = tuple(column(name, kind) for name, kind in types.items())
    compare_first_rows(spark, Source("a", columns, "file", {"path": str(tmp_path)}), 1)


def test_times_of_a_zone(spark, tmp_path):
    """Days on which clocks change; texts without a zone are of the job's."""
    zone = "America/New_York"
    texts = [f"2024-{day} {hour:02d}:30:00" for day in ("03-10", "11-03", "07-01") for hour in range(5)]
    texts += ["1900-01-01 00:00:00", "1883-11-18 12:01:00", "0001-01-01 00:00:00", "2500-07-01 00:00:00"]
    (tmp_path / "1.json").write_text("\n".join(json.dumps({"id": n, "t": t}) for n, t in enumerate(texts)))
    columns = (column("id", "BIGINT"), column("t", "TIMESTAMP"))
    source = Source("a", columns, "file", {"path": str(tmp_path), "format": "json"})
    spark.conf.set("spark.sql.session.timeZone", zone)
    frame = open_table(spark, source).frame().selectExpr("id", "unix_micros(t) AS t")
    known = {row["id"]: row["t"] for row in frame.collect()}
    epoch = datetime(1970, 1, 1)
    taken = read_first_rows(source, 100, zone)
    assert len(taken.rows) == len(texts)
    assert {r["id"]: (r["t"] - epoch).days * 86_400_000_000 + (r["t"] - epoch).seconds * 1_000_000
            for r in taken.rows} == known  # fmt: skip
