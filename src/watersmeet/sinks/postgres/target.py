"""The table that rows go to: created or checked, its types and identity."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.errors import EngineError, SpecError, near_names
from watersmeet.names import CHANGE_COLUMNS, SHOWN_DIFF
from watersmeet.postgres_server import (
    NO_RIGHT,
    Cursor,
    quote_identifier,
    refuses_row,
    rows_of,
    state_of,
)
from watersmeet.sinks.parquet import is_text
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.postgres import PostgresOptions, name_problem
from watersmeet.types.sql_type import SqlType

# Types of results as PostgreSQL has them: in the table, in the table that rows are staged in, and which
# columns of a table that is there already take which values without losing any.

_SCALARS = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp with time zone",
    "TIMESTAMP_NTZ": "timestamp without time zone",
}
_JSON = "jsonb"
_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}

_ACCEPTED_TYPES: dict[str, tuple[str, ...]] = {
    "smallint": ("smallint", "integer", "bigint"),
    "integer": ("integer", "bigint"),
    "real": ("real", "double precision"),
    "text": ("text", "character varying", "uuid", "json", "jsonb"),
    "jsonb": ("jsonb", "json", "text"),
}
"""Beside itself, and numbers without a point as ``numeric``."""

_CAST = ("uuid", "json", "jsonb")
"""Types to which a text has to be cast. (Other casts would cut what is too long.)"""

_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
_MODIFIER = re.compile(r"\(\d+\)")
_CUT = re.compile(r"character varying\((\d+)\)")
_KEY_TEXTS = ("text", "character varying")


def target_type(kind: SqlType) -> str | None:
    """Return the type of a column for values of this type; None if there is none."""
    if kind.is_decimal:
        return f"numeric({kind.digits},{kind.scale})"
    if kind.name in _SCALARS:
        return _SCALARS[kind.name]
    if kind.name == "ARRAY" and kind.parts:
        (element,) = kind.parts
        if not element.is_nested:
            inner = target_type(element)
            return None if inner is None else f"{inner}[]"
    return _JSON if kind.is_nested and _is_json(kind) else None


def is_as_json(kind: SqlType) -> bool:
    """Return True if values are staged as JSON text.

    PostgreSQL arrays have the same size in all rows and contain no arrays.
    """
    return target_type(kind) == _JSON


def staged_type(kind: SqlType) -> str | None:
    """Return the type in which a frame's values are staged."""
    named = target_type(kind)
    return "text" if named == _JSON else named if named is None else _NUMERIC.sub("numeric", named)


