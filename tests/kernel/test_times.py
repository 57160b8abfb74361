"""Event times between Arrow's types and int64, and arithmetic that saturates."""

from __future__ import annotations

from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import EngineError
from watersmeet.event_time import (
    DAY_US,
    ENDED,
    MAX_TIME,
    MIN_TIME,
    NEVER,
    Side,
    TimeColumn,
    TimeComparison,
    TimeConstant,
    TimeFloor,
    TimeSum,
    are_below,
    evaluate_comparison,
    saturate,
    saturating_add,
    saturating_sub,
    saturating_sum,
    shift,
)
from watersmeet.kernel.ordinals import known_times, to_canonical, to_native

EDGES = [MIN_TIME, MIN_TIME + 1, -(2**62), -1, 0, 1, 2**62, MAX_TIME - 1, MAX_TIME]


@pytest.mark.parametrize(
    ("native", "canonical"),
    [
        (pa.array([1, None, -5], pa.int8()), [1, None, -5]),
        (pa.array([MIN_TIME, None, MAX_TIME], pa.int64()), [MIN_TIME, None, MAX_TIME]),
        (pa.array([date(1970, 1, 2), None, date(1969, 12, 31)]), [DAY_US, None, -DAY_US]),
        (pa.array([datetime(1970, 1, 1, 0, 0, 1), None], pa.timestamp("us")), [1_000_000, None]),
        (pa.array([-1], pa.timestamp("us", "UTC")), [-1]),
        (pa.array([2, None], pa.timestamp("ms")), [2000, None]),
    ],
)
def test_native_times_to_int64_and_back(native, canonical):
    found = to_canonical(native)
    assert found.type == pa.int64()
    assert found.to_pylist() == canonical
    assert to_native(
        found, native.type if native.type != pa.timestamp("ms") else pa.timestamp("us")
    ).to_pylist() == (native.to_pylist())


def test_dates_that_int64_cannot_say_in_microseconds_have_no_time():
    last = MAX_TIME // DAY_US
    days = [last, last + 1, -last, -last - 1, None, 2**31 - 1, -(2**31), 0]
    dates = pa.array(days, pa.int32()).view(pa.date32())
    known = [last * DAY_US, None, -last * DAY_US, None, None, None, None, 0]
    assert known_times(dates).to_pylist() == known
    assert known_times(pa.array(EDGES)).to_pylist() == EDGES


def test_a_date_before_the_epoch_is_its_midnight():
    noon = pa.array([-DAY_US // 2])
    assert to_native(noon, pa.date32()).to_pylist() == [date(1969, 12, 31)]


def test_dates_beyond_int64_do_not_wrap_around():
    days = pa.array([-(2**31), -1, 2**31 - 1], pa.int32()).view(pa.date32())
    found = to_canonical(days).to_pylist()
    assert found == sorted(found)


def test_text_is_no_event_time():
    with pytest.raises(EngineError) as raised:
        to_canonical(pa.array(["2013-01-01"]))
    assert raised.value.code == "event-time-type"


@pytest.mark.parametrize("by", [*EDGES, 2**63, -(2**64), 2**64, 2**65])
def test_adding_a_constant_saturates(by):
    expected = [saturate(time + by) for time in EDGES]
    assert saturating_add(np.array(EDGES), by).tolist() == expected
    for time in EDGES:  # alone, so that the quick path is taken where it may be
        assert saturating_add(np.array([time]), by).tolist() == [saturate(time + by)]


def test_sums_and_differences_saturate():
    a, b = (np.array(x) for x in zip(*[(a, b) for a in EDGES for b in EDGES], strict=True))
    assert saturating_sum(a, b).tolist() == [saturate(x + y) for x in EDGES for y in EDGES]
    assert saturating_sub(a, b).tolist() == [saturate(x - y) for x in EDGES for y in EDGES]


def test_watermarks_shift_and_the_infinities_stay():
    assert shift(5, -3) == 2
    assert shift(MIN_TIME, -1) == MIN_TIME
    assert shift(NEVER, 5) == NEVER
    assert shift(ENDED, -5) == ENDED


@pytest.mark.parametrize("limit", [NEVER, MIN_TIME, MIN_TIME + 1, 0, MAX_TIME, MAX_TIME + 1, ENDED])
def test_below_is_exact_for_every_limit(limit):
    assert are_below(np.array(EDGES), limit).tolist() == [time < limit for time in EDGES]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("<", [True, False, False]),
        ("<=", [True, True, False]),
        (">", [False, False, True]),
        (">=", [False, True, True]),
        ("=", [False, True, False]),
    ],
)
def test_comparisons_as_written(op, expected):
    left, right = TimeColumn(Side.LEFT, "t"), TimeColumn(Side.RIGHT, "u")
    columns = {(Side.LEFT, "t"): np.array([4, 5, 6]), (Side.RIGHT, "u"): np.array([2, 2, 2])}
    comparison = TimeComparison(left, op, TimeSum(right, TimeConstant(3), 1))
    assert evaluate_comparison(comparison, columns, 3).tolist() == expected


def test_a_lossy_cast_takes_the_unit_below():
    comparison = TimeComparison(TimeFloor(TimeColumn(Side.LEFT, "t"), 10), "=", TimeConstant(-10))
    columns = {(Side.LEFT, "t"): np.array([-11, -10, -1, 0])}
    assert evaluate_comparison(comparison, columns, 4).tolist() == [False, True, True, False]
