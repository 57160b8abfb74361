"""Which conditions are time bounds, with which constants; and which are not."""

import numpy as np
import pytest
import sqlglot

from tests.plan.building import INTS, STAMPS, bounds, plan_sql, plan_two_way_join, stream
from watersmeet.errors import PlanError, SeveralErrors
from watersmeet.event_time import Side, evaluate_comparison
from watersmeet.plan.conditions.linear import linear_form
from watersmeet.plan.query_inputs import JoinInputs, Unit

H = 3_600_000_000
D = 24 * H


def band(join):
    return join.bands[0].lower, join.bands[0].upper


@pytest.mark.parametrize(
    ("on", "lower", "upper"),
    [
        ("r.t BETWEEN l.t - 1 AND l.t + 4", -1, 4),
        ("l.t BETWEEN r.t - 1 AND r.t + 4", -4, 1),
        ("l.t = r.t", 0, 0),
        ("l.t <=> r.t", 0, 0),
        ("l.t = r.t + 10", -10, -10),
        ("l.t < r.t AND r.t < l.t + 5", 1, 4),
        ("l.t - r.t < 10 AND l.t >= r.t", -9, 0),
        ("10 > l.t - r.t AND l.t >= r.t", -9, 0),
        ("l.t + 10 > r.t + 10 - 10 AND l.t <= r.t", 0, 9),
        ("-l.t <= -r.t + 3 AND r.t >= l.t", 0, 3),
        ("(l.t) + (2 * 5) >= ((r.t)) AND r.t - l.t >= -(3)", -3, 10),
        ("l.t + 7 div 2 >= r.t AND r.t >= l.t - 7 % 4", -3, 3),
        ("l.t - -5 >= r.t AND r.t >= l.t", 0, 5),
        ("CAST(l.t AS BIGINT) = r.t", 0, 0),
        ("1 * l.t = r.t * 1", 0, 0),
        ("abs(l.t - r.t) <= 4", -4, 4),
        ("4 > abs(l.t - r.t) AND NOT (r.t > l.t)", -3, 0),
        ("NOT (l.t > r.t OR r.t - l.t > 5)", 0, 5),
        ("(l.t = r.t) OR (r.t = l.t AND l.v = r.v)", 0, 0),
        ("l.t >= r.t - 10 AND l.t >= r.t - 3 AND l.t <= r.t + 20 AND l.t <= r.t + 4", -4, 3),
    ],
)
def test_integer_times(on, lower, upper):
    join = plan_two_way_join(on)
    assert band(join) == (lower, upper)
    assert join.residual is None
    assert join.rechecks == ()
    assert join.keys == ()


def test_strict_bounds_retain_as_closed_ones():
    assert bounds(plan_two_way_join("l.t < r.t AND r.t < l.t + 5")) == {"r.t": {"l.t": 5}, "l.t": {"r.t": 0}}


def test_the_golden_of_one_and_four():
    assert bounds(plan_two_way_join("r.t BETWEEN l.t - 1 AND l.t + 4")) == {
        "r.t": {"l.t": 4},
        "l.t": {"r.t": 1},
    }


@pytest.mark.parametrize(
    ("on", "lower", "upper"),
    [
        ("r.ts BETWEEN l.ts AND l.ts + INTERVAL '1' HOUR", 0, H),
        ("r.ts BETWEEN INTERVAL '-1' HOUR + l.ts AND l.ts + 2 * INTERVAL '30' MINUTE", -H, H),
        ("r.ts - l.ts <= INTERVAL '1' HOUR AND l.ts <= r.ts", 0, H),
        ("r.ts - INTERVAL '1' HOUR <= l.ts AND r.ts - l.ts >= - INTERVAL '1' SECOND", -1_000_000, H),
        ("CAST(l.ts AS TIMESTAMP_NTZ) = r.ts", 0, 0),
        ("r.ts = timestampadd(HOUR, 2, l.ts)", 2 * H, 2 * H),
        ("unix_micros(l.ts) = unix_micros(r.ts) + 5", -5, -5),
    ],
)
def test_timestamps(on, lower, upper):
    join = plan_two_way_join(on, STAMPS, STAMPS)
    assert band(join) == (lower, upper)
    assert join.residual is None
    assert join.rechecks == ()


