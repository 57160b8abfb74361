"""Texts that become numbers and times in tasks: what fails, and for which rows it is looked at all."""

from __future__ import annotations

import pyarrow as pa
import pytest
import sqlglot

from tests.support.columns import column
from watersmeet.errors import EngineError
from watersmeet.expressions.compiler import compile_column
from watersmeet.expressions.evaluate import values
from watersmeet.expressions.trees import tree_of
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.plan.query_inputs import JoinInputs
from watersmeet.spec.model import Input

COLUMNS = (column("s", "STRING"), column("n", "INT"), column("x", "DOUBLE"))


def evaluate_expression(text: str, **columns: list) -> list:
    rows = pa.table({name: pa.array(each) for name, each in columns.items()})
    scope = JoinInputs((Input("", COLUMNS, (), ()),), time_zone="UTC")
    return values(
        tree_of(compile_column(sqlglot.parse_one(text, dialect="spark"), scope).tree), rows, text
    ).to_pylist()


def test_a_time_without_a_date_fails_for_its_day_would_be_that_of_the_run():
    for text in ("CAST(s AS TIMESTAMP)", "TRY_CAST(s AS TIMESTAMP)"):
        with pytest.raises(EngineError, match="time without a date") as caught:
            evaluate_expression(text, s=["2024-01-01", None, "12:30"])
        assert "s = '12:30'" in str(caught.value)


@pytest.mark.parametrize("text", ["1e-2147483647", "1e2147483647"])
def test_what_java_cannot_round_fails_in_try_cast_too(text):
    with pytest.raises(EngineError, match="ARITHMETIC_EXCEPTION"):
        evaluate_expression("TRY_CAST(s AS DECIMAL(10,2))", s=[text])


def test_text_compared_with_null_is_not_cast():
    assert evaluate_expression("n = s", n=pa.array([None, 1], pa.int32()), s=["none", "1"]) == [None, True]
    with pytest.raises(EngineError, match="CAST_INVALID_INPUT"):
        evaluate_expression("n = s", n=pa.array([2, 1], pa.int32()), s=["none", "1"])
    with pytest.raises(EngineError, match="CAST_INVALID_INPUT"):
        evaluate_expression("n <=> s", n=pa.array([None, 1], pa.int32()), s=["none", "1"])


@pytest.mark.parametrize("text", ["CAST(x AS STRING)", "concat(s, x)", "s + n"])
def test_what_rests_on_the_version_of_java_is_left_to_spark(text):
    with pytest.raises(UnsupportedExpression):
        evaluate_expression(text)


def test_a_result_that_one_array_cannot_hold_is_an_error():
    with pytest.raises(EngineError, match="2 GiB"):
        evaluate_expression("repeat(s, 2000000000)", s=["ab"])
    with pytest.raises(EngineError, match="2 GiB"):
        evaluate_expression("lpad(s, n)", s=["ab", "a"], n=pa.array([2_000_000_000] * 2, pa.int32()))


def test_elt_of_no_such_number_fails_and_reads_no_other_text():
    assert evaluate_expression("elt(n, s, CAST(s AS INT))", s=["a", "2"], n=pa.array([1, 2], pa.int32())) == [
        "a",
        "2",
    ]
    with pytest.raises(EngineError, match="INVALID_ARRAY_INDEX"):
        evaluate_expression("elt(n, s)", s=["a"], n=pa.array([2], pa.int32()))


@pytest.mark.parametrize(
    "pattern",
    [r"a(?=b)", r"(a)\\1", r"a++", r"\\bA", "(?s)a", "[a[b]]", "[a&&b]", "(a*)*", "a{",
     r"\\p{L}", "(?<n>a)", "x{1,2}{3}", "é(?i)"],
)  # fmt: skip
def test_patterns_that_java_may_read_otherwise_are_left_to_spark(pattern):
    with pytest.raises(UnsupportedExpression):
        evaluate_expression(f"s RLIKE '{pattern}'")
