"""Convert an engine's tick results to displayable reports; no other module knows both."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from watersmeet.errors import format_count
from watersmeet.event_time import Watermark
from watersmeet.names import is_node_alias
from watersmeet.observe.progress import DROPPED, Backlog, HeavyKeyProgress, InputReport, TickReport
from watersmeet.observe.progress import SplitKeyProgress as SplitKeyTold
from watersmeet.observe.row_accounting import Account, InputAccount, LatenessCounts
from watersmeet.observe.watermark_holders import PausedSource as AheadTold
from watersmeet.observe.watermark_holders import (
    SilentPartition,
    StepUse,
    StoreUse,
    WaitingInput,
    standstill_words,
)
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.order.forecast import MeasuredSide


class ObservedQuery(Protocol):
    """The part of a tick's result that listeners read of one query. Counters are per alias."""

    @property
    def input_watermarks(self) -> Mapping[str, Watermark]: ...
    @property
    def output_watermarks(self) -> Mapping[str, Watermark]: ...
    @property
    def late_below(self) -> Mapping[str, Watermark]: ...
    @property
    def state(self) -> Mapping[str, int]: ...
    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]: ...
    @property
    def account(self) -> Mapping[str, Mapping[str, int]]: ...
    @property
    def shed_joined(self) -> Mapping[str, int]: ...
    @property
    def rows_out(self) -> int: ...
    @property
    def total_rows_out(self) -> int: ...
    @property
    def matches(self) -> int: ...
    @property
    def state_bytes(self) -> int: ...
    @property
    def holding(self) -> Mapping[str, Sequence[ObservedHolder]]: ...
    @property
    def idle(self) -> Sequence[str]: ...
    @property
    def late(self) -> Mapping[str, Mapping[str, ObservedLateness]]: ...
    @property
    def missing_deletes(self) -> Sequence[tuple[str, str]]: ...
    @property
    def heavy(self) -> Mapping[str, Sequence[ObservedKeyShare]]: ...
    @property
    def split(self) -> Mapping[str, Sequence[ObservedSplitKey]]: ...


