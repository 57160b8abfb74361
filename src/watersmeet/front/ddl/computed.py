"""Columns that a declaration computes of those of the records: ``ts AS meta.ts``, ``ts AS to_timestamp(at)``.

Whoever reads the source sees them, as columns of a view. Nothing is written to them. A PRIMARY KEY and the
options that say how records change a table may name them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokens import TokenType

from watersmeet.front.query.expressions.checks import check_expression
from watersmeet.front.query.inline import substituted
from watersmeet.front.query.scope import Named, Scope, column_node, resolved
from watersmeet.front.text.place import Refused, Text
from watersmeet.front.text.tokens import Cursor, parse_tokens
from watersmeet.front.types.earlier import column_of
from watersmeet.spec.changing import ChangeColumn, PrimaryKey
from watersmeet.spec.model import Column, Computed, EventTime, Expr
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT
from watersmeet.spec.records.changes import columns_in, computed_expr


@dataclass(frozen=True)
class ComputedClause:
    """A column as written; ``place``: the number of columns of the records before it."""

    name: str
    tree: exp.Expression
    start: int
    place: int


def computed_clause(cursor: Cursor, name: str, start: int, place: int) -> ComputedClause:
    """Read ``AS expression``, from behind AS."""
    if cursor.looks_at("PROCTIME"):
        hint = "remove it: JOIN table FOR SYSTEM_TIME AS OF PROCTIME() needs no such column"
        raise cursor.text.not_supported("a column of PROCTIME() is", start, hint)
    tokens = cursor.until_comma()
    if len(tokens) > 2 and tokens[-2].text.upper() == "COMMENT" and tokens[-1].token_type == TokenType.STRING:
        tokens = tokens[:-2]
    if not tokens:
        raise cursor.unexpected(f'what "{name}" is computed of')
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
) -> tuple[Computed, ...]:
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
    computed: list[Computed] = []
    for clause in clauses:
        if any(column.name.lower() == clause.name.lower() for column in columns):
            message = (
                f'column "{clause.name}" is computed, but the records already have a column of that name'
            )
            raise text.error(message, "duplicate-column", clause.start, "give it another name")
        if not check_expression(clause.tree, text, repeatable=True):
            continue
        scope = Scope((Named("", tuple(own_columns)),), qualify=False)
        own = resolved(clause.tree, scope, text)
        if len(text.problems) > before:
            continue
        column = column_of(clause.name, own, scope.column_of)
        values[column.name] = substituted(own, lambda node: values[node.name])
        computed.append(Computed(column, values[column.name], clause.place))
        if column.name.lower() != said_by:
            own_columns.append(column)
    if len(text.problems) > before:
        raise Refused
    hidden = {said_by} if is_keyed else _hidden(clauses, columns, computed, said_by, text)
    return tuple(
        one._replace(place=sum(column.name.lower() not in hidden for column in columns[: one.place]))
        for one in computed
    )


def _hidden(
    clauses: Sequence[ComputedClause],
    columns: Sequence[Column],
    computed: Sequence[Computed],
    said_by: str | None,
    text: Text,
) -> set[str | None]:
    """Return the columns of records that rows have not, in small letters: a row that goes equals the row that
    came, and what says so differs.

    Raises: SqlError, where nothing else is left, or another column is computed of it.
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
    computed: Sequence[Computed],
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
    name: str, key: PrimaryKey, computed: Sequence[Computed], records: str, text: Text, start: int
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
