"""ARRAYs, MAPs and STRUCTs without Spark: rows cut out of others, no rows, what is refused, laziness."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
import sqlglot

from tests.expressions.checking import arrow, ours, table_of, with_fields
from tests.expressions.test_nested_on_spark import EXPRESSIONS, TYPES, pools
from tests.support.columns import column
from watersmeet.errors import EngineError
from watersmeet.expressions.compiler import compile_column, expression_type
from watersmeet.expressions.evaluate import values
from watersmeet.expressions.physical_types import fits
from watersmeet.expressions.trees import tree_of
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.plan.query_inputs import JoinInputs
from watersmeet.spec.model import Input
from watersmeet.types.parser import sql_type


def test_rows_that_are_cut_out_of_others_mean_the_same_and_no_rows_nothing(request, monkeypatch):
    seed = request.config.watersmeet_seed
    rows = table_of(TYPES, pools(random.Random(seed)), seed, 90)
    different = []
    for text in EXPRESSIONS:
        whole, failing, _ = ours(text, rows, TYPES, "UTC", monkeypatch)
        part, _, _ = ours(text, rows.slice(7, 50), TYPES, "UTC", monkeypatch)
        none, _, _ = ours(text, rows.slice(5, 0), TYPES, "UTC", monkeypatch)
        alike = [repr(a) == repr(b) for a, b in zip(whole[7:57], part, strict=True)]
        if none or not all(same or bad for same, bad in zip(alike, failing[7:57], strict=True)):
            different.append(text)
    assert different == []


def test_null_lists_hide_their_child_elements():
    lists = pa.ListArray.from_arrays(
        [0, 2, 4, 5], pa.array([1, 2, 3, 4, 5]), mask=pa.array([False, True, False])
    )
    rows = pa.table({"l": lists.cast(pa.list_(pa.int32()))})
    assert evaluate_expression("array_max(l)", rows, "ARRAY<INT>") == [2, None, 5]
    assert evaluate_expression("array_contains(l, 4)", rows, "ARRAY<INT>") == [False, None, False]
    assert evaluate_expression("CAST(l AS ARRAY<STRING>)", rows, "ARRAY<INT>") == [["1", "2"], None, ["5"]]
    assert evaluate_expression("concat(l, l)", rows, "ARRAY<INT>") == [[1, 2, 1, 2], None, [5, 5]]


def test_an_element_that_fails_in_a_cast_is_shown_with_its_row():
    rows = pa.table({"l": pa.array([[1], None, [], [2, 3_000_000_000]], pa.list_(pa.int64()))})
    with pytest.raises(EngineError, match=r"CAST_OVERFLOW.*l = \[2, 3000000000\]"):
        evaluate_expression("CAST(l AS ARRAY<INT>)", rows, "ARRAY<BIGINT>")
    guarded = "CASE WHEN size(l) = 2 THEN CAST(l AS ARRAY<INT>) END"
    with pytest.raises(EngineError, match=r"CAST_OVERFLOW.*l = \[2, 3000000000\]"):
        evaluate_expression(guarded, rows, "ARRAY<BIGINT>")


def test_what_stands_after_a_null_is_not_looked_at():
    rows = pa.table({"l": pa.array([None, [1]], pa.list_(pa.int32()))})
    bad = "int(1 div coalesce(size(l), 0))"
    assert evaluate_expression(f"array_contains(l, {bad})", rows, "ARRAY<INT>") == [None, True]
    assert evaluate_expression(f"concat(l, array({bad}))", rows, "ARRAY<INT>") == [None, [1, 1]]
    with pytest.raises(EngineError, match="DIVIDE_BY_ZERO"):
        evaluate_expression("array_contains(array(1), int(1 div coalesce(size(l), 0)))", rows, "ARRAY<INT>")


def test_an_array_that_would_be_too_long_is_refused():
    rows = pa.table({"l": pa.array([[1]], pa.list_(pa.int32()))})
    for text in (
        "array_insert(l, 2147483647, 1)",
        "array_repeat(l, 2147483647)",
        "sequence(1L, 9000000000L, l[0])",
    ):
        with pytest.raises(EngineError, match="elements"):
            evaluate_expression(
                f"size({text})" if "insert" not in text else f"size(concat({text}, {text}))",
                rows,
                "ARRAY<INT>",
            )


@pytest.mark.parametrize(
    "text",
    [
        "ms = ms",
        "TRY_CAST(l AS ARRAY<TINYINT>)",
        "split(s, '[,;]')",
        "array_sort(l, (a, b) -> b - a)",
        "st.nothing",
        "array_remove(l, NULL)",
    ],
)
def test_what_is_not_known_to_be_the_same_is_refused(text):
    with pytest.raises(UnsupportedExpression):
        compile_text(
            text, {"l": "ARRAY<INT>", "ms": "MAP<STRING, INT>", "s": "STRING", "st": "STRUCT<a: INT>"}
        )


def test_a_column_of_another_type_than_planned_does_not_fit():
    assert fits(pa.map_(pa.string(), pa.int32()), sql_type("MAP<STRING,INT>"))
    assert fits(pa.list_(pa.field("element", pa.timestamp("us", "UTC"))), sql_type("ARRAY<TIMESTAMP>"))
    assert not fits(pa.list_(pa.int64()), sql_type("ARRAY<INT>"))
    assert not fits(arrow("STRUCT<a: INT>"), sql_type("STRUCT<a:INT,b:INT>"))
    assert not fits(pa.int32(), sql_type("ARRAY<INT>"))


def expression_of(text: str, types: dict[str, str], compiler):
    columns = tuple(column(name, type_) for name, type_ in types.items())
    tree = sqlglot.parse_one(text, dialect="spark").transform(with_fields)
    return compiler(tree, JoinInputs((Input("", columns, (), ()),)))


def compile_text(text: str, types: dict[str, str]):
    return expression_of(text, types, compile_column)


def evaluate_expression(text: str, rows: pa.Table, type_: str) -> list:
    return values(tree_of(compile_text(text, {"l": type_}).tree), rows, text).to_pylist()


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("hash(s) % 16", "INT"),
        ("xxhash64(s, l)", "BIGINT"),
        ("ln(size(l))", "DOUBLE"),
        ("vector_norm(v)", "FLOAT"),
        ("exists(l, e -> e > 1)", "BOOLEAN"),
        ("filter(l, e -> e > 1)[0]", "INT"),
        ("map_concat(ms, map('a', 1))['a']", "INT"),
    ],
)
def test_what_spark_alone_computes_has_the_type_by_which_stored_keys_are_cast(text, type_):
    types = {"l": "ARRAY<INT>", "ms": "MAP<STRING, INT>", "s": "STRING", "v": "ARRAY<FLOAT>"}
    assert str(expression_of(text, types, expression_type)) == type_
    with pytest.raises(UnsupportedExpression, match=r"\(\) is not on the list"):
        compile_text(text, types)
