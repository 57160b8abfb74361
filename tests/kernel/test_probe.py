"""Probes against brute force: every candidate that a band allows is found, whatever the run's span."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from watersmeet.conditions import ExactBand
from watersmeet.event_time import MAX_TIME, MIN_TIME, Side, saturate
from watersmeet.kernel.match import probe
from watersmeet.kernel.match.probe import Distances, distances, expand, ranges
from watersmeet.kernel.slots import encode, offsets, shift_for
from watersmeet.measure import Measured

T = Measured("t")


def drawn(rng, least, greatest, count):
    return np.append(rng.integers(least, greatest, count - 2, endpoint=True), [least, greatest])


def pairs(rng, window, least, greatest, rows=60, needles=40, apart=0):
    """(pairs found, pairs that brute force wants, pairs that the coarsened index may give). ``apart``:
    how far the needles' times are from the rows'."""
    buckets = np.array([MIN_TIME, -(1 << 40), 0, 5 << 32, MAX_TIME & ~0xFFFFFFFF])
    times = drawn(rng, least, greatest, rows).astype(np.int64)
    base, top = int(times.min()), int(times.max())
    shift = shift_for(base, top)
    hashes = rng.choice(buckets, rows)
    slots = encode(hashes, times, base, shift)
    order = np.argsort(slots, kind="stable")
    slots, times, hashes = slots[order], times[order], hashes[order]
    needle_times = drawn(rng, least + apart, greatest + apart, needles).astype(np.int64)
    needle_hashes = np.sort(rng.choice(buckets, needles))
    low, high = window.around(needle_times)
    first, end = ranges(needle_hashes, low, high, slots, base, shift, top)
    assert (first <= end).all(), "what is counted before it is expanded is never less than nothing"
    found = {(int(n), int(r)) for part in expand(first, end) for n, r in zip(*part, strict=True)}
    wanted, allowed = set(), set()
    for n in range(needles):
        least_wanted = MIN_TIME if window.lower is None else saturate(int(needle_times[n]) + window.lower)
        most_wanted = MAX_TIME if window.upper is None else saturate(int(needle_times[n]) + window.upper)
        for r in range(rows):
            if needle_hashes[n] != hashes[r]:
                continue
            if least_wanted <= times[r] <= most_wanted:
                wanted.add((n, r))
            if least_wanted - (1 << shift) < times[r] < most_wanted + (1 << shift):
                allowed.add((n, r))
    return found, wanted, allowed


WINDOWS = [
    Distances(0, 0),
    Distances(-3, 5),
    Distances(2, 4),
    Distances(-7, -2),
    Distances(4, 2),
    Distances(None, 3),
    Distances(-3, None),
    Distances(None, None),
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("least", "greatest", "unit"),
    [
        (0, 20, 1),
        (-10, 10, 1),
        (-(10**15), 10**15, 10**14),
        (MIN_TIME, MIN_TIME + 20, 1),
        (MAX_TIME - 20, MAX_TIME, 1),
        (MIN_TIME, MAX_TIME, 2**60),
    ],
)
def test_probe_finds_what_brute_force_finds(seed, window, least, greatest, unit):
    scaled = Distances(*(None if end is None else end * unit for end in (window.lower, window.upper)))
    for number in range(5):
        found, wanted, allowed = pairs(np.random.default_rng((seed, number)), scaled, least, greatest)
        assert wanted <= found, (seed, number)
        assert found <= allowed, (seed, number)


@pytest.mark.parametrize("apart", [-23, -18, 12, 17, 22])
def test_needles_of_which_few_or_none_are_near_the_rows(seed, apart):
    for number, window in enumerate(WINDOWS):
        found, wanted, _ = pairs(np.random.default_rng((seed, number)), window, 0, 20, apart=apart)
        assert found == wanted, number


def test_candidates_are_exact_when_times_are_not_coarsened(seed):
    found, wanted, _ = pairs(np.random.default_rng(seed), Distances(-3, 5), 0, 20)
    assert found == wanted


def test_the_distances_of_a_band_ask_the_same_from_the_other_side():
    closed, open_below = ExactBand(T, T, -3, 5), ExactBand(T, T, None, 5)
    assert distances(closed, Side.LEFT, 8) == Distances(-3, 5, slack=8)
    assert distances(closed, Side.RIGHT, 8) == Distances(-5, 3, slack=8)
    assert distances(open_below, Side.RIGHT, 0) == Distances(-5, None)


def test_near_the_ends_the_window_reaches_to_the_end():
    low, high = Distances(-3, 5, slack=10).around(np.array([MIN_TIME + 10, MIN_TIME + 11, 0, MAX_TIME - 10]))
    assert low.tolist() == [MIN_TIME, MIN_TIME + 8, -3, MAX_TIME - 13]
    assert high.tolist() == [MIN_TIME + 15, MIN_TIME + 16, 5, MAX_TIME]


@pytest.mark.parametrize("slack", [0, 1, 4, 30])
@pytest.mark.parametrize("window", [*WINDOWS, Distances(-7, -4), Distances(4, 7), Distances(2**70, None)])
def test_the_window_of_a_span_is_that_of_all_its_times(window, slack):
    distances_in_slack = replace(window, slack=slack)
    for least in (MIN_TIME, MIN_TIME + 3, -2, MAX_TIME - 20, MAX_TIME - 4):
        for length in (0, 1, 3, 20):
            times = [time for time in range(least, least + length + 1) if time <= MAX_TIME]
            low, high = distances_in_slack.around(np.array(times, dtype=np.int64))
            over = distances_in_slack.over(times[0], times[-1])
            assert over == (int(low.min()), int(high.max())), (least, length)


def test_large_results_come_in_chunks_with_needles_ascending(monkeypatch):
    monkeypatch.setattr(probe, "CHUNK", 10)
    first = np.array([0, 5, 5, 2, 0, 9])
    end = np.array([4, 5, 30, 9, 0, 10])
    chunks = list(expand(first, end))
    needles = np.concatenate([needle for needle, _ in chunks])
    rows = np.concatenate([row for _, row in chunks])
    expected = [(n, r) for n in range(6) for r in range(first[n], end[n])]
    assert list(zip(needles.tolist(), rows.tolist(), strict=True)) == expected
    assert len(chunks) > 1
    assert all(len(needle) <= 10 or len(set(needle)) == 1 for needle, _ in chunks)


def test_no_candidates_no_chunks():
    assert list(expand(np.array([3, 4]), np.array([3, 2]))) == []


def test_offsets_are_relative_to_the_base_time():
    assert offsets(np.array([MIN_TIME, 0, MAX_TIME]), MIN_TIME, 32).tolist() == [0, 2**31, 2**32 - 1]
