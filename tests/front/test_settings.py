"""What may be set, and what may not."""

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.parser.statements import parse_job

JOB = "CREATE TABLE l (t BIGINT, WATERMARK FOR t AS t) WITH ('connector' = 'memory'); {} SELECT * FROM l"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("spark.sql.session.timeZone", "UTC", "SET time_zone"),
        ("spark.sql.session.timezone", "Asia/Tokyo", "SET time_zone"),
        ("spark.sql.ansi.enabled", "false", "ANSI"),
        ("spark.sql.functionResolution.sessionOrder", "first", "your functions"),
        ("spark.sql.caseSensitive", "true", "case"),
        ("spark.sql.storeAssignmentPolicy", "LEGACY", "ANSI"),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ", "types"),
        ("spark.sql.decimalOperations.allowPrecisionLoss", "false", "types"),
        ("spark.sql.mapKeyDedupPolicy", "LAST_WIN", "ANSI"),
        ("spark.sql.legacy.timeParserPolicy", "LEGACY", "legacy"),
        ("spark.sql.legacy.typeCoercion.datetimeToString.enabled", "true", "legacy"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY", "1582"),
    ],
)
@pytest.mark.parametrize("by_option", [False, True])
def test_what_rows_rest_on_is_not_set(name: str, value: str, says: str, by_option: bool) -> None:
    written = "" if by_option else f"SET {name} = {value};"
    with pytest.raises(WatersmeetError, match=says) as caught:
        parse_job(JOB.format(written), overrides={name: value} if by_option else {})
    assert caught.value.code == "fixed-setting"


def test_the_value_that_it_has_anyway_is_no_override() -> None:
    assert parse_job(JOB.format("SET spark.sql.ansi.enabled = true;")).settings


@pytest.mark.parametrize(
    ("written", "zone"),
    [
        ("UTC", "UTC"),
        ("Z", "UTC"),
        ("+0", "UTC"),
        ("America/New_York", "America/New_York"),
        ("+05:30", "+05:30"),
        ("UTC-3", "-03:00"),
        ("+18:00", "+18:00"),
    ],
)
def test_time_zones(written: str, zone: str) -> None:
    assert parse_job(JOB.format(f"SET time_zone = '{written}';")).options.time_zone == zone


@pytest.mark.parametrize("written", ["EST", "IST", "CET", "america/new_york", "+18:01", "+5:60", "", "5"])
def test_what_is_no_time_zone_for_both_is_refused(written: str) -> None:
    with pytest.raises(WatersmeetError) as caught:
        parse_job(JOB.format(f"SET time_zone = '{written}';"))
    assert caught.value.code == "bad-setting"
    assert caught.value.hint


def test_the_zone_is_part_of_the_fingerprint() -> None:
    from watersmeet.plan.planner import plan_job

    prints = {
        plan_job(parse_job(JOB.format(f"SET time_zone = '{zone}';"))).queries[0].fingerprint
        for zone in ("UTC", "Z", "Asia/Kolkata", "+05:30")
    }
    assert len(prints) == 3


@pytest.mark.parametrize("name", ["file_reader", "small_ticks"])
def test_who_does_something_is_one_of_a_few_words(name: str) -> None:
    assert parse_job(JOB.format(f"SET {name} = 'Spark';")).run[name] == "spark"
    with pytest.raises(WatersmeetError, match=name) as caught:
        parse_job(JOB.format(f"SET {name} = 'driver';"))
    assert caught.value.code == "bad-setting"


@pytest.mark.parametrize("written", ["9" * 5000, "'²'", "'inf'", "'1e9'", "'-0.5'"])
@pytest.mark.parametrize(
    "name",
    ["max_rows", "max_bytes", "max_job_rows", "max_drift", "partitions", "keep_ticks"],
)
def test_what_is_no_amount_is_refused(name: str, written: str) -> None:
    with pytest.raises(WatersmeetError) as caught:
        parse_job(JOB.format(f"SET {name} = {written};"))
    assert caught.value.code == "bad-setting"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "use a directory on this machine"),
        (" ", "use a directory on this machine"),
        ("s3://bucket/state", "set state_store to 's3://…'"),
        ("hdfs://names/state", "state_store"),
        ("dbfs:/state", "state_store"),
        ("postgresql://host/db", "state_store"),
    ],
)
def test_a_checkpoint_is_a_directory(value: str, says: str) -> None:
    """A directory named s3: was made."""
    with pytest.raises(WatersmeetError) as caught:
        parse_job(JOB.format(f"SET checkpoint = '{value}';"))
    assert caught.value.code == "bad-setting"
    assert says in str(caught.value.hint)


def test_a_checkpoint_may_be_the_url_of_a_directory() -> None:
    for written, place in (("file:///a/b%20c", "/a/b c"), ("/a/b%20c", "/a/b%20c"), ("a/b#c?d", "a/b#c?d")):
        assert parse_job(JOB.format(f"SET checkpoint = '{written}';")).run["checkpoint"] == place
