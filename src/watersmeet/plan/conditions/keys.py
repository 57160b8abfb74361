"""Derive equality keys and the type in which they are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.expressions.compiler import expression_type
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.plan.conditions.classification import KeyPart
from watersmeet.plan.query_inputs import JoinInputs
from watersmeet.spec.literals import NumberError, read_number
from watersmeet.spec.model import Expr
from watersmeet.types.coercion import common_type, is_compared, tightest_type
from watersmeet.types.intervals import is_interval, is_of_days
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import (
    BIGINT,
    DATE,
    DOUBLE,
    PLAIN,
    TIMESTAMP,
    UNKNOWN,
    Field,
    SqlType,
    decimal,
    struct,
)

# Rule: what the two sides of an equality are compared as, by Spark SQL's coercion.
#
# Keys are hashed per side, so both sides have to be of one type before that.

_WIDEST_DECIMAL = decimal(38, 18)


def annotate_expression(expr: Expr, inputs: JoinInputs) -> Expr:
    """Return a copy of ``expr`` with types on its nodes, from the declared types of its columns."""
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
    """Convert a type to sqlglot; the NULL type and collated types become UNKNOWN."""
    return _build_type("UNKNOWN" if type_.is_void or type_.is_collated else str(type_)).copy()


@lru_cache(1024)
def _build_type(name: str) -> exp.DataType:
    """Build a sqlglot type, cached because a plan needs each type hundreds of times."""
    return exp.DataType.build(name, dialect="spark")


def _literal_type(literal: exp.Literal) -> SqlType:
    try:
        return read_number(literal.this, negative=isinstance(literal.parent, exp.Neg)).type
    except NumberError:
        return UNKNOWN


def type_of(expr: Expr, inputs: JoinInputs) -> SqlType | None:
    """Return the Spark type of ``expr``, or None if it is unknown.

    Only columns and casts have an exactly known type. A computed number gets the widest type of its
    kind: a cast to that type preserves its value, whatever type Spark computes it in.
    """
    if isinstance(expr, exp.Column):
        return _capitalize_fields(inputs.column((expr.table, expr.name)).type)
    type_ = annotate_expression(expr, inputs).type
    if type_ is None or type_.is_type(exp.DType.UNKNOWN, exp.DType.NULL):
        return None
    exact_type = _capitalize_fields(sql_type(type_.sql(dialect="spark")))
    return exact_type if is_declared(expr) else _widest(exact_type)


def _widest(type_: SqlType) -> SqlType:
    """Return the widest type of the kind of a number; return other types unchanged."""
    if type_.is_decimal:
        return _WIDEST_DECIMAL
    return BIGINT if type_.is_integer else DOUBLE if type_.is_real else type_


def _capitalize_fields(type_: SqlType) -> SqlType:
    """Return the type with field names in capitals, as in the casts of keys.

    These casts identify the query that stored state belongs to.
    """
    if type_.fields:
        return struct(
            [
                Field(field.name.upper(), _capitalize_fields(field.type), field.not_null)
                for field in type_.fields
            ]
        )
    return replace(type_, parts=tuple(map(_capitalize_fields, type_.parts))) if type_.parts else type_


def key_type_text(expr: Expr, type_: SqlType) -> str:
    """Return the text of the type of a key; for a cast, the text as written there.

    A DECIMAL with another spelling is cast to its one spelling (``DECIMAL(8, 2)``). These casts
    identify the query that stored state belongs to.
    """
    if isinstance(expr, exp.Cast) and type_ not in PLAIN:
        return expr.to.sql(dialect="spark").upper().strip()
    return str(type_)


def is_declared(expr: Expr) -> bool:
    """Return True if the query text or a declaration gives the type of ``expr``."""
    return isinstance(expr, exp.Column | exp.Cast)


def one_type(left: SqlType, right: SqlType) -> SqlType | None:
    """Return the type in which the two sides of a key are compared.

    Returns:
        None if Spark does not compare them, or only Spark can.
    """
    if left == right:
        return left
    common = common_type(left, right)
    hashed = not (left.is_void or right.is_void or left.is_nested or left.is_interval)
    return common if common is not None and hashed else None


# Rule: equality keys, in one type per key.

_UNHASHABLE = ("MAP", "VARIANT", "INTERVAL")


@dataclass(frozen=True)
class Equality:
    """``left = right`` (or ``<=>``) over columns ``alias.column``, cast to one type.

    ``is_open``: a type is not known before Spark has seen the expressions. ``text``: as it was written.
    """

    left: Expr
    right: Expr
    null_safe: bool
    is_open: bool
    text: str

    def expr(self, side: Side) -> Expr:
        return self.left if side is Side.LEFT else self.right


def keys_of(parts: Sequence[KeyPart], inputs: JoinInputs) -> tuple[tuple[Equality, ...], list[PlanError]]:
    """Return the keys, each once, and errors for keys whose types cannot be compared."""
    keys: list[Equality] = []
    errors: list[PlanError] = []
    seen: set[tuple[str, str, bool]] = set()
    for part in parts:
        identity = (part.first.sql(dialect="spark"), part.second.sql(dialect="spark"), part.null_safe)
        if identity in seen:
            continue
        seen.add(identity)
        error, first, second = _one_type(part, inputs)
        if error is not None:
            errors.append(error)
            continue
        is_open = None in (type_of(first, inputs), type_of(second, inputs))
        keys.append(Equality(first, second, part.null_safe, is_open, part.conjunct.text))
    return tuple(keys), errors


def _one_type(part: KeyPart, inputs: JoinInputs) -> tuple[PlanError | None, Expr, Expr]:
    text = part.conjunct.text
    (one, left), (other, right) = (_moved_date(expr, inputs) for expr in (part.first, part.second))
    for expr, type_ in ((one, left), (other, right)):
        if type_ is not None and type_.name in _UNHASHABLE:
            wrong = _wrong(f"{key_type_text(expr, type_)} cannot be compared by equality: {text}")
            return wrong, part.first, part.second
    if left is None or right is None:
        return None, one, other
    words = key_type_text(one, left), key_type_text(other, right)
    if left.is_nested and right.is_nested and words[0] != words[1]:
        return _one_nested_type(part, (one, left), (other, right))
    common = one_type(left, right)
    if common is None:
        return _wrong(f"{' and '.join(words)} cannot be compared: {text}"), part.first, part.second
    target = words[0] if words[0] == words[1] else str(common)
    first, second = (
        exp.cast(expr.copy(), str(common), dialect="spark")
        if own != target or (common.is_number and not is_declared(expr))
        else expr
        for expr, own in zip((one, other), words, strict=True)
    )
    return None, first, second


def _one_nested_type(
    part: KeyPart, left: tuple[Expr, SqlType], right: tuple[Expr, SqlType]
) -> tuple[PlanError | None, Expr, Expr]:
    """Cast two ARRAY or STRUCT keys to one type, or return an error if they cannot be compared.

    If only field names differ, the keys are compared unchanged.
    """
    types = left[1].nullable, right[1].nullable
    if not is_compared(*types):
        wrong = _wrong(
            f"{key_type_text(*left)} and {key_type_text(*right)} cannot be compared: {part.conjunct.text}"
        )
        return wrong, part.first, part.second
    common = tightest_type(*types)
    first, second = (
        expr if common in (None, own) else exp.cast(expr.copy(), str(common or own), dialect="spark")
        for expr, own in zip((part.first, part.second), types, strict=True)
    )
    return None, first, second


def _moved_date(expr: Expr, inputs: JoinInputs) -> tuple[Expr, SqlType | None]:
    """Return ``expr`` and its type, with the type of Spark for a DATE plus or minus an interval.

    The type is a DATE, stated by a cast, if the units of the interval are days and weeks. Otherwise it
    is a TIMESTAMP, even if the interval is whole days long.
    """
    plain = expr.unnest()
    if isinstance(plain, (exp.Add, exp.Sub)):
        for date, step in ((plain.this, plain.expression), (plain.expression, plain.this)):
            if is_interval(step) and type_of(date, inputs) == DATE:
                if not is_of_days(step):
                    return expr, TIMESTAMP
                return exp.cast(expr.copy(), "DATE", dialect="spark"), DATE
    return expr, _known_type(expr, inputs)


def _known_type(expr: Expr, inputs: JoinInputs) -> SqlType | None:
    """Return the type of a key, or None if it is unknown.

    The type is exactly what tasks compute, but for numbers it is the widest type of their kind. A
    DECIMAL with an unknown number of digits has no known type, because the widest type could round it.
    Keys of unknown types are compared as they arrive, and rejected if they arrive with different types.
    """
    type_ = type_of(expr, inputs)
    if is_declared(expr):
        return type_
    try:
        exact = expression_type(expr, inputs)
    except UnsupportedExpression:
        return None if type_ is not None and type_.is_decimal else type_
    if type_ is None or exact.is_decimal or not exact.is_number:
        return exact
    return type_


def _wrong(message: str) -> PlanError:
    return PlanError(
        message, code="wrong-types", hint="cast one column to the type of the other: CAST(… AS type)"
    )


def bare(expr: Expr) -> Expr:
    """Return ``expr`` without the aliases of its columns."""
    return expr.transform(
        lambda node: (
            exp.Column(this=exp.to_identifier(node.name, quoted=True))
            if isinstance(node, exp.Column)
            else node
        )
    )
