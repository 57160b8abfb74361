"""The conjuncts of a join's condition, each asked by itself: which of them kept two rows from meeting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask
from watersmeet.kernel.times import to_canonical
from watersmeet.plan.conditions.conjuncts import Conjunct, split
from watersmeet.plan.explain.durations import distance
from watersmeet.plan.join_inputs import JoinInputs
from watersmeet.spec.model import Expr
from watersmeet.types.json_values import values_of
from watersmeet.why.columns import Same, shown_once, value_of

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
        """Per conjunct, for which rows it is not TRUE. One that cannot be asked by itself fails for none."""
        return [self._failing(conjunct, rows) for conjunct in self.conjuncts]

    def _failing(self, conjunct: Conjunct, rows: pa.Table) -> Mask:
        try:
            holds = value_of(conjunct.expr, self.inputs, rows)
        except EngineError:  # it may fail for pairs that the others keep from it
            return np.zeros(rows.num_rows, dtype=np.bool_)
        failing: Mask = ~pc.fill_null(holds.cast(pa.bool_()), False).to_numpy(zero_copy_only=False)
        return failing

    def is_equality(self, number: int) -> bool:
        """Whether a conjunct asks that two values are equal."""
        return isinstance(self.conjuncts[number].expr, exp.EQ | exp.NullSafeEQ)

    def is_null(self, expr: Expr, row: pa.Table) -> bool:
        """Of the one row of a table. Raises: EngineError."""
        return not value_of(expr, self.inputs, row)[0].is_valid

    def words(self, number: int, row: pa.Table) -> str:
        """Why a conjunct is not TRUE of the one row of a table."""
        expr = self.conjuncts[number].expr
        text = shown_once(expr)
        if isinstance(expr, _COMPARED):
            return f"{text}: {self._compared(expr, row)}"
        try:
            value = value_of(expr, self.inputs, row)[0].as_py()
        except EngineError:
            return f"{text}: not computed"
        return f"{text}: is {'NULL' if value is None else 'false'}"

    def _compared(self, expr: Expr, row: pa.Table) -> str:
        """The two values, and of times by how much they miss."""
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
