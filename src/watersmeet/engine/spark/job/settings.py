"""How a job is run, and what is told of it in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from watersmeet.engine.driver.results import TickResult
from watersmeet.engine.spark.sources.backlog import Backlog
from watersmeet.engine.spark.sources.dataframes import Maker
from watersmeet.engine.spark.sources.files.read import Changed
from watersmeet.errors import SpecError
from watersmeet.objects.remote import RemoteStore
from watersmeet.spec.limits import LEAST_KEPT_TICKS
from watersmeet.spec.model import Column
from watersmeet.types.intervals import IntervalError, trigger_ms
from watersmeet.watermark.holding import Holding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_TRIGGER = "1 second"
"""Spark's own default, without a pause, takes a fifth of a core when there is nothing to do."""


OnStart = Callable[[Mapping[str, Mapping[str, tuple[Holding, ...]]], TickResult | None], None]


def _now_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True)
class RunSettings:
    """How a job is run.

    Args:
        checkpoint: the directory of the job's state.
        partitions: tasks per node of a query; None: as many as it needs in each tick. Free to change
            between runs.
        trigger: time between ticks, such as ``2 seconds``; ``0``: as soon as there are rows.
        until_caught_up: end when the input that is there is used up.
        finish: then end the input too: all rows are released, the job is over.
        run: the settings of the run as the job has them, for what a tick's rows depend on.
        secrets: names of Spark's settings whose values are secrets, whatever they are called.
        replace_newer_files: parts of sinks of ticks that the state has not come to are moved out of
            readers' sight, instead of being refused.
        change_queries: queries may have come, gone or changed since the last run.
        given: the DataFrames of sources that are made of one, by name.
        makers: what makes those of tables, by name.
        stop: ends the run, when it is set, as a signal does.
        clock: returns the time in µs since 1970.
        on_notice: called with what a person should know and does not stop the job.
        keep_ticks: how many ticks can be gone back to, the newest one among them (`state.kept_ticks`).
        store: where the state is; None: in the checkpoint directory.
        rebuild: make Spark's checkpoint anew from the state.
        accept_loss: names of Kafka sources that go on though rows are gone before they were read.
        inferred: per source the columns that were inferred, which the state is to remember.
        on_start: called before the first tick with the partitions without rows, per query and alias, that
            hold a watermark back from the start, and with what the last tick of the state has come to.
        on_begin: called with the number of a tick that begins.
        on_backlog: called when it has ended with what is not read yet, before ``on_tick``.
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
    inferred: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    given: Mapping[str, DataFrame] = field(default_factory=dict)
    makers: Mapping[str, Maker] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], int] = _now_us
    on_start: OnStart | None = None
    on_notice: Callable[[str], None] | None = None
    on_begin: Callable[[int], None] | None = None
    on_backlog: Callable[[Backlog], None] | None = None
    on_tick: Callable[[TickResult, float, Mapping[str, float]], None] | None = None

    def __post_init__(self) -> None:
        _trigger_ms(self.trigger)

    @property
    def trigger_ms(self) -> int:
        return _trigger_ms(self.trigger)


def _trigger_ms(trigger: str) -> int:
    try:
        return trigger_ms(trigger)
    except IntervalError as error:
        raise SpecError(f'"{trigger}" is not a valid trigger', code="bad-setting", hint=error.hint) from None


@dataclass
class RunResult:
    """``ticks``: of this run; ``last``: the last tick's result; ``stopped``: by a signal; ``changed``: files
    that are not in the result as they are now, per source, since the job's start."""

    ticks: int = 0
    last: TickResult | None = None
    finished: bool = False
    stopped: bool = False
    changed: Mapping[str, Changed] = field(default_factory=dict)
