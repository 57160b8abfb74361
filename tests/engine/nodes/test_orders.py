"""By what runs are sorted: measured, per side, for new runs and merged ones; the rows out are the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.support.ticks import QUERY, arriving, bag, plan_of
from watersmeet.measure import Measured
from watersmeet.runtime.coordinator.retained_runs import next_index
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.messages.reports import SideReport
from watersmeet.runtime.operators import ranges
from watersmeet.state.runs.layout import RunLayout
from watersmeet.state.store import MemoryStore

LAYOUT = RunLayout((Measured("t"), Measured("p")), ("t",), ("t",))
COLUMNS = {"t": "BIGINT", "k": "BIGINT", "p": "BIGINT"}
STREAMS = {name: {"columns": COLUMNS, "time": {"t": {"lag": 0}}} for name in ("l", "r")}


def query(keyed, p_width, t_width):
    key = "l.k = r.k AND " if keyed else ""
    return (
        f"SELECT l.p AS lp, r.p AS rp, l.t AS lt FROM l LEFT JOIN r ON {key}"
        f"r.t BETWEEN l.t AND l.t + {t_width} AND r.p BETWEEN l.p - {p_width} AND l.p + {p_width}"
    )


def ticks(seed):
    rng = np.random.default_rng(seed)
    for tick in range(10):
        yield {
            name: [
                {"t": int(t), "k": int(k), "p": int(p)}
                for t, k, p in zip(
                    rng.integers(tick * 100, tick * 100 + 100, 200),
                    rng.integers(0, 2, 200),
                    rng.integers(0, 10_000, 200),
                    strict=True,
                )
            ]
            for name in ("l", "r")
        }


def run(plan, seed, partitions=3):
    job = LocalJob(plan, MemoryStore(), partitions=partitions)
    rows = Counter()
    seen = []
    for each in ticks(seed):
        rows += bag(job.tick(arriving(**each)))
        (join,) = job.driver.manifest.queries[QUERY].nodes
        seen.append({name: [live.run.index for live in a.runs] for name, a in join.arrangements.items()})
    return rows, seen, job


@pytest.mark.parametrize("keyed", [True, False])
def test_new_runs_are_sorted_by_the_more_selective_band(keyed, seed, monkeypatch):
    plan = plan_of(query(keyed, 5, 2_000), STREAMS)
    rows, seen, job = run(plan, seed)
    assert set(seen[0]["l"]) == {"t"}
    assert seen[1]["l"][-1] == "p"
    assert {"t", "p"} == set(seen[1]["l"]), "older runs stay as they are"
    assert set(seen[-1]["l"]) == {"p"}, "merged ones are sorted anew"
    (join,) = job.driver.manifest.queries[QUERY].nodes
    assert {a.index for a in join.arrangements.values()} == {"p"}
    monkeypatch.setattr("watersmeet.runtime.operators.join.choose_orders", lambda *_, **__: None)
    again, unchosen, _ = run(plan, seed)
    assert {index for each in unchosen for names in each.values() for index in names} == {"t"}
    assert again == rows


def test_the_time_stays_where_it_finds_no_more(seed):
    _, seen, _ = run(plan_of(query(True, 9_000, 20), STREAMS), seed)
    assert {index for each in seen for names in each.values() for index in names} == {"t"}


def test_a_badly_sorted_run_is_sorted_for_the_tick(seed, monkeypatch):
    """In the first tick already, by the task alone."""
    sorted_by = []
    original = ranges.SideSlice.__init__

    def init_and_record_slice(own, *args):
        original(own, *args)
        sorted_by.append(own)

    monkeypatch.setattr("watersmeet.runtime.tasks.side.SideSlice.__init__", init_and_record_slice)
    run(plan_of(query(False, 5, 2_000), STREAMS), seed, partitions=1)
    first = [own.new.looked_up.index.name for own in sorted_by[:2] if own.new is not None]
    assert first == ["t", "p"], "the left rows are needles, the right ones are looked up"


def reports(**candidates):
    return [SideReport(candidates=candidates)]


def test_only_much_better_indexes_are_changed_to():
    assert next_index(LAYOUT, None, {}, reports(t=100_000.0, p=60_000.0))[0] == "t"
    assert next_index(LAYOUT, None, {}, reports(t=100_000.0, p=40_000.0))[0] == "p"
    assert next_index(LAYOUT, "p", {}, reports(t=40_000.0, p=60_000.0))[0] == "p"
    assert next_index(LAYOUT, None, {}, reports(t=900.0, p=0.0))[0] == "t", "so few are no reason"


def test_earlier_ticks_count_by_half():
    index, kept = next_index(LAYOUT, None, {"t": 80_000.0}, reports(t=10_000.0, p=20_000.0))
    assert (index, kept) == ("p", {"t": 50_000.0, "p": 20_000.0})
    assert next_index(LAYOUT, "p", kept, [])[1] == {"t": 25_000.0, "p": 10_000.0}


def test_without_a_choice_nothing_is_remembered():
    alone = RunLayout((Measured("t"),), ("t",), ("t",))
    assert next_index(alone, None, {}, reports(t=100_000.0)) == (None, {})
