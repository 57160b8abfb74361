"""Inputs that one query reads for others, and explicit advances of inputs' watermarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from watersmeet.errors import EngineError
from watersmeet.event_time import NEVER, Watermark, shown_time
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import FeedPlan
from watersmeet.plan.query_inputs import unit_of_type
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.state.manifest import Manifest, NodeState, ReusedNodeState, SharedSideState
from watersmeet.watermark.tracker import BranchProgress, BranchRules, InputState


@dataclass(frozen=True)
class RegressiveAdvance:
    """An advance below the watermark of ``key`` (``alias.column``): it moved nothing."""

    key: str
    watermark: Watermark
    advance: int


def find_regressive_advances(
    query: QueryPlan,
    inputs: Mapping[str, InputState],
    rules: Mapping[str, list[BranchRules]],
    seen: Mapping[tuple[str, int], BranchProgress],
) -> tuple[RegressiveAdvance, ...]:
    """Find explicit advances of the tick that are below the current watermark.

    Call this before the tick's watermarks move. Branches with ``follow_when_idle`` that are or were
    idle are skipped: an idle source follows the watermark of others and may restart below it.

    Raises:
        EngineError: an advance regresses and the query is not lenient.
    """
    advances: dict[str, RegressiveAdvance] = {}
    for (alias, number), branch_seen in seen.items():
        branch, rule = inputs[alias].branches[number], rules[alias][number]
        if rule.follow_when_idle and (branch.idle or branch_seen.idle is not None):
            continue
        for column, advance in branch_seen.advances.items():
            watermark = branch.watermarks.get(column, NEVER)
            if advance < watermark:
                advances[f"{alias}.{column}"] = RegressiveAdvance(f"{alias}.{column}", watermark, advance)
    if advances and not query.options.lenient:
        integer = {
            side.watermark_key(column.name): not unit_of_type(column.type).is_time
            for side in query.sides
            for column in side.input.columns
        }
        told = [
            f"the watermark of {key} is {shown_time(back.watermark, integer[key])}, but the advance"
            f" sets it to {shown_time(back.advance, integer[key])}"
            for key, back in sorted(advances.items())
        ]
        raise EngineError(
            f"a watermark cannot move back: {'; '.join(told)}",
            code="advance-goes-back",
            hint="SET lenient = true to ignore and report such advances",
        )
    return tuple(advances[key] for key in sorted(advances))


T = TypeVar("T")


def producer_state(query: QueryPlan, number: int) -> ReusedNodeState | None:
    """Return the producer of node ``number``; None if the node retains its rows itself."""
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
    """Return the producer of each side of a node whose rows another query retains.

    Args:
        shapes: returns the shapes of the nodes of a query, by name.
    """
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
    """Add the values of inputs that other queries read for this one, in the query's order.

    Args:
        own: the values of the query's own inputs, per alias.
        told: the values of the earlier queries.
    """
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
    """Compute the values of all queries of a job, by query name and alias.

    Args:
        told_of: returns the values of the inputs that a query reads itself.
    """
    told: dict[str, dict[str, T]] = {}
    for query in queries:
        told[query.name] = add_shared_inputs(query, told_of(query), told)
    return told


def add_shared_advances(
    query: QueryPlan, own: tuple[RegressiveAdvance, ...], told: Mapping[str, tuple[RegressiveAdvance, ...]]
) -> tuple[RegressiveAdvance, ...]:
    """Add the regressive advances of inputs that other queries read for this one, sorted by key.

    Args:
        own: the regressive advances of the query's own inputs.
        told: those of the earlier queries.
    """
    advances = {advance.key: advance for advance in own}
    for taken in query.taken:
        names = {there: alias for alias, there in taken.aliases}
        for advance in told[taken.query]:
            key = rename_key(advance.key, names)
            if key is not None:
                advances[key] = replace(advance, key=key)
    return tuple(advances[key] for key in sorted(advances))


def rename_watermarks(feed: FeedPlan, emitted: Mapping[str, Watermark]) -> Mapping[str, Watermark]:
    """Rename the output watermarks of an input node to the keys of the consumer query."""
    if feed.query is None:
        return emitted
    return {own: emitted[there] for own, there in feed.event_times if there in emitted}


def rename_key(key: str, aliases: Mapping[str, str]) -> str | None:
    """Replace the alias of a watermark key ``alias.column``; return None for an unknown alias."""
    alias = max((name for name in aliases if key.startswith(f"{name}.")), key=len, default=None)
    return None if alias is None else f"{aliases[alias]}{key.removeprefix(alias)}"


def rename_keys_to_own(watermarks: Mapping[str, Watermark], home: ReusedNodeState) -> dict[str, Watermark]:
    """Rename a producer's watermarks to the consumer's keys; drop those without one."""
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
    """Return the node that retains the rows; a producer may itself reuse another query's rows."""
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
