"""The order of inner joins that the measured rates would have produced, had they been declared.

It is reported, never applied: a plan that followed measurements could not read the state of the run that
made them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import MatchPlan
from watersmeet.plan.model.sides import BranchPlan, FeedPlan
from watersmeet.plan.order.forecast import MeasuredSide, Order, side_forecasts, state_bytes
from watersmeet.plan.planner import plan_query
from watersmeet.spec.model import (
    Branch,
    Input,
    Insert,
    Options,
    PlanChoice,
    Query,
    Source,
    StageBranch,
    with_inputs,
)

MAX_SUGGESTED_RATIO = 0.8
"""What another order keeps at most of what this one does."""


def other_orders(
    insert: Insert, options: Options, plan: QueryPlan, measured: Mapping[str, MeasuredSide]
) -> tuple[Order, ...]:
    """Return join orders of the query and its stages that would retain less than ``plan``.

    The result is empty where the rates of an order are unknown, or where the user requests the query's
    order.

    Args:
        plan: Plan of ``insert``.
    """
    rates = _rates(plan, measured)
    if options.plan is not PlanChoice.AUTO or not rates:
        return ()
    other = plan_query(insert.name, insert.sink, _query_with_rates(insert.query, rates), options)
    own = _plan_with_rates(plan, rates)
    orders = []
    told = (*other.reordered, *plan.reordered, *plan.ordered_by_state)
    for aliases in dict.fromkeys(map(frozenset, told)):
        order = _order(other, aliases)
        keeps, instead_of = state_bytes(other, aliases), state_bytes(own, aliases)
        if order == _order(own, aliases) or keeps is None or instead_of is None:
            continue
        if keeps < MAX_SUGGESTED_RATIO * instead_of:
            used = {source.name for source in _sources(other, aliases)}
            shown = {name: rate for name, rate in rates.items() if name in used}
            orders.append(Order(order, shown, keeps, instead_of))
    return tuple(orders)


def _rates(plan: QueryPlan, measured: Mapping[str, MeasuredSide]) -> dict[str, float]:
    """Return the measured rows per second by source.

    A source that several inputs read has the highest of their rates.
    """
    rates: dict[str, float] = {}
    for _, both in side_forecasts(plan, measured):
        for forecast in both:
            if (
                forecast.pace is None
                or not forecast.in_time
                or len(forecast.side.branches) != 1
                or forecast.side.stages
            ):
                continue
            ((_, branch),) = forecast.side.sources
            if not branch.source.traits.own_rate:  # its rate is what it makes
                rows, span = forecast.pace
                rate = rows * 1_000_000 / span
                rates[branch.source.name] = max(rate, rates.get(branch.source.name, 0.0))
    return {name: rate for name, rate in rates.items() if rate > 0}


def _order(plan: QueryPlan, aliases: frozenset[str]) -> tuple[str, ...]:
    """Return these inputs in the order in which the plan joins them."""
    joined = (i.alias for node in plan.every(MatchPlan) for s in node.sides for i in s.inputs)
    return tuple(dict.fromkeys(alias for alias in joined if alias in aliases))


def _sources(plan: QueryPlan, aliases: frozenset[str]) -> list[Source]:
    sides = [side for side in plan.sides if side.name in aliases]
    return [branch.source for side in sides for _, branch in side.sources]


def _with_rate(source: Source, rates: Mapping[str, float]) -> Source:
    return replace(source, rows_per_second=rates.get(source.name, source.rows_per_second))


def _plan_with_rates(plan: QueryPlan, rates: Mapping[str, float]) -> QueryPlan:
    """Return the plan as if its sources declared these rates."""

    def branch(planned: BranchPlan | FeedPlan) -> BranchPlan | FeedPlan:
        return (
            replace(planned, source=_with_rate(planned.source, rates))
            if isinstance(planned, BranchPlan)
            else planned
        )

    nodes = [
        replace(node, sides=tuple(replace(s, branches=tuple(map(branch, s.branches))) for s in node.sides))
        for node in plan.nodes
    ]
    return replace(plan, nodes=tuple(nodes))


def _query_with_rates(query: Query, rates: Mapping[str, float]) -> Query:
    """Return the query as if its sources declared these rates."""

    def branch(written: Branch | StageBranch) -> Branch | StageBranch:
        if isinstance(written, StageBranch):
            return replace(written, stage=_query_with_rates(written.stage, rates))
        return replace(written, source=_with_rate(written.source, rates))

    def declare_rates(i: Input) -> Input:
        return replace(i, branches=tuple(map(branch, i.branches)))

    return replace(query, relation=with_inputs(query.relation, declare_rates))
