"""PRIMARY KEY in a declaration: which columns it names, and what it means for a source.

CREATE TABLE c (id BIGINT PRIMARY KEY NOT ENFORCED, …)
CREATE TABLE c (a BIGINT, b STRING, …, [CONSTRAINT name] PRIMARY KEY (a, b) NOT ENFORCED)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.errors import SqlError
from watersmeet.front.ddl.options import OptionError, SourceFields
from watersmeet.front.text.tokens import Cursor
from watersmeet.spec.changing import ChangeColumn, PrimaryKey
from watersmeet.spec.connectors import connector_of
from watersmeet.spec.model import Column, EventTime, Sink
from watersmeet.spec.options.changes import UPSERT, hint_of_field
from watersmeet.spec.options.primary_key import SEQUENCE, TOMBSTONES, primary_key
from watersmeet.spec.words import IN_SQL, Words


@dataclass(frozen=True)
class KeyClause:
    """The columns as written, and where they stand."""

    columns: tuple[str, ...]
    start: int


def key_clause(cursor: Cursor) -> KeyClause:
    """A clause of the column list."""
    start = cursor.offset
    if cursor.accept("CONSTRAINT"):
        cursor.name("the constraint's name")
    if not cursor.accept("PRIMARY", "KEY"):
        raise cursor.text.not_supported("a CONSTRAINT that is not a PRIMARY KEY is", start)
    cursor.expect("(")
    columns = [_key_column(cursor)]
    while cursor.accept(","):
        columns.append(_key_column(cursor))
    cursor.expect(")", ", or )")
    not_enforced(cursor)
    return KeyClause(tuple(columns), start)


def _key_column(cursor: Cursor) -> str:
    start = cursor.offset
    name = cursor.name("a column name")
    if cursor.looks_at("."):
        path = f"{name}{cursor.fields()}"
        message = f"{path} is a field of a STRUCT, but a PRIMARY KEY needs columns"
        raise cursor.text.error(message, "primary-key", start, hint_of_field(path, IN_SQL))
    return name


def not_enforced(cursor: Cursor) -> None:
    """NOT ENFORCED, which may be left out: the rows of a key are whatever its records make of them."""
    if cursor.looks_at("ENFORCED"):
        hint = "write PRIMARY KEY (…) NOT ENFORCED: each record replaces the row of its key"
        raise cursor.text.not_supported("a PRIMARY KEY that is ENFORCED is", cursor.offset, hint)
    cursor.accept("NOT", "ENFORCED")


def key_of(
    name: str,
    clauses: Sequence[KeyClause],
    columns: Sequence[Column],
    connector: str,
    records: str,
    change: ChangeColumn | None,
    times: Sequence[EventTime],
    fields: SourceFields,
    error: OptionError,
    cursor: Cursor,
) -> PrimaryKey | None:
    """The primary key of the source ``name``, which goes with all else that is said of it.

    Args:
        records: the format of its records.
        error: a problem of the statement, of a message and a hint.
    """
    if not clauses:
        said = [
            option
            for option, there in ((SEQUENCE, fields.sequence_by), (TOMBSTONES, fields.tombstones))
            if there
        ]
        if said:
            hint = "PRIMARY KEY (id) NOT ENFORCED"
            raise error(f"\"{name}\": option '{said[0]}' needs a PRIMARY KEY", hint)
        if records == UPSERT:
            hint = "add PRIMARY KEY (id) NOT ENFORCED with the columns of the records' keys"
            raise error(f'"{name}": format {UPSERT} needs a PRIMARY KEY', hint)
        return None
    start = clauses[0].start

    def wrong(message: str, hint: str | None) -> SqlError:
        return cursor.text.error(f'"{name}": {message}', "primary-key", start, hint)

    if len(clauses) > 1:
        raise wrong("it has two PRIMARY KEYs", "list all columns in one: PRIMARY KEY (a, b) NOT ENFORCED")
    return checked_key(name, clauses[0].columns, columns, connector, change, times, fields, wrong, IN_SQL)


def checked_key(
    name: str,
    written: Sequence[str],
    columns: Sequence[Column],
    connector: str,
    change: ChangeColumn | None,
    times: Sequence[EventTime],
    fields: SourceFields,
    wrong: OptionError,
    words: Words,
) -> PrimaryKey:
    """The primary key of these columns, which goes with all else that is said of the source ``name``.

    Args:
        wrong: a problem of the key, of a message and a hint.
        words: of those who said it.
    """
    traits, is_compared = connector_of(connector), fields.changes is not None
    if (traits.snapshot and not is_compared) or traits.own_rate:
        what = "is read completely" if traits.snapshot else "generates rows without updates"
        raise wrong(
            f"a {words.key} lets a record replace the row of its key, but a {connector} source {what}",
            "remove it"
            if traits.own_rate
            else "remove it, or set 'changes' = 'snapshot' to compare each read with the one before",
        )
    if times:
        raise wrong(
            f"it has a {words.key}, which retains rows until others replace them, and {words.time},"
            " which would evict them earlier",
            f"to join each version of a row (ASOF JOIN), remove {words.key}"
            f"{f' and {words.op}' if change else ''}; else remove {words.time}, and use"
            f" {words.such_as(words.sequence, times[0].column)} to order the changes of a key",
        )
    if fields.refresh_us is not None and not is_compared:
        raise wrong(f"it has a {words.key} and 'refresh', but is never read completely", "remove 'refresh'")
    if change is not None and change.is_diff:
        raise wrong(
            f'"{change.column}" counts rows, but with a {words.key} each key has at most one row',
            f"use {words.op} to tell inserts from deletes",
        )
    if fields.sequence_by is None and not (traits.in_order or is_compared):
        raise wrong(
            f"it has a {words.key} but no {words.sequence}: rows of {traits.called} have no stable"
            " order, so the last change of a key is unknown",
            f"add {words.such_as(words.sequence, 'updated_at')}, a column that grows with each change"
            " of a key",
        )
    rows = [column for column in columns if change is None or column.name != change.column]
    return primary_key(
        written,
        fields.sequence_by,
        fields.tombstones.us if fields.tombstones else None,
        rows,
        wrong,
        remembers=fields.tombstones is None or fields.tombstones.us is not None,
        words=words,
    )


def unkeyed(connector: str) -> tuple[str, str] | None:
    """What is wrong with a PRIMARY KEY of such a sink, and what to do; None: nothing."""
    if connector_of(connector).by_key:
        return None
    return (
        f"rows in a {connector} sink do not replace each other",
        "remove the PRIMARY KEY: the column `_diff` tells inserts from deletes",
    )


def key_of_sink(sink: Sink, clauses: Sequence[KeyClause], cursor: Cursor) -> tuple[str, ...]:
    """The columns by which rows of a sink take each other's place, spelled as declared. Raises: SqlError."""

    def wrong(message: str, hint: str | None) -> SqlError:
        return cursor.text.error(f'"{sink.name}": {message}', "primary-key", clauses[0].start, hint)

    if len(clauses) > 1:
        raise wrong("it has two PRIMARY KEYs", "list all columns in one: PRIMARY KEY (a, b) NOT ENFORCED")
    problem = unkeyed(sink.connector)
    if problem is not None:
        raise wrong(*problem)
    if sink.columns is None:
        return clauses[0].columns
    return primary_key(clauses[0].columns, None, None, sink.columns, wrong).columns
