"""Aggregate functions of the oracle: lists of values in, one value out, as Spark SQL has them.

A call is compiled to (kind, function); the function takes the group's rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import cmp_to_key, reduce
from typing import Any

from sqlglot import exp

from tests.support.oracle.sql import Rows, Scope, compile_expr
from tests.support.oracle.values import (
    INT64_MAX,
    INT64_MIN,
    Refused,
    Unsupported,
    less,
    same,
)

Group = Sequence[Rows]
Aggregate = tuple[str, Callable[[Group], Any]]


def _order(a: Any, b: Any) -> int:
    """NULL first, NaN last."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    return -1 if less(a, b) else 1 if less(b, a) else 0


ORDER = cmp_to_key(_order)
_BITS: dict[type[exp.Expression], Callable[[int, int], int]] = {
    exp.BitwiseAndAgg: operator.and_,
    exp.BitwiseOrAgg: operator.or_,
    exp.BitwiseXorAgg: operator.xor,
}


def compile_aggregate(node: exp.Expression, scope: Scope) -> Aggregate:
    """(kind, function) of a call."""
    if isinstance(node, exp.Filter):
        kind, inner = compile_aggregate(node.this, scope)
        _, test = compile_expr(node.expression.this, scope)
        return kind, lambda rows: inner([row for row in rows if test(row) is True])
    arguments = [e for e in node.iter_expressions() if isinstance(e, exp.Expression)]
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = list(arguments[0].expressions)
    if isinstance(node, exp.Count) and (not arguments or isinstance(arguments[0], exp.Star)):
        return "int", len
    typed = [compile_expr(e, scope) for e in arguments]

    def without_nulls(rows: Group) -> list[Any]:
        """Tuples of arguments of which none is NULL, each once if DISTINCT."""
        typed_rows = [tuple(f(row) for _, f in typed) for row in rows]
        typed_rows = [values for values in typed_rows if None not in values]
        if distinct:
            once: list[Any] = []
            for values in typed_rows:
                if not any(all(same(a, b) for a, b in zip(values, o, strict=True)) for o in once):
                    once.append(values)
            return once
        return typed_rows

    if isinstance(node, exp.Count):
        return "int", lambda rows: len(without_nulls(rows))
    kind = typed[0][0]
    if isinstance(node, exp.Sum):
        return kind, lambda rows: _sum([v for (v,) in without_nulls(rows)], kind)
    if isinstance(node, exp.Avg):
        if kind == "decimal":
            return kind, lambda rows: _mean_of_decimals([v for (v,) in without_nulls(rows)])
        return "double", lambda rows: _mean([v for (v,) in without_nulls(rows)])
    if isinstance(node, exp.Min | exp.Max):
        first = min if isinstance(node, exp.Min) else max
        return kind, lambda rows: first((v for (v,) in without_nulls(rows)), key=ORDER, default=None)
    if isinstance(node, exp.ArgMin | exp.ArgMax):
        first = min if isinstance(node, exp.ArgMin) else max
        (_, value), (_, by) = typed

        def at(rows: Group) -> Any:
            pairs = [(by(row), value(row)) for row in rows if by(row) is not None]
            return first(pairs, key=lambda p: (ORDER(p[0]), ORDER(p[1])), default=(None, None))[1]

        return kind, at
    if isinstance(node, exp.LogicalAnd | exp.LogicalOr):
        test = all if isinstance(node, exp.LogicalAnd) else any
        return "bool", lambda rows: test(v for (v,) in without_nulls(rows)) if without_nulls(rows) else None
    if type(node) in _BITS:
        fold = _BITS[type(node)]
        return (
            kind,
            lambda rows: reduce(fold, (v for (v,) in without_nulls(rows))) if without_nulls(rows) else None,
        )
    if isinstance(node, exp.CountIf):
        return "int", lambda rows: sum(v is True for (v,) in without_nulls(rows))
    raise Unsupported(f"the aggregate {node.sql()}")


def _sum(values: list[Any], kind: str) -> Any:
    if not values:
        return None
    total = sum(values[1:], start=values[0])
    if kind == "int" and not INT64_MIN <= total <= INT64_MAX:
        raise Refused(f"the sum {total} is too great")
    return total


def _mean_of_decimals(values: list[Any]) -> Any:
    """With four places more than the values have, which all have as many."""
    if not values:
        return None
    places = Decimal(1).scaleb(values[0].as_tuple().exponent - 4)
    return (sum(values) / len(values)).quantize(places, ROUND_HALF_UP)


def _mean(values: list[Any]) -> Any:
    return sum(map(float, values)) / len(values) if values else None


__all__ = ["ORDER", "compile_aggregate"]
