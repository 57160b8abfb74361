"""Which conditions are bands, what they say from both sides, and who decides them."""

from __future__ import annotations

import pytest

from tests.plan.building import plan_two_way_join
from watersmeet.errors import WatersmeetError
from watersmeet.event_time import DAY_US, Side

COLUMNS = {
    "*ts": "TIMESTAMP", "k": "STRING", "n": "INT", "big": "BIGINT", "d": "DATE", "x": "DOUBLE", "f": "FLOAT",
    "m": "DECIMAL(10,2)", "q": "DECIMAL(12,4)", "w": "DECIMAL(38,18)",
    "since": "TIMESTAMP", "until": "TIMESTAMP",
}  # fmt: skip
HOUR = "l.k = r.k AND l.ts BETWEEN r.ts - INTERVAL '1' HOUR AND r.ts"


def plan_band_join(condition, kind=""):
    return plan_two_way_join(f"{HOUR} AND {condition}", COLUMNS, COLUMNS, kind)


def exact(condition):
    return [(b.left.name, b.right.name, b.lower, b.upper) for b in plan_band_join(condition).values.exact]


@pytest.mark.parametrize(
    ("condition", "band"),
    [
        ("l.n BETWEEN r.n - 10 AND r.n + 20", ("n", "n", -20, 10)),
        ("r.n BETWEEN l.n - 20 AND l.n + 10", ("n", "n", -20, 10)),
        ("l.n > r.n - 10", ("n", "n", None, 9)),
        ("l.n - r.n <= 3", ("n", "n", -3, None)),
        ("-l.n >= -r.n - 3", ("n", "n", -3, None)),
        ("l.n - r.n = 4", ("n", "n", -4, -4)),
        ("l.m BETWEEN r.m - 0.5 AND r.m", ("__ws_decimal2:m", "__ws_decimal2:m", 0, 50)),
        ("l.m < r.q + 0.0005", ("__ws_decimal4:m", "__ws_decimal4:q", -4, None)),
        ("l.n >= r.m - 1", ("__ws_decimal2:n", "__ws_decimal2:m", None, 100)),
        ("l.m <= r.m + 1.505BD", ("__ws_decimal3:m", "__ws_decimal3:m", -1505, None)),
        ("CAST(l.n AS DECIMAL(12,1)) <= r.m", ("__ws_decimal2:n", "__ws_decimal2:m", 0, None)),
        ("l.d <= r.d + 3", ("d", "d", -3 * DAY_US, None)),
        ("l.d >= r.since", ("d", "since", None, 0)),
        ("l.ts >= r.since", ("ts", "since", None, 0)),
    ],
)
def test_exact_bands_decide_alone(condition, band):
    assert exact(condition) == [band]
    join = plan_band_join(condition)
    assert join.residual is None
    assert not join.values.real


def test_two_columns_are_the_ends_of_one_interval():
    condition = "l.ts BETWEEN r.since AND r.until"
    assert exact(condition) == [("ts", "since", None, 0), ("ts", "until", 0, None)]
    join = plan_band_join(condition)
    assert [index.name for index in join.indexes(Side.LEFT)] == ["ts"]
    assert [index.name for index in join.indexes(Side.RIGHT)] == ["ts", "since", "until"]


def test_band_over_lossy_cast_is_rechecked_as_written():
    join = plan_band_join("CAST(l.since AS DATE) >= r.d - 1")
    assert [(b.lower, b.upper) for b in join.values.exact] == [(None, DAY_US)]
    assert len(join.values.rechecks) == 1
    assert join.residual is None


@pytest.mark.parametrize("condition", ["l.x > r.x - 0.1", "l.f - r.f < 1", "l.f >= r.x", "l.x < r.x + 1.5D"])
def test_floating_point_is_decided_as_written_in_numpy(condition):
    join = plan_band_join(condition)
    (band,) = join.values.real
    assert band.comparison is not None
    assert join.residual is None


@pytest.mark.parametrize(
    "condition",
    [
        "l.n >= r.x",
        "l.m < r.x + 1",
        "l.w > r.w",
        "l.big >= r.m",
        "l.n < r.n + 1e2",
        "CAST(l.x AS DOUBLE) < r.x",
    ],
)
def test_what_floating_point_does_not_decide_is_a_residual_too(condition):
    join = plan_band_join(condition)
    (band,) = join.values.real
    assert band.comparison is None
    assert join.residual is not None


@pytest.mark.parametrize(
    "condition",
    [
        "l.n * 2 < r.n",
        "(l.n < r.n OR l.n IS NULL)",
        "l.n <> r.n",
        "l.w + 1 > r.w",  # of a sum of 39 digits the last is rounded off
        "l.x - l.n < r.x",
        "CAST(l.x AS INT) < r.n",
        "abs(l.n - r.n) > 3",
        "abs(l.n * r.n) < 3",
        "l.m < CAST(r.q AS DECIMAL(10,2))",
    ],
)
def test_what_is_no_band_is_a_residual(condition):
    join = plan_band_join(condition)
    assert not join.values.every
    assert join.residual is not None


def test_rows_begin_to_be_sorted_by_what_is_bounded_at_both_ends():
    join = plan_two_way_join(
        "l.k = r.k AND l.ts >= r.ts AND l.ts <= r.ts + INTERVAL '1' DAY AND l.n BETWEEN r.n AND r.n + 3",
        COLUMNS,
        COLUMNS,
    )
    assert [index.name for index in join.indexes(Side.LEFT)] == ["ts", "n"]
    half = {**COLUMNS, "*u": "TIMESTAMP"}
    join = plan_two_way_join("l.ts >= r.ts AND r.u >= l.u AND l.n BETWEEN r.n AND r.n + 3", half, half)
    assert [index.name for index in join.indexes(Side.LEFT)] == ["n", "ts", "u"]


def test_an_inverted_band_is_planned_with_a_warning_and_matches_nothing():
    join = plan_band_join("l.m BETWEEN r.m + 1 AND r.m - 0.5", "LEFT")
    assert not join.matchable
    assert join.warnings == ("no pair can satisfy l.m BETWEEN r.m + 1 AND r.m - 0.5: nothing can match",)
    assert plan_band_join("l.m > r.m AND l.m <= r.m").matchable, "judged as if its ends were closed"
    assert plan_band_join("l.m > r.m AND l.m <= r.m").warnings
    assert plan_band_join("l.x BETWEEN r.x + 1 AND r.x - 1").matchable, "two NaNs match"
    assert not plan_band_join("l.m >= r.m + 1.5 AND l.m < r.m + 1.125").matchable, "places are made the same"


def test_a_band_bounds_no_state():
    with pytest.raises(WatersmeetError, match="state would grow without limit"):
        plan_two_way_join("l.n BETWEEN r.n - 10 AND r.n + 10", COLUMNS, COLUMNS)


def test_band_columns_are_retained_on_both_sides():
    join = plan_band_join("l.n BETWEEN r.n - 10 AND r.big AND l.x < r.x")
    assert {"n", "x"} <= set(join.left.kept)
    assert {"n", "big", "x"} <= set(join.right.kept)