def staged_type_of(kind: pa.DataType) -> str | None:
    """Return the type in which Arrow values are staged without conversion; None if unsupported."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = None if pa.types.is_nested(kind.value_type) else staged_type_of(kind.value_type)
        return None if inner is None else f"{inner}[]"
    if pa.types.is_decimal(kind):
        return "numeric"
    if pa.types.is_timestamp(kind):
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    return next((name for is_of, name in _ARROW if is_of(kind)), None)


def accepts_type(column: str, kind: SqlType, *, in_key: bool = False) -> bool:
    """Return True if a column of this type stores all values unchanged.

    A text may still be too long for the column, or not valid for its type.

    Args:
        column: Type of the column, as ``format_type`` writes it.
        in_key: If True, unequal values must also stay unequal: a uuid column loses the case of texts.
    """
    wanted = target_type(kind)
    if wanted is None:
        return False
    if wanted.endswith("[]") or column.endswith("[]"):
        return wanted.endswith("[]") and column.endswith("[]") and _takes_elements(column[:-2], kind, in_key)
    numeric = _NUMERIC.fullmatch(column)
    if numeric is not None and (kind.is_decimal or wanted in _DIGITS):
        digits, scale = (kind.digits, kind.scale) if kind.is_decimal else (_DIGITS[wanted], 0)
        if numeric[1] is None:
            return True
        return int(numeric[2]) >= scale and int(numeric[1]) - int(numeric[2]) >= digits - scale
    if column.startswith("timestamp("):  # fewer digits of the second
        return column.startswith("timestamp(6)") and wanted == column.replace("(6)", "")
    if in_key and wanted == "text":
        return column in _KEY_TEXTS
    plain = _MODIFIER.sub("", column)
    return plain == wanted or plain in _ACCEPTED_TYPES.get(wanted, ())


def _takes_elements(column: str, kind: SqlType, in_key: bool) -> bool:
    return _CUT.fullmatch(column) is None and accepts_type(column, kind.parts[0], in_key=in_key)


def cast_value(value: str, column: str) -> str:
    """Build the SQL that converts a staged value to the column's type.

    The server would cut a text that is too long only by blanks. Such a text gets a suffix, so that the
    server rejects it.
    """
    cut = _CUT.fullmatch(column)
    if cut is not None:
        return f"CASE WHEN char_length({value}) > {cut[1]} THEN {value} || '.' ELSE {value} END"
    plain = _MODIFIER.sub("", column)
    return f"{value}::{column}" if plain.removesuffix("[]") in _CAST else value


def _is_json(kind: SqlType) -> bool:
    parts = [*kind.parts, *(field.type for field in kind.fields)]
    return all(_is_json(part) if part.is_nested else target_type(part) is not None for part in parts)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


_ARROW = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (is_text, "text"),
    (_is_bytes, "bytea"),
    (pa.types.is_date32, "date"),
)


# Whether the table that has a target's name is the one that the job has written to, and still has its
# rows.
#
# A table is known by the server's system identifier, and the numbers of its database and of itself:
# another one of its name, or the same in a database that was restored from a dump, has other numbers.

_CONTROL = "SELECT coalesce(has_function_privilege(to_regprocedure('pg_control_system()'), 'EXECUTE'), false)"
_FILES = """SELECT concat(pg_postmaster_start_time(), ' ', pg_relation_filenode($1::bigint::oid), ' ',
    (SELECT string_agg(pg_relation_filenode(t.relid)::text, ' ')
    FROM pg_partition_tree($1::bigint::oid::regclass) t)),
    has_any_column_privilege($1::bigint::oid, 'SELECT') AND NOT row_security_active($1::bigint::oid)"""
"""What TRUNCATE changes, or a crash of the server (of unlogged tables); and whether rows are seen."""


def number_of(cursor: Cursor, table: str) -> int | None:
    """Return the server's current number (OID) of a table, given by its name in SQL.

    The number is current, whatever the transaction sees otherwise. The result is None if there is no such
    table.
    """
    ((number,),) = rows_of(cursor, "SELECT to_regclass($1)::oid::bigint", table)
    return None if number is None else int(number)


def identity_of(cursor: Cursor, table: str) -> str | None:
    """Return what tells a table from any other of its name (given in SQL); None: there is none."""
    number, server = number_of(cursor, table), ""
    if number is None:
        return None
    if rows_of(cursor, _CONTROL) == [(True,)]:
        ((server,),) = rows_of(cursor, "SELECT system_identifier::text FROM pg_control_system()")
    named = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()"
    ((database,),) = rows_of(cursor, named)
    return f"{server}/{database}/{number}"


def is_same(written: str, now: str | None) -> bool:
    """Return whether two identities are of one table; a user may have no right to ask for the server's."""
    if now is None:
        return False
    (server, *numbers), (server_now, *numbers_now) = written.split("/"), now.split("/")
    return numbers == numbers_now and (server == server_now or not server or not server_now)


def replaced_error(table: str, sink: str) -> EngineError:
    """Return the error for a table that is not the one that the job wrote to.

    Args:
        table: Name of the table in SQL.
    """
    return EngineError(
        f'the table {table} is not the one that this job wrote to (sink "{sink}"): it was dropped,'
        " renamed, restored from a dump or moved. Nothing was written",
        code="sink-replaced",
        hint="restore the job's table and run again; or, to continue with this table, run with"
        f" --accept-target {quote_identifier(sink) if ' ' in sink else sink}",
    )


class EmptyCheck:
    """Look whether others have emptied a table, as by TRUNCATE, which gives it other files.

    Args:
        at_start: it is also looked at in the first tick of a run.
    """

    def __init__(self, *, at_start: bool) -> None:
        self._seen = "" if at_start else None

    def is_emptied(self, cursor: Cursor, number: int, table: str) -> bool:
        """Return whether a table has no rows, where that is to be looked at now, and can be."""
        ((files, is_readable),) = rows_of(cursor, _FILES, number)
        if files == self._seen:
            return False
        is_due, self._seen = self._seen is not None and bool(is_readable), files
        return is_due and not rows_of(cursor, f"SELECT 1 FROM {table} LIMIT 1")


# The table that rows go to: made where it is not there, or checked, with all that is wrong at once.

