"""Rows are shed where that is right, and else it is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch

from watersmeet.errors import PlanError
from watersmeet.plan.join_inputs import unit_of_type
from watersmeet.plan.limited import is_limited, limited_sources, sides_of
from watersmeet.plan.model.delta import ArrangePlan, DeltaPlan
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import GroupedPlan, JoinPlan, LookupPlan, NodePlan, PassPlan, RestPlan
from watersmeet.spec.job_options import SHEDDING, SHEDDING_OF_JOB
from watersmeet.spec.model import AtLimit, Job, Options

_HINT = "remove at_limit, so that the limit stops the job, or run the query in a job of its own"


def check_some_limit(job: Job) -> list[PlanError]:
    """There is a limit at which rows are shed, if they are to be."""
    options = job.options
    limits = (getattr(options, limit) for limit in (*SHEDDING, *SHEDDING_OF_JOB))
    if not options.at_limit.sheds or any(limit is not None for limit in limits):
        return []
    queries = (query for insert in job.inserts for query in insert.query.every)
    inputs = (i for query in queries for i in query.inputs if not i.as_of)
    if any(is_limited(source) for i in inputs for source in i.sources):
        return []
    return [
        PlanError(
            f"{_setting(options)} needs a limit, but none is set",
            code="bad-setting",
            hint="SET max_rows, max_bytes or max_rows_per_key for each join, max_job_rows or"
            " max_job_bytes for the job, or 'max_rows' or 'max_bytes' of a source",
        )
    ]


def check_shedding(nodes: Sequence[NodePlan], query: str, options: Options) -> list[PlanError]:
    """Of the nodes of a query with ``at_limit`` that says which rows are to be shed."""
    of_all = any(getattr(options, limit) is not None for limit in (*SHEDDING, *SHEDDING_OF_JOB))
    if not options.at_limit.sheds or not (of_all or limited_sources(nodes)):
        return []
    return [
        PlanError(f'{_setting(options)}: "{query}" {why}', code="not-shed", hint=_HINT)
        for why in dict.fromkeys(why for node in nodes for why in _why_not(node, options))
    ]


def check_shed_together(queries: Sequence[QueryPlan]) -> list[PlanError]:
    """Of rows that several joins keep together the oldest are told by their times: so these are all of one
    unit."""
    options = queries[0].options if queries else Options()
    if options.at_limit is not AtLimit.SHED_OLDEST:
        return []
    every = [node for query in queries for node in query.nodes]
    together = [(limit, every) for limit in SHEDDING_OF_JOB if getattr(options, limit) is not None]
    together += [
        (f'the limit of "{source.name}"', [node for node in every if sides_of(node, source.name)])
        for source in limited_sources(every)
    ]
    return [
        PlanError(
            f"{_setting(options)}: {limit} covers rows with integer times and rows with TIMESTAMPs, so"
            " the oldest row is undefined",
            code="not-shed",
            hint="use shed_heaviest, or run queries with different kinds of times in different jobs",
        )
        for limit, nodes in together
        if {_in_time(node, node.ages[0]) for node in nodes if node.ages is not None} >= {True, False}
    ]


def _setting(options: Options) -> str:
    return f"at_limit = {options.at_limit.value}"


def _in_time(node: NodePlan, column: str) -> bool | None:
    """Whether a time of the first side, and with it those it is compared with, is a TIMESTAMP or DATE. None:
    nobody has declared its type."""
    (side, *_) = node.sides
    of_inputs = [
        (i, column if side.feed is None else column.removeprefix(f"{i.alias}.")) for i in side.inputs
    ]
    types = [declared.type for i, name in of_inputs if (declared := i.column(name)) is not None]
    return unit_of_type(types[0]).is_time if types else None


def _why_not(node: NodePlan, options: Options) -> Iterator[str]:
    if node.changes:
        yield (
            "emits changes: results of a shed row could never be retracted, and later rows would miss a"
            " shed row of a table"
        )
    else:
        yield from _problems(node, options)


@singledispatch
def _problems(node: NodePlan, options: Options) -> Iterator[str]:
    """Of a node of which rows are final."""
    yield f"retains rows for {node.noun}, but only rows of stream joins can be shed"


@_problems.register(LookupPlan)
@_problems.register(PassPlan)
@_problems.register(RestPlan)
@_problems.register(DeltaPlan)
def _of_none(node: NodePlan, options: Options) -> Iterator[str]:
    """It keeps none."""
    yield from ()


@_problems.register
def _(node: GroupedPlan, options: Options) -> Iterator[str]:
    yield ("aggregates: shed rows would be missing in counts and sums, and the result would not show where")


@_problems.register
def _(node: JoinPlan, options: Options) -> Iterator[str]:
    if node.asof is not None:
        yield from _of_asof(options)
    elif options.at_limit is AtLimit.SHED_OLDEST and node.matchable and node.ages is None:
        other = "; shed_heaviest does" if node.keys and not node.by_value else ""
        yield f"evicts rows by times that it does not compare, so the oldest row is undefined{other}"
    elif options.at_limit is AtLimit.SHED_HEAVIEST and (not node.keys or node.by_value):
        yield "has a join without an equality key, so no key is the heaviest; use shed_oldest"


def _of_asof(options: Options) -> Iterator[str]:
    why = "has an ASOF join, which might match a more distant row in place of a shed one"
    if options.at_limit is AtLimit.SHED_HEAVIEST:
        yield f"{why}; use shed_oldest"
    elif options.max_rows_per_key is not None:
        yield f"{why} at max_rows_per_key; use another limit"


@_problems.register
def _(node: ArrangePlan, options: Options) -> Iterator[str]:
    if options.at_limit is AtLimit.SHED_HEAVIEST:
        yield (
            "has a delta join, which looks rows up by several keys, so no key is the heaviest; use"
            " shed_oldest, or SET plan = 'cascade'"
        )
    elif node.ages is None:
        yield (
            "has inputs whose rows it evicts by times that it does not compare, so the oldest row is"
            " undefined"
        )
