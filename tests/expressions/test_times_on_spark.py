# ruff: noqa: E501, RUF001
"""Dates, times, intervals and patterns: what tasks compute is what Spark computes."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal

import pytest

from tests.expressions.checking import ZONE_PARAMETERS, check, compiled_text, moments, table_of

TYPES = {
    "i": "INT", "h": "SMALLINT", "b": "BIGINT", "f": "FLOAT", "x": "DOUBLE", "m": "DECIMAL(10,2)", "w": "DECIMAL(18,8)",
    "q": "DECIMAL(16,6)", "d": "DATE", "ts": "TIMESTAMP", "n": "TIMESTAMP_NTZ", "s": "STRING", "y": "INT", "z": "STRING",
}  # fmt: skip
TIMES = ("d", "ts", "n")
FIELDS = (
    "YEAR", "YEAROFWEEK", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFWEEK", "DAYOFWEEK_ISO", "DOY", "HOUR", "MINUTE", "SECOND",
)  # fmt: skip
UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
BIG = 2**63 - 1

EXPRESSIONS = [
    # parts
    *(f"{part}({v}1)" for v in TIMES for part in (
        "year", "month", "day", "dayofmonth", "quarter", "dayofyear", "weekofyear", "dayofweek", "weekday",
        "hour", "minute", "second", "dayname", "monthname", "last_day")),
    *(f"extract({field} FROM {v}1)" for v in TIMES for field in FIELDS),
    "date_part('YRS', ts1)", "datepart('sec', n1)", "date_part('DOW', d1)", "datepart('w', d1)", "date_part('mons', n1)",
    # moves
    "add_months(d1, i1)", "add_months(ts1, h1)", "add_months(d1, -1)", "add_months(n1, 14)", "add_months(d1, b1)",
    "date_add(d1, i1)", "date_sub(d1, h1)", "dateadd(n1, h1)", "d1 + i1", "d1 - i1", "i1 + d1",
    *(f"next_day({v}1, '{day}')" for v in TIMES for day in ("MO", "tue", "Sunday")),
    *(f"timestampadd({unit}, h1, {v}1)" for unit in UNITS for v in ("ts", "n")), *(f"timestampadd({unit}, y1, d1)" for unit in ("HOUR", "DAY", "MONTH")),
    "timestampadd(MONTH, i1, ts1)", "timestampadd(YEAR, b1, n1)", "timestampadd(MICROSECOND, b1, ts1)", "timestampadd(DAY, b1, ts1)",
    "timestampadd(DAYOFYEAR, 1, ts1)", "dateadd(HOUR, 30, ts1)", "date_add(DAY, 1, d1)",
    *(f"{v}1 {sign} INTERVAL {amount}" for v in TIMES for sign in "+-" for amount in (
        "'1' SECOND", "'24' HOUR", "'1' DAY", "'-1' DAY", "'1' MONTH", "'-13' MONTH", "'1-2' YEAR TO MONTH", "'1 12' DAY TO HOUR", "'100' YEAR",
        "'1' WEEK", "'2 years 1 month'", "'1 day 0 hours'")),
    "INTERVAL '1' MONTH + ts1", "INTERVAL '1' DAY + d1", "d1 + (INTERVAL '1' DAY + INTERVAL '2' DAY)", "d1 - (-INTERVAL '3' DAY)",
    "d1 + INTERVAL '1' DAY + INTERVAL '1' HOUR", "ts1 + INTERVAL '1' DAY * h1", "d1 + INTERVAL '1' MONTH * y1", "d1 + INTERVAL '1' DAY * h1",
    "n1 - INTERVAL '1' HOUR * h1", "d1 + (d1 - d2)", "d1 + (ts1 - ts2)", "ts1 + (ts1 - ts2)", "ts1 + INTERVAL '1' MONTH * i1", "d1 + INTERVAL '1' MONTH * i1",
    # differences
    *(f"{a}1 - {b}2" for a in TIMES for b in TIMES), *(f"datediff({a}1, {b}2)" for a in TIMES for b in TIMES), "date_diff(d1, ts2)",
    *(f"timestampdiff({unit}, {v}1, {v}2)" for unit in UNITS for v in TIMES), "datediff(HOUR, ts1, n2)", "date_diff(MONTH, d1, ts2)",
    "months_between(ts1, ts2)", "months_between(d1, n2)", "months_between(d1, d2, false)", "months_between(ts1, d2, true)",
    # cutting off
    *(f"trunc({v}1, '{unit}')" for v in TIMES for unit in ("week", "MM", "mon", "QUARTER", "yyyy", "YEAR")),
    *(f"date_trunc('{unit}', {v}1)" for v in TIMES for unit in (*UNITS, "DD", "MM", "YY")),
    *(f"time_bucket(INTERVAL {size}, {v}1)" for v in ("ts", "n") for size in ("'7' HOUR", "'1' DAY", "'36' HOUR", "'9' DAY", "'1' MONTH", "'5' MONTH")),
    "time_bucket(INTERVAL '7' DAY, ts1, TIMESTAMP '2024-03-03 02:30:00')", "time_bucket(INTERVAL '1' MONTH, ts1, TIMESTAMP '2024-01-31 02:30:00')",
    # made
    "make_date(y1, i1, h1)", "make_date(2024, 2, h1)", "make_date(y1, 12, 31)", "make_date(i1, 1, 1)",
    *(f"{made}(y1, 3, h1, i1, 30, {seconds})" for made in ("make_timestamp", "make_timestamp_ltz", "make_timestamp_ntz", "try_make_timestamp",
        "try_make_timestamp_ltz", "try_make_timestamp_ntz") for seconds in ("q1",)), "make_timestamp(y1, 3, h1, i1, 30, 59)", "try_make_timestamp(y1, 3, h1, i1, 30, m1)",
    "make_timestamp(y1, 11, 3, 1, 30, 0, 'America/New_York')", "try_make_timestamp_ltz(y1, 3, 10, 2, 30, q1, 'Asia/Kolkata')", "make_timestamp_ltz(2024, 1, 1, 1, h1, 1, '+05:30')",
    "make_dt_interval(h1, i1, y1, q1)", "make_dt_interval(i1)", "make_dt_interval(h1, b1, 1)", "extract(MONTH FROM make_ym_interval(i1, y1))", "extract(YEAR FROM make_ym_interval(h1))",
    "make_dt_interval() = make_dt_interval(0, 0, 0, 0.5)", "make_ym_interval() < make_ym_interval(h1)",
    *(f"timestamp_seconds({v}1)" for v in "ihbfxmwq"), "timestamp_millis(b1)", "timestamp_micros(b1)", "timestamp_millis(h1)", "timestamp_micros(i1)",
    "unix_date(d1)", "date_from_unix_date(i1)", "date_from_unix_date(b1)", "unix_seconds(ts1)", "unix_millis(ts1)", "unix_micros(ts1)",
    *(f"{name}({v}1)" for v in TIMES for name in ("unix_timestamp", "to_unix_timestamp")),
    *(f"{name}({v}1)" for v in TIMES for name in ("to_date", "try_to_date", "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz", "try_to_timestamp", "date", "timestamp")),
    # casts
    *(f"CAST({v}1 AS {to})" for v in TIMES for to in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")), *(f"TRY_CAST({v}1 AS TIMESTAMP)" for v in "dihbfxmwq"),
    *(f"CAST({v}1 AS TIMESTAMP)" for v in "ihbfxmwq"), *(f"{cast}(ts1 AS {to})" for cast in ("CAST", "TRY_CAST") for to in ("BIGINT", "INT", "SMALLINT", "TINYINT", "DOUBLE")),
    "CAST(ts1 - ts2 AS BIGINT)", "CAST(ts1 - ts2 AS INT)", "CAST(d1 - d2 AS INT)", "CAST(ts1 - ts2 AS INTERVAL DAY)", "CAST(ts1 - ts2 AS INTERVAL HOUR TO MINUTE)",
    "CAST(h1 AS INTERVAL DAY)", "CAST(b1 AS INTERVAL HOUR)", "TRY_CAST(b1 AS INTERVAL SECOND)",
    # intervals
    "ts1 - ts2 > INTERVAL '1' DAY", "d1 - d2 < INTERVAL '36' HOUR", "ts1 - ts2 = d1 - d2", "-(ts1 - ts2)", "(ts1 - ts2) + INTERVAL '1' HOUR", "INTERVAL '1' DAY - (d1 - d2)",
    *(f"INTERVAL '3' DAY * {v}1" for v in "ihbfxm"), *(f"{v}1 * INTERVAL '1 02:03:04.5' DAY TO SECOND" for v in "hxq"), *(f"INTERVAL '3 00:00:00.000001' DAY TO SECOND / {v}1" for v in "ihbfx"),
    *(f"extract(MONTH FROM INTERVAL '7' MONTH * {v}1 + make_ym_interval(0))" for v in "ihbfxm"), *(f"extract(YEAR FROM INTERVAL '77' MONTH / {v}1)" for v in "ihbfx"),
    "(ts1 - ts2) / 7", "(ts1 - ts2) * 2", "(ts1 - ts2) * x1", "(d1 - d2) / x1", "INTERVAL '5' MONTH * y1 > INTERVAL '2' YEAR", "coalesce(ts1 - ts2, INTERVAL '1' HOUR)",
    *(f"extract({field} FROM ts1 - ts2)" for field in ("DAY", "HOUR", "MINUTE", "SECOND")), "extract(DAY FROM d1 - d2)", "date_part('HOURS', n1 - n2)",
    "ts1 BETWEEN ts2 - INTERVAL '1' MONTH AND ts2", "greatest(ts1 - ts2, INTERVAL '0' SECOND)", "INTERVAL '2' DAY + INTERVAL '1' HOUR < (n1 - n2)",
    # zones
    *(f"{name}({v}1, '{zone}')" for v in TIMES for name in ("from_utc_timestamp", "to_utc_timestamp") for zone in ("Asia/Kolkata", "America/New_York", "-03:30")),
    "convert_timezone('Europe/London', n1)", "convert_timezone('America/New_York', 'Australia/Lord_Howe', n1)", "convert_timezone('UTC', ts1)", "convert_timezone('UTC', d1)", "current_timezone()",
    # comparisons and choices
    *(f"{a}1 {op} {b}2" for a in TIMES for b in TIMES if a != b for op in ("=", "<", ">=", "<=>")), *(f"n1 {op} n2" for op in ("=", "<>", "<", ">=")),
    "coalesce(d1, n1)", "coalesce(n1, ts1)", "greatest(d1, n1)", "n1 IN (d1, n2)", "n1 BETWEEN d1 AND ts1", "CASE WHEN h1 > 0 THEN d1 ELSE n1 END",
    # patterns
    *(f"date_format({v}1, '{pattern}')" for v in TIMES for pattern in (
        "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSXXX", "y/M/d H:m:s.S", "yy MMM dd hh:mm a", "EEEE, d MMMM yyyy", "E EEE k kk K KK D DDD", "yyyyMMddHHmmssSSSSSS", "QQ Q yyyy", "HH", "SSSSSSSSS",
        "\\'at\\' HH \\'o\\'")),
    "from_unixtime(b1)", "from_unixtime(i1)", "from_unixtime(b1, 'yyyy/MM/dd')", "from_unixtime(h1, 'HH:mm')", "date_format(ts1, 'yyyy-MM-dd') = date_format(ts2, 'yyyy-MM-dd')",
    *(f"{name}(s1, 'yyyy-MM-dd HH:mm:ss')" for name in ("to_timestamp", "try_to_timestamp", "to_timestamp_ntz", "to_timestamp_ltz", "to_date", "try_to_date", "unix_timestamp", "to_unix_timestamp")),
    *(f"try_to_timestamp({v}1, '{pattern}')" for v in "sz" for pattern in (
        "yyyy-MM-dd", "yyyy-MM-dd\\'T\\'HH:mm:ss.SSS", "yyyyMMdd", "yyyyMMddHHmmss", "yyyy-M-d H:m:s", "dd/MM/yyyy", "yyyy", "yyyy-MM", "yyyy-MM-dd HH", "yyyy-MM-dd HH:mm", "yyyy-MM-dd HH:mm:ss.SSSSSSSSS",
        "M/d/yyyy HH:mm:ss.S")),
    "try_to_date(z1, 'yyyy-M-d')", "to_date(z1, 'yyyyMMdd')", "to_date(z1, 'yyyy-MM-dd')", "unix_timestamp(s1)", "to_timestamp(z1, 'yyyy-M-d H:m:s')", "to_timestamp_ntz(z1, 'yyyy-MM')",
]  # fmt: skip


def pools(rng: random.Random) -> dict[str, list]:
    times = moments(rng)
    nan, inf = float("nan"), float("inf")
    walls = [
        datetime(2024, 3, 10, 2, 30),
        datetime(2024, 11, 3, 1, 30),
        datetime(2024, 10, 6, 2, 15),
        datetime(2024, 4, 7, 1, 45),
    ]
    ends = [
        datetime(y, m, d, 23, 59, 59, 999999)
        for y, m, d in (
            (2024, 1, 31),
            (2024, 2, 29),
            (2023, 2, 28),
            (2020, 12, 31),
            (1582, 10, 15),
            (1899, 12, 31),
        )
    ]
    some = [
        datetime(
            rng.randint(1, 9999),
            rng.randint(1, 12),
            rng.randint(1, 28),
            rng.randint(0, 23),
            rng.randint(0, 59),
            rng.randint(0, 59),
            rng.randint(0, 999999),
        )
        for _ in range(60)
    ]
    texts = [
        "2024-03-10 02:30:00", "2024-11-03 01:30:00", "2024-02-30 00:00:00", "2024-02-29 23:59:59", "2024-13-01 00:00:00", "2024-1-2 3:4:5", " 2024-01-01 00:00:00", "2024-01-01 00:00:00 ",
        "2024-01-01T10:20:30.123", "2024-01-01t10:20:30.123", "2024-01-01T10:20:30.1", "2024-01-01T10:20:30.1234", "2024-01-01T10:20:30", "20240229", "20240229235959", "120240229", "+120240229", "2024", "20245",
        "+12024-01-01", "-0044-03-15", "-0000-01-01", "+2024-01-01", "2024-01", "2024-00", "2024-13", "2024-01-01 24", "2024-01-01 23", "2024-01-01 23:59", "2024-01-01 23:60", "2024-01-01 23:59:60",
        "31/12/1999", "31/11/1999", "1/2/2024 03:04:05.6", "0000001/000000000002/2024 03:04:05.6", "00000000000000000001/2/2024 03:04:05.6", "-1/2/2024 03:04:05.6", "2024-01-01 00:00:00.123456789", "2024-01-01 00:00:00.",
        "", "x", "٢٠٢٤-٠١-٠١", "2024-01-01\n", "\n2024-01-01", "0000-01-01", "9999-12-31", "+290000-01-01", "+999999999-01-01", "+9999999999-01-01", "-290000-01-01", "1900-02-29", "2000-02-29", "2024‐01‐01", "0001-01-01 00:00:00",
    ]  # fmt: skip
    return {
        "i": [0, 1, -1, 2**31 - 1, -(2**31), 12, 13, -7, 23, 24, 59, 60, None],
        "h": [0, 1, -1, 29, 30, 31, 28, 12, 60, 1000, -365, 32767, -32768, None],
        "b": [0, 1, -1, BIG, -BIG - 1, 2**31, 1710054000, -62135596800, 253402300799, 9223372036854, 9223372036855, -9223372036855, 106751991, 1730613600, None],
        "f": [0.0, 1.5, -1.5, nan, inf, 16777216.0, 0.1, None],
        "x": [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 1e-7, 1.0000005, 1710054000.123456, -1.9999999, nan, inf, -inf, 1e300, 9223372036854.775807, 9.3e12, -9.3e12, 3.0, -7.0, None],
        "m": [Decimal("0.00"), Decimal("1.50"), Decimal("-0.01"), Decimal("99999999.99"), Decimal("-99999999.99"), Decimal("59.99"), Decimal("60.00"), Decimal("0.50"), None],
        "w": [Decimal("0E-8"), Decimal("1.12345600"), Decimal("1.12345678"), Decimal("-1.00000001"), Decimal("9999999999.99999999"), None],
        "q": [Decimal("0.000000"), Decimal("59.999999"), Decimal("60.000000"), Decimal("60.000001"), Decimal("-0.000001"), Decimal("9999999999.999999"), Decimal("1.500000"), Decimal("61.000000"), None],
        "y": [0, 1, -1, 1582, 1899, 1970, 2024, 2023, 9999, 10000, 300000, -300000, 13, 60, None],
        "d": [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(2024, 1, 31), date(2023, 2, 28), date(2023, 12, 31),
              date(2024, 3, 10), date(2024, 11, 3), date(1582, 10, 10), date(1900, 3, 1), date(2021, 1, 3), *(each.date() for each in some[:20]), None],
        "ts": [*times, *some, *ends, None],
        "n": [*times, *walls * 6, *some, *ends, None],
        "s": [*texts[:12], *(each.strftime("%Y-%m-%d %H:%M:%S") for each in times if each.year > 999), None],
        "z": [*texts, None],
    }  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("zone_name", ZONE_PARAMETERS)
def test_tasks_compute_what_spark_computes(zone_name, spark, request, monkeypatch):
    seed = request.config.watersmeet_seed
    rows = table_of(TYPES, pools(random.Random(seed)), seed, 1200)
    chosen = [
        text for text in EXPRESSIONS if zone_name == "UTC" or tree(text, zone_name) != tree(text, "UTC")
    ]
    check(spark, chosen, rows, TYPES, zone_name, monkeypatch, failures=zone_name == "UTC")


def tree(text, zone_name):
    """What tasks compute: expressions that know of no zone have the same in all of them."""
    return compiled_text(text, TYPES, zone_name).tree
