"""The grammar of intervals: what is read, what is refused, and that every place reads the same."""

from __future__ import annotations

import pytest

from watersmeet.errors import SpecError, SqlError
from watersmeet.parser.statements import parse_job
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.text.tokens import parse_tokens, statements_of
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.types.intervals import interval_us, is_interval, trigger_ms

S = 1_000_000
H = 3600 * S


def read(sql):
    text = Text(sql)
    return parse_tokens(text, statements_of(text)[0])


@pytest.mark.parametrize(
    ("sql", "us", "spark"),
    [
        ("INTERVAL '1' HOUR", H, "INTERVAL '1' HOUR"),
        ("INTERVAL 10 SECONDS", 10 * S, "INTERVAL '10' SECONDS"),
        ("INTERVAL '-5' MINUTE", -300 * S, "INTERVAL '-5' MINUTE"),
        ("INTERVAL - '5' MINUTE", -300 * S, "INTERVAL '-5' MINUTE"),
        ("INTERVAL '1.5' SECOND", 1_500_000, "INTERVAL '1.5' SECOND"),
        ("INTERVAL '-.5 seconds'", -500_000, "INTERVAL '-0.5' SECONDS"),
        ("INTERVAL '- 5 seconds'", -5 * S, "INTERVAL '-5' SECONDS"),
        ("INTERVAL 10 SEC", 10 * S, "INTERVAL '10' SECOND"),
        ("INTERVAL '10s'", 10 * S, "INTERVAL '10' SECOND"),
        ("INTERVAL '500ms'", 500_000, "INTERVAL '500' MILLISECOND"),
        ("INTERVAL 2 WEEKS", 14 * 24 * H, "INTERVAL '2' WEEKS"),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", 26 * H + 184_500_000, None),
        ("INTERVAL -'1 01' DAY TO HOUR", -25 * H, "INTERVAL '-1 01' DAY TO HOUR"),
        ("INTERVAL '1:30' HOUR TO MINUTE", H + 1800 * S, None),
        ("INTERVAL '2:03.25' MINUTE TO SECOND", 123_250_000, None),
        ("INTERVAL '01:00:00'", H, "INTERVAL '01:00:00' HOUR TO SECOND"),
        ("INTERVAL '-1 02:03'", -26 * H - 180 * S, "INTERVAL '-1 02:03' DAY TO MINUTE"),
        ("INTERVAL '30 minutes 5 sec'", 1805 * S, "INTERVAL '30 minutes 5 second'"),
        ("INTERVAL 1 DAY 2 HOURS", 26 * H, "INTERVAL '1 day 2 hours'"),
        ("INTERVAL 1 DAY -2 HOURS", 22 * H, "INTERVAL '1 day -2 hours'"),
        ("2 * INTERVAL '5' SECOND", 10 * S, "2 * INTERVAL '5' SECOND"),
        ("INTERVAL '1' MONTH", None, "INTERVAL '1' MONTH"),
        ("INTERVAL '1-2' YEAR TO MONTH", None, "INTERVAL '1-2' YEAR TO MONTH"),
    ],
)
def test_what_is_read(sql, us, spark):
    found = read(sql)
    assert is_interval(found)
    assert (interval_us(found), found.sql("spark")) == (us, spark or sql)


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("INTERVAL '1.0000001' SECOND", "more digits than microseconds"),
        ("INTERVAL '1 02:03:04.0000001' DAY TO SECOND", "more digits than microseconds"),
        ("INTERVAL '1.5' MINUTE", "allows fractions only in SECONDS"),
        ("INTERVAL '10' NANOSECONDS", '"NANOSECONDS" is not a unit'),
        ("INTERVAL '1 month 2 days'", "mixes months and days"),
        ("INTERVAL '1 24:00:00' DAY TO SECOND", "hours within DAY TO SECOND end at 23"),
        ("INTERVAL '106751992' DAYS", "more than 106751991 days"),
        ("INTERVAL 'PT10S'", "not an interval"),
        ("INTERVAL '5'", "not an interval"),
        ("INTERVAL 5", "needs a unit"),
        ("INTERVAL '5' SECOND TO MINUTE", "not an interval SECOND TO MINUTE"),
        ("INTERVAL x SECONDS", "must be a constant"),
        ("INTERVAL (5) SECONDS", "must be a constant"),
    ],
)
def test_what_is_refused(sql, named):
    with pytest.raises(SqlError, match=named) as caught:
        read(f"a.t > b.t - {sql}")
    assert caught.value.location is not None
    assert caught.value.location.column == 13


