"""Histories of jobs in this process: what `HistoryRecorder` keeps is told as Spark's runs tell it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import watersmeet
from watersmeet.history.recorder import HistoryRecorder, RunDescription
from watersmeet.observe.listeners import ListenerGroup
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.local import LocalJob, StepOutput
from watersmeet.runtime.local.tick import SinkStaging
from watersmeet.state.store import Store

OPEN = SimpleNamespace(finished=False, stopped=True)
"""The end of a run that was stopped, and may go on."""


class RecordedJob:
    """A job of which each tick is told to a recording; ``results``: of its ticks.

    Args:
        clock: of the recording, in µs; None: the system's.
    """

    def __init__(
        self,
        text: str,
        store: Store,
        *,
        clock_us: int = 0,
        say: Callable[[str], None] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        description = watersmeet.parse_job(text)
        plan = watersmeet.plan_job(description)
        self.job = LocalJob(plan, store, clock_us=clock_us)
        self.results: list[TickResult] = []
        self.recording = HistoryRecorder(lambda: store, RunDescription.of(description, plan), clock)
        self.say = say or (lambda _: None)
        self.watching = ListenerGroup([self.recording])

    @contextmanager
    def run(self, outcome: Any) -> Iterator[RecordedJob]:
        with self.recording.recording_run(self.say) as ended:
            self.watching.start({}, None)
            yield self
            ended(outcome)

    def to_sinks(self) -> SinkStaging | None:
        """Where the rows of the next tick go, and what the manifest remembers; None: nowhere, and nothing."""
        return None

    def told(self, result: TickResult) -> TickResult:
        """What is told of a tick."""
        return result

    def tick(
        self,
        clock_us: int,
        rows: Mapping[str, list[Any]],
        seconds: float = 0.2,
        parts: Mapping[str, float] | None = None,
    ) -> StepOutput:
        for source, given in rows.items():
            self.job.push(source, given)
        output = self.job.tick(clock_us=clock_us, to_sinks=self.to_sinks())
        self.results.append(self.told(output.result))
        self.watching.tick(self.results[-1], seconds, parts or {"ingest": seconds / 2, "join": seconds / 2})
        return output
