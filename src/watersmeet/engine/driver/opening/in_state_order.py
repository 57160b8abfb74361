"""Queries whose joins or equalities stand in another order than when their state was made: as planned in
that order (`plan.order.kept`). Then all that the state has by sides and by numbers of nodes is where it was.
"""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.names import is_node_alias, is_ours, node_alias
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.order.kept import Order
from watersmeet.plan.planner import in_order_of
from watersmeet.state.manifest import Manifest, QueryState


def in_state_order(manifest: Manifest, query: QueryPlan) -> QueryPlan | None:
    """The query with its joins in the state's order; None: they are, or cannot be.

    Args:
        query: as it is before it takes rows of others.
    """
    if manifest.fingerprints.get(query.name) in (None, query.fingerprint):
        return None
    said = manifest.described.get(query.name, {})
    texts = [text for join in said.get("says", ()) for text in join["on"]]
    return in_order_of(query, state_orders(manifest, query.name), texts, said.get("keys", ()))


def state_orders(manifest: Manifest, name: str) -> list[Order]:
    """How the joins of a query, and of its stages, stood when it ran last."""
    written = manifest.described.get(name, {}).get("order")
    return list(_by_sides(manifest.queries[name])) if written is None else list(written)


def _by_sides(state: QueryState) -> Iterator[Order]:
    """The same by how the sides of its nodes are called: nobody wrote it down."""
    rows: dict[str, Order] = {}
    for number, node in enumerate(state.nodes):
        names = [*(node.elsewhere.sides if node.elsewhere else node.arrangements), *node.kept_by]
        sides = [name for name in dict.fromkeys(names) if not is_ours(name)]  # without copies
        if not sides or any(is_node_alias(name.partition(".")[0]) and name not in rows for name in sides):
            continue  # a step of a delta join, by paths: its inputs are sides of the arrangements
        order, *others = [rows.get(name, name) for name in sides]
        for other in others:
            order = [order, other]
        rows[node_alias(number)] = order
        if others:
            yield order
