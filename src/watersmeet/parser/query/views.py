"""Parse FROM items, views and subqueries.

IMPOSE_ORDER, projections, filters and UNION ALL become a `Flow`; joins become a `JoinedView`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.errors import near_names
from watersmeet.parser.catalog import Catalog
from watersmeet.parser.ddl.quantities import lag_of
from watersmeet.parser.query.aggregates import AllRows, grouped_rows, is_grouped, parse_aggregation
from watersmeet.parser.query.expressions.checks import UNNESTED, check_clauses, check_expression
from watersmeet.parser.query.flow import (
    Flow,
    FlowError,
    JoinedView,
    filter_flow,
    impose_order,
    project_flow,
    query_flow,
    stage_flow,
    union_all,
)
from watersmeet.parser.query.hints import without_join
from watersmeet.parser.query.joins import Read, joined_select, parse_from_item, rows_of, written_version
from watersmeet.parser.query.ranking import is_ranked, ranked_rows
from watersmeet.parser.query.scope import (
    NamedRelation,
    ResolvedColumn,
    Scope,
    hidden_hint,
    resolve_columns,
)
from watersmeet.parser.query.select_list import distinct, select_items
from watersmeet.parser.query.windows import WindowedRows, apply_window, window_in
from watersmeet.parser.text.dialect import ImposeOrder
from watersmeet.parser.text.source_position import StatementRejected, Text
from watersmeet.parser.types.stored_types import column_of
from watersmeet.spec.model import Column, Query

_TABLE_ARGS = {"this", "alias", "db", "catalog", "joins"}


def relation_flow(item: exp.Expression, catalog: Catalog, text: Text) -> tuple[Flow | JoinedView, str | None]:
    """Parse a FROM item without its joins; return it and its alias, or None if it has no name."""
    if (window := window_in(item)) is not None:
        function = window.args["function"]
        raise text.not_supported(
            f"{function} without GROUP BY in the same SELECT is",
            item,
            f"write SELECT … FROM TABLE({function}(…)) GROUP BY window_start, window_end, … as a view"
            " or subquery, and use that",
        )
    if isinstance(item, exp.Subquery):
        inner = item.this
        if isinstance(inner, (exp.Table, exp.Subquery)):  # (a JOIN b ON …) x
            inner = exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner.copy()))
        flow, name = select_flow(inner, catalog, text), None
    elif isinstance(item, exp.Table):
        _check_table(item, text)
        flow, name = _table_flow(item, catalog, text)
    elif isinstance(item, ImposeOrder):
        return _ordered_flow(item, catalog, text)
    elif isinstance(item, exp.Query):
        return select_flow(item, catalog, text), None
    else:
        raise text.not_supported(f"{type(item).__name__.upper()} in FROM is", item, UNNESTED)
    alias = item.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        flow = _rename_flow(flow, alias, text)
    return flow, item.alias or name


def reader(catalog: Catalog, text: Text) -> Read:
    """Return a function that resolves FROM items by the names of ``catalog``."""
    return lambda item: relation_flow(item, catalog, text)


def _check_table(item: exp.Table, text: Text) -> None:
    if item.args.get("version") is not None:
        raise text.error(
            f"{written_version(item)} is only allowed on the right side of a join of a stream with a table",
            "not-supported",
            item,
            "write stream JOIN table FOR SYSTEM_TIME AS OF PROCTIME() AS t ON …",
        )
    for key, value in item.args.items():
        if value and key not in _TABLE_ARGS:
            raise text.not_supported(f"{key.upper()} after a table is", item)


def _table_flow(item: exp.Table, catalog: Catalog, text: Text) -> tuple[Flow | JoinedView, str | None]:
    inner = item.this
    if isinstance(inner, ImposeOrder):
        return _ordered_flow(inner, catalog, text)
    if isinstance(inner, exp.Anonymous) and inner.name.upper() == "TABLE" and len(inner.expressions) == 1:
        argument = inner.expressions[0]
        if isinstance(argument, exp.Column):
            return _look_up_flow(argument.parts, argument, catalog, text)
        return relation_flow(argument, catalog, text)
    if isinstance(inner, exp.Func):
        raise text.not_supported(
            f"the table function {inner.name or inner.sql_name()} is",
            item,
            "use IMPOSE_ORDER, TUMBLE, HOP or SESSION",
        )
    return _look_up_flow(item.parts, item, catalog, text)


def _look_up_flow(
    parts: Sequence[exp.Expr], where: exp.Expr, catalog: Catalog, text: Text
) -> tuple[Flow | JoinedView, str]:
    spelled, flow = catalog.flow(".".join(part.name for part in parts), where, text)
    return flow, spelled.rsplit(".", 1)[-1]


def _ordered_flow(order: ImposeOrder, catalog: Catalog, text: Text) -> tuple[Flow | JoinedView, str | None]:
    flow, name = relation_flow(order.this, catalog, text)
    column = order.args["column"]
    if isinstance(flow, JoinedView) or flow.has_stages:
        raise text.not_supported(
            "IMPOSE_ORDER over a join is",
            column,
            "use IMPOSE_ORDER on the inputs of the join; an event time keeps its watermark through a join",
        )
    names = [flow_column.name for flow_column in flow.columns]
    lowered = [column_name.lower() for column_name in names]
    if column.name.lower() not in lowered:
        hint = hidden_hint(column.name, flow.sources) or near_names(column.name, names)
        raise text.error(f'IMPOSE_ORDER: unknown column "{column.name}"', "unknown-column", column, hint)
    position = lowered.index(column.name.lower())
    kind = flow.columns[position].type
    lag = lag_of(order.args["lag"], names[position], kind, text)
    try:
        return impose_order(flow, position, lag), name
    except FlowError as error:
        raise text.error(error.message, error.code, column, error.hint) from error


def _rename_flow(flow: Flow | JoinedView, alias: exp.TableAlias, text: Text) -> Flow | JoinedView:
    """Rename the columns of a flow: ``… AS x (a, b)``."""
    names = [column.name for column in alias.args["columns"]]
    if len(names) != len(flow.columns):
        raise text.error(
            f'"{alias.name}" has {len(names)} column names, but {len(flow.columns)} columns',
            "column-count",
            alias,
        )
    columns = (replace(column, name=name) for column, name in zip(flow.columns, names, strict=True))
    return replace(flow, columns=tuple(columns))


def select_flow(
    query: exp.Expression, catalog: Catalog, text: Text, *, by_position: bool = False
) -> Flow | JoinedView:
    """Parse the SELECT of a view or subquery.

    It is a SELECT over one relation, a UNION ALL of such SELECTs, or a SELECT that joins.

    Args:
        by_position: The caller ignores the names of the columns.
    """
    before = len(text.problems)
    check_clauses(query, text, windowed=is_windowed(query))
    catalog = with_names(query, catalog, text)
    if isinstance(query, (exp.Subquery, exp.Paren)):
        flow: Flow | JoinedView = select_flow(query.this, catalog, text, by_position=by_position)
    elif isinstance(query, exp.Union):
        flow = _union_flow(query, catalog, text, by_position)
    elif isinstance(query, exp.Select):
        flow = _simple_flow(query, catalog, text, by_position)
    else:
        raise text.not_supported(f"{type(query).__name__.upper()} is", query, "UNION ALL is")
    if len(text.problems) > before:
        raise StatementRejected
    return flow


def with_names(query: exp.Expression, catalog: Catalog, text: Text) -> Catalog:
    """Return the catalog extended by the names of the query's WITH clause."""
    clause = query.args.get("with_")
    if clause is None:
        return catalog
    if clause.args.get("recursive"):
        raise text.not_supported("WITH RECURSIVE is", clause)
    inner = catalog.inner()
    for cte in clause.expressions:
        flow = select_flow(cte.this, inner, text)
        if cte.args["alias"].args.get("columns"):
            flow = _rename_flow(flow, cte.args["alias"], text)
        inner.add(cte.alias, flow)
    return inner