def test_a_column_may_be_called_interval():
    found = read("SELECT interval, interval - 5 AS a, t.interval AS b FROM t").sql("spark")
    assert found == "SELECT interval, interval - 5 AS a, t.interval AS b FROM t"


def test_every_place_reads_the_same():
    """Lags, bands, windows, options and settings."""
    for text, us in (("'01:00:00'", H), ("'30 minutes 5 sec'", 1805 * S), ("10 SEC", 10 * S)):
        plain = text.strip("'")
        job = parse_job(f"""
            SET trigger = INTERVAL {text};
            SET allowed_lateness = INTERVAL {text};
            CREATE TABLE a (t TIMESTAMP, k INT, WATERMARK FOR t AS t - INTERVAL {text})
              WITH ('connector' = 'memory', 'idle_timeout' = '{plain}', 'max_ahead' = '{plain}');
            CREATE TABLE b (t TIMESTAMP, k INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
            SELECT window_end, k FROM (
              SELECT w.window_end, w.k FROM TABLE(TUMBLE(TABLE (
                SELECT a.t, a.k FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL {text}
              ), DESCRIPTOR(t), INTERVAL {text})) w GROUP BY w.window_end, w.k) x""")
        plan = plan_job(job)
        (source, _) = plan.sources
        query = plan.queries[0]
        band = query.nodes[0].bands[0]
        assert query.nodes[1].size == us
        assert (source.event_times[0].lag, source.idle_timeout_us, source.max_ahead_us) == (us, us, us)
        assert {abs(band.lower), abs(band.upper)} == {0, us}
        assert query.options.allowed_lateness == us
        assert RunSettings("c", trigger=job.run["trigger"]).trigger_ms * 1000 == us


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("500 milliseconds", 500), ("0", 0), ("0 seconds", 0), ("1 minute", 60_000)],
)
def test_triggers(text, ms):
    job = parse_job(
        f"SET trigger = '{text}'; CREATE TABLE a (t INT) WITH ('connector' = 'memory'); SELECT t FROM a"
    )
    assert RunSettings("c", trigger=job.run["trigger"]).trigger_ms == ms == trigger_ms(text)


@pytest.mark.parametrize("text", ["now", "-1 second", "1 month", "5", "500 microseconds", ""])
def test_triggers_that_are_none(text):
    with pytest.raises(SqlError, match="trigger"):
        parse_job(f"SET trigger = '{text}'")
    with pytest.raises(SpecError, match="trigger"):
        RunSettings("c", trigger=text)


@pytest.mark.parametrize("step", ["2 * INTERVAL '1' MINUTE", "minute(x.t) * INTERVAL '1' MINUTE"])
def test_a_number_of_times_an_interval_is_one(step):
    job = parse_job(
        f"""CREATE TABLE x (k INT, t TIMESTAMP, WATERMARK FOR t AS t)
            WITH ('connector' = 'file', 'path' = 'in', 'format' = 'json');
            CREATE TABLE out (k INT) WITH ('connector' = 'console');
            INSERT INTO out SELECT x.k FROM x JOIN x y
                ON x.t = y.t AND {step} + y.t > x.t AND x.t - {step} < y.t"""
    )
    assert job.inserts
