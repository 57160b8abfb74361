"""A tick that fails at any step has committed nothing, and what it took is given back."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from tests.support.phases import replace_phase
from tests.support.ticks import plan_of, stream
from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.errors import EngineError, StateError
from watersmeet.runtime.coordinator.commit import StagedParts
from watersmeet.runtime.local.tick import LocalTick, SinkStaging

PAIRS = plan_of("SELECT l.i AS a, r.i AS b FROM l JOIN r ON l.t = r.t", {"l": stream(), "r": stream()})
ROWS: dict[str, Any] = {name: [({"t": 1, "k": "a", "v": 0, "i": 7}, 1)] for name in "lr"}


def fails(*_: Any, **__: Any) -> None:
    raise EngineError("on purpose", code="test")


@pytest.mark.parametrize("phase", ["conclude", "commit"])
def test_rows_of_a_compared_table_that_were_cleared_do_not_come(phase: str) -> None:
    text = """SET output_mode = changelog;
        CREATE TABLE t (id BIGINT) WITH ('connector' = 'memory', 'changes' = 'snapshot');
        SELECT id FROM t"""
    job = LocalJob(plan_job(parse_job(text)), MemoryStore())
    job.push("t", {"id": 1})
    with replace_phase(phase, fails), pytest.raises(EngineError):
        job.tick()
    job.clear()
    job.push("t", {"id": 2})
    assert job.tick().table.column("id").to_pylist() == [2]


def test_output_that_cannot_be_made_is_not_committed() -> None:
    job = LocalJob(PAIRS, MemoryStore())
    with patch.object(LocalTick, "output", fails), pytest.raises(EngineError):
        job.tick(ROWS)
    assert job.driver.tick == 0
    assert job.tick(ROWS).table.to_pylist() == [{"a": 7, "b": 7}]


class Sink:
    def check(self, *_: Any) -> None:
        fails()

    def publish(self, *_: Any) -> bool:
        raise AssertionError("the tick was refused")


@pytest.mark.parametrize("step", ["stage", "conclude", "check"])
def test_what_was_staged_is_discarded_until_a_sink_publishes(step: str) -> None:
    discarded: list[int] = []

    class Watched(LocalTick):
        def discard(self, tick: Any) -> None:
            discarded.append(tick.start.tick)

    class Job(LocalJob):
        backend = Watched

    def stage(*_: Any) -> StagedParts:
        if step == "stage":
            fails()
        return StagedParts([(Sink(), "q")])

    job = Job(PAIRS, MemoryStore())
    if step == "conclude":
        with replace_phase("conclude", fails), pytest.raises(EngineError):
            job.tick(ROWS, to_sinks=SinkStaging(stage))
    else:
        with pytest.raises(EngineError, match="on purpose"):
            job.tick(ROWS, to_sinks=SinkStaging(stage))
    assert discarded == [1]
    assert job.driver.tick == 0


def test_second_attempt_to_advance_a_tick_is_fenced() -> None:
    job = LocalJob(PAIRS, MemoryStore())
    stale = job.driver.begin(0)
    job.tick(ROWS)
    with pytest.raises(StateError) as raised:
        stale.advance([])
    assert raised.value.code == "state-fenced"
