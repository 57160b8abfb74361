"""Rows that are released while their run is still there: nothing is asked of them any more."""

from __future__ import annotations

from tests.support.ticks import QUERY, arriving, plan_of
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

STREAMS = {s: {"columns": {"t": "BIGINT", "n": "INT"}, "time": {"t": {"lag": 0}}} for s in "abc"}
SQL = """SELECT a.n AS x, b.n AS y
  FROM a JOIN b ON a.t BETWEEN b.t - 100 AND b.t + 100 AND 10 / (a.n - b.n) > 0
  JOIN c ON c.t BETWEEN b.t - 2 AND b.t + 2 AND c.t BETWEEN a.t - 2 AND a.t + 2"""


def row(t: int, n: int) -> dict:
    return {"t": t, "n": n}


def test_failing_condition_is_not_evaluated_for_a_released_row():
    """No c can be near both a's row of 0 and b's row of 51, so a's row has gone when b's comes; whether its
    run is there still, for the row of 50, makes no difference."""
    job = LocalJob(plan_of(SQL, STREAMS), MemoryStore(), partitions=1)
    found = []
    for tick in (
        arriving(a=[row(0, 7), row(50, 5)]),
        arriving(b=[row(0, 3), row(50, 2)], c=[row(50, 1)]),
        arriving(a=[row(60, 1)], b=[row(51, 7)]),
        arriving(c=[row(53, 0)]),
    ):
        found += job.tick(tick).rows[QUERY]
    assert found == [{"x": 5, "y": 2}]
