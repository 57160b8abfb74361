"""Time bounds in a zone whose offsets change: wide enough for every pair that the condition accepts."""

from __future__ import annotations

import pytest

from tests.plan.building import bounds, plan_sql, stream
from watersmeet.spec.model import Options

HOUR = 3_600_000_000
DAY = 24 * HOUR
NEW_YORK = Options(time_zone="America/New_York")  # offsets from −5 h (LMT: −4:56:02) to −4 h
DATES = {"*dt": "DATE", "k": "STRING"}
TIMES = {"*t": "TIMESTAMP", "k": "STRING"}
WALLS = {"*t": "TIMESTAMP_NTZ", "k": "STRING"}


def plan_zoned_join(on: str, left, right, options: Options):
    sql = f"SELECT l.k FROM l JOIN r ON {on}"
    return plan_sql(sql, stream("l", left), stream("r", right), options=options).root


def test_a_date_against_a_timestamp_is_widened_by_the_zone() -> None:
    on = "r.t >= l.dt AND r.t < l.dt + INTERVAL '1' DAY AND l.k = r.k"
    utc = bounds(plan_zoned_join(on, DATES, TIMES, Options()))
    assert utc == {"l.dt": {"r.t": 0}, "r.t": {"l.dt": DAY}}
    join = plan_zoned_join(on, DATES, TIMES, NEW_YORK)
    assert join.residual is not None  # what decides
    assert not join.rechecks
    # Midnight on that clock is 4 to 5 h after midnight in UTC.
    assert bounds(join) == {"l.dt": {"r.t": -4 * HOUR}, "r.t": {"l.dt": DAY + 5 * HOUR}}


@pytest.mark.parametrize(
    "on",
    ["r.t BETWEEN l.t AND l.t + INTERVAL '23' HOUR", "r.t = l.t", "l.t <= r.t AND r.t <= l.t"],
)
def test_what_no_clock_shows_is_as_in_utc(on: str) -> None:
    utc, zoned = plan_zoned_join(on, TIMES, TIMES, Options()), plan_zoned_join(on, TIMES, TIMES, NEW_YORK)
    assert (utc.bounds, utc.bands, utc.residual) == (zoned.bounds, zoned.bands, zoned.residual)


def test_equal_days_are_a_key_and_bound_both_sides() -> None:
    join = plan_zoned_join("CAST(l.t AS DATE) = CAST(r.t AS DATE)", TIMES, TIMES, NEW_YORK)
    assert len(join.keys) == 1
    assert not join.rechecks
    found = bounds(join)
    # Two instants of one day of the clock are less than a day and the swing of 1 h apart.
    assert found["l.t"]["r.t"] >= DAY + HOUR - 1
    assert found["r.t"]["l.t"] >= DAY + HOUR - 1


def test_clocks_of_one_kind_need_no_zone() -> None:
    on = "r.t BETWEEN l.t AND l.t + INTERVAL '2' DAY"
    zoned = plan_zoned_join(on, WALLS, WALLS, NEW_YORK)
    assert zoned.residual is None
    assert bounds(zoned) == bounds(plan_zoned_join(on, WALLS, WALLS, Options()))
