"""Comparisons, tests for NULL, and functions that choose between values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.expressions.arrays import compare_nested
from watersmeet.expressions.base import ArrowFunction, Raw, arrow, build_array, raw
from watersmeet.expressions.physical_types import is_nested
from watersmeet.expressions.rules import Compiler, Restricted, Rule, arguments
from watersmeet.expressions.typed_tree import (
    TypedTree,
    call,
    compared_type,
    constant,
    is_ordered,
    require,
    widen_value,
)
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BOOLEAN, STRING, VOID


@arrow("compare")
def compare(left: pa.Array, right: pa.Array, op: str) -> pa.Array:
    """Compare two arrays of one type with ``=``, ``<``, ….

    NaN equals itself and is greater than all other numbers; -0.0 equals 0.0.
    """
    kind = left.type
    if is_nested(kind):
        return compare_nested(left, right, op)
    if pa.types.is_string(kind):
        left, right = left.view(pa.binary()), right.view(pa.binary())
    elif pa.types.is_floating(kind):
        a, b = raw(left), raw(right)
        return build_array(_compare_reals(a, b, op), pa.bool_(), left, right)
    return {
        "=": pc.equal,
        "<>": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }[op](left, right)


def _compare_reals(a: Raw, b: Raw, op: str) -> Raw:
    none_a, none_b = np.isnan(a), np.isnan(b)
    equal = (a == b) | (none_a & none_b)
    less = (a < b) | (none_b & ~none_a)
    by_op: dict[str, Raw] = {
        "=": equal,
        "<>": ~equal,
        "<": less,
        "<=": less | equal,
        ">": ~(less | equal),
        ">=": ~less,
    }
    return by_op[op]


@arrow("null_safe_equal")
def null_safe_equal(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare with ``<=>``: NULL equals NULL."""
    equal = pc.fill_null(compare(left, right, "="), False)
    return pc.or_(equal, pc.and_(left.is_null(), right.is_null()))


@arrow("is_null")
def is_null(array: pa.Array) -> pa.Array:
    return array.is_null()


@arrow("is_not_null")
def is_not_null(array: pa.Array) -> pa.Array:
    return array.is_valid()


@arrow("is_nan")
def is_nan(array: pa.Array) -> pa.Array:
    """Return the mask of NaN; it is FALSE for NULL."""
    return pc.fill_null(pc.is_nan(array), False)


@arrow("negate")
def negate(array: pa.Array) -> pa.Array:
    """Compute NOT."""
    return pc.invert(array)


@arrow("is_in")
def is_in(value: pa.Array, *listed: pa.Array) -> pa.Array:
    """Compute IN: TRUE if a listed value is equal, else NULL if a listed value is NULL."""
    is_listed = compare(value, listed[0], "=")
    for option in listed[1:]:
        is_listed = pc.or_kleene(is_listed, compare(value, option, "="))
    return is_listed


def extreme(*arrays: pa.Array, op: str = ">") -> pa.Array:
    """Compute `greatest` or `least`; ignore NULLs."""
    best = arrays[0]
    for array in arrays[1:]:
        better = pc.or_(
            pc.fill_null(compare(array, best, op), False), pc.and_(best.is_null(), array.is_valid())
        )
        best = pc.if_else(better, array, best)
    return best


@arrow("greatest")
def greatest(*arrays: pa.Array) -> pa.Array:
    return extreme(*arrays, op=">")


@arrow("least")
def least(*arrays: pa.Array) -> pa.Array:
    return extreme(*arrays, op="<")


def compared(compiler: Compiler, op: str, left: TypedTree, right: TypedTree) -> TypedTree:
    """Compile a comparison: ``=``, ``<>``, ``<``, ``<=>``, …. Raises: UnsupportedExpression."""
    if left.type.is_nested and right.type.is_nested and left.type.unnamed != right.type.unnamed:
        common = compared_type(left.type, right.type)
        left, right = widen_value(left, common), widen_value(right, common)
    left, right = comparable(compiler, [left, right])
    require(left.type != VOID, "NULL is compared with NULL")
    require(is_ordered(left.type), f"{left.type} is compared")
    if op == "<=>":
        return call(null_safe_equal, BOOLEAN, left, right)
    return call(compare, BOOLEAN, left, right, options=[op])


def comparable(compiler: Compiler, operands: Sequence[TypedTree]) -> list[TypedTree]:
    """Convert operands to one type like `alike`, but ignore field names if all else is equal."""
    typed = [operand for operand in operands if operand.type != VOID]
    if len({operand.type.unnamed for operand in typed}) == 1:
        return [
            TypedTree(operand.tree, typed[0].type)
            if operand in typed
            else widen_value(operand, typed[0].type)
            for operand in operands
        ]
    return compiler.alike(operands)


def coalesce(compiler: Compiler, *values: TypedTree) -> TypedTree:
    alike = compiler.alike(values)
    require(alike[0].type != VOID, "a choice of NULLs")
    return TypedTree(("first", tuple(choice.tree for choice in alike)), alike[0].type)


def nullif(compiler: Compiler, left: TypedTree, right: TypedTree) -> TypedTree:
    equal = compared(compiler, "=", left, right)
    return TypedTree(
        ("case", ((equal.tree, constant(None, left.type).tree),), left.tree, left.type), left.type
    )


def _extreme(function: ArrowFunction) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
        values = compiler.all(nodes)
        types = {value.type for value in values} - {VOID}
        require(STRING not in types or len(types) <= 1, f"{function.__name__} of texts and others")
        alike = compiler.alike(values)
        require(
            len(alike) >= 2 and alike[0].type != VOID and is_ordered(alike[0].type),
            f"{function.__name__} of one, or of MAPs",
        )
        return call(function, alike[0].type, *alike)

    return rule


FUNCTIONS: dict[str, Rule | Restricted] = {
    **dict.fromkeys(
        ("coalesce", "nvl", "ifnull"), lambda compiler, nodes: coalesce(compiler, *compiler.all(nodes))),
    "nullif": arguments(2, nullif),
    "nvl2": arguments(
        3, lambda compiler, tested, one, other: compiler.case_of(
            [call(is_not_null, BOOLEAN, tested)], [one], other)),
    "isnull": arguments(1, lambda _, value: call(is_null, BOOLEAN, value)),
    "isnotnull": arguments(1, lambda _, value: call(is_not_null, BOOLEAN, value)),
    "equal_null": arguments(2, lambda compiler, left, right: compared(compiler, "<=>", left, right)),
    "greatest": _extreme(greatest),
    "least": _extreme(least),
}  # fmt: skip
