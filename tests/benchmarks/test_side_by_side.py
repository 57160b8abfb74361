"""Verdicts, order of the runs, and what is measured of a process."""

from __future__ import annotations

import os
import sys
from itertools import groupby

import pytest

from benchmarks import measure
from benchmarks.child import Report
from benchmarks.side_by_side import FULL, QUICK, Result, bars, ratios, result_of, table, turns
from benchmarks.workloads import WORKLOADS, Workload


def result(workload: str, system: str, rate: float = 1.0, number: int = 0, **changed: object) -> Result:
    values = {
        "workload": workload,
        "kind": "inner",
        "system": system,
        "round": number,
        "whole_rate": rate,
        "warm_rate": rate,
        "median_tick_s": 1.0,
        "ticks_s": [1.0],
        "peak": 1_000,
        "peak_of": {"jvm": 900, "python": 100},
        "cpu_whole": 1.0,
        "cpu_warm": 1.0,
        "retained": 10,
        "state_bytes": 100,
        "rows_out": 5,
        "same_rows": True,
    }
    return Result(**{**values, **changed})  # type: ignore[arg-type]


def test_ratios_are_computed_within_a_round():
    """A round on a busy machine is slower for both."""
    rates = [(400, 100), (40, 10), (41, 10)]
    results = [
        each
        for number, (ours, theirs) in enumerate(rates)
        for each in (
            result("100k", "watersmeet", ours, number),
            result("100k", "spark", theirs, number),
        )
    ]
    warm, whole, memory = bars(results)
    assert (warm.value, warm.wanted, warm.met) == (4.0, 4.0, True)
    assert whole.met
    assert (memory.value, memory.met) == (1.0, True)


def test_bars_name_what_is_not_met():
    results = [
        result("100k", "watersmeet", 399, peak=1_010),
        result("100k", "spark", 100),
        result("100k-state-50", "watersmeet", median_tick_s=1.31),
        result("100k-state-1", "watersmeet"),
        result("1k", "watersmeet", median_tick_s=0.9),
        result("1k", "spark"),
    ]
    lines = [bar.line() for bar in bars(results)]
    assert "NOT MET  100k, inner: rows/s after the third tick, × spark: 3.99 (≥ 4)" in lines
    assert "NOT MET  100k-state-50, inner: median tick, × that of 100k-state-1: 1.31 (≤ 1.3)" in lines
    assert "met      1k, inner: median tick, × spark: 0.90 (≤ 1)" in lines
    assert "NOT MET  100k, inner: peak memory, × spark: 1.01 (≤ 1)" in lines


def test_ratios_of_cpu_are_rows_per_second_too():
    results = [result("1k", "watersmeet", 3.0, cpu_warm=2.0), result("1k", "spark", 2.0, cpu_warm=5.0)]
    assert ratios(results) == (
        "1k, inner, spark: rows/s 1.50 × (whole run 1.50 ×), rows per CPU second 2.50 × (whole run 1.00 ×)"
    )


def test_a_round_without_its_other_half_has_no_ratio():
    assert bars([result("100k", "watersmeet", number=0), result("100k", "spark", number=1)]) == []


def test_the_table_says_when_rows_differ():
    text = table([result("1k", "spark"), result("1k", "spark", number=1, same_rows=False)])
    assert text.splitlines()[-1].endswith("NO")


def test_systems_alternate_and_slow_ones_run_once():
    order = list(turns(FULL))
    first = [s for n, w, k, s in order if (n, w, k) == (0, "100k", "inner")]
    second = [s for n, w, k, s in order if (n, w, k) == (1, "100k", "inner")]
    assert second == first[::-1]
    assert sum((w, k, s) == ("100k-state-50", "left", "spark") for _, w, k, s in order) == 1
    assert len(order) == len(set(order))
    assert len(list(turns(QUICK))) == 5


def test_every_part_has_its_runs_of_a_round_next_to_each_other():
    groups = [key for key, _ in groupby(turns(FULL), key=lambda turn: turn[:3])]
    assert len(groups) == len(set(groups))


def test_rates_of_a_run():
    workload = Workload("w", rows=50, ticks=5)
    report = Report(started=100.0, ended=[110.0, 112.0, 113.0, 114.0, 116.0], retained=7, state_bytes=70)
    samples = [
        measure.Sample(90.0, {"jvm": 1, "python": 0}, {"jvm": 1.0, "python": 0.0}),
        measure.Sample(100.0, {"jvm": 5, "python": 2}, {"jvm": 2.0, "python": 1.0}),
        measure.Sample(113.0, {"jvm": 6, "python": 2}, {"jvm": 6.0, "python": 1.5}),
        measure.Sample(116.0, {"jvm": 4, "python": 2}, {"jvm": 8.0, "python": 2.0}),
        measure.Sample(120.0, {"jvm": 90, "python": 2}, {"jvm": 9.0, "python": 2.0}),
    ]
    found = result_of(workload, "inner", "spark", 0, report, measure.Usage(samples), 3, True)
    assert found.ticks_s == [10.0, 2.0, 1.0, 1.0, 2.0]
    assert found.whole_rate == pytest.approx(500 / 16)
    assert found.warm_rate == pytest.approx(200 / 3)
    assert found.median_tick_s == 1.5
    assert found.peak == 8  # the sentinel's tick, after the end, does not count
    assert found.cpu_whole == pytest.approx(7 / 500 * 1e6)
    assert found.cpu_warm == pytest.approx(2.5 / 200 * 1e6)


def test_a_child_is_measured_with_what_it_starts(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', "
        "'import time; held = bytearray(80_000_000); time.sleep(1.5)'])\n"
        "end = time.time() + 1.2\n"
        "while time.time() < end: pass\n"
        "child.wait()"
    )
    usage = measure.run([sys.executable, "-c", code], tmp_path / "log", env=dict(os.environ), timeout_s=60)
    peak = usage.peak(float("inf"))
    assert 80_000_000 < peak.memory["python"] < 200_000_000
    assert peak.memory["jvm"] == 0
    assert usage.cpu_s(usage.samples[0].at, usage.samples[-1].at)["python"] > 0.1


def test_a_child_that_fails_says_why(tmp_path):
    with pytest.raises(measure.ChildFailed, match=r"ended with 1(.|\n)*no luck"):
        measure.run(
            [sys.executable, "-c", "raise SystemExit('no luck')"],
            tmp_path / "log",
            env=dict(os.environ),
            timeout_s=60,
        )


def test_a_child_that_hangs_is_ended(tmp_path):
    with pytest.raises(measure.ChildFailed, match="took more than 1 s"):
        measure.run(
            [sys.executable, "-c", "import time; time.sleep(60)"],
            tmp_path / "log",
            env=dict(os.environ),
            timeout_s=1,
        )


def test_workloads_of_the_parts_exist():
    assert {part.workload for part in (*FULL, *QUICK)} <= set(WORKLOADS)
