"""Charts of a history: what a point says of several ticks."""

from __future__ import annotations

import pytest

from watersmeet.history import keeping as module
from watersmeet.history.figures import JOB
from watersmeet.history.keeping import Keeping
from watersmeet.history.past import Past, read
from watersmeet.history.points import Figures
from watersmeet.page.charts import MOST_POINTS, charts_of
from watersmeet.state.store import MemoryStore

SECOND_US = 1_000_000
TICKS_OF_A_RUN = 20


def _history(ticks: int) -> Past:
    """Return the history of a job that read 100 rows per second, in ticks of 1 to 3 seconds."""
    store = MemoryStore()
    clock_us = 0
    for first in range(1, ticks + 1, TICKS_OF_A_RUN):
        keeping = Keeping(store, pytest.fail, pause_s=0)
        for tick in range(first, min(first + TICKS_OF_A_RUN, ticks + 1)):
            elapsed_us = (1 + tick % 3) * SECOND_US
            clock_us += elapsed_us
            amounts = {(JOB, "elapsed"): elapsed_us, ("source/s", "rows_in"): 100 * elapsed_us // SECOND_US}
            keeping.add(tick, clock_us, Figures(amounts, {}))
        keeping.close()
    return read(store)


@pytest.mark.parametrize(("ticks", "is_rolled_up"), [(160, False), (3 * MOST_POINTS + 7, False), (160, True)])
def test_rows_per_second_are_the_same_for_points_of_many_ticks(ticks, is_rolled_up, monkeypatch):
    if is_rolled_up:
        for name, value in {"FULL_TICKS": 20, "KEPT": 2, "FACTOR": 4, "LEVELS": 4}.items():
            monkeypatch.setattr(module, name, value)
    past = _history(ticks)
    assert (len(past.series(JOB, "elapsed")) < ticks) is is_rolled_up
    (rate,) = next(chart for chart in charts_of(past, ()) if chart["key"] == "read")["series"]
    assert set(rate["values"]) == {100}
    assert len(rate["values"]) <= MOST_POINTS + 1
