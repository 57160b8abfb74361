"""The benchmark's data: the same every time, matching as its text says, with nothing late."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import compare
from benchmarks.workloads import (
    BAND_MINUTES,
    DISORDER_S,
    EPOCH_US,
    MINUTE_US,
    SIDES,
    WORKLOADS,
    Workload,
    arrow_bytes_per_row,
    minute,
    prepare,
)

SMALL = Workload("small", rows=400, ticks=5, files=2)
FILLED = Workload("filled", rows=50, ticks=2, lag_s=240, fill_minutes=7, fill_ticks=3)


def test_a_minute_is_the_same_every_time_and_sides_differ():
    assert minute(SMALL, "l", 3).equals(minute(SMALL, "l", 3))
    assert not minute(SMALL, "l", 3).equals(minute(SMALL, "r", 3))


def test_times_are_of_their_minute_or_a_little_earlier():
    times = minute(SMALL, "l", 3)["t"].cast("int64").to_numpy() - EPOCH_US - 3 * MINUTE_US
    assert times.min() >= -DISORDER_S * 1_000_000
    assert times.max() < MINUTE_US
    assert (np.diff(times) < 0).any()


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda w: w.name)
def test_no_row_is_late(workload):
    assert workload.lag_s > DISORDER_S


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda w: w.name)
def test_the_fill_outlasts_the_retention(workload):
    """Otherwise the measured ticks would still be filling up, and releasing nothing."""
    if workload.fill_ticks:
        assert workload.fill_minutes * 60 > workload.lag_s + BAND_MINUTES * 60


def test_fifty_times_the_state():
    def retained_s(workload: Workload) -> float:
        return 2 * workload.lag_s + BAND_MINUTES * 60

    much, little = WORKLOADS["100k-state-50"], WORKLOADS["100k-state-1"]
    assert retained_s(much) == 50 * retained_s(little)
    assert replace(much, name="", lag_s=0) == replace(little, name="", lag_s=0)


def test_ticks_partition_the_minutes():
    minutes = [n for tick in range(FILLED.all_ticks) for n in FILLED.minutes_of(tick)]
    assert minutes == list(range(9))
    assert FILLED.rows_of(FILLED.all_ticks - 1) == 100
    assert FILLED.warm_from == 3
    assert WORKLOADS["100k"].warm_from == 3


def test_files_hold_all_rows_and_have_ordered_times(tmp_path):
    data = prepare(SMALL, tmp_path)
    for side in SIDES:
        files = sorted((data / side).iterdir())
        assert len(files) == 2 * (SMALL.ticks + 1)
        times = [os.stat(file).st_mtime for file in files]
        assert times == sorted(set(times))
        assert sum(pq.read_metadata(file).num_rows for file in files) == 400 * 5 + 1
    assert 30 < arrow_bytes_per_row(data) < 40


def test_files_are_made_once(tmp_path):
    first = (prepare(SMALL, tmp_path) / "workload.json").stat().st_ino
    assert (prepare(SMALL, tmp_path) / "workload.json").stat().st_ino == first


def test_left_rows_have_two_matches_on_average_and_some_none(tmp_path):
    data = prepare(Workload("rate", rows=2_000, ticks=12), tmp_path)
    inner, left = compare.expected(data, "inner"), compare.expected(data, "left")
    assert 1.7 < inner.rows / 24_000 < 2.0  # the last two minutes' rows meet fewer
    assert 0.13 < (left.rows - inner.rows) / 24_000 < 0.22
