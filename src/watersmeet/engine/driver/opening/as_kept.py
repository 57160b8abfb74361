"""Which rows queries take of others, in a job that has state: as that is kept.

What several queries need is kept once from the time on when they began together, whoever of them it was that
kept it. A query that comes later, or whose rows came to be the same by a change, makes its own: others' rows
from before would not be there for it.
"""

from __future__ import annotations

from watersmeet.engine.driver.opening.changed_queries import Change
from watersmeet.engine.driver.opening.moved import home_of
from watersmeet.errors import StateError
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import taking
from watersmeet.plan.taken import MayTake
from watersmeet.state.manifest import Manifest


def as_kept(plan: JobPlan, manifest: Manifest | None) -> JobPlan:
    """The plan for the state. It has to be that by which an engine reads, too."""
    if manifest is None or not any(query.taken for query in plan.queries):
        return plan
    return taking(plan, _may_take(plan, manifest))


def check_as_kept(plan: JobPlan, manifest: Manifest) -> None:
    """Raises: StateError, when the plan is none that `as_kept` gives."""
    may_take = _may_take(plan, manifest)
    for query in plan.queries:
        for taken in query.taken:
            if not may_take(query.name, taken.number, taken.query, taken.node):
                raise StateError(
                    f'query "{query.name}" was to take rows of "{taken.query}" that are not there for it',
                    code="changed-query",
                    hint="this is a bug of watersmeet: please report it, with the job and this message",
                )


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
