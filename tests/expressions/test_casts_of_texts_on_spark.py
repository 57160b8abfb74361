# ruff: noqa: E501, RUF001
"""Casts from texts and to texts, and texts compared with other types: what tasks compute is what Spark computes."""

from __future__ import annotations

import random
import re
from datetime import date
from decimal import Decimal

import pytest

from tests.expressions.checking import ZONE_PARAMETERS, check, moments, table_of

TYPES = {
    "s": "STRING", "r": "STRING", "c": "STRING", "v": "STRING", "n": "INT", "b": "BIGINT", "x": "DOUBLE", "m": "DECIMAL(10,2)", "w": "DECIMAL(38,18)", "z": "DECIMAL(9,9)",
    "p": "BOOLEAN", "d": "DATE", "ts": "TIMESTAMP", "tn": "TIMESTAMP_NTZ", "y": "BINARY",
}  # fmt: skip
NUMBERS = (
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(10,2)",
    "DECIMAL(38,0)",
    "DECIMAL(38,38)",
    "DECIMAL",
    "BOOLEAN",
)

EXPRESSIONS = [
    *(f"CAST(s1 AS {type_})" for type_ in NUMBERS), *(f"TRY_CAST(s1 AS {type_})" for type_ in NUMBERS), "CAST(r1 AS FLOAT)", "CAST(r1 AS DOUBLE)",
    *(f"{cast}(c1 AS {type_})" for cast in ("CAST", "TRY_CAST") for type_ in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")),
    *(f"CAST({column} AS STRING)" for column in ("n1", "b1", "m1", "w1", "z1", "p1", "d1", "ts1", "tn1", "s1")),
    "CAST(date_add(d1, n1) AS STRING)", "CAST(s1 AS BINARY)", "double(s1)", "int(s1)", "boolean(s1)", "date(c1)", "timestamp(c1)", "to_date(v1)", "CAST(m1 + m2 AS STRING)",
    "concat(ts1, '/', d1, '/', m1)", "year(v1)", "length(ts1)", "upper(d1)",
    *(f"v1 {op} {column}" for op in ("=", "<", "<=>") for column in ("d1", "ts1", "tn1")), "ts1 > v1", "d1 >= '2024-3-10'", "ts1 > '2024-03-10T02:30'", "ts1 < '2024-07-01 00:00:00+05:30'",
    *(f"TRY_CAST(s1 AS BIGINT) {op} n1" for op in ("=", "<")), "s1 = n1", "s1 > b1", "s1 = x1", "s1 < m1", "s1 = p1", "s1 = y1", "y1 <=> s1",
    "s1 IN (n1, 5)", "coalesce(n1, TRY_CAST(s1 AS INT))", "CASE WHEN p1 THEN v1 ELSE d1 END", "n1 BETWEEN '0' AND '7'", "nullif(s1, n1)",
    "TRY_CAST(c1 AS DATE) = d1", "s1 = '1'",
]  # fmt: skip

SOME = [
    "", " ", "0", "1", "-1", "+1", " 1 ", "\t1\n", "\u00a01", "\u30001", "1\0", "\x7f1", "--1", "+", "-", "1.", ".5", "1.5", "-.5", ".", "1e3", "1E-3", "1e", "1e+5", "1d", "1f", "1D",
    "127", "128", "-128", "-129", "32767", "32768", "2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "007", "0" * 40 + "5", "1_000", "1,000", "0x10", "0x1p3", "0X1.8P-2D", "0x1p99999", "NaN", "nan", "-NaN", "inf", "-Inf", "Infinity", "+infinity", " infinity ", "１２", "٣", "𝟏",
    "99999999.99", "99999999.994", "99999999.995", "0.005", "0.004999", "-0.005", "-0.001", "1e37", "1e38", "9" * 38, "9" * 39, "0e100", "1e-400", "1e400", "1e99999999999", "1e-99999999999",
    "1e2147483646", "1e-2147483648", "1e00000000001", "0." + "9" * 38, "0." + "0" * 38 + "5", "t", "TRUE", " true ", "y", "Yes", "f", "False", "no", "N", "on", "tru", "ſ",
    "2024", "12:00",
]  # fmt: skip
HALVES = [
    "1.00000005960464477539062500", "1.000000059604644775390625000000000000001", "1.0000000596046447753906249999999999", "3.4028235677973366e38", "3.40282356779733661637539395458142568447e38",
    "3.40282356779733661637539395458142568448e38", "7.006492321624085e-46", "7.0064923216240853546186479164495806564013097093825788587853e-46", "16777217", "16777217.0000000000000000001", "0.1", "1e23", "4.9e-324", "2.4703282292062327e-324",
]  # fmt: skip
TIMES = [
    "2024", "2024-1", "2024-01", "2024-1-1", "2024-02-29", "2023-02-29", "2024-13-01", "2024-00-01", "2024-01-32", "0000-01-01", "0001-01-01", "-0001-01-01", "+2024-01-01", "9999-12-31", "10000-01-01",
    "999999-12-31", "1000000-01-01", "9999999-01-01", "5881580-07-11", "5881580-07-12", "294247-01-10 04:00:54.775807", "294247-01-10 04:00:54.775808Z", "294247-01-10 04:00:54.775807Z", "-290308-12-21 19:59:05.224192Z", "294247-01-10 12:00:00+10:00",
    "202-01-01", "24-01-01", "2024-001-01", "2024-01-01T", "2024-01-01 ", " 2024-01-01", "\t2024-01-01\n", "2024-01-01 x", "2024-01-01Tx", "2024-01-01x", "2024-01 x", "2024 ", "2024-", "2024-01-", "2024--01",
    "2024-03-10 02:30:00", "2024-03-10T2:3:4", "2024-11-03 01:30:00", "2024-11-03 01:30:00.123456789", "2024-10-06 02:15:00", "2024-04-07 01:45:00", "2024-01-01 10", "2024-01-01 10:20", "2024-01-01 24:00:00", "2024-01-01 10:60:00",
    "2024-01-01 10:20:30.", "2024-01-01 10:20:30.5", "2024-01-01 10:20:30Z", "2024-01-01 10:20:30 Z", "2024-01-01 10:20:30.1234567Z", "2024-01-01 10:20:30+1", "2024-01-01 10:20:30+01", "2024-01-01 10:20:30+1:30", "2024-01-01 10:20:30-01:3",
    "2024-01-01 10:20:30+0130", "2024-01-01 10:20:30+013015", "2024-01-01 10:20:30+01:30:15", "2024-01-01 10:20:30+18:00", "2024-01-01 10:20:30+18:01", "2024-01-01 10:20:30+1:3", "2024-01-01 10:20:30UTC", "2024-01-01 10:20:30 UTC+3", "2024-01-01 10:20:30 GMT-03:30",
    "2024-01-01 10:20:30 UT+1:00", "2024-01-01 10:20:30 utc", "2024-01-01 10:20:30 Europe/Paris", "2024-07-01 10:20:30.5 America/New_York", "2024-07-01 10:20:30 europe/paris", "2024-07-01 10:20:30 PST", "2024-07-01 10:20:30 EST", "2024-07-01 10:20:30 CET",
    "2024-07-01 10:20:30 EST5EDT", "2024-07-01 10:20:30 Nowhere/At_All", "2024-07-01 10:20:30[Europe/Paris]", "2024-07-01 10:20:30:11", "2024-07-01 10:20:30.5.6", "2024-07-01 10:20Z", "2024-07-01 10Z", "2024-07-01 10:", "2024-07-01Z", "+12:00", ":12",
    "1582-10-10 00:00:00", "1900-01-01 00:00:00", "1883-11-18 12:03:57", "0001-01-01 00:00:00+14:00", "2024-01-01 1٣:00:00", "２024-01-01", "", " ", "x", "T", "99:00", "T25:00", "12:00:00 Nowhere",
    "-290308-12-25 19:59:05.4", "-200000-07-01 Europe/Paris", "294246-07-01 00:00:00",
]  # fmt: skip
PLAIN = [
    "2024-03-10",
    "2024-03-10 02:30:00",
    "2024-11-03 01:30:00",
    "0001-01-01",
    "9999-12-31",
    "2024-2-29",
    "1969-12-31 23:59:59.5",
    "1582-10-10",
]


def pools(rng: random.Random) -> dict[str, list]:
    drawn = ["".join(rng.choices("0123456789+-.eEdf ", k=rng.randrange(1, 8))) for _ in range(100)]
    reals = [f"{rng.uniform(-1, 1) * 10.0 ** rng.randrange(-50, 42)!r}" for _ in range(200)] + [
        str(rng.randrange(2**70) / 3) for _ in range(50)
    ]
    some = [
        re.sub(
            r"[0-9]",
            lambda found: str(rng.randrange(10)) if rng.random() < 0.2 else found[0],
            rng.choice(TIMES[:60]),
        )
        for _ in range(200)
    ]
    cut = [text[: rng.randrange(len(text) + 1)] + rng.choice(["", "0", ":", "-", " ", "T"]) for text in some]
    cut = [text for text in cut if re.match(r"\s*(T|[0-9]{1,2}:)", text) is None]
    return {
        "s": [*SOME, *drawn, None], "r": [*HALVES, *reals, None], "c": [*TIMES, *some, *cut, None], "v": [*PLAIN, None],
        "n": [0, 1, -1, 5, 3_000_000, -800_000, None], "b": [0, 1, -1, 5, 2**63 - 1, None], "x": [0.0, 1.0, -1.0, 0.5, 1000.0, float("nan"), float("inf"), None],
        "m": [Decimal("0.00"), Decimal("1.50"), Decimal("-0.01"), Decimal("99999999.99"), None],
        "w": [Decimal("0E-18"), Decimal("1E-18"), Decimal("12345678901234567890.123456789012345678"), None], "z": [Decimal("0E-9"), Decimal("1E-9"), Decimal("-0.999999999"), None],
        "p": [True, False, None], "d": [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(2024, 3, 10), date(1582, 10, 10), None],
        "ts": [*moments(rng), None], "tn": [*moments(rng), None], "y": [b"", b"1", b"a", None],
    }  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("zone_name", ZONE_PARAMETERS)
def test_casts_are_those_of_spark(zone_name, spark, request, monkeypatch):
    seed = request.config.watersmeet_seed
    rows = table_of(TYPES, pools(random.Random(seed)), seed)
    chosen = [text for text in EXPRESSIONS if zone_name == "UTC" or re.search(r"\b(ts|c|v)[12]\b", text)]
    check(spark, chosen, rows, TYPES, zone_name, monkeypatch)
