"""What `why` computes of rows: an expression is compiled once, and no other is taken for it."""

from __future__ import annotations

import gc

import pyarrow as pa
from sqlglot import exp

from tests.support.columns import column
from watersmeet.plan.query_inputs import JoinInputs
from watersmeet.spec.model import Input
from watersmeet.why import expressions
from watersmeet.why.expressions import value_of

ROWS = pa.table({"n": pa.array([1, 20], pa.int64())})
OF_N = Input("", (column("n", "BIGINT"),), (), ())


def at_least(number: int) -> exp.GTE:
    return exp.GTE(this=exp.column("n", table=""), expression=exp.Literal.number(number))


def test_an_expression_is_compiled_once_over_the_same_inputs(monkeypatch):
    asked, compiled = [], expressions.compile_expression

    def record_compilation(expr, inputs):
        asked.append(expr)
        return compiled(expr, inputs)

    monkeypatch.setattr(expressions, "compile_expression", record_compilation)
    expr = at_least(5)
    for _ in range(3):
        assert value_of(expr, JoinInputs((OF_N,)), ROWS).to_pylist() == [False, True]
    assert len(asked) == 1
    wall = JoinInputs((OF_N,), time_zone="America/New_York")
    assert value_of(expr, wall, ROWS).to_pylist() == [False, True]
    assert len(asked) == 2


def test_expression_in_reused_memory_is_compiled_for_itself():
    """More of them than are kept, one after the other in the same memory."""
    for number in range(600):
        own = number % 30
        inputs = JoinInputs((Input("", (column("n", "BIGINT"),), (), ()),))
        assert value_of(at_least(own), inputs, ROWS).to_pylist() == [own <= 1, own <= 20], number
        if number % 50 == 0:
            gc.collect()  # trees are circles
