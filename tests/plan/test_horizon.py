"""The rule ``lateness = join`` in plans: its reach, what it refuses, what EXPLAIN says, how state has it."""

from __future__ import annotations

import pytest

from watersmeet.conditions import Horizon
from watersmeet.errors import SeveralErrors, WatersmeetError
from watersmeet.event_time import ENDED, MAX_TIME, MIN_TIME, NEVER
from watersmeet.parser.statements import parse_job
from watersmeet.plan.explain import explain
from watersmeet.plan.identity.settings import differences, settings_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.nodes.retention import horizon_limits
from watersmeet.plan.planner import plan_job

DECLARED = """
CREATE TABLE a (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 7) WITH ('connector' = 'memory');
CREATE TABLE c (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE two (k STRING, t BIGINT, u BIGINT, WATERMARK FOR t AS t - 5, WATERMARK FOR u AS u - 5)
  WITH ('connector' = 'memory');
CREATE TABLE w (k STRING, n BIGINT) WITH ('connector' = 'memory');
CREATE TABLE s (k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' MINUTE)
  WITH ('connector' = 'memory');
CREATE TABLE d (k STRING, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE SINK x WITH ('connector' = 'memory');
CREATE SINK y WITH ('connector' = 'memory');
"""
BY_JOIN = "SET lateness = 'join';"


def plan_insert_query(query: str, settings: str = BY_JOIN) -> JobPlan:
    return plan_job(parse_job(f"{settings}{DECLARED}INSERT INTO x {query};"))


def horizon_of(on: str, kind: str = "") -> Horizon | None:
    return join_of(plan_insert_query(f"SELECT a.n, b.n AS m FROM a {kind} JOIN b ON {on}")).horizon


def join_of(plan: JobPlan) -> JoinPlan:
    (join,) = plan.queries[0].every(JoinPlan)
    return join


@pytest.mark.parametrize(
    ("on", "reach"),
    [
        ("b.t BETWEEN a.t AND a.t + 9", 9),
        ("b.t BETWEEN a.t - 9 AND a.t", 9),
        ("b.t BETWEEN a.t - 4 AND a.t + 9", 9),
        ("b.t BETWEEN a.t - 9 AND a.t + 4", 9),
        ("b.t BETWEEN a.t - 9 AND a.t - 4", 9),
        ("b.t BETWEEN a.t + 4 AND a.t + 9", 9),
        ("a.t BETWEEN b.t - 9 AND b.t - 4", 9),
        ("a.t = b.t", 0),
        ("a.t = b.t + 3", 3),
        ("b.t > a.t - 9 AND b.t < a.t + 4", 9),  # as `<=` does, as for retention
        ("b.t BETWEEN a.t - 9 AND a.t + 9 AND b.t >= a.t - 2 AND b.t <= a.t + 3", 3),
        (f"b.t BETWEEN a.t - {MAX_TIME} AND a.t", MAX_TIME),
    ],
)
@pytest.mark.parametrize("kind", ["", "LEFT", "RIGHT", "FULL"])
def test_the_reach_is_the_greater_end(on: str, reach: int, kind: str) -> None:
    for condition in (on, f"a.k = b.k AND {on} AND a.n <> b.n"):
        assert horizon_of(condition, kind) == Horizon(("a.t", "b.t"), reach)


def test_of_timestamps_it_is_in_microseconds() -> None:
    on = "d.t BETWEEN s.t - INTERVAL '1' HOUR AND s.t + INTERVAL '5' MINUTES"
    assert join_of(plan_insert_query(f"SELECT s.k FROM s JOIN d ON {on}")).horizon == Horizon(
        ("s.t", "d.t"), 3_600_000_000
    )


def test_without_the_setting_there_is_none() -> None:
    for settings in ("", "SET lateness = 'column';"):
        assert join_of(plan_insert_query("SELECT a.n FROM a JOIN b ON a.t = b.t", settings)).horizon is None


