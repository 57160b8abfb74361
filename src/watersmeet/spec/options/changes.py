"""Records that change rows: columns that say how, and primary keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.errors import WatersmeetError, near_names
from watersmeet.spec.change_kinds import TOMBSTONES_US, ChangeColumn, PrimaryKey
from watersmeet.spec.model import Column, EventTime
from watersmeet.spec.option_names import IN_SQL, Words
from watersmeet.types.sql_type import INTEGERS, PLAIN, STRING

# Records that say what becomes of rows: a column of theirs holds what was done, or how often.
#
# Such a column is read, but it is none of the table's: a row that comes and the same row that goes are
# equal.

INSERTS = ("I", "i", "c", "r", "+I", "+U", "INSERT", "insert")
"""What says that a row comes, if ``'op.insert'`` does not. 'u' is not among them: it is an update, whose old
row has to go as well."""
UPDATES = ("U", "u", "UPDATE", "update")
"""What says so, too, of a table with a primary key, which finds the old row."""
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
    options: Mapping[str, str], columns: Sequence[Column], error: Problem, *, keyed: bool
) -> ChangeColumn | None:
    """Return the change column that the options name; None: the source only inserts rows.

    Args:
        options: Values by `PRIMARY_KEY_OPTIONS`, as spelled there.
        keyed: The table has a primary key.
        error: Builds a problem from a message and a hint.
    """
    words = {
        name: tuple(value.strip() for value in options[name].split(","))
        for name in ("op.insert", "op.delete")
        if name in options
    }
    for name, values in words.items():
        if "" in values and "op.column" in options:
            written = f"option '{name}' has an empty entry: '{options[name]}'"
            raise error(written, "remove the extra comma")
    said = ChangeDeclaration(
        options.get("op.column"),
        options.get("diff.column"),
        words.get("op.insert"),
        words.get("op.delete"),
        keyed,
    )
    return resolve_change_column(said, columns, error, IN_SQL)


def hint_of_field(path: str, words: Words) -> str:
    """Return what to do where a field is named, as in ``meta.op``, and a column is wanted."""
    path = path.strip()
    own = path.rpartition(".")[2]
    if words is IN_SQL:
        return f"compute a column from it, {own} AS {path}, and use that"
    of_sql = f'declared("CREATE TABLE … ({own} AS {path}, …) …")'
    return f"make it a column, df.selectExpr('*', '{path} AS {own}'), or {of_sql}"


def is_field(wanted: str, columns: Sequence[Column]) -> bool:
    """Return True if the name is that of a field, as in ``meta.op``."""
    head = wanted.partition(".")[0].strip().lower()
    return "." in wanted and any(c.name.lower() == head and c.type.fields for c in columns)


@dataclass(frozen=True)
class ChangeDeclaration:
    """Declaration of a change column.

    Its name as ``op`` or as ``diff``, and the values that mean inserts and deletes (None: the
    defaults). ``keyed``: the table has a primary key.
    """

    op: str | None
    diff: str | None
    inserts: tuple[str, ...] | None = None
    deletes: tuple[str, ...] | None = None
    keyed: bool = False


def resolve_change_column(
    said: ChangeDeclaration, columns: Sequence[Column], error: Problem, words: Words
) -> ChangeColumn | None:
    """Return the declared change column; None: the source only inserts rows.

    Args:
        words: The terms of the interface (SQL or Python) that the user used.
    """
    listed = [(words.insert, said.inserts), (words.delete, said.deletes)]
    wanted = said.op if said.op is not None else said.diff
    if wanted is None:
        without = next((name for name, values in listed if values is not None), None)
        if without is not None:
            raise error(f"{words.option}{without} needs {words.op}", words.such_as(words.op, "op"))
        return None
    if None not in (said.op, said.diff):
        raise error(
            f"{words.op} and {words.diff} cannot be used together: both tell inserts from deletes",
            "leave out one of them",
        )
    kind = words.diff if said.op is None else words.op
    column = next((c for c in columns if c.name.lower() == wanted.strip().lower()), None)
    if column is None:
        near = near_names(wanted, [c.name for c in columns])
        hint = hint_of_field(wanted, words) if is_field(wanted, columns) else near
        raise error(
            f'{words.option}{kind} names the column "{wanted}", which is not declared',
            hint or "declare it: (…, op STRING)",
        )
    if len(columns) == 1:
        hint = (
            "declare the columns of the rows"
            if words is IN_SQL
            else "add the columns of the rows to the DataFrame"
        )
        raise error(f'"{column.name}" tells inserts from deletes, and there is no other column', hint)
    if said.op is None:
        if any(values is not None for _, values in listed):
            raise error(
                f"{words.insert} and {words.delete} need {words.op}", f"remove them, or add {words.op}"
            )
        if column.type not in INTEGERS:
            raise error(
                f'"{column.name}" is {column.type}, but a diff column needs an integer type',
                f"{words.make} BIGINT",
            )
        return ChangeColumn(column.name)
    if column.type != STRING and column.type not in INTEGERS:
        hint = f"{words.make} STRING, or {'as ' if words is IN_SQL else ''}an integer"
        raise error(f'"{column.name}" is {column.type} and cannot tell inserts from deletes', hint)
    deletes = DELETES if said.deletes is None else said.deletes
    usual = [*INSERTS, *(word for word in UPDATES if said.keyed and word not in deletes)]
    inserts = tuple(usual) if said.inserts is None else said.inserts
    for name, values in ((words.insert, inserts), (words.delete, deletes)):
        never = [value for value in values if not _is_a_value(value, column)]
        if never:
            raise error(
                f"'{never[0]}' in {name} is not a possible value of \"{column.name}\", which is"
                f" {column.type}",
                f"use plain numbers: {words.such_as(name, '1')}",
            )
    both = [value for value in inserts if value in deletes]
    if both:
        raise error(
            f"'{both[0]}' is listed both as an insert and as a delete",
            f"keep it in either {words.insert} or {words.delete}",
        )
    return ChangeColumn(column.name, inserts, deletes)


def refuse_time_of(
    name: str, change: ChangeColumn | None, times: Sequence[EventTime], error: Problem
) -> None:
    """Reject a change column that is also an event time.

    Raises:
        WatersmeetError: The column is an event time; ``error`` makes the exception.
    """
    if change is not None and any(time.column == change.column for time in times):
        raise error(
            f'"{name}" tells inserts from deletes by "{change.column}", so this cannot be an event time',
            "use another column as the event time",
        )


def _is_a_value(word: str, column: Column) -> bool:
    """Return True if the text of a value of the column may be this word.

    Texts of numbers have no + and no leading zeros.
    """
    if column.type == STRING:
        return True
    try:
        return str(int(word)) == word
    except ValueError:
        return False


def diff_of(change: ChangeColumn, value: Any) -> int | None:
    """Return the multiplicity of a row with this value: positive inserts, negative deletes.

    Return None if the value is not a valid change.
    """
    if value is None:
        return None
    if change.is_diff:
        try:
            times = int(value)
        except (TypeError, ValueError, OverflowError):
            return None
        return times if abs(times) <= MOST_TIMES else None
    return 1 if str(value) in change.inserts else -1 if str(value) in change.deletes else None


# What a PRIMARY KEY, and the options beside it, may say of a source.

SEQUENCE, TOMBSTONES = "sequence.by", "tombstones"
PRIMARY_KEY_OPTIONS = (SEQUENCE, TOMBSTONES)


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
    """Build the primary key of a table.

    Args:
        written: The names of its columns.
        sequence: The name of the column that orders changes; None: they arrive in order.
        tombstones_us: Time in µs for which deletes are remembered; None: the default.
        columns: The columns of the table's rows.
        error: Builds a problem from a message and a hint.
        remembers: False: deletes are not remembered.
        words: The terms of the interface (SQL or Python) that the user used.
    """
    names: list[str] = []
    for name in written:
        column = _column(words.key, name, columns, error, words)
        if column.name in names:
            raise error(f'{words.key} names "{column.name}" twice', "remove one of them")
        if not (column.type in PLAIN or column.type.is_decimal):
            raise error(
                f'"{column.name}" is {column.type} and cannot be in a primary key',
                "use a column of another type, or STRING",
            )
        names.append(column.name)
    what = f"{words.option}{words.sequence}"
    by = None if sequence is None else _column(what, sequence, columns, error, words)
    if by is not None and not (by.type.is_number or by.type.is_time or by.type.name in ("STRING", "BINARY")):
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
