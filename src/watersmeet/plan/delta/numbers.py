"""The numbers of nodes, where a delta join has more of them than the joins in whose place it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import singledispatch

from watersmeet.names import node_alias
from watersmeet.plan.model.delta import DeltaPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import FeedPlan, SidePlan

_ADDED = 1_000_000
_STEPS = 1_000


def provisional(root: int, step: int) -> int:
    """Of a node that comes before node ``root``, after all that come before that one."""
    return _ADDED + root * _STEPS + step


def in_order(nodes: Sequence[NodePlan]) -> tuple[NodePlan, ...]:
    """The nodes, each after those beneath it, with their places as numbers."""
    ordered = sorted(nodes, key=_place)
    numbers = {node.number: place for place, node in enumerate(ordered)}
    if all(number == place for number, place in numbers.items()):
        return tuple(ordered)
    return tuple(_renumbered(node, numbers) for node in ordered)


def _place(node: NodePlan) -> tuple[int, int]:
    if node.number < _ADDED:
        return node.number, _STEPS
    return divmod(node.number - _ADDED, _STEPS)


@singledispatch
def _renumbered(node: NodePlan, numbers: Mapping[int, int]) -> NodePlan:
    sides = tuple(_side(side, numbers) for side in node.sides)
    return replace(node, number=numbers[node.number], sides=sides)


@_renumbered.register
def _(node: DeltaPlan, numbers: Mapping[int, int]) -> NodePlan:
    sides = tuple(_side(side, numbers) for side in node.sides)
    lookups = tuple(
        replace(lookup, join=replace(lookup.join, sides=(side, lookup.join.right)))
        for lookup, side in zip(node.lookups, sides, strict=True)
    )
    return replace(
        node,
        number=numbers[node.number],
        sides=sides,
        arrangements=numbers[node.arrangements],
        lookups=lookups,
        met=tuple(_side(side, numbers) for side in node.met),
    )


def _side(side: SidePlan, numbers: Mapping[int, int]) -> SidePlan:
    branches = tuple(
        _feed(branch, numbers) if isinstance(branch, FeedPlan) else branch for branch in side.branches
    )
    if side.feed is None:
        return replace(side, branches=branches)
    feed = _feed(side.feed, numbers)
    name = node_alias(feed.node) + ("" if feed.path is None else f".{feed.path + 1}")
    return replace(side, branches=branches, feed=feed, name=name)


def _feed(feed: FeedPlan, numbers: Mapping[int, int]) -> FeedPlan:
    return replace(feed, node=numbers[feed.node])
