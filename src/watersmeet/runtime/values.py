"""Rows of case files and tests as Arrow columns of their declared types, and back (semantics.md, 6)."""

from __future__ import annotations

import hashlib
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.names import CASE_PARTITION, DIFF, PARTITION
from watersmeet.spec.model import Column, Source
from watersmeet.types.arrow import in_arrow
from watersmeet.types.sql_type import SqlType

Row = Mapping[str, Any]
Change = tuple[Row, int]
"""A row, and how many times it is added (below 0: removed)."""


def arrow_type(declared: SqlType) -> pa.DataType:
    """Return the Arrow type of a Spark type.

    Raises:
        EngineError: the in-process engine does not support the type.
    """
    type_ = in_arrow(declared)
    if type_ is None:
        raise EngineError(
            f"the in-process engine does not support the type {declared}", code="unsupported-type"
        )
    return type_


def arrow_type_of(column: Column) -> pa.DataType:
    """Return the Arrow type of a column.

    Raises:
        EngineError: the in-process engine does not support the type; the error names the column.
    """
    try:
        return arrow_type(column.type)
    except EngineError:
        raise EngineError(
            f'column "{column.name}" is {column.type}, which the in-process engine does not support',
            code="unsupported-type",
            hint="run it on Spark (watersmeet run, or replay --engine spark), or remove the column",
        ) from None


def _timestamp(value: Any) -> datetime:
    parsed = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return parsed.astimezone(UTC).replace(tzinfo=None) if parsed.tzinfo else parsed


def _reader(kind: pa.DataType, plain: Readers) -> Callable[[Any], Any]:
    """Return a function that converts a value, never None, to one that Arrow accepts.

    Parts of nested values may be None.
    """
    if pa.types.is_list(kind):
        part = _skip_none(_reader(kind.value_type, plain))
        return lambda value: [part(element) for element in _elements(value)]
    if pa.types.is_map(kind):
        key, item = _skip_none(_reader(kind.key_type, plain)), _skip_none(_reader(kind.item_type, plain))
        return lambda value: [
            (key(k), item(v)) for k, v in (value.items() if isinstance(value, Mapping) else value)
        ]
    if pa.types.is_struct(kind):
        return partial(_struct, {field.name: _skip_none(_reader(field.type, plain)) for field in kind})
    if pa.types.is_integer(kind):
        return _read_integer
    if pa.types.is_string(kind):
        return plain.text
    if pa.types.is_timestamp(kind):
        return plain.timestamp
    if pa.types.is_date(kind):
        return plain.date
    if pa.types.is_decimal(kind):
        return lambda value: Decimal(str(value))
    if pa.types.is_floating(kind):
        return plain.single if pa.types.is_float32(kind) else plain.floating
    if pa.types.is_binary(kind):
        return _bytes
    return lambda value: value


def _struct(parts: Mapping[str, Callable[[Any], Any]], value: Any) -> dict[str, Any]:
    given = dict(value)
    unknown = [name for name in given if name not in parts]
    if unknown:
        raise ValueError(f"it has no field {unknown[0]}")
    return {name: read(given.get(name)) for name, read in parts.items()}


