"""What other queries do for a query: they keep state of its nodes and sides, and read inputs for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from watersmeet.event_time import Watermark
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import FeedPlan
from watersmeet.runtime.coordinator.explicit_watermarks import RegressiveAdvance
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.state.manifest import ReusedNodeState, SharedSideState

T = TypeVar("T")


def producer_state(query: QueryPlan, number: int) -> ReusedNodeState | None:
    """Of node ``number``; None: it keeps its rows itself."""
    for taken in query.taken:
        for node in taken.nodes:
            if node.number == number:
                return ReusedNodeState(
                    query=taken.query,
                    node=node.node,
                    sides=dict(node.sides),
                    aliases=dict(taken.aliases),
                )
    return None


def side_producers(
    node: NodePlan, shapes: Callable[[str], Sequence[NodeShape]]
) -> dict[str, SharedSideState]:
    """Per side of a node that another query keeps. ``shapes``: the nodes of a query by name."""
    return {
        side.name: SharedSideState(
            query=by.query,
            node=by.node,
            side=by.side,
            held=next(own.held for own in shapes(by.query)[by.node].sides if own.name == by.side),
        )
        for side in node.sides
        if (by := side.kept_by) is not None
    }


def add_shared_inputs(
    query: QueryPlan, own: Mapping[str, T], told: Mapping[str, Mapping[str, T]]
) -> dict[str, T]:
    """What is said per alias of a query's inputs, with those that others read for it, in the query's order.
    ``told``: of the queries before."""
    elsewhere = query.shared_inputs
    if not elsewhere:
        return dict(own)
    every = dict(own) | {
        alias: told[other][there] for alias, other, there in elsewhere if there in told[other]
    }
    order = {side.name: place for place, side in enumerate(query.alone.sides)}
    return {alias: every[alias] for alias in sorted(every, key=lambda name: order.get(name, len(order)))}


def values_by_query(
    queries: Sequence[QueryPlan], told_of: Callable[[QueryPlan], Mapping[str, T]]
) -> dict[str, dict[str, T]]:
    """The same of all queries of a job, by name. ``told_of``: one, of the inputs that it reads itself."""
    told: dict[str, dict[str, T]] = {}
    for query in queries:
        told[query.name] = add_shared_inputs(query, told_of(query), told)
    return told


def add_shared_advances(
    query: QueryPlan, own: tuple[RegressiveAdvance, ...], told: Mapping[str, tuple[RegressiveAdvance, ...]]
) -> tuple[RegressiveAdvance, ...]:
    """The same of advances that went back."""
    advances = {advance.key: advance for advance in own}
    for taken in query.taken:
        names = {there: alias for alias, there in taken.aliases}
        for advance in told[taken.query]:
            key = rename_key(advance.key, names)
            if key is not None:
                advances[key] = replace(advance, key=key)
    return tuple(advances[key] for key in sorted(advances))


def rename_watermarks(feed: FeedPlan, emitted: Mapping[str, Watermark]) -> Mapping[str, Watermark]:
    """The output watermarks of a node beneath, by the keys of the query that takes its rows."""
    if feed.query is None:
        return emitted
    return {own: emitted[there] for own, there in feed.event_times if there in emitted}


def rename_key(key: str, aliases: Mapping[str, str]) -> str | None:
    """A watermark key ``alias.column`` by another alias; None: it is of none of ``aliases``."""
    alias = max((name for name in aliases if key.startswith(f"{name}.")), key=len, default=None)
    return None if alias is None else f"{aliases[alias]}{key.removeprefix(alias)}"
