"""Rows of case files and tests as Arrow columns of their declared types, and back (semantics.md, 6)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.names import CASE_PARTITION, DIFF, PARTITION
from watersmeet.nested import element_of, entry_of, fields_of
from watersmeet.spec.model import Column, Source

_INTEGERS = {
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
}


def arrow_type(declared: str) -> pa.DataType:
    """The Arrow type of a Spark type given as DDL text."""
    element, entry, fields = element_of(declared), entry_of(declared), fields_of(declared)
    if element is not None:
        return pa.list_(arrow_type(element))
    if entry is not None:
        return pa.map_(arrow_type(entry[0]), arrow_type(entry[1]))
    if fields is not None:
        return pa.struct([pa.field(field, arrow_type(kind)) for field, kind in fields])
    name, _, arguments = declared.strip().upper().partition("(")
    if name in _INTEGERS:
        return _INTEGERS[name]
    if name.startswith("DECIMAL"):
        precision, _, scale = arguments.rstrip(")").partition(",")
        return pa.decimal128(int(precision or 10), int(scale or 0))
    simple = {
        "STRING": pa.string(),
        "BOOLEAN": pa.bool_(),
        "DOUBLE": pa.float64(),
        "FLOAT": pa.float32(),
        "DATE": pa.date32(),
        "BINARY": pa.binary(),
        "TIMESTAMP": pa.timestamp("us"),
        "TIMESTAMP_NTZ": pa.timestamp("us"),
        "TIMESTAMP_LTZ": pa.timestamp("us"),
    }
    if name not in simple:
        raise EngineError(f"the in-process engine has no type {declared}", code="unsupported-type")
    return simple[name]


def arrow_type_of(column: Column) -> pa.DataType:
    """That of a column. Raises: EngineError that names it."""
    try:
        return arrow_type(column.type)
    except EngineError:
        raise EngineError(
            f'column "{column.name}" is {column.type}, and the in-process engine has no such type',
            code="unsupported-type",
            hint="run it on Spark (watersmeet run, or replay --engine spark), or leave the column out",
        ) from None


def _timestamp(value: Any) -> datetime:
    parsed = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return parsed.astimezone(UTC).replace(tzinfo=None) if parsed.tzinfo else parsed


def _reader(kind: pa.DataType) -> Callable[[Any], Any]:
    """What makes a value, never None, one that Arrow takes. Parts of nested ones may be None."""
    if pa.types.is_list(kind):
        part = _or_none(_reader(kind.value_type))
        return lambda value: [part(each) for each in value]
    if pa.types.is_map(kind):
        key, item = _or_none(_reader(kind.key_type)), _or_none(_reader(kind.item_type))
        return lambda value: [
            (key(k), item(v)) for k, v in (value.items() if isinstance(value, Mapping) else value)
        ]
    if pa.types.is_struct(kind):
        parts = [(field.name, _or_none(_reader(field.type))) for field in kind]
        return lambda value: {name: part(dict(value).get(name)) for name, part in parts}
    if pa.types.is_string(kind):
        return str
    if pa.types.is_timestamp(kind):
        return _timestamp
    if pa.types.is_date(kind):
        return lambda value: value if isinstance(value, date) else date.fromisoformat(str(value))
    if pa.types.is_decimal(kind):
        return lambda value: Decimal(str(value))
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_binary(kind):
        return lambda value: value if isinstance(value, bytes) else str(value).encode()
    return lambda value: value


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def to_table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], diffs: Sequence[int]) -> pa.Table:
    """Rows as a table of the declared columns, with `PARTITION` and `DIFF`; missing values are NULL."""
    arrays, names = [], []
    for column in columns:
        kind = arrow_type_of(column)
        read = _or_none(_reader(kind))
        try:
            arrays.append(pa.array([read(row.get(column.name)) for row in rows], type=kind))
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
            raise EngineError(
                f'a value of column "{column.name}" is no {column.type}: {error}', code="bad-value"
            ) from None
        names.append(column.name)
    arrays.append(pa.array([row.get(CASE_PARTITION) for row in rows], type=pa.string()))
    arrays.append(pa.array(list(diffs), type=pa.int64()))
    return pa.table(arrays, names=[*names, PARTITION, DIFF])


def to_json(value: Any) -> Any:
    """A value as a case file writes it: TIMESTAMP and DATE as ISO text, DECIMAL as text, a MAP as an array of
    [key, value]."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return value


def _frozen(value: Any) -> Any:
    """A value as one that can be a key: lists are tuples, objects tuples of their pairs."""
    if isinstance(value, Mapping):
        return tuple((name, _frozen(each)) for name, each in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


class HeldTables:
    """Tables whose rows are given as those of streams are: what was inserted so far, less what was deleted.

    They are outside of the job that reads them: a restart leaves them as they are.
    """

    def __init__(self) -> None:
        self._rows: dict[str, Counter[tuple[Any, ...]]] = {}

    def change(self, source: Source, changes: Sequence[tuple[Mapping[str, Any], int]]) -> None:
        """The changes of one tick; their order does not matter.

        Raises:
            EngineError: a row is deleted that is not there.
        """
        names = [column.name for column in source.columns]
        known = self._rows.setdefault(source.name, Counter())
        for row, diff in changes:
            known[tuple(_frozen(row.get(name)) for name in names)] += diff
        missing = next((row for row, times in known.items() if times < 0), None)
        if missing is not None:
            shown = ", ".join(f"{name} = {value}" for name, value in zip(names, missing, strict=True))
            raise EngineError(f'table "{source.name}" has no row ({shown}) to delete', code="missing-delete")

    def rows(self, source: Source) -> list[dict[str, Any]]:
        """What it holds."""
        names = [column.name for column in source.columns]
        known = self._rows.get(source.name, Counter())
        return [dict(zip(names, row, strict=True)) for row in known.elements()]

    def version(self, source: Source) -> str:
        """A digest of what it holds."""
        known = self._rows.get(source.name, Counter())
        text = repr(sorted((repr(row), times) for row, times in known.items() if times))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
