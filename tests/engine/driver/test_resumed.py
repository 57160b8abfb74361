"""What a state says of its last tick is what the tick said itself."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.observe.watched import TEXT, TICKS, WatchedJob
from watersmeet.runtime.coordinator.restore.job_state import restore_last_result
from watersmeet.runtime.coordinator.results import QueryResult

OF_A_TICK = {"risen_watermarks", "counts", "rows_out", "matches", "missing_deletes", "newly_shed_joined"}
OF_A_TICK |= {"late_below", "holding", "advances_back", "heavy", "split"}
SHARED = (
    TEXT
    + """
CREATE SINK again WITH ('connector' = 'memory');
INSERT INTO again SELECT o.v, d.k FROM orders o LEFT JOIN deliveries d
  ON o.k = d.k AND d.t BETWEEN o.t - INTERVAL '1' SECOND AND o.t + INTERVAL '1' SECOND AND d.v > 0;
"""
)
"""Two queries of one join: one of them makes the other one's rows."""


def test_what_is_of_the_tick_alone_are_fields_of_the_result():
    assert OF_A_TICK - {field.name for field in fields(QueryResult)} == set(), "correct OF_A_TICK"


@pytest.mark.parametrize("text", [TEXT, SHARED], ids=["each alone", "one for another"])
def test_it_is_the_last_result_but_for_what_was_of_the_tick(text):
    job = WatchedJob(text=text)
    assert restore_last_result(job.plan, None) is None
    for rows in TICKS:
        result = job.tick(rows)
        told = restore_last_result(job.plan, result.state)
        assert (told.tick, told.clock_us, told.finished) == (result.tick, result.clock_us, result.finished)
        assert list(told.queries) == list(result.queries)
        for name, query in result.queries.items():
            for field in fields(QueryResult):
                if field.name not in OF_A_TICK:
                    assert getattr(told.queries[name], field.name) == getattr(query, field.name), field.name
        assert told.measured() == result.measured()
    assert any(query.shared_inputs for query in job.plan.queries) is (text is SHARED)


def test_a_query_that_the_state_does_not_know_has_no_result():
    job = WatchedJob()
    state = job.tick(TICKS[0]).state
    wider = WatchedJob(text=SHARED).plan
    assert set(restore_last_result(wider, state).queries) == {"delivered", "windows", "climbed"}
