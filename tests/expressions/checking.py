# ruff: noqa: E501
"""Compare what tasks compute with what Spark computes: functions × types × zones, over values at the edges.

For every expression: the rows for which tasks do not fail give Spark's value, and do not fail there either;
of the rows for which they fail, some are given to Spark alone, and fail there by the same condition.

Quick effort compares drawn expressions that have every function, operator, unit and type between them, over
fewer rows and in two zones, and gives Spark a drawn part of the rows that fail. Full effort compares all.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlglot

from tests.support.columns import column
from tests.support.effort import EFFORT, at_effort
from watersmeet.expressions import base
from watersmeet.expressions.compiler import compile_expression
from watersmeet.expressions.evaluate import values
from watersmeet.expressions.physical_types import native
from watersmeet.expressions.trees import tree_of
from watersmeet.expressions.typed_tree import TypedTree
from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.plan.query_inputs import JoinInputs
from watersmeet.spec.model import Input
from watersmeet.zones import zone

ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
ZONE_PARAMETERS = [*ZONES[:2], *(pytest.param(name, marks=pytest.mark.full) for name in ZONES[2:])]
ROWS = 3000
WORDS = re.compile(r"[^\W\d]\w*|[^\w\s'(),.]+")
"""Names of functions, columns, types and units, and operators."""
MAX_ROWS = at_effort(quick=600, full=ROWS)
MAX_FAILURES = at_effort(quick=25, full=None)
"""Rows that fail in tasks of which each is given to Spark alone, by a query of its own."""
AT_ONCE = 60
ARROW = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(), "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(), "STRING": pa.string(), "BOOLEAN": pa.bool_(), "BINARY": pa.binary(), "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ": pa.timestamp("us"),
}  # fmt: skip
EXCLUDED = "spark.sql.optimizer.excludedRules"
AS_LOCAL_ROWS = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
EPOCH = datetime(1970, 1, 1)


def arrow(type_: str) -> pa.DataType:
    nested = sqlglot.exp.DataType.build(type_, dialect="spark")
    if nested.args.get("nested"):
        inner = [arrow((each.args.get("kind") or each).sql(dialect="spark")) for each in nested.expressions]
        if type_.startswith("STRUCT"):
            return pa.struct(
                [(each.name, kind) for each, kind in zip(nested.expressions, inner, strict=True)]
            )
        return pa.map_(*inner) if type_.startswith("MAP") else pa.list_(*inner)
    found = re.fullmatch(r"DECIMAL\((\d+), ?(\d+)\)", type_)
    return ARROW[type_] if found is None else pa.decimal128(int(found[1]), int(found[2]))


def table_of(
    types: Mapping[str, str], pools: Mapping[str, Sequence[Any]], seed: int, rows: int = ROWS
) -> pa.Table:
    """For each name of ``types`` two columns, ``name1`` and ``name2``, of values drawn from its pool."""
    rng, rows = random.Random(seed), min(rows, MAX_ROWS)
    columns = {}
    for name, type_ in types.items():
        for n in (1, 2):
            chosen = [rng.choice(pools[name]) for _ in range(rows)]
            if type_.startswith("TIMESTAMP"):
                us = [
                    None if each is None else (each - EPOCH) // timedelta(microseconds=1) for each in chosen
                ]
                columns[f"{name}{n}"] = pa.array(us, pa.int64()).view(arrow(type_))
            else:
                columns[f"{name}{n}"] = pa.array(chosen, arrow(type_))
    return pa.table(columns)


def check(
    spark: Any,
    expressions: Sequence[str],
    rows: pa.Table,
    types: Mapping[str, str],
    zone_name: str,
    monkeypatch: Any,
    *,
    failures: bool = True,
) -> None:
    """Fails with all differences, the first row of each. ``failures``: are rows tried that fail in tasks?"""
    if EFFORT == "quick":
        expressions = covering(expressions, random.Random(f"{zone_name} {len(expressions)}"))
    before = {key: spark.conf.get(key, None) for key in ("spark.sql.session.timeZone", EXCLUDED)}
    spark.conf.set("spark.sql.session.timeZone", zone_name)
    spark.conf.set(EXCLUDED, AS_LOCAL_ROWS)  # else Spark interprets here what it compiles in jobs
    try:
        different = _differences(spark, expressions, rows, types, zone_name, monkeypatch, failures)
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    for text, found in different.items():
        print(zone_name, text, found)
    assert different == {}


def covering(expressions: Sequence[str], rng: random.Random) -> list[str]:
    """Draw expressions until every word of any of them is in one that is drawn."""
    drawn: list[str] = []
    seen: set[str] = set()
    for text in rng.sample(list(expressions), len(expressions)):
        if not seen.issuperset(WORDS.findall(text)):
            seen.update(WORDS.findall(text))
            drawn.append(text)
    return drawn


def _differences(spark, expressions, rows, types, zone_name, monkeypatch, failures) -> dict[str, Any]:
    mine = {text: ours(text, rows, types, zone_name, monkeypatch) for text in expressions}
    given = rows
    for n, (_, failing, _) in enumerate(mine.values()):
        given = given.append_column(f"ok{n}", pa.array(~failing))
    given = given.append_column("n", pa.array(np.arange(rows.num_rows)))
    frame = _frame(spark, given)
    different: dict[str, Any] = {}
    for first in range(0, len(expressions), AT_ONCE):
        part = expressions[first : first + AT_ONCE]
        selected = [f"CASE WHEN ok{first + n} THEN {text} END AS v{n}" for n, text in enumerate(part)]
        answer = frame.selectExpr("n", *selected).toArrow().sort_by("n")
        for n, text in enumerate(part):
            got, failing, _ = mine[text]
            spark_says = plain(answer.column(f"v{n}").combine_chunks())
            right = np.flatnonzero(~failing).tolist()
            wrong = [row for row in right if repr(spark_says[row]) != repr(got[row])]
            if wrong:
                shown = {c: rows.column(c)[wrong[0]].as_py() for c in _list_mentioned_columns(text, rows)}
                different[text] = (len(wrong), shown, got[wrong[0]], spark_says[wrong[0]])
    for text, condition, row in _failures(mine) if failures else ():
        alone = rows.select(_list_mentioned_columns(text, rows)).slice(row, 1)
        try:
            _frame(spark, alone).selectExpr(f"{text} AS v").collect()
            different[text + " fails"] = (condition, alone.to_pylist()[0])
        except Exception as error:
            # Of an exception of Java's own the name is its condition; some have their words alone.
            known = (
                f"[{condition}",
                f"java.lang.{condition}: ",
                *([condition] if " " in condition else []),
            )
            named = type(error).__name__ == condition and not str(error).startswith("[")
            if not named and not any(words in str(error) for words in known):
                different[text + " fails"] = (condition, str(error)[:150])
    return different


def _failures(mine: Mapping[str, tuple[list[Any], np.ndarray, dict[int, str]]]) -> list[tuple[str, str, int]]:
    """Return one row that fails for each expression and condition, or a drawn part of these."""
    found = [
        (text, condition, row)
        for text, (_, failing, conditions) in mine.items()
        for condition, row in {conditions[row]: row for row in np.flatnonzero(failing).tolist()}.items()
    ]
    if MAX_FAILURES is None or len(found) <= MAX_FAILURES:
        return found
    return random.Random(len(found)).sample(found, MAX_FAILURES)


def _frame(spark: Any, rows: pa.Table) -> Any:
    """Times without a zone stay so."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


