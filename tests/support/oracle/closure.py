"""Bounds over all joins of a query: their closure, by trying every path, and the plans that are refused."""

from __future__ import annotations

from tests.support.oracle.bounds import Bounds
from tests.support.oracle.inputs import Key, Source
from tests.support.oracle.model import JoinPlan, Query
from tests.support.oracle.values import Refused

Chains = dict[tuple[Key, Key], list[tuple[int, ...]]]
"""(evicted A, by B) -> for each chain of bounds from A to B, their constants."""


# closure


def find_nested_joins(joins: list[JoinPlan], number: int) -> list[int]:
    """The joins strictly beneath one."""
    children = [feed for feed in joins[number].feeds if feed is not None]
    return [n for child in children for n in (*find_nested_joins(joins, child), child)]


def _find_inputs_padded_by(joins: list[JoinPlan], numbers: list[int]) -> set[str]:
    """The inputs that some joins pad."""
    aliases = set()
    for join in (joins[n] for n in numbers):
        for side, other in ((0, 1), (1, 0)):
            if join.pads[side] and not join.left_only:
                aliases |= {source.alias for source in join.sides[other]}
    return aliases


def find_padded_inputs(joins: list[JoinPlan]) -> set[str]:
    """The inputs whose columns can be NULL in rows that leave the last of some joins."""
    return _find_inputs_padded_by(joins, list(range(len(joins))))


def _never_null(joins: list[JoinPlan], number: int) -> set[Key]:
    """The times that cannot be NULL in a match of a join.

    Those of inputs that nothing beneath pads, and those of the join's own time bounds: a bound on NULL is no
    match, and a row with a NULL there is not retained; where one time of a padded input is not NULL, none is
    that was not NULL before. That is what an input's ``open_times`` may be: only those in the join's own
    bounds are not.
    """
    join = joins[number]
    padded = _find_inputs_padded_by(joins, find_nested_joins(joins, number))
    linked = {key for pair in join.links for key in pair}
    met = {alias for alias, _ in linked}
    return linked | {
        (source.alias, t)
        for side in join.sides
        for source in side
        for t in source.times
        if t not in source.open_times and (source.alias not in padded or source.alias in met)
    }


def join_chains(joins: list[JoinPlan], number: int) -> Chains:
    """The bounds that count in a join: of a key of one side by a key of the other.

    A query of INNER joins closes over the links of all of it: a row that a later join will turn down need
    not wait. Any other closes over the links of the joins beneath, this one included: a row that a later
    outer join turns down may be a result, as a pad. There only keys count that cannot be NULL in a match of
    this join, and no links to the right side of a SEMI or ANTI join beneath, which is not there any more.
    Of all chains between two keys those with the least sum count. Arithmetic on times saturates at each link.
    """
    join = joins[number]
    if join.asof is not None:
        return {pair: [(c,)] for pair, c in join.links.items()}
    if all(j.kind == "INNER" for j in joins if not j.as_of):
        used = list(range(len(joins)))
        never_null = {key for j in joins for pair in j.links for key in pair}
    else:
        used = [*find_nested_joins(joins, number), number]
        never_null = _never_null(joins, number)
    links: Bounds = {}
    for n in used:
        if n != number and joins[n].left_only:  # each of them is a link to its right side
            continue
        for pair, c in joins[n].links.items():
            links[pair] = min(c, links.get(pair, c))
    side_of = {source.alias: side for side in (0, 1) for source in join.sides[side]}
    return {
        (a, b): [chain for chain in chains if sum(chain) == min(map(sum, chains))]
        for (a, b), chains in _closed(links, never_null).items()
        if a[0] in side_of and b[0] in side_of and side_of[a[0]] != side_of[b[0]]
    }


def _closed(links: Bounds, never_null: set[Key]) -> Chains:
    """All simple paths on which all keys but the evicted one are in ``never_null``."""
    closed: Chains = {}

    def walk(evicted: Key, end: Key, chain: tuple[int, ...], seen: tuple[Key, ...]) -> None:
        for (a, b), c in links.items():
            if a == end and b not in seen and b in never_null:
                closed.setdefault((evicted, b), []).append((*chain, c))
                walk(evicted, b, (*chain, c), (*seen, b))

    for key in {a for a, _ in links}:
        walk(key, key, (), (key,))
    return closed


# refused plans


def _rises(joins: list[JoinPlan], number: int, side: int, key: Key, rule: str) -> bool:
    """Whether a key that comes into a join has a watermark there, ever.

    A stream's has; a UNION ALL's if it has one on every branch that joins. Behind a join with rule ``limit``
    it has one if it had one there, and that join bounds it by a key that has one.
    """
    if rule != "limit":
        return True
    feed = joins[number].feeds[side]
    if feed is None:
        source = next(s for s in joins[number].sides[side] if s.alias == key[0])
        return all(_leaves(branch.query, branch.times[key[1]], rule) for _, branch in source.stages)
    if joins[feed].as_of:
        return _rises(joins, feed, 0, key, rule)
    own = 0 if key[0] in [source.alias for source in joins[feed].sides[0]] else 1
    if joins[feed].asof is not None:
        return _rises(joins, feed, own, key, rule)
    return _rises(joins, feed, own, key, rule) and bool(_that_count(joins, feed, key, rule))


def _leaves(query: Query, key: Key, rule: str) -> bool:
    """Whether a key that leaves a query of joins has a watermark there, ever."""
    last = len(query.joins) - 1
    side = 0 if key[0] in [source.alias for source in query.joins[last].sides[0]] else 1
    return _rises(query.joins, last, side, key, rule) and bool(_that_count(query.joins, last, key, rule))


def _that_count(joins: list[JoinPlan], number: int, evicted: Key, rule: str) -> list[Key]:
    """The keys by which a key is ever evicted in a join."""
    join = joins[number]
    side_of = {source.alias: side for side in (0, 1) for source in join.sides[side]}
    return [b for a, b in join.bounds if a == evicted and _rises(joins, number, side_of[b[0]], b, rule)]


def refuse_unbounded(joins: list[JoinPlan], rule: str) -> None:
    """A join's side whose rows nothing of the other side ever evicts is refused.

    Every retained row of a side must have a bounded time that is not NULL, so a bound counts only on an input
    that cannot be NULL in rows retained there.
    """
    problems = []
    for number, join in enumerate(joins):
        if join.asof is not None and not _rises(joins, number, 0, join.asof.left, rule):
            problems.append(_problem(join.sides[1], join.sides[0]))
        if join.asof is not None or join.as_of:
            continue
        retained = _never_null(joins, number)
        for mine, theirs in (join.sides, join.sides[::-1]):
            if all(source.table for source in mine):
                continue
            keys = [(s.alias, t) for s in mine for t in s.times if (s.alias, t) in retained]
            if not any(_that_count(joins, number, key, rule) for key in keys):
                problems.append(_problem(mine, theirs))
    if problems:
        raise Refused("; ".join(problems))


def _problem(mine: list[Source], theirs: list[Source]) -> str:
    names = " with ".join(f'"{source.alias}"' for source in mine)
    times = [f"{source.alias}.{t}" for source in mine for t in source.times]
    others = [f"{source.alias}.{t}" for source in theirs for t in source.times]
    return (
        f"state would grow without limit: rows of {names} can never be dropped "
        f"(event-time columns: {', '.join(times) or 'none'}); a condition that would do: "
        f"{(times or [mine[0].alias + '.<event time>'])[0]} >= "
        f"{(others or [theirs[0].alias + '.<event time>'])[0]} - <distance>"
    )
