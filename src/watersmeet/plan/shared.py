"""Rule: which sides of a job's joins are the same rows, held in the same way: their runs are kept once.

What decides is the source (each branch of it), the lags, the flag, event times, keys, indexes and by which
times rows are released, each by what it is made of; so aliases may differ, and which columns a query keeps.
Rows of a source that follows others when it is idle are late by these: they are the same within a query.
The first such side in the job's order owns the runs: its ingest writes them, with the columns of all. What
each query has released and matched of them stays its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from watersmeet.event_time import Side
from watersmeet.names import is_ours, ours
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.identity.origins import side_origins
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.model.sides import BranchPlan, ColumnOfOthers, SidePlan
from watersmeet.spec.model import JoinKind, OnIdle

_Key = tuple[object, ...]
_Place = tuple[int, int, int]
"""Of a side: the number of its query, of its node, and its own in that."""


def with_shared(queries: Sequence[QueryPlan]) -> tuple[QueryPlan, ...]:
    """The queries with their sides saying which of them are the same; see `SidePlan.sharers`."""
    places_by_key: dict[_Key, list[_Place]] = {}
    for place, query, node in _sides(queries):
        key = _key(query, node, Side.RIGHT if place[2] else Side.LEFT)
        if key is not None:
            places_by_key.setdefault(key, []).append(place)
    plans = {place: node.sides[place[2]] for place, _, node in _sides(queries)}
    for places in places_by_key.values():
        if len(places) < 2:
            continue
        names = tuple(f"{queries[place[0]].name}/{plans[place].name}" for place in places)
        plans[places[0]] = _owning(plans[places[0]], [plans[place] for place in places[1:]])
        plans |= {place: replace(plans[place], sharers=names) for place in places}
    return tuple(_with_sides(query, number, plans) for number, query in enumerate(queries))


def _sides(queries: Sequence[QueryPlan]) -> Iterator[tuple[_Place, QueryPlan, JoinPlan]]:
    for number, query in enumerate(queries):
        for join in query.every(JoinPlan):
            for place in range(len(join.sides)):
                yield (number, join.number, place), query, join


def _with_sides(query: QueryPlan, number: int, sides: Mapping[_Place, SidePlan]) -> QueryPlan:
    nodes = tuple(
        replace(
            node,
            sides=tuple(
                sides.get((number, node.number, place), side) for place, side in enumerate(node.sides)
            ),
        )
        for node in query.nodes
    )
    return replace(query, nodes=nodes)


def _key(query: QueryPlan, node: JoinPlan, side: Side) -> _Key | None:
    """What is the same for sides that hold the same rows in the same way; None: it is for none other.

    A side whose rows leave before they are released (SEMI, ASOF, changes, limits) is not shared, nor one of a
    join without an equality key or with BROADCAST, whose tasks have other parts of it; nor one whose key is
    computed, of which the other side may decide the type.
    """
    if node.changes or node.asof is not None or query.options.at_limit.sheds:
        return None
    plan = node.side(side)
    keys = [key.column(side) for key in node.keys]
    if not keys or any(map(is_ours, keys)) or node.by_value or node.broadcast is not None:
        return None
    if plan.feed is not None or plan.stages or plan.passes or plan.nullable:
        return None
    if node.kind is JoinKind.SEMI and side is Side.LEFT:
        return None
    origins = side_origins(plan)

    def made(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
        return tuple((name, origins[name].digest) for name in names)

    evicted = {bound.evicted for bound in node.bounds}
    indexes = node.indexes(side)
    follows = any(branch.source.on_idle is OnIdle.FOLLOW for _, branch in plan.sources)
    return (
        query.name if follows or node.horizon is not None else None,
        tuple(
            (branch.source.name, branch.lags, None if branch.flag is None else text_of(branch.flag))
            for _, branch in plan.sources
        ),
        made(plan.event_times),
        made(keys),
        made(sorted(plan.not_null)),
        tuple((repr(index), origins[index.column].digest) for index in indexes),
        tuple(c for c in plan.event_times if plan.watermark_key(c) in evicted),
    )


def _owning(owner: SidePlan, others: Sequence[SidePlan]) -> SidePlan:
    """The side with the columns that others keep besides."""
    there = {side_origins(owner)[name].digest for name in owner.kept}
    columns: list[ColumnOfOthers] = []
    branches = [list(branch.columns) for _, branch in owner.sources]
    for other in others:
        origins = side_origins(other)
        types = {column.name: column.type for column in other.input.columns}
        for name in other.kept:
            origin = origins[name]
            if origin.digest in there:
                continue
            there.add(origin.digest)
            own_name = ours(f"others:{len(columns)}")
            columns.append(ColumnOfOthers(own_name, origin.digest, origin.text, types.get(name)))
            for own, (_, branch) in zip(branches, other.sources, strict=True):
                own.append((own_name, dict(branch.columns)[name]))
    numbered = {number: own for (number, _), own in zip(owner.sources, branches, strict=True)}
    return replace(
        owner,
        of_others=tuple(columns),
        branches=tuple(
            replace(branch, columns=tuple(numbered[number])) if isinstance(branch, BranchPlan) else branch
            for number, branch in enumerate(owner.branches)
        ),
    )
