"""As-of look-ups against plain loops: colliding hashes, coarse slots, ties, times near the ends of int64."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.conditions import AsofRule, ExactBand
from watersmeet.event_time import (
    MAX_TIME,
    MIN_TIME,
    Side,
    TimeColumn,
    TimeComparison,
    TimeConstant,
    TimeSum,
)
from watersmeet.kernel.asof import CAME, Askers, AsOfNeedles, Nearest, Reach, nearest
from watersmeet.measure import Measured
from watersmeet.state.runs.layout import RunLayout
from watersmeet.state.runs.writer import sort_rows

T = Measured("t")
LEFT, RIGHT = TimeColumn(Side.LEFT, "t"), TimeColumn(Side.RIGHT, "t")


def check_nearest_against_loop(
    rng: np.random.Generator, rows: int, span: int, latest: bool, hashes: int
) -> None:
    """One run, many askers: each finds what a loop over all rows finds."""
    times, keys = rng.integers(0, span, rows), rng.integers(0, 6, rows)
    batch = pa.record_batch({"t": times, "k": keys, CAME: rng.permutation(rows)})
    layout = RunLayout((Measured("t"),), ("t",), ("t",), ties="descending" if latest else "ascending")
    run, _ = sort_rows(batch, (keys % hashes) << 40, layout)
    own = rng.integers(0, 7, 300)
    low = rng.integers(-5, span, 300)
    high = low + rng.integers(-2, span // 3 + 2, 300)
    order = np.argsort(own % hashes, kind="stable")
    askers = Askers(
        pa.record_batch({"key": own}), order, (own[order] % hashes) << 40, ("key",), low[order], high[order]
    )
    found = nearest(askers, AsOfNeedles(("k",), (False,), "t"), run, latest=latest)
    taken = run.batch.to_pydict()
    for asker, place in zip(order.tolist(), found.tolist(), strict=True):
        may = [
            (-t if latest else t, came)
            for t, k, came in zip(taken["t"], taken["k"], taken[CAME], strict=True)
            if k == own[asker] and low[asker] <= t <= high[asker]
        ]
        best = (
            None if place < 0 else (-taken["t"][place] if latest else taken["t"][place], taken[CAME][place])
        )
        assert best == min(may, default=None)


@pytest.mark.parametrize("latest", [True, False])
@pytest.mark.parametrize("hashes", [1, 3, 100])
@pytest.mark.parametrize("span", [5, 400, 2**38])
def test_nearest_is_what_a_loop_finds(seed: int, latest: bool, hashes: int, span: int) -> None:
    rng = np.random.default_rng(seed)
    for rows in (1, 7, 600):
        check_nearest_against_loop(rng, rows, span, latest, hashes)


def test_nothing_is_found_in_nothing() -> None:
    batch = pa.record_batch({"t": pa.array([], pa.int64()), CAME: pa.array([], pa.int64())})
    none = np.zeros(0, np.int64)
    run, _ = sort_rows(batch, none, RunLayout((Measured("t"),), ("t",), ("t",), ties="ascending"))
    one = np.zeros(1, np.int64)
    askers = Askers(pa.record_batch({"t": one}), one, one, (), one, one)
    assert nearest(askers, AsOfNeedles((), (), "t"), run, latest=True).tolist() == [-1]


def test_of_several_runs_the_nearest_counts_and_of_equal_times_the_first() -> None:
    best = Nearest.of_none(3)
    who = np.arange(3)
    best.offer(0, who[:2], np.array([5, 5]), np.array([9, 9]), np.array([1, 2]), latest=True)
    best.offer(1, who, np.array([6, 5, 1]), np.array([10, 3, 4]), np.array([3, 4, 5]), latest=True)
    best.offer(2, who, np.array([4, 5, 1]), np.array([1, 7, 4]), np.array([6, 7, 8]), latest=True)
    assert (best.run.tolist(), best.row.tolist()) == ([1, 1, 1], [3, 4, 5])
    assert (best.time.tolist(), best.came.tolist()) == ([6, 5, 1], [10, 3, 4])


LOW_EDGES = [MIN_TIME + n for n in (0, 1, 4, 5, 60)]
EDGES = [*LOW_EDGES, -3, 0, 7, *(-1 - edge for edge in LOW_EDGES)]


def clamp(time: int) -> int:
    return max(MIN_TIME, min(MAX_TIME, time))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("shift", [0, 5, -5])
def test_reach_is_exact_where_arithmetic_saturates(shift: int, strict: bool) -> None:
    """``l.t + shift >= r.t`` and ``r.t >= l.t - 9``, as written, over times near both ends and between."""
    ceiling = TimeComparison(TimeSum(LEFT, TimeConstant(shift), 1), ">" if strict else ">=", RIGHT)
    floor = TimeComparison(RIGHT, ">=", TimeSum(LEFT, TimeConstant(9), -1))
    upper = shift - strict
    reach = Reach(ExactBand(T, T, -9, upper), AsofRule(True, -9, shift, (floor,), (ceiling,)), abs(shift) + 9)

    def holds(left: int, right: int, closed: bool = False) -> bool:
        top = clamp(left + shift)
        return right >= clamp(left - 9) and (top > right or ((closed or not strict) and top == right))

    low, high = reach.window(np.array(EDGES))
    for left, least, most in zip(EDGES, low.tolist(), high.tolist(), strict=True):
        near = {clamp(left + shift + d) for d in range(-12, 13)} | {clamp(left - 9 + d) for d in range(-3, 4)}
        for right in near | set(EDGES):
            assert (least <= right <= most) == holds(left, right), (left, right)
    for edge in EDGES:
        limit = reach.decided_below(edge)
        for left in EDGES:
            top = clamp(left + shift) - strict
            assert (left >= limit) == (top >= edge), (left, edge)
        assert reach.latest_right_time(edge) == clamp(edge + shift)
        assert reach.earliest_right_time(edge) == clamp(edge - 9)


def test_an_open_reach_asks_for_all_older_rows() -> None:
    ceiling = TimeComparison(LEFT, ">=", RIGHT)
    reach = Reach(ExactBand(T, T, None, 0), AsofRule(True, None, 0, (), (ceiling,)), 0)
    assert reach.window(np.array([MIN_TIME, 3]))[0].tolist() == [MIN_TIME, MIN_TIME]
    assert reach.earliest_right_time(3) == float("-inf")
    assert [reach.decided_below(w) for w in (float("-inf"), 3, float("inf"))] == [
        float("-inf"),
        3,
        float("inf"),
    ]
