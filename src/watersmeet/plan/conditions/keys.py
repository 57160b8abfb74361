"""Rule: equality keys, in one type per key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.expressions.compiler import expression_type
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.plan.conditions.classify import KeyPart
from watersmeet.plan.conditions.coercion import is_declared, one_type, spelt, type_of
from watersmeet.plan.join_inputs import JoinInputs
from watersmeet.spec.model import Expr
from watersmeet.types.compared import is_compared, tightest_type
from watersmeet.types.intervals import is_interval, is_of_days
from watersmeet.types.sql_type import DATE, TIMESTAMP, SqlType

_UNHASHABLE = ("MAP", "VARIANT", "INTERVAL")


@dataclass(frozen=True)
class Equality:
    """``left = right`` (or ``<=>``) over columns ``alias.column``, cast to one type.

    ``is_open``: a type is not known before Spark has seen the expressions. ``text``: as it was written.
    """

    left: Expr
    right: Expr
    null_safe: bool
    is_open: bool
    text: str

    def expr(self, side: Side) -> Expr:
        return self.left if side is Side.LEFT else self.right


def keys_of(parts: Sequence[KeyPart], inputs: JoinInputs) -> tuple[tuple[Equality, ...], list[PlanError]]:
    """The keys, each once, and those whose types cannot be compared."""
    keys: list[Equality] = []
    errors: list[PlanError] = []
    seen: set[tuple[str, str, bool]] = set()
    for part in parts:
        identity = (part.first.sql(dialect="spark"), part.second.sql(dialect="spark"), part.null_safe)
        if identity in seen:
            continue
        seen.add(identity)
        error, first, second = _one_type(part, inputs)
        if error is not None:
            errors.append(error)
            continue
        is_open = None in (type_of(first, inputs), type_of(second, inputs))
        keys.append(Equality(first, second, part.null_safe, is_open, part.conjunct.text))
    return tuple(keys), errors


def _one_type(part: KeyPart, inputs: JoinInputs) -> tuple[PlanError | None, Expr, Expr]:
    text = part.conjunct.text
    (one, left), (other, right) = (_moved_date(expr, inputs) for expr in (part.first, part.second))
    for expr, type_ in ((one, left), (other, right)):
        if type_ is not None and type_.name in _UNHASHABLE:
            wrong = _wrong(f"{spelt(expr, type_)} cannot be compared by equality: {text}")
            return wrong, part.first, part.second
    if left is None or right is None:
        return None, one, other
    words = spelt(one, left), spelt(other, right)
    if left.is_nested and right.is_nested and words[0] != words[1]:
        return _one_nested_type(part, (one, left), (other, right))
    common = one_type(left, right)
    if common is None:
        return _wrong(f"{' and '.join(words)} cannot be compared: {text}"), part.first, part.second
    target = words[0] if words[0] == words[1] else str(common)
    first, second = (
        exp.cast(expr.copy(), str(common), dialect="spark")
        if own != target or (common.is_number and not is_declared(expr))
        else expr
        for expr, own in zip((one, other), words, strict=True)
    )
    return None, first, second


def _one_nested_type(
    part: KeyPart, left: tuple[Expr, SqlType], right: tuple[Expr, SqlType]
) -> tuple[PlanError | None, Expr, Expr]:
    """Of ARRAYs and STRUCTs; where only fields' names are unlike, they are compared as they come."""
    types = left[1].nullable, right[1].nullable
    if not is_compared(*types):
        wrong = _wrong(f"{spelt(*left)} and {spelt(*right)} cannot be compared: {part.conjunct.text}")
        return wrong, part.first, part.second
    common = tightest_type(*types)
    first, second = (
        expr if common in (None, own) else exp.cast(expr.copy(), str(common or own), dialect="spark")
        for expr, own in zip((part.first, part.second), types, strict=True)
    )
    return None, first, second


def _moved_date(expr: Expr, inputs: JoinInputs) -> tuple[Expr, SqlType | None]:
    """``expr`` and its type; of a DATE plus or minus an interval Spark's: a DATE if the interval's units are
    days and weeks, which is said by a cast, and else a TIMESTAMP, though it be whole days long."""
    plain = expr.unnest()
    if isinstance(plain, (exp.Add, exp.Sub)):
        for date, step in ((plain.this, plain.expression), (plain.expression, plain.this)):
            if is_interval(step) and type_of(date, inputs) == DATE:
                if not is_of_days(step):
                    return expr, TIMESTAMP
                return exp.cast(expr.copy(), "DATE", dialect="spark"), DATE
    return expr, _known_type(expr, inputs)


def _known_type(expr: Expr, inputs: JoinInputs) -> SqlType | None:
    """The type of a key: exact of what tasks compute, but of numbers the widest of their kind does.

    Of a DECIMAL of unknown digits none: in the widest type it could be rounded. Keys of unknown types are
    compared as they come, and refused if they come as different ones.
    """
    type_ = type_of(expr, inputs)
    if is_declared(expr):
        return type_
    try:
        exact = expression_type(expr, inputs)
    except UnsupportedExpression:
        return None if type_ is not None and type_.is_decimal else type_
    if type_ is None or exact.is_decimal or not exact.is_number:
        return exact
    return type_


def _wrong(message: str) -> PlanError:
    return PlanError(
        message, code="wrong-types", hint="cast one column to the type of the other: CAST(… AS type)"
    )


def bare(expr: Expr) -> Expr:
    """``expr`` with the aliases taken off its columns."""
    return expr.transform(
        lambda node: (
            exp.Column(this=exp.to_identifier(node.name, quoted=True))
            if isinstance(node, exp.Column)
            else node
        )
    )
