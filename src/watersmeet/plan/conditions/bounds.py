"""Rule: time bounds -> bands for look-ups, postpone map for retention.

For one pair of columns all conjuncts are one interval. The postpone map is closed transitively over links
between different inputs; a bound between two columns of one input is a condition on that input and no link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from watersmeet.conditions import Bound, ExactBand
from watersmeet.event_time import (
    MAX_TIME,
    MIN_TIME,
    Side,
    TimeColumn,
    TimeComparison,
    TimeConstant,
    TimeExpr,
    TimeSum,
)
from watersmeet.plan.conditions.intervals import IntervalPart, bands_of
from watersmeet.plan.join_inputs import JoinInputs, Ref, name_of


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
        """The chain of this link and of one that bounds its ``by``."""

        def cut(value: int) -> int:
            return min(max(value - self.c, self.low), self.high)

        return Link(
            self.c + further.c,
            _both(self.text, further.text),
            self.span + further.span,
            self.plain and further.plain,
            cut(further.low),
            cut(further.high),
        )


Links = dict[tuple[Ref, Ref], Link]
"""By (evicted, by)."""


def time_bands(times: Sequence[IntervalPart], inputs: JoinInputs) -> tuple[ExactBand, ...]:
    """One band per pair of columns, the most selective first: closed before half open, then the narrowest."""
    return tuple(sorted(bands_of(times, inputs), key=_width))


def _width(band: ExactBand) -> tuple[int, int]:
    if band.lower is None or band.upper is None:
        return (1, 0)
    return (0, band.upper - band.lower)


def links_of(times: Sequence[IntervalPart]) -> Links:
    """The bounds as written, strict ones as closed; for one pair the smallest c."""
    links: Links = {}
    for part in times:
        # lower <= right - left  is  right >= left - (-lower)
        # right - left <= upper  is  left >= right - upper
        lowered = part.ends.mirrored().closed_upper
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
    """The column and what is added to it; None: it is something else."""
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


def together(links: Sequence[Links]) -> Links:
    """The links of several joins; for one pair the smallest c."""
    result: Links = {}
    for of_join in links:
        for (evicted, by), link in of_join.items():
            _tighten(result, evicted, by, link)
    return result


def closed(links: Links, nullable: frozenset[Ref] | None = None) -> Links:
    """``links`` with what follows from chains of them (Floyd and Warshall).

    Args:
        nullable: times that may be NULL where the bounds are used; no link of a chain may be ``by`` one of
            those. None: none may.

    Where a chain contradicts itself, sums of it have no least value: then chains go through each column once.
    Cost: O(k³) for k columns, once for the same links: all joins of a query may have the same.
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
    return _by_simple_chains(links) if contradicts else result


def _by_simple_chains(links: Links) -> Links:
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


def _both(one: str, two: str) -> str:
    return " and ".join(dict.fromkeys([*one.split(" and "), *two.split(" and ")])) if one != two else one


def bounds_of(links: Links, inputs: JoinInputs, nullable: frozenset[Ref] | None = None) -> tuple[Bound, ...]:
    """The postpone map of a join, between its two sides, in the query's order of the evicted columns.

    Args:
        links: of all joins whose conditions hold for its matches.
        nullable: see `closed`.
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
        for (evicted, by), link in closed(links, nullable).items()
        if {evicted[0], by[0]} <= here and inputs.side(evicted[0]) is not inputs.side(by[0])
    ]
    order = {
        name_of((i.alias, c.name)): n
        for n, (i, c) in enumerate((i, c) for i in inputs.in_order for c in i.columns)
    }
    return tuple(sorted(bounds, key=lambda bound: (order[bound.evicted], order[bound.by])))
