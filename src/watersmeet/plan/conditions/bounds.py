"""Rule: time bounds -> bands for look-ups, postpone map for retention.

For one pair of columns all conjuncts are one interval. The postpone map is closed transitively over links
between different inputs; a bound between two columns of one input is a condition on that input and no link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
from watersmeet.plan.conditions.classify import TimePart
from watersmeet.plan.model.conditions import Bound, TimeBand
from watersmeet.plan.scope import Ref, Scope, name_of


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

    def then(self, beneath: Link) -> Link:
        """The chain of this link and of one that bounds its ``by``."""

        def cut(value: int) -> int:
            return min(max(value - self.c, self.low), self.high)

        return Link(
            self.c + beneath.c,
            _both(self.text, beneath.text),
            self.span + beneath.span,
            self.plain and beneath.plain,
            cut(beneath.low),
            cut(beneath.high),
        )


Links = dict[tuple[Ref, Ref], Link]
"""By (evicted, by)."""


@dataclass
class _Band:
    lower: int | None = None
    upper: int | None = None
    texts: list[str] = field(default_factory=list)


def bands_of(times: Sequence[TimePart], scope: Scope) -> tuple[TimeBand, ...]:
    """One band per pair of columns, the most selective first: closed before half open, then the narrowest."""
    found: dict[tuple[str, str], _Band] = {}
    for part in times:
        band = found.setdefault((scope.column_name(part.first), scope.column_name(part.second)), _Band())
        if part.lower is not None:
            band.lower = part.lower if band.lower is None else max(band.lower, part.lower)
        if part.upper is not None:
            band.upper = part.upper if band.upper is None else min(band.upper, part.upper)
        if part.conjunct.text not in band.texts:
            band.texts.append(part.conjunct.text)
    bands = [TimeBand(left, right, b.lower, b.upper, tuple(b.texts)) for (left, right), b in found.items()]
    return tuple(sorted(bands, key=_width))


def _width(band: TimeBand) -> tuple[int, int]:
    if band.lower is None or band.upper is None:
        return (1, 0)
    return (0, band.upper - band.lower)


def links_of(times: Sequence[TimePart]) -> Links:
    """The bounds as written, strict ones as closed; for one pair the smallest c."""
    links: Links = {}
    for part in times:
        # lower <= second - first  is  second >= first - (-lower)
        # second - first <= upper  is  first >= second - upper
        ends = [
            (part.second, part.first, _minus(part.closed_lower), Side.RIGHT),
            (part.first, part.second, part.closed_upper, Side.LEFT),
        ]
        for evicted, by, c, own in ends:
            if c is not None:
                plain = part.is_exact and _is_plain(part.comparison, own)
                _tighten(links, evicted, by, Link(c, part.conjunct.text, part.span, plain))
    return links


def _minus(value: int | None) -> int | None:
    return None if value is None else -value


def _is_plain(comparison: TimeComparison, evicted: Side) -> bool:
    """See `Link`; of a comparison of two times. ``evicted``: the side whose times are bounded from below."""
    shifts = [_shift(comparison.left), _shift(comparison.right)]
    found = {column.side: by for column, by in (each for each in shifts if each is not None)}
    if len(found) != 2:
        return False
    return found[evicted] == 0 or (found[evicted] > 0 and found[evicted.other] == 0)


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
    known = links.get((evicted, by))
    if known is None or link.c < known.c or (link.c == known.c and link.plain and not known.plain):
        links[evicted, by] = link
    elif link.c == known.c and link.plain and known.plain:  # each of both holds
        low, high = max(link.low, known.low), max(link.high, known.high)
        links[evicted, by] = replace(known, low=low, high=high)


def inverted_pairs(links: Links) -> list[tuple[Ref, Ref]]:
    """Pairs whose interval holds nothing though both ends are closed: c1 + c2 < 0."""
    return [
        (a, b) for (a, b), link in links.items() if a < b and (b, a) in links and link.c + links[b, a].c < 0
    ]


def together(links: Sequence[Links]) -> Links:
    """The links of several joins; for one pair the smallest c."""
    result: Links = {}
    for each in links:
        for (evicted, by), link in each.items():
            _tighten(result, evicted, by, link)
    return result


def closed(links: Links, nullable: frozenset[Ref] | None = None) -> Links:
    """``links`` with what follows from chains of them (Floyd and Warshall).

    Args:
        nullable: times that may be NULL where the bounds are used; no link of a chain may be ``by`` one of
            those. None: none may.

    Where a chain contradicts itself, sums of it have no least value: then chains go through each column once.
    Cost: O(k³) for k columns.
    """
    links = {pair: link for pair, link in links.items() if not nullable or pair[1] not in nullable}
    columns = list(dict.fromkeys(ref for pair in links for ref in pair))
    result = dict(links)
    for middle in columns:
        for evicted in columns:
            for by in columns:
                one, two = result.get((evicted, middle)), result.get((middle, by))
                if one is None or two is None or evicted == by:
                    continue
                if evicted == middle or middle == by:
                    continue
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


def bounds_of(links: Links, scope: Scope, nullable: frozenset[Ref] | None = None) -> tuple[Bound, ...]:
    """The postpone map of a join, between its two sides, in the query's order of the evicted columns.

    Args:
        links: of all joins whose conditions hold for its matches.
        nullable: see `closed`.
    """
    here = {i.alias for i in scope.inputs}
    found = [
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
        if {evicted[0], by[0]} <= here and scope.side(evicted[0]) is not scope.side(by[0])
    ]
    order = {
        name_of((i.alias, c.name)): n
        for n, (i, c) in enumerate((i, c) for i in scope.inputs for c in i.columns)
    }
    return tuple(sorted(found, key=lambda bound: (order[bound.evicted], order[bound.by])))
