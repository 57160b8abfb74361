"""Restore the order of a query's joins and equalities from its state.

The state stores data by side and node number; in this order, the plan expects it where it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.names import is_node_alias, is_ours, node_alias
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.query_evolution import Order, plan_in_state_order
from watersmeet.state.manifest import Manifest, QueryState


def restore_order(manifest: Manifest, query: QueryPlan) -> QueryPlan | None:
    """Return a changed query with its joins in the state's order; None where they are, or cannot be.

    Args:
        query: as it is before it takes rows of others.
    """
    if manifest.fingerprints.get(query.name) in (None, query.fingerprint):
        return None
    orders = _stored_orders(manifest, query.name)
    return plan_in_state_order(query, orders, manifest.described.get(query.name, {}))


def _stored_orders(manifest: Manifest, name: str) -> list[Order]:
    """Return how the joins of a query, and of its stages, stood when it ran last."""
    written = manifest.described.get(name, {}).get("order")
    return list(_by_sides(manifest.queries[name])) if written is None else list(written)


def _by_sides(state: QueryState) -> Iterator[Order]:
    """Yield them by the names of the sides of nodes: the state does not say more."""
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