def ours(
    text: str, rows: pa.Table, types: Mapping[str, str], zone_name: str, monkeypatch: Any
) -> tuple[list[Any], np.ndarray, dict[int, str]]:
    """(values, rows that fail, their conditions)."""
    found = compiled_text(text, types, zone_name)
    failing = np.zeros(rows.num_rows, dtype=np.bool_)
    conditions: dict[int, str] = {}

    def record_failures(bad, condition, what, *arguments):
        known = base.where_known(*arguments)
        bad = bad if known is None else bad & known
        if bad.any() and not base.forgiven(bad, condition):
            assert len(bad) == rows.num_rows, "a lazy part fails: guard it better"
            fresh = np.flatnonzero(bad & ~failing).tolist()  # of two conditions the first counts
            failing[bad] = True
            conditions.update(dict.fromkeys(fresh, condition))

    with monkeypatch.context() as patched:
        patched.setattr(base, "check", record_failures)
        array = values(tree_of(found.tree), rows, text)
    if failing.any():  # what is there is of no meaning
        array = pc.if_else(pa.array(failing), pa.nulls(len(array), array.type), array)
    return (
        plain(array if found.type.is_interval else native(array, found.type, True)),
        failing,
        conditions,
    )


def compiled_text(text: str, types: Mapping[str, str], zone_name: str) -> TypedTree:
    columns = tuple(column(f"{name}{n}", type_) for name, type_ in types.items() for n in (1, 2))
    expr = sqlglot.parse_one(text, dialect=Watersmeet).transform(with_fields)
    return compile_expression(expr, JoinInputs((Input("", columns, (), ()),), time_zone=zone_name))


def with_fields(node: sqlglot.exp.Expression) -> sqlglot.exp.Expression:
    """``column.field``, as the front writes it."""
    if not isinstance(node, sqlglot.exp.Column) or len(node.parts) == 1:
        return node
    found: sqlglot.exp.Expression = sqlglot.exp.Column(this=node.parts[0].copy())
    for part in node.parts[1:]:
        found = sqlglot.exp.Dot(this=found, expression=part.copy())
    return found


def _list_mentioned_columns(text: str, rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if re.search(rf"\b{name}\b", text)]


def plain(array: pa.Array) -> list[Any]:
    """Values; times as their numbers, for Python knows no year 0 and none beyond 9999."""
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type):
        array = array.view(pa.int64())
    return (array.view(pa.int32()) if pa.types.is_date32(array.type) else array).to_pylist()


def moments(rng: random.Random) -> list[datetime]:
    """Around the changes of all zones, and at the ends; in UTC."""
    found = []
    for name in ZONES:
        for start in zone(name).starts:
            for off in (0, 1, -1, 1_800_000_000, -3_600_000_000, 5_400_000_001):
                us = int(start) + off
                if -62_135_596_800_000_000 <= us <= 253_402_300_799_999_999:
                    found.append(EPOCH + timedelta(microseconds=us))
    near = [each for each in found if 2023 <= each.year <= 2025]
    some = rng.sample(found, 200)
    ends = [
        datetime(1, 1, 1),
        datetime(1, 1, 3, 5),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(9999, 12, 30),
    ]
    return [*near * 3, *some, *ends, datetime(1969, 12, 31, 23, 59, 59, 500000), datetime(2024, 3, 10, 7)]
