"""What Spark says of an expression that fails is said of the condition that it was made for."""

from __future__ import annotations

import pytest

from watersmeet.errors import EngineError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.job.error_messages import explain_error

JOB = """
CREATE TABLE a (k STRING, t BIGINT, n INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE TABLE b (k BIGINT, t BIGINT, m INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE SINK one WITH ('connector' = 'memory');
CREATE SINK two WITH ('connector' = 'memory');
INSERT INTO one SELECT a.n / b.m AS q FROM a JOIN b ON a.k = b.k AND a.t BETWEEN b.t AND b.t + 5;
INSERT INTO two SELECT b.t FROM b WHERE 10 / b.m > 1;
"""
MORE = """
CREATE SINK three WITH ('connector' = 'memory');
INSERT INTO three SELECT a.n FROM a JOIN b ON a.k = b.k AND 7 / a.n > 0 AND a.t BETWEEN b.t AND b.t + 5;
"""


def build_spark_error(condition, fragment, message="The value 'zz' of the type \"STRING\" cannot be cast"):
    text = f"[{condition}] {message}. SQLSTATE: 22018\n== SQL (line 1, position 1) ==\n"
    text += f"f({fragment}) AS __ws_1\n  {'^' * len(fragment)}\n"
    return RuntimeError(f"org.apache.spark.SparkException: {text}")


@pytest.mark.parametrize(
    ("fragment", "said"),
    [
        ("CAST(k AS BIGINT)", 'INSERT "one": the condition a.k = b.k failed: [CAST_INVALID_INPUT] The value'),
        ("CAST(`k` AS BIGINT)", 'INSERT "one": the condition a.k = b.k failed: [CAST_INVALID_INPUT]'),
        ("7 / n", 'INSERT "three": the condition 7 / a.n > 0 AND a.k = b.k failed: [CAST_INVALID_INPUT]'),
        ("10 / m", 'INSERT "two": the condition 10 / b.m > 1 failed: [CAST_INVALID_INPUT] The value'),
    ],
)
def test_the_condition_is_named(fragment, said):
    plan = plan_job(parse_job(JOB + MORE if "three" in said else JOB))
    found = explain_error(build_spark_error("CAST_INVALID_INPUT", fragment), plan)
    assert (found.code, found.message.startswith(said)) == ("condition-failed", True), found.message
    assert "try_cast" in found.hint


def test_what_says_which_change_a_record_is_is_named():
    options = "WITH ('connector' = 'memory', 'diff.column' = 'd')"
    job = f"CREATE TABLE c (x STRING, k INT, d AS CAST(x AS INT)) {options}; SELECT k FROM c;"
    found = explain_error(build_spark_error("CAST_INVALID_INPUT", "CAST(x AS INT)"), plan_job(parse_job(job)))
    assert found.message.startswith('source "c": the column d AS CAST(x AS INT) failed: [CAST_INVALID_INPUT]')


COMPUTED = """
CREATE TABLE a (s STRING, t BIGINT, n INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE TABLE b (m BIGINT, u BIGINT, WATERMARK FOR u AS u) WITH ('connector' = 'memory');
CREATE SINK one WITH ('connector' = 'memory');
CREATE SINK two WITH ('connector' = 'memory');
CREATE VIEW v AS SELECT CAST(s AS INT) AS m, t FROM a;
"""
WINDOWS = "FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), 10)) GROUP BY window_start, window_end"
JOINED = "FROM a JOIN b ON b.u BETWEEN a.t AND a.t + 5"
OVERFLOW = 'The value 300 of the type "INT" cannot be cast to "TINYINT" due to an overflow'