def _union_flow(query: exp.Union, catalog: Catalog, text: Text, by_position: bool) -> Flow:
    if query.args.get("by_name"):
        hint = "select the columns in the same order: SELECT a, b FROM x UNION ALL SELECT a, b FROM y"
        raise text.not_supported("UNION ALL BY NAME is", query, hint)
    if query.args.get("distinct"):
        raise text.not_supported("UNION other than UNION ALL is", query, "write UNION ALL")
    flows: list[Flow] = []
    for side, unnamed in ((query.this, by_position), (query.expression, True)):
        flow = select_flow(side, catalog, text, by_position=unnamed)
        if isinstance(flow, JoinedView):
            flow = stage_flow(flow.relation, flow.columns, flow.values, side.sql("spark"))
        flows.append(flow)
    try:
        return union_all(flows)
    except FlowError as error:
        raise text.error(error.message, error.code, query.expression, error.hint) from error


def _simple_flow(select: exp.Select, catalog: Catalog, text: Text, by_position: bool) -> Flow | JoinedView:
    origin = select.args.get("from_")
    if origin is None:
        raise text.error("a SELECT here needs FROM", "syntax", select)
    if is_summarized(select):
        grouped, own = grouped_query(select, catalog, text, select.sql("spark"))
        grouped_columns = [
            ResolvedColumn(output.name, output.expr, output.origin) for output in grouped.outputs
        ]
        names = [item.name for item in distinct(grouped_columns, select, text, by_position=by_position)]
        outputs = (replace(o, name=name) for o, name in zip(grouped.outputs, names, strict=True))
        columns = [replace(column, name=name) for column, name in zip(own, names, strict=True)]
        return query_flow(replace(grouped, outputs=tuple(outputs)), columns)
    if _joins(select, origin.this):
        return joined_select(select, reader(catalog, text), text, by_position=by_position)
    flow, alias = relation_flow(origin.this, catalog, text)
    if isinstance(flow, JoinedView):
        return joined_select(
            select, reader(catalog, text), text, (flow, alias or ""), by_position=by_position
        )
    scope = Scope((NamedRelation(alias or "", flow.columns, sources=flow.sources),), qualify=False)
    without_join(select, text)
    where = select.args.get("where")
    condition = None
    if where is not None and check_expression(where.this, text, repeatable=True):
        condition = resolve_columns(where.this, scope, text, "WHERE")
    before = len(text.problems)
    items = select_items(select, scope, text, repeatable=True)
    if len(text.problems) > before:
        raise StatementRejected
    items = list(distinct(items, select, text, by_position=by_position))
    columns = [column_of(item.name, item.expr, scope.column_of) for item in items]
    if condition is not None:
        flow = filter_flow(flow, condition)
    return project_flow(flow, columns, [item.expr for item in items])


