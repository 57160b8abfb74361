"""How far behind watermarks are and how much state that makes: by hand, and against a run."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from watersmeet.event_time import DAY_US, Side
from watersmeet.parser.statements import parse_job
from watersmeet.plan.explain import explain
from watersmeet.plan.order.forecast import flows, row_bytes, side_forecasts
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000

DECLARED = """
CREATE TABLE o (id BIGINT, t TIMESTAMP, n INT, s STRING, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)
  WITH ('connector' = 'memory', 'rows_per_second' = '2.5');
CREATE TABLE d (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' MINUTE)
  WITH ('connector' = 'memory');
CREATE TABLE two (id BIGINT, t TIMESTAMP, u TIMESTAMP, WATERMARK FOR t AS t, WATERMARK FOR u AS u)
  WITH ('connector' = 'memory');
CREATE TABLE days (t DATE, WATERMARK FOR t AS t - INTERVAL '1' DAY) WITH ('connector' = 'memory');
CREATE TABLE n (t BIGINT, WATERMARK FOR t AS t - 7) WITH ('connector' = 'memory');
"""
HOUR_LATER = "d.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR"


def plan_first_query(sql: str):
    return plan_job(parse_job(DECLARED + sql)).queries[0]


def list_watermark_lags(sql: str) -> list[dict[str, int | None]]:
    return [{key: found.at_most for key, found in join.items()} for join in flows(plan_first_query(sql))]


def sides(sql: str):
    return {each.side.title: each for _, both in side_forecasts(plan_first_query(sql)) for each in both}


def test_two_streams():
    query = f"SELECT o.id, d.t FROM o JOIN d ON o.id = d.id AND {HOUR_LATER}"
    found = sides(query)
    assert (found["o"].kept, found["o"].behind, found["o"].bound.by) == (HOUR + MINUTE, MINUTE, "d.t")
    assert (found["d"].kept, found["d"].behind, found["d"].bound.by) == (10 * SECOND, 10 * SECOND, "o.t")
    assert (found["o"].rate, found["d"].rate) == (2.5, None)
    assert found["o"].rows(2.5) == 2.5 * 3660
    # d.t is behind by its lag of a minute, and its rows go 10 s after their time: they hold nothing back
    assert list_watermark_lags(query) == [{"o.t": HOUR + MINUTE, "d.t": MINUTE}]


def test_allowed_lateness_keeps_rows_longer():
    late = "SET allowed_lateness = '5 seconds';"
    found = sides(f"{late} SELECT o.id FROM o JOIN d ON o.id = d.id AND {HOUR_LATER}")
    assert found["o"].kept == HOUR + MINUTE + 5 * SECOND
    assert found["d"].kept == 15 * SECOND


def test_the_first_bound_releases():
    found = sides(
        "SELECT o.id FROM o JOIN two w ON o.t >= w.t - INTERVAL '9' SECONDS"
        " AND o.t >= w.u - INTERVAL '5' SECONDS AND w.t >= o.t AND w.u >= o.t - INTERVAL '1' HOUR"
    )
    assert (found["o"].kept, found["o"].bound.by) == (5 * SECOND, "w.u")
    assert (found["w"].kept, found["w"].bound.evicted) == (10 * SECOND, "w.t")


def test_forecast_is_zero_for_rows_that_are_never_retained():
    found = sides(
        "SELECT o.id FROM o JOIN d ON d.t BETWEEN o.t + INTERVAL '1' HOUR AND o.t + INTERVAL '2' HOURS"
    )
    assert found["d"].kept == 0  # an hour before its time is up, less 10 s
    found = sides(
        "SELECT o.id FROM o JOIN d ON d.t BETWEEN o.t + INTERVAL '2' HOURS AND o.t + INTERVAL '1' HOUR"
    )
    assert (found["o"].kept, found["o"].bound, found["d"].kept) == (0, None, 0)


def test_watermarks_go_on_to_the_next_join():
    query = (
        f"SELECT o.id FROM o JOIN d ON o.id = d.id AND {HOUR_LATER}"
        " JOIN two w ON w.t BETWEEN d.t AND d.t + INTERVAL '2' HOURS"
    )
    first, second = list_watermark_lags(query)
    assert first == {"o.t": HOUR + MINUTE, "d.t": MINUTE}
    # o with d: o.t goes 3 h behind w.t, d.t 2 h; w: when d.t (a minute) or o.t (an hour and one) is past it
    assert second == {"o.t": 3 * HOUR, "d.t": 2 * HOUR, "w.t": MINUTE, "w.u": None}
    found = sides(query)
    assert found["o with d"].kept == 2 * HOUR
    assert found["o with d"].rate is None
    assert (found["w"].kept, found["w"].bound.by) == (MINUTE, "d.t")


def test_by_the_rule_limit_a_key_without_a_bound_ends():
    query = "SELECT o.id FROM two w JOIN o ON o.t BETWEEN w.t AND w.t + INTERVAL '9' SECONDS"
    assert list_watermark_lags(query) == [{"w.t": 19 * SECOND, "w.u": None, "o.t": 10 * SECOND}]
    assert list_watermark_lags("SET watermark_rule = 'limit';" + query) == [
        {"w.t": 19 * SECOND, "o.t": 10 * SECOND}
    ]
    text = explain(plan_job(parse_job(DECLARED + "SET watermark_rule = 'limit';" + query)))
    assert "\n  w.u: lag 0 s -> join: ends here, for no bound limits it (rule limit)\n" in text


def test_a_date_is_up_to_a_day_old():
    found = sides("SELECT o.id FROM o JOIN days y ON o.t BETWEEN y.t AND y.t + 1")
    assert found["o"].kept == 2 * DAY_US
    assert found["y"].kept == DAY_US + 10 * SECOND


def test_integer_times_have_no_rate():
    found = sides("SELECT x.t FROM n x JOIN n y ON y.t BETWEEN x.t AND x.t + 3")
    assert (found["x"].kept, found["x"].in_time, found["x"].rate) == (10, False, None)
    text = explain(plan_job(parse_job(DECLARED + "SELECT x.t FROM n x JOIN n y ON y.t = x.t")))
    assert "integer times have no rate" in text
    assert "rows/s" not in text


@pytest.mark.parametrize(
    ("outputs", "bytes_", "assumed"),
    [
        ("o.id", 8 + 4 + 8 + 8, ()),  # slot, order, id, t
        ("o.n", 8 + 4 + 8 + 8 + 4, ()),
        ("o.s", 8 + 4 + 8 + 8 + 4 + 20, ("s",)),  # an offset and 20 assumed
    ],
)
def test_bytes_of_a_row(outputs, bytes_, assumed):
    query = plan_first_query(f"SELECT {outputs} FROM o JOIN d ON o.id = d.id AND {HOUR_LATER}")
    found = side_forecasts(query)[0][1][0]
    assert (found.row.bytes, found.row.assumed) == (bytes_, assumed)
    assert row_bytes(query.root, Side.LEFT) == found.row


def test_a_run_keeps_what_was_forecast():
    """An order and a delivery a minute, each on time."""
    plan = plan_job(parse_job(DECLARED + f"SELECT o.id, d.t FROM o JOIN d ON o.id = d.id AND {HOUR_LATER}"))
    forecast = {each.side.title: each for each in side_forecasts(plan.queries[0])[0][1]}
    job, most = LocalJob(plan, MemoryStore()), {"o": 0, "d": 0}
    for minute in range(150):
        time = (datetime(2024, 1, 1) + timedelta(minutes=minute)).isoformat()
        job.tick({"o": [({"id": minute, "t": time}, 1)], "d": [({"id": -minute, "t": time}, 1)]})
        (state,) = job.state.values()
        most = {alias: max(most[alias], rows) for alias, rows in state.items()}
    assert most["o"] == pytest.approx(forecast["o"].rows(1 / 60), abs=1)
    assert most["d"] == pytest.approx(forecast["d"].rows(1 / 60), abs=1)


def test_explain_suggests_how_to_shorten_retention():
    text = explain(
        plan_job(
            parse_job(
                DECLARED
                + "SELECT o.id FROM o JOIN d ON d.t >= o.t"
                + " JOIN two w ON w.t BETWEEN o.t AND o.t + INTERVAL '9' SECONDS AND d.t <= w.t"
            )
        )
    )
    assert (
        "join 1, o: how much later than o.t its partner's d.t may be is left open here;"
        " with d.t <= o.t + … rows could go before d.t lets them\n"
    ) in text
    text = explain(plan_job(parse_job(DECLARED + "SELECT o.id FROM o JOIN d ON o.id = d.id AND o.t = d.t")))
    assert (
        "o: 1 min of its 1 min are the lag of d.t, far more than the interval of 0 s:"
        " a smaller lag would help most\n"
    ) in text


def test_rates_are_of_all_branches():
    union = (
        "CREATE VIEW u AS SELECT id, t FROM o UNION ALL SELECT id, t FROM o;"
        "SELECT u.id FROM u JOIN d ON u.t = d.t AND u.id = d.id"
    )
    assert sides(union)["u"].rate == 5
    assert sides(union.replace("FROM o;", "FROM d;"))["u"].rate is None
