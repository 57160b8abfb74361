"""Where the state of nodes is that rest, because another query's make the same rows, and of sides that go by
another query's arrangements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.state.manifest import ElsewhereState, KeptByState


def elsewhere(query: QueryPlan, number: int) -> ElsewhereState | None:
    """Of node ``number``; None: it keeps its rows itself."""
    for taken in query.taken:
        for node in taken.nodes:
            if node.number == number:
                return ElsewhereState(
                    query=taken.query,
                    node=node.node,
                    sides=dict(node.sides),
                    aliases=dict(taken.aliases),
                )
    return None


def kept_by(node: NodePlan, shapes: Callable[[str], Sequence[NodeShape]]) -> dict[str, KeptByState]:
    """Per side of a node that another query keeps. ``shapes``: the nodes of a query by name."""
    return {
        side.name: KeptByState(
            query=by.query,
            node=by.node,
            side=by.side,
            held=next(own.held for own in shapes(by.query)[by.node].sides if own.name == by.side),
        )
        for side in node.sides
        if (by := side.kept_by) is not None
    }
