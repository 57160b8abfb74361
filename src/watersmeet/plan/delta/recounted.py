"""Rule: a job that has state may look inputs up in another order, by what was counted of them.

What is stored has to be as it was: a query is planned again with the counts, and where any node but the
look-ups would be another one, fewer of its paths go by them, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import singledispatch

from watersmeet.plan.delta.counted import Counts
from watersmeet.plan.model.delta import DeltaPlan
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import NodePlan

Again = Callable[[QueryPlan, Counts], QueryPlan | None]
"""The query planned again by counts; None: that cannot be done."""


def by_counts(plan: JobPlan, counts: Mapping[str, Counts], again: Again) -> JobPlan:
    """``counts``: per query. Queries that make or keep rows for others, or go by those of others, stay as
    they are."""
    makers = {taken.query for query in plan.queries for taken in query.taken}
    queries = tuple(
        _by_counts(query, counts[query.name], again)
        if query.name in counts and query.name not in makers and not query.taken and query.complete is None
        else query
        for query in plan.queries
    )
    return replace(plan, queries=queries)


def _by_counts(query: QueryPlan, counts: Counts, again: Again) -> QueryPlan:
    query = replace(query, counted=counts.keys)
    starts = [start for step in query.every(DeltaPlan) if step.is_last for start in step.path_names]
    other = again(query, counts)
    if other is not None and _keeps_the_same(query, other):
        return _with_nodes(query, other)
    chosen, best = list[str](), query
    for start in starts:
        other = again(query, counts.only([*chosen, start]))
        if other is not None and _keeps_the_same(query, other):
            chosen.append(start)
            best = _with_nodes(query, other)
    return best


def _with_nodes(query: QueryPlan, other: QueryPlan) -> QueryPlan:
    return query if other.nodes == query.nodes else replace(query, nodes=other.nodes, uncounted=query.nodes)


def _keeps_the_same(query: QueryPlan, other: QueryPlan) -> bool:
    """All nodes are the same but for which inputs paths look up when."""
    return list(map(_in_any_order, query.nodes)) == list(map(_in_any_order, other.nodes))


@singledispatch
def _in_any_order(node: NodePlan) -> object:
    """What is the same of a node in whatever order paths look inputs up."""
    return node


@_in_any_order.register
def _(node: DeltaPlan) -> object:
    rows = frozenset(column.name for column in node.columns) if node.is_last else None
    return rows, node.number, node.arrangements, node.keys, node.path_names, node.is_last
