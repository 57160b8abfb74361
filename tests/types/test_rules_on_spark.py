# ruff: noqa: E501
"""The rules of types, asked of Spark for every pair of types: what it compares, chooses from, puts together and
computes them as. Nothing is run: Spark says of what type it would be."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest

from watersmeet.types.arrow import in_arrow
from watersmeet.types.coercion import common_type, mean_type, result_type, total_type
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import INTEGERS, SqlType

pytestmark = pytest.mark.spark

PLAIN = [
    *map(str, INTEGERS),
    "FLOAT",
    "DOUBLE",
    "BOOLEAN",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "VOID",
]
DECIMALS = [
    "DECIMAL(5,2)",
    "DECIMAL(10,0)",
    "DECIMAL(18,9)",
    "DECIMAL(38,0)",
    "DECIMAL(38,18)",
    "DECIMAL(38,38)",
]
INTERVALS = ["INTERVAL DAY TO SECOND", "INTERVAL HOUR", "INTERVAL YEAR TO MONTH", "INTERVAL MONTH"]
NESTED = [
    *("ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<DECIMAL(5,2)>", "ARRAY<STRING>", "MAP<STRING, INT>", "MAP<STRING, BIGINT>"),
    *("STRUCT<a: INT>", "STRUCT<A: BIGINT>", "STRUCT<b: INT>", "STRUCT<a: INT, b: DATE>", "ARRAY<STRUCT<a: FLOAT>>"),
]  # fmt: skip


class Spark:
    """A view with a NULL of each type, and what Spark makes of them."""

    def __init__(self, session: Any, types: Sequence[str]) -> None:
        nulls = ", ".join(f"CAST(NULL AS {type_}) AS c{place}" for place, type_ in enumerate(types))
        session.sql(f"SELECT {nulls} FROM VALUES (1)").createOrReplaceTempView("of_types")
        self._session = session
        self._state = session._jsparkSession.sessionState()

    def analyze_query(self, text: str) -> Any:
        return self._state.analyzer().execute(self._state.sqlParser().parsePlan(text))

    def expressions(self, texts: Sequence[str]) -> Iterator[Any]:
        """Each as it was resolved; None: Spark refuses it."""
        nodes = self.analyze_query(
            f"SELECT {', '.join(f'{text} AS e' for text in texts)} FROM of_types"
        ).expressions()
        assert nodes.size() == len(texts)
        for place in range(len(texts)):
            yield nodes.apply(place).child() if nodes.apply(place).resolved() else None

    def types(self, texts: Sequence[str]) -> list[SqlType | None]:
        return [None if each is None else type_of(each) for each in self.expressions(texts)]


def type_of(node: Any) -> SqlType:
    return sql_type(node.dataType().sql()).nullable


@pytest.fixture(scope="module")
def types(request) -> list[str]:
    draw = random.Random(request.config.watersmeet_seed)
    digits = [draw.randint(1, 38) for _ in range(4)]
    return [*PLAIN, *DECIMALS, *(f"DECIMAL({n},{draw.randint(0, n)})" for n in digits), *INTERVALS, *NESTED]


@pytest.fixture(scope="module")
def spark_analyzer(spark, types) -> Spark:
    return Spark(spark, types)


def different(types: Sequence[str], spark: Sequence[SqlType | None], rule: Any) -> list[str]:
    """Pairs of which Spark says something else."""
    pairs = list(product(types, repeat=2))
    assert len(pairs) == len(spark)
    return [
        f"{left} and {right}: {found}, and by the rule {ours}"
        for (left, right), found in zip(pairs, spark, strict=True)
        if (ours := rule(sql_type(left), sql_type(right))) != found
    ]


def pairs(types: Sequence[str], form: str) -> list[str]:
    return [form.format(f"c{i}", f"c{j}") for i, j in product(range(len(types)), repeat=2)]


@pytest.mark.parametrize(
    "form",
    ["coalesce({0}, {1})", pytest.param("CASE WHEN TRUE THEN {0} ELSE {1} END", marks=pytest.mark.full)],
)
def test_what_is_chosen_from(spark_analyzer, types, form):
    assert different(types, spark_analyzer.types(pairs(types, form)), common_type) == []


def test_union_column_types_match_spark(spark_analyzer, types):
    found: list[SqlType | None] = []
    second = ", ".join(f"c{place}" for place in range(len(types)))
    for first in range(len(types)):
        union = spark_analyzer.analyze_query(
            f"SELECT {', '.join(f'c{first} AS e{n}' for n in range(len(types)))} FROM of_types"
            f" UNION ALL SELECT {second} FROM of_types"
        )
        both = [union.children().apply(side).output() for side in (0, 1)]
        for place in range(len(types)):
            one, other = (type_of(each.apply(place)) for each in both)
            found.append(one if one == other else None)
    assert different(types, found, common_type) == []


@pytest.mark.parametrize("operator", ["=", pytest.param("<", marks=pytest.mark.full)])
def test_what_is_compared(spark_analyzer, types, operator):
    """Nested types are another matter: less is compared of them."""
    plain = [type_ for type_ in types if type_ not in NESTED]
    assert plain == types[: len(plain)]
    found = []
    for node in spark_analyzer.expressions(pairs(plain, f"{{0}} {operator} {{1}}")):
        both = set() if node is None else {type_of(node.left()), type_of(node.right())}
        assert len(both) < 2
        found.append(both.pop() if both else None)
    assert different(plain, found, common_type) == []


@pytest.mark.parametrize("operator", ["+", pytest.param("-", marks=pytest.mark.full), "*", "/", "%", "DIV"])
def test_what_is_computed(spark_analyzer, types, operator):
    found = spark_analyzer.types(pairs(types, f"{{0}} {operator} {{1}}"))
    numbers = [
        each if sql_type(left).is_number and sql_type(right).is_number else None
        for (left, right), each in zip(product(types, repeat=2), found, strict=True)
    ]
    assert sum(each is not None for each in numbers) > 100
    assert different(types, numbers, lambda left, right: result_type(operator, left, right)) == []


@pytest.mark.parametrize(("function", "rule"), [("sum", total_type), ("avg", mean_type)])
def test_what_is_summed_up(spark, types, function, rule):
    wrong = []
    for type_ in types:
        if rule(sql_type(type_)) is not None:
            field = spark.sql(f"SELECT {function}(CAST(NULL AS {type_})) AS e").schema[0]
            if str(rule(sql_type(type_))) != field.dataType.simpleString().upper():
                wrong.append(f"{function}({type_}): {field.dataType.simpleString()}")
    assert wrong == []


def test_what_is_handed_over(spark_analyzer, spark, types):
    from pyspark.sql.pandas.types import to_arrow_type

    for type_, field in zip(types, spark.table("of_types").schema, strict=True):
        ours = in_arrow(sql_type(type_))
        if ours is not None:
            sent = str(to_arrow_type(field.dataType, timezone="UTC"))
            assert sent.replace(", tz=UTC", "").replace("<element:", "<item:") == str(ours), type_
