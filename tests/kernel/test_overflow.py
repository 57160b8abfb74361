"""Parts of two sides in which sums may leave their type, against a look at every pair."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from watersmeet.conditions import IntegerSum
from watersmeet.event_time import Side
from watersmeet.kernel.match import overflow
from watersmeet.kernel.match.overflow import leaves_type, may_leave_type, parts_leaving_type
from watersmeet.kernel.ordinals import real_ordinals
from watersmeet.measure import REAL, WHOLE, Measure, Measured

DECIMAL = Measure("decimal", 2)


def ordinals(values: list[int], measure: Measure) -> np.ndarray:
    if measure is REAL:
        return real_ordinals(np.array(values, dtype=np.float64))
    return np.array(values, dtype=np.int64) * 10**measure.places


def drawn(rng: random.Random, bits: int, count: int, kind: str) -> list[int]:
    end = 2 ** (bits - 1)
    if kind == "anything":
        return [rng.randrange(-end, end) for _ in range(count)]
    values = [rng.randrange(1000) for _ in range(count)]
    for _ in range(rng.randrange(3)):
        values[rng.randrange(count)] = rng.choice([end - 1, -end, end // 2, end - 5])
    return values


@pytest.mark.parametrize("case", range(60))
def test_every_pair_beyond_the_type_is_found_once(case, seed, monkeypatch):
    rng = random.Random(seed * 1000 + case)
    monkeypatch.setattr(overflow, "MAX_PAIRS_CHECKED", rng.choice([1, 4, 50]))
    bits = rng.choice([8, 16, 32])
    measure = rng.choice([WHOLE, WHOLE, REAL, DECIMAL])
    counts = {side: rng.randrange(1, 60) for side in Side}
    kind = rng.choice(["anything", "few"])
    columns = [(side, Measured(name, measure)) for side in Side for name in "xy"]
    values = {column: drawn(rng, bits, counts[column[0]], kind) for column in columns}
    chosen = rng.sample(columns, rng.randrange(1, 4))
    terms = tuple((*column, rng.choice([1, -1, 1, -1, 3])) for column in chosen)
    low = rng.choice([0, rng.randrange(-300, 300), 2 ** (bits - 1) - 1])
    high = low + rng.choice([0, 0, 7])
    added = IntegerSum(terms, low, high, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def leaves(left: int, right: int) -> bool:
        row = {Side.LEFT: left, Side.RIGHT: right}
        total = sum(factor * values[side, m][row[side]] for side, m, factor in terms)
        return total + low < added.least or total + high > added.most

    every = {(a, b) for a in range(counts[Side.LEFT]) for b in range(counts[Side.RIGHT])}
    wanted = {pair for pair in every if leaves(*pair)}
    given = {column: ordinals(values[column], measure) for column in columns}
    found: list[tuple[int, int]] = []
    for part in parts_leaving_type(added, given, counts):
        found += [(int(a), int(b)) for a in part[Side.LEFT] for b in part[Side.RIGHT]]
    assert len(found) == len(set(found))
    assert wanted <= set(found)

    pairs = sorted(every)
    rows = {side: np.array([pair[n] for pair in pairs]) for n, side in enumerate(Side)}
    of_pairs = {(side, m): ordinals_[rows[side]] for (side, m), ordinals_ in given.items()}
    marked = {
        pair for pair, is_one in zip(pairs, leaves_type(added, of_pairs, len(pairs)), strict=True) if is_one
    }
    assert marked == wanted

    spans = {side: {} for side in Side}
    for side, m in columns:
        spans[side][m.name] = int(given[side, m].min()), int(given[side, m].max())
    assert may_leave_type(added, spans) or not wanted


@pytest.mark.parametrize("measure", [WHOLE, REAL])
def test_a_few_values_at_the_ends_leave_few_pairs(measure):
    """One value at the end of its type does not bring all pairs with it, wherever it is, nor do two."""
    end = 2**63 - 1
    added = IntegerSum(
        ((Side.LEFT, Measured("a", measure), 1), (Side.RIGHT, Measured("b", measure), -1)),
        0,
        0,
        -end - 1,
        end,
    )
    most, count = [], 20_000
    ends = ([], [end], [-end], [end, -end])
    for left, right in product(ends, ends):
        values = {Side.LEFT: [*left, *range(1, count)], Side.RIGHT: [*range(1, count), *right]}
        given = {(s, m): ordinals(values[s], measure) for s, m, _ in added.terms}
        parts = list(parts_leaving_type(added, given, {s: len(v) for s, v in values.items()}))
        most.append(sum(len(p[Side.LEFT]) * len(p[Side.RIGHT]) for p in parts))
    assert max(most) <= 5 * count
