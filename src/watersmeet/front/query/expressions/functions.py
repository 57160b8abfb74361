"""Calls and operators that Spark would refuse once it has started: refused where they stand in the text.

What is known of Spark's functions is in `spec.functions`. Only what is certain is refused: an argument whose
type is not known, a literal that Spark may read as something else, or a function with a grammar of its own is
left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import near_names
from watersmeet.front.query.expressions.clock import clock_text
from watersmeet.front.query.expressions.constants import constant_problem
from watersmeet.front.query.expressions.lambdas import lambda_problem, variable_type, with_variables
from watersmeet.front.query.expressions.operators import (
    Problem,
    comparisons,
    not_a_condition,
    operator_problem,
    shown,
)
from watersmeet.front.query.expressions.unlike import unlike_arguments, unlike_key, unlike_operands
from watersmeet.front.text.dialect import Watersmeet
from watersmeet.front.text.place import Text
from watersmeet.front.types.infer import field_type, null_of, number_type, type_of
from watersmeet.spec.functions import (
    Signature,
    family_of,
    function_names,
    signature_of,
    spark_version,
)
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BIGINT, BOOLEAN, DOUBLE, FLOAT, INT, STRING, UNKNOWN, SqlType, array

TypeOf = Callable[[exp.Column], SqlType]

OWN_FUNCTIONS = ("spark.sql.extensions", "spark.sql.catalogimplementation", "spark.sql.catalog.")
"""Settings of Spark by which it may have functions that are in no table."""

_GRAMMAR = frozenset(
    {
        "cast", "try_cast", "extract", "trim", "position", "struct", "timestampadd",
        "timestampdiff", "dateadd", "datediff", "date_add", "date_diff", "exists", "interval", "map", "array",
        "row", "values", "in", "not", "and", "or", "if", "case", "count", "grouping", "grouping_id",
    }
)  # fmt: skip
"""Names before parentheses that are more than names, or whose arguments are."""

_DAYS = ("date_add", "date_diff", "datediff", "dateadd")
"""With a unit they take three arguments."""

_LONG = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.DPipe)
"""Operations of which people write long rows."""

_SHORTENED = (INT, BIGINT, FLOAT, DOUBLE, STRING)

_NO_CALLS = (exp.Connector, exp.Case, exp.Cast)
"""What sqlglot counts among functions."""

_Call = tuple[str, int | None, Sequence[Expr] | None]


def check_calls(
    tree: Expr, type_of_column: TypeOf, text: Text, written: Expr | None = None, clause: str | None = None
) -> None:
    """Report the calls and operators of a resolved expression that Spark certainly refuses, the innermost of
    those that hold each other.

    Args:
        written: the expression as it was before; it knows its place where a part of ``tree`` does not.
        clause: that whose condition it is (WHERE, ON); None: it is none.
    """

    types_by_id: dict[int, SqlType] = {}

    def kind(node: Expr) -> SqlType:
        if id(node) not in types_by_id:
            types_by_id[id(node)] = _kind(_of_known(node, kind), type_of_column)
        return types_by_id[id(node)]

    wrong: set[int] = set()
    for node in reversed(list(tree.find_all(exp.Expression))):
        if wrong and any(id(below) in wrong for below in node.walk()):
            continue
        problem = _problem(node, kind, text)
        if problem is not None:
            message, code, hint = problem
            text.problem(message, code, node if text.place(node) else written, hint)
            wrong.add(id(node))
    if clause is not None and not wrong and (problem := not_a_condition(tree, kind, clause)) is not None:
        text.problem(problem[0], problem[1], tree if text.place(tree) else written, problem[2])


def _problem(node: Expr, kind: Callable[[Expr], SqlType], text: Text) -> Problem | None:
    called = None if isinstance(node, _NO_CALLS) or not isinstance(node, exp.Func) else _call(node)
    name = called[0].lower() if called is not None else None
    now = clock_text(node, kind, name)
    if now is not None:
        return now
    wrong = operator_problem(node, kind) or _unlike(node, kind)
    if wrong is None:
        wrong = constant_problem(node, kind, name)
    if wrong is not None:
        return wrong
    return None if called is None else _wrong_call(called, kind, text)


def _unlike(node: Expr, kind: Callable[[Expr], SqlType]) -> Problem | None:
    if isinstance(node, exp.Bracket):
        return unlike_key(node, kind)
    for operator, left, right in comparisons(node):
        problem = unlike_operands(node, operator, (left, kind(left)), (right, kind(right)))
        if problem is not None:
            return problem
    return None


def _wrong_call(called: _Call, kind: Callable[[Expr], SqlType], text: Text) -> Problem | None:
    name, arguments, given = called
    wrong = None
    if given is not None:
        wrong = lambda_problem(name.lower(), given, kind) or unlike_arguments(name.lower(), given, kind)
    if wrong is not None or (name.lower() in _GRAMMAR and not (name.lower() in _DAYS and arguments == 2)):
        return wrong
    signature = signature_of(name)
    if signature is None:
        if text.own_functions:
            return None
        if name.lower() == "identifier":
            said = "IDENTIFIER() is not supported: names are known when a job is read"
            return said, "not-supported", "write the name itself, in ` ` where it is no plain word"
        hint = near_names(name.lower(), function_names())
        return (
            f"there is no function {name}() in Spark {spark_version()}",
            "unknown-function",
            hint if hint and hint.startswith("did") else "functions are Spark SQL's",
        )
    if arguments is None:
        return None
    if not signature.takes(arguments):
        said = f"{arguments} {'is' if arguments == 1 else 'are'} given"
        return f"{name}() takes {signature.words()}, and {said}", "wrong-arguments", None
    return _wrong_types(name, given, signature, kind)


def _wrong_types(
    name: str, given: Sequence[Expr] | None, signature: Signature, kind: Callable[[Expr], SqlType]
) -> Problem | None:
    """Where it is plain which argument is which, and the types of all are known: beside an INTERVAL, say,
    others are taken than the table has. Texts that are written, and NULL, are read as they are needed."""
    lists = signature.refused.get(len(given or ()))
    if given is None or lists is None:
        return None
    kinds = [kind(operand) for operand in given]
    if any(family_of(its) is None and not _fits(operand) for operand, its in zip(given, kinds, strict=True)):
        return None
    for number, (argument, type_, refused) in enumerate(zip(given, kinds, lists, strict=True), 1):
        if family_of(type_) in refused:
            which = "its argument" if len(given) == 1 else f"argument {number}"
            return (
                f"{name}(): {which}, {shown(argument)}, is {type_}, which it does not take",
                "wrong-arguments",
                "cast it",
            )
    return None


def _fits(argument: Expr) -> bool:
    plain = argument.unnest()
    return isinstance(plain, exp.Null) or (isinstance(plain, exp.Literal) and plain.is_string)


def _call(node: exp.Func) -> _Call | None:
    """A function's name as Spark gets it, how many arguments, and which, in their order, where that is plain;
    None for what is no plain call."""
    if isinstance(node.parent, exp.Dot):
        return None
    if isinstance(node, exp.Anonymous):
        return node.name, len(node.expressions), node.expressions
    if isinstance(node, exp.Overlay):  # it is written with words between
        parts = [node.args.get(key) for key in ("this", "expression", "from_", "for_")]
        given = [part for part in parts if part is not None]
        return "overlay", len(given), given
    text = node.sql(dialect="spark", unsupported_level=ErrorLevel.IGNORE)
    try:
        tokens = list(Watersmeet().tokenize(text))
    except SqlglotError:
        return None
    if len(tokens) < 3 or tokens[1].token_type is not TokenType.L_PAREN or not tokens[0].text.isidentifier():
        return None
    if tokens[0].token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return None
    commas = _commas(tokens[1:])
    if commas is None:
        return tokens[0].text.lower(), None, None
    if len(tokens) == 3:
        return tokens[0].text.lower(), 0, ()
    ends = [*(comma.start for comma in commas), tokens[-1].start]
    starts = [tokens[1].end + 1, *(comma.end + 1 for comma in commas)]
    below: list[Any] = list(node.iter_expressions())
    below += [child.this for child in below if isinstance(child, exp.TsOrDsToDate)]  # which nobody wrote
    children = {child.sql("spark"): child for child in below}
    arguments = [children.get(text[start:end].strip()) for start, end in zip(starts, ends, strict=True)]
    plain = [argument for argument in arguments if argument is not None]
    return tokens[0].text.lower(), len(arguments), plain if len(plain) == len(arguments) else None


def _commas(tokens: list[Token]) -> list[Token] | None:
    """Those between the arguments, of the tokens from the parenthesis on; None if more follows, or there is a
    grammar."""
    depth, commas = 0, []
    for number, token in enumerate(tokens):
        kind = token.token_type
        depth += kind in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= kind in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if depth == 1 and kind is TokenType.COMMA:
            commas.append(token)
        if depth == 1 and kind in (TokenType.FROM, TokenType.IN, TokenType.ALIAS, TokenType.ORDER_BY):
            return None
        if depth == 0 and number < len(tokens) - 1:
            return None
    return commas


def _of_known(node: Expr, kind: Callable[[Expr], SqlType]) -> Expr:
    """An operation with NULLs of their types for operands that are operations of known types themselves, so
    that a long one is not gone through again at each of its operators; anything else as it is."""
    plain = node.unnest()
    if not isinstance(plain, _LONG) or plain.find_ancestor(exp.Lambda) is not None:
        return node
    sides = (plain.this, plain.expression)
    long = [isinstance(side.unnest(), _LONG) and side.find(exp.Interval) is None for side in sides]
    types = [kind(side) if is_long else UNKNOWN for side, is_long in zip(sides, long, strict=True)]
    if not any(type_ in _SHORTENED for type_ in types):
        return node
    this, expression = (
        null_of(type_) if type_ in _SHORTENED else side.copy()
        for side, type_ in zip(sides, types, strict=True)
    )
    return type(plain)(**{**plain.args, "this": this, "expression": expression})


def _kind(node: Expr, type_of_column: TypeOf) -> SqlType:
    """The type of an operand; unknown for what Spark reads as the other one needs it: text, NULL."""
    plain = node.unnest()
    if isinstance(plain, exp.Null) or (isinstance(plain, exp.Literal) and plain.is_string):
        return UNKNOWN
    if isinstance(plain, exp.Literal):
        return number_type(plain)
    if isinstance(plain, exp.Column):
        return type_of_column(plain)
    if isinstance(plain, exp.Identifier):
        return variable_type(plain, lambda inner: _kind(inner, type_of_column))
    if isinstance(plain, (exp.Bracket, exp.Dot)):
        return _kind_within(plain, _kind(plain.this, type_of_column))
    if isinstance(plain, (exp.Connector, exp.Predicate, exp.Not)) and not isinstance(plain, exp.Query):
        return BOOLEAN
    if isinstance(plain, exp.Array):
        elements = {_kind(element, type_of_column) for element in plain.expressions}
        return array(elements.pop()) if len(elements) == 1 and UNKNOWN not in elements else UNKNOWN
    variables = with_variables(plain, lambda inner: _kind(inner, type_of_column))
    type_ = type_of(variables, type_of_column)
    if type_ == UNKNOWN and isinstance(plain, exp.Func):
        called = _call(plain)
        signature = signature_of(called[0]) if called is not None else None
        return (signature.result if signature is not None else None) or UNKNOWN
    return type_


def _kind_within(node: Expr, base: SqlType) -> SqlType:
    """Of ``x[…]`` or ``x.field``, of a value of that type."""
    if isinstance(node, exp.Dot):
        name = node.expression
        return (field_type(base, name.name) if isinstance(name, exp.Identifier) else None) or UNKNOWN
    place = node.expressions[0] if len(node.expressions) == 1 else None
    if base.entry is not None:
        return base.entry[1]
    if base.is_struct:
        text = isinstance(place, exp.Literal) and place.is_string
        return (field_type(base, place.name) if place is not None and text else None) or UNKNOWN
    return base.element or UNKNOWN
