"""SET time_zone on Spark: keys, literals, files without zones and output as text, over DST changes."""

from dataclasses import replace

import pytest

from watersmeet.errors import EngineError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

SQL = """
SET time_zone = '{zone}';
CREATE MAPPING raw (n INT, t TIMESTAMP)
  TYPE File OPTIONS ('path' = '{path}/raw', 'format' = 'csv', 'header' = 'true');
CREATE VIEW a AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE raw, DESCRIPTOR(t), INTERVAL '0' SECONDS));
CREATE VIEW b AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE raw, DESCRIPTOR(t), INTERVAL '0' SECONDS));
CREATE MAPPING out TYPE Memory;
INSERT INTO out SELECT a.n, CAST(a.t AS STRING) AS text, hour(a.t) AS h, unix_micros(a.t) AS us,
    CAST(a.t AS DATE) AS day, a.t >= TIMESTAMP '2024-03-10 03:00:00' AS later, count_of_day.n AS first
  FROM a JOIN b AS count_of_day
  ON date_trunc('DAY', a.t) = date_trunc('DAY', count_of_day.t) AND a.t BETWEEN count_of_day.t AND
    count_of_day.t + INTERVAL '23:45:00' HOUR TO SECOND AND hour(count_of_day.t) = 0;
"""
# Clocks go forward on 2024-03-10 02:00 (the hour is missing), back on 2024-11-03 02:00 (01:xx comes twice).
ROWS = """n,t
1,2024-03-10 00:30:00
2,2024-03-10 02:30:00
3,2024-03-10 23:59:59
4,2024-11-03 00:10:00
5,2024-11-03 01:30:00
6,2024-11-03T06:30:00Z
"""


@pytest.mark.parametrize("zone", ["America/New_York", pytest.param("UTC", marks=pytest.mark.full)])
def test_everything_that_spark_computes_follows_the_zone(spark, tmp_path, zone):
    from watersmeet.runtime.spark.job.run import build_outputs, run
    from watersmeet.runtime.spark.job.settings import RunSettings

    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "one.csv").write_text(ROWS)
    MemorySink.clear()
    job = parse_job(SQL.format(path=tmp_path, zone=zone))
    plan = plan_job(job)
    settings = RunSettings(str(tmp_path / "c"), partitions=2, until_caught_up=True)
    run(spark, plan, settings, build_outputs(job, plan, settings))
    found = {row["n"]: (row["text"], row["h"], row["first"]) for row in MemorySink.rows("out")}
    if zone == "UTC":
        assert found == {
            1: ("2024-03-10 00:30:00", 0, 1),
            2: ("2024-03-10 02:30:00", 2, 1),
            3: ("2024-03-10 23:59:59", 23, 1),
            4: ("2024-11-03 00:10:00", 0, 4),
            5: ("2024-11-03 01:30:00", 1, 4),
            6: ("2024-11-03 06:30:00", 6, 4),
        }
        return
    assert found == {
        1: ("2024-03-10 00:30:00", 0, 1),
        2: ("2024-03-10 03:30:00", 3, 1),  # an hour that is missing is moved by the gap's length
        3: ("2024-03-10 23:59:59", 23, 1),
        4: ("2024-11-03 00:10:00", 0, 4),
        5: ("2024-11-03 01:30:00", 1, 4),  # the earlier of the two
        6: ("2024-11-03 01:30:00", 1, 4),  # the later one
    }
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"


def test_a_setting_of_spark_that_rows_rest_on_is_refused_before_it_starts():
    from watersmeet.runtime.spark.job.session import build_session_settings

    with pytest.raises(EngineError, match="SET time_zone"):
        build_session_settings(conf={"spark.sql.session.timeZone": "Asia/Tokyo"})
    own = build_session_settings(conf={"spark.sql.session.timeZone": "Asia/Tokyo"}, time_zone="Asia/Tokyo")
    assert own["spark.sql.session.timeZone"] == "Asia/Tokyo"


def test_rules_of_a_zone_are_those_of_the_jvm(spark):
    from watersmeet.runtime.spark.job.run import check_zone, load_java_rules, load_python_rules

    for name in (
        "America/New_York",
        "Asia/Kolkata",
        "Australia/Lord_Howe",
        "Europe/London",
        "Africa/Casablanca",
    ):
        assert check_zone(spark, name) is None
        assert load_java_rules(spark, name) == load_python_rules(name)
    assert len(load_java_rules(spark, "America/New_York")) > 300
    assert check_zone(spark, "UTC") is None
    assert check_zone(spark, "+05:30") is None


@pytest.mark.parametrize(("year", "refused"), [(2024, True), (2090, True), (1971, True), (1930, False)])
def test_rules_that_differ_from_those_of_the_jvm_are_refused_or_told(spark, monkeypatch, year, refused):
    """One change of the clocks is an hour later than Java has it."""
    from datetime import UTC, datetime

    from watersmeet.runtime.spark.job import run
    from watersmeet.zones import SECOND_US, zone

    own = zone("America/New_York")
    starts = own.starts.copy()
    starts[starts.searchsorted(datetime(year, 1, 1, tzinfo=UTC).timestamp() * SECOND_US)] += 3_600 * SECOND_US
    monkeypatch.setattr(run, "zone", lambda _: replace(own, starts=starts))
    if refused:
        with pytest.raises(EngineError, match=f"the time zone America/New_York .*{year}-") as caught:
            run.check_zone(spark, "America/New_York")
        assert caught.value.code == "time-zone-rules"
    else:
        said = run.check_zone(spark, "America/New_York")
        assert said is not None
        assert "before 1970" in said
        assert str(year) in said


def test_a_zone_that_java_does_not_know_is_refused(spark):
    from watersmeet.runtime.spark.job.run import load_java_rules

    with pytest.raises(EngineError, match="Java does not know the time zone Mars/Olympus"):
        load_java_rules(spark, "Mars/Olympus")
