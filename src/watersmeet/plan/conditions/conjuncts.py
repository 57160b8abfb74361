"""Rule: a condition is cut at its top-level ANDs; BETWEEN is two conjuncts. Nothing else is rewritten."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from watersmeet.spec.model import Expr

_SPARK = Dialect.get_or_raise("spark")
"""Made once: a plan asks for hundreds of short texts."""


@dataclass(frozen=True)
class Conjunct:
    """One conjunct. ``text`` is what the user wrote: the whole BETWEEN for each of its halves."""

    expr: Expr
    text: str


def split(condition: Expr | None) -> tuple[Conjunct, ...]:
    """The conjuncts of ``condition``, in the order of the text; none for None."""
    if condition is None:
        return ()
    match condition:
        case exp.Paren():
            return split(condition.this)
        case exp.And():
            return split(condition.this) + split(condition.expression)
        case exp.Between() if not condition.args.get("symmetric"):
            text = text_of(condition)
            value, low, high = condition.this, condition.args["low"], condition.args["high"]
            return (
                Conjunct(exp.GTE(this=value.copy(), expression=low.copy()), text),
                Conjunct(exp.LTE(this=value.copy(), expression=high.copy()), text),
            )
    return (Conjunct(condition, text_of(condition)),)


def join_all(conditions: list[Expr]) -> Expr | None:
    """The AND of ``conditions``; None when there is none."""
    if not conditions:
        return None
    result: Expr = _safe(conditions[0])
    for condition in conditions[1:]:
        result = exp.And(this=result, expression=_safe(condition))
    return result


def _safe(condition: Expr) -> Expr:
    """In parentheses where AND would bind tighter."""
    copy = condition.copy()
    return exp.Paren(this=copy) if isinstance(copy, exp.Or | exp.And) else copy


def text_of(expr: Expr) -> str:
    """``expr`` as Spark SQL text."""
    return expr.sql(dialect=_SPARK, copy=not isinstance(expr, exp.Column))  # nothing rewrites a column
