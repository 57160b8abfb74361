"""Charts of a history: what a point says of several ticks."""

from __future__ import annotations

import pytest

from watersmeet.history import segments
from watersmeet.history import writer as module
from watersmeet.history.points import END, JOB, Figures
from watersmeet.history.reader import JobHistory, read
from watersmeet.history.segments import RunStart
from watersmeet.history.writer import HistoryWriter
from watersmeet.page.document import MAX_POINTS, charts_of
from watersmeet.state.store import MemoryStore

SECOND_US = 1_000_000
TICKS_OF_A_RUN = 20


def _history(ticks: int) -> JobHistory:
    """Return the history of a job that read 100 rows per second, in ticks of 1 to 3 seconds."""
    store = MemoryStore()
    clock_us = 0
    for first in range(1, ticks + 1, TICKS_OF_A_RUN):
        keeping = HistoryWriter(store, pytest.fail, pause_s=0)
        for tick in range(first, min(first + TICKS_OF_A_RUN, ticks + 1)):
            elapsed_us = (1 + tick % 3) * SECOND_US
            clock_us += elapsed_us
            amounts = {
                (JOB, "elapsed_us"): elapsed_us,
                ("source/s", "rows_in"): 100 * elapsed_us // SECOND_US,
            }
            keeping.add(tick, clock_us, Figures(amounts, {}))
        keeping.close()
    return read(store)


@pytest.mark.parametrize(("ticks", "is_rolled_up"), [(160, False), (3 * MAX_POINTS + 7, False), (160, True)])
def test_rows_per_second_are_the_same_for_points_of_many_ticks(ticks, is_rolled_up, monkeypatch):
    if is_rolled_up:
        for name, value in {"FULL_TICKS": 20, "MAX_SEGMENTS": 2, "FACTOR": 4, "LEVELS": 4}.items():
            monkeypatch.setattr(module, name, value)
    past = _history(ticks)
    assert (len(past.series(JOB, "elapsed_us")) < ticks) is is_rolled_up
    (rate,) = next(chart for chart in charts_of(past, ()) if chart["key"] == "read")["series"]
    assert set(rate["values"]) == {100}
    assert len(rate["values"]) <= MAX_POINTS + 1


def test_watermark_lag_grows_until_a_tick_ends_but_not_between_runs():
    store = MemoryStore()
    keeping = HistoryWriter(store, pytest.fail, pause_s=1e9)
    marks = {10: 5, 610: 605, 1610: 1605, 1620: 1605, 1630: END}
    for tick, (clock_s, mark) in enumerate(marks.items(), 1):
        mark_us = mark if mark == END else mark * SECOND_US
        levels = {("time/q/a/t", "watermark"): mark_us}
        keeping.add(tick, clock_s * SECOND_US, Figures(levels=levels))
    keeping.close()
    segments.begin(store, "0" * 8, RunStart(started_us=1, version="1", machine="here"))
    segments.begin(store, "1" * 8, RunStart(started_us=1600 * SECOND_US, version="1", machine="here"))
    (lag,) = next(chart for chart in charts_of(read(store), ()) if chart["key"] == "watermark_lag")["series"]
    assert lag["values"] == [5, 5, 5, 15, None]
    assert lag["peaks"] == [None, 605, None, None, None]


def test_of_ticks_that_share_a_point_the_most_is_shown():
    store = MemoryStore()
    keeping = HistoryWriter(store, pytest.fail, pause_s=1e9)
    slow = MAX_POINTS + 1
    for tick in range(1, 2 * MAX_POINTS + 1):
        clock_s = tick + (900 if tick >= slow else 0)
        levels = {("time/q/a/t", "watermark"): (clock_s - 5) * SECOND_US}
        keeping.add(tick, clock_s * SECOND_US, Figures(levels=levels))
    keeping.close()
    (lag,) = next(chart for chart in charts_of(read(store), ()) if chart["key"] == "watermark_lag")["series"]
    assert set(lag["values"]) == {5}
    assert set(lag["peaks"][1:]) == {6, 906}
