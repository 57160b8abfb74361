"""What Spark says of an expression that fails is said of the condition that it was made for."""

from __future__ import annotations

import pytest

from watersmeet.engine.spark.job.words import in_words
from watersmeet.errors import EngineError
from watersmeet.front.sql import parse_job
from watersmeet.plan.planner import plan_job

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


def raised(condition, fragment, message="The value 'zz' of the type \"STRING\" cannot be cast"):
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
    found = in_words(raised("CAST_INVALID_INPUT", fragment), plan)
    assert (found.code, found.message.startswith(said)) == ("condition-failed", True), found.message
    assert "try_cast" in found.hint


@pytest.mark.parametrize(
    "error",
    [
        raised("CAST_INVALID_INPUT", "CAST(other AS BIGINT)"),
        raised("CAST_INVALID_INPUT", ""),
        RuntimeError("no condition"),
        EngineError("its own", code="x"),
        raised("CAST_INVALID_INPUT", "k", "== SQL (line 1, position 1) ==\nCAST(k AS BIGINT)\n^^^"),
    ],
)
def test_what_is_not_known_stays_as_it_is(error):
    """A value of a row may look like Spark's words: nothing is taken from it but a name of the job's own."""
    found = in_words(error, plan_job(parse_job(JOB)))
    assert found.code in ("spark-failed", "x") or "a.k = b.k" in found.message
