"""Rule: a query whose joins stand in another order than when its state was made is run in that one.

Rows are kept per side, and joined rows by which inputs they are of; so the order of old has what the state
has. It has the same results where it differs from the query's

* in which side of a join is the left one: of INNER and FULL joins, of LEFT ones that were RIGHT ones, and
  the other way round;
* in which of the inner joins that stand together are made first.

SEMI, ANTI and ASOF joins keep their sides, joins with a table as of the tick their place, and outer joins
what is beneath them. Where more has changed, the query is none that the state is of, in whatever order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.plan.order.reorder import is_inner, own_conditions, parts_of, with_stages_changed
from watersmeet.spec.model import (
    Input,
    Join,
    JoinKind,
    Query,
    Relation,
    with_inputs,
)

Order: TypeAlias = "str | Sequence[Order]"
"""How joins stand, as JSON can say it: an alias, or what is left and what is right. Tables as of the tick are
not in it."""

_MIRRORED: Mapping[JoinKind, JoinKind] = {
    JoinKind.INNER: JoinKind.INNER,
    JoinKind.FULL: JoinKind.FULL,
    JoinKind.LEFT: JoinKind.RIGHT,
    JoinKind.RIGHT: JoinKind.LEFT,
}


class _OtherJoinsError(Exception):
    """The joins cannot stand so."""


def orders_of(query: Query) -> list[Order]:
    """How the joins of the query, and of each of its stages, stand."""
    return [_order(stage.relation) for stage in query.every]


def in_orders(query: Query, orders: Sequence[Order]) -> Query | None:
    """The query with its joins, and those of its stages, in these orders; None: it has other results then, or
    other inputs."""
    by_inputs = {aliases_in(order): order for order in orders}
    try:
        return _in_orders(query, by_inputs)
    except _OtherJoinsError:
        return None


def aliases_in(order: Order) -> frozenset[str]:
    if isinstance(order, str):
        return frozenset([order])
    return frozenset(alias for part in order for alias in aliases_in(part))


def shown_order(order: Order) -> str:
    """For people."""
    return order if isinstance(order, str) else f"({', '.join(map(shown_order, order))})"


def joined_in(orders: Sequence[Order]) -> Iterator[frozenset[str]]:
    """The inputs of each join."""
    for order in orders:
        if not isinstance(order, str):
            yield aliases_in(order)
            yield from joined_in(order)


def _order(relation: Relation) -> Order:
    if isinstance(relation, Input):
        return relation.alias
    return _order(relation.left) if relation.is_lookup else [_order(relation.left), _order(relation.right)]


def _in_orders(query: Query, orders: Mapping[frozenset[str], Order]) -> Query:
    relation, names = query.relation, aliases_in(_order(query.relation))
    if isinstance(relation, Join) and len(names) > 1:
        if names not in orders:
            raise _OtherJoinsError
        relation = _in_order(relation, orders[names])

    def with_stages(i: Input) -> Input:
        return with_stages_changed(i, lambda stage: _in_orders(stage, orders))

    return replace(query, relation=with_inputs(relation, with_stages))


def _in_order(relation: Relation, order: Order) -> Relation:
    """Raises: _OtherJoinsError."""
    if isinstance(relation, Input):
        if order != relation.alias:
            raise _OtherJoinsError
        return relation
    if relation.is_lookup:
        return replace(relation, left=_in_order(relation.left, order))
    if isinstance(order, str):
        raise _OtherJoinsError
    left, right = order
    beneath = [aliases_in(_order(side)) for side in (relation.left, relation.right)]
    asked = [aliases_in(left), aliases_in(right)]
    if beneath == asked:
        return replace(relation, left=_in_order(relation.left, left), right=_in_order(relation.right, right))
    if beneath == asked[::-1] and relation.kind in _MIRRORED:
        return replace(
            relation,
            kind=_MIRRORED[relation.kind],
            left=_in_order(relation.right, left),
            right=_in_order(relation.left, right),
        )
    if not is_inner(relation):
        raise _OtherJoinsError
    return _of_parts(relation, order)


def _of_parts(top: Join, order: Order) -> Join:
    """Inner joins that stand together, each made of other ones."""
    parts = {aliases_in(_order(part)): part for part in parts_of(top)}

    def built(of: Order) -> Relation:
        part = parts.get(aliases_in(of))
        if part is not None:
            return _in_order(part, of)
        if isinstance(of, str):
            raise _OtherJoinsError
        left, right = of
        return Join(built(left), built(right), JoinKind.INNER, None, plan=top.plan)

    joined = built(order)
    assert isinstance(joined, Join)
    return replace(joined, where=join_all(own_conditions(top)))  # from where each sinks to its join
