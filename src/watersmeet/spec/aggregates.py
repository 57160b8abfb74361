"""Aggregate and ranking functions, and calls of them taken apart."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

# ROW_NUMBER: rows of one partition, numbered in an order, of which the first ones go out.


@dataclass(frozen=True)
class SortKey:
    """Column by which rows are ordered, given by its ``name``."""

    name: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Ranking:
    """Numbering of rows by ROW_NUMBER().

    Rows with equal ``partition`` (column names; empty: all rows) are numbered from 1 in the order of
    ``order``: the requested columns, then all other columns, so that rows that differ are never equal
    in the order. Equal rows get one number each. ``number``: the column of the number. ``most``: rows
    with a greater number are not emitted; None: no limit known yet. ``text``: the SQL as written.
    """

    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    number: str
    most: int | None
    text: str


# What an aggregate function is, and a call of one taken apart: ``count(DISTINCT a, b) FILTER (WHERE c)``.

_NAMES: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.CountIf: "count_if",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.ArgMin: "min_by",
    exp.ArgMax: "max_by",
    exp.AnyValue: "any_value",
    exp.First: "first",
    exp.FirstValue: "first",
    exp.Last: "last",
    exp.LastValue: "last",
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.Any: "bool_or",
    exp.BitwiseAndAgg: "bit_and",
    exp.BitwiseOrAgg: "bit_or",
    exp.BitwiseXorAgg: "bit_xor",
    exp.Median: "median",
    exp.Mode: "mode",
}
_ALIASES = {
    "mean": "avg",
    "std": "stddev_samp",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
}
_OTHERS = frozenset(
    {
        "try_sum", "try_avg", "percentile", "percentile_cont", "percentile_disc", "max_by", "min_by",
        "kurtosis", "skewness", "hll_sketch_agg", "count_min_sketch",
        "bitmap_construct_agg", "bitmap_or_agg", "histogram_numeric", "regr_count", "regr_avgx", "regr_avgy",
        "regr_r2", "regr_sxx", "regr_sxy", "regr_syy", "regr_intercept", "regr_slope", "string_agg",
        "listagg", "collect_set", "collect_list", "covar_pop", "covar_samp", "grouping", "grouping_id",
    }
)  # fmt: skip
_WRAPPERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)


@dataclass(frozen=True)
class AggregateCall:
    """One call of an aggregate function.

    Attributes:
        function: Spark's name; of several names for one function the plainest.
        arguments: Empty for ``count(*)``.
        filter: The condition of FILTER (WHERE …).
        plain: False if the call has more to it (an order within the group, NULLs ignored), or its function
            is unknown here; ``arguments`` means nothing then.
    """

    function: str
    arguments: tuple[exp.Expr, ...]
    distinct: bool = False
    filter: exp.Expr | None = None
    plain: bool = True


def is_aggregate(node: exp.Expr) -> bool:
    """Return True if the node is a call of an aggregate function, including its suffixes."""
    if isinstance(node, _WRAPPERS):
        return is_aggregate(node.this)
    if isinstance(node, exp.Window):
        return False
    if isinstance(node, exp.Any):  # a comparison with ANY of a sub-query or array is none
        return not isinstance(node.parent, exp.Predicate)
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        return name in _ALIASES or name in _OTHERS
    return isinstance(node, exp.AggFunc)


def aggregate_name(node: exp.Expr) -> str:
    """Return Spark's name of the function, in lower case."""
    inner: exp.Expr = node
    while isinstance(inner, _WRAPPERS):
        inner = inner.this
    if isinstance(inner, exp.Anonymous):
        name = inner.name.lower()
        return _ALIASES.get(name, name)
    own_name = _NAMES.get(type(inner))
    return own_name or inner.sql("spark").split("(")[0].strip().lower()


def call_of(node: exp.Expr) -> AggregateCall:
    """Split an aggregate call into its parts.

    Args:
        node: A node for which `is_aggregate` is True, or a function that only Spark knows.
    """
    function, condition = aggregate_name(node), None
    inner: exp.Expr = node
    if isinstance(inner, exp.Filter):
        condition = inner.expression.this
        inner = inner.this
    if isinstance(inner, _WRAPPERS) or (type(inner) not in _NAMES and function not in _ALIASES.values()):
        return AggregateCall(function, (), filter=condition, plain=False)
    arguments: list[exp.Expr] = [e for e in inner.iter_expressions() if not isinstance(e, exp.Var)]
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = list(arguments[0].expressions)
    if any(isinstance(e, exp.Order) or e.find(exp.Order) for e in arguments):
        return AggregateCall(function, (), filter=condition, plain=False)
    if (
        function == "count"
        and not distinct
        and all(isinstance(e, (exp.Star, exp.Literal)) for e in arguments)
    ):
        arguments = []
    return AggregateCall(function, tuple(e.unnest() for e in arguments), distinct, condition)
