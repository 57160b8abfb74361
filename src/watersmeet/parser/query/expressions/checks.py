"""What a streaming join cannot hold: refused with the reason before anything is resolved."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.parser.text.source_position import Text
from watersmeet.spec.aggregates import aggregate_name, is_aggregate

_MAX_SHOWN = 60
"""Characters of a call in a message."""
_RANDOM = frozenset(
    {
        "rand",
        "random",
        "randn",
        "uuid",
        "monotonically_increasing_id",
        "spark_partition_id",
        "shuffle",
        "randstr",
        "uniform",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
    }
)
_CLOCK = frozenset(
    {
        "now",
        "current_timestamp",
        "localtimestamp",
        "current_date",
        "curdate",
        "current_time",
        "unix_timestamp",
        "currenttimestamp",
        "currentdate",
        "currenttime",
        "sysdate",
    }
)
_GENERATORS = frozenset(
    {
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "stack",
        "json_tuple",
    }
)

_CLAUSES = {
    "distinct": "DISTINCT",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
    "into": "SELECT INTO",
    "match": "MATCH_RECOGNIZE",
}
_ENDLESS = "remove it: projections, filters, joins, UNION ALL and aggregation over windows are supported"
_INSTEAD = {
    "limit": "remove it: a stream has no end; use a console sink ('rows' = '20') to see the first rows"
    " of each tick",
    "order": "remove it and sort in the target system; for the first row use min_by over windows, for"
    " the nearest row ASOF JOIN",
    "distinct": "group by the columns: SELECT k FROM TABLE(TUMBLE(…)) GROUP BY window_start, window_end, k",
}
UNNESTED = (
    "use array_contains(a, x), exists(a, e -> e > x), a[0] or transform(a, e -> e.field), in ON as well; or"
    " split the rows before they reach the source"
)
WINDOWED = (
    "use EMIT CHANGES and write SELECT … FROM (SELECT …, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b"
    " DESC) AS rn FROM …) WHERE rn <= 3"
)
_AGGREGATED = (
    "use aggregates in SELECT or HAVING of a query over windows: SELECT … FROM TABLE(TUMBLE(…)) GROUP BY"
    " window_start, window_end, …"
)


def check_clauses(select: exp.Expr, text: Text, *, windowed: bool = False) -> None:
    """Report clauses of a SELECT (or UNION) that are not supported. Raises: SqlError for LATERAL VIEW.

    ``windowed``: it is over TUMBLE, HOP or SESSION.
    """
    if select.args.get("laterals"):  # its names mean nothing here: what uses them is not looked at
        (first, *_) = select.args["laterals"]
        raise text.not_supported("LATERAL VIEW is", first if _has_position(first) else select, UNNESTED)
    for key, words in _CLAUSES.items():
        if key == "distinct" and not (windowed and isinstance(select, exp.Select)):
            continue
        clause = select.args.get(key)
        if not clause:
            continue
        where = clause[0] if isinstance(clause, list) else clause
        hint = _INSTEAD.get(key, _ENDLESS)
        text.problems.append(
            text.not_supported(f"{words} is", where if _has_position(where) else select, hint)
        )


def _has_position(where: object) -> bool:
    return isinstance(where, exp.Expr) and any("start" in node.meta for node in where.walk())


def check_expression(expr: exp.Expr, text: Text, *, repeatable: bool) -> bool:
    """Report what an expression must not hold; True if it is clean.

    ``repeatable``: it decides which rows there are (filters, ON, views); a replayed tick must give the same.
    """
    before = len(text.problems)
    for node in expr.walk(prune=is_closed):
        if is_aggregate(node):
            written = node.sql("spark", normalize_functions="lower").replace("`", "")
            call = written if len(written) <= _MAX_SHOWN else _call_name(node)
            text.problems.append(text.not_supported(f"the aggregate {call} is", node, _AGGREGATED))
        else:
            _check_node(node, text, repeatable)
    return len(text.problems) == before


def is_repeatable(expr: exp.Expr) -> bool:
    """Return True if the expression has the same value each time it is computed."""
    return not any(function_name(node) in _RANDOM for node in expr.walk())


def check_grouped(expr: exp.Expr, text: Text) -> bool:
    """Report what an expression over groups must not hold; True if it is clean."""
    before = len(text.problems)
    for node in expr.walk(prune=is_closed):
        if not is_aggregate(node):
            _check_node(node, text, repeatable=True)
    return len(text.problems) == before


def is_closed(node: exp.Expr) -> bool:
    """Return True if the content of the node is not part of the surrounding expression."""
    return isinstance(node, (exp.Query, exp.Window))


def _check_node(node: exp.Expr, text: Text, repeatable: bool) -> None:
    name = function_name(node)
    if isinstance(node, exp.Query):
        text.problems.append(text.not_supported("a subquery in an expression is", node, "join it instead"))
    elif isinstance(node, exp.Window):
        text.problems.append(text.not_supported(f"{_over(node)} is", node, WINDOWED))
    elif isinstance(node, (exp.UDTF, exp.Explode, exp.Inline, exp.Posexplode)) or name in _GENERATORS:
        text.problems.append(
            text.not_supported(f"{_call_name(node)}, which produces several rows, is", node, UNNESTED)
        )
    elif name in _CLOCK and (name != "unix_timestamp" or not node.args.get("expressions")):
        text.problem(
            f"{_call_name(node)} is not supported yet: a repeated tick must see the same clock",
            "not-supported",
            node,
            "use a time column of the stream",
        )
    elif name in _RANDOM and repeatable:
        text.problem(
            f"{_call_name(node)} returns a different value each time, but a repeated tick must produce the"
            " same rows",
            "nondeterministic",
            node,
            "use it only in the columns of the last SELECT, or hash a column instead",
        )


def function_name(node: exp.Expr) -> str:
    """Return the name of a function in lower case; "" if the node is not a function."""
    if is_aggregate(node):
        return aggregate_name(node)
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    return type(node).sql_name().lower() if isinstance(node, exp.Func) else ""


def _over(node: exp.Window) -> str:
    inner = node.find(exp.Func)
    name = "" if inner is None else function_name(inner)
    return f"a window function (OVER), {name.upper()}()," if name else "a window function (OVER)"


def _call_name(node: exp.Expr) -> str:
    return f"{function_name(node) or type(node).__name__.lower()}()"
