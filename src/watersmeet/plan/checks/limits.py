"""Reject limits that could not be enforced: rows per key, load shedding, limits of sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch

from watersmeet.errors import PlanError
from watersmeet.plan.delta.paths import DeltaJoin, NoDelta
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import (
    ArrangePlan,
    DeltaPlan,
    GroupedPlan,
    JoinPlan,
    LookupPlan,
    NodePlan,
    PassPlan,
    ReusedPlan,
)
from watersmeet.plan.nodes.tree import Tree
from watersmeet.plan.query_inputs import is_limited, limited_sources, sides_of, unit_of_type
from watersmeet.spec.job_options import SHEDDING, SHEDDING_OF_JOB
from watersmeet.spec.model import AtLimit, Job, Options

# Rows are shed where that is right, and else it is refused.

_HINT = "remove at_limit, so that the limit stops the job, or run the query in a job of its own"


def check_some_limit(job: Job) -> list[PlanError]:
    """Return an error if the job sheds rows at a limit but sets no limit."""
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
    """Return an error per reason why the nodes of a query cannot shed rows at a limit.

    The check applies only if `at_limit` sheds rows and a limit is set for the query, the job or a
    source.
    """
    of_all = any(getattr(options, limit) is not None for limit in (*SHEDDING, *SHEDDING_OF_JOB))
    if not options.at_limit.sheds or not (of_all or limited_sources(nodes)):
        return []
    return [
        PlanError(f'{_setting(options)}: "{query}" {why}', code="not-shed", hint=_HINT)
        for why in dict.fromkeys(why for node in nodes for why in _shedding_problems(node, options))
    ]


def check_shed_together(queries: Sequence[QueryPlan]) -> list[PlanError]:
    """Return an error per limit that covers rows with times of different units.

    With `at_limit` = shed_oldest, times decide which rows are the oldest across several joins, so all
    times must have one unit.
    """
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
    """Return True if a time column of the first side is a TIMESTAMP or DATE.

    The times that it is compared with have the same unit.

    Returns:
        None if no declaration gives the type of the column.
    """
    (side, *_) = node.sides
    of_inputs = [
        (i, column if side.feed is None else column.removeprefix(f"{i.alias}.")) for i in side.inputs
    ]
    types = [declared.type for i, name in of_inputs if (declared := i.column(name)) is not None]
    return unit_of_type(types[0]).is_time if types else None


def _shedding_problems(node: NodePlan, options: Options) -> Iterator[str]:
    if node.changes:
        yield (
            "emits changes: results of a shed row could never be retracted, and later rows would miss a"
            " shed row of a table"
        )
    else:
        yield from _problems(node, options)


@singledispatch
def _problems(node: NodePlan, options: Options) -> Iterator[str]:
    """Yield the reason why a node with final rows cannot shed rows."""
    yield f"retains rows for {node.noun}, but only rows of stream joins can be shed"


@_problems.register(LookupPlan)
@_problems.register(PassPlan)
@_problems.register(ReusedPlan)
@_problems.register(DeltaPlan)
def _no_problems(node: NodePlan, options: Options) -> Iterator[str]:
    """Yield nothing, because the node retains no rows."""
    yield from ()


@_problems.register
def _(node: GroupedPlan, options: Options) -> Iterator[str]:
    yield ("aggregates: shed rows would be missing in counts and sums, and the result would not show where")


@_problems.register
def _(node: JoinPlan, options: Options) -> Iterator[str]:
    if node.asof is not None:
        yield from _asof_problems(options)
    elif options.at_limit is AtLimit.SHED_OLDEST and node.matchable and node.ages is None:
        other = "; shed_heaviest does" if node.keys and not node.by_value else ""
        yield f"evicts rows by times that it does not compare, so the oldest row is undefined{other}"
    elif options.at_limit is AtLimit.SHED_HEAVIEST and (not node.keys or node.by_value):
        yield "has a join without an equality key, so no key is the heaviest; use shed_oldest"


def _asof_problems(options: Options) -> Iterator[str]:
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


# Where max_rows_per_key would not be checked it is refused.


def check_per_key_of_changes(options: Options, tree: Tree) -> list[PlanError]:
    """Return an error if `max_rows_per_key` is set and rows can be retracted.

    Rows are counted per key on arrival; tasks learn only later which rows are retracted.
    """
    if options.max_rows_per_key is None or not any(part.changes for part in tree.every):
        return []
    return [
        PlanError(
            "max_rows_per_key is not supported where rows can be retracted (output_mode changelog,"
            " changing tables)",
            code="not-yet",
            hint="remove it, or use max_rows, whose error names the heaviest keys",
        )
    ]


def check_per_key_of_delta(delta: DeltaJoin | NoDelta, options: Options, *, changes: bool) -> list[PlanError]:
    """Return an error if `max_rows_per_key` is set for a delta join.

    A delta join does not retain the rows between its look-ups, and several keys may hold one copy of a
    side. Queries with `changes` give no error here because another check rejects them.
    """
    if options.max_rows_per_key is None or changes or not isinstance(delta, DeltaJoin):
        return []
    return [
        PlanError(
            "max_rows_per_key is not supported for delta joins (plan = delta)",
            code="not-yet",
            hint="remove it, or SET plan = 'cascade'",
        )
    ]


def check_per_key(nodes: Sequence[NodePlan], query: str, options: Options) -> list[PlanError]:
    """Return an error if `max_rows_per_key` is set and no retained row has a key to count by.

    The result is empty if the query retains no rows or at least some of its rows by key.
    """
    keyed = [node.keeps_by_key for node in nodes]
    if options.max_rows_per_key is None or True in keyed or False not in keyed:
        return []
    return [
        PlanError(
            f'max_rows_per_key has no effect: "{query}" stores no rows by key',
            code="no-key",
            hint="remove it or use max_rows; or add an equality to the join condition, or a column to"
            " the GROUP BY of the windows",
        )
    ]


# Limits of a source's rows are refused where they could not be told from those of others.


def check_source_limits(job: Job) -> list[PlanError]:
    """Return an error per source with a limit that is a branch of a UNION ALL.

    The rows of all branches of a UNION ALL are stored together.
    """
    united = {
        (source.name, i.alias)
        for insert in job.inserts
        for query in insert.query.every
        for i in query.inputs
        if len(i.branches) > 1
        for source in i.sources
        if source.max_rows is not None or source.max_bytes is not None
    }
    return [
        PlanError(
            f'"{source}" has max_rows or max_bytes, but its rows are stored together with those of'
            f' other branches of the UNION ALL "{alias}"',
            code="limit-in-union",
            hint="remove the limit of the source, and SET max_rows or max_job_rows",
        )
        for source, alias in sorted(united)
    ]
