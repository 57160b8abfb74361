"""Record a run's history: ticks as they end, and costlier figures now and then.

subject                                   figures
partition/QUERY/ALIAS/SOURCE/PARTITION    watermark of COLUMN; last_row_us (clock of its last row): levels
partitions/QUERY/ALIAS                    count, idle: levels
side/QUERY/SIDE                           retained, file_bytes, forecast_rows, forecast_bytes: levels;
                                          hot_keys: of each its rows

Of an input with more than `MAX_SAMPLED_PARTITIONS` active partitions, the slowest ones are recorded.
"""

from __future__ import annotations

import heapq
import platform
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from watersmeet.errors import printable, without_hidden
from watersmeet.event_time import NEVER, Watermark, shift
from watersmeet.history import segments
from watersmeet.history.plan_document import Drawing, SideFiles, limits_of
from watersmeet.history.points import OFFSET, Figures, figures_of, level_of, subject_of, words_of
from watersmeet.history.writer import HistoryWriter
from watersmeet.observe.listeners import Listener
from watersmeet.observe.progress import TickReport
from watersmeet.observe.reports import ObservedPartition, ObservedTick, integer_columns
from watersmeet.observe.watermark_holders import WaitingInput
from watersmeet.plan.explain import explain
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.order.forecast import forecasts_of
from watersmeet.spec.model import Job
from watersmeet.spec.secrets import public_setting
from watersmeet.state.store import Store

SAMPLE_US = 5_000_000
"""Between two looks, by the clock of ticks, at least."""
MAX_SAMPLED_PARTITIONS = 12

_Levels = dict[tuple[str, str], int | None]


