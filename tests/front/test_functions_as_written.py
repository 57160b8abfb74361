# ruff: noqa: E501
"""What is read as a function goes to Spark as that function, with all of its arguments."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest
import sqlglot

from watersmeet.errors import WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.plan.model.nodes import AggregatePlan
from watersmeet.plan.planner import plan_job

TABLE = json.loads((files("watersmeet.spec") / "spark_functions.json").read_text())["functions"]

SAME = {
    "array_size": "size", "bit_get": "getbit", "ceiling": "ceil", "char": "chr", "char_length": "length",
    "character_length": "length", "date_diff": "datediff", "dateadd": "date_add", "ifnull": "coalesce",
    "lcase": "lower", "len": "length", "nvl": "coalesce", "pow": "power", "random": "rand",
    "reduce": "aggregate", "sha1": "sha", "signum": "sign", "substr": "substring", "ucase": "upper",
    "to_unix_timestamp": "unix_timestamp", "position": "locate",
}  # fmt: skip
"""Spark's own two names of one function; of so many arguments as are tried."""

WRITTEN = {
    "and(a, b)": "(a AND b)", "or(a, b)": "(a OR b)", "div(a, b)": "(a DIV b)", "mod(a, b)": "a % b",
    "boolean(a)": "CAST(a AS BOOLEAN)", "date(a)": "CAST(a AS DATE)", "double(a)": "CAST(a AS DOUBLE)",
    "float(a)": "CAST(a AS FLOAT)", "int(a)": "CAST(a AS INT)", "string(a)": "CAST(a AS STRING)",
    "timestamp(a)": "CAST(a AS TIMESTAMP)", "to_timestamp(a)": "CAST(a AS TIMESTAMP)",
    "collate(a, b)": "a COLLATE b", "extract(a, b)": "EXTRACT(A FROM b)",
    "from_utc_timestamp(a, b)": "FROM_UTC_TIMESTAMP(CAST(a AS TIMESTAMP), b)",
    "to_utc_timestamp(a, b)": "TO_UTC_TIMESTAMP(CAST(a AS TIMESTAMP), b)",
    "ilike(a, b)": "a ILIKE b", "ilike(a, b, c)": "a ILIKE b ESCAPE c", "like(a, b)": "a LIKE b",
    "like(a, b, c)": "a LIKE b ESCAPE c", "regexp_like(a, b)": "a RLIKE b", "rlike(a, b)": "a RLIKE b",
    "log(a)": "LN(a)", "approx_percentile(a, b)": "PERCENTILE_APPROX(a, b)",
    "approx_percentile(a, b, c)": "PERCENTILE_APPROX(a, b, c)", "array_agg(a)": "COLLECT_LIST(a)",
    "listagg(a)": "LISTAGG(a, '')", "string_agg(a)": "LISTAGG(a, '')", "string_agg(a, b)": "LISTAGG(a, b)",
    "var_samp(a)": "VARIANCE(a)",
    "instr(a, b)": "LOCATE(b, a)", "trim(a, b)": "TRIM(a FROM b)", "ltrim(a, b)": "TRIM(LEADING a FROM b)",
    "rtrim(a, b)": "TRIM(TRAILING a FROM b)", "overlay(a, b, c)": "OVERLAY(a PLACING b FROM c)",
    "overlay(a, b, c, d)": "OVERLAY(a PLACING b FROM c FOR d)", "named_struct(a, b)": "STRUCT(b AS a)",
    "named_struct(a, b, c, d)": "STRUCT(b AS a, d AS c)", "space(a)": "REPEAT(' ', a)",
    "str_to_map(a)": "STR_TO_MAP(a, ',', ':')", "str_to_map(a, b)": "STR_TO_MAP(a, b, ':')",
    **{f"struct({', '.join(names)})": f"STRUCT({', '.join(f'{name} AS {name}' for name in names)})"
       for names in ("a", "ab", "abc", "abcd", "abcde")},
}  # fmt: skip
"""What is written another way and means the same."""

REFUSED = {
    "any_value(a, b)", "first_value(a, b)", "last_value(a, b)", "shuffle(a, b)",
    *(f"{name}({', '.join('abcde'[:count])})" for name in ("hour", "minute", "second") for count in (2, 3, 4, 5)),
}  # fmt: skip
"""Calls that are not read at all: the user is told."""

