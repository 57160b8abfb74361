"""What a conjunct says about time: linear forms and bounds.

Written from semantics.md section 3 alone, as plainly as possible: each conjunct is looked at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tests.support.oracle.inputs import Key
from tests.support.oracle.sql import (
    Scope,
    arithmetic_kind,
    cast_kind,
    compile_expr,
    interval_us,
)
from tests.support.oracle.values import DAY

if TYPE_CHECKING:
    pass

Bounds = dict[tuple[Key, Key], int]
"""(evicted A, by B) -> c of ``A >= B - c``."""


@dataclass
class _Linear:
    """``sum of columns + const + error``, the error somewhere in [low, high]."""

    kind: str
    columns: dict[Key, int]
    const: Any = 0
    low: int = 0
    high: int = 0

    def plus(self, other: _Linear, sign: int, kind: str, by: int = 1, other_by: int = 1) -> _Linear:
        columns = dict(self.columns)
        for key, factor in other.columns.items():
            columns[key] = columns.get(key, 0) + sign * factor
        low, high = (other.low, other.high) if sign == 1 else (-other.high, -other.low)
        return _Linear(
            kind,
            {k: f for k, f in columns.items() if f},
            self.const * by + sign * other.const * other_by,
            self.low + low,
            self.high + high,
        )


def _linear(node: exp.Expression, scope: Scope) -> _Linear | None:
    """An expression as a sum of columns and a constant, or None."""
    if isinstance(node, exp.Paren):
        return _linear(node.this, scope)
    if isinstance(node, exp.Column):
        alias, name = scope.find(node)
        kind = scope.inputs[alias][name]
        return None if kind in ("string", "bool") else _Linear(kind, {(alias, name): 1})
    if isinstance(node, exp.Interval):
        kind, us = interval_us(node)
        return _Linear(kind, {}, us)
    if isinstance(node, exp.Literal):
        kind, f = compile_expr(node, scope)
        return None if kind == "string" else _Linear(kind, {}, f(()))
    if isinstance(node, exp.Neg):
        inner = _linear(node.this, scope)
        return None if inner is None else _Linear(inner.kind, {}).plus(inner, -1, inner.kind)
    if isinstance(node, exp.Add | exp.Sub):
        a, b = _linear(node.this, scope), _linear(node.expression, scope)
        if a is None or b is None:
            return None
        kind, by_a, by_b = arithmetic_kind(node, a.kind, b.kind)
        if (by_a != 1 and a.columns) or (by_b != 1 and b.columns):
            return None
        return a.plus(b, -1 if isinstance(node, exp.Sub) else 1, kind, by_a, by_b)
    if isinstance(node, exp.Cast | exp.TsOrDsToDate | exp.Date):
        inner = _linear(node.this, scope)
        to = cast_kind(node)
        if inner is None or to not in (inner.kind, "ts", "date") or inner.kind not in (to, "ts", "date"):
            return None
        loss = DAY - 1 if inner.kind == "ts" and to == "date" else 0
        return _Linear(to, inner.columns, inner.const, inner.low - loss, inner.high)
    return None


def _text(node: exp.Expression, scope: Scope) -> _Linear | None:
    """A column of texts, as it is: compared with another it is a band."""
    column = node.unnest()
    if not isinstance(column, exp.Column):
        return None
    alias, name = scope.find(column)
    return _Linear("string", {(alias, name): 1}) if scope.inputs[alias][name] == "string" else None


def _size(node: exp.Expression) -> tuple[exp.Expression, exp.Expression, type[exp.LT | exp.LTE]] | None:
    """``x``, ``c`` and the comparison of ``abs(x) <= c``, from whichever side it is written."""
    if not isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE):
        return None
    is_turned = isinstance(node, exp.GT | exp.GTE)
    small, large = (node.expression, node.this) if is_turned else (node.this, node.expression)
    small = small.unnest()
    if not isinstance(small, exp.Abs):
        return None
    return small.this, large, exp.LTE if isinstance(node, exp.LTE | exp.GTE) else exp.LT


def bounds_of(node: exp.Expression, scope: Scope) -> list[tuple[Key, Key, Any]]:
    """``A >= B - c`` for every bound that a conjunct is, over times or other ordered columns."""
    size = _size(node)
    if size is not None:
        value, limit, kind = size
        halves = (value.copy(), exp.Neg(this=exp.Paren(this=value.copy())))
        return [own for half in halves for own in bounds_of(kind(this=half, expression=limit.copy()), scope)]
    if not isinstance(node, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return []
    left, right = (
        _text(operand, scope) or _linear(operand, scope) for operand in (node.this, node.expression)
    )
    if left is None or right is None or (left.kind == "string") != (right.kind == "string"):
        return []
    bounds = []
    difference = left.plus(right, -1, left.kind)
    for sign, wanted in ((1, exp.GTE | exp.GT | exp.EQ), (-1, exp.LTE | exp.LT | exp.EQ)):
        if not isinstance(node, wanted):
            continue
        # sign * (left - right) >= 0, and the error is at most ``high``
        form = difference if sign == 1 else _Linear(left.kind, {}).plus(difference, -1, left.kind)
        plus = [k for k, f in form.columns.items() if f == 1]
        minus = [k for k, f in form.columns.items() if f == -1]
        if len(form.columns) == 2 and len(plus) == len(minus) == 1 and plus[0][0] != minus[0][0]:
            bounds.append((plus[0], minus[0], form.const + form.high))
    return bounds
