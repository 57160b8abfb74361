"""Equality of pairs as Spark SQL has it."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.kernel.match.overflow import equal_arrays, equal_pairs

NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "a", "b", "same"),
    [
        (pa.int64(), 1, 1, True),
        (pa.int64(), 1, 2, False),
        (pa.string(), "a", "a", True),
        (pa.string(), "a", "A", False),
        (pa.string(), "", "", True),
        (pa.bool_(), True, True, True),
        (pa.binary(), b"\0", b"\0", True),
        (pa.float64(), NAN, NAN, True),
        (pa.float64(), NAN, 1.0, False),
        (pa.float64(), 0.0, -0.0, True),
        (pa.float64(), float("inf"), float("inf"), True),
        (pa.float32(), NAN, NAN, True),
        (pa.decimal128(10, 2), Decimal("1.50"), Decimal("1.5"), True),
        (pa.decimal128(38, 0), Decimal(10**37), Decimal(10**37 + 1), False),
        (pa.date32(), date(2013, 1, 1), date(2013, 1, 1), True),
        (pa.timestamp("us"), datetime(2013, 1, 1), datetime(2013, 1, 2), False),
        (pa.list_(pa.int64()), [1, 2], [1, 2], True),
        (pa.list_(pa.int64()), [1, 2], [2, 1], False),
        (pa.list_(pa.int64()), [1, None], [1, None], True),
        (pa.list_(pa.float64()), [NAN], [NAN], True),
        (pa.list_(pa.float64()), [0.0], [-0.0], True),
        (
            pa.struct({"x": pa.int64(), "y": pa.list_(pa.float64())}),
            {"x": 1, "y": [NAN]},
            {"x": 1, "y": [NAN]},
            True,
        ),
        (pa.struct({"x": pa.int64()}), {"x": 1}, {"x": None}, False),
    ],
)
@pytest.mark.parametrize("null_safe", [False, True])
def test_values(kind, a, b, same, null_safe):
    left, right = pa.array([a], kind), pa.array([b], kind)
    assert equal_arrays(left, right, null_safe=null_safe).tolist() == [same]


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(),
        pa.string(),
        pa.float64(),
        pa.decimal128(5, 1),
        pa.date32(),
        pa.list_(pa.int64()),
        pa.null(),
    ],
)
def test_null_equals_nothing_but_null_by_the_null_safe_operator(kind):
    value = {"int64": 1, "string": "a", "double": 1.0, "date32[day]": date(2013, 1, 1)}.get(str(kind))
    value = Decimal("1.0") if pa.types.is_decimal(kind) else [1] if pa.types.is_list(kind) else value
    left, right = pa.array([None, None, value], kind), pa.array([None, value, None], kind)
    assert equal_arrays(left, right, null_safe=False).tolist() == [False, False, False]
    expected = [True, True, True] if pa.types.is_null(kind) else [True, False, False]
    assert equal_arrays(left, right, null_safe=True).tolist() == expected


def test_a_nan_and_a_null_are_different():
    left, right = pa.array([NAN, None]), pa.array([None, NAN])
    assert equal_arrays(left, right, null_safe=True).tolist() == [False, False]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([3, 5], pa.int32()), pa.array([3, 4], pa.int64())),
        (pa.array([3.0, 5.5]), pa.array([3, 5], pa.int64())),
        (pa.array([Decimal("3.0"), Decimal("5.0")]), pa.array([Decimal("3.00"), Decimal("5.01")])),
        (
            pa.array([date(1970, 1, 4), date(1970, 1, 6)]),
            pa.array([datetime(1970, 1, 4), datetime(1970, 1, 6, 1)]),
        ),
    ],
)
def test_types_with_a_common_one_are_compared_in_it(left, right):
    assert equal_arrays(left, right, null_safe=False).tolist() == [True, False]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([3, 4, 5]),
        pa.array([3, None, 5]),
        pa.array(["a", "b", "c"]),
        pa.array([date(2000, 1, 1)] * 3),
    ],
)
def test_equality_compares_pairs_by_row_position(column):
    values = column.to_pylist()
    left, right = np.array([0, 2, 1, 2]), np.array([0, 1, 2, 2])
    expected = [values[a] == values[b] and values[a] is not None for a, b in zip(left, right, strict=True)]
    assert equal_pairs(column, left, column, right, null_safe=False).tolist() == expected


def test_slices_are_compared_from_where_they_start():
    column = pa.array([1, 2, 3, 4]).slice(2)
    assert equal_pairs(column, np.array([0]), pa.array([3]), np.array([0]), null_safe=False).tolist() == [
        True
    ]