MAX_COLUMNS = 1598
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
class TargetTable:
    """Table that receives the rows.

    Args:
        types: the types of its columns, by name, as ``format_type`` writes them.
        oid: the server's number of the table.
        columns: the server's descriptions of the columns.
        row_security: True if row-level security applies to the job's user, who may insert.
    """

    schema: str
    table: str
    types: dict[str, str]
    oid: int = 0
    columns: tuple[tuple[Any, ...], ...] = ()
    row_security: bool = False

    @property
    def sql(self) -> str:
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.table)}"

    def refuses_row(self, error: BaseException) -> bool:
        """Return whether an error means that the table does not take a row, such as for a policy."""
        return refuses_row(error) or (self.row_security and state_of(error) == NO_RIGHT)


def written_columns(columns: Sequence[Column], key: Sequence[str]) -> tuple[Column, ...]:
    """Return the table's columns for a result; with a key, rows have no number of changes."""
    return tuple(column for column in columns if not (key and column.name in CHANGE_COLUMNS))


def result_problems(columns: Sequence[Column], spec: SinkSpec) -> Iterator[SpecError]:
    """Yield the problems of columns that no table accepts, without contacting the server."""
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
    if len(columns) > MAX_COLUMNS:
        yield SpecError(
            f"{what}: the result has {len(columns):,} columns, but a table can have {MAX_COLUMNS:,}",
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
    """Check that the schema exists.

    Raises:
        SpecError: the schema does not exist.
    """
    if not rows_of(cursor, "SELECT 1 FROM pg_namespace WHERE nspname::text = $1", schema):
        raise SpecError(
            f'postgres sink "{sink}": the schema "{schema}" does not exist',
            code="unknown-schema",
            hint=f"run CREATE SCHEMA {quote_identifier(schema)}, or use another schema: "
            "'table' = 'schema.name'",
        )


def ensure_table(
    cursor: Cursor, target: TargetTable, columns: Sequence[Column], spec: SinkSpec
) -> TargetTable:
    """Return the table with its column types; create it if it does not exist.

    Raises:
        SpecError: Rows of these columns do not fit the table.
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
    return TargetTable(target.schema, target.table, types, oid, tuple(stored), bool(row_security))


def check_unchanged(cursor: Cursor, target: TargetTable, sink: str) -> None:
    """Check that the table is as `ensure_table` saw it, and lock it until the transaction ends.

    Raises:
        EngineError: It is another table, or a column has changed.
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


def _creation(target: TargetTable, columns: Sequence[Column], key: Sequence[str]) -> str:
    lines = [f"{quote_identifier(column.name)} {target_type(column.type)}" for column in columns]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote_identifier, key))})")
    return f"CREATE TABLE {target.sql} ({', '.join(lines)})"


def _problems(
    cursor: Cursor,
    target: TargetTable,
    oid: int,
    kind: str,
    stored: Sequence[tuple[Any, ...]],
    columns: Sequence[Column],
    spec: SinkSpec,
) -> Iterator[tuple[str, str]]:
    """Yield each mismatch between columns and table, with a hint what to do about it."""
    if kind not in ("r", "p"):
        yield "it is no table", "name a table"
        return
    types = {name: type_ for name, type_, *_ in stored}
    generated = {name for name, *_, is_generated, _ in stored if is_generated}
    undetermined = {name for name, *_, is_exact in stored if not is_exact}
    for column in columns:
        wanted = target_type(column.type)
        if column.name not in types:
            addition = f"ALTER TABLE {target.sql} ADD COLUMN {quote_identifier(column.name)} {wanted}"
            near = near_names(column.name, list(types)) if types else None
            asks = near is not None and near.startswith("did")
            yield f'it has no column "{column.name}"', near if asks and near else addition
        elif column.name in generated:
            yield f'"{column.name}" is generated', f'leave "{column.name}" out of the query'
        elif not accepts_type(types[column.name], column.type):
            yield (
                f'"{column.name}" is {types[column.name]} there, and {column.type} in the result',
                f'make it {wanted}, or cast it: CAST("{column.name}" AS …)',
            )
        elif column.name in spec.primary_key and not accepts_type(
            types[column.name], column.type, in_key=True
        ):
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
            names = ", ".join(map(quote_identifier, spec.primary_key))
            yield (
                f"it has no unique index of ({names}), the PRIMARY KEY of the sink",
                f"ALTER TABLE {target.sql} ADD PRIMARY KEY ({names})",
            )