ORDERED = {"first(a, b)", "last(a, b)"}
"""Refused by the planner, whatever their arguments: a group of a stream has no first row."""

NEVER = {"in", "between", "case", "when"}  # words of the syntax


def cases() -> list[str]:
    return [
        f"{name}({', '.join('abcde'[:count])})"
        for name, known in TABLE.items()
        if name not in NEVER
        and known.get("kind") in ("scalar", "aggregate")
        and known.get("deterministic", True)
        for count in known["counts"]
        if isinstance(count, int)
        and 0 < count <= 5
        and f"{name}({', '.join('abcde'[:count])})" not in ORDERED
    ]


@pytest.mark.parametrize("text", cases())
def test_a_function_is_what_was_written(text):
    if text in REFUSED:
        with pytest.raises(sqlglot.ParseError):
            sqlglot.parse_one(f"SELECT {text}", dialect=Watersmeet)
        return
    tree = sqlglot.parse_one(f"SELECT {text}", dialect=Watersmeet)
    written = tree.expressions[0].sql(dialect="spark")
    name, _, rest = text.partition("(")
    expected = WRITTEN.get(text, f"{SAME.get(name, name)}({rest}")
    assert re.sub(r"\s", "", written.lower()) == re.sub(r"\s", "", expected.lower())


@pytest.mark.parametrize(
    "text",
    [
        "DATE_FORMAT(t, 'EEEE yyyy-MM-dd HH:mm:ss.SSSSSS')", "DATE_FORMAT(t, 'D QQQ')", "FROM_UNIXTIME(n, 'yyyy E')",
        "TO_TIMESTAMP(s, 'dd MMM yyyy hh:mm a')", "UNIX_TIMESTAMP(s, 'D yyyy')", "TRY_TO_TIMESTAMP(s, 'yyyy')",
        "DATE_FORMAT(t, '%Y')", "TO_TIMESTAMP(s, '%d-%m')", "DATE_TRUNC(u, t)", "TRUNC(d, u)", "LEVENSHTEIN(a, b, 3)", "PARSE_JSON(s)", "UNIX_DATE(d)", "DATE_SUB(d, n)", "DATE_SUB(d, -2147483648)", "LOG10(x)", "LOG2(x)", "TRUNCATE(x, 1)", "LISTAGG(s, ';')",
        "LOG(2, x)", "ROUND(a, 2)", "DECODE(a, 1, 2, 3)", "SORT_ARRAY(a, FALSE)", "SPLIT(s, 'a', 2)",
    ],
)  # fmt: skip
def test_arguments_stay_as_they_are(text):
    assert sqlglot.parse_one(f"SELECT {text}", dialect=Watersmeet).expressions[0].sql(dialect="spark") == text


@pytest.mark.parametrize(
    "text", ["CAST(x AS TIME)", "x::TIME", "CAST(x AS UUID)", "CAST(x AS JSON)", "TRY_CAST(x AS TIME)"]
)
def test_types_that_would_become_others_are_refused(text):
    with pytest.raises(sqlglot.ParseError):
        sqlglot.parse_one(f"SELECT {text}", dialect=Watersmeet)


def test_time_is_a_name():
    for text in ("time", "a.time", "a.time - b.time", "time AS uuid", "json", "MAX(time)"):
        assert (
            sqlglot.parse_one(f"SELECT {text}", dialect=Watersmeet).expressions[0].sql(dialect="spark")
            == text
        )


TABLES = "CREATE TABLE l (a INT, b INT, c INT, p BOOLEAN, s STRING, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a | b & 2", "a | (b & 2)"),
        ("a ^ b | c & 12", "(a ^ b) | (c & 12)"),
        ("a & b << 2", "a & (b << 2)"),
        ("a >>> b + 1", "shiftrightunsigned(a, b + 1)"),
        ("s || a + 1", "(s || a) + 1"),
        ("p = a < b", "(p = a) < b"),
        ("p = a IN (b)", "(p = a) IN (b)"),
        ("p = s LIKE 'a'", "(p = s) LIKE 'a'"),
        ("p <> a NOT BETWEEN b AND c", "NOT ((p <> a) BETWEEN b AND c)"),
        ("a <=> b = p", "(a <=> b) = p"),
        ("a = b IS NULL", "(a = b) IS NULL"),
        ("-1::STRING", "(-1)::STRING"),
        ("DATE '2024-01-01'::STRING", "(DATE '2024-01-01')::STRING"),
        ("NOT a = b AND a < b OR p", "((NOT (a = b)) AND (a < b)) OR p"),
        ("a !< b", "a >= b"),
        ("'a' 'b' r'\\c'", "'ab\\\\c'"),
    ],
)
def test_operators_stand_together_as_in_spark(text, meant):
    one, other = (sqlglot.parse_one(each, dialect=Watersmeet) for each in (text, meant))
    assert _without_parentheses(one) == _without_parentheses(other)


