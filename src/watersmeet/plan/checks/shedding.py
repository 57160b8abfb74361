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

_HINT = "leave at_limit out, so that the limit stops the job, or put the query into a job of its own"


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
            f"{_setting(options)}, and there is no limit at which rows would be shed",
            code="bad-setting",
            hint="SET max_rows, max_bytes or max_rows_per_key to what a join may keep, max_job_rows or"
            " max_job_bytes to what the job may, or give a source 'max_rows' or 'max_bytes'; at"
            " max_output_rows_per_tick the job stops",
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
            f"{_setting(options)}: {limit} is of rows whose times are numbers and of rows whose times are"
            " TIMESTAMPs, so none are the oldest",
            code="not-shed",
            hint="use shed_heaviest, or put queries with times of one kind into a job of their own",
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
            "puts out changes: what a shed row has put out would stay in the result for good, for its delete"
            " would find nothing to take back, and a row of a table would be missed by all rows to come"
        )
    else:
        yield from _problems(node, options)


@singledispatch
def _problems(node: NodePlan, options: Options) -> Iterator[str]:
    """Of a node of which rows are final."""
    yield f"keeps rows for {node.noun}, and only those of joins of streams are shed"


@_problems.register(LookupPlan)
@_problems.register(PassPlan)
@_problems.register(RestPlan)
@_problems.register(DeltaPlan)
def _of_none(node: NodePlan, options: Options) -> Iterator[str]:
    """It keeps none."""
    yield from ()


@_problems.register
def _(node: GroupedPlan, options: Options) -> Iterator[str]:
    yield (
        "aggregates: counts and sums of windows would lack the rows that were shed, or what these would have"
        " matched beneath, and nothing in the result would say which do"
    )


@_problems.register
def _(node: JoinPlan, options: Options) -> Iterator[str]:
    if node.asof is not None:
        yield from _of_asof(options)
    elif options.at_limit is AtLimit.SHED_OLDEST and node.matchable and node.ages is None:
        other = "; shed_heaviest does" if node.keys and not node.by_value else ""
        yield f"has sides whose rows go by times that it does not compare, so none are the oldest{other}"
    elif options.at_limit is AtLimit.SHED_HEAVIEST and (not node.keys or node.by_value):
        yield "has a join without an equality key, so no key is the heaviest; shed_oldest does"


def _of_asof(options: Options) -> Iterator[str]:
    why = "has an ASOF join, which might take a row that is further away for one that was shed"
    if options.at_limit is AtLimit.SHED_HEAVIEST:
        yield f"{why}, were it shed for its key; shed_oldest does not let it"
    elif options.max_rows_per_key is not None:
        yield f"{why}, were it shed at max_rows_per_key; the other limits do not let it"


@_problems.register
def _(node: ArrangePlan, options: Options) -> Iterator[str]:
    if options.at_limit is AtLimit.SHED_HEAVIEST:
        yield (
            "has a delta join, whose rows are looked up by several keys, so no key is the heaviest;"
            " shed_oldest does, and so does a cascade of joins (SET plan = cascade)"
        )
    elif node.ages is None:
        yield "has inputs whose rows go by times that it does not compare, so none are the oldest"
