"""Expressions over rows as tasks compute them: exactly what Spark says, ANSI on, in the job's time zone.

An expression is a tree of `Column`, `Constant`, `Call` and what is lazy: AND, OR, CASE and COALESCE look at a
later part only for the rows for which the parts before it do not decide, so that it fails for no other row.
TIMESTAMPs are int64 µs in here, DATEs int32 days, intervals int64 µs. What a function does is in
`kernel.functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask
from watersmeet.kernel.batches import joined, one_array
from watersmeet.kernel.fails import Fails
from watersmeet.kernel.functions import BY_NAME
from watersmeet.kernel.functions.base import or_null, where_known

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    name: str


@dataclass(frozen=True)
class Constant:
    """``value``: as Arrow takes it, in the type in which it is computed with."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class Call:
    """``options``: what is constant, such as a time zone. ``null_on``: the conditions by which a row becomes
    NULL instead of failing, as in TRY_CAST; empty: by any; None: by none. (Arguments fail as ever.)"""

    function: Callable[..., pa.Array]
    arguments: tuple[Expression, ...]
    options: tuple[Any, ...] = ()
    null_on: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Both:
    """AND, OR."""

    left: Expression
    right: Expression
    kind: Literal["and", "or"]


@dataclass(frozen=True)
class Choice:
    """CASE: the first condition that is TRUE decides; ``type``: of the values."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    type: pa.DataType


@dataclass(frozen=True)
class First:
    """COALESCE."""

    parts: tuple[Expression, ...]


Expression = Column | Constant | Call | Both | Choice | First


@dataclass(frozen=True)
class Condition:
    """A condition on pairs. ``text``: as it was written."""

    tree: Expression
    text: str

    def holds(self, pairs: pa.Table) -> Mask:
        """For which rows it is TRUE: bool[n]. Raises: EngineError, with the row's values."""
        if pairs.num_rows == 0:
            return np.zeros(0, dtype=np.bool_)
        found: Mask = pc.fill_null(values(self.tree, pairs, self.text), False).to_numpy(zero_copy_only=False)
        return found


def tree_of(data: tuple[Any, ...]) -> Expression:
    """The tree that `plan.exact` wrote as plain data."""
    kind, *rest = data
    if kind == "column":
        return Column(rest[0])
    if kind == "constant":
        value, type_ = rest
        return Constant(Decimal(value) if value is not None and _is_decimal(type_) else value, held(type_))
    if kind == "call":
        name, arguments, options = rest
        given = tuple(held(each[1]) if isinstance(each, tuple) else each for each in options)
        return Call(BY_NAME[name], tuple(map(tree_of, arguments)), given)
    if kind == "or_null":
        call = tree_of(rest[0])
        assert isinstance(call, Call)
        return replace(call, null_on=rest[1])
    if kind in ("and", "or"):
        return Both(tree_of(rest[0]), tree_of(rest[1]), kind)
    if kind == "first":
        return First(tuple(map(tree_of, rest[0])))
    branches, otherwise, type_ = rest
    pairs = tuple((tree_of(condition), tree_of(value)) for condition, value in branches)
    return Choice(pairs, None if otherwise is None else tree_of(otherwise), held(type_))


def columns_of(data: Any) -> dict[str, str]:
    """The columns that such a tree mentions, with the types that it takes them to have."""
    if not isinstance(data, tuple):
        return {}
    if data[:1] == ("column",):
        return {data[1]: data[2]}
    found: dict[str, str] = {}
    for each in data:
        found |= columns_of(each)
    return found


def fits(kind: pa.DataType, type_: str) -> bool:
    """Whether a column of an Arrow type holds what a tree takes for a Spark type."""
    if type_ == "TIMESTAMP":
        return bool(pa.types.is_timestamp(kind) and kind.unit == "us")
    if type_ == "TIMESTAMP_NTZ":
        return bool(pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is None)
    wanted = pa.date32() if type_ == "DATE" else held(type_)
    return bool(kind == wanted)


def held(type_: str) -> pa.DataType:
    """In what values of a Spark type are computed with."""
    if _is_decimal(type_):
        digits, _, scale = type_[len("DECIMAL(") : -1].partition(",")
        return pa.decimal128(int(digits), int(scale))
    return _HELD[type_]


def _is_decimal(type_: str) -> bool:
    return type_.startswith("DECIMAL(")


_HELD = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.int32(),
    "TIMESTAMP": pa.int64(),
    "TIMESTAMP_NTZ": pa.int64(),
    "INTERVAL DAY TO SECOND": pa.int64(),
}


