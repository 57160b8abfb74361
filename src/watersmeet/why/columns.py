"""Expressions of a query over rows that were read again: columns of its inputs, conditions, values.

The same few are asked of row after row: what they are compiled to and their text are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from watersmeet.engine.values import arrow_type
from watersmeet.errors import EngineError
from watersmeet.event_time import Side
from watersmeet.expressions.compiler import compile_expression
from watersmeet.expressions.evaluate import Computed
from watersmeet.expressions.trees import tree_of
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.kernel.batches import one_array
from watersmeet.plan.evaluated import shown, source_inputs
from watersmeet.plan.join_inputs import JoinInputs, refs
from watersmeet.plan.model.sides import joined_name
from watersmeet.spec.model import Branch, Expr, Input, Source
from watersmeet.types.arrow import in_arrow


class Same:
    """Equal to what holds the very same object: a key that is not as long to compare as a tree is."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.of is other.of

    def __hash__(self) -> int:
        return id(self.of)


def value_of(expr: Expr, inputs: JoinInputs, rows: pa.Table) -> pa.Array:
    """An expression's values, as Spark has them, in its type.

    Raises:
        EngineError: only Spark computes it, or it fails for a row.
    """
    in_order = tuple(Same(given) for given in inputs.in_order)
    computed = _computed(Same(expr), in_order, inputs.split, inputs.joined, inputs.time_zone)
    if isinstance(computed, UnsupportedExpression):
        raise EngineError(
            f"why cannot evaluate {shown_once(expr)} like Spark: {computed}",
            code="not-computed",
            hint="ask about another input or query",
        )
    array = computed.of(rows)
    return one_array(array) if isinstance(array, pa.ChunkedArray) else array


@lru_cache(256)
def _computed(
    expr: Same, inputs: tuple[Same, ...], split: int, joined: frozenset[Side], zone: str
) -> Computed | UnsupportedExpression:
    try:
        expression = compile_expression(
            expr.of, JoinInputs(tuple(given.of for given in inputs), split, joined, zone)
        )
    except UnsupportedExpression as why:
        return why.with_traceback(None)
    words = f"the expression {shown_once(expr.of)}"
    return Computed("", tree_of(expression.tree), expression.type, words, zoned=False)


def inputs_of(source: Source, zone: str) -> JoinInputs:
    """See `plan.evaluated.source_inputs`; the same for the same source, so that what is compiled over them is
    found again."""
    return _inputs(Same(source), zone)


@lru_cache(64)
def _inputs(source: Same, zone: str) -> JoinInputs:
    return source_inputs(source.of, zone)


def shown_once(expr: Expr) -> str:
    """See `plan.evaluated.shown`, which is asked once."""
    return _shown(Same(expr))


@lru_cache(256)
def _shown(expr: Same) -> str:
    return shown(expr.of)


def columns_of(given: Input, branch: Branch, names: Sequence[str], rows: pa.Table, zone: str) -> pa.Table:
    """Columns of an input, called `joined_name`, of the rows of a source.

    Raises: EngineError as `value_of`.
    """
    inputs = inputs_of(branch.source, zone)
    exprs = dict(zip((column.name for column in given.columns), branch.columns, strict=True))
    arrays: list[Any] = []
    for name in names:
        array = value_of(exprs[name], inputs, rows)
        column = given.column(name)
        if column is not None and in_arrow(column.type) is not None:
            kind = arrow_type(column.type)
            array = array if array.type == kind else array.cast(kind, safe=False)
        arrays.append(array)
    if not arrays:  # as many rows all the same
        return pa.table({"": pa.nulls(rows.num_rows)})
    return pa.table(arrays, names=[joined_name(given.alias, name) for name in names])


def repeated(row: pa.Table, count: int) -> pa.Table:
    """A table of one row, so many times."""
    return row.take(pa.array([0] * count, pa.int64()))


def beside(left: pa.Table, right: pa.Table) -> pa.Table:
    """The columns of two tables of as many rows."""
    names = [*left.column_names, *(name for name in right.column_names if name not in left.column_names)]
    arrays = [*left.columns, *(right.column(name) for name in names[left.num_columns :])]
    return pa.table(arrays, names=names)


def mentioned(exprs: Sequence[Expr], alias: str) -> list[str]:
    """The columns of an input that expressions mention."""
    return list(dict.fromkeys(name for expr in exprs for of, name in refs(expr) if of == alias))
