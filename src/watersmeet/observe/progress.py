"""What a run looks like while it runs: a live table on a terminal, a plain line per tick elsewhere, or JSON.

Fed with one `TickReport` per tick, by whoever runs the job. Nothing here knows an engine, and nothing here
has a clock: rates are over the time from the end of a tick to the end of the next, as the reports have it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from watersmeet.errors import counted
from watersmeet.event_time import ENDED, NEVER, Watermark, shown_time
from watersmeet.observe.account import Lateness
from watersmeet.observe.held import Ahead, Held, Waiting, ahead_words, standstill_words
from watersmeet.observe.store_use import StoreUse
from watersmeet.plan.explain.durations import rounded_up

RECENT_TICKS = 10
LINE = 120
"""Characters of a plain line, at most."""

HOT_SHARE = 0.1
"""A key with so great a share of what an input keeps is told of, once it has `HOT_ROWS`."""
HOT_ROWS = 10_000


@dataclass(frozen=True)
class HeavyKey:
    """A key with many of the rows that an input keeps: about how many, and their share of all of them."""

    key: str
    rows: int
    share: float


@dataclass(frozen=True)
class SplitKey:
    """A key that had so great a share of a join's work in the tick that all tasks shared its rows."""

    key: str
    share: float


@dataclass(frozen=True)
class InputReport:
    """One input alias of one insert; counters are since the job's first tick but for ``rows_in`` and
    ``late_in``, which are of this tick. ``rows_total``: all rows that came in.

    ``watermarks``: per event-time column; ``late_by``: how late the late rows were, likewise; ``held_by``:
    the silent partitions that hold a watermark back; ``idle``: all its partitions are idle;
    ``missing_deletes``: some of the rows that this tick was to delete and that were not there, as JSON;
    ``heavy_keys``: of what is kept, the heaviest first; ``split_keys``: see `SplitKey`.
    """

    name: str
    rows_in: int
    matched: int
    padded: int
    late: int
    retained: int
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)
    late_by: Mapping[str, Lateness] = field(default_factory=dict)
    held_by: tuple[Held, ...] = ()
    idle: bool = False
    grouped: int = 0
    late_in: int = 0
    rows_total: int = 0
    missing_deletes: tuple[str, ...] = ()
    heavy_keys: tuple[HeavyKey, ...] = ()
    split_keys: tuple[SplitKey, ...] = ()

    @property
    def standstill(self) -> str | None:
        """Why its watermark does not move, if there is a reason to name."""
        return standstill_words(self.held_by, self.watermarks.values(), self.idle)


@dataclass(frozen=True)
class Backlog:
    """What of a source was not read yet; ``of``: ``files`` or ``rows``."""

    count: int
    of: str


@dataclass(frozen=True)
class TickReport:
    """One tick. ``seconds`` is its duration; ``rows_in``: rows read in it per source, each once, however many
    inputs take it; ``rows_out``: rows that went to the sink in it, per insert. ``elapsed``: seconds of the
    clock since the tick before ended, with its waiting; of the first tick its duration. ``clock_us``: when it
    ended; None: not known. ``backlog``: per source, where it is known. ``held``: the sources that the next
    tick does not read. ``tasks``: per insert, in how many tasks its rows were worked on, the most that any
    step of it had; 0: the driver did all of it itself. ``store``: what it asked of the store of its state,
    where that is remote. ``parts``: seconds that its parts took, in their order."""

    tick: int
    seconds: float
    inputs: tuple[InputReport, ...]
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    elapsed: float = 0.0
    clock_us: int | None = None
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    held: Mapping[str, Ahead] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    store: StoreUse | None = None
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def most_tasks(self) -> str:
        """``2 tasks``: the most of an insert; empty: there were none."""
        most = max(self.tasks.values(), default=0)
        return counted(most, "task") if most else ""

    @property
    def behind(self) -> str:
        """What was not read yet, of all sources where it is known; empty: nothing."""
        units = sorted({backlog.of for backlog in self.backlog.values()})
        sums = [
            (sum(backlog.count for backlog in self.backlog.values() if backlog.of == of), of) for of in units
        ]
        return " + ".join(f"{count:,} {of}" for count, of in sums if count)

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
        return max(self.elapsed, self.seconds) or 1e-9


