"""The table that rows go to: made where it is not there, or checked, with all that is wrong at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.errors import EngineError, SpecError, near_names
from watersmeet.names import CHANGE_COLUMNS, SHOWN_DIFF
from watersmeet.postgres_errors import NO_RIGHT, refuses_row, state_of
from watersmeet.postgres_server import Cursor, quoted, rows_of
from watersmeet.sinks.postgres.identity import number_of, replaced_error
from watersmeet.sinks.postgres.types import takes, target_type
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.postgres import PostgresOptions, name_problem

MOST_COLUMNS = 1598
"""Of a result: a table has 1,600, and rows are staged with two more."""

_NO_TABLE = "42P01"
_COLUMNS = """SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
    coalesce(c.collisdeterministic, true)
    FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
    WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum"""
_TABLE = """SELECT c.oid::bigint, c.relkind::text,
    row_security_active(c.oid) AND has_any_column_privilege(c.oid, 'INSERT')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname::text = $1 AND c.relname::text = $2"""
_KEYS = """SELECT array_agg(a.attname::text), NOT EXISTS (SELECT FROM unnest(i.indcollation::oid[]) AS u (oid)
    JOIN pg_collation c ON c.oid = u.oid WHERE NOT c.collisdeterministic) FROM pg_index i JOIN pg_attribute a
    ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1])
    WHERE i.indrelid = $1::bigint::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid, i.indcollation"""
"""Of unique indexes the columns, and whether their collations are deterministic."""


@dataclass(frozen=True)
class Target:
    """The table that rows go to.

    Args:
        types: of its columns, by name, as ``format_type`` writes them.
        oid: the server's number of it.
        columns: what the server says of them.
        row_security: whether row-level security applies to the job's user, who may insert.
    """

    schema: str
    table: str
    types: dict[str, str]
    oid: int = 0
    columns: tuple[tuple[Any, ...], ...] = ()
    row_security: bool = False

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    def refuses_row(self, error: BaseException) -> bool:
        """Return whether an error means that the table does not take a row, such as for a policy."""
        return refuses_row(error) or (self.row_security and state_of(error) == NO_RIGHT)


def written_columns(columns: Sequence[Column], key: Sequence[str]) -> tuple[Column, ...]:
    """The columns of the table, of those of a result: by a key rows have no number of changes."""
    return tuple(column for column in columns if not (key and column.name in CHANGE_COLUMNS))


def result_problems(columns: Sequence[Column], spec: SinkSpec) -> Iterator[SpecError]:
    """What no table can take, as far as that is seen without the server."""
    what = f'postgres sink "{spec.name}"'
    names = [column.name for column in columns]
    for column in columns:
        hint = name_problem(column.name)
        if hint is not None:
            yield SpecError(
                f'{what}: "{column.name}" is not a valid column name',
                code="column-name",
                hint=f"{hint}: use AS",
            )
        if target_type(column.type) is None:
            yield SpecError(
                f'{what} does not support {column.type}, the type of "{column.name}"',
                code="column-type",
                hint="cast it, for example to STRING",
            )
    if PostgresOptions.of(spec.options).has_dead_letters and SHOWN_DIFF in names:
        yield SpecError(
            f"{what}: 'on_rejected' = 'dead_letter' cannot be used with a result of inserts and deletes",
            code="wrong-option",
            hint="remove 'on_rejected', so that the job stops at a rejected row, because a later delete"
            " would not find it",
        )
    if len(columns) > MOST_COLUMNS:
        yield SpecError(
            f"{what}: the result has {len(columns):,} columns, but a table can have {MOST_COLUMNS:,}",
            code="too-many-columns",
            hint="remove some columns, or combine some into a STRUCT",
        )
    for name in spec.primary_key:
        if name not in names:
            yield SpecError(
                f'PRIMARY KEY of {what}: the result has no column "{name}"',
                code="unknown-column",
                hint=near_names(name, names),
            )


def check_schema(cursor: Cursor, schema: str, sink: str) -> None:
    """Raises: SpecError, when the schema is not there."""
    if not rows_of(cursor, "SELECT 1 FROM pg_namespace WHERE nspname::text = $1", schema):
        raise SpecError(
            f'postgres sink "{sink}": the schema "{schema}" does not exist',
            code="unknown-schema",
            hint=f"run CREATE SCHEMA {quoted(schema)}, or use another schema: 'table' = 'schema.name'",
        )


def made_or_checked(cursor: Cursor, target: Target, columns: Sequence[Column], spec: SinkSpec) -> Target:
    """The table with its types: made if it is not there.

    Raises:
        SpecError: rows of these columns do not fit the table.
    """
    table = rows_of(cursor, _TABLE, target.schema, target.table)
    if not table:
        cursor.execute(_creation(target, columns, spec.primary_key))
        table = rows_of(cursor, _TABLE, target.schema, target.table)
    ((oid, kind, row_security),) = table
    stored = rows_of(cursor, _COLUMNS, oid)
    problems = list(_problems(cursor, target, oid, kind, stored, columns, spec))
    if spec.primary_key and row_security:
        problems.append(
            (
                "row-level security may hide rows from the job's user, which would not be replaced then",
                "let the user see all rows (ALTER ROLE … BYPASSRLS), or leave out the PRIMARY KEY",
            )
        )
    if problems:
        more = "".join(f"; {problem}" for problem, _ in problems[1:])
        raise SpecError(
            f'postgres sink "{spec.name}": rows do not fit the table {target.sql}: {problems[0][0]}{more}',
            code="table-differs",
            hint="; ".join(dict.fromkeys(hint for _, hint in problems)),
        )
    types = {name: type_ for name, type_, *_ in stored}
    return Target(target.schema, target.table, types, oid, tuple(stored), bool(row_security))


def check_unchanged(cursor: Cursor, target: Target, sink: str) -> None:
    """The table is still what `made_or_checked` saw, and stays so until the end of the transaction.

    Raises:
        EngineError: it is another one, or a column has changed.
    """
    try:
        cursor.execute(f"LOCK TABLE {target.sql} IN ROW EXCLUSIVE MODE")
    except Exception as error:
        if state_of(error) == _NO_TABLE:
            raise replaced_error(target.sql, sink) from None
        raise
    if number_of(cursor, target.sql) != target.oid:
        raise replaced_error(target.sql, sink)
    if set(target.columns) <= set(rows_of(cursor, _COLUMNS, target.oid)):  # others may come
        return
    raise EngineError(
        f'the columns of the table {target.sql} were changed while the job ran (sink "{sink}"). Nothing was'
        " published",
        code="table-changed",
        hint="run again, which checks the table and repeats the tick",
    )


def _creation(target: Target, columns: Sequence[Column], key: Sequence[str]) -> str:
    lines = [f"{quoted(column.name)} {target_type(column.type)}" for column in columns]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    return f"CREATE TABLE {target.sql} ({', '.join(lines)})"


def _problems(
    cursor: Cursor,
    target: Target,
    oid: int,
    kind: str,
    stored: Sequence[tuple[Any, ...]],
    columns: Sequence[Column],
    spec: SinkSpec,
) -> Iterator[tuple[str, str]]:
    """What does not fit, and what to do about it."""
    if kind not in ("r", "p"):
        yield "it is no table", "name a table"
        return
    types = {name: type_ for name, type_, *_ in stored}
    generated = {name for name, *_, is_generated, _ in stored if is_generated}
    undetermined = {name for name, *_, is_exact in stored if not is_exact}
    for column in columns:
        wanted = target_type(column.type)
        if column.name not in types:
            addition = f"ALTER TABLE {target.sql} ADD COLUMN {quoted(column.name)} {wanted}"
            near = near_names(column.name, list(types)) if types else None
            asks = near is not None and near.startswith("did")
            yield f'it has no column "{column.name}"', near if asks and near else addition
        elif column.name in generated:
            yield f'"{column.name}" is generated', f'leave "{column.name}" out of the query'
        elif not takes(types[column.name], column.type):
            yield (
                f'"{column.name}" is {types[column.name]} there, and {column.type} in the result',
                f'make it {wanted}, or cast it: CAST("{column.name}" AS …)',
            )
        elif column.name in spec.primary_key and not takes(types[column.name], column.type, in_key=True):
            yield (
                f'"{column.name}" is {types[column.name]} there, where different texts of a key may become'
                " one",
                f"make it {wanted}",
            )
        elif column.name in spec.primary_key and column.name in undetermined:
            yield (
                f'"{column.name}" has a collation by which different texts of a key are equal',
                'give it one that is deterministic, such as COLLATE "C"',
            )
    given = {column.name for column in columns}
    for name, _, not_null, has_default, *_ in stored:
        if name not in given and not_null and not has_default:
            yield (
                f'"{name}" is NOT NULL without a default, and the result does not have it',
                f'put "{name}" out, or give it a default',
            )
    if spec.primary_key:
        exact = [
            is_exact for names, is_exact in rows_of(cursor, _KEYS, oid) if {*names} == {*spec.primary_key}
        ]
        if not all(exact):
            yield (
                "a unique index of the PRIMARY KEY has a collation by which different texts are equal",
                'give it one that is deterministic, such as COLLATE "C"',
            )
        if not exact:
            names = ", ".join(map(quoted, spec.primary_key))
            yield (
                f"it has no unique index of ({names}), the PRIMARY KEY of the sink",
                f"ALTER TABLE {target.sql} ADD PRIMARY KEY ({names})",
            )
