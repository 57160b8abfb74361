"""Windows of rows against the definition, row by row in Python's integers."""

import random
from collections import Counter

import numpy as np
import pytest

from watersmeet.event_time import ENDED, MAX_TIME, MIN_TIME, NEVER
from watersmeet.kernel.windows import closing_windows, live_sessions, sessions, window_times
from watersmeet.watermark.tracker import release_limit


def plainly(times, size, slide, before, now):
    """Every window that holds the time and whose end is in (before, now]."""
    found = Counter()
    for row, time in enumerate(times):
        number = time // slide
        while number * slide + size > time:
            if before < number * slide + size <= now:
                found[row, number] += 1
            number -= 1
    return found


def kernel(times, size, slide, before, now, most=2_000_000):
    found, chunks = Counter(), []
    for rows, numbers in closing_windows(np.array(times, dtype=np.int64), size, slide, before, now, most):
        assert np.all(np.diff(rows) >= 0)
        found.update(zip(rows.tolist(), numbers.tolist(), strict=True))
        chunks.append(set(numbers.tolist()))
    for i, chunk in enumerate(chunks):
        assert not chunk & set().union(*chunks[i + 1 :]), "a window is in one chunk"
    return found


def test_against_the_definition(seed):
    random.seed(seed)
    for _ in range(400):
        size = random.randint(1, 12)
        slide = random.choice([size, random.randint(1, size)])
        times = [random.randint(-30, 30) for _ in range(random.randint(0, 12))]
        now = random.choice([ENDED, NEVER, random.randint(-40, 40)])
        before = random.choice([NEVER, random.randint(-40, 40), ENDED])
        want = plainly(times, size, slide, before, now)
        assert kernel(times, size, slide, before, now, random.choice([1, 5, 10**6])) == want


def test_limits_against_the_definition(seed):
    random.seed(seed + 1)
    for _ in range(2000):
        size = random.randint(1, 12)
        slide = random.choice([size, random.randint(1, size)])
        mark, time = random.randint(-40, 40), random.randint(-40, 40)
        assert (time < release_limit(size, slide, mark)) == (not plainly([time], size, slide, mark, ENDED))
    assert release_limit(5, 5, NEVER) == NEVER
    assert release_limit(5, 5, ENDED) == ENDED


@pytest.mark.parametrize("time", [MIN_TIME, MIN_TIME + 1, MAX_TIME - 1, MAX_TIME])
@pytest.mark.parametrize(
    ("size", "slide"), [(10, 10), (7, 3), (MAX_TIME, MAX_TIME), (1, 1), (10**18, 7 * 10**16)]
)
def test_at_the_ends_of_int64(time, size, slide):
    assert kernel([time], size, slide, NEVER, ENDED) == plainly([time], size, slide, NEVER, ENDED)
    assert kernel([time], size, slide, NEVER, MAX_TIME) == plainly([time], size, slide, NEVER, MAX_TIME)
    ((_, numbers),) = closing_windows(np.array([time]), size, slide, NEVER, ENDED)
    starts, ends = window_times(numbers, size, slide)
    for number, start, end in zip(numbers.tolist(), starts.tolist(), ends.tolist(), strict=True):
        assert start == max(number * slide, MIN_TIME)
        assert end == min(number * slide + size, MAX_TIME)


def test_a_gap_apart_is_one_session():
    times = np.array([0, 5, 11, 12, 3, 8, 14])
    same = np.array([False, True, True, True, False, True, True])
    assert sessions(times, same, 5).tolist() == [0, 0, 1, 1, 2, 2, 3]
    ends = np.array([MIN_TIME, MAX_TIME - 2, MAX_TIME])
    assert sessions(ends, np.array([False, True, True]), MAX_TIME).tolist() == [0, 1, 1]
    assert sessions(np.array([], dtype=np.int64), np.array([], dtype=bool), 3).tolist() == []


def test_sessions_are_those_of_times_at_which_rows_are_left() -> None:
    keys = np.array([7, 7, 7, 7, 9, 7, 9])
    times = np.array([5, 1, 3, 3, 3, 9, 4])
    there = live_sessions(keys, times, np.array([1, 2, 1, -1, 1, 1, -2]), 3)
    assert there.numbers.tolist() == [1, 0, -1, -1, 3, 2, -1]
    assert (there.starts.tolist(), there.lasts.tolist()) == ([1, 5, 9, 3], [1, 5, 9, 3])
    assert keys[there.firsts].tolist() == [7, 7, 7, 9]
    there = live_sessions(keys, times, np.array([1, 2, 1, 0, 1, 1, 1]), 3)
    assert there.numbers.tolist() == [0, 0, 0, 0, 2, 1, 2]
    assert (there.starts.tolist(), there.lasts.tolist()) == ([1, 9, 3], [5, 9, 4])
    nothing = np.zeros(0, dtype=np.int64)
    assert len(live_sessions(nothing, nothing, nothing, 3).starts) == 0
    assert live_sessions(keys, times, np.zeros(7, dtype=np.int64), 3).numbers.tolist() == [-1] * 7
