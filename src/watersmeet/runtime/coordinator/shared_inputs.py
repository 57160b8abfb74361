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
from watersmeet.state.manifest import Manifest, NodeState, ReusedNodeState, SharedSideState

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


def rename_keys_to_own(watermarks: Mapping[str, Watermark], home: ReusedNodeState) -> dict[str, Watermark]:
    """Per watermark key of a query whose inputs another one read, what that one has for it."""
    names = {there: alias for alias, there in home.aliases.items()}
    keys = {key: rename_key(key, names) for key in watermarks}
    return {own: watermarks[key] for key, own in keys.items() if own is not None}


def side_home(manifest: Manifest, query: str, number: int, side: str = "") -> tuple[str, int, str]:
    """Return who keeps the rows of a side, or of a node, in the end: query, node and name there."""
    node = manifest.queries[query].nodes[number]
    if node.elsewhere is not None:
        home = node.elsewhere
        return side_home(manifest, home.query, home.node, home.sides.get(side, side))
    kept = node.kept_by.get(side)
    return (query, number, side) if kept is None else side_home(manifest, kept.query, kept.node, kept.side)


def home_of(manifest: Manifest, home: ReusedNodeState) -> ReusedNodeState:
    """Return where a node is kept in the end: a node may rest, too, beneath one of which others take rows."""
    further = manifest.queries[home.query].nodes[home.node].elsewhere
    if further is None:
        return home
    names = {
        "sides": rename_keys(home.sides, further.sides),
        "aliases": rename_keys(home.aliases, further.aliases),
    }
    return home_of(manifest, further.model_copy(update=names))


def node_of(manifest: Manifest, home: ReusedNodeState) -> NodeState:
    """Return what another query's node keeps, by the names of the node that rested."""
    there = manifest.queries[home.query].nodes[home.node]
    return there.model_copy(
        update={
            "arrangements": rename_keys(home.sides, there.arrangements),
            "kept_by": rename_keys(home.sides, there.kept_by),
            "emitted": rename_keys_to_own(there.emitted, home),
            "missing": [rename_keys_to_own(way, home) for way in there.missing],
        }
    )


def rename_keys(names: Mapping[str, str], there: Mapping[str, T]) -> dict[str, T]:
    """Return what is there by other names; ``names``: own name -> name there."""
    return {own: there[name] for own, name in names.items() if name in there}
