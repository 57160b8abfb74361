"""Rule: a query that is written otherwise than when its state was made is planned as that state is kept.

Its joins stand in the order of old (`plan.order.kept`), rows are found by the conditions of old
(`plan.order.kept_keys`), and conditions are cut as they were then (`plan.conditions.rewritten`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from watersmeet.plan.conditions.rewritten import is_plain
from watersmeet.plan.identity.described import Described, has_other_lookups
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.order.kept import Order, in_orders
from watersmeet.plan.order.kept_keys import added_conditions, with_keys_in_order, with_tested
from watersmeet.plan.passes import rerun
from watersmeet.spec.time_zones import UTC


def in_order_of(plan: QueryPlan, orders: Sequence[Order], said: Described) -> QueryPlan | None:
    """The plan with its joins in these orders, and rows found by the conditions of old; None: that is so, or
    it has other results then, or cannot be run so.

    Args:
        plan: as it is before it takes rows of others.
        said: what was described of the query when its state was made; may be empty.
    """
    if plan.asked is None:
        return None
    texts = [text for join in said.get("says", ()) for text in join["on"]]
    query = in_orders(plan.asked.query, orders)
    query = None if query is None else with_keys_in_order(query, texts, said.get("keys", ()))
    again = plan if query is None or query == plan.asked.query else _again(plan, query=query)
    again = None if again is None else _test_added(said, again, texts)
    if again is None or again is plan or again.asked is None:
        return None
    planned, joined = (
        [tuple(i.alias for i in stage.inputs) for stage in of.every]
        for of in (plan.asked.query, again.asked.query)
    )
    return replace(
        again,
        reordered=tuple(order for order in plan.reordered if order in joined),
        ordered_by_state=tuple(order for order in joined if order not in planned),
    )


def _test_added(said: Described, plan: QueryPlan, texts: Sequence[str]) -> QueryPlan:
    """Return the plan with added conditions tested on pairs, as few as let rows be found as in the state; the
    plan itself where they are found so, or cannot be."""
    asked = plan.asked
    if asked is None or said.get("keys") is None or not has_other_lookups(said, plan):
        return plan

    def testing(conditions: Collection[str]) -> QueryPlan | None:
        return _again(plan, query=with_tested(asked.query, texts, conditions))

    tested: list[str] = []
    best = plan
    for condition in added_conditions(asked.query, texts, said["keys"]):
        again = testing([*tested, condition])
        if again is not None:  # else nothing bounds the rows without it
            best, tested = again, [*tested, condition]
    if has_other_lookups(said, best):
        return plan
    for condition in tuple(tested):
        fewer = [other for other in tested if other != condition]
        if (again := testing(fewer)) is not None and not has_other_lookups(said, again):
            best, tested = again, fewer
    return best


def as_written(plan: QueryPlan) -> QueryPlan | None:
    """The plan by conditions as they are written (`FoldedQuery`); None: it is this one, or cannot be run."""
    if plan.asked is None or (plan.options.time_zone == UTC and is_plain(plan.asked.query)):
        return None
    return _again(plan, as_written=True)


def _again(plan: QueryPlan, **other: Any) -> QueryPlan | None:
    """The plan with something else about the query that is asked."""
    again = rerun(plan, "tree", **other)[0].plan
    if again is None:
        return None
    return replace(again, of_sink=plan.of_sink, of_plan=plan.of_plan, reordered=plan.reordered)
