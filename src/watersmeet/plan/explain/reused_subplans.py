"""EXPLAIN: which rows one query makes, or keeps, for others of the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from watersmeet.plan.explain.wording import node_name, title_of
from watersmeet.plan.model.job import QueryPlan


def reuse_lines(query: QueryPlan, queries: Sequence[QueryPlan]) -> Iterator[str]:
    """Yield what other queries make for this query, and what it makes for others."""
    for taken in query.taken:
        yield f"{_node_label(query, taken.number)}: {taken.query} makes and keeps them"
    makes: dict[int, list[str]] = {}
    for other in queries:
        for taken in other.taken:
            if taken.query == query.name:
                makes.setdefault(taken.node, []).append(other.name)
    for number in sorted(makes):
        yield f"{_node_label(query, number)}: for {', '.join(dict.fromkeys(makes[number]))}, too"
    yield from _shared_input_lines(query, queries)


def _shared_input_lines(query: QueryPlan, queries: Sequence[QueryPlan]) -> Iterator[str]:
    """Yield the inputs of delta joins that one query retains for several."""
    keeps: dict[str, list[str]] = {}
    for other in queries:
        for side in (side for node in other.nodes for side in node.sides):
            if side.kept_by is None or side.copy_of is not None:
                continue
            if other.name == query.name:
                yield f"{side.title}: {side.kept_by.query} keeps them, as {side.kept_by.alias}"
            elif side.kept_by.query == query.name:
                keeps.setdefault(side.kept_by.alias, []).append(f"{other.name}'s {side.title}")
    for alias, others in keeps.items():
        yield f"{alias}: for {', '.join(others)}, too"
    if query.is_index and not keeps:
        yield "no query of the job looks them up so far"


def _node_label(query: QueryPlan, number: int) -> str:
    node = query.nodes[number]
    return f"{node_name(query, node)} ({title_of(node)})"
