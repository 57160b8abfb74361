# ruff: noqa: E501
"""What tasks compute themselves against Spark: functions × types × zones, over values chosen to tell them apart.

For every expression: the rows for which tasks do not fail give Spark's value, and do not fail there either;
of the rows for which they fail, some are given to Spark alone, and fail there by the same condition.
"""

from __future__ import annotations

import random
import re
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import sqlglot

from watersmeet.kernel import functions
from watersmeet.kernel.expression import native, tree_of, values
from watersmeet.plan.exact import FUNCTIONS, exact
from watersmeet.plan.scope import Scope
from watersmeet.spec.model import Column, Input
from watersmeet.zones import zone

ZONES = ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]
ROWS = 3000
TYPES = {
    "t": "TINYINT", "i": "INT", "b": "BIGINT", "f": "FLOAT", "x": "DOUBLE", "m": "DECIMAL(10,2)", "w": "DECIMAL(6,4)",
    "s": "STRING", "p": "BOOLEAN", "d": "DATE", "ts": "TIMESTAMP",
}  # fmt: skip
ARROW = {
    "TINYINT": pa.int8(), "INT": pa.int32(), "BIGINT": pa.int64(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "STRING": pa.string(),
    "DECIMAL(10,2)": pa.decimal128(10, 2), "DECIMAL(6,4)": pa.decimal128(6, 4), "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us", "UTC"),
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
    "timestamp(d1)", "to_date(ts1)", "date(ts1)",
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
    "d1 < DATE '2024-03-10'", "ts1 BETWEEN d1 AND d1 + 1",
    "length(s1)", "len(s1)", "char_length(s1)", "character_length(s1)", "octet_length(s1)", "reverse(s1)",
    "left(s1, 2)", "left(s1, 0)", "substring(s1, 2, 3)", "substr(s1, 2)", "concat(s1, s2)", "s1 || s2",
    "s1 LIKE 'a%'", "s1 LIKE '_b%'", "s1 LIKE '%é'",
]  # fmt: skip


def moments(rng: random.Random) -> list[datetime]:
    epoch = datetime(1970, 1, 1)
    found = []
    for name in ZONES:
        for start in zone(name).starts:
            for off in (0, 1, -1, 1_800_000_000, -3_600_000_000, 5_400_000_001):
                us = int(start) + off
                if -62_135_596_800_000_000 <= us <= 253_402_300_799_999_999:
                    found.append(epoch + timedelta(microseconds=us))
    near = [each for each in found if 2023 <= each.year <= 2025]
    some = rng.sample(found, 200)
    ends = [
        datetime(1, 1, 1),
        datetime(1, 1, 3, 5),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(9999, 12, 30),
    ]
    return [*near * 3, *some, *ends, datetime(1969, 12, 31, 23, 59, 59, 500000), datetime(2024, 3, 10, 7)]


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


@pytest.fixture(scope="module")
def table(request) -> pa.Table:
    rng = random.Random(request.config.watersmeet_seed)
    found = pools(rng)
    columns = {}
    for name, type_ in TYPES.items():
        for n in (1, 2):
            chosen = [rng.choice(found[name]) for _ in range(ROWS)]
            if name == "ts":
                chosen = [
                    None if each is None else (each - datetime(1970, 1, 1)) // timedelta(microseconds=1)
                    for each in chosen
                ]
            columns[f"{name}{n}"] = pa.array(chosen, pa.int64() if name == "ts" else ARROW[type_])
            if name == "ts":
                columns[f"{name}{n}"] = columns[f"{name}{n}"].view(ARROW[type_])
    return pa.table(columns)


def scope(zone_name: str) -> Scope:
    columns = tuple(Column(f"{name}{n}", type_) for name, type_ in TYPES.items() for n in (1, 2))
    return Scope((Input("", columns, (), ()),), time_zone=zone_name)


def ours(text: str, rows: pa.Table, zone_name: str, monkeypatch) -> tuple[list, np.ndarray, dict[int, str]]:
    """(values, rows that fail, their conditions)."""
    found = exact(sqlglot.parse_one(text, dialect="spark"), scope(zone_name))
    failing = np.zeros(rows.num_rows, dtype=np.bool_)
    conditions: dict[int, str] = {}

    def noted(bad, condition, what, *arguments):
        known = functions._known(*arguments)
        bad = bad if known is None else bad & known
        if bad.any():
            assert len(bad) == rows.num_rows, "a lazy part fails: guard it better"
            failing[bad] = True
            conditions.update(dict.fromkeys(np.flatnonzero(bad).tolist(), condition))

    with monkeypatch.context() as patched:
        patched.setattr(functions, "_check", noted)
        array = values(tree_of(found.tree), rows, text)
    return (
        plain(array if found.type.startswith("INTERVAL") else native(array, found.type, True)),
        failing,
        conditions,
    )


@pytest.mark.spark
@pytest.mark.parametrize("zone_name", ZONES)
def test_tasks_compute_what_spark_computes(zone_name, spark, table, monkeypatch):
    spark.conf.set("spark.sql.session.timeZone", zone_name)
    try:
        mine = {text: ours(text, table, zone_name, monkeypatch) for text in EXPRESSIONS}
        given = table
        for n, (_, failing, _) in enumerate(mine.values()):
            given = given.append_column(f"ok{n}", pa.array(~failing))
        given = given.append_column("n", pa.array(np.arange(ROWS)))
        frame = spark.createDataFrame(given)
        different = {}
        for first in range(0, len(EXPRESSIONS), 60):
            part = EXPRESSIONS[first : first + 60]
            selected = [f"CASE WHEN ok{first + n} THEN {text} END AS v{n}" for n, text in enumerate(part)]
            answer = frame.selectExpr("n", *selected).toArrow().sort_by("n")
            for n, text in enumerate(part):
                got, failing, _ = mine[text]
                spark_says = plain(answer.column(f"v{n}").combine_chunks())
                wrong = [
                    row
                    for row in np.flatnonzero(~failing).tolist()
                    if repr(spark_says[row]) != repr(got[row])
                ]
                if wrong:
                    names = [name for name in table.column_names if re.search(rf"\b{name}\b", text)]
                    row = wrong[0]
                    different[text] = (
                        len(wrong),
                        {c: table.column(c)[row].as_py() for c in names},
                        got[row],
                        spark_says[row],
                    )
        for text, (_, failing, conditions) in mine.items():
            by_condition = {conditions[row]: row for row in np.flatnonzero(failing).tolist()}
            for condition, row in (
                by_condition.items() if zone_name == "UTC" or "ts" in text or "d1" in text else ()
            ):
                try:
                    spark.createDataFrame(table.slice(row, 1)).selectExpr(f"{text} AS v").collect()
                    different[text + " fails"] = (condition, table.slice(row, 1).to_pylist()[0])
                except Exception as error:
                    if f"[{condition}" not in str(error):
                        different[text + " fails"] = (condition, str(error)[:150])
        for text, found in different.items():
            print(text, found)
        assert different == {}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def plain(array: pa.Array) -> list:
    """Values; times as their numbers, for Python knows no year 0 and none beyond 9999."""
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    return (array.view(pa.int32()) if pa.types.is_date32(array.type) else array).to_pylist()


def test_every_function_on_the_list_is_tried():
    tried = {name.lower() for text in EXPRESSIONS for name in re.findall(r"\b([a-z_0-9]+)\(", text)}
    tried |= {"mod"}
    assert set(FUNCTIONS) - tried == {"substring", "substr"} - tried
