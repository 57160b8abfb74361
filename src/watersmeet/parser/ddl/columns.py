"""Columns of a declaration: computed columns, primary keys, watermarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokens import TokenType

from watersmeet.errors import SqlError, near_names
from watersmeet.parser.ddl.options import OptionError, SourceFields
from watersmeet.parser.ddl.quantities import lag_of
from watersmeet.parser.query.expressions.checks import check_expression
from watersmeet.parser.query.inline import substitute_columns
from watersmeet.parser.query.scope import NamedRelation, Scope, column_node, resolve_columns
from watersmeet.parser.text.source_position import StatementRejected, Text
from watersmeet.parser.text.tokens import TokenCursor, parse_tokens
from watersmeet.parser.types.stored_types import column_of
from watersmeet.spec.change_kinds import ChangeColumn, PrimaryKey
from watersmeet.spec.connectors import connector_of
from watersmeet.spec.model import Column, ComputedColumn, EventTime, Expr, Sink
from watersmeet.spec.option_names import IN_SQL, Words
from watersmeet.spec.options.changes import (
    DEBEZIUM,
    SEQUENCE,
    TOMBSTONES,
    UPSERT,
    hint_of_field,
    primary_key,
)
from watersmeet.spec.records.changes import columns_in, computed_expr
from watersmeet.types.sql_type import INTEGERS, TIMES

# Columns that a declaration computes of those of the records: ``ts AS meta.ts``, ``ts AS
# to_timestamp(at)``.
#
# Whoever reads the source sees them, as columns of a view. Nothing is written to them. A PRIMARY KEY and
# the options that say how records change a table may name them.


@dataclass(frozen=True)
class ComputedClause:
    """Computed column as written.

    Attributes:
        place: the number of columns of the records that precede it.
    """

    name: str
    tree: exp.Expression
    start: int
    place: int


def computed_clause(cursor: TokenCursor, name: str, start: int, place: int) -> ComputedClause:
    """Read ``AS expression``, from behind AS."""
    if cursor.looks_at("PROCTIME"):
        hint = "remove it: JOIN table FOR SYSTEM_TIME AS OF PROCTIME() needs no such column"
        raise cursor.text.not_supported("a column of PROCTIME() is", start, hint)
    tokens = cursor.until_comma()
    if len(tokens) > 2 and tokens[-2].text.upper() == "COMMENT" and tokens[-1].token_type == TokenType.STRING:
        tokens = tokens[:-2]
    if not tokens:
        raise cursor.syntax_error(f'what "{name}" is computed of')
    key = next((token for token in tokens if token.token_type == TokenType.PRIMARY_KEY), None)
    if key is not None:
        hint = f"write it after the columns: PRIMARY KEY ({name}) NOT ENFORCED"
        raise cursor.text.not_supported(f'PRIMARY KEY after the computed column "{name}" is', key.start, hint)
    tree = parse_tokens(cursor.text, tokens)
    if isinstance(tree, exp.Star | exp.Alias) or tree.find(exp.Star) is not None:
        hint = f"use one expression: {name} AS a column, a field or a function of them"
        raise cursor.text.not_supported(f'"{name}" AS more than one expression is', start, hint)
    return ComputedClause(name, tree, start, place)


def computed_columns(
    clauses: Sequence[ComputedClause],
    columns: Sequence[Column],
    said_by: str | None,
    text: Text,
    *,
    is_keyed: bool,
) -> tuple[ComputedColumn, ...]:
    """Return the computed columns as expressions over those of the records.

    Args:
        columns: of the records, as declared or inferred.
        said_by: that which says what becomes of rows, and is none of theirs, in small letters.
        is_keyed: the table has a primary key.

    Raises: Refused, with the problems in ``text``; SqlError.
    """
    before = len(text.problems)
    own_columns = [column for column in columns if column.name.lower() != said_by]
    values: dict[str, Expr] = {column.name: column_node(column.name) for column in own_columns}
    computed: list[ComputedColumn] = []
    for clause in clauses:
        if any(column.name.lower() == clause.name.lower() for column in columns):
            message = (
                f'column "{clause.name}" is computed, but the records already have a column of that name'
            )
            raise text.error(message, "duplicate-column", clause.start, "give it another name")
        if not check_expression(clause.tree, text, repeatable=True):
            continue
        scope = Scope((NamedRelation("", tuple(own_columns)),), qualify=False)
        own = resolve_columns(clause.tree, scope, text)
        if len(text.problems) > before:
            continue
        column = column_of(clause.name, own, scope.column_of)
        values[column.name] = substitute_columns(own, lambda node: values[node.name])
        computed.append(ComputedColumn(column, values[column.name], clause.place))
        if column.name.lower() != said_by:
            own_columns.append(column)
    if len(text.problems) > before:
        raise StatementRejected
    hidden = {said_by} if is_keyed else _hidden(clauses, columns, computed, said_by, text)
    return tuple(
        one._replace(place=sum(column.name.lower() not in hidden for column in columns[: one.place]))
        for one in computed
    )


def _hidden(
    clauses: Sequence[ComputedClause],
    columns: Sequence[Column],
    computed: Sequence[ComputedColumn],
    said_by: str | None,
    text: Text,
) -> set[str | None]:
    """Return the columns of records that are not columns of rows, in lower case.

    An inserted row and its delete have equal columns, except those that distinguish the two records.

    Raises:
        SqlError: no other column is left, or another column is computed from a hidden one.
    """
    change = next((one for one in computed if one.column.name.lower() == said_by), None)
    if change is None:
        return {said_by}
    name, said = change.column.name, [*_paths(change.expr)]
    for clause, other in zip(clauses, computed, strict=True):
        for path in () if other is change else _paths(other.expr):
            if any(f"{path}.".startswith(f"{own}.") or f"{own}.".startswith(f"{path}.") for own in said):
                message = (
                    f'"{clause.name}" is computed from {path}, which tells inserts from deletes in "{name}"'
                )
                hint = (
                    "compute it from other columns or fields: a delete must have the same values as its"
                    " insert"
                )
                raise text.error(message, "not-supported", clause.start, hint)
    hidden = {column.lower() for column in columns_in(change.expr)}
    if len(computed) == 1 and all(column.name.lower() in hidden for column in columns):
        message = f'"{name}" tells inserts from deletes, and there is no other column'
        hint = "also compute the columns of the rows: id AS meta.id"
        raise text.error(message, "not-supported", clauses[0].start, hint)
    return {*hidden}


def check_times(
    change: ChangeColumn | None,
    computed: Sequence[ComputedColumn],
    times: Sequence[EventTime],
    text: Text,
    start: int,
) -> None:
    """Refuse an event time by which a record without a key says what changes: rows do not have it.

    Raises: SqlError.
    """
    expr = None if change is None else computed_expr(computed, change.column)
    hidden = set() if expr is None else columns_in(expr)
    time = next((time.column for time in times if time.column in hidden), None)
    if change is not None and time is not None:
        message = f'"{change.column}" tells inserts from deletes, but is computed from the event time {time}'
        hint = (
            f"compute {change.column} from other columns or fields: a delete must have the same"
            " values as its insert"
        )
        raise text.error(message, "not-supported", start, hint)


def check_key(
    name: str, key: PrimaryKey, computed: Sequence[ComputedColumn], records: str, text: Text, start: int
) -> None:
    """Refuse a computed key of a table whose format says which row a record is of.

    Raises: SqlError.
    """
    by_format = {UPSERT: key.columns, DEBEZIUM: key.named}.get(records, ())
    own = next((one.column.name for one in computed if one.column.name in by_format), None)
    if own is None:
        return
    if own in key.columns:
        what, why = "PRIMARY KEY", f"{records} identifies rows by the keys of its records"
        hint = "use columns that are in these keys"
    else:
        what, why = "option 'sequence.by'", f"deletes in {records} contain only their key"
        hint = f"declare {own} BIGINT and fill it from the event: 'metadata.{own}' = 'source.lsn'"
    message = f'"{name}": {what} uses "{own}", which is computed, but {why}'
    raise text.error(message, "not-supported", start, hint)


def _paths(expr: Expr) -> Iterator[str]:
    """Yield the columns, and fields of them, that an expression mentions."""
    for node in expr.find_all(exp.Column):
        path: exp.Expression = node
        while isinstance(path.parent, exp.Dot) and path.parent.this is path:
            path = path.parent
        yield path.sql("spark").lower().replace("`", "")


# PRIMARY KEY in a declaration: which columns it names, and what it means for a source.
#
# CREATE TABLE c (id BIGINT PRIMARY KEY NOT ENFORCED, …) CREATE TABLE c (a BIGINT, b STRING, …,
# [CONSTRAINT name] PRIMARY KEY (a, b) NOT ENFORCED)


@dataclass(frozen=True)
class KeyClause:
    """The columns as written, and where they stand."""

    columns: tuple[str, ...]
    start: int


def key_clause(cursor: TokenCursor) -> KeyClause:
    """Read a PRIMARY KEY clause of the column list."""
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


def _key_column(cursor: TokenCursor) -> str:
    start = cursor.offset
    name = cursor.name("a column name")
    if cursor.looks_at("."):
        path = f"{name}{cursor.fields()}"
        message = f"{path} is a field of a STRUCT, but a PRIMARY KEY needs columns"
        raise cursor.text.error(message, "primary-key", start, hint_of_field(path, IN_SQL))
    return name


def not_enforced(cursor: TokenCursor) -> None:
    """Accept an optional NOT ENFORCED and reject ENFORCED.

    The records alone determine the rows of a key, so the engine enforces nothing.
    """
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
    cursor: TokenCursor,
) -> PrimaryKey | None:
    """Return the primary key of the source ``name``, or None if it has none.

    Check that the key is consistent with the other options of the source.

    Args:
        records: The format of its records.
        error: Builds a problem of the statement from a message and a hint.
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
    """Return the primary key of the columns ``written``, checked against the source's options.

    Args:
        name: The source.
        wrong: Builds a problem of the key from a message and a hint.
        words: The terms of the interface (SQL or Python) in which the user declared the key.
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


def primary_key_problem(connector: str) -> tuple[str, str] | None:
    """Return the problem and the hint for a PRIMARY KEY of such a sink; None if it is allowed."""
    if connector_of(connector).by_key:
        return None
    return (
        f"rows in a {connector} sink do not replace each other",
        "remove the PRIMARY KEY: the column `_diff` tells inserts from deletes",
    )


def key_of_sink(sink: Sink, clauses: Sequence[KeyClause], cursor: TokenCursor) -> tuple[str, ...]:
    """Return the columns by which rows of a sink replace each other, spelled as declared.

    Raises:
        SqlError: The sink cannot have this PRIMARY KEY.
    """

    def wrong(message: str, hint: str | None) -> SqlError:
        return cursor.text.error(f'"{sink.name}": {message}', "primary-key", clauses[0].start, hint)

    if len(clauses) > 1:
        raise wrong("it has two PRIMARY KEYs", "list all columns in one: PRIMARY KEY (a, b) NOT ENFORCED")
    problem = primary_key_problem(sink.connector)
    if problem is not None:
        raise wrong(*problem)
    if sink.columns is None:
        return clauses[0].columns
    return primary_key(clauses[0].columns, None, None, sink.columns, wrong).columns


# WATERMARK FOR in a declaration: ``WATERMARK FOR t AS t - INTERVAL '10' SECONDS``.


@dataclass(frozen=True)
class WatermarkClause:
    """An event time as written, its lag (None: 0), and where it stands."""

    column: str
    lag: exp.Expression | None
    start: int


def watermark_clause(cursor: TokenCursor) -> WatermarkClause:
    """Read ``FOR t AS t - lag``; the lag is None for ``AS t`` and where it is left out."""
    cursor.expect("FOR")
    start = cursor.offset
    name = cursor.name("a column name")
    if cursor.looks_at("."):
        path = f"{name}{cursor.fields()}"
        message = f"WATERMARK FOR {path}: it is a field of a STRUCT, but an event time must be a column"
        own = path.rsplit(".", 1)[-1]
        hint = (
            f"compute a column of it: {own} AS {path}, WATERMARK FOR {own} AS {own} - INTERVAL '10' SECONDS"
        )
        raise cursor.text.error(message, "not-supported", start, hint)
    if not cursor.accept("AS"):
        return WatermarkClause(name, None, start)
    tree = parse_tokens(cursor.text, cursor.until_comma()).unnest()
    lag = None
    if isinstance(tree, exp.Sub):
        tree, lag = tree.this.unnest(), tree.expression
    if not isinstance(tree, exp.Column) or tree.name.lower() != name.lower():
        raise cursor.text.error(
            f'the watermark of "{name}" must be {name} or {name} - lag',
            "bad-lag",
            start,
            f"write WATERMARK FOR {name} AS {name} - INTERVAL '10' SECONDS",
        )
    return WatermarkClause(name, lag, start)


def event_times_of(
    clauses: Sequence[WatermarkClause], columns: Sequence[Column], text: Text, *, by_files: bool
) -> list[EventTime]:
    """Return the event times of a source.

    Args:
        columns: all of the source, computed ones too.
        by_files: columns were inferred.

    Raises: SqlError.
    """
    times: list[EventTime] = []
    for clause in clauses:
        column = next((c for c in columns if c.name.lower() == clause.column.lower()), None)
        if column is None:
            hint = near_names(clause.column, [c.name for c in columns])
            message = f'WATERMARK FOR: unknown column "{clause.column}"'
            raise text.error(message, "unknown-column", clause.start, hint)
        if any(time.column == column.name for time in times):
            raise text.error(f'"{column.name}" has two watermarks', "already-ordered", clause.start)
        if column.type not in INTEGERS and column.type not in TIMES:
            inferred = (
                f"; or declare only that column, ({column.name} TIMESTAMP, WATERMARK …), with 'columns'"
                " = 'infer'"
            )
            raise text.error(
                f'"{column.name}" is {column.type}, which cannot be an event time',
                "wrong-type",
                clause.start,
                "declare it as TIMESTAMP, DATE or an integer type" + (inferred if by_files else ""),
            )
        lag = 0 if clause.lag is None else lag_of(clause.lag, column.name, column.type, text)
        times.append(EventTime(column.name, lag))
    return times
