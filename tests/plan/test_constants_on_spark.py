# ruff: noqa: E501
"""Conditions of constants that are decided before the job runs are what Spark says they are."""

from __future__ import annotations

import random

import pytest
import sqlglot

from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.plan.conditions.conjuncts import constant_is_true

POOL = [
    *("TRUE", "FALSE", "NULL", "CAST(NULL AS INT)", "0", "1", "-1", "1L", "1.0", "-0.0", "0e0", "-0D", "1e0", "0.1", "1e-1"),
    *("0.1F", "9007199254740993", "9007199254740992e0", "9007199254740992.0", "1e308", "12345678901234567890123456789"),
    *("12345678901234567890.123456789012345678", "''", "'a'", "'B'", "'a '", "'é'", "'1'", "'10'", "'9'", "'\\U0001F600'"),
    *("'\\uffee'", "(1 < 2)", "(NOT TRUE)", "(1 > 2)", "(NULL = 1)"),
]  # fmt: skip


@pytest.mark.spark
def test_constants_are_decided_as_by_spark(spark, seed):
    rng = random.Random(seed)
    signs = ("=", "<>", "<", "<=", ">", ">=", "AND", "OR")
    texts = [f"{one} {sign} {two}" for one in POOL for two in POOL for sign in rng.sample(signs, 2)]
    texts += [f"NOT ({text})" for text in rng.sample(texts, 60)] + [*POOL, "1 / 0 = 1", "1 = 1 / 0 OR TRUE"]
    decided = {}
    for text in texts:
        found = constant_is_true(sqlglot.parse_one(text, dialect=Watersmeet))
        if found is not None:
            decided[text] = found
    columns = [f"coalesce({text}, FALSE) AS c{n}" for n, text in enumerate(decided)]
    answer = [
        value for first in range(0, len(columns), 300)
        for value in spark.sql(f"SELECT {', '.join(columns[first : first + 300])}").first()
    ]  # fmt: skip
    assert dict(zip(decided, answer, strict=True)) == decided
    assert len(decided) > 500
    assert constant_is_true(sqlglot.parse_one("1 = 1 / 0 OR TRUE", dialect=Watersmeet)) is None
