# ruff: noqa: E501
"""Values of unlike types beside each other, within ARRAYs, STRUCTs and MAPs as well: what tasks take Spark takes, of
the same type, and of the same value."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from itertools import product

import pytest

from tests.expressions.checking import check, compiled_text, table_of
from tests.support.effort import at_effort
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.runtime.spark.catalog.result_types import Analyser
from watersmeet.types.sql_type import SqlType

pytestmark = pytest.mark.spark

DRAWN = at_effort(quick=800, full=2500)

SCALARS = {
    "t": "TINYINT", "i": "INT", "b": "BIGINT", "f": "FLOAT", "x": "DOUBLE", "m": "DECIMAL(10,2)",
    "n": "DECIMAL(5,0)", "w": "DECIMAL(38,18)", "s": "STRING", "y": "BINARY", "p": "BOOLEAN", "d": "DATE",
    "ts": "TIMESTAMP", "tn": "TIMESTAMP_NTZ",
}  # fmt: skip
NUMBERS = "tibfxmn"
WITHIN = {
    "": "{}", "l": "ARRAY<{}>", "ll": "ARRAY<ARRAY<{}>>", "r": "STRUCT<a: {}, b: INT>", "q": "STRUCT<z: {}, b: INT>",
    "g": "MAP<{}, INT>",
}  # fmt: skip
TYPES = {
    f"{within}{name}": form.format(kind) for within, form in WITHIN.items() for name, kind in SCALARS.items()
}
COMPARED = (
    "{} = {}",
    "{} < {}",
    "{} <=> {}",
    "{} IN ({})",
    "{} BETWEEN {} AND {}",
    "nullif({}, {})",
    "equal_null({}, {})",
)
CHOSEN = (
    "CASE WHEN true THEN {} ELSE {} END",
    "coalesce({}, {})",
    "greatest({}, {})",
    "least({}, {})",
    "array({}, {})",
)
OF_LISTS = (
    "array_union({}, {})", "array_intersect({}, {})", "array_except({}, {})", "arrays_overlap({}, {})", "concat({}, {})",
)  # fmt: skip
OF_ELEMENTS = (
    "array_contains({}, {})", "array_position({}, {})", "array_remove({}, {})", "array_append({}, {})",
    "array_prepend({}, {})", "array_insert({}, 1, {})", "array_repeat({}, {})", "element_at({}, {})", "{}[{}]",
)  # fmt: skip
OF_KEYS = ("{}[{}]", "element_at({}, {})", "map_contains_key({}, {})")
SHAPES = [
    *product((*COMPARED, *CHOSEN), (("", ""), ("l", "l"), ("r", "r"), ("r", "q"), ("ll", "ll"))),
    *product(OF_LISTS, (("l", "l"), ("ll", "ll"))), *product(OF_ELEMENTS, (("l", ""), ("ll", "l"))),
    *product(OF_KEYS, (("g", ""),)), *product(("coalesce({}, {})", "greatest({}, {})"), (("g", "g"),)),
]  # fmt: skip


def expressions(names: str) -> Iterator[str]:
    for (form, (one, other)), left, right in product(SHAPES, names, names):
        both = f"{one}{left}1", f"{other}{right}2"
        yield form.format(*both, *both[1:] * (form.count("{}") - 2))


def type_in_tasks(text: str) -> SqlType | None:
    """None: Spark computes it."""
    try:
        return compiled_text(text, TYPES, "UTC").type
    except UnsupportedExpression:
        return None


def test_tasks_take_what_spark_takes_and_as_the_same_type(spark, seed):
    columns = [f"CAST(NULL AS {kind}) AS {name}{n}" for name, kind in TYPES.items() for n in (1, 2)]
    spark.range(1).selectExpr(*columns).createOrReplaceTempView("watersmeet_compared")
    some = random.Random(seed).sample(list(expressions(tuple(SCALARS))), DRAWN)
    asked = [text for text in some if type_in_tasks(text) is not None]
    answers = Analyser(spark, "watersmeet_compared").all(asked, singly=len(asked))
    wrong = [
        (text, type_in_tasks(text), answer.type)
        for text, answer in zip(asked, answers, strict=True)
        if _format_type(type_in_tasks(text)) != _format_type(answer.type)
    ]
    assert len(asked) > at_effort(quick=80, full=300)
    assert not wrong, wrong[:20]


def _format_type(kind: SqlType | None) -> str:
    return str(kind).upper().replace(" ", "")


def pools(rng: random.Random) -> dict[str, list]:
    """Numbers that FLOAT, DOUBLE and integers round to each other."""
    numbers = {
        "t": [0, 1, -1, 127, None],
        "i": [0, 1, 16777217, 16777216, 2**31 - 1, None],
        "b": [0, 1, 16777217, 2**53, 2**53 + 1, 2**63 - 1, None],
        "f": [0.0, -0.0, 1.0, 16777216.0, 2.0**53, 2.0**31, 2.0**63, float("nan"), 0.5, None],
        "x": [0.0, -0.0, 1.0, 16777217.0, 2.0**53, 2.0**31 - 1, 2.0**63, float("nan"), 0.1, None],
        "m": [Decimal("0.00"), Decimal("1.00"), Decimal("0.50"), Decimal("16777217.00"), None],
        "n": [Decimal(0), Decimal(1), Decimal(127), Decimal(99999), None],
    }  # fmt: skip

    def lists(pool: list) -> list:
        return [None, [], *([rng.choice(pool) for _ in range(rng.randrange(1, 4))] for _ in range(40))]

    found: dict[str, list] = {}
    for name, pool in numbers.items():
        own = lists(pool)
        plain = [each for each in pool if each is not None]
        maps = [
            [(key, n) for n, key in enumerate(rng.sample(plain[1:], rng.randrange(3)))] for _ in range(20)
        ]
        found |= {name: pool, f"l{name}": own, f"ll{name}": lists(own), f"g{name}": [*maps, None]}
        for within, field in (("r", "a"), ("q", "z")):
            found[f"{within}{name}"] = [
                None,
                *({field: each, "b": rng.choice([0, 1, None])} for each in pool),
            ]
    return found


def test_tasks_compute_what_spark_computes(spark, seed, monkeypatch):
    rng = random.Random(seed)
    known = pools(rng)
    types = {name: TYPES[name] for name in known}
    mixed = [
        text for text in expressions(NUMBERS) if "repeat" not in text and type_in_tasks(text) is not None
    ]
    chosen = rng.sample(mixed, at_effort(quick=60, full=200))
    check(spark, chosen, table_of(types, known, seed, 400), types, "UTC", monkeypatch, failures=False)
