"""What a run tells of its ticks, as values; how they look is in `live`, and elsewhere.

Nothing here knows an engine, and nothing here has a clock: rates are over the time from the end of a tick to
the end of the next, as the reports have it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from watersmeet.errors import format_count
from watersmeet.event_time import Watermark
from watersmeet.observe.row_accounting import LatenessCounts
from watersmeet.observe.watermark_holders import PausedSource, SilentPartition, StoreUse, standstill_words

RECENT_TICKS = 10
HEAVY_SHARE = 0.1
"""A key with so great a share of what an input keeps is told of, once it has `HEAVY_ROWS`."""
HEAVY_ROWS = 10_000


@dataclass(frozen=True)
class HeavyKeyProgress:
    """A key with many of the rows that an input keeps: about how many, and their share of all of them."""

    key: str
    rows: int
    share: float


@dataclass(frozen=True)
class SplitKeyProgress:
    """A key that had so great a share of a join's work in the tick that all tasks shared its rows."""

    key: str
    share: float


DROPPED = {"broken": "broken", "ahead": "ahead", "null_time": "without time"}
"""Places of the account for rows that are in no result, though they are not late, and words for them."""


@dataclass(frozen=True)
class InputReport:
    """Report of one input alias of one insert.

    Counters count since the job's first tick, but ``rows_in``, ``late_in_tick`` and ``dropped`` count this
    tick.

    Attributes:
        total_rows_in: All rows that arrived.
        dropped: Rows that are in no result though they are not late: ``broken``, ``ahead``, ``null_time``.
        watermarks: Watermark per event-time column.
        late_by: Lateness of the late rows per event-time column.
        watermark_holders: The silent partitions that hold a watermark back.
        idle: All partitions of the input are idle.
        missing_delete_examples: Some of the rows that this tick had to delete and that did not exist, as
            JSON.
        hot_keys: Keys with many of the retained rows, the heaviest first.
        split_keys: See `SplitKeyProgress`.
    """

    input: str
    rows_in: int
    matched: int
    padded: int
    late: int
    retained: int
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)
    late_by: Mapping[str, LatenessCounts] = field(default_factory=dict)
    watermark_holders: tuple[SilentPartition, ...] = ()
    idle: bool = False
    grouped: int = 0
    late_in_tick: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    total_rows_in: int = 0
    missing_delete_examples: tuple[str, ...] = ()
    hot_keys: tuple[HeavyKeyProgress, ...] = ()
    split_keys: tuple[SplitKeyProgress, ...] = ()

    @property
    def standstill(self) -> str | None:
        """Why its watermark does not move, if there is a reason to name."""
        return standstill_words(self.watermark_holders, self.watermarks.values(), self.idle)


@dataclass(frozen=True)
class Backlog:
    """Unread input of a source; ``unit``: ``files`` or ``rows``."""

    count: int
    unit: str


@dataclass(frozen=True)
class TickReport:
    """One tick.

    Attributes:
        seconds: its duration.
        rows_in: rows read in it per source, each once, however many inputs take it.
        rows_out: rows that went to the sink in it, per insert.
        elapsed_seconds: seconds of the clock since the tick before ended, with its waiting; of the first tick
            its duration.
        clock_us: when it ended; None: not known.
        backlog: per source, where it is known.
        paused_sources: those that the next tick does not read.
        tasks: per insert, in how many tasks its rows were worked on, the most that any step of it had; 0: the
            driver did all of it itself.
        store: what it asked of the store of its state, where that is remote.
        phases: seconds that its phases took, in their order.
        rounded: rows with decimals that were rounded, per source.
    """

    tick: int
    seconds: float
    inputs: tuple[InputReport, ...]
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    elapsed_seconds: float = 0.0
    clock_us: int | None = None
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    paused_sources: Mapping[str, PausedSource] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    store: StoreUse | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    rounded: Mapping[str, int] = field(default_factory=dict)

    @property
    def most_tasks(self) -> str:
        """``2 tasks``: the most of an insert; empty: there were none."""
        most = max(self.tasks.values(), default=0)
        return format_count(most, "task") if most else ""

    @property
    def behind(self) -> str:
        """Backlog of all sources that report one, as text; empty: no backlog."""
        units = sorted({backlog.unit for backlog in self.backlog.values()})
        sums = [
            (sum(backlog.count for backlog in self.backlog.values() if backlog.unit == of), of)
            for of in units
        ]
        return " + ".join(format_count(count, of.removesuffix("s")) for count, of in sums if count)

    @property
    def read(self) -> int:
        """Rows of all sources."""
        return sum(self.rows_in.values())

    @property
    def written(self) -> int:
        """Rows of all inserts."""
        return sum(self.rows_out.values())

    @property
    def lasted(self) -> float:
        """Seconds of the clock that the tick stands for."""
        return max(self.elapsed_seconds, self.seconds) or 1e-9


class ProgressNotices:
    """Notices on ticks in lines of their own.

    They report deletes of absent rows, heavy keys, and keys split among tasks; each key once.
    """

    def __init__(self) -> None:
        self._heavy: set[tuple[str, str]] = set()
        self._split: set[tuple[str, str]] = set()

    def of(self, report: TickReport) -> list[str]:
        """Return the notices of one tick."""
        lines = _missing(report)
        for row in report.inputs:
            for heavy in row.hot_keys:
                if (
                    heavy.share < HEAVY_SHARE
                    or heavy.rows < HEAVY_ROWS
                    or (row.input, heavy.key) in self._heavy
                ):
                    continue
                self._heavy.add((row.input, heavy.key))
                lines.append(
                    f"{row.input}: heavy key, {heavy.share:.0%} of {row.retained:,} rows: {heavy.key}"
                )
            for split in row.split_keys:
                if (row.input, split.key) not in self._split:
                    self._split.add((row.input, split.key))
                    lines.append(
                        f"{row.input}: key split over all tasks, {split.share:.0%} of the work: {split.key}"
                    )
        return lines


class RecentTicks:
    """Reports of the last ticks of a run, and row counts of all its ticks.

    Attributes:
        rows_in: Rows read from sources in all ticks.
        rows_out: Rows written to sinks in all ticks.
    """

    def __init__(self) -> None:
        self._reports: deque[TickReport] = deque(maxlen=RECENT_TICKS)
        self.rows_in = self.rows_out = 0

    def add(self, report: TickReport) -> None:
        self._reports.append(report)
        self.rows_in += report.read
        self.rows_out += report.written

    @property
    def last(self) -> TickReport | None:
        return self._reports[-1] if self._reports else None

    @property
    def reports(self) -> Sequence[TickReport]:
        """The last ticks, the oldest first."""
        return list(self._reports)  # another thread may add one

    def rates(self) -> tuple[float, float]:
        """Return rows in and rows out per second of the clock over the last ticks.

        There must be at least one tick.
        """
        reports = self.reports
        seconds = sum(report.lasted for report in reports)
        return sum(report.read for report in reports) / seconds, sum(
            report.written for report in reports
        ) / seconds


def _missing(report: TickReport) -> list[str]:
    """Return one line per input and example of a delete whose row was absent."""
    return [
        f"{row.input}: delete of an absent row: {text}"
        for row in report.inputs
        for text in row.missing_delete_examples
    ]
