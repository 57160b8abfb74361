"""The plan of a job that has state: joins in the order in which that is kept, which rows queries take of
others as that is kept, and in which order delta joins look inputs up by what is counted there.

What several queries need is kept once from the time on when they began together, whoever of them it was that
kept it. A query that comes later goes by tables that one before keeps as it needs them, for all of their rows
are there, and come to it in its first tick (`SideWork.contents`). It makes all other rows itself, and so does
one whose rows came to be the same by a change: others' rows from before would not be there for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from watersmeet.engine.driver.opening.changed_queries import Change
from watersmeet.engine.driver.opening.counted import counts_of
from watersmeet.engine.driver.opening.in_state_order import in_state_order
from watersmeet.engine.driver.opening.moved import home_of, side_home
from watersmeet.engine.driver.opening.moved_paths import at_new_paths
from watersmeet.errors import StateError
from watersmeet.plan.arranged import MayShare, SideKey
from watersmeet.plan.model.job import JobPlan, QueryPlan, Taken
from watersmeet.plan.model.nodes import SnapshotPlan, UpsertPlan
from watersmeet.plan.planner import in_counted_order, of_queries
from watersmeet.plan.taken import MayTake
from watersmeet.state.manifest import Manifest

_Node = tuple[str, int]
"""Of a query, by name, one by number."""


def as_kept(plan: JobPlan, manifest: Manifest | None) -> JobPlan:
    """The plan for the state. It has to be that by which an engine reads, too."""
    if manifest is None:
        return plan
    manifest, moved = at_new_paths(manifest, plan), plan.moved
    plan = _in_state_order(plan, manifest)
    if any(query.taken or _kept_by(query) for query in plan.queries):
        alone = frozenset[_Node]()
        while True:
            kept = of_queries(plan.apart, _may_take(plan, manifest, alone), _may_share(plan, manifest))
            makes = alone.union(_made_alone(kept, manifest))
            if makes == alone:
                break
            alone = makes
        plan = kept
    return replace(in_counted_order(plan, counts_of(plan, manifest)), moved=moved)


def _in_state_order(plan: JobPlan, manifest: Manifest) -> JobPlan:
    """The queries that go on with their state, with their joins in its order."""
    by_state = {
        query.name: other for query in plan.apart if (other := in_state_order(manifest, query)) is not None
    }
    while by_state:
        ordered = of_queries([by_state.get(query.name, query) for query in plan.apart])
        begins = by_state.keys() & Change.of(manifest, ordered).begins
        if not begins:
            return ordered
        by_state = {name: query for name, query in by_state.items() if name not in begins}
    return plan


def _made_alone(plan: JobPlan, manifest: Manifest) -> Iterator[_Node]:
    """Tables that a query which comes takes of one that was there before, and whose changes alone would reach
    it: not all of it looks their rows up where they are kept."""
    begins = Change.of(manifest, plan).begins
    for query in plan.queries:
        for taken in query.taken if query.name in begins else ():
            if taken.query not in begins and _hears(query, taken):
                yield query.name, taken.number


def _hears(query: QueryPlan, taken: Taken) -> bool:
    """Whether a query is told of the rows that another one makes for it, node by node."""
    feeds = [feed for node in query.nodes for side in node.sides for feed in side.feeds]
    return query.root.number == taken.number or any(
        feed.query == taken.query and feed.node == taken.node and feed.path is None for feed in feeds
    )


def check_as_kept(plan: JobPlan, manifest: Manifest) -> None:
    """Raises: StateError, when the plan is none that `as_kept` gives."""
    may_take, may_share = _may_take(plan, manifest, frozenset()), _may_share(plan, manifest)
    for query in plan.queries:
        makers = [
            taken.query
            for taken in query.taken
            if not may_take(query.name, taken.number, taken.query, taken.node)
        ]
        makers += [kept[0] for own, kept in _kept_by(query) if not may_share(own, kept, False)]
        if makers:
            raise StateError(
                f'query "{query.name}" expects stored rows of "{makers[0]}" that the state does not have',
                code="changed-query",
                hint="this is a bug in watersmeet: please report it with the job and this message",
            )


def _kept_by(query: QueryPlan) -> list[tuple[SideKey, SideKey]]:
    """The sides that go by what others keep, with those."""
    return [
        ((query.name, node.number, side.name), (side.kept_by.query, side.kept_by.node, side.kept_by.side))
        for node in query.nodes
        for side in node.sides
        if side.kept_by is not None
    ]


def _may_share(plan: JobPlan, manifest: Manifest) -> MayShare:
    begins = Change.of(manifest, plan).begins

    def may_share(own: SideKey, other: SideKey, more: bool) -> bool:
        if own[0] in begins:
            return other[0] in begins or not more
        if other[0] in begins:
            return False
        return side_home(manifest, *own) == side_home(manifest, *other)

    return may_share


def _may_take(plan: JobPlan, manifest: Manifest, alone: frozenset[_Node]) -> MayTake:
    """``alone``: what queries that come have to make themselves."""
    begins = Change.of(manifest, plan).begins
    tables = {
        (query.name, node.number)
        for query in plan.apart
        for node in (*query.every(UpsertPlan), *query.every(SnapshotPlan))
    }

    def home(query: str, number: int) -> tuple[str, int]:
        elsewhere = manifest.queries[query].nodes[number].elsewhere
        if elsewhere is None:
            return query, number
        kept = home_of(manifest, elsewhere)
        return kept.query, kept.node

    def may_take(query: str, node: int, other: str, there: int) -> bool:
        if query in begins:
            is_beside = (query, node) in tables and (query, node) not in alone
            return other in begins or is_beside
        if other in begins:
            return False
        return home(query, node) == home(other, there)

    return may_take
