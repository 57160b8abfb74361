"""A SELECT with ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) → `spec.Query` with a `Ranking`.

How many rows of each partition are wanted says a filter above it; the planner reads it there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from sqlglot import exp

from watersmeet.parser.query.aggregates import AllRows, Grouping, is_grouped
from watersmeet.parser.query.expressions.checks import WINDOWED, check_expression
from watersmeet.parser.query.scope import column_node, resolve_columns
from watersmeet.parser.query.select_list import select_items
from watersmeet.parser.text.source_position import StatementRejected, Text
from watersmeet.parser.types.stored_types import column_of
from watersmeet.spec.aggregates import Ranking, SortKey
from watersmeet.spec.model import Column, Expr, OutputColumn, Query
from watersmeet.types.sql_type import INT

_NAME = "row_number"


def is_ranked(query: exp.Expression) -> bool:
    """Return True if the query is a SELECT with ROW_NUMBER() OVER (…) in its list."""
    return isinstance(query, exp.Select) and any(map(_is_number, query.expressions))


def _is_number(item: exp.Expr) -> bool:
    plain = item.unalias().unnest()
    return isinstance(plain, exp.Window) and isinstance(plain.this, exp.RowNumber)


def ranked_rows(select: exp.Select, rows: AllRows, text: Text, sql: str) -> tuple[Query, tuple[Column, ...]]:
    """Parse a SELECT with ROW_NUMBER() into a query over the rows and its columns.

    Raises:
        StatementRejected: ``text`` has the problems.
    """
    before = len(text.problems)
    places = [place for place, item in enumerate(select.expressions) if _is_number(item)]
    if len(places) > 1:
        text.problems.append(
            text.not_supported("a second ROW_NUMBER() in one SELECT is", select.expressions[places[1]])
        )
    place = places[0]
    item = select.expressions[place]
    window = item.unalias().unnest()
    others = select.copy()
    others.set("expressions", [other for n, other in enumerate(others.expressions) if n not in places])
    if is_grouped(others):
        text.problems.append(
            text.not_supported("ROW_NUMBER() with GROUP BY or DISTINCT is", item, "group in a subquery")
        )
        raise StatementRejected
    _check(window, text)
    if len(text.problems) > before:
        raise StatementRejected
    items = select_items(others, rows.scope, text, repeatable=True)
    partition = [_over(expr, "PARTITION BY", rows, text) for expr in window.args.get("partition_by") or ()]
    ordered = [(_over(sort.this, "ORDER BY", rows, text), sort) for sort in window.args["order"].expressions]
    if len(text.problems) > before:
        raise StatementRejected
    first = others.copy()
    first.set("expressions", first.expressions[:place])
    place = len(select_items(first, rows.scope, text, repeatable=True))
    grouping = Grouping(rows, text)
    outputs = [OutputColumn(o.name, column_node(grouping.key_of(o.expr)), o.origin) for o in items]
    of_partition = tuple(dict.fromkeys(grouping.key_of(expr) for expr in partition))
    order = [
        SortKey(grouping.key_of(expr), bool(sort.args.get("desc")), bool(sort.args.get("nulls_first")))
        for expr, sort in ordered
    ]
    order += [SortKey(key.name) for key in grouping.keys]
    once: dict[str, SortKey] = {}
    for key in order:  # of one partition there is nothing to order by its own columns
        if key.name not in of_partition:
            once.setdefault(key.name, key)
    written = window.sql("spark").replace("`", "")
    name = item.alias or _NAME
    number = grouping.free(name)
    outputs.insert(place, OutputColumn(name, column_node(number), written))
    aggregation = grouping.aggregation(None)
    ranking = Ranking(of_partition, tuple(once.values()), number, None, written)
    aggregation = replace(aggregation, columns=(*aggregation.columns, Column(number, INT)), ranking=ranking)
    own = {column.name: column for column in aggregation.columns}
    columns = (column_of(o.name, o.expr, lambda node: own.get(node.name)) for o in outputs)
    return Query(rows.relation, rows.where, tuple(outputs), sql, aggregation), tuple(columns)


def _check(window: exp.Window, text: Text) -> None:
    if window.args.get("spec") is not None:
        text.problems.append(text.not_supported("a frame (ROWS, RANGE) of ROW_NUMBER() is", window))
    if window.args.get("order") is None:
        text.problem(
            "ROW_NUMBER() needs an ORDER BY",
            "syntax",
            window,
            WINDOWED,
        )


def _over(expr: Expr, clause: str, rows: AllRows, text: Text) -> Expr:
    """Resolve an expression of PARTITION BY or ORDER BY; report its problems."""
    if not check_expression(expr, text, repeatable=True):
        return expr
    before = len(text.problems)
    own = cast(Expr, resolve_columns(expr, rows.scope, text).unnest())
    if len(text.problems) == before and own.find(exp.Column) is None:
        text.problem(
            f"{clause} {expr.sql('spark')} in OVER (…) is a constant, not the position of a column",
            "not-supported",
            expr,
            "write the name of the column",
        )
    return own