def _without_parentheses(tree):
    for node in reversed(list(tree.find_all(sqlglot.exp.Paren))):
        node.replace(node.this)
    return tree


@pytest.mark.parametrize(
    "text",
    [
        "a IS NULL = b",
        "a NOT IN (1) = b",
        "a IS NULL IS NULL",
        "a BETWEEN b AND c IN (d)",
        "- NOT a",
        "a + NOT b",
        "a SIMILAR TO b",
        "a ?? b",
        "a -> b",
        "a < < b",
        "a IS b",
        "a IN b",
        "128Y",
        "1.5L",
        "1e400",
        "9223372036854775808L",
        "0x1F",
        "N'a'",
        "STRING 'a'",
        "1 .f",
        "a::STRING COLLATE UTF8_LCASE",
    ],
)
def test_what_spark_does_not_read_is_refused(text):
    with pytest.raises(WatersmeetError, match="syntax"):
        parse_job(f"{TABLES} SELECT {text} AS x FROM l")


@pytest.mark.parametrize(
    "text", ["3L", "3S", "3Y", "1.5D", "1.5F", "1.5BD", "1e3BD", "-128Y", "-9223372036854775808L"]
)
def test_numbers_stay_as_they_are_written(text):
    (found,) = sqlglot.parse_one(f"SELECT {text}", dialect=Watersmeet).expressions
    assert found.sql("spark") == text


def test_listagg_uses_an_empty_default_separator():
    tree = sqlglot.parse_one("SELECT listagg(s), string_agg(s)", dialect=Watersmeet)
    assert [each.sql(dialect="spark") for each in tree.expressions] == ["LISTAGG(s, '')"] * 2


@pytest.mark.parametrize(
    "call",
    [
        "PERCENTILE(l.a, 0.5, l.b)",
        "MAX_BY(l.a, l.b, 3)",
        "MIN_BY(l.a, l.b, 3)",
        "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY l.a)",
        "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY l.a DESC)",
    ],
)
def test_aggregates_keep_their_arguments_and_are_spark_s(call):
    job = parse_job(
        f"{TABLES} SELECT {call.replace('l.', '')} AS x FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(t), INTERVAL '1' HOUR))"
        " GROUP BY window_start"
    )
    (node,) = (node for node in plan_job(job).queries[0].nodes if isinstance(node, AggregatePlan))
    assert [(each.text, each.plain) for each in node.calls] == [(call, False)]


def test_view_constants_are_cast_in_decimal_arithmetic():
    job = parse_job(
        "CREATE TABLE l (m DECIMAL(10, 2), t BIGINT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');"
        " CREATE VIEW v AS SELECT m, t, 3 AS n, -2L AS k FROM l;"
        " CREATE VIEW w AS SELECT m / n AS x, n + 1 = k AS y, n AS z, t FROM v; SELECT x, y, z FROM w"
    )
    (branch,) = job.inserts[0].query.relation.branches
    assert [each.sql("spark") for each in branch.columns] == [
        "m / CAST(3 AS INT)",
        "CAST(3 AS INT) + 1 = (-2L)",
        "3",
        "t",
    ]


