"""Whether limits hold, by the rates that are known: in EXPLAIN, as warnings, and against a run."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from watersmeet.errors import EngineError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.explain import explain
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

DECLARED = """
CREATE TABLE o (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)
  WITH ('connector' = 'memory', 'rows_per_second' = '1000'{o});
CREATE TABLE d (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' MINUTE)
  WITH ('connector' = 'memory', 'rows_per_second' = '1000');
CREATE TABLE u (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' MINUTE) WITH ('connector' = 'memory');
CREATE TABLE n (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE SINK x WITH ('connector' = 'memory');
CREATE SINK y WITH ('connector' = 'memory');
"""  # noqa: E501
JOIN = (
    "SELECT o.id AS o, d.id FROM o JOIN {} d ON o.id = d.id AND d.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR;"
)
ONE = "INSERT INTO x " + JOIN.format("d")


def plan_job_with_settings(settings, queries=ONE, o=""):
    return plan_job(parse_job(settings + DECLARED.format(o=o and f", {o}") + queries))


def section(plan, title):
    found, inside = [], False
    for line in explain(plan).splitlines():
        if not line.startswith(" "):
            inside = line == title
        elif inside:
            found.append(line.strip())
    return found


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("max_rows = 4000000", "max_rows = 4,000,000: forecast 3,670,000 rows, it holds"),
        # both sides grow for ten seconds, then o alone: 990 s · 1,000 rows and 10,000 of d
        (
            "max_rows = 1000000",
            "max_rows = 1,000,000: forecast 3,670,000 rows: the job would stop after about 16 min 30 s",
        ),
        ("max_rows = 4000", "max_rows = 4,000: forecast 3,670,000 rows: the job would stop after about 2 s"),
        ("max_bytes = '1 GB'", "max_bytes = 1.1 GB: forecast 102.8 MB, it holds"),
        (
            "max_bytes = 560000",  # 28 bytes a row
            "max_bytes = 560.0 KB: forecast 102.8 MB: the job would stop after about 10 s",
        ),
    ],
)
def test_limits_of_joins(setting, told):
    plan = plan_job_with_settings(f"SET {setting};")
    assert section(plan, "Limits") == [told]
    warnings = [told.replace("forecast", "forecast by declared rates")] if "stop" in told else []
    assert list(plan.queries[0].warnings) == warnings
    assert section(plan, "Limits of sources and of the job") == []


@pytest.mark.parametrize("hours", ["'1' HOUR", "'2' MINUTE"])
@pytest.mark.parametrize(
    ("limit", "amount"),
    [("max_job_rows = 4000000", "3,670,000 rows"), ("max_job_bytes = '1 GB'", "102.8 MB")],
)
def test_limits_of_the_job_count_rows_once(hours, limit, amount):
    """Those of joins that are run once for both queries, and those in files that both have."""
    other = JOIN.format("d").replace("o.id AS o, d.id", "d.id AS e").replace("'1' HOUR", hours)
    plan = plan_job_with_settings(f"SET {limit};", ONE + "INSERT INTO y " + other)
    assert bool(plan.queries[1].taken) == (hours == "'1' HOUR")
    (told,) = section(plan, "Limits of sources and of the job")
    assert f"forecast {amount}, it holds" in told


def test_limits_of_a_source_are_of_its_rows_alone():
    plan = plan_job_with_settings("", o="'max_rows' = '1800000'")
    assert section(plan, "Limits of sources and of the job") == [
        "'max_rows' of \"o\" = 1,800,000: forecast 3,660,000 rows: the job would stop after about 30 min"
    ]
    assert len(plan.queries[0].warnings) == 1


def test_rates_that_nobody_knows():
    unknown = "INSERT INTO x " + JOIN.format("u")
    plan = plan_job_with_settings("SET max_rows = 4000000;", unknown)
    assert section(plan, "Limits") == [
        "max_rows = 4,000,000: no forecast, for nothing says how many rows of d come"
    ]
    assert not plan.queries[0].warnings
    plan = plan_job_with_settings("SET max_rows = 1000;", unknown)
    (told,) = section(plan, "Limits")
    assert told.startswith(
        "max_rows = 1,000: forecast 3,660,000 rows and the retained rows of d: the job would stop"
    )


def test_integer_times_have_no_forecast():
    plan = plan_job_with_settings(
        "SET max_rows = 4;",
        "INSERT INTO x SELECT a.id AS i, b.id FROM n a JOIN n b ON a.t BETWEEN b.t AND b.t + 5;",
    )
    assert section(plan, "Limits") == [
        "max_rows = 4: no forecast, for nothing says how many rows of a and b come"
    ]


def test_run_stops_at_the_forecast_time():
    """An order and a delivery a second; the limit is come to after so much of event time."""
    rates = DECLARED.replace("'1000'", "'1'").format(o="")
    plan = plan_job(parse_job("SET max_rows = 120;" + rates + ONE))
    (told,) = section(plan, "Limits")
    assert told.endswith("the job would stop after about 1 min 50 s")  # 110 s and the last 10 of d
    job, start = LocalJob(plan, MemoryStore()), datetime(2024, 1, 1)
    second = 0

    def run():
        nonlocal second
        for second in range(2000):
            row = {"id": second, "t": (start + timedelta(seconds=second)).isoformat()}
            job.tick({name: [(row, 1)] for name in ("o", "d")})

    with pytest.raises(EngineError) as raised:
        run()
    assert raised.value.code == "max-rows"
    assert abs(second - 110) <= 2
