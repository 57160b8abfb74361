"""Slots: one ascending int64 per row, cut alike by whoever cuts."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import numpy as np
import pytest

from watersmeet.event_time import MAX_TIME, MIN_TIME
from watersmeet.kernel.slots import (
    BORDER_BITS,
    borders,
    encode,
    offsets,
    order_of,
    shift_for,
    slice_of,
    sorted_unique,
)

YEAR_US = 366 * 86_400_000_000
SPANS = [
    (0, 0),
    (-5, 5),
    (0, 2**32 - 1),
    (0, 2**32),
    (1_357_000_000_000_000, 1_357_000_000_000_000 + 30 * YEAR_US),
    (MIN_TIME, MIN_TIME + 3),
    (MAX_TIME - 3, MAX_TIME),
    (MIN_TIME, MAX_TIME),
]


def random_times(rng, least, greatest, count):
    inside = rng.integers(least, greatest, count, dtype=np.int64, endpoint=True)
    return np.concatenate([[least, greatest], inside]).astype(np.int64)


@pytest.mark.parametrize(("least", "greatest"), SPANS)
def test_offsets_fit_32_bits_and_keep_the_order_of_times(seed, least, greatest):
    times = np.sort(random_times(np.random.default_rng(seed), least, greatest, 500))
    found = offsets(times, least, shift_for(least, greatest))
    assert found.min() == 0
    assert found.max() < 2**32
    assert (np.diff(found) >= 0).all()


def test_a_span_of_32_bits_is_exact_and_one_more_is_coarsened_by_one():
    assert shift_for(0, 2**32 - 1) == 0
    assert shift_for(0, 2**32) == 1
    assert shift_for(MIN_TIME, MAX_TIME) == 32


@pytest.mark.parametrize(("least", "greatest"), SPANS)
def test_slots_order_by_upper_half_of_the_hash_first_then_by_time(seed, least, greatest):
    rng = np.random.default_rng(seed)
    times = random_times(rng, least, greatest, 500)
    hashes = rng.choice(np.array([MIN_TIME, -1, 0, 1 << 32, 7 << 40, MAX_TIME]), len(times))
    shift = shift_for(least, greatest)
    slots = encode(hashes, times, least, shift)
    expected = sorted(
        range(len(times)), key=lambda i: (int(hashes[i]) >> 32, (int(times[i]) - least) >> shift)
    )
    assert (slots[expected] == np.sort(slots)).all()


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 10, 64, 200, 1 << 20])
def test_borders_are_multiples_of_2_to_the_44_over_all_of_int64(partitions):
    cuts = borders(partitions)
    assert len(cuts) == partitions + 1
    assert cuts[0] == MIN_TIME
    assert cuts[-1] == MAX_TIME + 1
    assert all(cut % (1 << BORDER_BITS) == 0 for cut in cuts)
    assert all(a < b for a, b in pairwise(cuts))


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 10])
def test_the_slices_of_all_partitions_cover_each_row_once(seed, partitions):
    rng = np.random.default_rng(seed)
    near = np.array(
        [cut + by for count in (2, 3, 7, 10) for cut in borders(count)[1:-1] for by in (-1, 0, 1)]
    )
    hashes = np.concatenate([near, [MIN_TIME, MAX_TIME], rng.integers(MIN_TIME, MAX_TIME, 300)])
    times = random_times(rng, 0, 40 * YEAR_US, len(hashes) - 2)
    slots = np.sort(encode(hashes, times, 0, shift_for(0, 40 * YEAR_US)))
    cuts = borders(partitions)
    found = [slice_of(slots, low, high) for low, high in pairwise(cuts)]
    assert found[0][0] == 0
    assert found[-1][1] == len(slots)
    assert all(a[1] == b[0] for a, b in pairwise(found))


@pytest.mark.parametrize("partitions", [2, 3, 7, 10])
def test_a_hash_falls_into_one_partition_whatever_the_span_of_its_run(partitions):
    """A run's lower halves are its own; borders must cut by upper halves alone."""
    hashes = np.array([cut + by for cut in borders(partitions)[1:-1] for by in (-1, 0, 1)], dtype=np.int64)
    cuts = borders(partitions)
    places = []
    for span in (1, 2**32 - 1, 40 * YEAR_US):
        times = np.full(len(hashes), span)
        slots = encode(hashes, times, 0, shift_for(0, span))
        places.append([bisect_right(cuts, int(slot)) for slot in slots])
    assert places[0] == places[1] == places[2]
    assert places[0] == [bisect_right(cuts, int(value)) for value in hashes]


@pytest.mark.parametrize("different", [1, 3, 500, 2**14, 2**16, 2**31, 2**32, 2**62])
@pytest.mark.parametrize("stretches", [1, 2, 40, 1_000])
def test_order_of_keeps_equal_values_in_their_order(seed, different, stretches):
    rng = np.random.default_rng((seed, stretches))
    for count in (0, 1, 2, 37, 1_000):
        values = rng.integers(-different, different, count, endpoint=True)
        values = np.concatenate([np.sort(part) for part in np.array_split(values, stretches)])
        found = order_of(values)
        assert found.dtype == np.int64
        assert found.tolist() == sorted(range(count), key=lambda i: int(values[i]))


@pytest.mark.parametrize("buckets", [1, 7, 3_000])
@pytest.mark.parametrize("span", [0, 1, 50, 2**12, 2**32 - 1])
def test_order_of_is_exact_where_values_and_positions_take_more_than_64_bits(seed, buckets, span):
    """Slots: values of one bucket differ in bits that have no place beside a position, or in none."""
    rng = np.random.default_rng((seed, buckets, span))
    for count in (100, 4_000):
        upper = rng.integers(-(2**31), 2**31, buckets, dtype=np.int64)
        upper[: min(2, buckets - 1)] = (-(2**31), 2**31 - 1)[: min(2, buckets - 1)]
        values = (rng.choice(upper, count) << 32) | rng.integers(0, span, count, endpoint=True)
        assert order_of(values).tolist() == sorted(range(count), key=lambda i: int(values[i]))


def test_order_of_is_exact_for_very_many_rows_of_pairs_that_differ_in_their_last_bits(seed):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(MIN_TIME >> 24, MAX_TIME >> 24, 1 << 21, dtype=np.int64) << 24
    pairs[:2] = MIN_TIME, MAX_TIME >> 24 << 24
    values = rng.permutation(np.concatenate([pairs + rng.integers(0, 3, len(pairs)), pairs + 1]))
    assert (order_of(values) == np.argsort(values, kind="stable")).all()


def test_values_are_there_each_once(seed):
    rng = np.random.default_rng(seed)
    for count in (0, 1, 2, 50):
        values = rng.integers(-5, 5, count)
        assert sorted_unique(values).tolist() == sorted(set(values.tolist()))
