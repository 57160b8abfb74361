"""Operators, casts and conditions that Spark rejects for the types of their operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

from sqlglot import exp

from watersmeet.errors import near_names
from watersmeet.parser.types.inference import field_type, number_type
from watersmeet.spec.functions import family_of, form_refuses, operator_refuses
from watersmeet.spec.model import Expr
from watersmeet.types.coercion import is_compared, tightest_type
from watersmeet.types.intervals import written_as_interval
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import DATE, MAX_DECIMAL_DIGITS, STRING, TIMES, UNKNOWN, SqlType

# Operators, casts and conditions that Spark would refuse for the types of their operands.
#
# What Spark takes is in `spec.functions`. An operand whose type is not known is taken for one that fits.

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
_MAX_CHARACTERS = 80


def operator_problem(node: Expr, kind: Kind) -> Problem | None:
    """Return the problem of the operands of ``node`` if it is an operator, or None.

    Args:
        kind: Returns the type of an operand; unknown for texts and NULL, which Spark converts to the
            type of the other operand.
    """
    for operator, left, right in _operations(node):
        unquoted = _unquoted_date_problem(operator, left, right, kind)
        if unquoted is not None:
            return unquoted
        text = _text_for_interval(node, operator, left, right, kind)
        if text is not None:
            return text
        types, other = kind(left), kind(right)
        if operator_refuses(operator, types, other):
            return _two_operand_problem(node, operator, (left, types), (right, other))
    for form, operand in _conditions(node):
        problem = not_a_condition(operand, kind, form)
        if problem is not None:
            return problem
    sign = _OF_ONE.get(type(node))
    if sign is not None and form_refuses(sign, kind(node.this)):
        return f"{format_expression(node)}: Spark cannot apply {sign} to {kind(node.this)}", _CODE, "cast it"
    if isinstance(node, exp.Cast):
        return _cast(node, kind)
    if isinstance(node, exp.Dot):
        return _field(node, kind)
    if isinstance(node, exp.Bracket):
        return _element(node, kind)
    return _mismatch_problem(node, kind)


def _text_for_interval(node: Expr, operator: str, left: Expr, right: Expr, kind: Kind) -> Problem | None:
    """Return the problem of a text such as ``'10 minutes'`` next to a time or an interval.

    Spark casts no text to an interval there.
    """
    for text, other in ((right, left), (left, right)):
        interval = written_as_interval(text)
        beside = kind(other)
        is_meant = (
            beside in TIMES
            if operator in ("+", "-")
            else (operator in _COMPARE and (beside.is_interval or _is_difference(other, kind)))
        )
        if interval is not None and is_meant:
            return (
                f"{format_expression(node)}: {format_expression(text)} is a text, not an interval",
                _CODE,
                f"write {interval}",
            )
    return None


def _is_difference(node: Expr, kind: Kind) -> bool:
    """Return True if the node subtracts one time from another."""
    plain = node.unnest()
    return isinstance(plain, exp.Sub) and kind(plain.this) in TIMES and kind(plain.expression) in TIMES


def not_a_condition(operand: Expr, kind: Kind, where: str) -> Problem | None:
    """Return the problem of an operand that Spark cannot convert to BOOLEAN, or None.

    Args:
        where: The clause or operator that contains the operand; NOT and IS accept texts.
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
    text = format_expression(operand.unnest())
    return (
        f"{where}: {text} is {kind}, but a condition must be BOOLEAN",
        _CODE,
        f"compare it, such as {text} <> 0" if kind.is_number else "compare it with a value",
    )


def format_expression(node: exp.Expr) -> str:
    """Format an expression for a message, shortened to the maximum length."""
    text = node.sql("spark")
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"


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
    """Yield each operator of a node that compares two operands, with the operands."""
    return (operation for operation in _operations(node) if operation[0] in _COMPARE)


def _two_operand_problem(
    node: Expr, operator: str, left: tuple[Expr, SqlType], right: tuple[Expr, SqlType]
) -> Problem:
    if operator in ("AND", "OR"):
        return _no_condition(operator, *next((e for e in (left, right) if form_refuses("NOT", e[1])), left))
    if operator in _ARITHMETIC:
        said = f"Spark cannot apply {operator} to {left[1]} and {right[1]}"
        return f"{format_expression(node)}: {said}", _CODE, "cast one of the two, or use an INTERVAL"
    return (
        f"{format_expression(node)}: Spark cannot compare {left[1]} with {right[1]}",
        _CODE,
        "compare columns of the same type, or CAST one of the two to the type of the other",
    )


