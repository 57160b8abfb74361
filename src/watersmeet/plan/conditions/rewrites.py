"""Rule: a condition by which no rows are found as it stands is asked in a form by which they are.

* What all branches of an OR ask is asked beside it: ``(k AND a) OR (k AND b)`` is ``k AND (a OR b)``. Spark's
  optimizer does the same, so the same values fail.
* NOT goes inwards: ``NOT a > b`` is ``a <= b``, ``NOT (a OR b)`` is ``NOT a AND NOT b``.
* ``abs(x) <= c`` is ``x <= c AND -x <= c``: both fail where `abs` does, on the least integer.

All of them are the same condition for NULLs, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sqlglot import exp

from watersmeet.plan.conditions.conjuncts import (
    Conjunct,
    cut_between,
    join_all,
    split_as_written,
    text_of,
)
from watersmeet.spec.model import Expr

_MIRRORED: dict[type[Expr], type[Expr]] = {
    exp.EQ: exp.EQ,
    exp.NullSafeEQ: exp.NullSafeEQ,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_NEGATED: dict[type[Expr], type[Expr]] = {
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.NEQ: exp.EQ,
}
_AT_MOST = (exp.LT, exp.LTE)
_AT_LEAST = (exp.GT, exp.GTE)


def conjuncts_of(condition: Expr | None) -> tuple[Conjunct, ...]:
    """Return the conjuncts of a condition, in the order of the text."""
    return tuple(own for conjunct in _parts(condition) for own in cut_between(conjunct))


def halves_of_abs(conjunct: Conjunct) -> tuple[Conjunct, ...]:
    """Return the two conjuncts that ``abs(x) <= c`` stands for; none where it is no such one."""
    expr = conjunct.expr
    if isinstance(expr, _AT_MOST):
        absolute, limit = expr.this.unnest(), expr.expression
    elif isinstance(expr, _AT_LEAST):
        absolute, limit = expr.expression.unnest(), expr.this
    else:
        return ()
    if not isinstance(absolute, exp.Abs):
        return ()
    kind = exp.LTE if isinstance(expr, exp.LTE | exp.GTE) else exp.LT
    written = expr if conjunct.written is None else conjunct.written
    value = absolute.this.unnest()
    return tuple(
        Conjunct(kind(this=own, expression=limit.copy()), written)
        for own in (value.copy(), exp.Neg(this=exp.Paren(this=value.copy())))
    )


def _parts(condition: Expr | None) -> list[Conjunct]:
    """Return the conjuncts in the forms by which rows are found; a BETWEEN is one."""
    return [part for conjunct in split_as_written(condition) for part in _rewritten(conjunct)]


def _rewritten(conjunct: Expr) -> list[Conjunct]:
    if isinstance(conjunct, exp.Or):
        return _without_shared(conjunct)
    inner = _negate_condition(conjunct.this) if isinstance(conjunct, exp.Not) else None
    return [Conjunct(conjunct)] if inner is None else [Conjunct(part.expr, conjunct) for part in inner]


def _without_shared(condition: exp.Or) -> list[Conjunct]:
    """Extract the conjuncts that all branches of an OR share, followed by the OR without them."""
    branches: list[Sequence[Conjunct]] = []
    shared: set[str] | None = None
    for branch in _branches(condition):
        parts = _parts(branch)
        names = {_name(part.expr) for part in parts}
        shared = names if shared is None else shared & names
        if not shared:
            return [Conjunct(condition)]
        branches.append(parts)
    assert shared is not None
    common = {_name(part.expr): part for part in branches[0] if _name(part.expr) in shared}
    others = [
        join_all([part.expr for part in branch if _name(part.expr) not in shared]) for branch in branches
    ]
    rest: Expr | None = others[0]
    for other in others[1:]:
        rest = None if rest is None or other is None else exp.Or(this=rest, expression=other)
    return [*common.values(), *([] if rest is None else [Conjunct(rest)])]


def _branches(condition: exp.Or) -> list[Expr]:
    return cast(list[Expr], list(condition.flatten()))


def _negate_condition(condition: Expr) -> list[Conjunct] | None:
    """Return the conjuncts of ``NOT condition``, or None if NOT stays in place."""
    condition = cast(Expr, condition.unnest())
    if isinstance(condition, exp.Not):
        return _parts(condition.this)
    if isinstance(condition, exp.Or):
        parts = []
        for branch in _branches(condition):
            parts += _negate_condition(branch) or [Conjunct(exp.Not(this=exp.Paren(this=branch.copy())))]
        return parts
    kind = _NEGATED.get(type(condition))
    if kind is None:
        return None
    return [Conjunct(kind(this=condition.this.copy(), expression=condition.expression.copy()))]


def _name(condition: Expr) -> str:
    """Return a name that identifies a condition independent of the order of its sides."""
    condition = cast(Expr, condition.unnest())
    kind = _MIRRORED.get(type(condition))
    if kind is None:
        return text_of(condition)
    mirrored = kind(this=condition.expression.copy(), expression=condition.this.copy())
    return min(text_of(condition), text_of(mirrored)) if type(condition) is kind else text_of(mirrored)