@pytest.mark.parametrize(
    ("query", "fragment", "said"),
    [
        ("SELECT v.m FROM v", "CAST(s AS INT)", 'INSERT "one": the column v.m = CAST(s AS INT)'),
        (
            f"SELECT window_start, sum(CAST(s AS INT)) AS x {WINDOWS}",
            "CAST(`s` AS INT)",
            'INSERT "one": the aggregate SUM(CAST(a.s AS INT))',
        ),
        (
            f"SELECT window_start, percentile(CAST(s AS INT), 0.5) AS x {WINDOWS}",
            "CAST(`s` AS INT)",
            'INSERT "one": the aggregate PERCENTILE(CAST(a.s AS INT), 0.5)',
        ),
        (
            f"SELECT window_start, n, CAST(max(s) AS INT) + n AS x {WINDOWS}, n",
            "CAST(`max1` AS INT)",
            'INSERT "one": the column x = CAST(MAX(a.s) AS INT) + a.n',
        ),
        (
            f"SELECT window_start, count(*) AS x {WINDOWS}, CAST(s AS INT)",
            "CAST(`s` AS INT)",
            'INSERT "one": the grouping key CAST(s AS INT)',
        ),
        (
            f"SELECT a.s {JOINED} LEFT JOIN b AS x ON x.m = CAST(a.s AS INT) AND x.u BETWEEN a.t AND a.t + 5",
            "CAST(`s` AS INT)",
            'INSERT "one": CAST(CAST(s AS INT) AS BIGINT) of rows of a',
        ),
        (
            "SELECT a.t FROM a LEFT JOIN b ON b.u BETWEEN a.t AND a.t + 5 WHERE 1 / (a.n + b.m) > 0",
            "1 / (`a.n` + `b.m`)",
            'INSERT "one": the condition 1 / (a.n + b.m) > 0',
        ),
        (
            f"SELECT CAST(a.s AS INT) AS x, CAST(a.s AS INT) + 1 AS y {JOINED}",
            "CAST(`a.s` AS INT)",
            'INSERT "one": the column x = CAST(a.s AS INT) or the column y = CAST(a.s AS INT) + 1',
        ),
        (
            "SELECT " + ", ".join(f"1 / a.n + {n} AS c{n}" for n in range(5)) + f" {JOINED}",
            "1 / `a.n`",
            'INSERT "one": the column c0 = 1 / a.n + 0 or the column c1 = 1 / a.n + 1 or'
            " the column c2 = 1 / a.n + 2 or 2 more",
        ),
        (
            f"SELECT 1 / a.n AS x {JOINED}; INSERT INTO two SELECT 1 / a.n AS y {JOINED}",
            "1 / `a.n`",
            'INSERT "one": the column x = 1 / a.n or INSERT "two": the column y = 1 / a.n',
        ),
    ],
    ids=[
        "view",
        "argument",
        "by Spark",
        "of an aggregate",
        "key",
        "later key",
        "filter",
        "two",
        "many",
        "two queries",
    ],
)
def test_what_is_computed_is_named(query, fragment, said):
    plan = plan_job(parse_job(f"{COMPUTED} INSERT INTO one {query};"))
    found = explain_error(build_spark_error("CAST_INVALID_INPUT", fragment), plan)
    assert found.code == "condition-failed", found
    assert found.message.startswith(f"{said} failed: [CAST_INVALID_INPUT] The value"), found.message


@pytest.mark.parametrize(
    ("condition", "message", "said"),
    [
        ("CAST_OVERFLOW", OVERFLOW, "the column x = CAST(a.n AS TINYINT)"),
        ("CAST_OVERFLOW", OVERFLOW.replace("TINYINT", "SMALLINT"), None),
        (
            "CANNOT_PARSE_TIMESTAMP",
            "Text 'zz' could not be parsed",
            "the column z = TO_TIMESTAMP(a.s, 'yyyy')",
        ),
        ("DATETIME_FIELD_OUT_OF_BOUNDS.WITH_SUGGESTION", "x", "the column u = MAKE_DATE(a.n, 1, 1)"),
        ("REMAINDER_BY_ZERO", "x", None),
    ],
)
def test_what_can_raise_it_is_named_where_spark_quotes_nothing(condition, message, said):
    columns = "CAST(a.n AS TINYINT) AS x, try_cast(a.n AS SMALLINT) AS y, to_timestamp(a.s, 'yyyy') AS z"
    columns += ", try_to_timestamp(a.s, 'yyyy') AS w, make_date(a.n, 1, 1) AS u"
    plan = plan_job(parse_job(f"{COMPUTED} INSERT INTO one SELECT {columns} {JOINED};"))
    found = explain_error(RuntimeError(f"org.apache.spark.SparkException: [{condition}] {message}"), plan)
    assert found.code == ("spark-failed" if said is None else "condition-failed")
    if said is not None:
        assert found.message.startswith(f'INSERT "one": {said} failed: [{condition}] {message}')
    else:
        assert "INSERT" not in found.message


@pytest.mark.parametrize(
    "error",
    [
        build_spark_error("CAST_INVALID_INPUT", "CAST(other AS BIGINT)"),
        build_spark_error("CAST_INVALID_INPUT", ""),
        RuntimeError("no condition"),
        EngineError("its own", code="x"),
        build_spark_error(
            "CAST_INVALID_INPUT", "k", "== SQL (line 1, position 1) ==\nCAST(k AS BIGINT)\n^^^"
        ),
    ],
)
def test_what_is_not_known_stays_as_it_is(error):
    """A value of a row may look like Spark's words: nothing is taken from it but a name of the job's own."""
    found = explain_error(error, plan_job(parse_job(JOB)))
    assert found.code in ("spark-failed", "x") or "a.k = b.k" in found.message
