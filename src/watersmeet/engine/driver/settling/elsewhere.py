"""Where the state of nodes is that rest, because another query's make the same rows."""

from __future__ import annotations

from watersmeet.plan.model.job import QueryPlan
from watersmeet.state.manifest import ElsewhereState


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
