"""Evaluate trees over rows, as Spark does.

AND, OR, CASE and COALESCE look at a later part only for the rows for which the parts before it do not decide,
so that it fails for no other row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask
from watersmeet.expressions.base import Fails, or_null, too_long, where_known
from watersmeet.expressions.physical_types import (
    convert_to_physical,
    elements,
    is_nested,
    list_array,
    native,
    validity,
)
from watersmeet.expressions.registry import ARROW_FUNCTIONS
from watersmeet.expressions.trees import (
    Both,
    Call,
    Choice,
    Column,
    Constant,
    Each,
    Expression,
    First,
    list_read_columns,
)
from watersmeet.kernel.batches import concat_arrays, one_array
from watersmeet.types.sql_type import SqlType

Rows = npt.NDArray[np.int64]

_SHOWN = 300
"""Characters of a value in a message."""


@dataclass(frozen=True)
class Condition:
    """A condition on pairs. ``text``: as it was written."""

    tree: Expression
    text: str

    def holds(self, pairs: pa.Table) -> Mask:
        """Return the mask of rows for which the condition is TRUE: bool[n].

        Raises:
            EngineError: the condition fails for a row; the error has the row's values.
        """
        if pairs.num_rows == 0:
            return np.zeros(0, dtype=np.bool_)
        mask: Mask = pc.fill_null(values(self.tree, pairs, f"the condition {self.text}"), False).to_numpy(
            zero_copy_only=False
        )
        return mask


_IN_ORDER = frozenset(
    ARROW_FUNCTIONS[name]
    for name in (
        "compare", "plus", "minus", "times", "item", "value_of", "has_key", "has_element", "place_of_element",
        "without_element", "append_element", "insert_element", "slice_of", "put_together", "union",
        "intersect", "without", "overlap", "zipped", "sequence", "joined_elements",
    )
)  # fmt: skip
"""Of these Spark does not compute an argument after one that is NULL."""


def guard_of(condition: str | None) -> str:
    """Return the hint for rows for which an expression fails with Spark's error ``condition``."""
    if condition == "CAST_INVALID_INPUT":
        return (
            "a text that is cast, or compared with a number or a time, has to be one: write try_cast(… AS "
            "type), or compare texts (CAST(… AS STRING)), or filter such rows in a view"
        )
    return (
        "guard the expression (for example with try_cast, try_divide or NULLIF), or filter such rows in a "
        "view"
    )


def values(tree: Expression, rows: pa.Table, text: str) -> pa.Array:
    """Evaluate an expression for all rows, in order.

    Args:
        text: description of the expression in the user's words.

    Raises:
        EngineError: the expression fails for a row; the message has Spark's error condition and the
            values. Or the texts of all rows do not fit into one array.
    """
    try:
        return _Rows(rows).of(tree, None)
    except Fails as failed:
        names = dict.fromkeys(list_read_columns(tree))
        shown = ", ".join(f"{name} = {_format_value(rows.column(name)[failed.row])}" for name in names)
        raise EngineError(
            f"{text} failed: [{failed.condition}] {failed.what}, for {shown}",
            code="condition-failed",
            hint=guard_of(failed.condition),
        ) from None
    except pa.ArrowException as error:
        if isinstance(error, pa.ArrowCapacityError) or "overflowed binary array" in str(error):
            raise too_long() from None
        raise


@dataclass(frozen=True)
class Computed:
    """A column that is computed of rows.

    ``type``: Spark's; ``text``: what it is, in the user's words (``the condition a.k = b.k``); ``zoned``:
    TIMESTAMPs carry UTC.
    """

    name: str
    tree: Expression
    type: SqlType
    text: str
    zoned: bool

    def of(self, rows: pa.Table) -> pa.Array:
        """Compute the column for these rows, in order.

        Raises:
            EngineError: The expression fails for a row; the message has the row's values.
        """
        return native(values(self.tree, rows, self.text), self.type, self.zoned)


