"""Rows of hostile values: written as Parquet, JSON and CSV, read back from what a job put out, compared.

Rows are dicts, by the types of `values`. Nothing here uses the product: files are written and read by
pyarrow, `json` and a CSV reader of our own.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.values import Drawer
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import SqlType

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ALL: dict[str, str] = {
    "s": "STRING", "b": "BINARY", "o": "BOOLEAN", "i8": "TINYINT", "i16": "SMALLINT", "i32": "INT",
    "i64": "BIGINT", "f32": "FLOAT", "f64": "DOUBLE",
    "d9": "DECIMAL(9,2)", "d38": "DECIMAL(38,18)", "d": "DATE",
    "ts": "TIMESTAMP",
}  # fmt: skip
"""A column of every plain type."""
NESTED = {"a": "ARRAY<STRING>", "st": "STRUCT<a: STRING, n: BIGINT>"}


def draw_rows(
    drawer: Drawer, count: int, columns: Mapping[str, str], first: int = 0, times: Sequence[int] = range(20)
) -> list[Row]:
    """``count`` rows: ``id`` is their number, ``t`` one of the times, ``k`` a hostile key of few."""
    rng = drawer.rng
    return [
        {
            "id": first + number,
            "t": rng.choice(times),
            **{name: drawer.value(type_) for name, type_ in columns.items()},
        }
        for number in range(count)
    ]


def arrow_type(declared: SqlType) -> pa.DataType:
    if declared.is_decimal:
        return pa.decimal128(declared.digits, declared.scale)
    return {
        "STRING": pa.string(), "BINARY": pa.binary(), "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(), "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(), "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", "UTC"), "ARRAY<STRING>": pa.list_(pa.string()),
        "STRUCT<a: STRING, n: BIGINT>": pa.struct([("a", pa.string()), ("n", pa.int64())]),
    }[str(declared)]  # fmt: skip


def table_of(rows: Sequence[Row], columns: Mapping[str, str]) -> pa.Table:
    """The rows as a table of the columns' types."""
    arrays = []
    for name, declared in columns.items():
        type_ = arrow_type(sql_type(declared))
        stored = {"DATE": pa.int32(), "TIMESTAMP": pa.int64()}.get(declared, type_)
        arrays.append(pa.array([row.get(name) for row in rows], type=stored).cast(type_))
    return pa.table(arrays, names=list(columns))