_IN_ORDER = frozenset(BY_NAME[name] for name in ("compare", "plus", "minus", "times"))


def values(tree: Expression, rows: pa.Table, text: str) -> pa.Array:
    """The values of an expression for all rows, in order.

    Raises:
        EngineError: it raises for a row; the message has Spark's condition and the values.
    """
    try:
        return _Rows(rows).of(tree, None)
    except Fails as failed:
        mentioned = dict.fromkeys(_columns(tree))
        shown = ", ".join(f"{name} = {_shown(rows.column(name)[failed.row])}" for name in mentioned)
        raise EngineError(
            f"the condition {text} failed: [{failed.condition}] {failed.what}, for {shown}",
            code="condition-failed",
            hint="guard the expression (for example with try_cast, try_divide or NULLIF), or filter such rows"
            " in a view",
        ) from None


def native(array: pa.Array, type_: str, zoned: bool) -> pa.Array:
    """A value that leaves: in the Arrow type of its Spark type. ``zoned``: TIMESTAMPs carry UTC."""
    if type_ == "TIMESTAMP":
        return array.view(pa.timestamp("us", "UTC" if zoned else None))
    if type_ == "TIMESTAMP_NTZ":
        return array.view(pa.timestamp("us"))
    return array.view(pa.date32()) if type_ == "DATE" else array


@dataclass(frozen=True)
class Computed:
    """A column that is computed of rows.

    ``type``: Spark's; ``text``: as it was written; ``zoned``: TIMESTAMPs carry UTC.
    """

    name: str
    tree: Expression
    type: str
    text: str
    zoned: bool

    def of(self, rows: pa.Table) -> pa.Array:
        """Raises: EngineError, with the row's values."""
        return native(values(self.tree, rows, self.text), self.type, self.zoned)


class _Rows:
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._columns: dict[str, pa.Array] = {}

    def of(self, tree: Expression, chosen: Rows | None) -> pa.Array:
        count = self._rows.num_rows if chosen is None else len(chosen)
        if isinstance(tree, Column):
            column = self._column(tree.name)
            return column if chosen is None else column.take(pa.array(chosen))
        if isinstance(tree, Constant):
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
        return self._choice(tree, chosen)

    def _arguments(self, tree: Call, chosen: Rows | None, count: int) -> list[pa.Array]:
        found: list[pa.Array] = []
        for each in tree.arguments:
            try:
                found.append(self.of(each, chosen))
            except Fails:  # where one is NULL already, Spark does not look at the next
                if tree.function not in _IN_ORDER or not any(array.null_count for array in found):
                    raise
                known = where_known(*found)
                assert known is not None
                open_ = np.flatnonzero(known)
                own = self.of(each, open_ if chosen is None else chosen[open_])
                found.append(_spread(own, open_, count))
        return found

    def _column(self, name: str) -> pa.Array:
        if name not in self._columns:
            column = self._rows.column(name)
            array = one_array(column)
            if pa.types.is_timestamp(array.type):
                array = array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64())
            elif pa.types.is_date32(array.type):
                array = array.view(pa.int32())
            self._columns[name] = array
        return self._columns[name]

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
        count = self._rows.num_rows if chosen is None else len(chosen)
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
        found = self.of(trees[0], chosen)
        for tree in trees[1:]:
            if not found.null_count:
                break
            open_ = np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))
            own = self.of(tree, open_ if chosen is None else chosen[open_])
            known = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            found = _together([(known, found.take(pa.array(known))), (open_, own)], found.type)
        return found


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
    return joined([array.cast(kind) for _, array in parts]).take(pa.array(order))


def _columns(tree: Expression) -> list[str]:
    if isinstance(tree, Column):
        return [tree.name]
    if isinstance(tree, Constant):
        return []
    if isinstance(tree, Call):
        beneath: Sequence[Expression] = tree.arguments
    elif isinstance(tree, Both):
        beneath = (tree.left, tree.right)
    elif isinstance(tree, First):
        beneath = tree.parts
    else:
        beneath = [*(part for branch in tree.branches for part in branch)]
        beneath = [*beneath, tree.otherwise] if tree.otherwise is not None else beneath
    return [name for each in beneath for name in _columns(each)]


def _shown(value: pa.Scalar) -> str:
    return (
        "NULL"
        if not value.is_valid
        else repr(value.as_py())
        if pa.types.is_string(value.type)
        else str(value)
    )
