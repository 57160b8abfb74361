"""Records that say what becomes of rows: a column of theirs holds what was done, or how often.

Such a column is read, but it is none of the table's: a row that comes and the same row that goes are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from watersmeet.errors import WatersmeetError, near_names
from watersmeet.spec.changing import ChangeColumn
from watersmeet.spec.model import Column
from watersmeet.types.sql_type import INTEGERS, STRING

INSERTS = ("I", "i", "c", "r", "+I", "+U", "INSERT", "insert")
"""What says that a row comes, if ``'op.insert'`` does not. 'u' is not among them: it is an update, whose old
row has to go as well."""
DELETES = ("D", "d", "-D", "-U", "DELETE", "delete")

DEBEZIUM = "debezium-json"
"""The format of Kafka's records that tells changes by itself: with the row before, and after."""

UPSERT = "upsert-json"
"""The format of Kafka's records that are rows by their keys: without a value, a row goes."""

OPTIONS = ("op.column", "op.insert", "op.delete", "diff.column")

MOST_TIMES = 1_000_000_000
"""A diff beyond this is taken for no diff."""

Problem = Callable[[str, str | None], WatersmeetError]


def change_column(
    options: Mapping[str, str], columns: Sequence[Column], error: Problem
) -> ChangeColumn | None:
    """The column that the options name; None: rows only come.

    Args:
        options: by `OPTIONS`, as they are written there.
        error: makes a problem of a message and a hint.
    """
    written = {name: options[name] for name in OPTIONS if name in options}
    asked = written.get("op.column"), written.get("diff.column")
    if asked == (None, None):
        if written:
            name = next(iter(written))
            raise error(f"option '{name}' is said without 'op.column'", "'op.column' = 'op'")
        return None
    if None not in asked:
        raise error("'op.column' and 'diff.column' both say what changes", "leave out one of them")
    kind = "op.column" if asked[1] is None else "diff.column"
    column = next((c for c in columns if c.name.lower() == written[kind].strip().lower()), None)
    if column is None:
        hint = near_names(written[kind], [c.name for c in columns])
        raise error(
            f"option '{kind}' names no column: \"{written[kind]}\"", hint or "declare it: (…, op STRING)"
        )
    if len(columns) == 1:
        raise error(
            f'"{column.name}" says what changes, and there is no other column', "declare the row's columns"
        )
    if kind == "diff.column":
        if len(written) > 1:
            raise error("'op.insert' and 'op.delete' are values of 'op.column'", "leave them out")
        if column.type not in INTEGERS:
            raise error(
                f'"{column.name}" is {column.type}, and a diff is a whole number', "declare it BIGINT"
            )
        return ChangeColumn(column.name)
    if column.type != STRING and column.type not in INTEGERS:
        hint = "declare it STRING, or as an integer"
        raise error(f'"{column.name}" is {column.type} and cannot say what was done', hint)
    inserts, deletes = (
        tuple(value.strip() for value in written[name].split(",")) if name in written else default
        for name, default in (("op.insert", INSERTS), ("op.delete", DELETES))
    )
    for name, values in (("op.insert", inserts), ("op.delete", deletes)):
        if "" in values:
            raise error(f"option '{name}' has an empty word: '{written[name]}'", "leave out the extra comma")
        never = [value for value in values if not _is_a_value(value, column)]
        if never:
            raise error(
                f"'{never[0]}' of '{name}' is never a value of \"{column.name}\", which is {column.type}",
                f"say which numbers they are, plainly written: '{name}' = '1'",
            )
    both = [value for value in inserts if value in deletes]
    if both:
        raise error(f"'{both[0]}' is an insert and a delete", "name it in one of 'op.insert' and 'op.delete'")
    return ChangeColumn(column.name, inserts, deletes)


def _is_a_value(word: str, column: Column) -> bool:
    """Whether a value of the column may be this word as a text: numbers have neither + nor leading zeros."""
    if column.type == STRING:
        return True
    try:
        return str(int(word)) == word
    except ValueError:
        return False


def diff_of(change: ChangeColumn, value: Any) -> int | None:
    """How often a row with this value comes (below zero: goes). None: the value says nothing of the kind."""
    if value is None:
        return None
    if change.is_diff:
        try:
            times = int(value)
        except (TypeError, ValueError, OverflowError):
            return None
        return times if abs(times) <= MOST_TIMES else None
    return 1 if str(value) in change.inserts else -1 if str(value) in change.deletes else None
