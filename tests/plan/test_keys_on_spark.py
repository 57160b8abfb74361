# ruff: noqa: E501
"""Keys of computed numbers are equal where Spark says that the two sides of the equality are."""

from __future__ import annotations

import pytest

from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.sql_text import to_spark_sql

LEFT = {"n": "BIGINT", "m": "DECIMAL(10,2)", "i": "INT"}
RIGHT = {"k": "BIGINT", "v": "DECIMAL(38,2)", "w": "DECIMAL(20,4)"}
CONDITIONS = [
    *("n + 1.5 = v", "m * 2.5 = w", "m * 2.555 = v", "m * 2 = w", "n * 3L = v", "n + 1.5 = k", "m / 3 = w", "n + 3S = k"),
    *("m + 1 = k", "-m = w", "abs(m) = w", "m % 2 = k", "m * 1.000000000000000000001 = w", "m * 1.0000000000000000001BD = k"),
    *("n + 0.0000000000000000001 = k", "i * 1.5 = w", "n * 1e0 = k", "n + 1.5D = v", "i + 1.5F = k", "m + n = v"),
]  # fmt: skip
ROWS = [
    ("9007199254740993", "1.00", "1"),
    ("9007199254740992", "-1.00", "2"),
    ("1", "0.33", "3"),
    ("2", "1.02", "2"),
]
OTHERS = [
    ("9007199254740994", "9007199254740994.50", "2.5000"),
    ("9007199254740993", "2.56", "1.0000"),
    ("1", "2.55", "0.3333"),
    ("0", "3.00", "0.1100"),
    ("9007199254740996", "9007199254740993.00", "3.0000"),
]


def build_stream_sql(alias: str, types: dict[str, str]) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in types.items())
    return f"CREATE TABLE {alias} ({columns}, t BIGINT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');"


def key_of(condition: str) -> str:
    """The equality of the two key columns as they are planned."""
    query = f"SELECT n FROM l JOIN r ON {condition} AND l.t = r.t"
    root = (
        plan_job(parse_job(build_stream_sql("l", LEFT) + build_stream_sql("r", RIGHT) + query))
        .queries[0]
        .root
    )
    (key,) = (each for each in root.keys if (each.columns.left, each.columns.right) != ("t", "t"))
    sides = ((root.left, key.columns.left), (root.right, key.columns.right))
    return " = ".join(to_spark_sql(dict(side.branches[0].columns)[name]) for side, name in sides)


def values(rows, types) -> str:
    made = ", ".join(
        "(" + ", ".join(f"CAST('{v}' AS {t})" for v, t in zip(row, types.values(), strict=True)) + ")"
        for row in rows
    )
    return f"VALUES {made} AS v({', '.join(types)})"


@pytest.mark.spark
def test_keys_are_equal_where_spark_says_so(spark):
    left = spark.sql(f"SELECT * FROM {values(ROWS, dict(zip('nmi', LEFT.values(), strict=True)))}")
    right = spark.sql(f"SELECT * FROM {values(OTHERS, dict(zip('kvw', RIGHT.values(), strict=True)))}")
    pairs = left.crossJoin(right)
    texts = [f"({condition}) <=> ({key_of(condition)}) AS c{n}" for n, condition in enumerate(CONDITIONS)]
    equal = [f"max({condition}) AS e{n}" for n, condition in enumerate(CONDITIONS)]
    row = pairs.selectExpr(*texts).groupBy().agg(*_all_true(len(CONDITIONS))).first()
    wrong = [(c, key_of(c)) for c, right_ in zip(CONDITIONS, row, strict=True) if not right_]
    assert wrong == []
    assert sum(pairs.selectExpr(*equal).first()) >= 6


def _all_true(count: int):
    from pyspark.sql import functions

    return [functions.expr(f"bool_and(c{n})") for n in range(count)]
