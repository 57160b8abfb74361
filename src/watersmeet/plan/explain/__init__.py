"""EXPLAIN: a plan in a user's words. Text for people: its wording may change between versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch

from watersmeet.event_time import MAX_TIME
from watersmeet.names import SHOWN_DIFF, SHOWN_TICK
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.groups import (
    as_written,
    group_sections,
    ranking_sections,
    table_sections,
    window_group_sections,
    window_sections,
)
from watersmeet.plan.explain.joins import arrangement_sections, join_sections, step_sections
from watersmeet.plan.explain.state import (
    job_limit_lines,
    limit_lines,
    reuse_lines,
    shared_lines,
    state_sections,
)
from watersmeet.plan.explain.tables import (
    compared_lines,
    computed_lines,
    describe_changes,
    lookup_sections,
    primary_key_lines,
    snapshot_sections,
    upsert_sections,
)
from watersmeet.plan.explain.watermark_flow import flow_lines
from watersmeet.plan.explain.wording import (
    INDENT,
    Sections,
    distance,
    duration,
    is_timed,
    lay_out_sections,
    node_name,
    plain,
    sink_name,
    size_of,
    title_of,
)
from watersmeet.plan.model.job import JobPlan, KeyRows, QueryPlan
from watersmeet.plan.model.nodes import (
    AggregatePlan,
    ArrangePlan,
    DeltaPlan,
    GroupedPlan,
    GroupPlan,
    JoinPlan,
    LookupPlan,
    MatchPlan,
    NodePlan,
    RankPlan,
    SnapshotPlan,
    TablePlan,
    UpsertPlan,
    WindowGroupPlan,
)
from watersmeet.plan.model.sides import BranchPlan, FeedPlan, SidePlan
from watersmeet.plan.order.forecast import MeasuredQuery
from watersmeet.plan.query_inputs import is_limited, limited_sources
from watersmeet.spec.job_options import SHEDDING_OF_JOB, shown_share
from watersmeet.spec.model import (
    AtLimit,
    Branch,
    Input,
    Lateness,
    NullTime,
    OnIdle,
    OutputMode,
    StageBranch,
    WatermarkRule,
)
from watersmeet.spec.time_zones import UTC


def explain(plan: JobPlan, measured: Mapping[str, MeasuredQuery] | None = None) -> str:
    """Explain the queries of a job, one after the other; the text ends with a newline.

    Args:
        measured: Measurements of a run, per query.

    >>> from watersmeet import explain, parse_job, plan_job
    >>> print(explain(plan_job(parse_job('''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.t, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 3''')
    ... )).split("Retention")[1].split("Columns")[0])
    <BLANKLINE>
      x: until the watermark of y.t is above x.t + 3; then dropped
      y: until the watermark of x.t is above y.t; then dropped
    <BLANKLINE>
    """
    texts = [explain_query(query, (measured or {}).get(query.name), plan.queries) for query in plan.queries]
    of_job: Sections = [("Limits of sources and of the job", list(job_limit_lines(plan, measured)))]
    texts += ["\n".join(lay_out_sections(of_job)) + "\n"] if of_job[0][1] else []
    return "\n".join(texts)


def explain_query(
    query: QueryPlan, measured: MeasuredQuery | None = None, queries: Sequence[QueryPlan] = ()
) -> str:
    """Explain one query: its inputs, its joins, the retention of rows, and the emitted rows.

    Args:
        queries: All queries of the job.
    """
    query = query.alone
    inputs = [line for side in query.sides for line in _input(query, side)]
    title = f'Query "{query.name}" into {sink_name(query.sink)}'
    if query.is_index:
        title = query.name[0].upper() + query.name[1:]
    head: Sections = [(title, [" ".join(query.sql.split())])]
    alone, joins = len(query.nodes) == 1, len(query.every(MatchPlan))
    if alone and joins:
        head.append(("Join", [title_of(query.root)]))
    head.append(("Inputs", inputs))
    orders = [f"{', '.join(order)}: it retains less than the query's order" for order in query.reordered]
    head.append(("Plan of the joins (SET plan = auto | delta | cascade)", list(query.joins_run)))
    head.append(("Order of the joins (SET plan = cascade keeps the query's)", orders))
    of_state = [f"{', '.join(order)}: the order of the stored state" for order in query.ordered_by_state]
    head.append(("Order of the joins (that of the state; under another sink's name the query's)", of_state))
    for node in query.nodes:
        sections = _sections(node, query)
        name = node_name(query, node)
        head += (
            sections if alone else [(f"{name.capitalize()}: {title_of(node)}", lay_out_sections(sections))]
        )
    after = (
        "Filter"
        if joins == 0 or isinstance(query.root, GroupedPlan)
        else "Filter after the join"
        if joins == 1
        else "Filter after the last join"
    )
    tail: Sections = [
        (after, [] if query.where is None else [plain(text_of(as_written(query, query.where)))]),
        ("Watermark flow (in parentheses: how far behind the clock at most)", list(flow_lines(query))),
        *state_sections(query, measured),
        ("Limits", list(limit_lines(query, measured.sides if measured is not None else None))),
        ("Rows shared by several inputs", list(shared_lines(query))),
        ("Rows shared by several queries", list(reuse_lines(query, queries))),
        (
            "Output columns",
            []
            if query.is_index
            else [
                *(f"{o.name} = {plain(text_of(as_written(query, o.expr)))}" for o in query.outputs),
                *(_CHANGES if query.options.mode is OutputMode.CHANGELOG else ()),
            ],
        ),
        ("Rows of a key of the sink", [] if query.key_rows is None else [_KEY_ROWS[query.key_rows]]),
        ("Options", list(_options(query))),
        ("Warnings", list(query.warnings)),
    ]
    return "\n".join(lay_out_sections(head + tail)) + "\n"


@singledispatch
def _sections(node: NodePlan, query: QueryPlan) -> Sections:
    """Return the sections of a node; this default is for a node that retains nothing."""
    return [
        ("Retention", ["none: each row is emitted in the tick in which it arrives"]),
        ("Conditions on one input", [f"{name}: {text}" for name, text in node.filters]),
    ]


_sections.register(JoinPlan, join_sections)
_sections.register(LookupPlan, lookup_sections)
_sections.register(AggregatePlan, window_sections)
_sections.register(WindowGroupPlan, window_group_sections)
_sections.register(ArrangePlan, arrangement_sections)
_sections.register(DeltaPlan, step_sections)
_sections.register(UpsertPlan, upsert_sections)
_sections.register(SnapshotPlan, snapshot_sections)
_sections.register(GroupPlan, group_sections)
_sections.register(RankPlan, ranking_sections)
_sections.register(TablePlan, table_sections)


_KEY_ROWS = {
    KeyRows.KNOWN: "one: it covers the primary keys, or groups, of what is joined",
    KeyRows.COUNTED: "counted, for nothing else says that there is one: the result is kept, grouped by the"
    " key, and a second row of a key stops the job",
}


def _input(query: QueryPlan, side: SidePlan) -> Iterator[str]:
    i = side.input
    for number, branch in enumerate(i.branches):
        planned = side.branches[number]
        if isinstance(branch, Branch) and isinstance(planned, BranchPlan):
            yield from _source(side, branch, planned)
        elif isinstance(branch, StageBranch) and isinstance(planned, FeedPlan):
            yield from _stage(query, side, branch, planned)


def _source(side: SidePlan, branch: Branch, planned: BranchPlan) -> Iterator[str]:
    i = side.input
    kind = "table" if branch.source.is_table else branch.source.connector
    yield f"{side.name}: {branch.source.name} ({kind})"
    if branch.source.compared:
        yield from (f"{INDENT}{line}" for line in compared_lines(branch.source))
        return
    change = branch.source.change_column
    if change is not None and change.is_diff:
        yield f"{INDENT}changes: {change.column} says how many times a row is added (below zero: removed)"
    elif change is None and branch.source.changes and (told := describe_changes(branch.source)):
        yield f"{INDENT}changes: {told}"
    elif change is not None:
        inserts, deletes = ", ".join(change.inserts), ", ".join(change.deletes)
        yield f"{INDENT}changes: {change.column} says insert ({inserts}) or delete ({deletes})"
    if branch.source.primary_key is not None:
        lines = primary_key_lines(branch.source.primary_key, in_order=branch.source.traits.in_order)
        yield from (f"{INDENT}{line}" for line in lines)
    yield from (f"{INDENT}{line}" for line in computed_lines(branch.source))
    if branch.beneath is not None:
        yield f"{INDENT}filter before ordering: {text_of(branch.beneath)}"
    if branch.above is not None:
        yield f"{INDENT}filter: {text_of(branch.above)}"
    for column, lag in zip(i.event_times, planned.lags, strict=True):
        yield f"{INDENT}event time {_describe_column(i, column)}, {_lag(lag, is_timed(i, column))}"
    if branch.source.idle_timeout_us is not None:
        follows = ", then follows the others" if branch.source.on_idle is OnIdle.FOLLOW else ""
        yield f"{INDENT}idle after {duration(branch.source.idle_timeout_us)} without rows{follows}"


def _stage(query: QueryPlan, side: SidePlan, branch: StageBranch, feed: FeedPlan) -> Iterator[str]:
    node = query.nodes[feed.node]
    yield f"{side.name}: rows of {node_name(query, node)} ({title_of(node)})"
    if branch.above is not None:
        yield f"{INDENT}filter: {text_of(branch.above)}"
    for column, key in feed.event_times:
        yield f"{INDENT}event time {_describe_column(side.input, column)}, watermark of {key}"


def _describe_column(i: Input, column: str) -> str:
    declared = i.column(column)
    return f"{i.alias}.{column} {'' if declared is None else declared.type}".rstrip()


def _lag(lag: int | None, in_time: bool) -> str:
    return "watermark by explicit advances" if lag is None else f"lag {distance(lag, in_time)}"


def _shedding(query: QueryPlan) -> Iterator[str]:
    """Yield the limits at which rows are shed, and which rows; then limits without shedding."""
    options, oldest = query.options, query.options.at_limit is AtLimit.SHED_OLDEST
    if options.max_rows is not None or options.max_bytes is not None:
        which = "the oldest" if oldest else "those of the heaviest keys"
        yield f"of more rows {which} are shed: they match no more rows and are not emitted unmatched"
    if options.max_rows_per_key is not None:
        which = "the oldest of it" if oldest else "all of it"
        yield (
            f"of more rows of one key {which} are shed on that side: they match no more rows and are not"
            " emitted unmatched"
        )
    together = [f'of the source "{source.name}"' for source in limited_sources(query.alone.nodes)]
    if any(getattr(options, limit) is not None for limit in SHEDDING_OF_JOB):
        together.append("of the whole job")
    for whose in together:
        which = "the oldest" if oldest else "those of the heaviest keys"
        yield f"of more rows {whose} {which} are shed, whichever joins retain them"
    stop = [] if options.max_output_rows_per_tick is None else ["max_output_rows_per_tick"]
    met = [node.source for node in query.alone.every(LookupPlan)]
    stop += [f'limits of the table "{source.name}"' for source in met if is_limited(source)]
    if stop:
        yield f"no rows are shed at {' and '.join(stop)}: more stops the job"


_CHANGES = (
    f"{SHOWN_DIFF} = how many times the row is added (below zero: removed), summed per row and tick",
    f"{SHOWN_TICK} = the number of the tick",
)


def _options(query: QueryPlan) -> Iterator[str]:
    options = query.options
    rule = "tight" if options.watermark_rule is WatermarkRule.TIGHT else "limit"
    rule = f"watermark rule {rule}" if options.lateness is Lateness.COLUMN else "lateness by the join"
    yield f"{rule}, output mode {options.mode.value}"
    if options.allowed_lateness:
        timed = any(is_timed(s.input, c) for s in query.sides for c in s.event_times)
        lateness = distance(options.allowed_lateness, timed)
        yield f"allowed lateness {lateness}: rows are retained that much longer"
    if options.time_zone != UTC:
        yield f"time zone {options.time_zone}: days and texts of TIMESTAMPs; windows stay aligned to UTC"
    if options.on_null_time is NullTime.FAIL:
        yield "a row without an event time fails the job"
    if options.max_rows is not None and options.max_rows < MAX_TIME:
        yield f"at most {options.max_rows} rows in state"
    if options.max_bytes is not None:
        yield f"at most {size_of(options.max_bytes)} of files in state"
    if options.max_rows_per_key is not None:
        yield f"at most {options.max_rows_per_key} rows of one key in state, of sides that have one"
    if options.at_limit.sheds:
        yield from _shedding(query)
    if options.max_output_rows_per_tick is not None:
        yield f"at most {options.max_output_rows_per_tick} rows out in a tick"
    if options.max_job_rows is not None:
        yield f"at most {options.max_job_rows} rows in the state of the whole job"
    if options.max_job_bytes is not None:
        yield f"at most {size_of(options.max_job_bytes)} of files in the state of the whole job"
    if options.max_broken is not None:
        yield f"at most {shown_share(options.max_broken)} broken records of an input"
    if options.max_drift is not None:
        timed = any(is_timed(s.input, c) for s in query.sides for c in s.event_times)
        drift = distance(options.max_drift, timed)
        yield f"a source that is more than {drift} ahead of another one is not read until that has caught up"
        waited = [
            b.source
            for s in query.alone.sides
            for _, b in s.sources
            if any(lag is not None for lag in b.lags)
        ]
        names = list(dict.fromkeys(s.name for s in waited if s.idle_timeout_us is None))
        if len({source.name for source in waited}) > 1 and names:
            yield f"without an idle_timeout, a silent source is waited for: {', '.join(names)}"


__all__ = ["explain", "explain_query"]
