import itertools
import math
import random

import numpy as np
import pytest

from tests.plan.building import INTS, bounds, joined
from watersmeet.event_time import ENDED, MAX_TIME, MIN_TIME, NEVER, Side, holds
from watersmeet.plan.retention import limits


def test_the_golden():
    join = joined("r.t BETWEEN l.t - 1 AND l.t + 4")
    assert limits(join, {"r.t": 10, "l.t": NEVER}) == {"l.t": 6, "r.t": NEVER}
    assert limits(join, {"r.t": 10, "l.t": ENDED}) == {"l.t": 6, "r.t": math.inf}


def test_the_highest_of_several_bounds():
    left = {"*t": "BIGINT", "*u": "BIGINT"}
    join = joined("l.t = r.t AND l.t >= r.u - 5", INTS, left)
    assert bounds(join)["r.u"]["l.t"] == 5
    assert limits(join, {"r.t": 10, "r.u": 20, "l.t": 3}) == {"l.t": 15, "r.t": 3}


def test_equal_times_at_the_very_ends():
    join = joined("l.t = r.t")
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
    join = joined(on)
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
                accepted &= holds(comparison, columns, len(pairs))
            assert not accepted.any(), (on, watermark, side, pairs[accepted][:3])


@pytest.mark.parametrize("on", CONDITIONS)
def test_limits_never_go_back(on):
    join = joined(on)
    last = {"l.t": NEVER, "r.t": NEVER}
    for watermark in [*range(MIN_TIME, MIN_TIME + 99), 0, *range(MAX_TIME - 99, MAX_TIME + 1)]:
        found = limits(join, {"l.t": watermark, "r.t": watermark})
        assert all(found[key] >= last[key] for key in found)
        last = found
