# ruff: noqa: E501
"""Operators, casts and often used functions: what tasks compute is what Spark computes."""

from __future__ import annotations

import random
import re
from datetime import date
from decimal import Decimal

import pytest

from tests.expressions.checking import ZONE_PARAMETERS, check, moments, table_of

TYPES = {
    "t": "TINYINT", "i": "INT", "b": "BIGINT", "f": "FLOAT", "x": "DOUBLE", "m": "DECIMAL(10,2)", "w": "DECIMAL(6,4)",
    "s": "STRING", "p": "BOOLEAN", "d": "DATE", "ts": "TIMESTAMP",
}  # fmt: skip
BIG = 2**63 - 1

EXPRESSIONS = [
    *(f"{v}1 {op} {v}2" for v in TYPES for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
    *(f"{one} {op} {two}" for one, two in (("t1", "b2"), ("i1", "x2"), ("m1", "w2"), ("i1", "m2"), ("d1", "ts2"), ("f1", "x2"),
      ("m1", "x2"), ("w1", "x2"), ("f1", "t2"), ("i1", "f2"), ("f1", "b2")) for op in ("=", "<", ">=", "<=>")),
    *(f"{v}1 {op} {v}2" for v in ("t", "i", "b") for op in ("+", "-", "*", "%", "div", "/", "&", "|", "^")),
    *(f"x1 {op} x2" for op in ("+", "-", "*", "/", "%")),
    *(f"{one} {op} {two}" for one, two in (("t1", "i2"), ("i1", "b2"), ("i1", "x2"), ("i1", "m2"), ("m1", "w2"), ("f1", "i2"),
      ("b1", "f2")) for op in ("+", "-", "*")), "coalesce(f1, i2)", "CASE WHEN i1 > 0 THEN b1 ELSE f2 END", "greatest(f1, i2)",
    *(f"-{v}1" for v in ("t", "i", "b", "x", "m")), *(f"abs({v}1)" for v in ("t", "i", "b", "x", "m")),
    "~i1", "~b1", "i1 + 1", "t1 + 1", "b1 - 1", "2.5 * m1", "i1 % 0", "i1 / 2", "mod(i1, i2)", "pmod(i1, i2)",
    "pmod(b1, b2)", "negative(i1)", "positive(x1)", "try_divide(i1, i2)", "try_divide(x1, x2)",
    "p1 AND p2", "p1 OR p2", "NOT p1", "p1 IS TRUE", "i1 IS NULL", "s1 IS NOT NULL", "i1 IS DISTINCT FROM i2",
    "i2 <> 0 AND i1 / i2 > 1", "i2 = 0 OR i1 / i2 > 1", "CASE WHEN i2 = 0 THEN NULL ELSE i1 div i2 END",
    "if(b2 = 0, 0, b1 % b2)", "CASE WHEN i1 > i2 THEN i1 WHEN p1 THEN b2 END", "coalesce(i1, i2, 0)",
    "coalesce(i1, i1 div i2, 5)", "nvl(s1, s2)", "ifnull(d1, d2)", "nullif(i1, i2)", "nvl2(i1, i2, b1)",
    "isnull(x1)", "isnotnull(x1)", "isnan(x1)", "equal_null(s1, s2)", "i1 BETWEEN i2 AND b1",
    "i1 NOT BETWEEN i2 AND 3", "i1 IN (i2, 2, NULL)", "s1 NOT IN (s2, 'a')", "x1 IN (x2)",
    *(f"greatest({v}1, {v}2)" for v in TYPES if v != "p"), *(f"least({v}1, {v}2)" for v in TYPES if v != "p"),
    "CAST(i1 AS TINYINT)", "CAST(b1 AS INT)", "CAST(b1 AS SMALLINT)", "CAST(x1 AS INT)", "CAST(x1 AS BIGINT)",
    "CAST(i1 AS DOUBLE)", "CAST(b1 AS DOUBLE)", "CAST(p1 AS INT)", "CAST(i1 AS BOOLEAN)", "CAST(i1 AS STRING)",
    "CAST(b1 AS STRING)", "CAST(p1 AS STRING)", "CAST(ts1 AS DATE)", "CAST(d1 AS TIMESTAMP)", "double(b1)", "CAST(f1 AS DOUBLE)", "CAST(m1 AS DOUBLE)", "w1 * x1",
    "CAST(ts1 AS BIGINT)", "bigint(ts1)", "int(b1)", "smallint(i1)", "tinyint(i1)", "string(i1)", "boolean(t1)",
    "timestamp(d1)", "to_date(ts1)", "date(ts1)", "TRY_CAST(b1 AS INT)", "TRY_CAST(x1 AS BIGINT)", "TRY_CAST(i1 AS STRING)",
    "TRY_CAST(i1 AS TINYINT) + 1", "TRY_CAST(i1 + i2 AS TINYINT)", "TRY_CAST(ts1 AS DATE)",
    *(f"{part}({v})" for v in ("d1", "ts1") for part in (
        "year", "month", "day", "dayofmonth", "quarter", "dayofyear", "weekofyear", "dayofweek", "weekday",
        "hour", "minute", "second")),
    "extract(HOUR FROM ts1)", "extract(YEAR FROM ts1)",
    "hour(ts1) - hour(ts2) > 3", "datediff(ts1, ts2)", "datediff(d1, ts2)", "date_diff(d1, d2)",
    "date_add(d1, t1)", "date_sub(d1, 7)", "dateadd(ts1, 1)", "d1 + 1", "d1 - 1",
    *(f"date_trunc('{unit}', {v})" for v in ("ts1", "d1") for unit in ("DAY", "HOUR", "MINUTE", "SECOND")),
    "unix_seconds(ts1)", "unix_millis(ts1)", "unix_micros(ts1)",
    *(f"ts1 {sign} INTERVAL {amount}" for sign in "+-" for amount in (
        "'1' SECOND", "'1' HOUR", "'1' DAY", "'24' HOUR", "'36:30' HOUR TO MINUTE", "'365' DAY")),
    "ts1 - ts2 > INTERVAL '1' DAY", "ts1 - ts2 <= INTERVAL '3' HOUR", "ts1 > TIMESTAMP '2024-03-10 02:30:00'",
    *(f"d1 {move}" for move in ("+ INTERVAL '2' DAY", "- INTERVAL 1 WEEK", "- INTERVAL '48' HOUR", "+ INTERVAL '1 12:00:00' DAY TO SECOND",
      "+ (-INTERVAL '3' DAY)", "- INTERVAL '2 00:00:00' DAY TO SECOND", "+ INTERVAL '3000000' DAY")), "INTERVAL '2' DAY + d1", "INTERVAL '90' MINUTE + d1",
    "d1 < DATE '2024-03-10'", "ts1 BETWEEN d1 AND d1 + 1",
    "length(s1)", "len(s1)", "char_length(s1)", "character_length(s1)", "octet_length(s1)", "reverse(s1)",
    "left(s1, 2)", "left(s1, 0)", "substring(s1, 2, 3)", "substr(s1, 2)", "concat(s1, s2)", "s1 || s2",
    "s1 LIKE 'a%'", "s1 LIKE '_b%'", "s1 LIKE '%é'",
]  # fmt: skip


def pools(rng: random.Random) -> dict[str, list]:
    times = moments(rng)
    nan, inf = float("nan"), float("inf")
    return {
        "t": [0, 1, -1, 127, -128, 7, -7, None],
        "i": [0, 1, -1, 2**31 - 1, -(2**31), 7, -7, 3, 46341, None],
        "b": [0, 1, -1, BIG, -BIG - 1, 7, -7, 2**53 + 1, 3037000500, 2**31, -(2**31) - 1, 2**32, None],
        "x": [0.0, -0.0, 1.0, -1.5, 2.5, 127.9, 128.0, -128.9, nan, inf, -inf, 1e300, 5e-324, 2.0**31, 2.0**63,
              -(2.0**63), -(2.0**31) - 0.5, 0.1, None],
        "f": [0.0, -0.0, 0.1, 1.5, -1.5, nan, inf, 16777216.0, None],
        "m": [Decimal("0.00"), Decimal("1.50"), Decimal("-0.01"), Decimal("99999999.99"), Decimal("-99999999.99"), None],
        "w": [Decimal("0.0000"), Decimal("1.5000"), Decimal("-0.0100"), Decimal("99.9999"), None],
        "s": ["", "a", "ab", "Ab", "a_b", "a%b", "b", "é", "aé", "e\u0301", "😀b", "\n", "xb\ny", " a ", "ß", "a" * 40, None],
        "p": [True, False, None],
        "d": [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29),
              date(2024, 3, 10), date(2024, 11, 3), date(1582, 10, 10), date(1900, 3, 1), date(2021, 1, 3), None],
        "ts": [*times, None],
    }  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("zone_name", ZONE_PARAMETERS)
def test_tasks_compute_what_spark_computes(zone_name, spark, request, monkeypatch):
    seed = request.config.watersmeet_seed
    rows = table_of(TYPES, pools(random.Random(seed)), seed)
    chosen = [text for text in EXPRESSIONS if zone_name == "UTC" or re.search(r"\b(ts|d)[12]\b", text)]
    check(spark, chosen, rows, TYPES, zone_name, monkeypatch)