@pytest.mark.parametrize(
    ("on", "lower", "upper"),
    [
        ("timestampdiff(HOUR, l.ts, r.ts) = 1", 1, 2 * H - 1),
        ("datediff(DAY, l.ts, r.ts) = 1", D, 2 * D - 1),
        ("timestampdiff(MINUTE, l.ts, r.ts) <= 0 AND l.ts <= r.ts", 0, 59_999_999),
        ("abs(unix_timestamp(l.ts) - unix_timestamp(r.ts)) <= 10", -11_999_998, 11_999_998),
    ],
)
def test_what_is_rounded_towards_zero_bounds_and_is_decided_as_written(on, lower, upper):
    join = plan_two_way_join(on, STAMPS, STAMPS)
    found = band(join)
    assert found[0] <= lower
    assert upper <= found[1]
    assert found[1] - found[0] <= 2 * (upper - lower) + 4 * H
    assert join.residual is not None


DATES = {"*day": "DATE", "k": "STRING"}


@pytest.mark.parametrize(
    ("on", "lower", "upper", "exact"),
    [
        ("l.day BETWEEN r.day - 1 AND r.day + INTERVAL '2' DAY", -2 * D, D, True),
        ("datediff(r.day, l.day) BETWEEN 0 AND 3", 0, 3 * D, True),
        ("r.day = date_add(l.day, 3)", 3 * D, 3 * D, True),
        ("r.day = date_sub(l.day, 3)", -3 * D, -3 * D, True),
        ("CAST(l.day AS TIMESTAMP) = r.day", 0, 0, True),
    ],
)
def test_dates(on, lower, upper, exact):
    join = plan_two_way_join(on, DATES, DATES)
    assert band(join) == (lower, upper)
    assert (join.rechecks == ()) is exact


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("l.d + INTERVAL '1' DAY", Unit.DATE),
        ("INTERVAL '2' WEEK + l.d", Unit.DATE),
        ("l.d - (INTERVAL '1' DAY + INTERVAL '1' WEEK)", Unit.DATE),
        ("l.d + -INTERVAL '1' DAY", Unit.DATE),
        ("l.d + (r.d - l.d)", Unit.DATE),
        ("l.d + INTERVAL '24' HOUR", Unit.TIMESTAMP),
        ("l.d - INTERVAL '1 00' DAY TO HOUR", Unit.TIMESTAMP),
        ("l.d + INTERVAL '1' DAY * 2", Unit.TIMESTAMP),
        ("l.d + 1 * INTERVAL '1' DAY", Unit.TIMESTAMP),
        ("l.d + 1 * (r.d - l.d)", Unit.TIMESTAMP),
        ("l.d + (INTERVAL '1' DAY + INTERVAL '24' HOUR)", Unit.TIMESTAMP),
    ],
)
def test_a_date_and_an_interval_are_a_date_by_the_units_as_in_spark(text, unit):
    scope = JoinInputs((stream("l", STAMPS), stream("r", STAMPS)))
    form = linear_form(sqlglot.parse_one(text, dialect="spark"), scope)
    assert form is not None
    assert form.unit is unit


def test_a_date_and_a_timestamp_compare_at_midnight():
    assert band(plan_two_way_join("l.ts BETWEEN r.day AND r.day + INTERVAL '1' DAY", STAMPS, DATES)) == (
        -D,
        0,
    )


@pytest.mark.parametrize(
    ("on", "lower", "upper"),
    [
        ("to_date(l.ts) = to_date(r.ts)", 1 - D, D - 1),
        ("CAST(l.ts AS DATE) <= r.ts AND r.ts <= l.ts", 1 - D, 0),
        ("date_trunc('HOUR', l.ts) = date_trunc('HOUR', r.ts)", 1 - H, H - 1),
        ("date_trunc('WEEK', l.ts) = date_trunc('WEEK', r.ts)", 1 - 7 * D, 7 * D - 1),
        ("unix_seconds(l.ts) = unix_seconds(r.ts) - 1", 1, 1_999_999),
        ("CAST(l.ts AS BIGINT) = CAST(r.ts AS BIGINT)", -999_999, 999_999),
    ],
)
def test_a_cast_that_loses_precision_widens_and_is_checked_again(on, lower, upper):
    join = plan_two_way_join(on, STAMPS, STAMPS)
    assert band(join) == (lower, upper)
    assert len(join.rechecks) == 1
    assert bounds(join)["r.ts"]["l.ts"] == upper
    assert bounds(join)["l.ts"]["r.ts"] == -lower