def is_windowed(query: exp.Expression) -> bool:
    """Return True if the query is a SELECT over TUMBLE, HOP or SESSION."""
    origin = query.args.get("from_") if isinstance(query, exp.Select) else None
    return origin is not None and window_in(origin.this) is not None


def is_summarized(query: exp.Expression) -> bool:
    """Return True if the query is a SELECT that groups or numbers rows.

    Each of its rows depends on several input rows.
    """
    return is_windowed(query) or is_ranked(query) or is_grouped(query)


def grouped_query(
    select: exp.Select, catalog: Catalog, text: Text, sql: str
) -> tuple[Query, tuple[Column, ...]]:
    """Parse a SELECT that groups or numbers rows into a query and its columns.

    Raises:
        StatementRejected: ``text`` has the problems.
        SqlError: The SELECT has one problem that ends its reading.
    """
    if is_windowed(select):
        return parse_aggregation(select, _windows_of(select, catalog, text), text, sql)
    read = reader(catalog, text)
    part, condition = rows_of(parse_from_item(select.args["from_"].this, read, text), select, read, text)
    rows = AllRows(part.relation, part.scope, condition)
    return (ranked_rows if is_ranked(select) else grouped_rows)(select, rows, text, sql)


def _windows_of(select: exp.Select, catalog: Catalog, text: Text) -> WindowedRows:
    """Parse the FROM of a SELECT over windows into the windowed rows.

    Raises:
        SqlError: The FROM has an error, such as a join.
    """
    item = select.args["from_"].this
    table = window_in(item)
    assert table is not None
    without_join(select, text)
    if _joins(select, item):
        raise text.not_supported(
            f"a join and {table.args['function']} in the same FROM is",
            item,
            "join in a view and apply the window function to that view, or aggregate in a view and join that",
        )
    alias = item.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise text.not_supported("column names after a window function are", alias)
    return apply_window(table, item.alias or table.alias, reader(catalog, text), text)


def _joins(select: exp.Select, item: exp.Expression) -> bool:
    """Return True if the SELECT itself has a join: in FROM, in parentheses there, or by EXISTS in WHERE."""
    where = select.args.get("where")
    if where is not None and any(isinstance(e.this, exp.Query) for e in where.find_all(exp.Exists)):
        return True
    if select.args.get("joins") or item.args.get("joins"):
        return True
    inner = item.this if isinstance(item, (exp.Subquery, exp.Paren)) else None
    return isinstance(inner, (exp.Table, exp.Subquery)) and not item.alias and _joins(select, inner)
