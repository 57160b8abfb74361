"""Adapt the plan of a job to its state.

Joins run in the order in which the state stores them, queries reuse rows of other queries as the state
does, and delta joins look inputs up in an order that the stored row counts determine.

Rows that several queries need are stored once if the queries began together, whichever of them stored the
rows. A query that is added later reuses tables that an earlier query retains in the form that it needs: all
their rows are in the state, and the query receives them in its first tick (`SideWork.contents`). It makes
all other rows itself, and so does a query whose rows became the same through a change, because the earlier
rows of the other query are not in the state for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from watersmeet.errors import StateError
from watersmeet.plan.common_subplans import MayReuse, SideKey
from watersmeet.plan.delta.paths import Counts
from watersmeet.plan.model.job import JobPlan, QueryPlan, ReusedRows
from watersmeet.plan.model.nodes import ArrangePlan, CountedKey
from watersmeet.plan.planner import combine_queries, reorder_by_counts
from watersmeet.runtime.coordinator.restore.changed_queries import Change, at_new_paths
from watersmeet.runtime.coordinator.restore.join_order import restore_order
from watersmeet.runtime.coordinator.shared_inputs import side_home
from watersmeet.state.manifest import LiveRun, Manifest, NodeState

_Node = tuple[str, int]
"""Of a query, by name, one by number."""


def plan_for_state(plan: JobPlan, manifest: Manifest | None) -> JobPlan:
    """Return the plan for the state. It has to be that by which an engine reads, too."""
    if manifest is None:
        return plan
    manifest, moved = at_new_paths(manifest, plan), plan.moved
    plan, begins = _in_state_order(plan, manifest)
    if any(True for query in plan.queries for _ in _reused(query)):
        alone = frozenset[_Node]()
        kept = combine_queries(plan.apart, _may_reuse(manifest, begins))
        while more := frozenset(_made_alone(kept, begins)) - alone:
            alone |= more
            kept = combine_queries(plan.apart, _may_reuse(manifest, begins, alone))
        plan = kept
    return replace(reorder_by_counts(plan, counts_of(plan, manifest)), moved=moved)


def _in_state_order(plan: JobPlan, manifest: Manifest) -> tuple[JobPlan, Collection[str]]:
    """Return the plan with the joins of queries that resume in the state's order, and which queries begin."""
    ordered = [restore_order(manifest, query) or query for query in plan.apart]
    begins = frozenset(Change.of(manifest, JobPlan(tuple(ordered))).begins)
    queries = [query if query.name in begins else own for query, own in zip(plan.apart, ordered, strict=True)]
    is_same = all(query is own for query, own in zip(plan.apart, queries, strict=True))
    return plan if is_same else combine_queries(queries), begins


def _made_alone(plan: JobPlan, begins: Collection[str]) -> Iterator[_Node]:
    """Yield tables that a new query must retain itself, although an existing query has them.

    If the query reused them, it would get only their changes, because not all of it looks up the rows
    in the other query's state.
    """
    for query in plan.queries:
        for taken in query.taken if query.name in begins else ():
            if taken.query not in begins and _hears(query, taken):
                yield query.name, taken.number


def _hears(query: QueryPlan, taken: ReusedRows) -> bool:
    """Return True if a query receives the rows that another query produces for it, node by node."""
    feeds = [feed for node in query.nodes for side in node.sides for feed in side.feeds]
    return query.root.number == taken.number or any(
        feed.query == taken.query and feed.node == taken.node and feed.path is None for feed in feeds
    )


def check_plan_for_state(plan: JobPlan, manifest: Manifest) -> None:
    """Check that a plan is one that `plan_for_state` returns for the state.

    Raises:
        StateError: the plan reuses rows that the state does not have.
    """
    may_reuse = _may_reuse(manifest, Change.of(manifest, plan).begins)
    for query in plan.queries:
        for own, producer, more in _reused(query):
            if not may_reuse(own, producer, more):
                raise StateError(
                    f'query "{query.name}" expects stored rows of "{producer[0]}", which the state does'
                    " not have",
                    code="changed-query",
                    hint="this is a bug in watersmeet: please report it with the job and this message",
                )


def _reused(query: QueryPlan) -> Iterator[tuple[SideKey, SideKey, bool]]:
    """Yield the arguments of `MayReuse` for all that a query reuses."""
    for taken in query.taken:
        node = query.alone.nodes[taken.number]
        yield (query.name, taken.number, ""), (taken.query, taken.node, ""), not node.keeps_table
    for node in query.nodes:
        for side in node.sides:
            if (by := side.kept_by) is not None:
                yield (query.name, node.number, side.name), (by.query, by.node, by.side), False


def _may_reuse(
    manifest: Manifest, begins: Collection[str], alone: Collection[_Node] = frozenset()
) -> MayReuse:
    """Build the rule that decides which sides may reuse the state of a producer.

    Args:
        alone: tables that new queries must retain themselves.
    """

    def may_reuse(own: SideKey, producer: SideKey, more: bool) -> bool:
        if own[0] in begins:
            return producer[0] in begins or not (more or own[:2] in alone)
        if producer[0] in begins:
            return False
        return side_home(manifest, *own) == side_home(manifest, *producer)

    return may_reuse


def counts_of(plan: JobPlan, manifest: Manifest) -> dict[str, Counts]:
    """Return key counts per query with a delta join whose state has exactly this plan."""
    counts = {}
    for query in plan.queries:
        if manifest.fingerprints.get(query.name) != query.fingerprint or not query.every(ArrangePlan):
            continue
        nodes = manifest.queries[query.name].nodes
        if not any(node.producers for node in nodes):
            counts[query.name] = Counts(_count_keys(query, nodes))
    return counts


def _count_keys(query: QueryPlan, nodes: Sequence[NodeState]) -> tuple[CountedKey, ...]:
    keys = []
    for node in query.every(ArrangePlan):
        arrangements = nodes[node.number].arrangements
        for side, arranged in zip(node.sides, node.arranged, strict=True):
            runs = arrangements[side.name].runs if side.name in arrangements else []
            alias, rows = side.copy_of or side.name, sum(live.stored for live in runs)
            for number, columns in enumerate(arranged.every):
                keys.append(
                    CountedKey(alias, columns, rows, _rows_per_key(runs, number, len(arranged.every)))
                )
    return tuple(keys)


def _rows_per_key(runs: Sequence[LiveRun], key: int, keys: int) -> float:
    """Estimate how many rows of one run share a key, averaged over all rows.

    Args:
        key: the position of the key.
        keys: the number of keys. Runs with another number were written for another query, by other
            keys; then the result is the number of rows.
    """
    rows = sum(live.run.rows for live in runs)
    if not rows or any(len(live.run.keys) != keys for live in runs):
        return float(rows)
    return sum(live.run.rows**2 / live.run.keys[key] for live in runs) / rows
