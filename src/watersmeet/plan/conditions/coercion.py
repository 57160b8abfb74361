"""Rule: what the two sides of an equality are compared as, by Spark SQL's coercion.

Keys are hashed per side, so both sides have to be of one type before that.
"""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from watersmeet.plan.scope import INTEGER_BITS, Scope, unit_of_type
from watersmeet.plan.scope import Unit as _Unit
from watersmeet.spec.model import Expr
from watersmeet.spec.number_literals import NumberError, read_number

_DECIMAL = re.compile(r"(?:DECIMAL|DEC|NUMERIC)(?:\((\d+)(?:,\s*(\d+))?\))?")
_INTEGER_NAMES = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_WIDEST = {
    **dict.fromkeys(_INTEGER_NAMES.values(), "BIGINT"),
    "FLOAT": "DOUBLE",
    "DECIMAL": "DECIMAL(38,18)",
}
_STRINGS = ("STRING", "VARCHAR", "CHAR", "TEXT")


def typed(expr: Expr, scope: Scope) -> Expr:
    """A copy of ``expr`` whose nodes carry their types, from the declared types of its columns."""
    copy = expr.copy()
    for column in copy.find_all(exp.Column):
        column.type = exp.DataType.build(scope.column((column.table, column.name)).type, dialect="spark")
    for literal in copy.find_all(exp.Literal):
        if not literal.is_string:
            literal.type = exp.DataType.build(_literal_type(literal), dialect="spark")
    try:
        # A cast has a type from the start, and beneath a typed node nothing is typed: innermost first.
        for node in reversed(list(copy.find_all(exp.Cast))):
            annotate_types(node.this, dialect="spark", overwrite_types=False)
        return annotate_types(copy, dialect="spark", overwrite_types=False)
    except SqlglotError:
        return copy


def _literal_type(literal: exp.Literal) -> str:
    try:
        return read_number(literal.this, negative=isinstance(literal.parent, exp.Neg)).type
    except NumberError:
        return "UNKNOWN"


def type_of(expr: Expr, scope: Scope) -> str | None:
    """The Spark type of ``expr`` as DDL text, or None when it is not known.

    Only columns and casts are known exactly. A computed number is given the widest type of its kind: cast to
    that, it is what it is, whatever Spark makes of the computation.
    """
    if isinstance(expr, exp.Column):
        return canonical(scope.column((expr.table, expr.name)).type)
    type_ = typed(expr, scope).type
    if type_ is None or type_.is_type(exp.DType.UNKNOWN, exp.DType.NULL):
        return None
    name = canonical(type_.sql(dialect="spark"))
    return name if is_declared(expr) else _WIDEST.get(name.split("(")[0], name)


def is_declared(expr: Expr) -> bool:
    """The type of ``expr`` stands in the text or in the declaration."""
    return isinstance(expr, exp.Column | exp.Cast)


def is_number(type_: str) -> bool:
    return unit_of_type(type_) in (_Unit.INTEGER, _Unit.NUMBER)


def canonical(type_: str) -> str:
    """One spelling per type: INTEGER is INT, VARCHAR(3) is STRING."""
    upper = type_.upper().strip()
    bits = INTEGER_BITS.get(upper)
    if bits is not None:
        return _INTEGER_NAMES[bits]
    if upper.split("(")[0] in _STRINGS:
        return "STRING"
    return {"REAL": "FLOAT", "TIMESTAMP_LTZ": "TIMESTAMP"}.get(upper, upper)


def common_type(left: str, right: str) -> str | None:
    """The type in which Spark compares the two; None when it does not."""
    if left == right:
        return left
    one, other = unit_of_type(left), unit_of_type(right)
    if one.is_time and other.is_time:
        return "TIMESTAMP" if "TIMESTAMP" in (left, right) else "TIMESTAMP_NTZ"
    if {one, other} <= {_Unit.INTEGER, _Unit.NUMBER}:
        return _common_number(left, right)
    for text, type_ in ((left, right), (right, left)):
        if text == "STRING":
            if unit_of_type(type_) is _Unit.INTEGER:
                return "BIGINT"
            if unit_of_type(type_) is _Unit.NUMBER:
                return "DOUBLE"
            return type_ if unit_of_type(type_).is_time or type_ in ("BOOLEAN", "BINARY") else None
    return None


def _common_number(left: str, right: str) -> str | None:
    bits = INTEGER_BITS.get(left), INTEGER_BITS.get(right)
    if bits[0] is not None and bits[1] is not None:
        return _INTEGER_NAMES[max(bits[0], bits[1])]
    if "DOUBLE" in (left, right) or "FLOAT" in (left, right):
        return "DOUBLE"
    a, b = _decimal(left), _decimal(right)
    if a is None or b is None:
        return None
    scale = max(a[1], b[1])
    digits = max(a[0] - a[1], b[0] - b[1])
    scale = max(min(scale, 38 - digits), 0)
    return f"DECIMAL({min(digits + scale, 38)},{scale})"


def _decimal(type_: str) -> tuple[int, int] | None:
    """(precision, scale)."""
    bits = INTEGER_BITS.get(type_)
    if bits is not None:
        return _INTEGER_DIGITS[bits], 0
    found = _DECIMAL.fullmatch(type_)
    if found is None:
        return None
    return int(found.group(1) or 10), int(found.group(2) or 0)
