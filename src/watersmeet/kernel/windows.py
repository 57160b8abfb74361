"""Windows of rows: which closing windows a row is in (TUMBLE, HOP), which rows are one session.

A window is known by its number: ``number * slide`` is its start, before that is brought into int64, so that
windows that reach beyond the ends of int64 stay apart. Windows of before the least int64 do not exist: rows
there are in the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.event_time import (
    ENDED,
    MAX_TIME,
    MIN_TIME,
    NEVER,
    Mask,
    Times,
    Watermark,
    saturating_add,
)
from watersmeet.kernel.match.probe import Rows

Numbers = npt.NDArray[np.int64]

MAX_WINDOW_PAIRS = 2_000_000
"""About so many pairs of a row and a window are made at once."""


def closing_windows(
    times: Times, size: int, slide: int, before: Watermark, now: Watermark, most: int = MAX_WINDOW_PAIRS
) -> Iterator[tuple[Rows, Numbers]]:
    """Yield the pairs of a row and one of its windows whose end is in (``before``, ``now``].

    Yields:
        (row, window number), int64[m] each, rows ascending; all pairs of one window are in one item.
    """
    if len(times) == 0:
        return
    first, last = _windows(times, size, slide)
    if before > NEVER:
        if before == ENDED:
            return
        low = _clamp_number((int(before) - size) // slide + 1)
        first = np.maximum(first, low)
    if now < ENDED:
        if now == NEVER:
            return
        last = np.minimum(last, _clamp_number((int(now) - size) // slide))
    chosen = np.flatnonzero(first <= last)
    if len(chosen):
        yield from _pairs(chosen, first[chosen], last[chosen], most)


def _windows(times: Times, size: int, slide: int) -> tuple[Numbers, Numbers]:
    """Compute the numbers of the first and the last window that contain each time."""
    last = np.floor_divide(times, np.int64(slide))
    if size == slide:
        return last, last
    whole, rest = divmod(size, slide)
    within = times - last * np.int64(slide)  # exact: between 0 and slide
    first = saturating_add(last, -whole) + np.where(within < rest, np.int64(0), np.int64(1))
    return first, last


def _clamp_number(number: int) -> int:
    return min(max(number, MIN_TIME), MAX_TIME)


def _pairs(rows: Rows, first: Numbers, last: Numbers, most: int) -> Iterator[tuple[Rows, Numbers]]:
    counts = last - first + 1
    total = int(counts.sum())
    low, high = int(first.min()), int(last.max())
    if total <= most or low == high:
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        yield np.repeat(rows, counts), np.repeat(first, counts) + (np.arange(total) - starts)
        return
    middle = (low + high) // 2
    for mask, a, b in (
        (first <= middle, first, np.minimum(last, middle)),
        (last > middle, np.maximum(first, middle + 1), last),
    ):
        if mask.any():
            yield from _pairs(rows[mask], a[mask], b[mask], most)


def window_times(numbers: Numbers, size: int, slide: int) -> tuple[Times, Times]:
    """Start and end of windows, brought into int64."""
    starts = _products(numbers, slide, 0)
    return starts, _products(numbers, slide, size)


def _products(numbers: Numbers, slide: int, more: int) -> Times:
    if len(numbers) == 0:
        return numbers
    ends = [int(numbers.min()) * slide + more, int(numbers.max()) * slide + more]
    if ends[0] - more >= MIN_TIME and ends[0] >= MIN_TIME and max(ends[1], ends[1] - more) <= MAX_TIME:
        return numbers * np.int64(slide) + np.int64(more)
    return np.array([_clamp_number(int(n) * slide + more) for n in numbers], dtype=np.int64)


def sessions(times: Times, same_key: Mask, gap: int) -> Numbers:
    """Assign a session number to each row: rows of one key at most ``gap`` apart share a session.

    Args:
        times: sorted within each key; the rows of a key are contiguous.
        same_key: bool[n], True if a row has the key of the row before it (the first row: False).
    """
    if len(times) == 0:
        return np.zeros(0, dtype=np.int64)
    apart = np.diff(times).view(np.uint64)  # exact, however far, where times ascend
    begins = np.ones(len(times), dtype=np.bool_)
    begins[1:] = ~same_key[1:] | (apart > np.uint64(gap))
    numbers: Numbers = np.cumsum(begins) - 1
    return numbers


@dataclass(frozen=True)
class LiveSessions:
    """Sessions over the times at which the added and removed rows leave at least one row.

    Attributes:
        numbers: session of each row; −1 if no row is left at its time.
        firsts: one row of each session.
        starts: smallest time of each session.
        lasts: greatest time of each session.
    """

    numbers: Numbers
    firsts: Rows
    starts: Times
    lasts: Times


def live_sessions(keys: Numbers, times: Times, counts: Numbers, gap: int) -> LiveSessions:
    """Compute the sessions over the times that have at least one row.

    Args:
        keys: equal numbers for rows with equal keys.
        counts: the number of rows that each one adds at its time (negative: removes).
    """
    order = np.lexsort((times, keys))
    keys, times = keys[order], times[order]
    begins = _mark_changes(keys) | _mark_changes(times)
    firsts = np.flatnonzero(begins)
    there = np.add.reduceat(counts[order], firsts) > 0 if len(firsts) else np.zeros(0, dtype=np.bool_)
    firsts = firsts[there]
    of_time = np.full(len(there), -1, dtype=np.int64)
    of_time[there] = sessions(times[firsts], ~_mark_changes(keys[firsts]), gap)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = of_time[np.cumsum(begins) - 1]
    starts = np.flatnonzero(_mark_changes(of_time[there]))
    ends = np.append(starts[1:], len(firsts))[: len(starts)] - 1
    return LiveSessions(numbers, order[firsts[starts]], times[firsts[starts]], times[firsts[ends]])


def _mark_changes(values: Numbers) -> Mask:
    """Return a mask of the values that differ from the one before; the first is True."""
    differ = np.ones(len(values), dtype=np.bool_)
    differ[1:] = values[1:] != values[:-1]
    return differ