TIMES_OF_THE_CLOCK = [
    "TIMESTAMP 'now'", "CAST('Today' AS DATE)", "t > 'yesterday'", "t BETWEEN 'now' AND t", "t IN (' tomorrow ')",
    "'today UTC'::TIMESTAMP", "t = 'today America/New_York'", "t IS DISTINCT FROM 'now'",
    "t IS NOT DISTINCT FROM 'now'", "COALESCE(d, 'today')", "CASE WHEN s = 'a' THEN t ELSE 'now' END",
    "CASE d WHEN 'today' THEN 1 END", "IF(s = 'a', t, 'now')", "greatest(t, 'now')", "nullif(d, 'today')",
    "nvl(d, 'today')", "date_add('today', 1)", "date_sub('today', 1)", "datediff('today', d)",
    "datediff(d, 'today')", "last_day('today')", "date_trunc('DAY', 'now')", "year('today')", "hour('now')",
    "to_date('today')", "unix_timestamp('now')", "array(t, 'now')", "array_contains(array(t), 'now')",
    "make_date(2020, 1, 1) > 'today'", "CAST('no' || 'w' AS TIMESTAMP)", "t > 'no' || 'w'",
    "CAST(CAST('now' AS STRING) AS TIMESTAMP)", "COALESCE(d, CAST('today' AS STRING))", "d - 'today'",
    "'today' + INTERVAL 1 DAY", "EXTRACT(YEAR FROM 'today')", "timestampadd(DAY, 1, 'today')",
    "add_months('today', 1)", "months_between('today', d)", "date_format('now', 'yyyy')", "trunc('today', 'MM')",
    "TRY_CAST('now' AS TIMESTAMP_NTZ)", "weekday('today')", "to_timestamp('now')", "quarter('today')",
    "next_day('today', 'MO')", "from_utc_timestamp('now', 'UTC')", "dateadd('today', 1)",
]  # fmt: skip
NO_TIMES_OF_THE_CLOCK = [
    "s = 'now'", "s IN ('today', 'x')", "CASE WHEN s = 'now' THEN 'now' ELSE s END", "concat(s, 'now')",
    "s || 'now'", "upper('now')", "replace(s, 'today', 'now')", "coalesce(s, 'today')", "s LIKE 'now'",
    "coalesce(upper(s), 'today')", "array(s, 'now')", "array_contains(array(s, 'x'), 'now')", "if(a > 1, 'now', 'x')",
    "array_contains(split(s, ','), 'now')", "nullif(s, 'now')", "greatest(s, 'now')", "concat_ws(',', d, 'now')",
    "date_format(d, 'yyyy') = 'now'", "CASE s WHEN 'now' THEN 1 END", "s IS DISTINCT FROM 'now'",
    "CASE WHEN a > 1 THEN 'now' END", "CAST(d AS STRING) = 'today'", "nvl2(s, 'now', 'x')", "a || 'today'",
    "TIMESTAMP 'epoch'", "t > '2024-01-01'", "'today is' < s", "t > TIMESTAMP '2024-01-01 00:00:00'",
    "d = to_date('2024-01-01')", "coalesce(d, DATE '2024-01-01')", "CAST(CAST('2024-01-01' AS STRING) AS DATE)",
    "d > date_add(DATE '2024-01-01', 1)", "date_format(t, 'yyyy')", "t - INTERVAL '1' DAY", "t > make_timestamp(2020,1,1,1,1,1)", "substring(s, 1, 3) = 'now'", "s <=> 'now'",
    "date_format(t, concat('yy', 'MM'))", "to_date(s, 'yy' || 'MM')", "to_timestamp(s, concat('yy', 'MM'))", "trunc(d, concat('M', 'M'))",
    "to_timestamp_ntz(s, 'yy' || 'MM')", "try_to_timestamp(s, 'yy' || 'MM')", "unix_timestamp(s, lower('YYYY'))",
    "to_unix_timestamp(s, concat('yy', 'MM'))", "date_trunc(upper('day'), t)", "date_part('day', t)", "next_day(d, concat('M', 'O'))",
    "convert_timezone(concat('U', 'TC'), 'Europe/Berlin', t)", "from_utc_timestamp(t, upper('utc'))", "from_unixtime(a, concat('yy', 'MM'))",
]  # fmt: skip
TIMED = TABLES.replace("CREATE TABLE l (", "CREATE TABLE l (d DATE, ", 1)


@pytest.mark.parametrize("text", TIMES_OF_THE_CLOCK)
def test_times_of_the_clock_are_refused(text):
    with pytest.raises(WatersmeetError, match="the same clock"):
        parse_job(f"{TIMED} SELECT {text} AS x FROM l")


@pytest.mark.parametrize("text", NO_TIMES_OF_THE_CLOCK)
def test_clock_words_used_as_plain_text_are_accepted(text):
    parse_job(f"{TIMED} SELECT {text} AS x FROM l")
