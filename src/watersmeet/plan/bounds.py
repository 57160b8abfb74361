"""Rule: time bounds -> bands for look-ups, postpone map for retention.

For one pair of columns all conjuncts are one interval. The postpone map is closed transitively over links
between different inputs; a bound between two columns of one input is a condition on that input and no link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from watersmeet.plan.classify import TimePart
from watersmeet.plan.model import Bound, TimeBand
from watersmeet.plan.scope import Ref, Scope, name_of

Links = dict[tuple[Ref, Ref], tuple[int, str]]
"""(evicted, by) -> (c, text): ``evicted >= by - c``."""


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
        if part.closed_lower is not None:
            _tighten(links, part.second, part.first, -part.closed_lower, part.conjunct.text)
        if part.closed_upper is not None:
            _tighten(links, part.first, part.second, part.closed_upper, part.conjunct.text)
    return links


def _tighten(links: Links, evicted: Ref, by: Ref, c: int, text: str) -> None:
    known = links.get((evicted, by))
    if known is None or c < known[0]:
        links[evicted, by] = (c, text)


def inverted_pairs(links: Links) -> list[tuple[Ref, Ref]]:
    """Pairs whose interval holds nothing though both ends are closed: c1 + c2 < 0."""
    return [
        (a, b) for (a, b), (c, _) in links.items() if a < b and (b, a) in links and c + links[b, a][0] < 0
    ]


def together(links: Sequence[Links]) -> Links:
    """The links of several joins; for one pair the smallest c."""
    result: Links = {}
    for each in links:
        for (evicted, by), (c, text) in each.items():
            _tighten(result, evicted, by, c, text)
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
                _tighten(result, evicted, by, one[0] + two[0], _both(one[1], two[1]))
    contradicts = any(c + result.get((b, a), (-c, ""))[0] < 0 for (a, b), (c, _) in result.items())
    return _by_simple_chains(links) if contradicts else result


def _by_simple_chains(links: Links) -> Links:
    result: Links = {}

    def walk(evicted: Ref, end: Ref, c: int, text: str, seen: frozenset[Ref]) -> None:
        for (one, by), (own, own_text) in links.items():
            if one == end and by not in seen:
                both = _both(text, own_text) if text else own_text
                _tighten(result, evicted, by, c + own, both)
                walk(evicted, by, c + own, both, seen | {by})

    for column in dict.fromkeys(evicted for evicted, _ in links):
        walk(column, column, 0, "", frozenset({column}))
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
        Bound(name_of(evicted), name_of(by), c, text)
        for (evicted, by), (c, text) in closed(links, nullable).items()
        if {evicted[0], by[0]} <= here and scope.side(evicted[0]) is not scope.side(by[0])
    ]
    order = {
        name_of((i.alias, c.name)): n
        for n, (i, c) in enumerate((i, c) for i in scope.inputs for c in i.columns)
    }
    return tuple(sorted(found, key=lambda bound: (order[bound.evicted], order[bound.by])))
