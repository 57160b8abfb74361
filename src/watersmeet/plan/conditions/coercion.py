"""Rule: what the two sides of an equality are compared as, by Spark SQL's coercion.

Keys are hashed per side, so both sides have to be of one type before that.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from watersmeet.plan.join_inputs import JoinInputs
from watersmeet.spec.model import Expr
from watersmeet.spec.number_literals import NumberError, read_number
from watersmeet.types.common import common_type
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import BIGINT, DOUBLE, PLAIN, UNKNOWN, Field, SqlType, decimal, struct

_WIDEST_DECIMAL = decimal(38, 18)


def typed(expr: Expr, inputs: JoinInputs) -> Expr:
    """A copy of ``expr`` whose nodes carry their types, from the declared types of its columns."""
    copy = expr.copy()
    for column in copy.find_all(exp.Column):
        column.type = _data_type(inputs.column((column.table, column.name)).type)
    for literal in copy.find_all(exp.Literal):
        if not literal.is_string:
            literal.type = _data_type(_literal_type(literal))
    try:
        # A cast has a type from the start, and beneath a typed node nothing is typed: innermost first.
        for node in reversed(list(copy.find_all(exp.Cast))):
            annotate_types(node.this, dialect="spark", overwrite_types=False)
        return annotate_types(copy, dialect="spark", overwrite_types=False)
    except SqlglotError:
        return copy


def _data_type(type_: SqlType) -> exp.DataType:
    """A type as sqlglot has it, who knows nothing of NULL's and of collations."""
    return _built("UNKNOWN" if type_.is_void or type_.is_collated else str(type_)).copy()


@lru_cache(1024)
def _built(name: str) -> exp.DataType:
    """A plan asks for the types of its few columns hundreds of times."""
    return exp.DataType.build(name, dialect="spark")


def _literal_type(literal: exp.Literal) -> SqlType:
    try:
        return read_number(literal.this, negative=isinstance(literal.parent, exp.Neg)).type
    except NumberError:
        return UNKNOWN


def type_of(expr: Expr, inputs: JoinInputs) -> SqlType | None:
    """The Spark type of ``expr``, or None when it is not known.

    Only columns and casts are known exactly. A computed number is given the widest type of its kind: cast to
    that, it is what it is, whatever Spark makes of the computation.
    """
    if isinstance(expr, exp.Column):
        return _in_capitals(inputs.column((expr.table, expr.name)).type)
    type_ = typed(expr, inputs).type
    if type_ is None or type_.is_type(exp.DType.UNKNOWN, exp.DType.NULL):
        return None
    exact_type = _in_capitals(sql_type(type_.sql(dialect="spark")))
    return exact_type if is_declared(expr) else _widest(exact_type)


def _widest(type_: SqlType) -> SqlType:
    """Of a number the widest type of its kind."""
    if type_.is_decimal:
        return _WIDEST_DECIMAL
    return BIGINT if type_.is_integer else DOUBLE if type_.is_real else type_


def _in_capitals(type_: SqlType) -> SqlType:
    """With the names of fields in capitals, which casts of keys have: what stored state belongs to is told by
    those casts."""
    if type_.fields:
        return struct(
            [Field(field.name.upper(), _in_capitals(field.type), field.not_null) for field in type_.fields]
        )
    return replace(type_, parts=tuple(map(_in_capitals, type_.parts))) if type_.parts else type_


def spelt(expr: Expr, type_: SqlType) -> str:
    """The text of a key's type: of a cast as it is written there.

    A DECIMAL is cast to its one spelling where it has another (``DECIMAL(8, 2)``), and what stored state
    belongs to is told by those casts.
    """
    if isinstance(expr, exp.Cast) and type_ not in PLAIN:
        return expr.to.sql(dialect="spark").upper().strip()
    return str(type_)


def is_declared(expr: Expr) -> bool:
    """The type of ``expr`` stands in the text or in the declaration."""
    return isinstance(expr, exp.Column | exp.Cast)


def one_type(left: SqlType, right: SqlType) -> SqlType | None:
    """The type in which the two sides of a key are compared; None: Spark does not, or Spark alone does."""
    if left == right:
        return left
    common = common_type(left, right)
    hashed = not (left.is_void or right.is_void or left.is_nested or left.is_interval)
    return common if common is not None and hashed else None
