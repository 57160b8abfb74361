"""Buckets of lateness, and which column a row counts for."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.event_time import MAX_TIME, MIN_TIME
from watersmeet.watermark.lateness import (
    INTEGER_BUCKETS,
    TIME_BUCKETS,
    LateBy,
    MissedWatermarks,
    sum_by_column,
)

S = 1_000_000


def count_lateness(*late_by, integer=False) -> LateBy:
    found = LateBy(integer=integer)
    found.add(np.array(late_by, dtype=np.int64))
    return found


@pytest.mark.parametrize(
    ("late_by", "bucket"),
    [
        (1, "<1s"), (S - 1, "<1s"), (S, "<10s"), (10 * S, "<1m"), (60 * S, "<10m"), (600 * S, "<1h"),
        (3600 * S, "<6h"), (6 * 3600 * S, "<1d"), (24 * 3600 * S - 1, "<1d"), (24 * 3600 * S, "more"),
        (MAX_TIME, "more"),
    ],
)  # fmt: skip
def test_buckets_of_times(late_by, bucket):
    assert count_lateness(late_by).counts == {bucket: 1}


@pytest.mark.parametrize(
    ("late_by", "bucket"),
    [(1, "<10"), (9, "<10"), (10, "<100"), (99, "<100"), (10**18 - 1, f"<{10**18}"), (10**18, "more")],
)
def test_buckets_of_numbers(late_by, bucket):
    assert count_lateness(late_by, integer=True).counts == {bucket: 1}


def test_sums_keep_the_order_of_the_buckets():
    total = sum_by_column(
        [{"t": count_lateness(5 * S, 200 * S)}, {"t": count_lateness(1, 42 * S, 2)}, {"u": count_lateness(7)}]
    )
    assert list(total["t"].counts.items()) == [("<1s", 2), ("<10s", 1), ("<1m", 1), ("<10m", 1)]
    assert (total["t"].most, total["u"].most) == (200 * S, 7)
    assert len(TIME_BUCKETS) == 8
    assert len(set(INTEGER_BUCKETS)) == 19


def count_missed_rows(columns, *notes) -> dict:
    found = MissedWatermarks(3, columns)
    for column, values, watermark in notes:
        times = np.array(values, dtype=np.int64)
        found.note(column, times < watermark, times, watermark)
    total = {}
    found.count(total)
    return {column: (each.counts, each.most) for column, each in total.items()}


def test_a_row_counts_for_the_column_that_it_missed_by_most():
    both = {"t": True, "u": True}
    found = count_missed_rows(both, ("t", [5, 9, 10], 10), ("u", [15, 1, 19], 20))
    assert found == {"t": ({"<10": 1}, 5), "u": ({"<10": 1, "<100": 1}, 19)}


def test_units_that_differ_are_not_compared():
    found = count_missed_rows({"t": True, "u": False}, ("t", [5, 10, 10], 10), ("u", [0, 0, 20], 20))
    assert found == {"t": ({"<10": 1}, 5), "u": ({"<1s": 1}, 20)}


def test_lateness_saturates():
    assert count_missed_rows({"t": False}, ("t", [MIN_TIME, 0, 0], 0)) == {"t": ({"more": 1}, MAX_TIME)}


def test_a_change_counts_as_often_as_it_stands_for_rows():
    found = MissedWatermarks(3, {"t": True})
    times = np.array([5, 9, 10], dtype=np.int64)
    found.note("t", times < 10, times, 10)
    total: dict[str, LateBy] = {}
    found.count(total, np.array([3, 2, 7], dtype=np.int64))
    assert total == {"t": LateBy({"<10": 5}, most=5, integer=True)}
