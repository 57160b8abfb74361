"""Derive bands for lookups and bounds for retention from conjuncts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce

from sqlglot import exp

from watersmeet.conditions import (
    Bound,
    ExactBand,
    IntegerSum,
    RealBand,
    RealColumn,
    RealComparison,
    RealExpr,
    RealSum,
    mirror_ends,
)
from watersmeet.event_time import (
    MAX_TIME,
    MIN_TIME,
    Operator,
    Side,
    TimeColumn,
    TimeComparison,
    TimeConstant,
    TimeExpr,
    TimeSum,
)
from watersmeet.measure import REAL, TEXT, WHOLE, Measure, Measured
from watersmeet.plan.conditions.conjuncts import Conjunct
from watersmeet.plan.conditions.linear import NumberType, Sum, literal, number_type, sum_of
from watersmeet.plan.conditions.overflow import sums_of
from watersmeet.plan.model.sides import Bands
from watersmeet.plan.query_inputs import JoinInputs, Ref, name_of
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import STRING

# Conjuncts that say how far a column of one side may be from a column of the other, in whole units; and
# what several of them say together.


@dataclass(frozen=True)
class Ends:
    """Inclusive ends of a difference: ``lower <= right - left <= upper``; None is open.

    Attributes:
        closed_lower, closed_upper: The ends with strict comparisons read as closed ones (for retention).
    """

    lower: int | None = None
    upper: int | None = None
    closed_lower: int | None = None
    closed_upper: int | None = None

    @classmethod
    def where(cls, op: Operator, low: int, high: int) -> Ends:
        """Return the ends of the difference for which ``difference + e op 0`` may hold.

        Args:
            op: A comparison operator.
            low: Smallest value of e.
            high: Largest value of e.
        """
        step = 1 if op in ("<", ">") else 0  # strict is one unit tighter
        least = -high if op in (">", ">=", "=") else None
        most = -low if op in ("<", "<=", "=") else None
        return cls(
            None if least is None else least + step, None if most is None else most - step, least, most
        )

    def mirror(self) -> Ends:
        """Return the ends of ``left - right``."""
        return Ends(*mirror_ends(self.lower, self.upper), *mirror_ends(self.closed_lower, self.closed_upper))

    def closed(self) -> Ends:
        """Return the ends in which strict comparisons are read as closed."""
        return Ends(self.closed_lower, self.closed_upper, self.closed_lower, self.closed_upper)

    def within(self, other: Ends) -> Ends:
        """Intersect these ends with `other`."""
        return Ends(
            _choose_present(max, self.lower, other.lower),
            _choose_present(min, self.upper, other.upper),
            _choose_present(max, self.closed_lower, other.closed_lower),
            _choose_present(min, self.closed_upper, other.closed_upper),
        )


def _choose_present(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else choose(one, other)


@dataclass(frozen=True)
class IntervalPart:
    """A conjunct ``lower <= right - left <= upper`` over a column of each side.

    ``ends``: in units of the ``measure``; exact unless ``is_exact`` is False, then wide enough, and the
    comparison has to be asked as well. ``span``: within it of an end of int64 arithmetic saturates.
    ``comparison``: the conjunct as written; None: it is decided as a residual. ``sums``: see
    `plan.conditions.overflow`. ``is_approximate``: see `LinearForm`; what decides it is a key or a
    residual, too, and ``comparison`` says nothing.
    """

    conjunct: Conjunct
    left: Ref
    right: Ref
    ends: Ends
    is_exact: bool
    span: int
    comparison: TimeComparison | None
    measure: Measure = WHOLE
    sums: tuple[IntegerSum, ...] = ()
    is_approximate: bool = False

    @property
    def refs(self) -> tuple[Ref, Ref]:
        return self.left, self.right

    @property
    def text(self) -> str:
        return self.conjunct.text


def bands_of(parts: Iterable[IntervalPart], inputs: JoinInputs) -> tuple[ExactBand, ...]:
    """Build one band per pair of columns and measure, in order of first mention."""
    together: dict[tuple[Measured, Measured], list[IntervalPart]] = {}
    for part in parts:
        left, right = (Measured(inputs.column_name(ref), part.measure) for ref in part.refs)
        together.setdefault((left, right), []).append(part)
    return tuple(
        ExactBand(left, right, ends.lower, ends.upper, tuple(dict.fromkeys(part.text for part in same)))
        for (left, right), same in together.items()
        for ends in [common_ends(same)]
    )


def common_ends(parts: Iterable[IntervalPart]) -> Ends:
    """Intersect the ends of all conjuncts over one pair of columns."""
    return reduce(Ends.within, (part.ends for part in parts), Ends())


def comparisons_of(parts: Iterable[IntervalPart]) -> tuple[TimeComparison, ...]:
    """Return the comparisons as written, each once."""
    return tuple(dict.fromkeys(part.comparison for part in parts if part.comparison is not None))


def slack_of(parts: Iterable[IntervalPart]) -> int:
    """Return the distance from the ends of int64 within which arithmetic may saturate.

    The distance is at least 1, even without a constant, because ``a < b`` is looked up as
    ``a + 1 <= b``. It is 0 if there are no parts.
    """
    return min(max((max(part.span, 1) for part in parts), default=0), MAX_TIME)


# Rule: bands, by which look-ups find candidates and no watermark releases rows (semantics.md, section 3).
#
# ``plus - minus`` within an interval, over one column of each side that are not both event times:
# integers, dates, timestamps, decimals, doubles. The conjunct as written decides: of integers and times
# by the same comparisons as time bounds (saturating at the ends of int64), of decimals exactly, of FLOAT
# and DOUBLE columns by the same sums in floating point. What mixes floating point with other numbers, or
# has more digits than an int64 holds, and texts, by their first bytes, find candidates here and are
# decided as a residual.

DIGITS = 18
"""Decimals of up to so many digits, with all places of their band, are counted exactly."""

MAX_DECIMAL_DIGITS = 38
"""That a decimal has in Spark; of a sum with more of them the last places are rounded off."""


@dataclass(frozen=True)
class RealPart:
    """One conjunct in floating point."""

    conjunct: Conjunct
    band: RealBand
    refs: tuple[Ref, Ref]
    sums: tuple[IntegerSum, ...] = ()


BandPart = IntervalPart | RealPart


def is_decided(part: BandPart) -> bool:
    """Return True if the band decides its conjunct; otherwise the conjunct is a residual."""
    return (part.band if isinstance(part, RealPart) else part).comparison is not None


def value_bands(parts: Sequence[BandPart], inputs: JoinInputs) -> Bands:
    """Build the bands of a join.

    Exact parts give one band per pair of columns, other parts one band per conjunct.
    """
    exact = [part for part in parts if isinstance(part, IntervalPart)]
    inexact = [part for part in exact if not part.is_exact]
    return Bands(
        exact=bands_of(exact, inputs),
        real=tuple(dict.fromkeys(part.band for part in parts if isinstance(part, RealPart))),
        comparisons=comparisons_of(exact),
        rechecks=comparisons_of(inexact),
        recheck_texts=tuple(dict.fromkeys(part.text for part in inexact)),
        slack=slack_of(exact),
        inverted=_contradictory_texts(exact),
    )


def _contradictory_texts(parts: Sequence[IntervalPart]) -> tuple[str, ...]:
    """Return the texts of conjuncts that contradict each other.

    Conjuncts over one pair of columns may count in different units.
    """
    by_refs: dict[tuple[Ref, Ref], list[IntervalPart]] = {}
    for part in parts:
        by_refs.setdefault(part.refs, []).append(part)
    texts = []
    for same in by_refs.values():
        lower = [_number(part, end) for part in same if (end := part.ends.closed_lower) is not None]
        upper = [_number(part, end) for part in same if (end := part.ends.closed_upper) is not None]
        if lower and upper and max(lower) > min(upper):
            texts.append(" and ".join(dict.fromkeys(part.text for part in same)))
    return tuple(texts)


def _number(part: IntervalPart, end: int) -> Fraction:
    """Return an end as a number, independent of its unit."""
    return Fraction(end, 10**part.measure.places)


def text_part(conjunct: Conjunct, op: Operator, inputs: JoinInputs) -> IntervalPart | None:
    """Return the band of a comparison of text columns of both sides, or None if it is none.

    The first bytes of the texts select the candidates.
    """
    left, right = conjunct.expr.this.unnest(), conjunct.expr.expression.unnest()
    if not isinstance(left, exp.Column) or not isinstance(right, exp.Column):
        return None
    refs = ((left.table, left.name), (right.table, right.name))
    if any(inputs.column(ref).type != STRING for ref in refs):
        return None
    if inputs.side(refs[0][0]) is inputs.side(refs[1][0]):
        return None
    ends = Ends.where(op, 0, 0).closed()  # of first - second; texts that differ may begin alike
    if inputs.side(refs[0][0]) is Side.RIGHT:
        refs = refs[::-1]
    else:
        ends = ends.mirror()
    return IntervalPart(conjunct, *refs, ends, is_exact=True, span=0, comparison=None, measure=TEXT)


def number_part(conjunct: Conjunct, op: Operator, inputs: JoinInputs) -> BandPart | None:
    """Return the band of a conjunct over numbers that are not all integers.

    Returns:
        None if the conjunct is no band.
    """
    left, right = sum_of(conjunct.expr.this, inputs), sum_of(conjunct.expr.expression, inputs)
    if left is None or right is None or set(left.terms) & set(right.terms):
        return None
    terms = {**left.terms, **{ref: -factor for ref, factor in right.terms.items()}}
    if sorted(terms.values()) != [-1, 1]:
        return None
    plus, minus = sorted(terms, key=lambda ref: -terms[ref])
    if inputs.side(plus[0]) is inputs.side(minus[0]):
        return None
    types = [number_type(inputs.column(ref).type) for ref in (plus, minus)]
    one, other = types
    if one is None or other is None:
        return None
    draft = _Numbers(conjunct, op, inputs, left, right, plus, minus, (one, other))
    return (draft.exact() or draft.real()) if draft.keeps_places() else None


@dataclass(frozen=True)
class _Numbers:
    """``left op right``, which is ``plus - minus + constant op 0``."""

    conjunct: Conjunct
    op: Operator
    join_inputs: JoinInputs
    left: Sum
    right: Sum
    plus: Ref
    minus: Ref
    types: tuple[NumberType, NumberType]

    def keeps_places(self) -> bool:
        """Return True if no decimal has too many digits, so that Spark rounds off no places."""
        whole = max(number.whole or 0 for number in self.types)
        while self.size >= 10**whole:
            whole += 1
            if whole > MAX_DECIMAL_DIGITS:
                return False
        additions = self.left.steps + self.right.steps - 2
        return whole + self._places() + additions <= MAX_DECIMAL_DIGITS

    def _places(self) -> int:
        return max(self.left.places, self.right.places, *(number.places for number in self.types))

    @property
    def constant(self) -> Fraction:
        return self.left.constant - self.right.constant

    @property
    def size(self) -> Fraction:
        return self.left.size + self.right.size

    def exact(self) -> IntervalPart | None:
        """Return the exact part for decimals and integers, counted in the finest last place.

        Returns:
            None if a number is real or has too many digits.
        """
        places = self._places()
        if self.left.has_real or self.right.has_real or self.size * 10**places >= 10**DIGITS:
            return None
        for number in self.types:
            if number.whole is None or number.whole + places > DIGITS:
                return None
        measure = Measure("decimal", places)
        e = int(self.constant * 10**places)
        ends = Ends.where(self.op, e, e)
        left, right = self.minus, self.plus
        if self.join_inputs.side(self.plus[0]) is Side.LEFT:
            left, right, ends = right, left, ends.mirror()
        return IntervalPart(
            self.conjunct,
            left,
            right,
            ends,
            is_exact=True,
            span=int(self.size * 10**places),
            comparison=TimeComparison(
                self._tree(self.conjunct.expr.this, measure),
                self.op,
                self._tree(self.conjunct.expr.expression, measure),
            ),
            measure=measure,
            sums=sums_of(self.conjunct.expr, self.join_inputs, measure),
        )

    def real(self) -> RealPart:
        """Return the inexact part for all other numbers, which uses doubles close to the values."""
        bits = min((number.bits for number in self.types if number.is_real), default=53)
        single = all(number.bits == 24 for number in self.types)
        constant, size = float(self.constant), float(self.size)
        steps = self.left.steps + self.right.steps
        lower = -constant if self.op in (">", ">=", "=") else None
        upper = -constant if self.op in ("<", "<=", "=") else None
        left, right = self.minus, self.plus
        if self.join_inputs.side(self.plus[0]) is Side.LEFT:
            left, right = right, left
            lower, upper = mirror_ends(lower, upper)
        falls = {
            self.join_inputs.side(ref[0])
            for operand in (self.left, self.right)
            for ref, factor in operand.terms.items()
            if factor < 0
        }
        decided = all(number.is_real for number in self.types) and self.left.is_plain and self.right.is_plain
        band = RealBand(
            self._measure_column(left, REAL),
            self._measure_column(right, REAL),
            lower,
            upper,
            size,
            error=(steps + 6) * 2.0 ** (2 - bits),
            limit=2.0**126 if single else 2.0**1022,
            falls=tuple(side for side in Side if side in falls),
            comparison=RealComparison(
                self._real_tree(self.conjunct.expr.this),
                self.op,
                self._real_tree(self.conjunct.expr.expression),
            )
            if decided
            else None,
            text=self.conjunct.text,
        )
        sums = sums_of(self.conjunct.expr, self.join_inputs, REAL)
        return RealPart(self.conjunct, band, (left, right), sums)

    def _measure_column(self, ref: Ref, measure: Measure) -> Measured:
        return Measured(self.join_inputs.column_name(ref), measure)

    def _tree(self, expr: Expr, measure: Measure) -> TimeExpr:
        match expr:
            case exp.Column():
                ref = (expr.table, expr.name)
                return TimeColumn(self.join_inputs.side(ref[0]), self._measure_column(ref, measure).name)
            case exp.Neg():
                return TimeSum(TimeConstant(0), self._tree(expr.this, measure), -1)
            case exp.Add() | exp.Sub():
                left, right = self._tree(expr.this, measure), self._tree(expr.expression, measure)
                return TimeSum(left, right, 1 if isinstance(expr, exp.Add) else -1)
            case exp.Literal():
                return TimeConstant(int(_value(expr) * 10**measure.places))
        return self._tree(expr.this, measure)  # in parentheses, or a cast that changes no value

    def _real_tree(self, expr: Expr) -> RealExpr:
        match expr:
            case exp.Column():
                ref = (expr.table, expr.name)
                return RealColumn(self.join_inputs.side(ref[0]), self._measure_column(ref, REAL))
            case exp.Neg():
                return RealSum(0.0, self._real_tree(expr.this), -1)
            case exp.Add() | exp.Sub():
                left, right = self._real_tree(expr.this), self._real_tree(expr.expression)
                return RealSum(left, right, 1 if isinstance(expr, exp.Add) else -1)
            case exp.Literal():
                return float(_value(expr))
        return self._real_tree(expr.this)


def _value(constant: exp.Literal) -> Fraction:
    number = literal(constant.this)
    assert number is not None
    return number.constant


# Rule: time bounds -> bands for look-ups, postpone map for retention.
#
# For one pair of columns all conjuncts are one interval. The postpone map is closed transitively over
# links between different inputs; a bound between two columns of one input is a condition on that input
# and no link.


@dataclass(frozen=True)
class Link:
    """``evicted >= by - c``, or what follows from a chain of such. ``text``: of the conjuncts.

    Arithmetic on times saturates at each link of a chain: the least time of ``evicted`` that does for a time
    of ``by`` is ``by - c`` cut to ``low`` and ``high``. So it is if all links are ``plain``: shifted where
    the time of ``by`` stands, or forwards where that of ``evicted`` does. Near the ends of int64 lesser times
    may do for others, by no more than ``span``: the constants of the chain together.
    """

    c: int
    text: str
    span: int
    plain: bool
    low: int = MIN_TIME
    high: int = MAX_TIME

    def then(self, further: Link) -> Link:
        """Combine this link with one that bounds its ``by`` into one chain."""

        def cut(value: int) -> int:
            return min(max(value - self.c, self.low), self.high)

        return Link(
            self.c + further.c,
            _merge_texts(self.text, further.text),
            self.span + further.span,
            self.plain and further.plain,
            cut(further.low),
            cut(further.high),
        )


Links = dict[tuple[Ref, Ref], Link]
"""By (evicted, by)."""


def time_bands(times: Sequence[IntervalPart], inputs: JoinInputs) -> tuple[ExactBand, ...]:
    """Build one band per pair of columns, the most selective first.

    Closed bands precede half-open ones; among closed bands the narrowest is first.
    """
    return tuple(sorted(bands_of(times, inputs), key=_width))


def _width(band: ExactBand) -> tuple[int, int]:
    if band.lower is None or band.upper is None:
        return (1, 0)
    return (0, band.upper - band.lower)


def links_of(times: Sequence[IntervalPart]) -> Links:
    """Return the bounds as written, with strict ones read as closed.

    Each pair of columns has the link with the smallest c.
    """
    links: Links = {}
    for part in times:
        # lower <= right - left  is  right >= left - (-lower)
        # right - left <= upper  is  left >= right - upper
        lowered = part.ends.mirror().closed_upper
        for evicted, by, c, own in (
            (part.right, part.left, lowered, Side.RIGHT),
            (part.left, part.right, part.ends.closed_upper, Side.LEFT),
        ):
            if c is not None:
                assert part.comparison is not None
                plain = part.is_exact and _is_plain(part.comparison, own)
                _tighten(links, evicted, by, Link(c, part.conjunct.text, part.span, plain))
    return links


def _is_plain(comparison: TimeComparison, evicted: Side) -> bool:
    """See `Link`; of a comparison of two times. ``evicted``: the side whose times are bounded from below."""
    shifts = [_shift(comparison.left), _shift(comparison.right)]
    by_side = {column.side: by for column, by in (shift for shift in shifts if shift is not None)}
    if len(by_side) != 2:
        return False
    return by_side[evicted] == 0 or (by_side[evicted] > 0 and by_side[evicted.other] == 0)


def _shift(expr: TimeExpr) -> tuple[TimeColumn, int] | None:
    """Split an expression into a time column and the constant added to it.

    Returns:
        None if the expression has another form.
    """
    match expr:
        case TimeColumn():
            return expr, 0
        case TimeSum(TimeColumn() as column, TimeConstant(value), sign):
            return column, sign * value
        case TimeSum(TimeConstant(value), TimeColumn() as column, 1):
            return column, value
    return None


def _tighten(links: Links, evicted: Ref, by: Ref, link: Link) -> None:
    tightest = links.get((evicted, by))
    if tightest is None or link.c < tightest.c or (link.c == tightest.c and link.plain > tightest.plain):
        links[evicted, by] = link
    elif link.c == tightest.c and link.plain and tightest.plain:  # each of both holds
        low, high = max(link.low, tightest.low), max(link.high, tightest.high)
        links[evicted, by] = replace(tightest, low=low, high=high)


def inverted_pairs(links: Links) -> list[tuple[Ref, Ref]]:
    """Pairs whose interval holds nothing though both ends are closed: c1 + c2 < 0."""
    return [
        (a, b) for (a, b), link in links.items() if a < b and (b, a) in links and link.c + links[b, a].c < 0
    ]


def merge_links(links: Sequence[Links]) -> Links:
    """Merge the links of several joins; each pair of columns retains the smallest c."""
    result: Links = {}
    for of_join in links:
        for (evicted, by), link in of_join.items():
            _tighten(result, evicted, by, link)
    return result


def close_links(links: Links, nullable: frozenset[Ref] | None = None) -> Links:
    """Add the links that follow from chains of ``links`` (Floyd and Warshall).

    Where a chain contradicts itself, its sums have no minimum; chains then pass through each column
    once. Cost: O(k³) for k columns, once for equal links, because all joins of a query may have the
    same ones.

    Args:
        nullable: Times that may be NULL where the bounds apply; no link of a chain may be ``by`` one of
            them. None: no time may be NULL.
    """
    return dict(closure_of(tuple(links.items()), nullable))


@lru_cache(64)
def closure_of(pairs: tuple[tuple[tuple[Ref, Ref], Link], ...], nullable: frozenset[Ref] | None) -> Links:
    links = {pair: link for pair, link in pairs if not nullable or pair[1] not in nullable}
    columns = list(dict.fromkeys(ref for pair in links for ref in pair))
    result = dict(links)
    for middle in columns:
        for evicted in columns:
            one = result.get((evicted, middle))
            if one is None or evicted == middle:
                continue
            for by in columns:
                two = result.get((middle, by))
                if two is not None and by not in (evicted, middle):
                    _tighten(result, evicted, by, one.then(two))
    contradicts = any((b, a) in result and link.c + result[b, a].c < 0 for (a, b), link in result.items())
    return _close_by_simple_chains(links) if contradicts else result


def _close_by_simple_chains(links: Links) -> Links:
    result: Links = {}

    def walk(evicted: Ref, end: Ref, chain: Link | None, seen: frozenset[Ref]) -> None:
        for (one, by), own in links.items():
            if one == end and by not in seen:
                both = own if chain is None else chain.then(own)
                _tighten(result, evicted, by, both)
                walk(evicted, by, both, seen | {by})

    for column in dict.fromkeys(evicted for evicted, _ in links):
        walk(column, column, None, frozenset({column}))
    return result


def _merge_texts(one: str, two: str) -> str:
    return " and ".join(dict.fromkeys([*one.split(" and "), *two.split(" and ")])) if one != two else one


def bounds_of(links: Links, inputs: JoinInputs, nullable: frozenset[Ref] | None = None) -> tuple[Bound, ...]:
    """Build the eviction bounds between the two sides of a join.

    The bounds are in the query's order of the evicted columns.

    Args:
        links: Links of all joins whose conditions hold for the matches of this join.
        nullable: See `close_links`.
    """
    here = {i.alias for i in inputs.in_order}
    bounds = [
        Bound(
            name_of(evicted),
            name_of(by),
            link.c,
            link.text,
            slack=0 if link.plain else min(link.span, MAX_TIME),
            low=link.low,
            high=link.high,
        )
        for (evicted, by), link in close_links(links, nullable).items()
        if {evicted[0], by[0]} <= here and inputs.side(evicted[0]) is not inputs.side(by[0])
    ]
    order = {
        name_of((i.alias, c.name)): n
        for n, (i, c) in enumerate((i, c) for i in inputs.in_order for c in i.columns)
    }
    return tuple(sorted(bounds, key=lambda bound: (order[bound.evicted], order[bound.by])))