class TickSampler:
    """At the ticks of a run of a plan."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._looked_us: int | None = None

    def is_due(self, result: ObservedTick) -> bool:
        return self._looked_us is None or abs(result.clock_us - self._looked_us) >= SAMPLE_US

    def figures(self, result: ObservedTick) -> Figures:
        """See the module."""
        self._looked_us = result.clock_us
        levels: _Levels = {}
        for query in self._plan.queries:
            if query.name in result.queries:
                levels |= dict(self._partitions(query, result))
        levels |= dict(self._sides(result))
        keys = {
            (subject_of("side", query, side), "hot_keys", words_of(heavy.key)): heavy.rows
            for query, of_query in result.queries.items()
            for side, told in of_query.heavy.items()
            for heavy in told
        }
        return Figures(levels=levels, keys=keys)

    def _partitions(
        self, query: QueryPlan, result: ObservedTick
    ) -> Iterator[tuple[tuple[str, str], int | None]]:
        """Yield partition counts, and the watermarks of the active partitions that lag most.

        The time of each of these partitions' last row is also included. Partitions of sources that another
        query reads are reported for that query.
        """
        read = result.partitions().get(query.name, {})
        for side in query.sides:
            named: list[tuple[tuple[str, str], ObservedPartition, dict[str, Watermark]]] = []
            branches: Sequence[Mapping[str, ObservedPartition]] = read.get(side.name, ())
            for number, branch in side.sources:
                lags = dict(zip(side.event_times, branch.lags, strict=True))
                for name, partition in branches[number].items() if number < len(branches) else ():
                    marks = {
                        column: NEVER if lag is None else shift(partition.greatest.get(column, NEVER), -lag)
                        for column, lag in lags.items()
                    }
                    named.append(((branch.source.name, name), partition, marks))
            if not named:
                continue
            active = [one for one in named if not one[1].idle]
            counts = subject_of("partitions", query.name, side.name)
            yield (counts, "count"), len(named)
            yield (counts, "idle"), len(named) - len(active)
            for names, partition, marks in heapq.nsmallest(
                MAX_SAMPLED_PARTITIONS, active, key=lambda one: min(one[2].values(), default=NEVER)
            ):
                of = subject_of("partition", query.name, side.name, *names)
                yield (of, "last_row_us"), partition.heard_at_us
                for column, mark in marks.items():
                    yield (of, f"watermark of {column}"), level_of(mark)

    def _sides(self, result: ObservedTick) -> Iterator[tuple[tuple[str, str], int | None]]:
        """Yield retained rows, file bytes and forecasts of each side.

        State that several queries share is reported for each. Partial aggregates have no row forecast,
        because more rows do not make them grow.
        """
        measured = result.measured()
        for query in self._plan.queries:
            sides = measured.get(query.name, {})
            for name, side in sides.items():
                of = subject_of("side", query.name, name)
                yield (of, "retained"), side.retained
                yield (of, "file_bytes"), side.file_bytes
            for _, forecasts in forecasts_of(query.alone, sides):
                for forecast in forecasts:
                    if forecast.panes is None and forecast.expected is not None:
                        of = subject_of("side", query.name, forecast.side.name)
                        yield (of, "forecast_rows"), round(forecast.expected)
                        yield (of, "forecast_bytes"), round(forecast.expected * forecast.row.bytes)


MAX_NOTICES = 100


@dataclass(frozen=True)
class RunDescription:
    """Description of a run that is recorded when it begins.

    Attributes:
        settings: settings of the run and of Spark, without secrets.
        explained: the text of EXPLAIN.
        integer_times: the subjects (``time/…``) whose watermarks are integers.
        late_files: files of late rows.
        broken_files: files of records that do not parse.
    """

    plan: JobPlan
    settings: Mapping[str, str]
    explained: str
    integer_times: tuple[str, ...]
    late_files: SideFiles | None = None
    broken_files: SideFiles | None = None

    @classmethod
    def of(cls, job: Job, plan: JobPlan) -> RunDescription:
        every = (*job.run.items(), *job.settings.items())
        settings = {name: public_setting(name, value) for name, value in every}
        integers = {subject_of("time", *names) for names in integer_columns(plan)}
        files = (SideFiles.of_job(job, setting) for setting in ("late_output", "broken_output"))
        return cls(plan, settings, explain(plan), tuple(sorted(integers)), *files)


class EndedRunReport(Protocol):
    """The facts that are read of how a run ended."""

    @property
    def finished(self) -> bool: ...
    @property
    def stopped(self) -> bool: ...


class HistoryRecorder(Listener):
    """Listener that stores the history of a run next to its state.

    It begins when the run holds its checkpoint (`started`); a run that fails earlier leaves no record.

    Args:
        store: returns the store of the state, once the run has begun.
        clock: returns the time in µs since 1970.
    """

    def __init__(
        self, store: Callable[[], Store], about: RunDescription, clock: Callable[[], int] | None = None
    ) -> None:
        self._place = store
        self._say: Callable[[str], None] = lambda _: None
        self._about = about
        self._clock = clock or _now_us
        self._looks = TickSampler(about.plan)
        self._not_looked_at: tuple[ObservedTick, int] | None = None
        self._notices: list[str] = []
        self._told: dict[tuple[str, str], str] = {}
        self._read: dict[tuple[str, str], int | None] = {}
        self._keeping: HistoryWriter | None = None
        self._store: Store | None = None
        self._run: str | None = None

    @contextmanager
    def recording_run(self, say: Callable[[str], None]) -> Iterator[Callable[[EndedRunReport], None]]:
        """Record the run in the context; yield a function to call with how the run ended.

        Args:
            say: receives one message if the history cannot be written.
        """
        self._say = say
        outcomes: list[EndedRunReport] = []
        try:
            yield outcomes.append
        except Exception as error:
            self._end("failed", error)
            raise
        except BaseException:  # Ctrl-C before the run could take it for a wish to stop
            self._end("stopped")
            raise
        for outcome in outcomes:
            self._end("stopped" if outcome.stopped else "finished" if outcome.finished else "caught up")

    def started(self, waiting: Sequence[WaitingInput], before: ObservedTick | None) -> None:
        self._store = self._place()
        self._keeping = HistoryWriter(self._store, self._say)
        try:
            self._run = segments.begin(self._store, uuid.uuid4().hex[:8], self._build_run_start())
        except Exception as error:  # it is for people: no job ends by it
            self._say(f"the history of the job cannot be written: {error}")

    def _build_run_start(self) -> segments.RunStart:
        about = self._about
        return segments.RunStart(
            started_us=self._clock(),
            version=_version(),
            machine=platform.node(),
            settings=about.settings,
            plan=about.explained,
            integer_times=about.integer_times,
            drawing=Drawing.of_plan(about.plan),
            limits=limits_of(about.plan),
            late_files=about.late_files,
            broken_files=about.broken_files,
        )

    def notice(self, said: str) -> None:
        if len(self._notices) < MAX_NOTICES:
            self._notices.append(printable(without_hidden(said)))

    def tick(self, report: TickReport, result: ObservedTick) -> None:
        if self._keeping is None:
            return
        try:
            figures = figures_of(report, result)
            told = [words for words in figures.told if self._told.get(words[:2]) != words[2]]
            self._told = {words[:2]: words[2] for words in figures.told}
            now_us, looked = self._clock(), Figures()
            self._not_looked_at = result, now_us
            if self._looks.is_due(result):
                looked, self._not_looked_at = self._looks.figures(result), None
            levels = {**self._drop_unchanged_offsets(figures.levels), **looked.levels}
            self._keeping.add(result.tick, now_us, Figures(figures.amounts, levels, told, looked.keys))
        except Exception as error:  # it is for people: no job ends by it
            self._say(
                f"the history of the job has no more ticks of this run: {type(error).__name__}: {error}"
            )
            self._keeping.close()
            self._keeping = None

    def _drop_unchanged_offsets(
        self, levels: Mapping[tuple[str, str], int | None]
    ) -> dict[tuple[str, str], int | None]:
        """Drop offsets of source partitions that did not change since the last sample."""
        read = {name: level for name, level in levels.items() if name[1].startswith(f"{OFFSET} ")}
        same = {name for name, level in read.items() if self._read.get(name) == level}
        self._read = read
        return {name: level for name, level in levels.items() if name not in same}

    def _end(self, how: str, error: BaseException | None = None) -> None:
        if self._keeping is not None:
            self._record_last_tick()
            self._keeping.close()
        if self._store is None or self._run is None:
            return
        told = None if error is None else printable(without_hidden(str(error)))
        ended = segments.RunEnd(ended_us=self._clock(), how=how, error=told, notices=tuple(self._notices))
        try:
            segments.end(self._store, self._run, ended)
        except Exception as problem:  # see `started`
            self._say(f"the history of the job cannot be written: {problem}")

    def _record_last_tick(self) -> None:
        """Record the figures of the last tick if they were not sampled yet.

        The history's last figures are thus never older than the last tick.
        """
        if self._not_looked_at is not None and self._keeping is not None:
            result, now_us = self._not_looked_at
            with suppress(Exception):  # see `tick`
                self._keeping.add(result.tick, now_us, self._looks.figures(result))


def _version() -> str:
    try:
        return version("watersmeet")
    except PackageNotFoundError:  # it runs from a source tree
        return "none"


def _now_us() -> int:
    return time.time_ns() // 1000
