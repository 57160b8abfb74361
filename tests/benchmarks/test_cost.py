"""`benchmarks.cost`: what is counted, and what is said of rows that cost more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import cost, counted
from benchmarks.cost import Cost, Size, Workload
from benchmarks.cost_streams import QUERIES
from watersmeet.kernel import slots

NONE = dict.fromkeys(counted.KINDS, 0)
SMALL = Size(200, ticks=3, warm=1, partitions=1)


def test_a_count_repeats_and_sees_each_kind_of_work() -> None:
    workload = Workload("changes", SMALL)
    first = workload.counted()
    assert workload.counted() == first
    assert all(first[kind] > 0 for kind in ("lines", "allocated", "bytes", "sorted", "sought", "written"))
    windows = Workload("window", SMALL).counted()
    assert windows["queries"] > 0
    assert windows["query rows"] > 0


def test_a_second_sort_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, sorts = Workload("inner", SMALL), slots.order_of
    before = workload.counted()

    def twice(values: slots.Slots) -> object:
        np.argsort(values, kind="stable")
        return sorts(values)

    monkeypatch.setattr("watersmeet.state.runs.writer.order_of", twice)
    after = workload.counted()
    assert after["sorted"] > before["sorted"]
    assert after["bytes"] > before["bytes"]


def test_arrays_outlive_the_count_and_nothing_stays_replaced() -> None:
    functions, store = (np.argsort, np.searchsorted, np.lexsort), counted.CountedStore()
    with counted.Counts(store) as counts:
        held = np.arange(100_000) * 2
        grown = pa.array(held).cast(pa.float64())
        np.lexsort((held, held))
        held.sort()  # not of the engine
    assert counts.found["bytes"] >= held.nbytes + grown.nbytes
    assert counts.found["sorted"] == pytest.approx(2 * 100_000 * np.log2(100_002))
    assert held[-1] == 199_998
    assert (np.argsort, np.searchsorted, np.lexsort) == functions
    before = dict(counts.found)
    np.argsort(held)
    assert counts.found == before


def test_what_has_grown_is_named_with_what_it_grew_by() -> None:
    known = Cost({**NONE, "lines": 1_000_000, "sorted": 100_000_000}, 5.0)  # 0.75 s and 0.4 s
    more = replace(known, counts={**known.counts, "sorted": 150_000_000})
    (text,) = cost.complaints("inner, 1,000", known, more)
    assert text == (
        "inner, 1,000: 1.150 → 1.350 counted CPU s per million rows, +17% (at most +15%). "
        "sorted 100,000,000 → 150,000,000 a million rows: +17%"
    )
    assert (
        cost.complaints("inner, 1,000", known, replace(known, counts={**known.counts, "sorted": 140_000_000}))
        == []
    )
    (text,) = cost.complaints("inner, 1,000", known, replace(known, yardsticks=7.6))
    assert text.endswith("7.60 times the yardstick's CPU time, not 5.00, in 6 rounds: 1.52 × (at most 1.5 ×)")
    assert cost.complaints("inner, 1,000", None, known) == ["inner, 1,000: there is no baseline"]


def test_the_baseline_is_of_all_workloads_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    known = cost.read()
    assert set(known) == {f"{query}, {size.rows:,}" for query in QUERIES for size in cost.SIZES}
    cost.write(known, "the same", tmp_path / "baseline.json")
    assert cost.read(tmp_path / "baseline.json") == known


def test_more_rounds_are_run_only_while_it_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Cost(NONE, 2.0)
    times = iter([3.1, 3.05, 2.9, 9.0])
    workload = Workload("window", SMALL)
    monkeypatch.setattr(workload, "counted", lambda: NONE)
    monkeypatch.setattr(workload, "timed", lambda: next(times))
    assert cost.measured(workload, known).yardsticks == 2.9
    assert next(times) == 9.0


def test_a_renewal_says_why() -> None:
    with pytest.raises(SystemExit):
        cost.main(["--renew", " "])
