"""Rows are shed where that is right, and else it is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch

from watersmeet.errors import PlanError
from watersmeet.plan.model.nodes import JoinPlan, LookupPlan, NodePlan, PassPlan, RestPlan
from watersmeet.spec.job_options import SHEDDING
from watersmeet.spec.model import AtLimit, Options


def check_shedding(nodes: Sequence[NodePlan], query: str, options: Options) -> list[PlanError]:
    """Of a plan with ``at_limit`` that says which rows are to be shed."""
    if not options.at_limit.sheds:
        return []
    setting = f"at_limit = {options.at_limit.value}"
    if all(getattr(options, limit) is None for limit in SHEDDING):
        return [
            PlanError(
                f"{setting}, and there is no limit at which rows would be shed",
                code="bad-setting",
                hint="SET max_rows, max_bytes or max_rows_per_key to what a join may keep; all other limits"
                " stop the job",
            )
        ]
    return [
        PlanError(
            f'{setting}: "{query}" {why}',
            code="not-shed",
            hint="leave at_limit out, or put the query into a job of its own",
        )
        for why in dict.fromkeys(why for node in nodes for why in _why_not(node, options))
    ]


def _why_not(node: NodePlan, options: Options) -> Iterator[str]:
    if node.changes:
        yield "puts out changes: what a shed row has put out would have to be taken back"
    else:
        yield from _problems(node, options)


@singledispatch
def _problems(node: NodePlan, options: Options) -> Iterator[str]:
    """Of a node of which rows are final."""
    yield f"keeps rows for {node.noun}, and only those of joins of two streams are shed"


@_problems.register(LookupPlan)
@_problems.register(PassPlan)
@_problems.register(RestPlan)
def _of_none(node: NodePlan, options: Options) -> Iterator[str]:
    """It keeps none."""
    yield from ()


@_problems.register
def _(node: JoinPlan, options: Options) -> Iterator[str]:
    if node.asof is not None:
        yield "has an ASOF join, which might take a row that is further away for one that was shed"
    elif any(not _goes_by_time(node, number) for number in range(2)):
        yield "keeps a table for good, whose rows would be missed by all rows to come"
    elif options.at_limit is AtLimit.SHED_OLDEST and node.matchable and node.ages is None:
        other = "; shed_heaviest does" if node.keys and not node.by_value else ""
        yield f"has sides whose rows go by times that it does not compare, so none are the oldest{other}"
    elif options.at_limit is AtLimit.SHED_HEAVIEST and (not node.keys or node.by_value):
        yield "has a join without an equality key, so no key is the heaviest; shed_oldest does"


def _goes_by_time(node: JoinPlan, number: int) -> bool:
    """Whether some bound releases the rows of a side, or none are kept."""
    side = node.sides[number]
    own = {side.watermark_key(column) for column in side.event_times}
    return not node.matchable or any(bound.evicted in own for bound in node.bounds)
