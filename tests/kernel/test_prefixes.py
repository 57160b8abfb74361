"""Rows found by the upper bits of hashes: all that share them, and no hash is missed."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.kernel.match.probe import MAX_ROWS_16_BITS, prefix_ranges, sorted_prefixes


@pytest.mark.parametrize("rows", [0, 1, 2, 1_000, MAX_ROWS_16_BITS, MAX_ROWS_16_BITS + 1])
def test_a_hash_finds_the_rows_that_share_its_upper_bits(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    hashes = rng.integers(-(2**63), 2**63 - 1, rows, endpoint=True)
    hashes[::3] = hashes[:1]  # many rows of one key
    found = sorted_prefixes(hashes)
    bits = 16 if rows <= MAX_ROWS_16_BITS else 32
    assert found.prefixes.itemsize == found.places.itemsize == bits // 8
    upper = np.array([hash_ >> (64 - bits) for hash_ in hashes.tolist()], dtype=np.int64)
    assert found.keys == len({hash_ >> 32 for hash_ in hashes.tolist()})
    needles = np.concatenate(
        [hashes[:40], rng.integers(-(2**63), 2**63 - 1, 10), [0, -1, 2**63 - 1, -(2**63)]]
    )
    for needle, first, end in zip(needles.tolist(), *prefix_ranges(needles, found.prefixes), strict=True):
        places = found.places[first:end].tolist()
        assert sorted(places) == np.flatnonzero(upper == needle >> (64 - bits)).tolist()