class Progress(Protocol):
    """A context that takes reports while it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def start(self, waiting: Sequence[Waiting]) -> None:
        """Show, before the first tick, whose watermark waits for silent partitions."""

    def update(self, report: TickReport) -> None:
        """Show one more tick."""


class Quiet:
    """Shows nothing: for those that have nothing to open or close, and where nothing is to be seen."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def start(self, waiting: Sequence[Waiting]) -> None:
        return None

    def update(self, report: TickReport) -> None:
        return None


class _HotKeys:
    """Tells of hot keys, and of those that tasks share, of each once."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._split: set[tuple[str, str]] = set()

    def told(self, report: TickReport) -> list[str]:
        """A line for each key that has become hot."""
        lines = []
        for row in report.inputs:
            for heavy in row.heavy_keys:
                if heavy.share < HOT_SHARE or heavy.rows < HOT_ROWS or (row.name, heavy.key) in self._told:
                    continue
                self._told.add((row.name, heavy.key))
                lines.append(f"{row.name}: hot key, {heavy.share:.0%} of {row.retained:,} rows: {heavy.key}")
            for split in row.split_keys:
                if (row.name, split.key) not in self._split:
                    self._split.add((row.name, split.key))
                    lines.append(
                        f"{row.name}: key split over all tasks, {split.share:.0%} of the work: {split.key}"
                    )
        return lines


class Recent:
    """The last ticks of a run, and how many rows all of its ticks had. ``rows_in``: read from sources;
    ``rows_out``: to sinks."""

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

    def rates(self) -> tuple[float, float]:
        """Rows a second of the clock, in and out, over the last ticks; there is one at least."""
        reports = list(self._reports)  # another thread may add one
        seconds = sum(report.lasted for report in reports)
        return sum(report.read for report in reports) / seconds, sum(
            report.written for report in reports
        ) / seconds


class LiveProgress:
    """A table that is redrawn with every tick.

    ``integers``: watermark keys of integer times, shown as numbers; the others are shown as timestamps (UTC).
    """

    def __init__(self, console: Console, title: str, integers: frozenset[str] = frozenset()) -> None:
        self._title = title
        self._integers = integers
        self._recent = Recent()
        self._hot = _HotKeys()
        self._live = Live(Text(f"{title}: starting …"), console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def start(self, waiting: Sequence[Waiting]) -> None:
        for wait in waiting:
            self._live.console.print(wait.words(), markup=False, highlight=False)

    def update(self, report: TickReport) -> None:
        self._recent.add(report)
        for told in (*_missing(report), *self._hot.told(report)):
            self._live.console.print(told, markup=False, highlight=False)
        self._live.update(self._view(report), refresh=True)

    def _view(self, report: TickReport) -> RenderableType:
        fast_in, fast_out = self._recent.rates()
        head = Text.assemble(
            (self._title, "bold"),
            f"   tick {report.tick:,} took {report.seconds:.2f} s{_of_the_clock(report)}"
            f"{report.most_tasks and f', {report.most_tasks}'}\n",
            f"in  {fast_in:>9,.0f} rows/s   {self._recent.rows_in:>13,} rows read from sources\n",
            f"out {fast_out:>9,.0f} rows/s   {self._recent.rows_out:>13,} rows to sinks\n",
            f"not read yet: {report.behind}\n" if report.behind else "",
            f"{report.store.words()}\n" if report.store else "",
            f"{held}\n" if (held := ahead_words(report.held, not self._integers)) else "",
        )
        table = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("input", no_wrap=True)
        table.add_column("watermark")  # the one that folds on narrow terminals
        windows = any(row.grouped for row in report.inputs)
        for name in ("all in", "matched", "padded", *(("grouped",) if windows else ()), "late", "retained"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in report.inputs:
            marks = [
                f"{column} {shown_time(mark, f'{row.name}.{column}' in self._integers)}"
                for column, mark in row.watermarks.items()
            ]
            if row.standstill is not None:
                marks.append(row.standstill)
            grouped = (row.grouped,) if windows else ()
            counts = (row.rows_total, row.matched, row.padded, *grouped, row.late, row.retained)
            table.add_row(Text(row.name), Text("\n".join(marks)), *(f"{count:,}" for count in counts))
        return Group(head, table)


class PlainProgress(Quiet):
    """A line of at most `LINE` characters per tick, for logs and pipes: of the tick its seconds and tasks,
    rows read from sources and how many a second of the clock, rows to sinks and late ones; how many are kept;
    what is not read yet, where that is known; what was asked of the store of the state, where that is remote
    (beyond `LINE`); which sources wait for others; and the least watermark, how far it is behind the clock,
    and why it does not move."""

    def __init__(self, out: TextIO, integers: frozenset[str] = frozenset()) -> None:
        self._out = out
        self._integers = integers
        self._hot = _HotKeys()

    def start(self, waiting: Sequence[Waiting]) -> None:
        for wait in waiting:
            print(wait.words(), file=self._out, flush=True)

    def update(self, report: TickReport) -> None:
        late, kept = (sum(getattr(row, what) for row in report.inputs) for what in ("late_in", "retained"))
        line = (
            f"tick {report.tick}: {report.seconds:.2f} s, {report.most_tasks and f'{report.most_tasks}, '}"
            f"in {report.read:,} ({report.read / report.lasted:,.0f}/s), "
            f"out {report.written:,}, late {late:,}, kept {kept:,}"
        )
        if report.behind:
            line += f", backlog {report.behind}"
        asked = f", {report.store.words()}" if report.store else ""
        line += asked
        if report.held:
            line += f", {ahead_words(report.held, not self._integers)}"
        line = "; ".join(filter(None, [line, self._watermark(report), _standstill(report)]))
        print(_cut(line, LINE + len(asked)), file=self._out, flush=True)
        for told in (*_missing(report), *self._hot.told(report)):
            print(_cut(told), file=self._out, flush=True)

    def _watermark(self, report: TickReport) -> str:
        """The least one of the time axis; of integers, where there are no others."""
        marks = [
            (f"{row.name}.{column}", mark) for row in report.inputs for column, mark in row.watermarks.items()
        ]
        times = [time_mark for time_mark in marks if time_mark[0] not in self._integers] or marks
        if not times:
            return ""
        name, mark = min(times, key=lambda named: named[1])
        return f"W[{name}] {shown_time(mark, name in self._integers)}{self._behind(name, mark, report)}"

    def _behind(self, name: str, mark: Watermark, report: TickReport) -> str:
        if name in self._integers or report.clock_us is None or mark in (NEVER, ENDED):
            return ""
        behind = report.clock_us - int(mark)
        return f", {rounded_up(behind)} behind" if behind > 0 else ""


def _missing(report: TickReport) -> list[str]:
    """A line per input and row that was to be deleted and was not there, as far as they are told."""
    return [
        f"{row.name}: a delete of what is not there: {text}"
        for row in report.inputs
        for text in row.missing_deletes
    ]


def _cut(line: str, most: int = LINE) -> str:
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _standstill(report: TickReport) -> str:
    standing = [(row.name, row.standstill) for row in report.inputs if row.standstill is not None]
    if not standing:
        return ""
    name, why = standing[0]
    return f"{name} {why}" + (f" (and {len(standing) - 1} more)" if len(standing) > 1 else "")


def _of_the_clock(report: TickReport) -> str:
    """How much of the time since the tick before it was at work."""
    return f", {100 * report.seconds / report.lasted:.0f} % busy" if report.elapsed else ""


class JsonProgress(Quiet):
    """A JSON object per tick; watermarks are integers, null before the first row, "end" after all. Before
    them, if there are some to name, an object ``waiting``: inputs that wait for silent partitions."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def start(self, waiting: Sequence[Waiting]) -> None:
        if waiting:
            print(json.dumps({"waiting": [asdict(wait) for wait in waiting]}), file=self._out, flush=True)

    def update(self, report: TickReport) -> None:
        line = asdict(report)
        line["seconds"] = round(report.seconds, 4)
        line["parts"] = {part: round(seconds, 4) for part, seconds in report.parts.items()}
        for row in line["inputs"]:
            row["watermarks"] = {column: _json_mark(mark) for column, mark in row["watermarks"].items()}
        print(json.dumps(line), file=self._out, flush=True)


def _json_mark(mark: Watermark) -> Any:
    return None if mark == NEVER else "end" if mark == ENDED else mark
