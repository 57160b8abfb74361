"""Hashes of keys: equal values hash alike whatever their width and place, others hardly ever."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.kernel.slots import family, hash_columns

NAN = float("nan")


def hashes(values, kind):
    return hash_columns([pa.array(values, type=kind)], len(values)).tolist()


@pytest.mark.parametrize(
    ("values", "one", "other"),
    [
        ([1, -2, None, 0], pa.int8(), pa.int64()),
        ([1, -2, None, 0], pa.int16(), pa.int32()),
        ([0.5, -2.0, None, NAN], pa.float32(), pa.float64()),
        (["", "a", None, "abcdefgh", "abcdefghi", "ä" * 300], pa.string(), pa.large_string()),
        ([b"", b"a\0", None], pa.binary(), pa.large_binary()),
        ([Decimal("1.50"), Decimal("-1.50"), None], pa.decimal128(10, 2), pa.decimal128(38, 2)),
    ],
)
def test_the_width_of_a_type_does_not_count(values, one, other):
    assert hashes(values, one) == hashes(values, other)
    assert len(set(hashes(values, one))) == len(values)


def test_zeros_are_one_value_and_so_are_nans():
    zero, minus, nan, other = hashes([0.0, -0.0, NAN, -NAN], pa.float64())
    assert zero == minus
    assert nan == other != zero


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["", "a", None, "bb", "a", "x" * 600, "x" * 601], pa.string()),
        ([True, False, None, True], pa.bool_()),
        ([date(1970, 1, 1), None, date(2024, 2, 29)], pa.date32()),
        ([datetime(2024, 1, 1), None, datetime(1960, 1, 1)], pa.timestamp("us")),
        ([[1, 2], [1], [], None, [2, 1], [None]], pa.list_(pa.int64())),
        (
            [{"a": 1, "b": "x"}, None, {"a": None, "b": "x"}],
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
        ),
    ],
)
def test_where_a_value_stands_does_not_count(values, kind):
    """A slice of a column, a part of several chunks: the same rows have the same hashes."""
    whole = hashes(values, kind)
    array = pa.array([values[0], *values, values[-1]], type=kind)
    assert hash_columns([array.slice(1, len(values))], len(values)).tolist() == whole
    for n, value in enumerate(values):
        assert hashes([value], kind) == [whole[n]]
    assert len({*whole}) == len({repr(value) for value in values})


def test_order_of_columns_and_nulls_count():
    a, b = pa.array([1, 2, None]), pa.array([2, 1, 1])
    assert hash_columns([a, b], 3).tolist() != hash_columns([b, a], 3).tolist()
    both = hash_columns([a, b], 3).tolist()
    assert len(set(both)) == 3


def test_without_a_key_all_rows_are_alike():
    assert hash_columns([], 3).tolist() == [0, 0, 0]
    assert hash_columns([pa.nulls(2)], 2).tolist() == hash_columns([pa.nulls(2)], 2).tolist()


def test_no_rows():
    for kind in (pa.int64(), pa.string(), pa.list_(pa.int8()), pa.decimal128(3, 1)):
        assert hashes([], kind) == []


@pytest.mark.parametrize(
    "make", [lambda n: pa.array(np.arange(n)), lambda n: pa.array([f"N{i}" for i in range(n)])]
)
def test_upper_halves_of_different_keys_hardly_ever_meet(make):
    """Slots hold 32 bits: of 100,000 keys one or two pairs may share them, and no bit is idle."""
    found = hash_columns([make(100_000)], 100_000)
    assert len(np.unique(found >> 32)) > 99_990
    bits = np.unpackbits(found.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    assert bits.min() > 0.49
    assert bits.max() < 0.51


def test_families_tell_what_may_be_compared():
    assert family(pa.int8()) == family(pa.int64())
    assert family(pa.float32()) == family(pa.float64()) != family(pa.int64())
    assert family(pa.decimal128(10, 2)) == family(pa.decimal128(12, 2)) != family(pa.decimal128(10, 3))
    assert family(pa.string()) == family(pa.large_string())
    with pytest.raises(TypeError):
        hash_columns([pa.array([{1: 2}.items()], pa.map_(pa.int64(), pa.int64()))], 1)
