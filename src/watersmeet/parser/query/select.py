"""A SELECT over one or several inputs → `spec.Query`: the join tree, names resolved, the output columns."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from watersmeet.errors import SqlError
from watersmeet.parser.catalog import Catalog
from watersmeet.parser.query.expressions.checks import check_clauses
from watersmeet.parser.query.joins import parse_from_item, part_of, rows_of
from watersmeet.parser.query.select_list import select_items
from watersmeet.parser.query.views import (
    grouped_query,
    is_summarized,
    is_windowed,
    reader,
    select_flow,
    with_names,
)
from watersmeet.parser.text.source_position import StatementRejected, Text
from watersmeet.parser.text.tokens import parse_tokens, statements_of
from watersmeet.spec.model import OutputColumn, Query, Source

UNION = "union"
"""The alias of a UNION ALL at the top, which has none of its own."""


def query_of(sql: str, sources: Mapping[str, Source]) -> Query:
    """Parse one SELECT over streams that are declared elsewhere.

    Raises:
        SqlError, SeveralErrors: The SELECT has errors.
    """
    text = Text(sql)
    statements = statements_of(text)
    if len(statements) != 1:
        raise text.error(f"expected one SELECT, found {len(statements)} statements", "syntax", 0)
    try:
        return build_query(parse_tokens(text, statements[0]), Catalog.of(sources), text, sql.strip())
    except StatementRejected:
        pass
    except SqlError as error:
        text.problems.append(error)
    raise text.all_problems()


def build_query(tree: exp.Expression, catalog: Catalog, text: Text, sql: str) -> Query:
    """Build the query of a parsed SELECT.

    Raises:
        StatementRejected: ``text`` has the problems.
        SqlError: The SELECT has one problem that ends its reading.
    """
    if isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    if isinstance(tree, exp.Union):
        return _union_query(tree, catalog, text, sql)
    if isinstance(tree, exp.SetOperation):
        raise text.not_supported(f"{type(tree).__name__.upper()} is", tree, "UNION ALL is")
    if not isinstance(tree, exp.Select):
        raise text.error("expected a SELECT", "syntax", tree)
    before = len(text.problems)
    check_clauses(tree, text, windowed=is_windowed(tree))
    catalog = with_names(tree, catalog, text)
    origin = tree.args.get("from_")
    if origin is None:
        raise text.error("a SELECT here needs FROM", "syntax", tree)
    if is_summarized(tree):
        query, _ = grouped_query(tree, catalog, text, sql)
        if len(text.problems) > before:
            raise StatementRejected
        return query

    read = reader(catalog, text)
    part, condition = rows_of(parse_from_item(origin.this, read, text), tree, read, text)
    items = select_items(tree, part.scope, text, repeatable=False)
    if not items and len(text.problems) == before:
        raise text.error("the SELECT has no columns", "syntax", tree)
    if len(text.problems) > before:
        raise StatementRejected
    outputs = tuple(OutputColumn(item.name, item.expr, item.origin) for item in items)
    return Query(part.relation, condition, outputs, sql)


def _union_query(tree: exp.Union, catalog: Catalog, text: Text, sql: str) -> Query:
    """Build the query of a top-level UNION ALL: one input, whose columns are all outputs."""
    part = part_of(select_flow(tree, catalog, text), UNION)
    outputs = tuple(OutputColumn(column.name, column.expr, column.origin) for column in part.scope.star())
    return Query(part.relation, None, outputs, sql)