class _Rows:
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.count = rows.num_rows
        self._columns: dict[str, pa.Array] = {}

    def of(self, tree: Expression, chosen: Rows | None) -> pa.Array:
        count = self.count if chosen is None else len(chosen)
        if isinstance(tree, Column):
            column = self.column(tree.name)
            return column if chosen is None else column.take(pa.array(chosen))
        if isinstance(tree, Constant):
            if tree.value is None:
                return pa.nulls(count, tree.type)
            if is_nested(tree.type):
                return pa.array([tree.value], tree.type).take(pa.array(np.zeros(count, dtype=np.int64)))
            return pa.repeat(pa.scalar(tree.value, tree.type), count)
        if isinstance(tree, Call):
            arguments = self._arguments(tree, chosen, count)
            try:
                if tree.null_on is not None:
                    return or_null(tree.null_on, tree.function, *arguments, *tree.options)
                return tree.function(*arguments, *tree.options)
            except Fails as failed:
                row = failed.row if chosen is None else int(chosen[failed.row])
                raise Fails(row, failed.condition, failed.what) from None
        if isinstance(tree, Both):
            return self._both(tree, chosen)
        if isinstance(tree, First):
            return self._first(tree.parts, chosen)
        if isinstance(tree, Each):
            return self._each(tree, chosen)
        return self._choice(tree, chosen)

    def _arguments(self, tree: Call, chosen: Rows | None, count: int) -> list[pa.Array]:
        arguments: list[pa.Array] = []
        for argument in tree.arguments:
            try:
                arguments.append(self.of(argument, chosen))
            except Fails:  # where one is NULL already, Spark does not look at the next
                if tree.function not in _IN_ORDER or not any(array.null_count for array in arguments):
                    raise
                not_null = where_known(*arguments)
                assert not_null is not None
                open_ = np.flatnonzero(not_null)
                own = self.of(argument, open_ if chosen is None else chosen[open_])
                arguments.append(_spread(own, open_, count))
        return arguments

    def column(self, name: str) -> pa.Array:
        if name not in self._columns:
            self._columns[name] = convert_to_physical(one_array(self._rows.column(name)))
        return self._columns[name]

    def _each(self, tree: Each, chosen: Rows | None) -> pa.Array:
        lists = self.of(tree.lists, chosen)
        offsets, inner = elements(lists)
        try:
            own = _Rows(pa.table({tree.name: inner})).of(tree.body, None)
        except Fails as failed:
            row = int(np.searchsorted(offsets, failed.row, side="right")) - 1
            row = row if chosen is None else int(chosen[row])
            raise Fails(row, failed.condition, failed.what) from None
        return list_array(offsets, own, validity(lists))

    def _both(self, tree: Both, chosen: Rows | None) -> pa.Array:
        left = self.of(tree.left, chosen)
        decides = tree.kind == "or"
        decided = pc.fill_null(pc.equal(left, decides), False).to_numpy(zero_copy_only=False)
        if decided.all():
            return left
        combine = pc.or_kleene if decides else pc.and_kleene
        if not decided.any():
            return combine(left, self.of(tree.right, chosen))
        open_ = np.flatnonzero(~decided)
        right = self.of(tree.right, open_ if chosen is None else chosen[open_])
        return combine(left, _spread(right, open_, len(left)))

    def _choice(self, tree: Choice, chosen: Rows | None) -> pa.Array:
        count = self.count if chosen is None else len(chosen)
        left = np.arange(count)
        parts: list[tuple[Rows, pa.Array]] = []
        for condition, value in tree.branches:
            if not len(left):
                break
            own = left if chosen is None else chosen[left]
            true = pc.fill_null(self.of(condition, own), False).to_numpy(zero_copy_only=False)
            if true.any():
                parts.append((left[true], self.of(value, own[true])))
            left = left[~true]
        if len(left):
            own = left if chosen is None else chosen[left]
            rest = pa.nulls(len(left), tree.type) if tree.otherwise is None else self.of(tree.otherwise, own)
            parts.append((left, rest))
        return _together(parts, tree.type)

    def _first(self, trees: Sequence[Expression], chosen: Rows | None) -> pa.Array:
        first_values = self.of(trees[0], chosen)
        for tree in trees[1:]:
            if not first_values.null_count:
                break
            open_ = np.flatnonzero(first_values.is_null().to_numpy(zero_copy_only=False))
            own = self.of(tree, open_ if chosen is None else chosen[open_])
            filled = np.flatnonzero(first_values.is_valid().to_numpy(zero_copy_only=False))
            first_values = _together(
                [(filled, first_values.take(pa.array(filled))), (open_, own)], first_values.type
            )
        return first_values


def _spread(part: pa.Array, places: Rows, count: int) -> pa.Array:
    index = np.full(count, -1)
    index[places] = np.arange(len(places))
    return part.take(pa.array(index, mask=index < 0))


def _together(parts: Sequence[tuple[Rows, pa.Array]], kind: pa.DataType) -> pa.Array:
    if not parts:
        return pa.nulls(0, kind)
    places = np.concatenate([places for places, _ in parts])
    order = np.empty(len(places), dtype=np.int64)
    order[places] = np.arange(len(places))
    return concat_arrays([array.cast(kind) for _, array in parts]).take(pa.array(order))


def _format_value(value: pa.Scalar) -> str:
    """Format a value for a message; cut it if it is long."""
    if not value.is_valid:
        return "NULL"
    text = repr(value.as_py()) if pa.types.is_string(value.type) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