def test_weeks_begin_on_monday():
    (week,) = plan_two_way_join(
        "date_trunc('WEEK', l.ts) = date_trunc('WEEK', r.ts)", STAMPS, STAMPS
    ).rechecks
    days = np.array([-4, -3, 3, 4]) * D  # Sunday, Monday, Sunday, Monday
    columns = {(Side.LEFT, "ts"): days[:-1], (Side.RIGHT, "ts"): days[1:]}
    assert evaluate_comparison(week, columns, 3).tolist() == [False, True, False]


@pytest.mark.parametrize(
    "on",
    [
        "2 * l.t >= r.t",
        "NOT l.t = r.t",
        "(l.t >= r.t OR l.t >= r.t - 1)",
        "l.t >= r.t - r.v",
        "l.t + r.t >= 3",
        "l.t >= r.t + 1.5",
        "l.t <> r.t",
        "abs(l.t - r.t) < l.v",
        "abs(l.t - r.t) > 3",
        "l.t + l.v - l.v >= r.t",
    ],
)
def test_what_is_no_bound_is_residual(on):
    join = plan_two_way_join(f"l.t = r.t AND {on}")
    assert len(join.comparisons) == 1
    assert join.residual is not None


def test_months_are_residual():
    join = plan_two_way_join("l.ts = r.ts AND l.ts >= r.ts - INTERVAL '1' MONTH", STAMPS, STAMPS)
    assert len(join.comparisons) == 1
    assert join.residual is not None


@pytest.mark.parametrize(
    ("on", "left", "right"),
    [
        ("l.t = r.ts", INTS, STAMPS),
        ("l.t >= r.t - INTERVAL '1' HOUR", INTS, INTS),
        ("l.ts >= r.ts - 10", STAMPS, STAMPS),
        ("l.ts - r.ts <= 10", STAMPS, STAMPS),
        ("l.ts + r.ts >= l.ts", STAMPS, STAMPS),
    ],
)
def test_wrong_types_in_a_bound(on, left, right):
    with pytest.raises((PlanError, SeveralErrors), match="wrong-types") as caught:
        plan_two_way_join(on, left, right)
    assert " is " in str(caught.value)


def test_a_text_is_no_event_time():
    with pytest.raises(PlanError, match=r"l\.s is STRING, which cannot be an event time"):
        plan_two_way_join("l.s = r.t", {"*s": "STRING"}, INTS)


def test_inverted_interval_matches_nothing_and_warns():
    join = plan_two_way_join("l.t BETWEEN r.t + 3 AND r.t + 1", kind="FULL")
    assert not join.matchable
    assert "l.t BETWEEN r.t + 3 AND r.t + 1" in join.warnings[0]


def test_an_interval_emptied_by_strictness_is_judged_as_closed():
    join = plan_two_way_join("l.t < r.t AND r.t < l.t + 1")
    assert join.matchable
    assert join.warnings


def test_two_times_of_a_side_are_closed_transitively():
    left = {"*t": "BIGINT", "*u": "BIGINT"}
    join = plan_two_way_join("l.t >= r.t - 1 AND r.t >= l.u - 2 AND l.u >= r.u - 3", left, left)
    assert bounds(join) == {"r.t": {"l.t": 1}, "l.u": {"r.t": 2}, "r.u": {"l.u": 3, "l.t": 6}}


def test_a_bound_inside_one_input_filters_and_links_nothing():
    left = {"*t": "BIGINT", "*u": "BIGINT"}
    join = plan_two_way_join("l.t >= r.t - 3 AND l.t <= r.t + 3 AND l.u >= l.t - 5", left)
    assert bounds(join) == {"r.t": {"l.t": 3}, "l.t": {"r.t": 3}}
    assert join.filters == (("l", "l.u >= l.t - 5"),)


def test_the_closed_and_narrow_band_comes_first():
    left = {"*t": "BIGINT", "*u": "BIGINT", "*w": "BIGINT"}
    join = plan_two_way_join(
        "l.t >= r.t AND l.u BETWEEN r.t - 9 AND r.t AND l.w BETWEEN r.t AND r.t + 2", left
    )
    assert [b.left.column for b in join.bands] == ["w", "u", "t"]


def test_where_of_an_inner_join_bounds_too():
    plan = plan_sql(
        "SELECT l.t FROM l JOIN r WHERE l.t = r.t AND l.v > 1", stream("l", INTS), stream("r", INTS)
    )
    assert plan.where is None
    assert band(plan.root) == (0, 0)
    assert plan.root.filters == (("l", "l.v > 1"),)
