"""The functions that may stand in a residual: those that DuckDB computes as Spark does, which tests show.

A function that DuckDB merely has is not enough: padding, logarithms of 0, text of doubles, … differ. Whatever
is not here can be computed from one input alone, by Spark, as a column of a view.
"""

from __future__ import annotations

from sqlglot import exp

from watersmeet.spec.model import Expr

_OPERATORS = (exp.And, exp.Or, exp.Case, exp.If, exp.Cast, exp.RegexpLike)
_NUMBERS = (exp.Abs, exp.Ceil, exp.Floor, exp.Round, exp.Sign, exp.Greatest, exp.Least)
_NULLS = (exp.Coalesce, exp.Nullif, exp.Nvl2, exp.DecodeCase)
_TEXTS = (
    exp.Ascii,
    exp.Concat,
    exp.ConcatWs,
    exp.Contains,
    exp.EndsWith,
    exp.Initcap,
    exp.Left,
    exp.Length,
    exp.Lower,
    exp.Repeat,
    exp.Replace,
    exp.Reverse,
    exp.Right,
    exp.SplitPart,
    exp.StartsWith,
    exp.StrPosition,
    exp.Substring,
    exp.Translate,
    exp.Trim,
    exp.Upper,
)
_TIMES = (
    exp.AddMonths,
    exp.DateDiff,
    exp.Day,
    exp.DayOfWeek,
    exp.DayOfYear,
    exp.Hour,
    exp.LastDay,
    exp.MakeInterval,
    exp.Minute,
    exp.Month,
    exp.Quarter,
    exp.Second,
    exp.TimestampDiff,
    exp.TimestampTrunc,
    exp.TsOrDsAdd,
    exp.TsOrDsToDate,
    exp.UnixMicros,
    exp.UnixMillis,
    exp.UnixSeconds,
    exp.WeekOfYear,
    exp.Year,
)
_ARRAYS = (exp.Array, exp.ArraySize)
SAME_IN_BOTH: tuple[type[Expr], ...] = (*_OPERATORS, *_NUMBERS, *_NULLS, *_TEXTS, *_TIMES, *_ARRAYS)

_NULL_TESTS = ("isnull", "isnotnull")


def refused_function(expr: Expr) -> tuple[str, str] | None:
    """(name, reason) of the first function in ``expr`` that may not stand in a residual."""
    functions = [node for node in expr.find_all(exp.Expression) if _is_function(node)]
    for node in functions:
        name = _name(node)
        if isinstance(node, exp.Anonymous) and node.name.lower() in _NULL_TESTS:
            continue
        if not isinstance(node, SAME_IN_BOTH):
            return name, "it is not known to give the same outside of Spark"
        if isinstance(node, exp.Substring) and not _is_at_least_one(node.args.get("start")):
            return name, "a start that is not a number from 1 on does not mean the same outside of Spark"
        if isinstance(node, exp.RegexpLike) and not _is_portable(node.expression):
            return name, "only constant patterns of the common kind mean the same outside of Spark"
        if isinstance(node, exp.Cast) and _is_text_of_a_fraction(node):
            return "CAST", "the text of a FLOAT or DOUBLE is not the same outside of Spark"
    return None


def _is_function(node: Expr) -> bool:
    return isinstance(node, exp.Func)


def without_null_tests(node: Expr) -> Expr:
    """isnull(x) and isnotnull(x) as IS NULL."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() not in _NULL_TESTS:
        return node
    test = exp.Paren(this=exp.Is(this=exp.Paren(this=node.expressions[0]), expression=exp.Null()))
    return test if node.name.lower() == "isnull" else exp.Paren(this=exp.Not(this=test))


def _name(node: Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return f"{node.name}()"
    return node.sql(dialect="spark").split("(")[0] + "()"


def _is_at_least_one(start: Expr | None) -> bool:
    return (
        isinstance(start, exp.Literal)
        and not start.is_string
        and start.this.isdigit()
        and int(start.this) > 0
    )


def _is_portable(pattern: Expr) -> bool:
    import duckdb

    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return False
    with duckdb.connect() as connection:
        try:
            connection.execute("SELECT regexp_matches('', ?)", [pattern.this])
        except duckdb.Error:
            return False
    return True


def _is_text_of_a_fraction(node: exp.Cast) -> bool:
    fraction = node.this.type is not None and node.this.type.is_type(exp.DType.FLOAT, exp.DType.DOUBLE)
    return fraction and node.to.is_type(*exp.DataType.TEXT_TYPES)
