"""ARRAYs, MAPs and STRUCTs without Spark: rows cut out of others, no rows, what is refused, laziness."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
import sqlglot

from tests.plan.exact.checking import arrow, ours, table_of, with_fields
from tests.plan.exact.test_nested_on_spark import EXPRESSIONS, TYPES, pools
from tests.support.columns import column
from watersmeet.errors import EngineError
from watersmeet.kernel.expressions.evaluate import fits, tree_of, values
from watersmeet.plan.exact import NotExact, exact
from watersmeet.plan.join_inputs import JoinInputs
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


def test_null_lists_that_have_elements_beneath_have_none():
    lists = pa.ListArray.from_arrays(
        [0, 2, 4, 5], pa.array([1, 2, 3, 4, 5]), mask=pa.array([False, True, False])
    )
    rows = pa.table({"l": lists.cast(pa.list_(pa.int32()))})
    assert computed("array_max(l)", rows, "ARRAY<INT>") == [2, None, 5]
    assert computed("exists(l, e -> e = 4)", rows, "ARRAY<INT>") == [False, None, False]
    assert computed("concat(l, l)", rows, "ARRAY<INT>") == [[1, 2, 1, 2], None, [5, 5]]


def test_a_lambda_is_not_asked_of_elements_after_the_one_that_decides():
    rows = pa.table({"l": pa.array([[2, 0], [4], None, []], pa.list_(pa.int32()))})
    assert computed("exists(l, e -> 8 div e = 4)", rows, "ARRAY<INT>") == [True, False, None, False]
    assert computed("forall(l, e -> 8 div e < 4)", rows, "ARRAY<INT>") == [False, True, None, True]
    for text in (
        "exists(l, e -> 8 div e = 3)",
        "transform(l, e -> 8 div e)",
        "aggregate(l, 0L, (a, e) -> a + 8 div e)",
    ):
        with pytest.raises(EngineError, match=r"DIVIDE_BY_ZERO.*l = \[2, 0\]"):
            computed(text, rows, "ARRAY<INT>")


def test_what_stands_after_a_null_is_not_looked_at():
    rows = pa.table({"l": pa.array([None, [1]], pa.list_(pa.int32()))})
    bad = "int(1 div coalesce(size(l), 0))"
    assert computed(f"array_contains(l, {bad})", rows, "ARRAY<INT>") == [None, True]
    assert computed(f"concat(l, array({bad}))", rows, "ARRAY<INT>") == [None, [1, 1]]
    assert computed("aggregate(l, int(1 div coalesce(size(l), 0)), (a, e) -> a + e)", rows, "ARRAY<INT>") == [
        None,
        2,
    ]
    with pytest.raises(EngineError, match="DIVIDE_BY_ZERO"):
        computed("array_contains(array(1), int(1 div coalesce(size(l), 0)))", rows, "ARRAY<INT>")


def test_a_lambdas_parameter_hides_what_has_its_name():
    rows = pa.table({"l": pa.array([[1, 2]], pa.list_(pa.int32()))})
    assert computed("transform(l, c0 -> c0 + size(l))", rows, "ARRAY<INT>") == [[3, 4]]
    assert computed("transform(l, v1 -> exists(l, v2 -> v2 > v1))", rows, "ARRAY<INT>") == [[True, False]]
    assert computed("transform(l, e -> transform(l, e -> e))", rows, "ARRAY<INT>") == [[[1, 2], [1, 2]]]


def test_an_array_that_would_be_too_long_is_refused():
    rows = pa.table({"l": pa.array([[1]], pa.list_(pa.int32()))})
    for text in (
        "array_insert(l, 2147483647, 1)",
        "array_repeat(l, 2147483647)",
        "sequence(1L, 9000000000L, l[0])",
    ):
        with pytest.raises(EngineError, match="elements"):
            computed(
                f"size({text})" if "insert" not in text else f"size(concat({text}, {text}))",
                rows,
                "ARRAY<INT>",
            )


@pytest.mark.parametrize(
    "text",
    [
        "map(1.5D, 1)[1.5D]",  # of -0.0 as a key Spark makes now 0.0, now not
        "ms = ms",
        "TRY_CAST(l AS ARRAY<TINYINT>)",
        "aggregate(l, 0L, (a, e) -> 1)",
        "split(s, '[,;]')",
        "array_sort(l, (a, b) -> b - a)",
        "transform(l, (a, b, c) -> a)",
        "st.nothing",
        "array_remove(l, NULL)",
    ],
)
def test_what_is_not_known_to_be_the_same_is_refused(text):
    with pytest.raises(NotExact):
        compiled(text, {"l": "ARRAY<INT>", "ms": "MAP<STRING, INT>", "s": "STRING", "st": "STRUCT<a: INT>"})


def test_a_column_of_another_type_than_planned_does_not_fit():
    assert fits(pa.map_(pa.string(), pa.int32()), sql_type("MAP<STRING,INT>"))
    assert fits(pa.list_(pa.field("element", pa.timestamp("us", "UTC"))), sql_type("ARRAY<TIMESTAMP>"))
    assert not fits(pa.list_(pa.int64()), sql_type("ARRAY<INT>"))
    assert not fits(arrow("STRUCT<a: INT>"), sql_type("STRUCT<a:INT,b:INT>"))
    assert not fits(pa.int32(), sql_type("ARRAY<INT>"))


def compiled(text: str, types: dict[str, str]):
    columns = tuple(column(name, type_) for name, type_ in types.items())
    return exact(
        sqlglot.parse_one(text, dialect="spark").transform(with_fields),
        JoinInputs((Input("", columns, (), ()),)),
    )


def computed(text: str, rows: pa.Table, type_: str) -> list:
    return values(tree_of(compiled(text, {"l": type_}).tree), rows, text).to_pylist()
