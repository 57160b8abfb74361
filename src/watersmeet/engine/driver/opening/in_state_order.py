"""Queries whose joins or equalities stand in another order than when their state was made: as planned in
that order (`plan.order.kept`). Then all that the state has by sides and by numbers of nodes is where it was.
So it is of a state that was made by conditions as they are written (`plan.conditions.rewritten`).
"""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.names import is_node_alias, is_ours, node_alias
from watersmeet.plan.identity.described import described, hindrance
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.order.kept import Order
from watersmeet.plan.query_evolution import as_written, in_order_of
from watersmeet.state.manifest import Manifest, QueryState


def in_state_order(manifest: Manifest, query: QueryPlan) -> QueryPlan | None:
    """The query with its joins in the state's order; None: they are, or cannot be.

    Args:
        query: as it is before it takes rows of others.
    """
    if manifest.fingerprints.get(query.name) in (None, query.fingerprint):
        return None
    own = _in_order(manifest, query)
    written = as_written(query)
    if written is None:
        return own
    written = _in_order(manifest, written) or written
    return written if _fits_better(manifest, written, own or query) else own


def orders_of(manifest: Manifest, query: QueryPlan) -> Iterator[QueryPlan]:
    """Yield the query as it is, and as `in_state_order` may give it."""
    for one in (query, as_written(query)):
        if one is not None:
            yield one
            ordered = _in_order(manifest, one)
            if ordered is not None:
                yield ordered


def _in_order(manifest: Manifest, query: QueryPlan) -> QueryPlan | None:
    said = manifest.described.get(query.name, {})
    return in_order_of(query, state_orders(manifest, query.name), said)


def _fits_better(manifest: Manifest, one: QueryPlan, other: QueryPlan) -> bool:
    """Whether the state is that of ``one``, or can be, and not of ``other``."""
    state, said = manifest.fingerprints[one.name], manifest.described.get(one.name)
    if state in (one.fingerprint, other.fingerprint) or not said:
        return other.fingerprint != state == one.fingerprint
    return not hindrance(said, described(one)) and bool(hindrance(said, described(other)))


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
