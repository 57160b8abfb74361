"""Calls and operators that Spark would refuse once it has started: refused where they stand in the text.

What is known of Spark's functions is in `spec.functions`. Only what is certain is refused: an argument whose
type is not known, a literal that Spark may read as something else, or a function with a grammar of its own is
left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import near_names
from watersmeet.front.query.clock import clock_text
from watersmeet.front.text.dialect import Watersmeet
from watersmeet.front.text.place import Text
from watersmeet.front.types.columns import TIMES, UNKNOWN
from watersmeet.front.types.infer import number_type, type_of
from watersmeet.spec.functions import (
    Signature,
    family_of,
    function_names,
    operator_refuses,
    signature_of,
    spark_version,
)
from watersmeet.spec.model import Expr

TypeOf = Callable[[exp.Column], str]

OWN_FUNCTIONS = ("spark.sql.extensions", "spark.sql.catalogimplementation", "spark.sql.catalog.")
"""Settings of Spark by which it may have functions that are in no table."""

_GRAMMAR = frozenset(
    {
        "cast", "try_cast", "extract", "trim", "position", "overlay", "struct", "timestampadd",
        "timestampdiff", "dateadd", "datediff", "date_add", "date_diff", "exists", "interval", "map", "array",
        "row", "values", "in", "not", "and", "or", "if", "case", "count", "grouping", "grouping_id",
    }
)  # fmt: skip
"""Names before parentheses that are more than names, or whose arguments are."""

_OPERATORS: dict[type[Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
_ARITHMETIC = ("+", "-", "*", "/", "%")
_A_DATE = re.compile(r"(\d{4}) ?- ?(\d{1,2}) ?- ?(\d{1,2})")


def check_calls(tree: Expr, type_of_column: TypeOf, text: Text, written: Expr | None = None) -> None:
    """Report the calls and operators of a resolved expression that Spark certainly refuses, the innermost of
    those that hold each other.

    Args:
        written: the expression as it was before; it knows its place where a part of ``tree`` does not.
    """

    def kind(node: Expr) -> str:
        return _kind(node, type_of_column)

    wrong: set[int] = set()
    for node in reversed(list(tree.find_all(exp.Expression))):
        if wrong and any(id(below) in wrong for below in node.walk()):
            continue
        found = _problem(node, kind, text)
        if found is not None:
            message, code, hint = found
            text.problem(message, code, node if text.place(node) else written, hint)
            wrong.add(id(node))


def _problem(node: Expr, kind: Callable[[Expr], str], text: Text) -> tuple[str, str, str | None] | None:
    now = clock_text(node, kind, _name(node))
    if now is not None:
        return now
    for operator, left, right in _operations(node):
        unquoted = _unquoted(operator, left, right, kind)
        if unquoted is not None:
            return unquoted
        if operator_refuses(operator, types := kind(left), other := kind(right)):
            return (
                f"{node.sql('spark')}: Spark has no {types} {operator} {other}",
                "wrong-types",
                "cast one of the two, or compute with INTERVALs"
                if operator in _ARITHMETIC
                else "cast one of the two",
            )
    return _wrong_call(node, kind, text) if isinstance(node, exp.Func) else None


def _operations(node: Expr) -> Iterator[tuple[str, Expr, Expr]]:
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        yield operator, node.this, node.expression
    elif isinstance(node, exp.Between):
        yield ">=", node.this, node.args["low"]
        yield "<=", node.this, node.args["high"]


def _unquoted(
    operator: str, left: Expr, right: Expr, kind: Callable[[Expr], str]
) -> tuple[str, str, str | None] | None:
    """``t >= 2024-03-01``: 2024 less 3 less 1."""
    if operator in _ARITHMETIC:
        return None
    for each, other in ((right, left), (left, right)):
        written = (
            _A_DATE.fullmatch(each.unnest().sql("spark")) if isinstance(each.unnest(), exp.Sub) else None
        )
        if written is not None and kind(other) in (*TIMES, "STRING"):
            date = "-".join(written.groups())
            number = int(written[1]) - int(written[2]) - int(written[3])
            return (
                f"{date} without quotes is the number {number}: a subtraction",
                "wrong-types",
                f"quotes are missing: DATE '{date}', or TIMESTAMP '{date} 00:00:00'",
            )
    return None


def _wrong_call(
    node: exp.Func, kind: Callable[[Expr], str], text: Text
) -> tuple[str, str, str | None] | None:
    called = _call(node)
    if called is None:
        return None
    name, arguments = called
    if name.lower() in _GRAMMAR:
        return None
    signature = signature_of(name)
    if signature is None:
        if text.own_functions:
            return None
        hint = near_names(name.lower(), function_names())
        return (
            f"there is no function {name}() in Spark {spark_version()}",
            "unknown-function",
            hint if hint and hint.startswith("did") else "functions are Spark SQL's",
        )
    if arguments is None:
        return None
    if not signature.takes(arguments):
        given = f"{arguments} {'is' if arguments == 1 else 'are'} given"
        return f"{name}() takes {signature.words()}, and {given}", "wrong-arguments", None
    return _wrong_types(node, name, arguments, signature, kind)


def _wrong_types(
    node: exp.Func, name: str, count: int, signature: Signature, kind: Callable[[Expr], str]
) -> tuple[str, str, str | None] | None:
    """Where it is plain which argument is which, and the types of all are known: beside an INTERVAL, say,
    others are taken than the table has."""
    given: list[Any] = node.expressions if isinstance(node, exp.Anonymous) else list(node.iter_expressions())
    lists = signature.refused.get(count, ())
    if len(given) != count or len(lists) != count or any(family_of(kind(each)) is None for each in given):
        return None
    for number, (argument, refused) in enumerate(zip(given, lists, strict=True), 1):
        found = kind(argument)
        if family_of(found) in refused:
            which = "its argument" if count == 1 else f"argument {number}"
            return (
                f"{name}(): {which}, {argument.sql('spark')}, is {found}, which it does not take",
                "wrong-arguments",
                "cast it",
            )
    return None


def _name(node: Expr) -> str | None:
    called = _call(node) if isinstance(node, exp.Func) else None
    return called[0].lower() if called is not None else None


def _call(node: exp.Func) -> tuple[str, int | None] | None:
    """A function's name as Spark gets it, and how many arguments; None for what is no plain call."""
    if isinstance(node.parent, exp.Dot):
        return None
    if isinstance(node, exp.Anonymous):
        return node.name, len(node.expressions)
    try:
        tokens = list(Watersmeet().tokenize(node.sql(dialect="spark", unsupported_level=ErrorLevel.IGNORE)))
    except SqlglotError:
        return None
    if len(tokens) < 3 or tokens[1].token_type is not TokenType.L_PAREN or not tokens[0].text.isidentifier():
        return None
    if tokens[0].token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return None
    return tokens[0].text.lower(), _count(tokens[1:])