def _read_integer(value: Any) -> int:
    """Return a value as an integer.

    Raises:
        ValueError: the value has a fraction.
        TypeError: the value is not a number.
    """
    if isinstance(value, float | Decimal) and value == value.__trunc__():
        return int(value)
    if isinstance(value, bool):
        raise TypeError(f"{value} is not a number")
    if isinstance(value, float | Decimal):
        raise ValueError(f"{value} is not a whole number")
    return operator.index(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes | bytearray | bool | Mapping | list | tuple):
        raise TypeError(f"{value!r} is not text")
    return str(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is neither text nor bytes")
    return value.encode()


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        if value.time() != time():
            raise ValueError(f"{value} has a time of day, but the column is a DATE")
        return value.date()
    return value if isinstance(value, date) else date.fromisoformat(str(value))


def _elements(value: Any) -> Any:
    if isinstance(value, str | bytes):
        raise TypeError(f"{value!r} is not a list")
    return value


@dataclass(frozen=True)
class Readers:
    """Functions that read values for which JSON has no form, or more than one."""

    text: Callable[[Any], str] = _text
    timestamp: Callable[[Any], datetime] = _timestamp
    date: Callable[[Any], date] = _date
    floating: Callable[[Any], float] = float
    single: Callable[[Any], float] = float
    """Of 32 bits."""


CASE_READERS = Readers()
"""As in case files: numbers may stand for texts."""


def _skip_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def to_table(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    diffs: Sequence[int],
    plain: Readers = CASE_READERS,
) -> pa.Table:
    """Build a table of the declared columns from rows, with `PARTITION` and `DIFF`.

    Missing values are NULL.
    """
    arrays, names = [], []
    for column in columns:
        kind = arrow_type_of(column)
        read = _skip_none(_reader(kind, plain))
        try:
            arrays.append(pa.array([read(row.get(column.name)) for row in rows], type=kind))
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
            raise EngineError(
                f'a value of column "{column.name}" is not a valid {column.type}: {error}', code="bad-value"
            ) from None
        names.append(column.name)
    named = [row.get(CASE_PARTITION) for row in rows]
    arrays.append(pa.array([None if name is None else str(name) for name in named], type=pa.string()))
    arrays.append(pa.array(list(diffs), type=pa.int64()))
    return pa.table(arrays, names=[*names, PARTITION, DIFF])


def drop_cancelled_changes(changes: Sequence[Change]) -> list[Row]:
    """Return the rows of late changes, but for those that come and go in the same tick."""
    if all(diff > 0 for _, diff in changes):
        return [row for row, _ in changes]
    keys = [_row_key(row) for row, _ in changes]
    sums = Counter[str]()
    for key, (_, diff) in zip(keys, changes, strict=True):
        sums[key] += diff
    return [row for key, (row, _) in zip(keys, changes, strict=True) if sums[key]]


def _row_key(row: Row) -> str:
    """Return a text that is the same for equal rows: a column left out is NULL, and -0.0 is 0.0."""
    values = {
        name: value + 0.0 if isinstance(value, float) else value
        for name, value in row.items()
        if name != CASE_PARTITION and value is not None
    }
    return repr(sorted(values.items()))


_PLAIN_TYPES = frozenset((int, str, float, bool, type(None)))


def to_json(value: Any) -> Any:
    """Convert a value to its form in a case file.

    TIMESTAMP and DATE become ISO text, DECIMAL becomes text, and a MAP an array of [key, value].
    """
    if type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {name: to_json(field) for name, field in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(element) for element in value]
    return value


def _frozen(value: Any) -> Any:
    """Convert a value to a hashable one: lists to tuples, objects to tuples of their pairs."""
    if isinstance(value, Mapping):
        return tuple((name, _frozen(field)) for name, field in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


class InMemoryTables:
    """Tables whose rows are given as those of streams are: what was inserted so far, less what was deleted.

    They are outside of the job that reads them: a restart leaves them as they are.
    """

    def __init__(self) -> None:
        self._rows: dict[str, Counter[tuple[Any, ...]]] = {}

    def change(self, source: Source, changes: Sequence[tuple[Mapping[str, Any], int]]) -> None:
        """Apply the changes of one tick; their order does not matter.

        Raises:
            EngineError: a change deletes a row that does not exist.
        """
        names = [column.name for column in source.columns]
        rows = self._rows.get(source.name, Counter()).copy()
        for row, diff in changes:
            rows[tuple(_frozen(row.get(name)) for name in names)] += diff
        missing = next((row for row, times in rows.items() if times < 0), None)
        if missing is not None:
            shown = ", ".join(f"{name} = {value}" for name, value in zip(names, missing, strict=True))
            raise EngineError(
                f'table "{source.name}" has no row ({shown}), which the input deletes', code="missing-delete"
            )
        self._rows[source.name] = rows

    def held(self) -> Mapping[str, Counter[tuple[Any, ...]]]:
        """Return the content of all tables, for `restore`."""
        return dict(self._rows)

    def restore(self, held: Mapping[str, Counter[tuple[Any, ...]]]) -> None:
        self._rows = dict(held)

    def rows(self, source: Source) -> list[dict[str, Any]]:
        """Return the rows of a table."""
        names = [column.name for column in source.columns]
        rows = self._rows.get(source.name, Counter())
        return [dict(zip(names, row, strict=True)) for row in rows.elements()]

    def version(self, source: Source) -> str:
        """Return a digest of the content of a table."""
        rows = self._rows.get(source.name, Counter())
        text = repr(sorted((repr(row), times) for row, times in rows.items() if times))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