def test_one_time_for_both_sides() -> None:
    horizon = Horizon(("a.t", "b.t"), 9)

    def compute_distinct_limits(left: float, right: float) -> set[float]:
        limits = horizon_limits(horizon, {"a.t": left, "b.t": right})
        assert set(limits) == {"a.t", "b.t"}
        return set(limits.values())

    assert compute_distinct_limits(100, 50) == compute_distinct_limits(50, 100) == {41}
    assert compute_distinct_limits(NEVER, 50) == compute_distinct_limits(50, NEVER) == {NEVER}
    assert compute_distinct_limits(ENDED, 50) == {41}
    assert compute_distinct_limits(ENDED, ENDED) == {ENDED}
    assert (
        compute_distinct_limits(MIN_TIME + 8, 0) == compute_distinct_limits(MIN_TIME, 0) == {MIN_TIME}
    )  # nothing is less than that
    assert horizon_limits(Horizon(("a.t", "b.t"), 2**63), {"a.t": MAX_TIME, "b.t": MAX_TIME}) == {
        "a.t": -1,
        "b.t": -1,
    }
    assert horizon_limits(horizon, {"a.t": 4}) == {"a.t": NEVER, "b.t": NEVER}


BAND = "b.t BETWEEN a.t AND a.t + 9"


@pytest.mark.parametrize("kind", ["", "LEFT", "LEFT SEMI", "LEFT ANTI"])
def test_what_it_puts_out_may_meet_tables(kind: str) -> None:
    query = f"SELECT a.n FROM a LEFT JOIN b ON {BAND} {kind} JOIN w FOR SYSTEM_TIME AS OF now() ON w.k = b.k"
    assert join_of(plan_insert_query(query)).horizon == Horizon(("a.t", "b.t"), 9)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT a.n FROM a WHERE a.n > 0", "has no join"),
        (f"SELECT a.n FROM a JOIN b ON {BAND} JOIN c ON c.t = a.t", "has 2 joins"),
        (f"SELECT a.n FROM a LEFT SEMI JOIN b ON {BAND}", "a join that is LEFT SEMI"),
        (f"SELECT a.n FROM a LEFT ANTI JOIN b ON {BAND}", "a join that is LEFT ANTI"),
        ("SELECT a.n FROM a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k", "a join that is ASOF"),
        (
            "SELECT a.n FROM a JOIN w FOR SYSTEM_TIME AS OF PROCTIME() ON w.k = a.k",
            "before the join of the streams",
        ),
        (
            f"SELECT a.n FROM a JOIN w FOR SYSTEM_TIME AS OF PROCTIME() ON w.k = a.k JOIN b ON {BAND}",
            "before the join of the streams",
        ),
        (f"SELECT a.n FROM a LEFT JOIN b ON {BAND} EMIT CHANGES", "retracted"),
        ("SELECT a.k FROM a JOIN two ON two.t = a.t AND two.u = a.t", "two by the event times two.t, two.u"),
        (
            "SELECT a.k FROM (SELECT window_end FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), 9))"
            " GROUP BY window_end) v JOIN a ON v.window_end = a.t",
            "joins derived rows (v)",
        ),
        (
            f"SELECT u.t FROM (SELECT a.t FROM a JOIN b ON {BAND} UNION ALL SELECT c.t FROM c) u",
            "reads a stream outside of its join (u)",
        ),
        (
            "SELECT window_end, count(*) AS m FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), 9)) GROUP BY 1",
            "has no join",
        ),
    ],
)
def test_what_the_rule_does_not_define_is_refused(query: str, why: str) -> None:
    with pytest.raises(WatersmeetError) as raised:
        plan_insert_query(query)
    assert why in raised.value.message
    assert '"x"' in raised.value.message
    assert raised.value.code == "join-lateness"
    assert raised.value.hint


def test_join_lateness_errors_cover_every_insert() -> None:
    text = f"{BY_JOIN}{DECLARED}INSERT INTO x SELECT a.n FROM a; INSERT INTO y SELECT b.n FROM b;"
    with pytest.raises(SeveralErrors) as raised:
        plan_job(parse_job(text))
    assert [error.code for error in raised.value.errors] == ["join-lateness"] * 2


def test_join_lateness_rejects_a_watermark_rule() -> None:
    with pytest.raises(WatersmeetError, match="both rules define the output watermark"):
        plan_insert_query(f"SELECT a.n FROM a JOIN b ON {BAND}", f"{BY_JOIN}SET watermark_rule = limit;")


@pytest.mark.parametrize("on", ["b.t >= a.t", "b.t <= a.t + 9", "a.k = b.k"])
def test_a_distance_that_is_open_is_refused_as_ever(on: str) -> None:
    with pytest.raises(WatersmeetError) as raised:
        horizon_of(on)
    assert "unbounded-state" in str(raised.value) or raised.value.code == "unbounded-state"


