"""Limits below which rows are released: never too early, and never back."""

import itertools
import math
import random

import numpy as np
import pytest

from tests.plan.building import INTS, bounds, plan_sql, plan_two_way_join, stream
from tests.support.effort import at_effort
from watersmeet.event_time import ENDED, MAX_TIME, MIN_TIME, NEVER, Side, evaluate_comparison, saturate
from watersmeet.plan.nodes.retention import limits


def test_the_golden():
    join = plan_two_way_join("r.t BETWEEN l.t - 1 AND l.t + 4")
    assert limits(join, {"r.t": 10, "l.t": NEVER}) == {"l.t": 6, "r.t": NEVER}
    assert limits(join, {"r.t": 10, "l.t": ENDED}) == {"l.t": 6, "r.t": math.inf}


def test_the_highest_of_several_bounds():
    left = {"*t": "BIGINT", "*u": "BIGINT"}
    join = plan_two_way_join("l.t = r.t AND l.t >= r.u - 5", INTS, left)
    assert bounds(join)["r.u"]["l.t"] == 5
    assert limits(join, {"r.t": 10, "r.u": 20, "l.t": 3}) == {"l.t": 15, "r.t": 3}


def test_equal_times_at_the_very_ends():
    join = plan_two_way_join("l.t = r.t")
    for watermark in (MIN_TIME, MIN_TIME + 1, MAX_TIME - 1, MAX_TIME):
        assert limits(join, {"r.t": watermark, "l.t": watermark}) == {"l.t": watermark, "r.t": watermark}


CONDITIONS = [
    "r.t BETWEEN l.t - 1 AND l.t + 4",
    "l.t - 5 >= r.t AND r.t >= l.t - 9",
    "l.t + 10 > r.t + 10 - 10 AND l.t <= r.t + 3",
    "r.t + 10 - 10 <= l.t AND l.t - 7 + 2 <= r.t",
    "l.t - r.t < 10 AND l.t >= r.t - 2",
    "l.t = r.t + 10",
    "-l.t <= -r.t + 3 AND l.t - 4 <= r.t",
    "10 - l.t >= 3 - r.t AND l.t >= r.t - 20",
    "l.t - l.t + l.t >= r.t AND r.t >= l.t - 3 + 3",
]


@pytest.mark.parametrize("on", CONDITIONS)
def test_no_possible_match_is_ever_below_the_limit(on, seed):
    """Asked of the conditions as written, saturating, for released times and times to come."""
    join = plan_two_way_join(on)
    rng = random.Random(seed)
    edges = [*range(MIN_TIME, MIN_TIME + 40), *range(-20, 20), *range(MAX_TIME - 40, MAX_TIME + 1)]
    for watermark in rng.sample(edges, 40):
        found = limits(join, {"l.t": watermark, "r.t": watermark})
        for side in Side:
            released = [t for t in edges if t < found[f"{join.side(side).name}.t"]]
            to_come = [t for t in edges if t >= watermark]
            pairs = np.array(list(itertools.product(released, to_come)), dtype=np.int64).reshape(-1, 2)
            columns = {(side, "t"): pairs[:, 0], (side.other, "t"): pairs[:, 1]}
            accepted = np.ones(len(pairs), dtype=bool)
            for comparison in join.comparisons:
                accepted &= evaluate_comparison(comparison, columns, len(pairs))
            assert not accepted.any(), (on, watermark, side, pairs[accepted][:3])


@pytest.mark.parametrize("on", CONDITIONS)
def test_limits_never_go_back(on):
    join = plan_two_way_join(on)
    last = {"l.t": NEVER, "r.t": NEVER}
    for watermark in [*range(MIN_TIME, MIN_TIME + 99), 0, *range(MAX_TIME - 99, MAX_TIME + 1)]:
        found = limits(join, {"l.t": watermark, "r.t": watermark})
        assert all(found[key] >= last[key] for key in found)
        last = found


FORMS = [
    "{a}.t >= {b}.t - ({c})",  # shifted where the watermark's time stands, or forwards: the very least time
    "{b}.t - ({c}) <= {a}.t",
    "{a}.t + ({c}) >= {b}.t",
    "{a}.t - (0 - ({c})) >= {b}.t",
    "{a}.t + 4 >= {b}.t + 4 - ({c})",
    "{b}.t - {a}.t <= ({c})",
]
"""Ways to say ``a >= b - c``."""
PLAIN, FORWARDS = (0, 1), 2


@pytest.mark.parametrize("forms", list(itertools.product(range(len(FORMS)), repeat=2)))
def test_derived_bounds_release_no_row_too_early(forms, seed):
    """x by y, y by z: which times of x may still meet one of z at or above the watermark is tried out."""
    rng = random.Random(f"{seed}-{forms}")
    edges = [*range(MIN_TIME, MIN_TIME + 30), *range(-15, 15), *range(MAX_TIME - 29, MAX_TIME + 1)]
    for _ in range(at_effort(quick=1, full=4)):
        constants = [rng.choice([-4, -3, -1, 0, 1, 2, 3, 5]) for _ in forms]
        one, two = (
            FORMS[form].format(a=a, b=b, c=c)
            for form, c, a, b in zip(forms, constants, "xy", "yz", strict=True)
        )
        sql = f"SELECT x.t AS a FROM x JOIN y ON {one} AND y.t >= x.t - 9 JOIN z ON {two} AND z.t >= y.t - 9"
        plan = plan_sql(sql, *(stream(alias, INTS) for alias in "xyz"))
        xs, ys = (_partners(join, edges) for join in plan.nodes)
        least, last = {}, ENDED  # of x, for times of z from that one on
        for z in reversed(edges):
            last = least[z] = min([last, *(x for y in ys[z] for x in xs[y][:1])])
        is_plain = all(
            form in PLAIN or (form == FORWARDS and c >= 0) for form, c in zip(forms, constants, strict=True)
        )
        for mark in rng.sample(edges, 40):
            found = limits(plan.root, {"z.t": mark})["x.t"]
            assert found <= least[mark], (sql, mark)
            step_by_step = saturate(saturate(mark - constants[1]) - constants[0])
            assert found == step_by_step if is_plain else found <= step_by_step, (sql, mark)


def _partners(join, edges) -> dict[int, list[int]]:
    """Per time of the right side those of the left that the conditions as written accept, ascending."""
    pairs = np.array(list(itertools.product(edges, edges)), dtype=np.int64)
    columns = {(Side.LEFT, join.bands[0].left.column): pairs[:, 0], (Side.RIGHT, "t"): pairs[:, 1]}
    accepted = np.ones(len(pairs), dtype=bool)
    for comparison in join.comparisons:
        accepted &= evaluate_comparison(comparison, columns, len(pairs))
    found: dict[int, list[int]] = {time: [] for time in edges}
    for own, other in pairs[accepted].tolist():
        found[other].append(own)
    return found
