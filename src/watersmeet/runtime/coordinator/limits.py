"""Check limits and invariants before a tick is committed.

No input watermark, limit or output watermark is below that of the last manifest, and no row of the tick has a
time below the output watermark that was put out before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from watersmeet.errors import EngineError, format_count, raise_all
from watersmeet.event_time import NEVER, Watermark
from watersmeet.plan.explain.wording import size_of
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.query_inputs import is_limited, source_of
from watersmeet.runtime.coordinator.node_cost import key_shares
from watersmeet.runtime.coordinator.results import Broken, RowsRead, add_counts, find_branches, ingest_counts
from watersmeet.runtime.messages.reports import IngestReport
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.runtime.messages.work import NodeWork
from watersmeet.spec.job_options import shown_share
from watersmeet.spec.model import OnBroken
from watersmeet.state.manifest import Arrangement, LiveRun, Manifest, NodeState, QueryState

# What a job may keep and put out at most: a tick that comes to more is not committed, and says so.
#
# A tick that has failed by a limit is begun again by the next run; by then the limit may be another one.

_HINT = "raise {}, narrow the time bounds, or check which input's watermark does not advance"


def check_limits(
    query: QueryPlan,
    shape: NodeShape,
    work: NodeWork,
    arrangements: Mapping[str, Arrangement],
    rows_out: int,
) -> None:
    """Check the rows that one node retains after the tick, and those it emits.

    The limit of emitted rows applies to the root node only.

    Args:
        shape: the shape of the node.
        work: the work of its tasks.
        arrangements: the retained rows of its sides.

    Raises:
        EngineError: a limit is exceeded. The message names the heaviest keys, if there are any.
    """
    node = query.nodes[shape.number]
    _check_node_limits(query, node, shape, arrangements)
    if node is query.root:
        _check_output(query, node, shape, work, rows_out)


def _check_node_limits(
    query: QueryPlan, node: NodePlan, shape: NodeShape, arrangements: Mapping[str, Arrangement]
) -> None:
    """Check the rows and bytes that one node retains after the tick against its limits.

    Does nothing if the options shed rows at these limits.

    Raises:
        EngineError: the node retains more than ``max_rows`` rows (copies of an input count once), or
            files of more than ``max_bytes`` bytes (copies count; files that several sides share count
            for each).
    """
    options = query.options
    if options.at_limit.sheds:
        return
    rows = {side.title: arrangements[side.name].stored for side in node.sides if side.copy_of is None}
    if options.max_rows is not None and sum(rows.values()) > options.max_rows:
        sizes = ", ".join(f"{title}: {held}" for title, held in rows.items())
        heaviest = _describe_heaviest_keys(
            node, shape, {name: kept.runs for name, kept in arrangements.items()}
        )
        raise EngineError(
            f"{_describe_node(query, node, rows)} retains {sum(rows.values())} rows ({sizes}), more than"
            f" max_rows = {options.max_rows}{heaviest}",
            code="max-rows",
            hint=_HINT.format("max_rows"),
        )
    if options.max_bytes is None:
        return
    nbytes = dict.fromkeys(rows, 0)
    for side in node.sides:
        nbytes.setdefault(side.title, 0)
        nbytes[side.title] += sum(live.run.nbytes for live in arrangements[side.name].runs)
    if sum(nbytes.values()) > options.max_bytes:
        sizes = ", ".join(f"{title}: {size_of(held)}" for title, held in nbytes.items())
        heaviest = _describe_heaviest_keys(
            node, shape, {name: kept.runs for name, kept in arrangements.items()}
        )
        raise EngineError(
            f"{_describe_node(query, node, rows)} retains {size_of(sum(nbytes.values()))} in "
            f"files ({sizes}), more"
            f" than max_bytes = {size_of(options.max_bytes)}{heaviest}",
            code="max-bytes",
            hint=_HINT.format("max_bytes"),
        )


def _check_output(query: QueryPlan, node: NodePlan, shape: NodeShape, work: NodeWork, rows: int) -> None:
    """Check that a query emits at most ``max_output_rows_per_tick`` rows in a tick.

    Raises:
        EngineError: It emits more; the message names the heaviest keys, if any.
    """
    most = query.options.max_output_rows_per_tick
    if most is not None and rows > most:
        met = {
            side.name: [*own.runs, *(LiveRun(run=run) for run in own.new_runs)]
            for side, own in zip(shape.sides, work.sides, strict=False)
        }
        raise EngineError(
            f'"{query.name}" would emit {rows} rows in tick {work.tick}, more than'
            f" max_output_rows_per_tick = {most}{_describe_heaviest_keys(node, shape, met)}",
            code="max-output",
            hint="check whether the join lacks a key or a condition; else raise"
            " max_output_rows_per_tick, or let each tick read less",
        )


def _describe_heaviest_keys(node: NodePlan, shape: NodeShape, runs: Mapping[str, Sequence[LiveRun]]) -> str:
    """Format the heaviest keys of sides that retain these runs, for an error message.

    Returns:
        The text; empty if no key is heavy.
    """
    told = []
    for side, planned in zip(shape.sides, node.sides, strict=False):
        if planned.copy_of is None and side.name in runs:
            told += [f"of {planned.title} {share}" for share in key_shares(side, runs[side.name])]
    return f"; heaviest keys: {', '.join(told)}" if told else ""


def _describe_node(query: QueryPlan, node: NodePlan, titles: Mapping[str, int]) -> str:
    which = "" if len(query.nodes) == 1 else f"{' and '.join(titles)} in "
    noun = f"{node.noun} of " if node.noun else ""
    return f'the {noun}{which}"{query.name}"'


# Records that do not parse: a tick with too many of them is refused before it is committed.
#
# When a column is declared as another type, or in another format, than the records have, each of them is
# broken. The job would go on, put out nothing, and its watermark would never move.

MIN_RECORDS = 100
"""Of fewer records nothing is concluded while others may come."""


def check_broken(
    plan: JobPlan,
    before: Manifest | None,
    read: RowsRead,
    reports: Sequence[IngestReport],
    ends: Callable[[str], bool] | None,
) -> None:
    """Refuse a tick if none of a source's records parses, or more of an input are broken than ``max_broken``.

    None parses: of the first tick that reads it, if these are `MIN_RECORDS` records; of a bounded run also
    if there are no others.

    Args:
        before: the state that the tick goes on from.
        read: in the tick; ``reports``: of its ingest tasks.
        ends: of a bounded run, whether it has read all of a source.

    Raises:
        EngineError: ``all-records-broken``, ``max-broken``, with the text of one record; nothing of the tick
            goes out.
    """
    if read.broken:
        raise_all(
            [*_all_broken_errors(plan, before, read, ends), *_max_broken_errors(plan, before, read, reports)]
        )


def broken_files_text(broken: Broken) -> str:
    """Format the names of files in which no record parsed as a row; "" if there are none."""
    if not broken.files:
        return ""
    first, *others = broken.files
    named = f"{first.name} ({format_count(first.rows, 'record')})"
    if others or broken.is_cut:
        named = f"{len(broken.files):,}{' or more' * broken.is_cut} files, first {named},"
    return f"no row of {named} parses{f', such as {first.text}' if first.text else ''}"


def _all_broken_errors(
    plan: JobPlan, before: Manifest | None, read: RowsRead, ends: Callable[[str], bool] | None
) -> Iterator[EngineError]:
    stops = {source.name for source in plan.sources if source.on_broken is OnBroken.STOP}
    places = find_branches(plan)
    for name, own in read.broken.items():
        if name not in stops or not own.is_all:
            continue
        account = _load_account(before, *places[name][0].rsplit("/", 1))
        records = account.get("broken", 0) + own.rows
        no_rows = account.get("broken", 0) + account.get("skipped", 0)
        is_first, none_parsed = not account.get("in"), account.get("in", 0) == no_rows
        if (is_first and own.rows >= MIN_RECORDS) or (none_parsed and ends is not None and ends(name)):
            yield EngineError(
                f'source "{name}": none of the first {format_count(records, "record")} parses into the'
                f" declared columns, for example {own.text}. Nothing was committed",
                code="all-records-broken",
                hint="declare the columns that `watersmeet infer` shows; or set 'on_broken' = 'count'"
                " for the source, which counts such records and drops them",
            )


def _max_broken_errors(
    plan: JobPlan, before: Manifest | None, read: RowsRead, reports: Sequence[IngestReport]
) -> Iterator[EngineError]:
    for query in plan.queries:
        limit = query.options.max_broken
        if limit is None:
            continue
        come = ingest_counts(query, reports)
        for side in query.sides:
            sources = [branch.source.name for _, branch in side.ingested if branch.source.name in read.broken]
            if not sources or not come[side.name].get("broken"):
                continue
            rows = add_counts({side.name: _load_account(before, query.name, side.name)}, come)[side.name]
            is_share, records = isinstance(limit, Fraction), format_count(rows["in"], "record")
            if rows["broken"] > (limit * rows["in"] if is_share else limit) and (
                not is_share or rows["in"] >= MIN_RECORDS
            ):
                broken = read.broken[sources[0]]
                files = f"; {text}" if (text := broken_files_text(broken)) else ""
                yield EngineError(
                    f'"{query.name}", input {side.name}: {rows["broken"]:,} of {records} do not parse,'
                    f" more than max_broken = {shown_share(limit)}. For example: {broken.text}{files}",
                    code="max-broken",
                    hint="correct the records or the declared columns, or raise max_broken",
                )


def _load_account(before: Manifest | None, query: str, alias: str) -> dict[str, int]:
    """Return what became of the rows of an input until now."""
    state = None if before is None else before.queries.get(query)
    return {} if state is None else dict(state.account.get(alias, {}))


# What all queries of a job may keep together, of one source and of all: judged when a tick's nodes are
# settled, before anything of it is published.
#
# Rows in files that several sides have are counted once: as many of each file as the side of them keeps
# that keeps most. Rows that joins make for others are no source's; in the job they count.

MAX_NAMED_SIDES = 5


@dataclass(frozen=True)
class _RetainedSide:
    """Retained rows of a side.

    Args:
        name: the name in messages.
        source: the source whose unchanged rows the side retains; None if the rows are derived.
    """

    name: str
    source: str | None
    shape: SideShape | None
    runs: Sequence[LiveRun]
    is_copy: bool

    @property
    def is_table(self) -> bool:
        """A copy of a table that rows meet as of their tick."""
        return self.shape is None


def check_job_limits(
    plan: JobPlan, shapes: Mapping[str, Sequence[NodeShape]], states: Mapping[str, QueryState]
) -> None:
    """Check that a job retains no more than its options and those of its sources allow.

    Raises:
        EngineError: A limit is exceeded. The message names the sides that retain most, and the heaviest
            keys, if any.
    """
    options = plan.queries[0].options
    sources = {
        branch.source.name: branch.source
        for query in plan.queries
        for node in query.nodes
        for side in (*node.sides, *node.tables)
        for _, branch in side.sources
    }
    limited = [source for source in sources.values() if is_limited(source)]
    if not limited and options.max_job_rows is None and options.max_job_bytes is None:
        return
    kept = list(_list_retained_sides(plan, shapes, states))
    if options.at_limit.sheds:
        kept = [side for side in kept if side.is_table]  # of all else as many rows are left as may be
    for source in limited:
        own = [side for side in kept if side.source == source.name]
        whose, option = f'of "{source.name}"', "'{}' of CREATE … " + f'"{source.name}"'
        _check_rows(whose, option.format("max_rows"), source.max_rows, own)
        _check_bytes(whose, option.format("max_bytes"), source.max_bytes, own)
    _check_rows("in the whole job", "max_job_rows", options.max_job_rows, kept)
    _check_bytes("in the whole job", "max_job_bytes", options.max_job_bytes, kept)


def _list_retained_sides(
    plan: JobPlan, shapes: Mapping[str, Sequence[NodeShape]], states: Mapping[str, QueryState]
) -> Iterator[_RetainedSide]:
    for query in plan.queries:
        for node, shape, state in zip(query.nodes, shapes[query.name], states[query.name].nodes, strict=True):
            of_query = f' in "{query.name}"' if len(plan.queries) > 1 else ""
            for side, own in zip(node.sides, shape.sides, strict=False):
                if side.name in state.arrangements:
                    source = source_of(side)
                    runs = state.arrangements[side.name].runs
                    yield _RetainedSide(
                        f"{side.title}{of_query}", source, own, runs, side.copy_of is not None
                    )
            if state.table is not None and node.tables:
                (side,) = node.tables
                copy = [LiveRun(run=run) for run in state.table.runs]
                yield _RetainedSide(
                    f"{side.title}{of_query}", side.sources[0][1].source.name, None, copy, False
                )


def _check_rows(whose: str, option: str, most: int | None, sides: Sequence[_RetainedSide]) -> None:
    sides = [side for side in sides if not side.is_copy]
    rows = sum(max(own) for own in _measure_by_file(sides, lambda live: live.stored).values())
    if most is not None and rows > most:
        told = _format_largest_sides(sides, lambda live: live.stored, str)
        raise EngineError(
            f"the job retains {rows} rows {whose} ({told}), more than {option} = "
            f"{most}{_describe_side_keys(sides)}",
            code="max-rows",
            hint=_hint(option),
        )


def _check_bytes(whose: str, option: str, most: int | None, sides: Sequence[_RetainedSide]) -> None:
    nbytes = sum(max(own) for own in _measure_by_file(sides, lambda live: live.run.nbytes).values())
    if most is not None and nbytes > most:
        told = _format_largest_sides(sides, lambda live: live.run.nbytes, size_of)
        raise EngineError(
            f"retained rows {whose} take {size_of(nbytes)} in files ({told}), more than {option} ="
            f" {size_of(most)}{_describe_side_keys(sides)}",
            code="max-bytes",
            hint=_hint(option),
        )


def _hint(option: str) -> str:
    return (
        f"raise {option}, narrow the time bounds, or check which input's watermark does not advance"
        " (`watersmeet state show JOB` lists what is retained)"
    )


def _measure_by_file(
    sides: Sequence[_RetainedSide], measure: Callable[[LiveRun], int]
) -> dict[str, list[int]]:
    """Measure, per file, the rows of each side in it.

    Files that one side merged in this tick, and that other sides use for one more tick, are left out.
    """
    merged = {
        name
        for side in sides
        for live in side.runs
        if live.merged_from is not None
        for name in live.merged_from.runs
    }
    of_file: dict[str, list[int]] = {}
    for side in sides:
        for live in side.runs:
            if live.run.name not in merged:
                of_file.setdefault(live.run.name, []).append(measure(live))
    return of_file


def _format_largest_sides(
    sides: Sequence[_RetainedSide], measure: Callable[[LiveRun], int], shown: Callable[[int], str]
) -> str:
    """Format the names and sizes of the sides that retain most, the largest first."""
    by_name: dict[str, int] = {}
    for side in sides:
        by_name[side.name] = by_name.get(side.name, 0) + sum(map(measure, side.runs))
    order = sorted(by_name, key=lambda name: -by_name[name])
    more = [f"{len(order) - MAX_NAMED_SIDES} more"] if len(order) > MAX_NAMED_SIDES else []
    return ", ".join([*(f"{name}: {shown(by_name[name])}" for name in order[:MAX_NAMED_SIDES]), *more])


def _describe_side_keys(sides: Sequence[_RetainedSide]) -> str:
    told = [
        f"of {side.name} {share}"
        for side in sides
        if side.shape is not None and not side.is_copy
        for share in key_shares(side.shape, side.runs)
    ]
    return f"; heaviest keys: {', '.join(told[:MAX_NAMED_SIDES])}" if told else ""


def check_invariants(
    query: str, before: QueryState, after: QueryState, least_out: Sequence[Mapping[str, int]]
) -> None:
    """Compare a query's state after a tick with the state before it and with the tick's rows.

    Args:
        least_out: per node and watermark key, the least time among the rows that the node emitted.

    Raises:
        EngineError: ``internal-watermark``, with the key and both values. Then nothing may be
            committed.
    """
    for what, old, new in _pair_watermarks(before, after):
        for key, value in old.items():
            if new.get(key, NEVER) < value:
                raise _invariant_error(
                    query, f"the {what} of {key} went back from {value} to {new.get(key, NEVER)}"
                )
    for node, least in zip(before.nodes, least_out, strict=False):
        for key, time in least.items():
            promised = node.emitted.get(key, NEVER)
            if time < promised:
                raise _invariant_error(
                    query, f"a row has {key} = {time}, below the output watermark {promised}"
                )


def _pair_watermarks(
    before: QueryState, after: QueryState
) -> Iterator[tuple[str, Mapping[str, Watermark], Mapping[str, Watermark]]]:
    """Yield (name of the kind, before, after) for all watermarks, each per key ``alias.column``."""
    yield "watermark", _watermarks(before), _watermarks(after)
    yield "limit of lateness", before.late_below, after.late_below
    for old, new in zip(before.nodes, after.nodes, strict=False):
        yield "limit", _limits(old), _limits(new)
        yield "output watermark", old.emitted, new.emitted


def _watermarks(state: QueryState) -> dict[str, Watermark]:
    return {
        f"{alias}.{column}": value
        for alias, input_state in state.inputs.items()
        for column, value in input_state.watermarks.items()
    }


def _limits(node: NodeState) -> dict[str, Watermark]:
    return {
        f"{side}.{column}": value
        for side, arrangement in node.arrangements.items()
        for column, value in arrangement.limits.items()
    }


def _invariant_error(query: str, detail: str) -> EngineError:
    return EngineError(
        f'"{query}": {detail}; the tick was not committed',
        code="internal-watermark",
        hint="this is a bug in watersmeet: please report it with the job and this message",
    )
