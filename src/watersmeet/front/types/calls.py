"""Calls of functions as Spark gets them: their names and their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from watersmeet.front.text.dialect import Watersmeet
from watersmeet.spec.model import Expr

Call = tuple[str, int | None, Sequence[Expr] | None]


def call_as_written(node: exp.Func) -> Call | None:
    """A function's name as Spark gets it, how many arguments, and which, in their order, where that is plain;
    None for what is no plain call."""
    if isinstance(node.parent, exp.Dot) and node.arg_key == "expression":
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
