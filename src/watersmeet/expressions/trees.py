"""What an expression is for tasks: a tree of nodes, made of the plain data that `compiler` wrote.

`Column`, `Constant` and `Call`; what is lazy: AND, OR, CASE, COALESCE; and casts of the elements of ARRAYs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from watersmeet.expressions.physical_types import get_physical_type
from watersmeet.expressions.registry import find_arrow_function
from watersmeet.types.sql_type import SqlType


@dataclass(frozen=True)
class Column:
    name: str


@dataclass(frozen=True)
class Constant:
    """Constant of an expression.

    Attributes:
        value: the value as Arrow accepts it, in the type of the computation.
    """

    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class Call:
    """Call of a function.

    Attributes:
        options: constant arguments, such as a time zone.
        null_on: the error conditions for which a row becomes NULL instead of failing, as in TRY_CAST; empty:
            any condition; None: no condition. An error in an argument still fails.
    """

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
    """CASE expression: the first condition that is TRUE selects the value.

    Attributes:
        type: the type of the values.
    """

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    type: pa.DataType


@dataclass(frozen=True)
class First:
    """COALESCE."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Each:
    """``body`` of each element of ``lists``, as lists of the same lengths; it is the column ``name``."""

    lists: Expression
    name: str
    body: Expression


Expression = Column | Constant | Call | Both | Choice | First | Each


def tree_of(data: tuple[Any, ...]) -> Expression:
    """Build the tree from the plain data that `compiler` wrote."""
    kind, *rest = data
    if kind == "column":
        return Column(rest[0])
    if kind == "constant":
        value, type_ = rest
        return Constant(
            Decimal(value) if value is not None and type_.is_decimal else value, get_physical_type(type_)
        )
    if kind == "call":
        name, arguments, options = rest
        given = tuple(
            get_physical_type(option[1]) if isinstance(option, tuple) else option for option in options
        )
        return Call(find_arrow_function(name), tuple(map(tree_of, arguments)), given)
    if kind == "or_null":
        call = tree_of(rest[0])
        assert isinstance(call, Call)
        return replace(call, null_on=rest[1])
    if kind in ("and", "or"):
        return Both(tree_of(rest[0]), tree_of(rest[1]), kind)
    if kind == "first":
        return First(tuple(map(tree_of, rest[0])))
    if kind == "variable":
        return Column(rest[0])
    if kind == "each":
        lists, ((name, _),), body, *_ = rest
        return Each(tree_of(lists), name, tree_of(body))
    branches, otherwise, type_ = rest
    pairs = tuple((tree_of(condition), tree_of(value)) for condition, value in branches)
    return Choice(pairs, None if otherwise is None else tree_of(otherwise), get_physical_type(type_))


def columns_of(data: Any) -> dict[str, SqlType]:
    """Return the columns that such a tree mentions, with the types that it assumes."""
    if not isinstance(data, tuple):
        return {}
    if data[:1] == ("column",):
        return {data[1]: data[2]}
    columns: dict[str, SqlType] = {}
    for part in data:
        columns |= columns_of(part)
    return columns


def list_read_columns(tree: Expression) -> list[str]:
    """List the columns that a tree reads, in order; the list may have duplicates."""
    if isinstance(tree, Column):
        return [tree.name]
    if isinstance(tree, Constant):
        return []
    if isinstance(tree, Call):
        children: Sequence[Expression] = tree.arguments
    elif isinstance(tree, Both):
        children = (tree.left, tree.right)
    elif isinstance(tree, First):
        children = tree.parts
    elif isinstance(tree, Each):
        children = (tree.lists,)
    else:
        children = [*(part for branch in tree.branches for part in branch)]
        children = [*children, tree.otherwise] if tree.otherwise is not None else children
    return [name for child in children for name in list_read_columns(child)]
