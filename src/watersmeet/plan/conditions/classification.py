"""Classify each conjunct of a join's condition by its use (semantics.md, section 3).

The order of the tests is: constant, one-sided, time bound, equality key, band, residual. A conjunct has
exactly one class, except bands that only find candidates: those are residual predicates, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import Operator, Side, TimeComparison, TimeSum
from watersmeet.measure import WHOLE
from watersmeet.plan.conditions.bands import (
    BandPart,
    Ends,
    IntervalPart,
    is_decided,
    number_part,
    text_part,
)
from watersmeet.plan.conditions.conjuncts import Conjunct
from watersmeet.plan.conditions.linear import LinearForm, difference_form, linear_form
from watersmeet.plan.conditions.overflow import sums_of
from watersmeet.plan.conditions.rewrites import halves_of_abs
from watersmeet.plan.query_inputs import JoinInputs, Ref, Unit, name_of, refs
from watersmeet.spec.model import Expr

OPERATORS: dict[type[Expr], Operator] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.EQ: "=",
    exp.NullSafeEQ: "=",
}


@dataclass(frozen=True)
class KeyPart:
    """``first = second`` over expressions of one side each, ``first`` of the left one."""

    conjunct: Conjunct
    first: Expr
    second: Expr
    null_safe: bool


@dataclass(frozen=True)
class ConditionParts:
    """Conjuncts of a condition by their use.

    Attributes:
        careful: the residual predicates, and, at their positions in the condition, the bands whose sums may
            overflow their type.
        band_columns: the columns that prevent any match if they are NULL.
    """

    times: tuple[IntervalPart, ...] = ()
    keys: tuple[KeyPart, ...] = ()
    one_sided: tuple[tuple[Side, Conjunct], ...] = ()
    constants: tuple[Conjunct, ...] = ()
    residuals: tuple[Conjunct, ...] = ()
    careful: tuple[Conjunct, ...] = ()
    bands: tuple[BandPart, ...] = ()
    band_columns: tuple[Ref, ...] = ()


def classify(conjuncts: Iterable[Conjunct], inputs: JoinInputs) -> tuple[ConditionParts, list[PlanError]]:
    """Classify conjuncts into the parts of a condition, and return errors about their types."""
    times: list[IntervalPart] = []
    keys: list[KeyPart] = []
    one_sided: list[tuple[Side, Conjunct]] = []
    constants: list[Conjunct] = []
    residuals: list[Conjunct] = []
    careful: list[Conjunct] = []
    bands: list[BandPart] = []
    band_columns: list[Ref] = []
    errors: list[PlanError] = []
    for conjunct in (own for given in conjuncts for own in _by_halves(given, inputs)):
        sides = inputs.sides(conjunct.expr)
        if not sides:
            constants.append(conjunct)
            continue
        if len(sides) == 1:
            one_sided.append((sides[0], conjunct))
            continue
        try:
            difference = _difference(conjunct.expr, inputs)
            time = None if difference is None else _time_part(conjunct, difference, inputs)
        except PlanError as error:
            errors.append(_with_types(error, conjunct, inputs))
            continue
        key = _key_part(conjunct, inputs)
        if time is not None:
            times.append(time)
        if time is not None and not time.is_approximate:
            continue  # else it bounds and finds candidates, and is decided as it is written
        if key is not None:
            keys.append(key)
        else:
            band = None if time is not None else _band_part(conjunct, difference, inputs)
            if band is not None:
                bands.append(band)
                band_columns += band.refs
            if band is None or not is_decided(band):
                residuals.append(conjunct)
                careful.append(conjunct)
            elif band.sums:
                careful.append(conjunct)
            if difference is not None and not isinstance(conjunct.expr, exp.NullSafeEQ):
                band_columns += _pair(difference, inputs) or ()
    parts = ConditionParts(
        tuple(times),
        tuple(keys),
        tuple(one_sided),
        tuple(constants),
        tuple(residuals),
        tuple(careful),
        tuple(bands),
        tuple(dict.fromkeys(band_columns)),
    )
    return parts, errors


def _by_halves(conjunct: Conjunct, inputs: JoinInputs) -> tuple[Conjunct, ...]:
    """Split a conjunct with `abs` into two halves if both halves can find rows.

    Otherwise return the conjunct unchanged.
    """
    halves = halves_of_abs(conjunct)
    if not halves or len(inputs.sides(conjunct.expr)) < 2:
        return (conjunct,)
    try:
        differences = [_difference(half.expr, inputs) for half in halves]
    except PlanError:
        return halves[:1]  # which says what is wrong
    used = [
        (difference is not None and _time_part(half, difference, inputs) is not None)
        or _band_part(half, difference, inputs) is not None
        for half, difference in zip(halves, differences, strict=True)
    ]
    return halves if all(used) else (conjunct,)


def _with_types(error: PlanError, conjunct: Conjunct, inputs: JoinInputs) -> PlanError:
    """Add the types of the columns that the conjunct mentions to an error."""
    types = ", ".join(f"{name_of(ref)} is {inputs.column(ref).type}" for ref in refs(conjunct.expr))
    return PlanError(f"{error.message} ({types})", code=error.code, hint=error.hint)


def _difference(expr: Expr, inputs: JoinInputs) -> LinearForm | None:
    if type(expr) not in OPERATORS:
        return None
    left, right = linear_form(expr.this, inputs), linear_form(expr.expression, inputs)
    return None if left is None or right is None else difference_form(left, right, expr, inputs)


def _pair(difference: LinearForm, inputs: JoinInputs) -> tuple[Ref, Ref] | None:
    """Return (column with sign +1, column with sign −1), one of each side.

    Returns:
        None if anything else remains in the difference.
    """
    if sorted(difference.terms.values()) != [-1, 1]:
        return None
    plus, minus = sorted(difference.terms, key=lambda ref: -difference.terms[ref])
    return (plus, minus) if inputs.side(plus[0]) is not inputs.side(minus[0]) else None


def _time_part(conjunct: Conjunct, difference: LinearForm, inputs: JoinInputs) -> IntervalPart | None:
    pair = _pair(difference, inputs)
    if pair is None or difference.unit in (Unit.NUMBER, Unit.OTHER):
        return None
    if not all(inputs.is_event_time(ref) for ref in difference.mentioned):
        return None
    return replace(_interval(conjunct, difference, pair, inputs), is_approximate=difference.approximate)


def _band_part(conjunct: Conjunct, difference: LinearForm | None, inputs: JoinInputs) -> BandPart | None:
    """Build a band by the difference for integers and times, or by sums for other numbers.

    Returns:
        None if the conjunct is no band.
    """
    if type(conjunct.expr) not in OPERATORS or isinstance(conjunct.expr, exp.NullSafeEQ):
        return None
    if difference is None or difference.unit in (Unit.NUMBER, Unit.OTHER):
        operator = OPERATORS[type(conjunct.expr)]
        return number_part(conjunct, operator, inputs) or text_part(conjunct, operator, inputs)
    pair = _pair(difference, inputs)
    if pair is None or difference.mentioned != frozenset(pair):
        return None
    interval = replace(
        _interval(conjunct, difference, pair, inputs), sums=sums_of(conjunct.expr, inputs, WHOLE)
    )
    return replace(interval, is_exact=True, comparison=None) if difference.approximate else interval


def _interval(
    conjunct: Conjunct, difference: LinearForm, pair: tuple[Ref, Ref], inputs: JoinInputs
) -> IntervalPart:
    """Return the interval of ``difference op 0``, with difference = plus - minus + e, low <= e <= high.

    What decides a pair are the two sides of the difference, for there both count in its unit.
    """
    op = OPERATORS[type(conjunct.expr)]
    ends = Ends.where(op, difference.low, difference.high)
    right, left = pair
    if inputs.side(right[0]) is Side.LEFT:
        left, right, ends = right, left, ends.mirror()
    assert isinstance(difference.tree, TimeSum)
    comparison = TimeComparison(difference.tree.left, op, difference.tree.right)
    return IntervalPart(conjunct, left, right, ends, difference.is_exact, difference.span, comparison)


def _key_part(conjunct: Conjunct, inputs: JoinInputs) -> KeyPart | None:
    expr = conjunct.expr
    if not isinstance(expr, exp.EQ | exp.NullSafeEQ):
        return None
    left, right = inputs.sides(expr.this), inputs.sides(expr.expression)
    if len(left) != 1 or len(right) != 1:
        return None
    first, second = expr.this, expr.expression
    if left[0] is Side.RIGHT:
        first, second = second, first
    return KeyPart(conjunct, first, second, isinstance(expr, exp.NullSafeEQ))