@pytest.mark.parametrize("value", ["joins", "'late'", "true", "1"])
def test_another_word_is_refused(value: str) -> None:
    with pytest.raises(WatersmeetError) as raised:
        plan_insert_query(f"SELECT a.n FROM a JOIN b ON {BAND}", f"SET lateness = {value};")
    assert raised.value.code == "bad-setting"
    assert "'column' or 'join'" in (raised.value.hint or "")


WINDOWED = (
    f"SELECT window_end, count(*) AS n FROM TABLE(TUMBLE((SELECT a.t AS t, b.n FROM a LEFT JOIN b ON {BAND}),"
    " DESCRIPTOR(t), 10)) GROUP BY window_end"
)


def test_windows_over_the_join_are_planned() -> None:
    assert join_of(plan_insert_query(WINDOWED)).horizon == Horizon(("a.t", "b.t"), 9)


def test_horizon_ignores_other_conditions_and_union_branches() -> None:
    union = "(SELECT k, t, n FROM b UNION ALL SELECT k, t, n FROM c WHERE n > 0) b"
    query = f"SELECT a.n FROM a JOIN {union} ON a.k = b.k AND a.n > 3 AND b.n < a.n AND {BAND}"
    assert join_of(plan_insert_query(query)).horizon == Horizon(("a.t", "b.t"), 9)


def test_explain_says_the_rule_and_its_figures() -> None:
    text = explain(
        plan_insert_query(f"SELECT a.n FROM a LEFT JOIN b ON {BAND}", f"{BY_JOIN}SET allowed_lateness = 20;")
    )
    assert "Lateness (SET lateness = join)" in text
    assert "W is the least watermark of a.t and b.t, the reach 9" in text
    assert "W - 29 is the horizon: W less the reach and allowed lateness 20" in text
    assert "may depend on the order of arrival" in text
    assert "a: until the least watermark of a.t and b.t is above a.t + 29; then emitted with NULLs" in text
    assert "b: until the least watermark of a.t and b.t is above b.t + 29; then dropped" in text
    assert "Eviction bounds" not in text
    assert "follows the join's horizon, 9 behind the least watermark of its two sides (36)" in text
    assert "lateness by the join, output mode append" in text


def test_forecast_uses_the_slowest_watermark() -> None:
    on = "d.t BETWEEN s.t AND s.t + INTERVAL '1' HOUR"
    text = explain(plan_insert_query(f"SELECT s.k FROM s JOIN d ON {on}"))
    for side in ("s", "d"):
        assert f"{side}: a row for at most 1 h 1 min (1 h by the reach of the join, 1 min lag of s.t)" in text


def test_state_is_known_by_the_rule() -> None:
    query = f"SELECT a.n FROM a LEFT JOIN b ON {BAND}"
    prints = [
        plan_insert_query(query, settings).queries[0].fingerprint
        for settings in ("", "SET lateness = column;", BY_JOIN, f"{BY_JOIN}SET allowed_lateness = 3;")
    ]
    assert prints[0] == prints[1] != prints[2] == prints[3]


def test_an_interrupted_tick_is_known_by_it_and_by_what_it_was_without() -> None:
    query = f"SELECT a.n FROM a LEFT JOIN b ON {BAND}"
    before, now = (settings_of(plan_insert_query(query, settings)) for settings in ("", BY_JOIN))
    assert "lateness" not in before
    told = differences(before, now)
    assert any(line.startswith("lateness: not set before, join now") for line in told)
    assert any(line.startswith("joins and inputs of") for line in told)


def test_queries_over_one_stream_keep_their_rows_apart() -> None:
    """What is late differs from join to join, so no runs are shared."""
    text = f"{BY_JOIN}{DECLARED}INSERT INTO x SELECT a.n FROM a JOIN b ON a.k = b.k AND {BAND};"
    text += "INSERT INTO y SELECT a.n FROM a JOIN c ON a.k = c.k AND c.t BETWEEN a.t AND a.t + 50;"
    plan = plan_job(parse_job(text))
    assert [side.sharers for query in plan.queries for side in query.sides] == [()] * 4
    shared = plan_job(parse_job(text.removeprefix(BY_JOIN)))
    assert any(side.sharers for query in shared.queries for side in query.sides)
