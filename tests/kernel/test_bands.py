"""Bands: look-ups by any index give the same pairs, those that the conjuncts as written accept."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.conditions import ExactBand, Key, RealBand, RealColumn, RealComparison, RealSum
from watersmeet.event_time import Side, TimeColumn, TimeComparison, TimeConstant, TimeSum
from watersmeet.kernel.match.pairs import PairCondition, find, has_match, rows_matched
from watersmeet.kernel.match.probe import reals_hold
from watersmeet.measure import REAL, Measured
from watersmeet.runtime.operators.ranges import estimate_candidates
from watersmeet.state.runs.layout import RunLayout
from watersmeet.state.runs.writer import sort_rows

X, P, T = Measured("x", REAL), Measured("p"), Measured("t")
LEFT, RIGHT = RealColumn(Side.LEFT, X), RealColumn(Side.RIGHT, X)
TENTHS = [0.1, 0.2, 0.3, 0.30000000000000004, 0.4, 1e16, 1e16 + 2, -0.0, 0.0, 5e-324, 1.7e308, -1.7e308]
WILD = [np.nan, np.inf, -np.inf]


def real_band(comparison, lower, upper, size, falls=()):
    return RealBand(X, X, lower, upper, size, 2.0**-48, 2.0**1022, falls, comparison)


def condition(bands=(), reals=(), keys=(), comparisons=(), slack=0):
    return PairCondition(keys, tuple(bands), tuple(comparisons), (), slack, None, (), tuple(reals))


def rows_of(columns, indexes, index=None, keys=True):
    count = len(next(iter(columns.values())))
    batch = pa.RecordBatch.from_pydict(
        {
            "k": pa.array([0] * count),
            "n": pa.array(range(count)),
            **{c: pa.array(v) for c, v in columns.items()},
        }
    )
    layout = RunLayout(indexes, (), (), by_value=not keys)
    return sort_rows(batch, np.zeros(count, dtype=np.int64), layout, None if index is None else index.name)[0]


def pairs(condition, needles, side, rows):
    found = []
    for needle, row in find(condition, needles, side, rows):
        a, b = needles.batch.column("n").take(needle), rows.batch.column("n").take(row)
        found += zip(a.to_pylist(), b.to_pylist(), strict=True)
    assert len(found) == len(set(found))
    return {pair if side is Side.LEFT else pair[::-1] for pair in found}


COMPARISONS = [
    (RealComparison(LEFT, ">", RealSum(RIGHT, 0.1, -1)), None, 0.1, 0.1, ()),
    (RealComparison(LEFT, "<=", RealSum(RIGHT, 0.1, 1)), -0.1, None, 0.1, ()),
    (RealComparison(RealSum(LEFT, RIGHT, -1), "<=", 0.1), -0.1, None, 0.1, (Side.RIGHT,)),
    (RealComparison(RealSum(LEFT, RIGHT, -1), ">=", 0.1), None, -0.1, 0.1, (Side.RIGHT,)),
    (
        RealComparison(RealSum(RIGHT, 1e16, 1), ">=", RealSum(RealSum(LEFT, 0.1, 1), 1e16, 1)),
        0.1, None, 2e16 + 0.1, (),
    ),
    (RealComparison(RealSum(0.0, RIGHT, -1), "<", RealSum(0.0, LEFT, -1)), 0.0, None, 0.0, tuple(Side)),
    (RealComparison(LEFT, "=", RIGHT), 0.0, 0.0, 0.0, ()),
]  # fmt: skip


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize(("comparison", "lower", "upper", "size", "falls"), COMPARISONS)
def test_rounding_nan_and_infinities_lose_no_pair(comparison, lower, upper, size, falls, keyed, seed):
    rng = np.random.default_rng(seed)
    steps = rng.choice(np.array(TENTHS + WILD), 60)
    near = rng.choice(np.arange(-20, 20), 60) / 10.0
    values = {
        Side.LEFT: np.concatenate([steps, near]),
        Side.RIGHT: np.concatenate([near - 0.1, steps, near + 0.1]),
    }
    band = real_band(comparison, lower, upper, size, falls)
    keys = (Key("k", "k"),) if keyed else ()
    whole = condition(reals=[band], keys=keys)
    left, right = (rows_of({"x": values[side]}, (X,), keys=keyed) for side in Side)
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(120), np.arange(180), indexing="ij"))
    with np.errstate(all="ignore"):
        accepts = reals_hold(
            comparison, {(s, "x"): values[s][p] for s, p in ((Side.LEFT, i), (Side.RIGHT, j))}
        )
    expected = set(zip(i[accepts].tolist(), j[accepts].tolist(), strict=True))
    assert expected
    assert pairs(whole, left, Side.LEFT, right) == expected
    assert pairs(whole, right, Side.RIGHT, left) == expected


def test_float_compares_as_float_with_float_and_as_double_with_constant():
    values = {
        (Side.LEFT, "x"): np.array([16777216.0, 0.3], np.float32),
        (Side.RIGHT, "x"): np.array([-1.0, 0.2], np.float32),
    }
    assert reals_hold(RealComparison(RealSum(LEFT, RIGHT, -1), ">", 16777216.0), values).tolist() == [
        False,
        False,
    ]
    assert reals_hold(RealComparison(RealSum(LEFT, 1.0, 1), ">", 16777216.0), values).tolist() == [
        True,
        False,
    ]


@pytest.mark.parametrize("keyed", [True, False])
def test_every_index_finds_the_same_pairs(keyed, seed):
    rng = np.random.default_rng(seed)
    sides = {
        side: {
            "t": rng.integers(0, 100, 200),
            "p": rng.integers(0, 10_000, 200).astype(np.int32),
            "x": rng.random(200),
        }
        for side in Side
    }
    close = RealComparison(LEFT, "<", RealSum(RIGHT, 0.25, 1))
    bands = [ExactBand(T, T, -20, 30), ExactBand(P, P, -500, 900)]
    keys = (Key("k", "k"),) if keyed else ()
    whole = condition(bands, [real_band(close, -0.25, None, 0.25)], keys)
    a, b = sides[Side.LEFT], sides[Side.RIGHT]
    t, p = b["t"][None] - a["t"][:, None], b["p"][None].astype(int) - a["p"][:, None]
    accepts = (t >= -20) & (t <= 30) & (p >= -500) & (p <= 900) & (a["x"][:, None] < b["x"][None] + 0.25)
    expected = set(zip(*(each.tolist() for each in np.nonzero(accepts)), strict=True))
    for one, other in itertools.product((T, P, X), repeat=2):
        left, right = (
            rows_of(sides[s], (T, P, X), index, keyed) for s, index in ((Side.LEFT, one), (Side.RIGHT, other))
        )
        assert pairs(whole, left, Side.LEFT, right) == expected, (one, other)
        assert pairs(whole, right, Side.RIGHT, left.sorted_by(P)) == expected, (one, other)
        other = right.sorted_by(X)
        needles = np.flatnonzero(has_match(whole, left, Side.LEFT, other))
        hits = rows_matched(whole, left, Side.LEFT, other)
        for chosen, rows, own in ((needles, left, 0), (hits, right, 1)):
            found = rows.batch.column("n").take(pa.array(chosen)).to_pylist()
            assert set(found) == {pair[own] for pair in expected}


def test_saturated_integers_are_compared_as_written():
    top = 2**63 - 1
    by_five = TimeComparison(
        TimeColumn(Side.LEFT, "p"), ">=", TimeSum(TimeColumn(Side.RIGHT, "p"), TimeConstant(5), 1)
    )
    whole = condition([ExactBand(P, P, None, -5)], comparisons=[by_five], slack=5)
    left, right = (rows_of({"p": np.array([0, top - 5, top])}, (P,), keys=False) for _ in Side)
    expected = {(1, 0), (2, 0), (2, 1), (2, 2)}  # top >= top + 5, which is top
    assert pairs(whole, left, Side.LEFT, right) == expected
    assert pairs(whole, right, Side.RIGHT, left) == expected


def test_candidates_are_estimated_by_every_index(seed):
    rng = np.random.default_rng(seed)
    sides = [{"t": rng.integers(0, 1000, 5000), "p": rng.integers(0, 1000, 5000)} for _ in Side]
    whole = condition([ExactBand(T, T, -100, 100), ExactBand(P, P, -1, 1)])
    left, right = (rows_of(columns, (T, P), keys=False) for columns in sides)
    by_time, by_number = estimate_candidates(whole, left, Side.LEFT, right, (T, P))
    assert 0.5 < by_time / (5000 * 5000 * 0.19) < 2
    assert by_number < by_time / 10
    assert estimate_candidates(whole, left, Side.LEFT, right, (T, P)) == [by_time, by_number]


def test_candidates_of_a_hash_are_counted_in_its_rows_alone():
    rows = rows_of({"t": np.arange(100), "p": np.zeros(100, dtype=int)}, (T, P))
    needles = rows_of({"t": np.array([50]), "p": np.array([0])}, (T, P))
    whole = condition([ExactBand(T, T, -10, 10), ExactBand(P, P, 0, 0)], keys=(Key("k", "k"),))
    assert estimate_candidates(whole, needles, Side.LEFT, rows, (T, P)) == [21.0, 100.0]
