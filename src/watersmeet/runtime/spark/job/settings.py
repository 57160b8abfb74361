"""How a job is run, and what is told of it in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from watersmeet.errors import SpecError
from watersmeet.objects.settings import store_of
from watersmeet.spec.job_options import LEAST_KEPT_TICKS, is_set
from watersmeet.spec.secrets import OpaqueSecret
from watersmeet.types.intervals import IntervalError, trigger_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from watersmeet.objects.remote import RemoteStore
    from watersmeet.runtime.coordinator.results import TickResult
    from watersmeet.runtime.spark.sources.backlog import Backlog
    from watersmeet.runtime.spark.sources.dataframes import Maker
    from watersmeet.runtime.spark.sources.files.progress import ChangedFiles
    from watersmeet.sinks.base import RowPrinter
    from watersmeet.spec.model import Column, Job
    from watersmeet.spec.options.function import OfBatches
    from watersmeet.watermark.holders import WatermarkHolder

    OnStart = Callable[[Mapping[str, Mapping[str, tuple[WatermarkHolder, ...]]], TickResult | None], None]
    OnTick = Callable[[TickResult, float, Mapping[str, float]], None]

DEFAULT_TRIGGER = "1 second"
"""Spark's own default, without a pause, takes a fifth of a core when there is nothing to do."""


def _now_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True)
class RunSettings:
    """Settings of a job's run: those of the caller and, once resolved, those of the job itself.

    Args:
        checkpoint: the directory of the job's state.
        partitions: tasks per node of a query; None: as many as it needs in each tick. Free to change
            between runs.
        trigger: time between ticks, such as ``2 seconds``; ``0``: as soon as there are rows.
        until_caught_up: end when the run has read all input that exists.
        finish: then end the input too: all rows are released, the job is over.
        run: the settings of the run as the job has them, for what a tick's rows depend on.
        secrets: names of Spark's settings whose values are secrets, whatever their names suggest.
        replace_newer_files: move sink files of ticks newer than the state out of readers' sight,
            instead
            of failing.
        change_queries: queries may be added, removed or changed since the last run.
        frames: by name, the DataFrames of sources that read one, and the functions that make the
            DataFrames of tables.
        functions: by name, the functions of sinks that call a function of this process.
        console: shows the rows of console sinks.
        is_background: the run has a thread of its own, in a process that does other things.
        stop: an event that ends the run when it is set, as a signal does.
        clock: returns the time in µs since 1970.
        on_notice: called with messages for the user that do not stop the job.
        keep_ticks: number of ticks that a restore can return to, including the newest one
            (`state.garbage_collection`).
        store: the place of the state; None: the checkpoint directory.
        rebuild: rebuild Spark's checkpoint from the state.
        accept_loss: names of Kafka sources that continue although rows were deleted before they were
            read.
        accept_target: names of sinks whose target may differ from the one the job has written to.
        accept_moved: names of file sources whose files are the same ones at another path.
        inferred: per source the inferred columns, which the state has to store.
        on_start: called before the first tick with the partitions without rows, per query and alias,
            that
            hold a watermark back from the start, and with the result of the state's last tick.
        on_begin: called with the number of a tick that begins.
        on_backlog: called at the end of a tick with the unread input, before ``on_tick``.
        on_tick: called after every tick with its result, its seconds, and the seconds of its parts.
    """

    checkpoint: str
    partitions: int | None = None
    trigger: str = DEFAULT_TRIGGER
    until_caught_up: bool = False
    finish: bool = False
    run: Mapping[str, str] = field(default_factory=dict)
    secrets: Collection[str] = ()
    replace_newer_files: bool = False
    change_queries: bool = False
    keep_ticks: int = LEAST_KEPT_TICKS
    rebuild: bool = False
    store: RemoteStore | None = None
    accept_loss: Collection[str] = ()
    accept_target: Collection[str] = ()
    accept_moved: Collection[str] = ()
    inferred: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    frames: Mapping[str, DataFrame | Maker] = field(default_factory=dict)
    functions: Mapping[str, OfBatches] = field(default_factory=dict)
    console: RowPrinter | None = None
    is_background: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], int] = _now_us
    on_start: OnStart | None = None
    on_notice: Callable[[str], None] | None = None
    on_begin: Callable[[int], None] | None = None
    on_backlog: Callable[[Backlog], None] | None = None
    on_tick: OnTick | None = None

    def __post_init__(self) -> None:
        _trigger_ms(self.trigger)

    def resolve(self, job: Job) -> RunSettings:
        """Add the settings that the job has; they take precedence, and a switch that is on stays on."""
        run = job.run
        finish = self.finish or is_set(run, "finish")
        return replace(
            self,
            checkpoint=run.get("checkpoint", self.checkpoint),
            partitions=int(run["partitions"]) if "partitions" in run else self.partitions,
            trigger=run.get("trigger", self.trigger),
            until_caught_up=finish or self.until_caught_up or is_set(run, "until_caught_up"),
            finish=finish,
            run=run,
            secrets=tuple(name for name, value in job.settings.items() if isinstance(value, OpaqueSecret)),
            replace_newer_files=self.replace_newer_files or is_set(run, "replace_newer_files"),
            change_queries=self.change_queries or is_set(run, "change_queries"),
            keep_ticks=int(run.get("keep_ticks", self.keep_ticks)),
            store=store_of(run) if self.store is None else self.store,
        )

    @property
    def trigger_ms(self) -> int:
        return _trigger_ms(self.trigger)

    @property
    def given(self) -> Mapping[str, DataFrame]:
        """The DataFrames of streams, by name."""
        return {name: frame for name, frame in self.frames.items() if not callable(frame)}

    @property
    def table_functions(self) -> Mapping[str, Maker]:
        """Functions that make the DataFrames of tables, by name."""
        return {name: maker for name, maker in self.frames.items() if callable(maker)}


def _trigger_ms(trigger: str) -> int:
    try:
        return trigger_ms(trigger)
    except IntervalError as error:
        raise SpecError(f'"{trigger}" is not a valid trigger', code="bad-setting", hint=error.hint) from None


@dataclass
class RunResult:
    """Result of a run.

    Attributes:
        ticks: Number of ticks of this run.
        last: Result of the last tick.
        stopped: A signal stopped the run.
        changed: Per source, files whose present content is not in the result, since the job's start.
    """

    ticks: int = 0
    last: TickResult | None = None
    finished: bool = False
    stopped: bool = False
    changed: Mapping[str, ChangedFiles] = field(default_factory=dict)
