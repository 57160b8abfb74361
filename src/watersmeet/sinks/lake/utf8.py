"""Texts that are no texts: bytes that are not UTF-8 would be a file's that others cannot read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError

_MAX_CHARACTERS = 80
"""Characters of a value in a message."""


def check_texts(rows: pa.Table, place: str) -> None:
    """Raise: EngineError, if a text, or one in a nested value, is not UTF-8; it shows the row."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if not _has_texts(column.type):
            continue
        number = None if _is_right(column) else _first_wrong(column)
        if number is not None:
            row = rows.slice(number, 1)
            shown = ", ".join(f"{of}: {_format_value(row.column(of))}" for of in rows.column_names)
            raise EngineError(
                f'a text in "{name}" is not valid UTF-8, which {place} cannot store; the row: {shown}',
                code="sink-refused-row",
                hint=f"write its bytes (CAST({name} AS BINARY)), or convert it with decode(), and run"
                " again, which repeats the tick; nothing of it was published",
            )


def _has_texts(kind: pa.DataType) -> bool:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return True
    return any(_has_texts(kind.field(place).type) for place in range(kind.num_fields))


def _is_right(values: pa.ChunkedArray) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _first_wrong(values: pa.ChunkedArray) -> int | None:
    """Find the first row with invalid UTF-8.

    Returns None if no row has invalid UTF-8, only memory outside of the rows.
    """
    begin, end = 0, len(values)

    def is_wrong(first: int, last: int) -> bool:
        return not _is_right(values.take(pa.array(range(first, last), pa.int64())))

    if not is_wrong(begin, end):
        return None
    while end - begin > 1:
        middle = (begin + end) // 2
        begin, end = (begin, middle) if is_wrong(begin, middle) else (middle, end)
    return begin


def _format_value(value: pa.ChunkedArray) -> str:
    """Format the only value of the column, shortened if it is long."""
    shown: Any
    try:
        shown = value.to_pylist()[0]
    except UnicodeDecodeError:
        if pa.types.is_nested(value.type):
            return "…"
        shown = pc.cast(value, pa.large_binary()).to_pylist()[0]
    except OverflowError:  # a time of a year that Python has not
        return "…"
    text = "NULL" if shown is None else repr(shown)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
