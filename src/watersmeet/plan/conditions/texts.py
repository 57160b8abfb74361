"""Warning: a condition compares texts with values of another type, which Spark makes of each text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from watersmeet.plan.conditions.coercion import type_of
from watersmeet.plan.conditions.conjuncts import Conjunct, text_of
from watersmeet.plan.join_inputs import JoinInputs
from watersmeet.spec.model import Expr
from watersmeet.types.common import common_type
from watersmeet.types.sql_type import BOOLEAN, STRING, SqlType

_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def text_warnings(conjuncts: Sequence[Conjunct], inputs: JoinInputs) -> list[str]:
    """Return a warning for each comparison of a column of texts with a number, time or BOOLEAN.

    Constants are left out: they are the same in each row, and fail in the first one.
    """
    warnings: dict[str, None] = {}
    for conjunct in conjuncts:
        for text, other in _compared(conjunct.expr):
            if text.find(exp.Column) is None or type_of(text, inputs) != STRING:
                continue
            type_ = None if _is_text(other) else type_of(other, inputs)
            target = None if type_ is None else _target(type_)
            if target is not None:
                warnings[
                    f"{conjunct.text} compares STRING with {type_}: the job stops at a text in"
                    f" {text_of(text)} that is not a valid {target}. Declare both with the same type,"
                    f" or write try_cast({text_of(text)} AS {target})"
                ] = None
    return list(warnings)


def _compared(condition: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield what is compared with what, both ways round."""
    for node in condition.find_all(*_COMPARISONS, exp.In):
        others = node.expressions if isinstance(node, exp.In) else [node.expression]
        for other in others:
            yield node.this.unnest(), other.unnest()
            yield other.unnest(), node.this.unnest()


def _is_text(expr: Expr) -> bool:
    return isinstance(expr, exp.Literal) and bool(expr.is_string)


def _target(type_: SqlType) -> SqlType | None:
    """Return the type that Spark casts a text to beside another type; None if nothing can fail."""
    return common_type(STRING, type_) if type_.is_number or type_.is_time or type_ == BOOLEAN else None
