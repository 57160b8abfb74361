"""Totals of a run, gathered tick by tick, and its remaining backlog."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from watersmeet.event_time import ENDED, NEVER, Watermark
from watersmeet.names import is_node_alias
from watersmeet.observe.progress import RecentTicks, TickReport
from watersmeet.observe.reports import (
    ObservedQuery,
    ObservedTick,
    integer_columns,
    split_by_alias,
    standstill_of,
)
from watersmeet.observe.retained_rows import RetentionForecast, collect_retained_state
from watersmeet.plan.model.job import JobPlan

# How much of a source is still to be read, and how long that may take.
#
# Of Kafka it is known in rows, of files in files: rows of those are reckoned by the rows that those had
# which were read since the first tick. More files than are known of may come meanwhile.

FILES = "files"


@dataclass(frozen=True)
class _Files:
    """File counts of a source.

    ``unread``: files that were unread after the last tick; ``read``: files read since the first tick;
    ``rows``: the rows of these.
    """

    unread: int
    read: int = 0
    rows: int = 0


@dataclass(frozen=True)
class RemainingInput:
    """Input that a run has still to read.

    Attributes:
        rows: Number of rows read so far.
        unread: Approximate number of rows still to be read; None: not known yet.
    """

    rows: int = 0
    unread: float | None = None
    _files: Mapping[str, _Files] = field(default_factory=dict)

    def after(self, report: TickReport) -> RemainingInput:
        """Return the remaining input after one more tick."""
        files, unread = dict(self._files), 0.0
        can_tell = bool(report.backlog)
        for source, backlog in report.backlog.items():
            if backlog.unit != FILES:
                unread += backlog.count
                continue
            before, rows = files.get(source), report.rows_in.get(source, 0)
            now = _Files(backlog.count)
            if before is not None:
                read = max(0, before.unread - backlog.count)
                now = _Files(backlog.count, before.read + read, before.rows + (rows if read else 0))
            files[source] = now
            if now.unread and not now.read:
                can_tell = False
            elif now.unread:
                unread += now.unread * now.rows / now.read
        return replace(self, rows=self.rows + report.read, unread=unread if can_tell else None, _files=files)

    @property
    def done(self) -> float | None:
        """The share that was read of what is known of."""
        if self.unread is None:
            return None
        return self.rows / (self.rows + self.unread) if self.rows or self.unread else 1.0

    def seconds(self, rate: float) -> float | None:
        """Estimate the seconds that the unread rows take at `rate` rows per second; None if unknown."""
        return None if self.unread is None or rate <= 0 else self.unread / rate


# What a run has come to, gathered tick by tick for whoever draws it.
#
# The thread that runs the job only notes here what it is told; all that has to be worked out of it is
# worked out by the thread that draws, once per tick.

STARTING, RUNNING, ENDED_WELL, FAILED = "starting", "running", "ended", "failed"
SPARKS = 40
"""So many ticks are drawn at most."""

SIDE_OUTPUT_PLACES = ("null_time", "ahead", "shed", "missing_deletes", "stale")
"""Places of the account, beside late and broken rows, in which rows are that take part in no result."""


@dataclass(frozen=True)
class QueryRow:
    """Figures of a query.

    Rates are rows per second of the clock over the last ticks; ``ins`` and ``outs`` are rates per tick,
    the oldest first; ``rows_out`` counts rows to the sink since the job's first tick;
    ``state_bytes`` is the size of the files of all its state.
    """

    name: str
    in_rate: float
    out_rate: float
    ins: Sequence[float]
    outs: Sequence[float]
    rows_out: int
    state_bytes: int


@dataclass(frozen=True)
class MarkRow:
    """A watermark. ``stands``: why it does not move."""

    name: str
    mark: Watermark
    integer: bool
    stands: str | None

    def delay_us(self, now_us: int) -> int | None:
        """Return how far the watermark lags the clock, in µs; None if this is unknown."""
        return None if self.integer or self.mark in (NEVER, ENDED) else now_us - int(self.mark)


@dataclass(frozen=True)
class InputRow:
    """Figures of an input; rows since the job's first tick.

    Attributes:
        aside: Rows by place of `SIDE_OUTPUT_PLACES`, for places that have rows.
        most: Forecast of the maximum of retained rows.
    """

    name: str
    rows_in: int
    late: int
    broken: int
    aside: Mapping[str, int]
    retained: int
    file_bytes: int | None
    most: RetentionForecast | None

    @property
    def share(self) -> float | None:
        """Retained rows as a share of the forecast rows; None without a forecast."""
        return None if self.most is None or not self.most.rows else self.retained / self.most.rows


@dataclass(frozen=True)
class Snapshot:
    """Figures of a run at a moment; it has no rows before the first tick.

    Attributes:
        seconds: Durations of the last ticks, the oldest first.
        parts: Mean seconds of each part of a tick.
        in_rate: Rows read from sources per second of the clock.
        out_rate: Rows written to sinks per second of the clock.
    """

    report: TickReport | None = None
    queries: Sequence[QueryRow] = ()
    marks: Sequence[MarkRow] = ()
    inputs: Sequence[InputRow] = ()
    seconds: Sequence[float] = ()
    parts: Mapping[str, float] = field(default_factory=dict)
    in_rate: float = 0.0
    out_rate: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    left: RemainingInput = field(default_factory=RemainingInput)


class RunTotals:
    """Running totals of one run."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._integers = integer_columns(plan)
        self._lock = Lock()
        self._recent = RecentTicks()
        self._ins: dict[str, deque[float]] = {}
        self._outs: dict[str, deque[float]] = {}
        self._seconds: deque[float] = deque(maxlen=SPARKS)
        self._left = RemainingInput()
        self._last: tuple[TickReport, ObservedTick] | None = None
        self._made: Snapshot = Snapshot()
        self._made_of: ObservedTick | None = None

    def add(self, report: TickReport, result: ObservedTick) -> None:
        """Add one more tick."""
        with self._lock:
            self._recent.add(report)
            self._left = self._left.after(report)
            self._seconds.append(report.seconds)
            for query, own in result.queries.items():
                came = sum(counts.get("in", 0) for alias, counts in own.counts.items() if _is_input(alias))
                self._ins.setdefault(query, deque(maxlen=SPARKS)).append(came / report.lasted)
                self._outs.setdefault(query, deque(maxlen=SPARKS)).append(own.rows_out / report.lasted)
            self._last = report, result

    def snapshot(self) -> Snapshot:
        """Return the totals as of the last tick."""
        with self._lock:
            if self._last is None or self._last[1] is self._made_of:
                return self._made
            report, result = self._last
            ins = {query: tuple(rates) for query, rates in self._ins.items()}
            outs = {query: tuple(rates) for query, rates in self._outs.items()}
            seconds, left, reports = tuple(self._seconds), self._left, self._recent.reports
            in_rate, out_rate = self._recent.rates()
            rows_in, rows_out = self._recent.rows_in, self._recent.rows_out
        weights = [one.lasted for one in reports]
        made = Snapshot(
            report,
            tuple(
                QueryRow(
                    query,
                    _mean(ins[query], weights),
                    _mean(outs[query], weights),
                    ins[query],
                    outs[query],
                    own.total_rows_out,
                    own.state_bytes,
                )
                for query, own in result.queries.items()
            ),
            tuple(self._marks(result)),
            tuple(self._inputs(result)),
            seconds,
            _parts(reports),
            in_rate,
            out_rate,
            rows_in,
            rows_out,
            left,
        )
        self._made, self._made_of = made, result
        return made

    def _marks(self, result: ObservedTick) -> Iterator[MarkRow]:
        for query, own in result.queries.items():
            marks = split_by_alias(own.input_watermarks, own.account)
            for alias in filter(_is_input, own.account):
                stands = standstill_of(own, alias)
                for column, mark in marks[alias].items():
                    integer = (query, alias, column) in self._integers
                    yield MarkRow(f"{_name(result, query, alias)}.{column}", mark, integer, stands)

    def _inputs(self, result: ObservedTick) -> Iterator[InputRow]:
        kept = collect_retained_state(self._plan, result)
        for query, own in result.queries.items():
            for alias, account in own.account.items():
                if not _is_input(alias):
                    continue
                of_input = kept.get((query, alias))
                yield InputRow(
                    _name(result, query, alias),
                    account.get("in", 0),
                    account.get("late", 0),
                    account.get("broken", 0),
                    {place: account[place] for place in SIDE_OUTPUT_PLACES if account.get(place)},
                    _retained(own, alias),
                    None if of_input is None else of_input.file_bytes,
                    None if of_input is None else of_input.forecast,
                )


def _is_input(alias: str) -> bool:
    """Return True if the alias is an input and not the rows of a join that feed windows."""
    return not is_node_alias(alias)


def _name(result: ObservedTick, query: str, alias: str) -> str:
    return alias if len(result.queries) == 1 else f"{query}.{alias}"


def _retained(own: ObservedQuery, alias: str) -> int:
    return own.account[alias].get("retained", own.state.get(alias, 0))


def _mean(rates: Sequence[float], weights: Sequence[float]) -> float:
    """Compute the average of rates over the last ticks, weighted by each tick's duration."""
    last = list(zip(rates[-len(weights) :], weights[-len(rates) :], strict=False))
    total = sum(weight for _, weight in last)
    return sum(rate * weight for rate, weight in last) / total if total else 0.0


def _parts(reports: Sequence[TickReport]) -> dict[str, float]:
    """Return the average seconds of each phase, in the order of a tick."""
    sums: dict[str, float] = {}
    for report in reports:
        for part, seconds in report.phases.items():
            sums[part] = sums.get(part, 0.0) + seconds
    return {part: seconds / len(reports) for part, seconds in sums.items()}
