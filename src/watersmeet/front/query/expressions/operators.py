"""Operators, casts and conditions that Spark would refuse for the types of their operands.

What Spark takes is in `spec.functions`. An operand whose type is not known is taken for one that fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlglot import exp

from watersmeet.errors import near_names
from watersmeet.front.types.infer import field_type, number_type
from watersmeet.spec.functions import family_of, form_refuses, operator_refuses
from watersmeet.spec.model import Expr
from watersmeet.types.intervals import written_as_interval
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import DATE, MOST_DIGITS, STRING, TIMES, UNKNOWN, SqlType

Kind = Callable[[Expr], SqlType]
Problem = tuple[str, str, str | None]
"""Message, code, hint."""

_CODE = "wrong-types"
_OF_TWO: dict[type[Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "<=>",
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV",
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^", exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: "<<", exp.DPipe: "||", exp.Like: "LIKE", exp.ILike: "LIKE",
    exp.RegexpLike: "RLIKE", exp.And: "AND", exp.Or: "OR",
}  # fmt: skip
_OF_ONE: dict[type[Expr], str] = {exp.Neg: "-", exp.BitwiseNot: "~", exp.Collate: "COLLATE"}
_ALIKE = (exp.Coalesce, exp.Greatest, exp.Least, exp.Array, exp.Concat)
_COMPARE = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_ARITHMETIC = ("+", "-", "*", "/", "%")
_A_DATE = re.compile(r"(\d{4}) ?- ?(\d{1,2}) ?- ?(\d{1,2})")
_MOST_SHOWN = 80


def operator_problem(node: Expr, kind: Kind) -> Problem | None:
    """What is wrong with the operands of ``node``, if it is an operator.

    Args:
        kind: the type of an operand; unknown for texts and NULL: Spark reads them as what stands beside them.
    """
    for operator, left, right in _operations(node):
        unquoted = _unquoted(operator, left, right, kind)
        if unquoted is not None:
            return unquoted
        text = _text_for_interval(node, operator, left, right, kind)
        if text is not None:
            return text
        types, other = kind(left), kind(right)
        if operator_refuses(operator, types, other):
            return _of_two(node, operator, (left, types), (right, other))
    for form, operand in _conditions(node):
        problem = not_a_condition(operand, kind, form)
        if problem is not None:
            return problem
    sign = _OF_ONE.get(type(node))
    if sign is not None and form_refuses(sign, kind(node.this)):
        return f"{shown(node)}: Spark cannot apply {sign} to {kind(node.this)}", _CODE, "cast it"
    if isinstance(node, exp.Cast):
        return _cast(node, kind)
    if isinstance(node, exp.Dot):
        return _field(node, kind)
    if isinstance(node, exp.Bracket):
        return _element(node, kind)
    return _unlike(node, kind)


def _text_for_interval(node: Expr, operator: str, left: Expr, right: Expr, kind: Kind) -> Problem | None:
    """A text such as ``'10 minutes'`` beside a time or an interval: Spark casts none to an interval there."""
    for text, other in ((right, left), (left, right)):
        interval = written_as_interval(text)
        beside = kind(other)
        is_meant = (
            beside in TIMES
            if operator in ("+", "-")
            else (operator in _COMPARE and (beside.is_interval or _is_difference(other, kind)))
        )
        if interval is not None and is_meant:
            return f"{shown(node)}: {shown(text)} is a text, not an interval", _CODE, f"write {interval}"
    return None


def _is_difference(node: Expr, kind: Kind) -> bool:
    """Whether it is one time minus another."""
    plain = node.unnest()
    return isinstance(plain, exp.Sub) and kind(plain.this) in TIMES and kind(plain.expression) in TIMES


def not_a_condition(operand: Expr, kind: Kind, where: str) -> Problem | None:
    """What is wrong with an operand that Spark makes no BOOLEAN of.

    Args:
        where: the clause or operator that it stands in; NOT and IS take texts.
    """
    form = where if where in ("NOT", "IS TRUE") else "WHEN"
    plain: Any = operand.unnest()
    type_ = kind(plain)
    if form == "WHEN" and isinstance(plain, exp.Null):
        return f"{where}: NULL is not a condition", _CODE, "write FALSE instead, which also matches no row"
    if form == "WHEN" and isinstance(plain, exp.Literal):
        type_ = STRING if plain.is_string else number_type(plain)
    return _no_condition(where, plain, type_) if form_refuses(form, type_) else None


def _no_condition(where: str, operand: Expr, kind: SqlType) -> Problem:
    text = shown(operand.unnest())
    return (
        f"{where}: {text} is {kind}, but a condition must be BOOLEAN",
        _CODE,
        f"compare it, such as {text} <> 0" if kind.is_number else "compare it with a value",
    )


def shown(node: exp.Expr) -> str:
    """An expression in a message."""
    text = node.sql("spark")
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def _operations(node: Expr) -> Iterator[tuple[str, Expr, Expr]]:
    operator = _OF_TWO.get(type(node))
    if operator is not None:
        if not isinstance(node.expression, (exp.Any, exp.All)):
            yield operator, node.this, node.expression
    elif isinstance(node, exp.Between):
        yield ">=", node.this, node.args["low"]
        yield "<=", node.this, node.args["high"]
    elif isinstance(node, exp.Nullif):
        yield "=", node.this, node.expression
    elif isinstance(node, exp.Case) and node.this is not None:
        for when in node.args["ifs"]:
            yield "=", node.this, when.this


def comparisons(node: Expr) -> Iterator[tuple[str, Expr, Expr]]:
    """The operators of a node that compare two operands, each with its operands."""
    return (operation for operation in _operations(node) if operation[0] in _COMPARE)


def _of_two(node: Expr, operator: str, left: tuple[Expr, SqlType], right: tuple[Expr, SqlType]) -> Problem:
    if operator in ("AND", "OR"):
        return _no_condition(operator, *next((e for e in (left, right) if form_refuses("NOT", e[1])), left))
    if operator in _ARITHMETIC:
        said = f"Spark cannot apply {operator} to {left[1]} and {right[1]}"
        return f"{shown(node)}: {said}", _CODE, "cast one of the two, or use an INTERVAL"
    return (
        f"{shown(node)}: Spark cannot compare {left[1]} with {right[1]}",
        _CODE,
        "compare columns of the same type, or CAST one of the two to the type of the other",
    )


def _unquoted(operator: str, left: Expr, right: Expr, kind: Kind) -> Problem | None:
    """``t >= 2024-03-01``: 2024 less 3 less 1."""
    if operator in _ARITHMETIC:
        return None
    for operand, other in ((right, left), (left, right)):
        written = (
            _A_DATE.fullmatch(operand.unnest().sql("spark"))
            if isinstance(operand.unnest(), exp.Sub)
            else None
        )
        if written is not None and kind(other) in (*TIMES, STRING):
            date = "-".join(written.groups())
            number = int(written[1]) - int(written[2]) - int(written[3])
            return (
                f"{date} without quotes is a subtraction with the result {number}",
                _CODE,
                f"write DATE '{date}', or TIMESTAMP '{date} 00:00:00'",
            )
    return None


def _conditions(node: Expr) -> Iterator[tuple[str, Expr]]:
    if isinstance(node, exp.Not):
        yield "NOT", node.this
    elif isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null):
        yield "IS TRUE", node.this
    elif isinstance(node, exp.Case) and node.this is None:
        for when in node.args["ifs"]:
            yield "WHEN", when.this
    elif isinstance(node, exp.If) and not isinstance(node.parent, exp.Case):
        yield "IF", node.this
    elif isinstance(node, exp.Filter):
        yield "FILTER", node.expression.this


def _unlike(node: Expr, kind: Kind) -> Problem | None:
    """Operands of which Spark makes one type, and cannot."""
    by_family: dict[str, tuple[Expr, SqlType]] = {}
    for operand in _alike(node):
        type_ = kind(operand)
        family = family_of(type_)
        if family is not None:
            by_family.setdefault(family, (operand, type_))
    operator = "IN" if isinstance(node, exp.In) else "||" if isinstance(node, exp.Concat) else "ALIKE"
    given = list(by_family.values())
    for number, (one, its) in enumerate(given):
        for other, others in given[:number]:
            if operator_refuses(operator, others, its):
                return (
                    f"{shown(node)}: {shown(other)} is {others} and {shown(one)} is {its}; Spark has no"
                    " common type for them",
                    _CODE,
                    "CAST one of the two to the type of the other",
                )
    return None


def _alike(node: Expr) -> Sequence[Expr]:
    if isinstance(node, exp.Case):
        otherwise = node.args.get("default")
        return [*(when.args["true"] for when in node.args["ifs"]), *([otherwise] if otherwise else [])]
    if isinstance(node, exp.If):
        both = () if isinstance(node.parent, exp.Case) else (node.args.get("true"), node.args.get("false"))
        return [operand for operand in both if operand is not None]
    if isinstance(node, exp.Nvl2):
        return [operand for operand in (node.args.get("true"), node.args.get("false")) if operand is not None]
    if isinstance(node, exp.In):
        return [node.this, *node.expressions] if node.expressions else []
    if isinstance(node, exp.ConcatWs):  # texts and ARRAYs of texts, side by side
        return []
    return list(node.iter_expressions()) if isinstance(node, _ALIKE) else []


def _cast(node: exp.Cast, kind: Kind) -> Problem | None:
    written = node.to.sql("spark")
    for digits, scale in _decimals(node.to):
        if not 0 < digits <= MOST_DIGITS or scale > digits:
            return (
                f"{shown(node)}: a DECIMAL of {digits} digits with scale {scale} is not a valid type",
                _CODE,
                f"use 1 to {MOST_DIGITS} digits, and a scale of at most that",
            )
    plain: Any = node.this.unnest()
    wanted = sql_type(written)
    given = STRING if isinstance(plain, exp.Literal) and plain.is_string else kind(plain)
    if not _casts_not("TRY_CAST" if isinstance(node, exp.TryCast) else "CAST", given, wanted):
        return None
    hint = None
    if wanted == DATE and given.is_number:
        hint = "use date_from_unix_date() to convert days since 1970-01-01 to a DATE"
    elif given == DATE and wanted.is_number:
        hint = "use unix_date() for the days since 1970-01-01"
    return f"{shown(node)}: Spark cannot cast {given} to {written}", _CODE, hint


def _decimals(kind: exp.DataType) -> Iterator[tuple[int, int]]:
    """Digits and scale of every DECIMAL in a type that is written with them."""
    for part in kind.find_all(exp.DataType):
        lengths = [int(size.name) for size in part.expressions if isinstance(size, exp.DataTypeParam)]
        if part.this is exp.DType.DECIMAL and lengths:
            yield lengths[0], lengths[1] if len(lengths) > 1 else 0


def _casts_not(operator: str, given: SqlType, wanted: SqlType) -> bool:
    """Certainly, in some part of them."""
    if operator_refuses(operator, given, wanted):
        return True
    if not (given.is_nested and wanted.is_nested and given.name == wanted.name):
        return False
    if len(given.inner) != len(wanted.inner):
        return True
    return any(_casts_not(operator, *pair) for pair in zip(given.inner, wanted.inner, strict=True))


def _element(node: exp.Bracket, kind: Kind) -> Problem | None:
    if len(node.expressions) != 1:
        return None
    (place,) = node.expressions
    base = kind(node.this)
    family = family_of(base)
    if family is None:
        return None
    if family not in ("ARRAY", "MAP", "STRUCT"):
        return f"{shown(node)}: a {base} has no elements", _CODE, "use [ ] with an ARRAY, MAP or STRUCT"
    literal: Any = place.unnest()
    is_text = isinstance(literal, exp.Literal) and literal.is_string
    if family == "STRUCT":
        if isinstance(literal, exp.Column) or (isinstance(literal, exp.Literal) and not is_text):
            return f"{shown(node)}: a STRUCT needs the name of a field", _CODE, "write x.field, or x['field']"
        return None
    its = STRING if is_text and family == "ARRAY" else kind(place)
    if its != UNKNOWN and operator_refuses("[]", base, its):
        return f"{shown(node)}: an {family} cannot have the index {its}", _CODE, "cast it to INT"
    return None


def _field(node: exp.Dot, kind: Kind) -> Problem | None:
    name, base = node.expression, kind(node.this)
    if not isinstance(name, exp.Identifier) or base == UNKNOWN or field_type(base, name.name) is not None:
        return None
    if family_of(base) is None:  # an INTERVAL, say
        return None
    names = [field.name for field in (base.element or base).fields]
    return f"{shown(node)}: a {base} has no field {name.name}", "unknown-column", near_names(name.name, names)
