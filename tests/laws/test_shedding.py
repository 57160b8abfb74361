"""Laws of shedding (SET at_limit), against a plain join in Python that keeps lists of rows.

A tick's rows are those of the join over the rows that were not shed by then; a shed row is never padded nor
put out by ANTI; no more than ``max_rows`` are kept after any tick; what is shed is what the setting says; and
the account adds up. All of it by one to three tasks that change from tick to tick, with keys split, with
merges all the time, with a new job for each tick, and with ticks that crashed before their commit.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.effort import at_effort
from tests.support.shed_joins import KINDS, Crash, Plain, check, plan_shedding_join, shed_in
from tests.support.split_keys import split_every_key
from tests.support.ticks import arriving
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator import load_shedding, merge_policy
from watersmeet.runtime.coordinator.tick_phases import RunningTick
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.tick import SinkStaging
from watersmeet.state.store import MemoryStore


@pytest.mark.parametrize("at_limit", ["shed_oldest", "shed_heaviest"])
@pytest.mark.parametrize("kind", at_effort(quick=["FULL"], full=KINDS))
def test_rows_are_those_of_the_join_without_shed_rows(kind, at_limit, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    assert check(plan_shedding_join(kind, at_limit), Plain(kind, True), at_limit, seed) > 0


@pytest.mark.parametrize(
    "at_limit", at_effort(quick=["shed_heaviest"], full=["shed_oldest", "shed_heaviest"])
)
@pytest.mark.parametrize("kind", at_effort(quick=["LEFT"], full=["LEFT", "LEFT ANTI", "FULL"]))
def test_with_crashes_and_split_keys(kind, at_limit, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    split_every_key(monkeypatch)
    assert check(plan_shedding_join(kind, at_limit), Plain(kind, True), at_limit, seed, crashes=True) > 0


@pytest.mark.parametrize("kind", at_effort(quick=["LEFT ANTI"], full=["FULL", "LEFT SEMI", "LEFT ANTI"]))
def test_without_a_key(kind, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    plan = plan_shedding_join(kind, "shed_oldest", keyed=False)
    assert check(plan, Plain(kind, False), "shed_oldest", seed) > 0


def test_the_oldest_by_a_number_and_by_a_timestamp():
    """Sides that have both, each in another order: one is not older for its number being less than µs."""
    declared = "".join(
        f"CREATE TABLE {name} (i BIGINT, {times}, WATERMARK FOR n AS n - 9,"
        " WATERMARK FOR t AS t - INTERVAL '9' DAYS) WITH ('connector' = 'memory');"
        for name, times in (("l", "n BIGINT, t TIMESTAMP"), ("r", "t TIMESTAMP, n BIGINT"))
    )
    on = "r.n BETWEEN l.n - 9 AND l.n + 9 AND r.t BETWEEN l.t - INTERVAL '9' DAYS AND l.t + INTERVAL '9' DAYS"
    plan = plan_job(
        parse_job(
            f"SET max_rows = 4; SET at_limit = shed_oldest; {declared}"
            "CREATE SINK q WITH ('connector' = 'memory');"
            f"INSERT INTO q SELECT l.i, r.i AS j FROM l JOIN r ON {on} AND l.i + r.i < 0;"
        )
    )
    rows = [{"i": i, "n": i, "t": f"2022-03-0{i}T00:00:00"} for i in range(1, 5)]
    output = LocalJob(plan, MemoryStore()).tick(arriving(l=rows, r=rows))
    assert shed_in(output.shed) == [("l", 1), ("l", 2), ("r", 1), ("r", 2)]


@pytest.mark.parametrize("side", at_effort(quick=["r"], full=["l", "r"]))
@pytest.mark.parametrize("kind", at_effort(quick=["FULL"], full=["FULL", "LEFT ANTI"]))
def test_with_a_broadcast_side(kind, side, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    plan = plan_shedding_join(kind, "shed_oldest", hint=f"/*+ BROADCAST({side}) */")
    assert check(plan, Plain(kind, True), "shed_oldest", seed) > 0


def test_wide_rows_are_written_a_few_at_a_time(monkeypatch):
    """The driver holds no more of them at once than a task would."""
    monkeypatch.setattr(load_shedding, "max_output_bytes", lambda memory: 5_000)
    job = LocalJob(plan_shedding_join("LEFT", "shed_oldest", limits="SET max_rows = 2;"), MemoryStore())
    files = []

    def crash(tick: RunningTick, _: Any) -> Any:
        files.extend(file for of_side in tick.aside("q").values() for file in of_side)
        raise Crash

    rows = [{"k": "k" * 2_000, "t": number, "i": number} for number in range(12)]
    with pytest.raises(Crash):
        job.tick(arriving(l=rows, r=[]), to_sinks=SinkStaging(crash))
    assert sum(file.rows for file in files) == 10
    assert max(file.rows for file in files) == 2
