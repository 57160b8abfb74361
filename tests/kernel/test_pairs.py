"""Matching two sides' rows: `find` gives exactly the pairs that the whole condition accepts."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.conditions import ExactBand, Key
from watersmeet.event_time import (
    DAY_US,
    MAX_TIME,
    MIN_TIME,
    Side,
    TimeColumn,
    TimeComparison,
    TimeConstant,
    TimeFloor,
    TimeSum,
    saturate,
)
from watersmeet.expressions.evaluate import Condition as ExactCondition
from watersmeet.expressions.trees import tree_of
from watersmeet.kernel.gather import JoinedColumn, gather
from watersmeet.kernel.match.pairs import PairCondition, find, has_match, rows_matched
from watersmeet.measure import Measured
from watersmeet.state.runs.layout import RunLayout
from watersmeet.state.runs.writer import sort_rows

LEFT_TIME, RIGHT_TIME = TimeColumn(Side.LEFT, "t"), TimeColumn(Side.RIGHT, "t")


def at_most(expr, other):
    return TimeComparison(expr, "<=", other)


def between(lower, upper):
    """``r.t - l.t`` in [lower, upper], as ``r.t >= l.t + lower AND r.t <= l.t + upper``."""
    comparisons = (
        at_most(TimeSum(LEFT_TIME, TimeConstant(lower), 1), RIGHT_TIME),
        at_most(RIGHT_TIME, TimeSum(LEFT_TIME, TimeConstant(upper), 1)),
    )
    return PairCondition(
        keys=(),
        bands=(ExactBand(Measured("t"), Measured("t"), lower, upper),),
        comparisons=comparisons,
        rechecks=(),
        slack=max(abs(lower), abs(upper)),
        residual=None,
        residual_columns=(),
    )


def with_keys(condition, *keys, **changes):
    return PairCondition(**{**condition.__dict__, "keys": keys, **changes})


def side_rows(times, keys=None, index="t", hashes=None):
    columns = {"t": pa.array(times, pa.int64()), "k": pa.array(keys or [0] * len(times))}
    columns["n"] = pa.array(range(len(times)), pa.int64())
    batch = pa.RecordBatch.from_pydict(columns)
    layout = RunLayout(
        indexes=() if index is None else (Measured(index),), event_times=("t",), releasing=("t",)
    )
    values = np.zeros(len(times), dtype=np.int64) if hashes is None else np.array(hashes)
    return sort_rows(batch, values, layout)[0]


def numbers(condition, needles, side, rows):
    """Pairs (left row, right row) by the numbers that the rows were given, in the order found."""
    found = []
    for needle, row in find(condition, needles, side, rows):
        a, b = (
            needles.batch.column("n").take(needle).to_pylist(),
            rows.batch.column("n").take(row).to_pylist(),
        )
        found += zip(a, b, strict=True) if side is Side.LEFT else zip(b, a, strict=True)
    return found


def both_ways(condition, left, right):
    from_left = numbers(condition, left, Side.LEFT, right)
    from_right = numbers(condition, right, Side.RIGHT, left)
    assert sorted(from_left) == sorted(from_right)
    assert len(set(from_left)) == len(from_left)
    return set(from_left)


@pytest.mark.parametrize(("lower", "upper"), [(-3, 5), (0, 0), (2, 7), (-9, -4)])
def test_pairs_are_those_of_the_band_and_the_key(seed, lower, upper):
    rng = np.random.default_rng(seed)
    times = [rng.integers(-30, 30, 40).tolist() for _ in range(2)]
    keys = [rng.choice(["a", "b", None], 40).tolist() for _ in range(2)]
    condition = with_keys(between(lower, upper), Key("k", "k"))
    left, right = (side_rows(times[s], keys[s]) for s in (0, 1))
    expected = {
        (i, j)
        for i in range(40)
        for j in range(40)
        if lower <= times[1][j] - times[0][i] <= upper and keys[0][i] == keys[1][j] and keys[0][i] is not None
    }
    assert both_ways(condition, left, right) == expected
    for needles, side, rows in ((left, Side.LEFT, right), (right, Side.RIGHT, left)):
        found = list(find(condition, needles, side, rows))
        hits = np.unique(np.concatenate([needle for needle, _ in found] or [[]]))
        assert np.flatnonzero(has_match(condition, needles, side, rows)).tolist() == hits.tolist()
        hits = np.unique(np.concatenate([row for _, row in found] or [[]]))
        assert rows_matched(condition, needles, side, rows).tolist() == hits.tolist()


@pytest.mark.parametrize("spread", [20, 3_000])
def test_rows_that_have_a_match_without_a_key(seed, spread):
    """Each once, however many needles it matches: few of many rows, or all of them."""
    condition, layout = between(-2, 3), RunLayout((Measured("t"),), ("t",), ("t",), by_value=True)
    rng = np.random.default_rng(seed)
    times = [np.sort(rng.integers(-spread, spread, count)) for count in (30, 500)]
    needles, rows = (
        sort_rows(pa.RecordBatch.from_pydict({"t": pa.array(each)}), np.zeros(len(each)), layout)[0]
        for each in times
    )
    difference = times[1][None] - times[0][:, None]
    expected = np.flatnonzero(((difference >= -2) & (difference <= 3)).any(axis=0))
    assert rows_matched(condition, needles, Side.LEFT, rows).tolist() == expected.tolist()


def test_whether_there_is_a_match_without_a_key():
    """The look-up itself decides; needles that none can be for are passed over."""
    condition, layout = between(-2, 3), RunLayout((Measured("t"),), ("t",), ("t",), by_value=True)
    left, right = (
        sort_rows(
            pa.RecordBatch.from_pydict({"t": pa.array(times, pa.int64())}), np.zeros(len(times)), layout
        )[0]
        for times in ([-50, 1, 7, 8, 40], [0, 11, 12])
    )
    assert has_match(condition, left, Side.LEFT, right).tolist() == [False, True, False, True, False]
    assert has_match(condition, right, Side.RIGHT, left).tolist() == [True, True, False]
    nobody = left.part(4, 5)
    assert has_match(condition, nobody, Side.LEFT, right).tolist() == [False]


def test_without_a_band_the_key_alone_decides():
    condition = PairCondition((Key("k", "k"),), (), (), (), 0, None, ())
    left = side_rows([1, 2, 3], ["a", "b", "a"], index=None)
    right = side_rows([9, 9], ["a", "c"], index=None)
    assert both_ways(condition, left, right) == {(0, 0), (2, 0)}


def test_equal_hashes_do_not_make_equal_keys():
    condition = with_keys(between(0, 0), Key("k", "k"))
    left, right = side_rows([1, 1], ["a", "b"]), side_rows([1], ["b"])
    assert both_ways(condition, left, right) == {(1, 0)}


def test_null_safe_keys_match_nulls():
    condition = with_keys(between(0, 0), Key("k", "k", null_safe=True))
    left, right = side_rows([1, 1], ["a", None]), side_rows([1, 1], [None, "b"])
    assert both_ways(condition, left, right) == {(1, 0)}


def test_coarse_slots_are_checked_by_the_exact_time():
    far = 400 * 366 * DAY_US
    left, right = side_rows([0, 10, far]), side_rows([1, 12, far + 1, 50])
    assert left.shift > 0
    assert both_ways(between(0, 1), left, right) == {(0, 0), (2, 2)}


def test_a_lossy_comparison_is_checked_as_written():
    """CAST(r.t AS DATE) = l.t: the band is a day wide and one pair of it is not accepted."""
    condition = PairCondition(
        keys=(),
        bands=(ExactBand(Measured("t"), Measured("t"), 0, 2 * DAY_US),),
        comparisons=(),
        rechecks=(TimeComparison(TimeFloor(RIGHT_TIME, DAY_US), "=", LEFT_TIME),),
        slack=0,
        residual=None,
        residual_columns=(),
    )
    left, right = side_rows([0, DAY_US]), side_rows([DAY_US - 1, DAY_US])
    assert both_ways(condition, left, right) == {(0, 0), (1, 1)}


EDGES = [MIN_TIME, MIN_TIME + 1, MIN_TIME + 4, MIN_TIME + 5, -1, 0, 3, MAX_TIME - 5, MAX_TIME - 1, MAX_TIME]


@pytest.mark.parametrize(("lower", "upper"), [(-4, 4), (0, 5), (-5, 0), (2, 3)])
@pytest.mark.parametrize("form", ["times plus constants", "constants on the other side", "a difference"])
def test_at_the_extremes_the_conjuncts_as_written_decide(lower, upper, form):
    """``r.t >= l.t + c``, ``r.t - c >= l.t`` and ``r.t - l.t >= c`` differ once arithmetic saturates."""
    comparisons = {
        "times plus constants": between(lower, upper).comparisons,
        "constants on the other side": (
            at_most(LEFT_TIME, TimeSum(RIGHT_TIME, TimeConstant(lower), -1)),
            at_most(TimeSum(RIGHT_TIME, TimeConstant(upper), -1), LEFT_TIME),
        ),
        "a difference": (
            at_most(TimeConstant(lower), TimeSum(RIGHT_TIME, LEFT_TIME, -1)),
            at_most(TimeSum(RIGHT_TIME, LEFT_TIME, -1), TimeConstant(upper)),
        ),
    }[form]
    accepted = {
        "times plus constants": lambda a, b: saturate(a + lower) <= b <= saturate(a + upper),
        "constants on the other side": lambda a, b: a <= saturate(b - lower) and saturate(b - upper) <= a,
        "a difference": lambda a, b: lower <= saturate(b - a) <= upper,
    }[form]
    condition = PairCondition(**{**between(lower, upper).__dict__, "comparisons": comparisons})
    low, high = EDGES[:6], EDGES[4:]
    for left, right in ((EDGES, EDGES), (low, low), (high, high), (low, high)):
        expected = {(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if accepted(a, b)}
        assert both_ways(condition, side_rows(left), side_rows(right)) == expected


def test_needles_come_in_ascending_order():
    left, right = side_rows(range(20)), side_rows(range(20))
    needles = [int(n) for part, _ in find(between(-5, 5), left, Side.LEFT, right) for n in part]
    assert needles == sorted(needles)


def test_a_part_of_a_run_is_probed_alone():
    left, right = side_rows([5]), side_rows([4, 5, 6])
    assert numbers(between(-5, 5), left, Side.LEFT, right.part(1, 3)) == [(0, 1), (0, 2)]


OF_LEFT, OF_RIGHT = (("column", name, "TIMESTAMP") for name in ("l.t", "r.t"))
CLOCK = (3_600_000_000, 24, "UTC")
HOURS = (
    "or",
    (
        "call",
        "compare",
        (("call", "time_part", (OF_RIGHT,), CLOCK), ("call", "time_part", (OF_LEFT,), CLOCK)),
        ("<>",),
    ),
    ("call", "compare", (OF_LEFT, OF_RIGHT), ("=",)),
)


def test_a_residual_sees_native_types_of_both_sides():
    names = tuple(
        JoinedColumn(side, "t", name, pa.timestamp("us"))
        for side, name in ((Side.LEFT, "l.t"), (Side.RIGHT, "r.t"))
    )
    condition = with_keys(
        between(0, 10),
        residual=ExactCondition(tree_of(HOURS), "hour(r.t) <> hour(l.t) OR l.t = r.t"),
        residual_columns=names,
    )
    assert both_ways(condition, side_rows([0, 5]), side_rows([0, 5, 6])) == {(0, 0), (1, 1)}


def test_gather_pads_the_missing_side_with_nulls_of_its_type():
    columns = (
        JoinedColumn(Side.LEFT, "t", "l.t", pa.timestamp("us")),
        JoinedColumn(Side.RIGHT, "k", "r.k", pa.string()),
    )
    left = side_rows([1_000_000, 2_000_000]).batch
    none = np.zeros(0, dtype=np.int64)
    padded = gather(columns, left, np.array([1]), None, none)
    assert padded.schema == pa.schema([("l.t", pa.timestamp("us")), ("r.k", pa.string())])
    assert padded.to_pylist() == [{"l.t": datetime(1970, 1, 1, 0, 0, 2), "r.k": None}]
    right = side_rows([1], ["a"]).batch
    assert gather(columns, None, none, right, np.array([0])).to_pylist() == [{"l.t": None, "r.k": "a"}]
