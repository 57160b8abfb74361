"""The plan of a job that has state: which rows queries take of others as that is kept, and in which order
delta joins look inputs up by what is counted there.

What several queries need is kept once from the time on when they began together, whoever of them it was that
kept it. A query that comes later, or whose rows came to be the same by a change, makes its own: others' rows
from before would not be there for it.
"""

from __future__ import annotations

from watersmeet.engine.driver.opening.changed_queries import Change
from watersmeet.engine.driver.opening.counted import counts_of
from watersmeet.engine.driver.opening.moved import home_of, side_home
from watersmeet.errors import StateError
from watersmeet.plan.arranged import MayShare, SideKey
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.planner import in_counted_order, taking
from watersmeet.plan.taken import MayTake
from watersmeet.state.manifest import Manifest


def as_kept(plan: JobPlan, manifest: Manifest | None) -> JobPlan:
    """The plan for the state. It has to be that by which an engine reads, too."""
    if manifest is None:
        return plan
    if any(query.taken or _kept_by(query) for query in plan.queries):
        plan = taking(plan, _may_take(plan, manifest), _may_share(plan, manifest))
    return in_counted_order(plan, counts_of(plan, manifest))


def check_as_kept(plan: JobPlan, manifest: Manifest) -> None:
    """Raises: StateError, when the plan is none that `as_kept` gives."""
    may_take, may_share = _may_take(plan, manifest), _may_share(plan, manifest)
    for query in plan.queries:
        makers = [
            taken.query
            for taken in query.taken
            if not may_take(query.name, taken.number, taken.query, taken.node)
        ]
        makers += [kept[0] for own, kept in _kept_by(query) if not may_share(own, kept)]
        if makers:
            raise StateError(
                f'query "{query.name}" was to take rows of "{makers[0]}" that are not there for it',
                code="changed-query",
                hint="this is a bug of watersmeet: please report it, with the job and this message",
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

    def may_share(own: SideKey, other: SideKey) -> bool:
        if own[0] in begins or other[0] in begins:
            return own[0] in begins and other[0] in begins
        return side_home(manifest, *own) == side_home(manifest, *other)

    return may_share


def _may_take(plan: JobPlan, manifest: Manifest) -> MayTake:
    begins = Change.of(manifest, plan).begins

    def home(query: str, number: int) -> tuple[str, int]:
        elsewhere = manifest.queries[query].nodes[number].elsewhere
        if elsewhere is None:
            return query, number
        kept = home_of(manifest, elsewhere)
        return kept.query, kept.node

    def may_take(query: str, node: int, other: str, there: int) -> bool:
        if query in begins or other in begins:
            return query in begins and other in begins
        return home(query, node) == home(other, there)

    return may_take
