"""Columns that a declaration computes of those of the records: ``ts AS meta.ts``, ``ts AS to_timestamp(at)``.

Whoever reads the source sees them, as columns of a view. Nothing is written to them, and no PRIMARY KEY and
no option that says how records change a table names one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokens import TokenType

from watersmeet.front.query.expressions.checks import check_expression
from watersmeet.front.query.inline import substituted
from watersmeet.front.query.scope import Named, Scope, column_node, resolved
from watersmeet.front.text.place import Refused, Text
from watersmeet.front.text.tokens import Cursor, parse_tokens
from watersmeet.front.types.earlier import column_of
from watersmeet.spec.model import Column, Computed, Expr


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
        hint = "leave it out: JOIN table FOR SYSTEM_TIME AS OF PROCTIME() needs no column"
        raise cursor.text.not_supported("a column of PROCTIME() is", start, hint)
    tokens = cursor.until_comma()
    if len(tokens) > 2 and tokens[-2].text.upper() == "COMMENT" and tokens[-1].token_type == TokenType.STRING:
        tokens = tokens[:-2]
    if not tokens:
        raise cursor.unexpected(f'what "{name}" is computed of')
    tree = parse_tokens(cursor.text, tokens)
    if isinstance(tree, exp.Star | exp.Alias) or tree.find(exp.Star) is not None:
        hint = f"write {name} AS a column, a field or a function of them"
        raise cursor.text.not_supported(f'"{name}" AS more than one expression is', start, hint)
    return ComputedClause(name, tree, start, place)


def computed_columns(
    clauses: Sequence[ComputedClause], columns: Sequence[Column], said_by: str | None, text: Text
) -> tuple[Computed, ...]:
    """Return the computed columns as expressions over those of the records.

    Args:
        columns: of the records, as declared or inferred.
        said_by: that which says what becomes of rows, and is none of theirs.

    Raises: Refused, with the problems in ``text``; SqlError.
    """
    before = len(text.problems)
    own_columns = [column for column in columns if column.name != said_by]
    values: dict[str, Expr] = {column.name: column_node(column.name) for column in own_columns}
    computed: list[Computed] = []
    for clause in clauses:
        if any(column.name.lower() == clause.name.lower() for column in columns):
            message = f'column "{clause.name}" is computed, and the records have one of that name'
            raise text.error(message, "duplicate-column", clause.start, "give it another name")
        if not check_expression(clause.tree, text, repeatable=True):
            continue
        scope = Scope((Named("", tuple(own_columns)),), qualify=False)
        own = resolved(clause.tree, scope, text)
        if len(text.problems) > before:
            continue
        column = column_of(clause.name, own, scope.column_of)
        values[column.name] = substituted(own, lambda node: values[node.name])
        skipped = any(c.name == said_by for c in columns[: clause.place])
        computed.append(Computed(column, values[column.name], clause.place - skipped))
        own_columns.append(column)
    if len(text.problems) > before:
        raise Refused
    return tuple(computed)


def refuse_computed(
    what: str, names: Sequence[str], clauses: Sequence[ComputedClause], text: Text, start: int
) -> None:
    """Refuse columns that say how records change the table, where they are computed.

    Args:
        what: what names them: ``PRIMARY KEY``, ``option 'op.column'``.
    """
    lowered = {clause.name.lower() for clause in clauses}
    name = next((name for name in names if name.strip().lower() in lowered), None)
    if name is not None:
        message = f'{what} names "{name}", which is computed'
        hint = "name a column of the records: rows of a table are computed of once it is known which they are"
        raise text.error(message, "not-supported", start, hint)
