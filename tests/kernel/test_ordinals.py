"""Ordinals: the order of values, whatever their type, and doubles near them."""

from __future__ import annotations

import itertools
import random
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.event_time import DAY_US
from watersmeet.kernel.ordinals import (
    NAN_ORDINAL,
    ordinals,
    ordinals_of,
    ordinals_to_reals,
    raw,
    real_ordinals,
    reals,
)
from watersmeet.measure import REAL, TEXT, WHOLE, Measure


def of(values, kind, measure):
    column = pa.array(values, kind)
    return ordinals(raw(column), column.type, measure).tolist()


@pytest.mark.parametrize(
    ("values", "kind", "measure", "expected"),
    [
        ([-3, 127], pa.int8(), WHOLE, [-3, 127]),
        ([-(2**63), 2**63 - 1], pa.int64(), WHOLE, [-(2**63), 2**63 - 1]),
        ([date(1970, 1, 2), date(1969, 12, 31)], pa.date32(), WHOLE, [DAY_US, -DAY_US]),
        ([datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("us"), WHOLE, [1_000_000]),
        ([datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("ms"), WHOLE, [1_000_000]),
        (
            [Decimal("-1.50"), Decimal("99999999.99")], pa.decimal128(10, 2), Measure("decimal", 3),
            [-1500, 99999999990],
        ),
        ([-7, 2**31 - 1], pa.int32(), Measure("decimal", 2), [-700, (2**31 - 1) * 100]),
    ],
)  # fmt: skip
def test_exact_ordinals(values, kind, measure, expected):
    assert of(values, kind, measure) == expected


def test_doubles_are_in_order_with_nan_above_and_one_zero():
    values = [-np.inf, -1e300, -1.5, -5e-324, 0.0, 5e-324, 1.0, np.inf, np.nan]
    found = real_ordinals(np.array(values))
    assert (np.diff(found) > 0).all()
    assert found[-1] == NAN_ORDINAL == real_ordinals(np.array([-np.nan]))[0]
    assert real_ordinals(np.array([-0.0]))[0] == found[4]
    np.testing.assert_array_equal(ordinals_to_reals(found), values)


def test_decimals_as_doubles_are_right_to_the_last_bits(seed):
    rng = np.random.default_rng(seed)
    digits = [int("".join(map(str, rng.integers(0, 10, int(n))))) for n in rng.integers(1, 39, 400)]
    values = [Decimal(n * sign).scaleb(-18) for n, sign in zip(digits, [1, -1] * 200, strict=True)]
    values += [Decimal(-1).scaleb(-18), Decimal(0), Decimal(-(2**64)).scaleb(-18), Decimal(2**64).scaleb(-18)]
    column = pa.array(values, pa.decimal128(38, 18))
    found = reals(raw(column), column.type)
    np.testing.assert_allclose(found, [float(value) for value in values], rtol=1e-15)


def test_a_part_of_a_column_is_itself():
    column = pa.array([Decimal(n) for n in range(9)], pa.decimal128(10, 0)).slice(3, 4)
    assert ordinals(raw(column), column.type, Measure("decimal", 1)).tolist() == [30, 40, 50, 60]
    assert ordinals(raw(column), column.type, REAL).tolist() == real_ordinals(np.arange(3.0, 7.0)).tolist()


def test_texts_by_their_first_bytes(seed):
    rng = random.Random(seed)
    letters = ["", "a", "b", "\x00", "\x7f", "\u00e9", "\uffff", "\U0001f600"]
    texts = ["".join(rng.choices(letters, k=rng.randrange(12))) for _ in range(500)]
    for kind in (pa.string(), pa.large_string()):
        found = ordinals_of(pa.array(["x", *texts], kind).slice(1), TEXT)
        by_bytes = sorted(range(500), key=lambda n: texts[n].encode())
        assert (np.diff(found[by_bytes]) >= 0).all()
        for one, two in itertools.pairwise(by_bytes):
            same = texts[one].encode()[:7].ljust(7, b"\0") == texts[two].encode()[:7].ljust(7, b"\0")
            assert same or found[one] < found[two]
        rows = np.array(rng.choices(range(500), k=50))
        assert ordinals_of(pa.array(texts, kind), TEXT, rows).tolist() == found[rows].tolist()
        assert ordinals_of(pa.array([""], kind), TEXT).tolist() == [-(2**62)]
        assert ordinals_of(pa.array([], kind), TEXT).tolist() == []
    assert found.min() >= -(2**62)
    assert found.max() < 2**62
