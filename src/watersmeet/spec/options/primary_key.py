"""What a PRIMARY KEY, and the options beside it, may say of a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from watersmeet.errors import WatersmeetError, near_names
from watersmeet.spec.changing import TOMBSTONES_US, PrimaryKey
from watersmeet.spec.model import Column
from watersmeet.spec.options.changes import hint_of_field, is_field
from watersmeet.spec.words import IN_SQL, Words
from watersmeet.types.sql_type import PLAIN, SqlType

SEQUENCE, TOMBSTONES = "sequence.by", "tombstones"
OPTIONS = (SEQUENCE, TOMBSTONES)

Problem = Callable[[str, str | None], WatersmeetError]


def primary_key(
    written: Sequence[str],
    sequence: str | None,
    tombstones_us: int | None,
    columns: Sequence[Column],
    error: Problem,
    *,
    remembers: bool = True,
    words: Words = IN_SQL,
) -> PrimaryKey:
    """The key of a table.

    Args:
        written: the names of its columns, and of that which orders changes (None: they come in order).
        tombstones_us: how long deletes are remembered; None: as long as is usual.
        columns: of the table's rows.
        error: makes a problem of a message and a hint.
        remembers: False: deletes are not remembered.
        words: of those who said it.
    """
    names: list[str] = []
    for name in written:
        column = _column(words.key, name, columns, error, words)
        if column.name in names:
            raise error(f'{words.key} names "{column.name}" twice', "remove one of them")
        if not _may_be_key(column.type):
            raise error(
                f'"{column.name}" is {column.type} and cannot be in a primary key',
                "use a column of another type, or STRING",
            )
        names.append(column.name)
    what = f"{words.option}{words.sequence}"
    by = None if sequence is None else _column(what, sequence, columns, error, words)
    if by is not None and not _is_ordered(by.type):
        raise error(
            f'"{by.name}" is {by.type} and cannot order the changes of a key',
            "name a column that is a number, a TIMESTAMP or a text",
        )
    if by is not None and by.name in names:
        raise error(
            f'"{by.name}" is in the primary key, so it cannot order the changes of a key',
            f"name a column in {words.sequence} that grows with each change",
        )
    if by is None and (tombstones_us is not None or not remembers):
        raise error(
            f"{words.option}{words.tombstones} needs {words.sequence}: without it the job applies"
            " changes in the order of arrival and stores no deletes",
            words.such_as(words.sequence, "updated_at"),
        )
    if by is None or not remembers:
        remembered = None
    else:
        remembered = TOMBSTONES_US if tombstones_us is None else tombstones_us
    return PrimaryKey(tuple(names), None if by is None else by.name, remembered)


def _column(what: str, name: str, columns: Sequence[Column], error: Problem, words: Words) -> Column:
    column = next((c for c in columns if c.name.lower() == name.strip().lower()), None)
    if column is None:
        near = near_names(name, [c.name for c in columns])
        hint = hint_of_field(name, words) if is_field(name, columns) else near
        raise error(f'{what}: unknown column "{name.strip()}"', hint)
    return column


def _may_be_key(type_: SqlType) -> bool:
    return type_ in PLAIN or type_.is_decimal


def _is_ordered(type_: SqlType) -> bool:
    return type_.is_number or type_.is_time or type_.name in ("STRING", "BINARY")
