"""Random files, read by the reader of files and by Spark: equal rows, or a refusal."""

from __future__ import annotations

import bz2
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.columns import column
from tests.support.effort import at_effort
from watersmeet.errors import EngineError
from watersmeet.runtime.files.file_split import UnsupportedFile
from watersmeet.runtime.files.reader import read_file
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sources.tables import open_table
from watersmeet.spec.model import Source
from watersmeet.types.arrow import in_arrow
from watersmeet.types.parser import sql_type

pytestmark = pytest.mark.spark

FILES = at_effort(quick=16, full=150)
"""Files of each format."""

USUAL: dict[str, list[str]] = {
    "TINYINT": ["0", "-1", "127", "-128", "007"],
    "INT": ["0", "-0", "2147483647", "-2147483648", "12"],
    "BIGINT": ["9223372036854775807", "-9223372036854775808", "9007199254740993", "5"],
    "DOUBLE": ["0.1", "-0.0", "1e3", "1.7976931348623157e308", "4.9e-324", "5"],
    "FLOAT": ["0.1", "16777217", "3.4028235e38", "1.17549435e-38"],
    "BOOLEAN": ["true", "false", "TRUE", "False"],
    "DECIMAL(5,2)": ["123.45", "-0.01", "1", "999.99"],
    "DECIMAL(38,10)": ["1234567890123456789012345678.0123456789", "-1.5"],
    "DATE": ["2024-02-29", "0001-01-01", "9999-12-31", "1582-10-15"],
    "TIMESTAMP": ["2024-02-29T10:00:00Z", "2024-02-29 10:00:00.123456", "1969-12-31T23:59:59.999999+05:30"],
    "TIMESTAMP_NTZ": ["2024-02-29T10:00:00", "1900-01-01 00:00:00.000001"],
    "STRING": ["a", "ä", "\U0001f600", "two words", "x" * 300, "NULL", "1"],
    "VARCHAR(3)": ["abc", "äöü", "a"],
}
WILD = ["", " 1", "+1", "NaN", "Infinity", "128", "1e400", "yes", "2023-02-29", "2024-02-29T24:00:00",
        "2024-2-9", "12345.678", "1.005", "\t", "a\\b", "abcd", "\u2003"]  # fmt: skip
CSV_WILD = ['"a,b"', '"a;b"', '""', '"a""b"', '"a\\"b"', 'a"b', '"open', "'q'", "#x"]
JSON_WILD = ["null", "1.0", "[]", "{}", '{"a": 1}', "'a'", '"\\ud83d"', '"\\u00e4"', "01", "1 2", "-0"]


def draw_types(rng: random.Random) -> dict[str, str]:
    return {f"c{number}": rng.choice(list(USUAL)) for number in range(rng.randint(2, 6))}