class ObservedKeyShare(Protocol):
    """A key with many of the retained rows."""

    @property
    def key(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def share(self) -> float: ...


class ObservedSplitKey(Protocol):
    """A key whose rows all tasks shared in a tick."""

    @property
    def key(self) -> str: ...
    @property
    def share(self) -> float: ...


class ObservedLateness(Protocol):
    """Lateness of the rows of one column."""

    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def most(self) -> int: ...
    @property
    def integer(self) -> bool: ...


class ObservedHolder(Protocol):
    """A silent partition that holds a watermark back."""

    @property
    def source(self) -> str: ...
    @property
    def partition(self) -> str: ...
    @property
    def since_us(self) -> int | None: ...
    @property
    def idle_timeout_us(self) -> int | None: ...


class ObservedPartition(Protocol):
    """Observed state of a partition of a source.

    Attributes:
        greatest: greatest time so far, per event time.
        heard_at_us: clock of the partition's last row.
        idle: True if the partition is idle.
    """

    @property
    def greatest(self) -> Mapping[str, Watermark]: ...
    @property
    def heard_at_us(self) -> int | None: ...
    @property
    def idle(self) -> bool: ...


class ObservedDrift(Protocol):
    """Distance by which a source is ahead of another one."""

    @property
    def behind(self) -> str: ...
    @property
    def by(self) -> int | None: ...


class ObservedTraffic(Protocol):
    """Bytes read from the state's store, read from a cache, and written to the store; and requests."""

    @property
    def fetched(self) -> int: ...
    @property
    def cached(self) -> int: ...
    @property
    def written(self) -> int: ...
    @property
    def requests(self) -> int: ...


class ObservedTick(Protocol):
    """The part of a tick's result that listeners read."""

    @property
    def tick(self) -> int: ...
    @property
    def clock_us(self) -> int: ...
    @property
    def rows_in(self) -> Mapping[str, int]: ...
    @property
    def queries(self) -> Mapping[str, ObservedQuery]: ...
    @property
    def rounded(self) -> Mapping[str, ObservedRounding]: ...
    @property
    def held(self) -> Mapping[str, ObservedDrift]: ...
    @property
    def tasks(self) -> Mapping[str, int]: ...
    @property
    def traffic(self) -> Mapping[str, Sequence[ObservedTraffic]]: ...
    @property
    def read(self) -> Mapping[str, Mapping[str, int]]: ...
    @property
    def began(self) -> Mapping[str, Mapping[str, int]]: ...
    @property
    def finished(self) -> bool: ...
    def measured(self) -> Mapping[str, Mapping[str, MeasuredSide]]: ...
    def partitions(self) -> Mapping[str, Mapping[str, Sequence[Mapping[str, ObservedPartition]]]]: ...


class ObservedRounding(Protocol):
    """Rows with decimals that were rounded."""

    @property
    def rows(self) -> int: ...


class ChangedFiles(Protocol):
    """Files of a source that are not in the result as they are now."""

    @property
    def files(self) -> int: ...
    @property
    def names(self) -> Sequence[str]: ...


class Reporter:
    """Turns results into reports. Keeps the last result, which has the account."""

    def __init__(self, show: Callable[[TickReport], None]) -> None:
        self._show = show
        self._before: float | None = None
        self.last: ObservedTick | None = None
        self._backlog: dict[str, Backlog] = {}

    def behind(self, backlog: Mapping[str, tuple[int, str]]) -> None:
        """Record the backlog at the end of the next reported tick: per source, a count and its unit."""
        self._backlog = {name: Backlog(count, unit) for name, (count, unit) in backlog.items()}

    def __call__(self, result: ObservedTick, seconds: float, phases: Mapping[str, float]) -> None:
        """Report one tick with its duration and the durations of its phases, in seconds."""
        self.last = result
        now = time.monotonic()
        elapsed = seconds if self._before is None else now - self._before
        self._before = now
        report = report_of(result, seconds, elapsed, time.time_ns() // 1000)
        self._show(replace(report, backlog=self._backlog, phases=phases))


def report_of(
    result: ObservedTick, seconds: float, elapsed: float = 0.0, clock_us: int | None = None
) -> TickReport:
    inputs = []
    for query, query_result in result.queries.items():
        watermarks = split_by_alias(query_result.input_watermarks, query_result.account)
        for alias, total in query_result.account.items():
            if is_node_alias(alias):
                continue  # rows of a join, on their way into windows
            inputs.append(
                InputReport(
                    input=_name(query, alias, len(result.queries)),
                    rows_in=query_result.counts.get(alias, {}).get("in", 0),
                    matched=total.get("matched", 0),
                    padded=total.get("padded", 0),
                    grouped=total.get("grouped", 0),
                    late=total.get("late", 0),
                    late_in_tick=query_result.counts.get(alias, {}).get("late", 0),
                    dropped={
                        place: rows
                        for place, rows in query_result.counts.get(alias, {}).items()
                        if place in DROPPED and rows
                    },
                    total_rows_in=total.get("in", 0),
                    retained=query_result.state.get(alias, 0),
                    watermarks=watermarks[alias],
                    late_by=_lateness(query_result.late.get(alias, {})),
                    watermark_holders=_silent_partitions(query_result.holding.get(alias, ())),
                    idle=alias in query_result.idle,
                    missing_delete_examples=tuple(
                        text for owner, text in query_result.missing_deletes if owner == alias
                    ),
                    hot_keys=tuple(
                        HeavyKeyProgress(told.key, told.rows, told.share)
                        for told in query_result.heavy.get(alias, ())
                    ),
                    split_keys=tuple(
                        SplitKeyTold(told.key, told.share) for told in query_result.split.get(alias, ())
                    ),
                )
            )
    rows_out = {query: own_result.rows_out for query, own_result in result.queries.items()}
    paused = {name: AheadTold(ahead.behind, ahead.by) for name, ahead in result.held.items()}
    return TickReport(
        result.tick,
        seconds,
        tuple(inputs),
        result.rows_in,
        rows_out,
        elapsed,
        clock_us,
        paused_sources=paused,
        tasks=dict(result.tasks),
        store=_store_use(result.traffic),
        rounded={name: own.rows for name, own in result.rounded.items()},
    )


def _store_use(traffic: Mapping[str, Sequence[ObservedTraffic]]) -> StoreUse | None:
    if not traffic:
        return None
    every = [of_task for of_tasks in traffic.values() for of_task in of_tasks]
    return StoreUse(
        fetched_bytes=sum(of_task.fetched for of_task in every),
        cached_bytes=sum(of_task.cached for of_task in every),
        written_bytes=sum(of_task.written for of_task in every),
        requests=sum(of_task.requests for of_task in every),
        steps=tuple(
            StepUse(
                step,
                tuple(of_task.fetched for of_task in of_tasks),
                tuple(of_task.cached for of_task in of_tasks),
                tuple(of_task.written for of_task in of_tasks),
                tuple(of_task.requests for of_task in of_tasks),
            )
            for step, of_tasks in traffic.items()
        ),
    )


def split_by_alias(
    watermarks: Mapping[str, Watermark], aliases: Iterable[str]
) -> defaultdict[str, dict[str, Watermark]]:
    """Split watermarks per alias and column.

    The longest alias wins: ``u.1.a.t`` is the column ``t`` of ``u.1.a``, even if there is an alias
    ``u``.
    """
    longest = sorted(aliases, key=len, reverse=True)
    split: defaultdict[str, dict[str, Watermark]] = defaultdict(dict)
    for key, mark in watermarks.items():
        owner = next((alias for alias in longest if key.startswith(f"{alias}.")), None)
        if owner is not None:
            split[owner][key.removeprefix(f"{owner}.")] = mark
    return split


def account_of(result: ObservedTick | None, changed: Mapping[str, ChangedFiles] | None = None) -> Account:
    """Return the row accounting as of a tick; for None (no tick) it has no inputs.

    Args:
        changed: changed files per source.
    """
    queries = {} if result is None else result.queries
    return Account(
        tuple(
            InputAccount.of(
                _name(query, alias, len(queries)),
                counts,
                counts.get("retained", query_result.state.get(alias, 0)),
                _lateness(query_result.late.get(alias, {})),
            )
            for query, query_result in queries.items()
            for alias, counts in query_result.account.items()
        ),
        {
            name: (changed_files.files, tuple(changed_files.names))
            for name, changed_files in (changed or {}).items()
        },
        {
            _name(query, title, len(queries)): rows
            for query, query_result in queries.items()
            for title, rows in query_result.shed_joined.items()
        },
    )


def waiting_inputs(holdings: Mapping[str, Mapping[str, Sequence[ObservedHolder]]]) -> list[WaitingInput]:
    """Return, per query and alias, the partitions for which a job waits when it starts."""
    return [
        WaitingInput(_name(query, alias, len(holdings)), _silent_partitions(partitions))
        for query, inputs in holdings.items()
        for alias, partitions in inputs.items()
        if partitions
    ]


def standstill_of(result: ObservedQuery, alias: str) -> str | None:
    """Explain why an input's watermarks do not advance; None if no reason is known."""
    marks = split_by_alias(result.input_watermarks, result.account)[alias]
    return standstill_words(
        _silent_partitions(result.holding.get(alias, ())), marks.values(), alias in result.idle
    )


def _silent_partitions(holdings: Sequence[ObservedHolder]) -> tuple[SilentPartition, ...]:
    return tuple(
        SilentPartition(holding.source, holding.partition, holding.since_us, holding.idle_timeout_us)
        for holding in holdings
    )


def _lateness(late: Mapping[str, ObservedLateness]) -> dict[str, LatenessCounts]:
    return {
        column: LatenessCounts(late_by.counts, late_by.most, late_by.integer)
        for column, late_by in late.items()
    }


def integer_times(plan: JobPlan) -> frozenset[str]:
    """Return the watermark keys, named as in reports, whose times are integers."""
    return frozenset(
        f"{_name(query, alias, len(plan.queries))}.{column}" for query, alias, column in integer_columns(plan)
    )


def integer_columns(plan: JobPlan) -> frozenset[tuple[str, str, str]]:
    """Return the watermark keys whose times are integers, each as query, alias and column."""
    columns = set()
    for query in plan.queries:
        for side in query.alone.sides:
            for name in side.event_times:
                column = side.input.column(name)
                if column is not None and not column.type.is_time:
                    columns.add((query.name, side.name, name))
    return frozenset(columns)


def _name(query: str, alias: str, queries: int) -> str:
    alias = input_name(alias)
    return alias if queries == 1 else f"{query}.{alias}"


def input_name(alias: str) -> str:
    """Return the name by which users know an alias; rows of a join have no name of their own.

    >>> input_name("o"), input_name("#1")
    ('o', 'rows of join 1')
    """
    return f"rows of join {alias[1:]}" if is_node_alias(alias) else alias


def released_words(last: ObservedTick, plan: JobPlan) -> str:
    """Describe the rows in state that the last tick, which closed the input, padded or dropped."""
    parts, padded = list[str](), 0
    for query in plan.queries:
        counts = last.queries[query.name].counts if query.name in last.queries else {}
        of_query = f' in "{query.name}"' if len(plan.queries) > 1 else ""
        versions = {join.right.name for join in query.every(JoinPlan) if join.asof is not None}
        padded += sum(own.get("padded", 0) for own in counts.values())
        for alias, own in counts.items():
            rows = own.get("released_unmatched", 0)
            name, is_version = input_name(alias).removeprefix("rows of "), alias in versions
            what = f"{format_count(rows, 'unused row' if is_version else 'row')} of {name}{of_query} dropped"
            parts += [what + ("" if is_version else " without a match")] if rows else []
    first = [f"{format_count(padded, 'remaining row')} emitted with NULLs"] if padded else []
    return f": {', '.join([*first, *parts])}" if first or parts else ""