def _count(tokens: list[Token]) -> int | None:
    """How many arguments there are between the parentheses; None if more follows, or there is a grammar."""
    depth, commas = 0, 0
    for number, token in enumerate(tokens):
        kind = token.token_type
        depth += kind in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= kind in (TokenType.R_PAREN, TokenType.R_BRACKET)
        commas += depth == 1 and kind is TokenType.COMMA
        if depth == 1 and kind in (TokenType.FROM, TokenType.IN, TokenType.ALIAS, TokenType.ORDER_BY):
            return None
        if depth == 0 and number < len(tokens) - 1:
            return None
    return 0 if len(tokens) == 2 else commas + 1


def _kind(node: Expr, type_of_column: TypeOf) -> str:
    """The type of an operand; unknown for what Spark reads as the other one needs it: text, NULL."""
    plain = node.unnest()
    if isinstance(plain, exp.Null) or (isinstance(plain, exp.Literal) and plain.is_string):
        return UNKNOWN
    if isinstance(plain, exp.Literal):
        found = number_type(plain)
        return found if found in ("TINYINT", "SMALLINT", "INT") else UNKNOWN
    if isinstance(plain, exp.Column):
        return type_of_column(plain)
    found = type_of(plain, type_of_column)
    if found == UNKNOWN and isinstance(plain, exp.Func):
        called = _call(plain)
        signature = signature_of(called[0]) if called is not None else None
        return (signature.result if signature is not None else None) or UNKNOWN
    return found
