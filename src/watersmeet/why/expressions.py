"""Evaluate expressions of a query over rows that were read again.

The expressions are columns of its inputs, values, and the single conjuncts of its conditions, to find the one
that prevented a match of two rows. The same few expressions are evaluated for many rows, so their compiled
form and their text are cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask, Side
from watersmeet.expressions.compiler import compile_expression
from watersmeet.expressions.evaluate import Computed
from watersmeet.expressions.trees import tree_of
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.kernel.batches import one_array
from watersmeet.kernel.ordinals import to_canonical
from watersmeet.plan.conditions.conjuncts import Conjunct, split
from watersmeet.plan.explain.wording import distance
from watersmeet.plan.model.sides import joined_name
from watersmeet.plan.query_inputs import JoinInputs, refs, source_inputs, unquoted_text
from watersmeet.runtime.values import arrow_type
from watersmeet.spec.model import Branch, Expr, Input, Source
from watersmeet.types.arrow import in_arrow
from watersmeet.types.json_values import values_of


class Same:
    """Key that compares an object by identity, which is faster than comparing whole trees."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.of is other.of

    def __hash__(self) -> int:
        return id(self.of)


def value_of(expr: Expr, inputs: JoinInputs, rows: pa.Table) -> pa.Array:
    """Evaluate an expression as Spark does, in its type.

    Raises:
        EngineError: only Spark can compute it, or it fails for a row.
    """
    in_order = tuple(Same(given) for given in inputs.in_order)
    computed = _compile(Same(expr), in_order, inputs.split, inputs.joined, inputs.time_zone)
    if isinstance(computed, UnsupportedExpression):
        raise EngineError(
            f"why cannot evaluate {shown_once(expr)} like Spark: {computed}",
            code="not-computed",
            hint="ask about another input or query",
        )
    array = computed.of(rows)
    return one_array(array) if isinstance(array, pa.ChunkedArray) else array


@lru_cache(256)
def _compile(
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
    """Return the cached inputs of a source; see `plan.query_inputs.source_inputs`.

    Equal sources have the same inputs, so expressions compiled over these are found in the cache.
    """
    return _inputs(Same(source), zone)


@lru_cache(64)
def _inputs(source: Same, zone: str) -> JoinInputs:
    return source_inputs(source.of, zone)


def shown_once(expr: Expr) -> str:
    """Return the expression's text (`plan.query_inputs.unquoted_text`) from a cache."""
    return _render(Same(expr))


@lru_cache(256)
def _render(expr: Same) -> str:
    return unquoted_text(expr.of)


def columns_of(given: Input, branch: Branch, names: Sequence[str], rows: pa.Table, zone: str) -> pa.Table:
    """Compute columns of an input, named by `joined_name`, from the rows of a source.

    Raises:
        EngineError: only Spark can compute a column, or it fails for a row (see `evaluate_column`).
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


def repeat_row(row: pa.Table, count: int) -> pa.Table:
    """Repeat a table of one row `count` times."""
    return row.take(pa.array([0] * count, pa.int64()))


def join_columns(left: pa.Table, right: pa.Table) -> pa.Table:
    """Combine the columns of two tables with equal numbers of rows."""
    names = [*left.column_names, *(name for name in right.column_names if name not in left.column_names)]
    arrays = [*left.columns, *(right.column(name) for name in names[left.num_columns :])]
    return pa.table(arrays, names=names)


def mentioned_columns(exprs: Sequence[Expr], alias: str) -> list[str]:
    """Return the columns of an input that expressions mention."""
    return list(dict.fromkeys(name for expr in exprs for of, name in refs(expr) if of == alias))


_COMPARED = (exp.GTE, exp.GT, exp.LTE, exp.LT, exp.EQ, exp.NEQ, exp.NullSafeEQ)


@dataclass(frozen=True)
class Conditions:
    """The conjuncts of one or several conditions. ``inputs``: those that they mention."""

    inputs: JoinInputs
    conjuncts: tuple[Conjunct, ...]

    @classmethod
    def of(cls, inputs: JoinInputs, conditions: Sequence[Expr | None]) -> Conditions:
        return cls(inputs, tuple(own for condition in conditions for own in _split(Same(condition))))

    def failing(self, rows: pa.Table) -> list[Mask]:
        """Return, per conjunct, the mask of rows for which it is not TRUE.

        A conjunct that cannot be evaluated by itself fails for no row.
        """
        return [self._failing(conjunct, rows) for conjunct in self.conjuncts]

    def failing_words(self, row: pa.Table) -> list[str]:
        """Say of the one row of a table why conjuncts are not TRUE."""
        return [self.words(number, row) for number, mask in enumerate(self.failing(row)) if mask[0]]

    def _failing(self, conjunct: Conjunct, rows: pa.Table) -> Mask:
        try:
            holds = value_of(conjunct.expr, self.inputs, rows)
        except EngineError:  # it may fail for pairs that the others keep from it
            return np.zeros(rows.num_rows, dtype=np.bool_)
        failing: Mask = ~pc.fill_null(holds.cast(pa.bool_()), False).to_numpy(zero_copy_only=False)
        return failing

    def is_equality(self, number: int) -> bool:
        """Return True if a conjunct tests two values for equality."""
        return isinstance(self.conjuncts[number].expr, exp.EQ | exp.NullSafeEQ)

    def words(self, number: int, row: pa.Table) -> str:
        """Explain why a conjunct is not TRUE for the one row of a table."""
        expr = self.conjuncts[number].expr
        text = shown_once(expr)
        if isinstance(expr, _COMPARED):
            return f"{text}: {self._compare_words(expr, row)}"
        try:
            value = value_of(expr, self.inputs, row)[0].as_py()
        except EngineError:
            return f"{text}: not computed"
        return f"{text}: is {'NULL' if value is None else 'false'}"

    def _compare_words(self, expr: Expr, row: pa.Table) -> str:
        """Describe the two compared values and, for times, the difference."""
        try:
            left, right = (value_of(side, self.inputs, row) for side in (expr.this, expr.expression))
        except (EngineError, pa.ArrowException, NotImplementedError):
            return "is not TRUE"
        texts = [_text(side) for side in (left, right)]
        is_strict = isinstance(expr, exp.GT | exp.LT)
        said = " against ".join(texts)
        is_null = any(not side[0].is_valid for side in (left, right))
        if isinstance(expr, exp.NEQ) and not is_null:
            return f"both are {texts[0]}" if texts[0] == texts[1] else f"{' equals '.join(texts)}"
        if is_null or not all(
            pa.types.is_timestamp(side.type) or pa.types.is_date(side.type) for side in (left, right)
        ):
            return said
        by = abs(to_canonical(left)[0].as_py() - to_canonical(right)[0].as_py())
        if not by:
            return f"{said}, which is {'no more than equal' if is_strict else 'equal'}"
        return f"{said}, missed by {distance(by, True)}"


@lru_cache(256)
def _split(condition: Same) -> tuple[Conjunct, ...]:
    return split(condition.of)


def _text(value: pa.Array) -> str:
    (plain,) = values_of(value.slice(0, 1))
    if plain is None:
        return "NULL"
    if pa.types.is_timestamp(value.type):
        return str(plain).replace("T", " ")
    return str(plain)