def write_parquet(path: Path, rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    pq.write_table(table_of(rows, columns), path, use_dictionary=False)


def as_json(value: Any, declared: str) -> str:
    """A value as people write it into JSON."""
    if value is None:
        return "null"
    if declared == "BINARY":
        return json.dumps(base64.b64encode(value).decode())
    if declared in ("FLOAT", "DOUBLE"):
        return json.dumps(value) if math.isfinite(value) else f'"{as_text(value, declared)}"'
    if declared.startswith("DECIMAL") or declared in ("DATE", "TIMESTAMP"):
        text = as_text(value, declared)
        return text if declared.startswith("DECIMAL") else json.dumps(text)
    return json.dumps(value, ensure_ascii=False)


def json_line(row: Row, columns: Mapping[str, str]) -> str:
    parts = (f"{json.dumps(name)}:{as_json(row.get(name), type_)}" for name, type_ in columns.items())
    return "{" + ",".join(parts) + "}"


def as_text(value: Any, declared: str) -> str:
    """A value as people write it into CSV."""
    if declared in ("FLOAT", "DOUBLE"):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return repr(value)
    if declared == "DATE":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if declared == "TIMESTAMP":
        return (EPOCH + timedelta(microseconds=value)).replace(tzinfo=None).isoformat() + "Z"
    if declared.startswith("DECIMAL"):
        return format(value, "f")
    if declared == "BOOLEAN":
        return str(value).lower()
    return str(value)


def csv_line(row: Row, columns: Mapping[str, str]) -> str:
    """Quoted where it must be, quotes doubled."""
    parts = []
    for name, type_ in columns.items():
        text = "" if row.get(name) is None else as_text(row[name], type_)
        quoted = row.get(name) is not None and (type_ == "STRING")
        parts.append('"' + text.replace('"', '""') + '"' if quoted else text)
    return ",".join(parts)


def plain(value: Any) -> Any:
    """A value by its identity: NaN is itself, -0.0 is not 0.0, texts are bytes, 1.10 is 1.1."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, Decimal):
        return Fixed(value)
    if isinstance(value, list):
        return tuple(plain(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in value.items())
    return value


class Fixed(str):
    """A decimal's text, without zeros at its end; shown as it is."""

    def __new__(cls, value: Decimal) -> Fixed:
        text = format(value, "f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return super().__new__(cls, "0" if text in ("-0", "") else text)


def bag(rows: Iterable[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(plain(value) for value in row) for row in rows)


def difference(got: Counter[Any], want: Counter[Any], limit: int = 3) -> str:
    """What is too many and what is missing, for people; empty if nothing is."""
    more, less = got - want, want - got
    if not more and not less:
        return ""
    lines = [f"{sum(more.values())} rows too many, {sum(less.values())} missing"]
    for name, rows in (("too many", more), ("missing", less)):
        lines += [f"  {name}: {str(row)[:700]}" for row in sorted(rows, key=repr)[:limit]]
    return "\n".join(lines)


def native_rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Rows of a table with times as numbers and texts as bytes (they may be no UTF-8)."""
    columns = []
    for column in table.columns:
        type_ = column.type
        if pa.types.is_timestamp(type_):
            column = column.cast(pa.timestamp("us", type_.tz)).cast(pa.int64())
        elif pa.types.is_date32(type_):
            column = column.cast(pa.int32())
        elif pa.types.is_string(type_) or pa.types.is_large_string(type_):
            column = column.cast(pa.large_binary())
        columns.append(column.to_pylist())
    return zip(*columns, strict=True)


def parquet_rows(folder: Path) -> list[tuple[Any, ...]]:
    """The rows of a sink's directory, each file by itself."""
    found: list[tuple[Any, ...]] = []
    for file in sorted(folder.glob("*.parquet")):
        found += native_rows(pq.ParquetFile(file).read())
    return found


def json_rows(folder: Path, columns: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """The rows of a sink's directory by Python's JSON reader; ``columns``: output name → type."""
    found = []
    for file in sorted(folder.glob("*.json")):
        for line in file.read_bytes().split(b"\n"):
            if line:
                row = json.loads(line.decode("utf-8"), parse_float=Decimal)
                assert list(row) == list(columns)
                found.append(tuple(of_json(row[name], type_) for name, type_ in columns.items()))
    return found


def of_json(value: Any, declared: str) -> Any:
    if value is None:
        return None
    if declared == "BINARY":
        return base64.b64decode(value)
    if declared in ("FLOAT", "DOUBLE"):
        found = float(value)
        return struct.unpack("f", struct.pack("f", found))[0] if declared == "FLOAT" else found
    if declared == "DATE":
        return days_of(value)
    if declared == "TIMESTAMP":
        return micros_of(value)
    if declared.startswith("DECIMAL"):
        return Decimal(value)
    return value


def of_text(text: str | None, declared: str) -> Any:
    """A field of CSV; None is an empty one without quotes."""
    if text is None or (text == "" and declared != "STRING"):
        return None
    if declared in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
        return int(text)
    if declared == "BOOLEAN":
        return {"true": True, "false": False}[text]
    return of_json(text, declared)


def days_of(text: str) -> int:
    return (date.fromisoformat(text) - date(1970, 1, 1)).days


def micros_of(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def csv_rows(folder: Path, columns: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """The rows of a sink's directory; the header is checked."""
    found = []
    for file in sorted(folder.glob("*.csv")):
        lines = parse_csv(file.read_bytes().decode("utf-8"))
        assert next(lines) == list(columns)
        for line in lines:
            assert len(line) == len(columns), line
            values = zip(line, columns.values(), strict=True)
            found.append(tuple(of_text(text, type_) for text, type_ in values))
    return found


def parse_csv(text: str) -> Iterator[list[str | None]]:
    """Lines of fields: in quotes, in which a backslash stands before quotes and backslashes; a field of
    nothing at all is None."""
    at, line, end = 0, [], len(text)
    while at < end:
        field: list[str] | None = None
        if text[at] == '"':
            at, field = at + 1, []
            while text[at] != '"':
                if text[at] == "\\" and text[at + 1] in '"\\':
                    at += 1
                field.append(text[at])
                at += 1
            at += 1
        else:
            stop = at
            while stop < end and text[stop] not in ",\n":
                stop += 1
            field = list(text[at:stop]) or None
            at = stop
        line.append(None if field is None else "".join(field))
        if at < end and text[at] == ",":
            at += 1
            if at < end and text[at] != "\n":
                continue
            line.append(None)
        assert at >= end or text[at] == "\n", f"{text[at - 20 : at]!r} before {text[at : at + 20]!r}"
        at += 1
        yield line
        line = []


Match = Callable[[Row, Row], bool]


def key_of(value: Any) -> Any:
    """A value as SQL's equality takes it: NaN is NaN, 0.0 is -0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def join(
    left: Sequence[Row], right: Sequence[Row], key: str, within: int, residual: Match | None = None
) -> Iterator[tuple[Row, Row | None]]:
    """LEFT JOIN on an equal key and times no more than ``within`` apart: (left, right or None)."""
    by_key: dict[Any, list[Row]] = {}
    for row in right:
        if row[key] is not None:
            by_key.setdefault(key_of(row[key]), []).append(row)
    for row in left:
        found = [
            other
            for other in (by_key.get(key_of(row[key]), []) if row[key] is not None else [])
            if abs(row["t"] - other["t"]) <= within and (residual is None or residual(row, other))
        ]
        yield from ((row, other) for other in found or [None])
