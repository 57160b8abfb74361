"""Promises of watermarks: what would break one is seen before the tick is committed."""

from __future__ import annotations

import datetime

import pytest

from tests.support.ticks import QUERY, arriving, plan_of, stream
from watersmeet.errors import EngineError
from watersmeet.runtime.coordinator import query_tick, tick_phases
from watersmeet.runtime.coordinator.operators import joins
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

LEFT = (
    "SELECT l.i AS a, l.t, r.i AS b, r.t AS u FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t"
)


def row(number, time, key="a"):
    return {"t": time, "k": key, "v": number, "i": number}


@pytest.fixture
def job():
    found = LocalJob(plan_of(LEFT), MemoryStore(), partitions=2)
    found.tick(arriving(l=[row(1, 10), row(2, 20, "b")], r=[row(1, 10), row(2, 20)]))
    return found


def broken(job, detail, **rows):
    """The tick fails, and nothing of it is state."""
    with pytest.raises(EngineError) as raised:
        job.tick(arriving(**rows))
    assert raised.value.code == "internal-watermark"
    assert detail in raised.value.message
    assert job.driver.tick == 1
    assert job.store.names("manifests") == ["manifests/000000000001.json"]


def test_rows_below_what_was_promised_are_seen(job):
    """The state before is made to promise what the tick's rows do not keep."""
    job.driver.manifest.queries[QUERY].nodes[0].emitted.update({"r.t": 31})
    broken(job, "a row has r.t = 30, below the output watermark 31", l=[row(3, 30)], r=[row(3, 30)])


def test_rows_equal_to_what_was_promised_are_fine(job):
    job.driver.manifest.queries[QUERY].nodes[0].emitted.update({"r.t": 30})
    assert job.tick(arriving(l=[row(3, 30)], r=[row(3, 30)])).result.queries[QUERY].rows_out


@pytest.mark.parametrize(
    ("place", "detail"),
    [
        ("advance", "the watermark of l.t went back from 20 to 3"),
        ("output_watermarks", "the output watermark of l.t went back from 20 to 3"),
    ],
)
def test_what_goes_back_is_seen(job, monkeypatch, place, detail):
    job.tick({})
    module = tick_phases.tracker if place == "advance" else joins
    real = getattr(module, place)

    def wrong(first, *args, **more):
        found = real(first, *args, **more)
        if place == "advance":
            first["l"].watermarks["t"] = 3
        else:
            found["l.t"] = 3
        return found

    monkeypatch.setattr(module, place, wrong)
    with pytest.raises(EngineError) as raised:
        job.tick({})
    assert raised.value.code == "internal-watermark"
    assert detail in raised.value.message
    assert "report it" in raised.value.hint
    assert job.driver.tick == 2


def test_limits_that_go_back_are_seen(job, monkeypatch):
    real = query_tick.QueryTick.work

    def wrong(*args):
        work = real(*args)
        work.sides[0].new_limits["t"] = 1
        return work

    monkeypatch.setattr(query_tick.QueryTick, "work", wrong)
    broken(job, "the limit of l.t went back from")


def test_rows_report_the_least_of_each_time_column_whatever_its_type():
    columns = {"t": "DATE", "u": "TIMESTAMP", "k": "STRING"}
    times = {"t": {"lag": 0}, "u": {"lag": 0}}
    case = {name: {**stream(columns=columns), "time": times} for name in ("l", "r")}
    plan = plan_of("SELECT l.t, r.u FROM l LEFT JOIN r ON l.k = r.k AND l.t = r.t AND l.u = r.u", case)
    job = LocalJob(plan, MemoryStore())
    given = {"t": "2024-01-02", "u": "2024-01-02T10:00:00", "k": "a"}
    assert job.driver.begin(0).start.tick == 1
    job.tick(arriving(l=[given, {**given, "t": "2024-01-01", "k": None}], r=[given]))
    day = round(datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC).timestamp() * 1e6)
    job.driver.manifest.queries[QUERY].nodes[0].emitted["l.t"] = day + 1
    with pytest.raises(EngineError, match=f"l.t = {day}, below the output watermark {day + 1}"):
        job.tick(arriving(l=[given], r=[given]))