def _unquoted_date_problem(operator: str, left: Expr, right: Expr, kind: Kind) -> Problem | None:
    """Return the problem of a date without quotes, as in ``t >= 2024-03-01``: 2024 - 3 - 1."""
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


def _mismatch_problem(node: Expr, kind: Kind) -> Problem | None:
    """Return the problem of operands that Spark must convert to one type and cannot."""
    by_family: dict[str, tuple[Expr, SqlType]] = {}
    for operand in _operands_of_one_type(node):
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
                    f"{format_expression(node)}: {format_expression(other)} is {others} and "
                    f"{format_expression(one)} is {its}; Spark has no"
                    " common type for them",
                    _CODE,
                    "CAST one of the two to the type of the other",
                )
    return None


def _operands_of_one_type(node: Expr) -> Sequence[Expr]:
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
        if not 0 < digits <= MAX_DECIMAL_DIGITS or scale > digits:
            return (
                f"{format_expression(node)}: a DECIMAL of {digits} digits with scale {scale} "
                "is not a valid type",
                _CODE,
                f"use 1 to {MAX_DECIMAL_DIGITS} digits, and a scale of at most that",
            )
    plain: Any = node.this.unnest()
    wanted = sql_type(written)
    given = STRING if isinstance(plain, exp.Literal) and plain.is_string else kind(plain)
    if not _is_uncastable("TRY_CAST" if isinstance(node, exp.TryCast) else "CAST", given, wanted):
        return None
    hint = None
    if wanted == DATE and given.is_number:
        hint = "use date_from_unix_date() to convert days since 1970-01-01 to a DATE"
    elif given == DATE and wanted.is_number:
        hint = "use unix_date() for the days since 1970-01-01"
    return f"{format_expression(node)}: Spark cannot cast {given} to {written}", _CODE, hint


def _decimals(kind: exp.DataType) -> Iterator[tuple[int, int]]:
    """Yield the digits and the scale of every DECIMAL in a type that states them."""
    for part in kind.find_all(exp.DataType):
        lengths = [int(size.name) for size in part.expressions if isinstance(size, exp.DataTypeParam)]
        if part.this is exp.DType.DECIMAL and lengths:
            yield lengths[0], lengths[1] if len(lengths) > 1 else 0


def _is_uncastable(operator: str, given: SqlType, wanted: SqlType) -> bool:
    """Return True if a part of ``given`` certainly has no cast to that part of ``wanted``."""
    if operator_refuses(operator, given, wanted):
        return True
    if not (given.is_nested and wanted.is_nested and given.name == wanted.name):
        return False
    if len(given.inner) != len(wanted.inner):
        return True
    return any(_is_uncastable(operator, *pair) for pair in zip(given.inner, wanted.inner, strict=True))


def _element(node: exp.Bracket, kind: Kind) -> Problem | None:
    if len(node.expressions) != 1:
        return None
    (place,) = node.expressions
    base = kind(node.this)
    family = family_of(base)
    if family is None:
        return None
    if family not in ("ARRAY", "MAP", "STRUCT"):
        return (
            f"{format_expression(node)}: a {base} has no elements",
            _CODE,
            "use [ ] with an ARRAY, MAP or STRUCT",
        )
    literal: Any = place.unnest()
    is_text = isinstance(literal, exp.Literal) and literal.is_string
    if family == "STRUCT":
        if isinstance(literal, exp.Column) or (isinstance(literal, exp.Literal) and not is_text):
            return (
                f"{format_expression(node)}: a STRUCT needs the name of a field",
                _CODE,
                "write x.field, or x['field']",
            )
        return None
    its = STRING if is_text and family == "ARRAY" else kind(place)
    if its != UNKNOWN and operator_refuses("[]", base, its):
        return f"{format_expression(node)}: an {family} cannot have the index {its}", _CODE, "cast it to INT"
    return None


def _field(node: exp.Dot, kind: Kind) -> Problem | None:
    name, base = node.expression, kind(node.this)
    if not isinstance(name, exp.Identifier) or base == UNKNOWN or field_type(base, name.name) is not None:
        return None
    if family_of(base) is None:  # an INTERVAL, say
        return None
    names = [field.name for field in (base.element or base).fields]
    return (
        f"{format_expression(node)}: a {base} has no field {name.name}",
        "unknown-column",
        near_names(name.name, names),
    )


# ARRAYs, STRUCTs and MAPs that Spark does not compare, for their parts are of unlike types.

