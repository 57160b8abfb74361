"""Jobs of tests: run to their end in this thread, or in another one until they are stopped."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from watersmeet.errors import EngineError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.job.run import JobRun, build_outputs
from watersmeet.runtime.spark.job.session import hold_fixed
from watersmeet.runtime.spark.job.settings import RunResult, RunSettings


class Running:
    """A run of a job's text. ``ticks``: the results so far."""

    def __init__(self, spark: Any, text: str, checkpoint: Path, **settings: Any) -> None:
        job = parse_job(text)
        plan = replace(plan_job(job), moved=frozenset(settings.pop("accept_moved", ())))
        self.ticks: list[TickResult] = []
        also = settings.get("on_tick")

        def told(tick: TickResult, seconds: float, parts: Any) -> None:
            self.ticks.append(tick)
            if also is not None:
                also(tick, seconds, parts)

        asked = RunSettings(
            str(checkpoint),
            **{"partitions": 2, **settings, "on_tick": told},
        )
        outputs = build_outputs(job, plan, asked)
        hold_fixed(spark, plan.queries[0].options.time_zone)  # that of another test's job may be left
        self._run = JobRun(spark, plan, asked, outputs, Checkpoint(checkpoint, asked.store))
        self._thread = threading.Thread(target=self._execute, daemon=True)
        self.error: BaseException | None = None

    def to_the_end(self) -> RunResult:
        return self._run.execute()

    def _execute(self) -> None:
        try:
            self._run.execute()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.stop()
        self._thread.join(60)
        if error is None and self.error is not None:
            raise self.error

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 90) -> None:
        until = time.monotonic() + timeout_s
        while not condition():
            if self.error is not None:
                raise self.error
            assert self._thread.is_alive(), "the run has ended"
            assert time.monotonic() < until, f"not in {timeout_s} s; ticks: {len(self.ticks)}"
            time.sleep(0.05)

    def total(self, what: str, query: str, alias: str) -> int:
        """A number of the account as of the last tick."""
        return self.ticks[-1].queries[query].account[alias].get(what, 0) if self.ticks else 0


@contextmanager
def killed_at_commit(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """Within, the commit of that number (from 0) fails, when its rows are out already."""
    plain, calls = ConcludedTick.commit, itertools.count()

    def dies(*arguments: Any, **named: Any) -> Any:
        if next(calls) == number:
            raise EngineError("killed", code="test")
        return plain(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(ConcludedTick, "commit", dies)
        yield


def until_caught_up(
    spark: Any, text: str, checkpoint: Path, *, finish: bool = False, **settings: Any
) -> Running:
    """A run that has worked off the input that was there."""
    running = Running(spark, text, checkpoint, until_caught_up=True, finish=finish, **settings)
    running.to_the_end()
    return running
