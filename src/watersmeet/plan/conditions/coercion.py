"""Rule: what the two sides of an equality are compared as, by Spark SQL's coercion.

Keys are hashed per side, so both sides have to be of one type before that.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from watersmeet.plan.scope import Scope
from watersmeet.spec.model import Expr
from watersmeet.spec.number_literals import NumberError, read_number
from watersmeet.types.common import common_type
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import INTEGERS, PLAIN

_WIDEST = {
    **dict.fromkeys(INTEGERS, "BIGINT"),
    "FLOAT": "DOUBLE",
    "DECIMAL": "DECIMAL(38,18)",
}


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
    return sql_type(type_).is_number


def canonical(type_: str) -> str:
    """One spelling per type: INTEGER is INT, VARCHAR(3) is STRING."""
    found = sql_type(type_)
    # A DECIMAL stays as it is written: it is cast to the one spelling where it has another, and what stored
    # state belongs to is told by those casts.
    return str(found) if found.name in PLAIN else type_.upper().strip()


def one_type(left: str, right: str) -> str | None:
    """The type in which the two sides of a key are compared; None: Spark does not, or Spark alone does."""
    if left == right:
        return left
    one, other = sql_type(left), sql_type(right)
    found = common_type(one, other)
    hashed = not (one.is_void or other.is_void or one.is_nested or one.is_interval)
    return str(found) if found is not None and hashed else None