def write_bytes(rng: random.Random, folder: Path, name: str, lines: list[str], *, is_plain: bool) -> None:
    """Write lines with a random end, mark, compression, and at times a byte that is no UTF-8."""
    end = rng.choice(["\n", "\n", "\r\n"])
    data = (end.join(lines) + rng.choice([end, ""])).encode()
    if rng.random() < 0.1:
        data = b"\xef\xbb\xbf" + data
    if not is_plain and rng.random() < 0.1:
        at = rng.randrange(len(data))
        data = data[:at] + rng.choice([b"\xff", b"\0", b"\r", b"\xed\xa0\x80"]) + data[at:]
    suffix, pack = rng.choice([("", bytes), ("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
    if is_plain:
        suffix, pack = "", bytes
    (folder / (name + suffix)).write_bytes(pack(data))


def draw_csv(rng: random.Random, folder: Path, types: dict[str, str]) -> dict[str, str]:
    """Write a CSV file, and return the options of its source."""
    is_plain = rng.random() < 0.5
    wildness = 0 if is_plain else rng.choice([0, 0.01])
    usual = {name: rng.sample(USUAL[kind], rng.randint(1, 2)) for name, kind in types.items()}
    separator = rng.choice([",", ",", ";", "|", "\t"])
    options = {"sep": separator} if separator != "," else {}
    if not is_plain and rng.random() < 0.3:
        options["escape"] = '"'
    if not is_plain and rng.random() < 0.3:
        options["nullValue"] = rng.choice(["NULL", "-", "a"])
    has_header = rng.random() < 0.8
    if not has_header:
        options["header"] = "false"

    def draw_cell(name: str) -> str:
        if rng.random() < wildness:
            return rng.choice(WILD + CSV_WILD)
        if rng.random() < 0.1:
            return options.get("nullValue", "")
        text = rng.choice(usual[name])
        return f'"{text}"' if rng.random() < 0.1 else text

    order = list(types)
    if has_header:
        rng.shuffle(order)
    extra = has_header and rng.random() < 0.3
    lines = [separator.join(["id", *order, *(["more"] if extra else [])])] if has_header else []
    for number in range(rng.randint(0, 60)):
        cells = [str(number), *(draw_cell(name) for name in order), *(["z"] if extra else [])]
        if rng.random() < wildness / 2:
            cells = rng.choice([cells[:-1], [*cells, "1"], [""], ["  "]])
        lines.append(separator.join(cells))
    write_bytes(rng, folder, "a.csv", lines or ["0"], is_plain=is_plain)
    return options


def draw_json(rng: random.Random, folder: Path, types: dict[str, str]) -> dict[str, str]:
    is_plain = rng.random() < 0.5
    wildness = 0 if is_plain else rng.choice([0, 0.01])

    def draw_value(kind: str) -> str:
        if rng.random() < wildness:
            return rng.choice([*JSON_WILD, *map(json.dumps, WILD)])
        text = rng.choice(USUAL[kind])
        is_number = sql_type(kind).is_integer or sql_type(kind).is_decimal or kind in ("DOUBLE", "FLOAT")
        if kind == "BOOLEAN" or (is_number and text not in ("007", "-0")):
            return text.lower() if kind == "BOOLEAN" else text
        return "0" if is_number else json.dumps(text, ensure_ascii=rng.random() < 0.5)

    lines = []
    for number in range(rng.randint(0, 60)):
        fields = [f'"{name}": {draw_value(kind)}' for name, kind in types.items() if rng.random() < 0.9]
        if rng.random() < wildness:
            fields.append(rng.choice(['"C0": 1', '"c0": 1', '"other": {"c0": [1]}']))
        line = "{" + ", ".join([f'"id": {number}', *fields]) + "}"
        if rng.random() < wildness / 2:
            line = rng.choice([line[:-1], line + " x", f"[{line}]", "", "  ", "[]", line + line])
        lines.append(line)
    write_bytes(rng, folder, "a.json", lines or ["{}"], is_plain=is_plain)
    return {}


def draw_parquet(rng: random.Random, folder: Path, types: dict[str, str]) -> dict[str, str]:
    """Write a Parquet file, some of whose columns are of other types than declared."""
    rows, is_wild = rng.randint(0, 60), rng.random() < 0.3
    other = [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.string(), pa.timestamp("ns"),
             pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.list_(pa.int32())]  # fmt: skip
    columns = {"id": pa.array(range(rows), pa.int64())}
    for name, kind in types.items():
        own = in_arrow(sql_type(kind))
        own = pa.timestamp("us", "UTC") if kind == "TIMESTAMP" else own
        own = rng.choice(other) if is_wild and rng.random() < 0.3 else own
        assert own is not None
        columns[name] = pa.array([draw_arrow(rng, own, is_wild) for _ in range(rows)], own)
    codec = rng.choice(["none", "snappy", "gzip", "zstd", "lz4"])
    parquet.write_table(
        pa.table(columns), folder / "a.parquet", compression=codec, use_dictionary=rng.random() < 0.5,
        row_group_size=rng.choice([7, 1000]), use_deprecated_int96_timestamps=is_wild and rng.random() < 0.3,
    )  # fmt: skip
    return {}


def draw_arrow(rng: random.Random, kind: pa.DataType, is_wild: bool) -> Any:
    if rng.random() < 0.2:
        return None
    if pa.types.is_integer(kind):
        low = -(2 ** (kind.bit_width - 1))
        return rng.choice([0, low, -low - 1, 5])
    if pa.types.is_decimal(kind):
        digits = rng.choice([0, 1, 10**kind.precision - 1])
        return Decimal((digits % 2, tuple(map(int, str(digits))), -kind.scale))
    if pa.types.is_timestamp(kind):
        start = datetime(
            rng.choice([1970, 1901, 2200, 1850 if is_wild else 1999]), 1, 1, tzinfo=UTC if kind.tz else None
        )
        return start + timedelta(milliseconds=rng.randrange(10**9))
    draws: dict[Callable[[pa.DataType], bool], Any] = {
        pa.types.is_boolean: rng.random() < 0.5,
        pa.types.is_date: date(rng.choice([1970, 1901, 9999, 1 if is_wild else 1999]), 12, 31),
        pa.types.is_floating: rng.choice([0.5, -0.0, float("nan"), float("inf"), 1.5]),
        pa.types.is_list: [1, None],
    }
    return next(
        (value for is_one, value in draws.items() if is_one(kind)), rng.choice(["", "a", "äöü", "abcd"])
    )


DRAWS = {"csv": draw_csv, "json": draw_json, "parquet": draw_parquet}


def comparable(value: Any) -> Any:
    """A value that equals another only if both are the same, NaN and the sign of zero included."""
    return repr(value) if isinstance(value, float) else value


def bag_of(rows: pa.Table, names: list[str]) -> Counter[Any]:
    plain = [
        rows.column(name).cast(pa.int64())
        if pa.types.is_timestamp(rows.schema.field(name).type)
        else rows.column(name)
        for name in names
    ]
    return Counter(
        tuple(map(comparable, row)) for row in zip(*(one.to_pylist() for one in plain), strict=True)
    )


def read_by_spark(spark: Any, source: Source, names: list[str]) -> Counter[Any] | str:
    """What Spark reads, or why a job would not: broken records too."""
    try:
        rows = open_table(spark, source).frame().toArrow()
        if BROKEN in rows.schema.names and rows.column(BROKEN).null_count < rows.num_rows:
            return "broken records"
        return bag_of(rows, names)
    except Exception as error:  # whatever Spark raises is no rows
        return str(error)


@pytest.mark.parametrize("wanted", list(DRAWS))
def test_the_reader_reads_as_spark_does_or_refuses(spark, seed, tmp_path, wanted):
    taken = refused = 0
    zone = random.Random(f"{seed} {wanted}").choice(["UTC", "America/New_York", "+05:30"])
    spark.conf.set("spark.sql.session.timeZone", zone)
    for number in range(FILES):
        rng = random.Random(f"{seed} {wanted} {number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        types = draw_types(rng)
        options = DRAWS[wanted](rng, folder, types)
        (file,) = folder.iterdir()
        columns = (column("id", "BIGINT"), *(column(name, kind) for name, kind in types.items()))
        source = Source("a", columns, "file", {"path": str(file), "format": wanted, **options})
        names = [one.name for one in columns]
        where = f"seed {seed}, {wanted} file {number}: {types}, {options}, {zone}"
        try:
            read = read_file(source, str(file), zone, frozenset(names))
        except (UnsupportedFile, EngineError):
            refused += 1
            continue
        assert read.schema.names == names, where
        taken += 1
        assert bag_of(read, names) == read_by_spark(spark, source, names), where
    print(f"seed {seed}, {wanted}: {taken} files were read alike, {refused} were refused")
    assert taken >= FILES / 8