_OF_LISTS = ("array_union", "array_intersect", "array_except", "arrays_overlap")
_OF_ELEMENTS = {
    "array_contains": 1,
    "array_position": 1,
    "array_remove": 1,
    "array_append": 1,
    "array_prepend": 1,
    "array_insert": 2,
}
"""Where the value stands that is beside the ARRAY's elements."""

_WIDENING = ("array_contains", "map_contains_key")
"""They make one type of DECIMALs and other numbers."""

_UNCERTAIN = ("UNKNOWN", "VOID", "INTERVAL")
_EXTREMES = ("greatest", "least")
_HINT = "cast one of the two to the type of the other: CAST(x AS ARRAY<DOUBLE>), CAST(x AS STRUCT<a: BIGINT>)"


def unlike_operands(
    node: Expr, operator: str, left: tuple[Expr, SqlType], right: tuple[Expr, SqlType]
) -> Problem | None:
    """Return the problem of a comparison of ARRAYs or STRUCTs of known types, or None."""
    types = left[1], right[1]
    if not all(type_.is_nested for type_ in types) or _is_uncertain(*types) or is_compared(*types):
        return None
    return f"{format_expression(node)}: Spark cannot compare {left[1]} with {right[1]}", "wrong-types", _HINT


def unlike_arguments(name: str, given: Sequence[Expr], kind: Kind) -> Problem | None:
    """Return the problem of argument types that Spark cannot compare with each other, or None.

    Check functions of ARRAYs or MAPs, and `greatest` and `least`.
    """
    if name in _EXTREMES:
        return _mixed_text_problem(name, given, kind)
    pair = _compared_types(name, given, kind)
    if pair is None or not _are_unlike(*pair) or (name in _WIDENING and _have_decimals(*pair)):
        return None
    (one, other), types = (given[0], given[_OF_ELEMENTS.get(name, 1)]), pair
    return (
        f"{name}(): {format_expression(one)} is {kind(one)} and {format_expression(other)} is "
        f"{kind(other)}: Spark cannot"
        f" compare {types[0]} with {types[1]} here",
        "wrong-arguments",
        "CAST one of the two to the type of the other",
    )


def unlike_key(node: exp.Bracket, kind: Kind) -> Problem | None:
    """Return the problem of the key of an `element_at`, or None.

    ``[]`` casts the key; `element_at` does not.
    """
    entry = kind(node.this).entry if node.args.get("offset") and len(node.expressions) == 1 else None
    if entry is None or not _are_unlike(entry[0], kind(node.expressions[0])):
        return None
    key = kind(node.expressions[0])
    return (
        f"{format_expression(node)}: the keys are {entry[0]}, but "
        f"{format_expression(node.expressions[0])} is {key}",
        "wrong-arguments",
        f"cast it to {entry[0]}",
    )


def _compared_types(name: str, given: Sequence[Expr], kind: Kind) -> tuple[SqlType, SqlType] | None:
    """Return the two types that the function compares, or None."""
    place = _OF_ELEMENTS.get(name, 1)
    if len(given) <= place:
        return None
    first, second = kind(given[0]), kind(given[place])
    if name in _OF_LISTS:
        return (first, second) if first.is_nested and second.is_nested else None
    if name == "map_contains_key":
        return None if first.entry is None else (first.entry[0], second)
    if name in _OF_ELEMENTS:
        return None if first.element is None else (first.element, second)
    return None


def _mixed_text_problem(name: str, given: Sequence[Expr], kind: Kind) -> Problem | None:
    typed = [(argument, kind(argument)) for argument in given]
    for (one, its), (other, others) in combinations(typed, 2):
        families = family_of(its), family_of(others)
        if None not in families and families[0] != families[1] and "STRING" in families:
            return (
                f"{name}(): {format_expression(one)} is {its} and {format_expression(other)} "
                f"is {others}; Spark has no"
                " common type for them",
                "wrong-arguments",
                "CAST one of the two to the type of the other",
            )
    return None


def _have_decimals(one: SqlType, other: SqlType) -> bool:
    decimals = any(inner.is_decimal for kind in (one, other) for inner in kind.every)
    return decimals and one.is_nested == other.is_nested


def _are_unlike(one: SqlType, other: SqlType) -> bool:
    """Return True if the two types certainly have no common type."""
    return not _is_uncertain(one, other) and tightest_type(one, other, names=False) is None


def _is_uncertain(one: SqlType, other: SqlType) -> bool:
    return any(inner.name in _UNCERTAIN for kind in (one, other) for inner in kind.every)
