"""Expressions as Spark's grammar has them: which operator binds before which, and how literals are written.

sqlglot has orders and forms of other systems. Here the levels are those of Spark's ``SqlBaseParser.g4``,
from the weakest: OR; AND; NOT; one predicate (BETWEEN, IN, LIKE, RLIKE, IS …); comparisons from left to
right; ``|``; ``^``; ``&``; shifts; ``+ - ||``; ``* / % DIV``; signs; and what is written behind a value:
``[…]``, ``.name``, ``::type``, COLLATE. A tree that was read so is written so that Spark reads it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import sqlglot.parser
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import SpecError
from watersmeet.spec.literals import TYPED, NumberError, is_number, read_number, typed_problem

_COMPARISONS: dict[TokenType, type[exp.Expression]] = {
    TokenType.EQ: exp.EQ,
    TokenType.NEQ: exp.NEQ,
    TokenType.NULLSAFE_EQ: exp.NullSafeEQ,
    TokenType.LT: exp.LT,
    TokenType.LTE: exp.LTE,
    TokenType.GT: exp.GT,
    TokenType.GTE: exp.GTE,
}
_NEGATED: dict[TokenType, type[exp.Expression]] = {TokenType.LT: exp.GTE, TokenType.GT: exp.LTE}
_LEVELS: tuple[dict[TokenType, type[exp.Expression]], ...] = (
    _COMPARISONS,
    {TokenType.PIPE: exp.BitwiseOr},
    {TokenType.CARET: exp.BitwiseXor},
    {TokenType.AMP: exp.BitwiseAnd},
    {},  # shifts, of several tokens
    {TokenType.PLUS: exp.Add, TokenType.DASH: exp.Sub, TokenType.DPIPE: exp.DPipe},
    {TokenType.STAR: exp.Mul, TokenType.SLASH: exp.Div, TokenType.MOD: exp.Mod, TokenType.DIV: exp.IntDiv},
)
_TESTS: dict[str, Callable[[], exp.Expression]] = {
    "NULL": exp.Null,
    "TRUE": exp.true,
    "FALSE": exp.false,
    "UNKNOWN": lambda: exp.var("UNKNOWN"),  # of a BOOLEAN alone, as NULL is not
}
_SHIFTS = 4
_SUMS = 5
_TEXTS = (TokenType.STRING, TokenType.RAW_STRING)
_PARAMETERS = (TokenType.PLACEHOLDER, TokenType.COLON, TokenType.PARAMETER)


class MisreadError(Exception):
    """Words that are read here and say nothing: ``hint``: what would; ``start``: where in the text."""

    def __init__(self, message: str, hint: str, start: int, code: str = "syntax") -> None:
        super().__init__(message)
        self.hint = hint
        self.start = start
        self.code = code


_WITH_LENGTH = ("VARCHAR", "CHAR", "CHARACTER")
_NO_ZONE = ("WITHOUT", "TIME", "ZONE")
_INSTANTS = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ)


class GrammarParser(SparkParser):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Create a parser.

        Raises:
            SpecError: sqlglot's parser is compiled: such a class accepts no other grammar.
        """
        if not str(sqlglot.parser.__file__).endswith(".py"):
            raise SpecError(
                "the package sqlglotc is installed, the compiled form of sqlglot, whose parser"
                " watersmeet cannot extend",
                code="compiled-sqlglot",
                hint="run `pip uninstall sqlglotc`, or install watersmeet into an environment of its own",
            )
        return super().__new__(cls)

    # What other systems write behind a value or between two.
    COLUMN_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        kind: SparkParser.COLUMN_OPERATORS[kind] for kind in (TokenType.DOT, TokenType.DCOLON)
    }
    ASSIGNMENT: ClassVar[dict[TokenType, Any]] = {}
    PRIMARY_PARSERS: ClassVar[dict[TokenType, Any]] = {
        kind: parse
        for kind, parse in SparkParser.PRIMARY_PARSERS.items()
        if kind not in (TokenType.NATIONAL_STRING, TokenType.NATIONAL_RAW_STRING)
    }

    def _parse_equality(self, parse_is: bool = True) -> Any:
        """Parse ``booleanExpression`` without AND and OR."""
        if self._match(TokenType.NOT):
            return self.expression(exp.Not(this=self._require_expression(self._parse_equality())))
        return self._parse_optional_predicate(self._parse_bitwise())

    def _parse_comparison(self, this: Any = None) -> Any:
        return self._parse_bitwise()

    def _parse_range(self, this: Any = None, parse_is: bool = False) -> Any:
        return self._parse_optional_predicate(self._parse_bitwise())

    def _parse_bitwise(self) -> Any:
        """Parse ``valueExpression``, which Spark accepts where sqlglot calls this method."""
        return self._level(0)

    def _parse_term(self, parse_mod: bool = True) -> Any:
        return self._level(_SUMS)

    def _level(self, level: int) -> Any:
        if level == len(_LEVELS):
            return self._parse_unary()
        expr = self._level(level + 1)
        while expr is not None:
            kind = self._shift() if level == _SHIFTS else self._operator(_LEVELS[level])
            if kind is None:
                break
            other = self._level(level + 1)
            if other is None and kind is exp.IntDiv:  # a name
                self._retreat(self._index - 1)
                break
            expr = self.expression(kind(this=_operand(expr), expression=self._require_expression(other)))
            if kind is exp.Div:
                expr.set("typed", self.dialect.TYPED_DIVISION)
                expr.set("safe", self.dialect.SAFE_DIVISION)
            elif kind is exp.DPipe:
                expr.set("safe", not self.dialect.STRICT_STRING_CONCAT)
        return expr

    def _operator(self, of: dict[TokenType, type[exp.Expression]]) -> Callable[..., exp.Expression] | None:
        if self._is_shift_next():
            return None
        sign, following = self._curr, self._token(1)
        if of is _COMPARISONS and sign is not None and following is not None and sign.text == "!":
            kind = _NEGATED.get(following.token_type)
            if kind is not None and following.start == sign.end + 1:  # !< and !>
                self._advance(2)
                return kind
        return of[self._prev.token_type] if self._match_set(of) else None

    def _is_shift_next(self) -> str:
        """Return ``<<``, ``>>`` or ``>>>`` if the next tokens form one; otherwise an empty text."""
        token = self._curr
        if token is None or token.token_type not in (TokenType.LT, TokenType.GT):
            return ""
        count, sign = 1, token.text
        while (following := self._token(count)) is not None and following.token_type is token.token_type:
            if following.start != token.start + count:
                break
            count += 1
        return sign * count if sign * count in ("<<", ">>", ">>>") else ""

    def _shift(self) -> Callable[..., exp.Expression] | None:
        sign = self._is_shift_next()
        if not sign:
            return None
        self._advance(len(sign))
        if sign == ">>>":
            return lambda this, expression: exp.Anonymous(
                this="SHIFTRIGHTUNSIGNED", expressions=[this, expression]
            )
        return exp.BitwiseLeftShift if sign == "<<" else exp.BitwiseRightShift

    def _parse_unary(self) -> Any:
        if self._match(TokenType.DASH):
            token = self._curr
            if token is not None and token.token_type is TokenType.NUMBER:  # the sign is part of the number
                self._advance()
                expr = self.expression(exp.Neg(this=self._number(token, negative=True)))
                return self._parse_collations(self._parse_column_ops(expr))
            return self.expression(exp.Neg(this=self._require_expression(self._parse_unary())))
        if self._match(TokenType.PLUS):  # it makes numbers of texts
            return exp.Anonymous(this="POSITIVE", expressions=[self._require_expression(self._parse_unary())])
        if self._match(TokenType.TILDE):
            return self.expression(exp.BitwiseNot(this=self._require_expression(self._parse_unary())))
        return self._parse_collations(self._parse_type())

    def _parse_collations(self, expr: Any) -> Any:
        while expr is not None and self._match(TokenType.COLLATE):
            if isinstance(expr, exp.Cast) and self._tokens[self._index - 2].token_type in self.TYPE_TOKENS:
                self.raise_error("COLLATE is ambiguous here: write (x::STRING) COLLATE …", self._prev)
            name = self._require_expression(self._parse_id_var())
            plain = name if name.args.get("quoted") else exp.var(name.name)
            expr = self._parse_column_ops(self.expression(exp.Collate(this=expr, expression=plain)))
        return expr

    def _parse_atom(self) -> Any:
        """Parse an atom by sqlglot's fast path, except literals.

        `_parse_primary` knows more about literals.
        """
        token = self._curr
        if token is not None and token.token_type in (TokenType.NUMBER, *_TEXTS):
            return None
        return super()._parse_atom()

    def _number(self, token: Token, *, negative: bool = False) -> Any:
        try:
            read_number(token.text, negative=negative)
        except NumberError as error:
            self.raise_error(str(error), token)
        return self.expression(exp.Literal.number(token.text), token)

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
        """Parse a type or a typed literal such as ``DATE '…'``.

        A typed literal is a value before the parser reads any suffix.
        """
        token, following = self._curr, self._token(1)
        if token is not None and following is not None and following.token_type in _TEXTS:
            name = token.text.upper()
            if token.token_type in self.TYPE_TOKENS and token.token_type is not TokenType.INTERVAL:
                if name not in TYPED:
                    self.raise_error(f"Spark has no {name} '…': write CAST('…' AS {name})", token)
                self._advance()
                text = self._parse_primary()
                problem = typed_problem(name, text.name)
                if problem is not None:
                    raise MisreadError(*problem, token.start)
                expr = self.expression(exp.Cast(this=text, to=exp.DataType.build(name, dialect="spark")))
                return self._parse_column_ops(expr)
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _parse_types(self, check_func: bool = False, *args: Any, **kwargs: Any) -> Any:
        """Parse a type; require a length for VARCHAR and CHAR in a cast.

        Accept TIMESTAMP WITHOUT TIME ZONE, whose suffix sqlglot ignores.
        """
        token, following = self._curr, self._token(1)
        type_ = super()._parse_types(check_func, *args, **kwargs)
        if isinstance(type_, exp.DataType) and type_.this in _INSTANTS and self._has_read(_NO_ZONE):
            return exp.DataType.build("TIMESTAMP_NTZ", dialect="spark")
        if check_func or token is None or not isinstance(type_, exp.DataType):
            return type_
        has_length = following is not None and following.token_type is TokenType.L_PAREN
        if token.text.upper() in _WITH_LENGTH and not has_length:
            raise MisreadError(f"{token.text.upper()} has no length", "write STRING", token.start)
        return type_

    def _has_read(self, words: tuple[str, ...]) -> bool:
        """Return True if the last tokens read are these words."""
        read = self._tokens[max(0, self._index - len(words)) : self._index]
        return tuple(token.text.upper() for token in read) == words

    def _parse_primary(self) -> Any:
        token = self._curr
        if token is not None and token.token_type is TokenType.NUMBER:
            self._advance()
            return self._number(token)
        if token is not None and token.token_type in _TEXTS:  # several are one
            texts = []
            while self._match_set(_TEXTS):
                texts.append(self._prev.text)
            return self.expression(exp.Literal.string("".join(texts)), token)
        return super()._parse_primary()

    def _parse_placeholder(self) -> Any:
        """Reject the parameters ``?`` and ``:name``, because a job has no parameters."""
        if self._match_set(_PARAMETERS):
            sign = self._prev
            raise MisreadError(
                f"{sign.text} is a parameter, but a job has no parameters",
                "write the value itself",
                sign.start,
            )
        return None

    def _parse_column_ops(self, this: Any) -> Any:
        number = this.this if isinstance(this, exp.Neg) else this
        if isinstance(number, exp.Literal) and not number.is_string and self._match(TokenType.DOT):
            self.raise_error("a number has no field after the point", self._prev)
        return super()._parse_column_ops(this)

    def _parse_bracket(self, this: Any = None) -> Any:
        """Parse an index or a key after a value, which may be a column named ``array``.

        Reject brackets and braces that build ARRAYs and STRUCTs, as other systems have them.
        """
        sign = self._curr
        if sign is None or sign.token_type not in self.BRACKETS:
            return this
        if this is None or sign.token_type is TokenType.L_BRACE:
            hint = "write array(1, 2), map('a', 1) or named_struct('a', 1)"
            raise MisreadError(f"{sign.text} cannot start a value", hint, sign.start)
        self._advance()
        places = self._parse_csv(self._parse_bracket_key_value)
        if not self._match(TokenType.R_BRACKET):
            self.raise_error("Expected ]")
        if len(places) != 1 or isinstance(places[0], exp.Slice):
            hint = "write array(1, 2) for an ARRAY, or slice(a, 1, 2) for a part of one"
            raise MisreadError("[] takes one index or one key", hint, sign.start)
        expr = self.expression(exp.Bracket(this=this, expressions=places), comments=this.pop_comments())
        return self._parse_bracket(expr)

    def _parse_bracket_key_value(self, is_map: bool = False) -> Any:
        return _operand(super()._parse_bracket_key_value(is_map))

    def _parse_optional_predicate(self, this: Any) -> Any:
        """Parse the optional single predicate after a value."""
        if this is None:
            return None
        if self._match(TokenType.IS):
            return self._parse_is_test(_operand(this))
        start = self._index
        negated = bool(self._match(TokenType.NOT))
        compared = self._parse_unnegated_predicate(_operand(this))
        if compared is None:
            self._retreat(start)
            return this
        if not negated:
            return compared
        like = compared.this if isinstance(compared, exp.Escape) else compared
        if isinstance(like, exp.Like | exp.ILike):
            like.set("negate", True)
            return compared
        return self.expression(exp.Not(this=compared))

    def _parse_unnegated_predicate(self, this: Any) -> Any:
        if self._match(TokenType.BETWEEN):
            low = self._value()
            if not self._match(TokenType.AND):
                self.raise_error("Expecting AND")
            return self.expression(exp.Between(this=this, low=low, high=self._value()))
        if self._match(TokenType.IN):
            if not self._match(TokenType.L_PAREN, advance=False):
                self.raise_error("Expecting (")
            start = self._curr.start
            values = self._parse_in(this)
            if not values.expressions and values.args.get("query") is None:
                raise MisreadError("IN () needs at least one value", "write at least one", start)
            return values
        if self._match(TokenType.RLIKE):
            return self.expression(exp.RegexpLike(this=this, expression=self._value()))
        if not self._match_set((TokenType.LIKE, TokenType.ILIKE)):
            return None
        kind = exp.Like if self._prev.token_type is TokenType.LIKE else exp.ILike
        quantified = self._parse_quantified_patterns()
        if quantified is not None:
            return self.expression(kind(this=this, expression=quantified))
        expr = self.expression(kind(this=this, expression=self._value()))
        if not self._match(TokenType.ESCAPE):
            return expr
        sign = self._curr
        escape = self._require_expression(self._parse_string())
        if len(escape.name) != 1 or escape.name > "\uffff":  # of Java's characters
            raise MisreadError(
                f"ESCAPE '{escape.name}' is not one character",
                "use one character, such as ESCAPE '!'",
                sign.start,
            )
        return self.expression(exp.Escape(this=expr, expression=escape))

    def _parse_quantified_patterns(self) -> exp.Expression | None:
        following = self._token(1)
        if following is None or following.token_type is not TokenType.L_PAREN:
            return None
        if not self._match_texts(("ANY", "SOME", "ALL")):
            return None
        kind = exp.All if self._prev.text.upper() == "ALL" else exp.Any
        opened = self._curr
        patterns = self._parse_wrapped_csv(self._parse_disjunction)
        if not patterns:
            raise MisreadError("() needs at least one pattern", "write at least one", opened.start)
        return kind(this=exp.Tuple(expressions=patterns))

    def _parse_is_test(self, this: Any) -> Any:
        negated = bool(self._match(TokenType.NOT))
        if self._match_text_seq("DISTINCT", "FROM"):
            kind = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return self.expression(kind(this=this, expression=self._value()))
        if not self._match_texts(_TESTS):
            self.raise_error("Expecting NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM after IS")
        expr = self.expression(exp.Is(this=this, expression=_TESTS[self._prev.text.upper()]()))
        return self.expression(exp.Not(this=expr)) if negated else expr

    def _value(self) -> Any:
        return _operand(self._require_expression(self._parse_bitwise()))

    def _require_expression(self, expr: Any) -> Any:
        if expr is None:
            self.raise_error("Expecting a value")
        return expr

    def _token(self, ahead: int) -> Token | None:
        place = self._index + ahead
        return self._tokens[place] if place < len(self._tokens) else None


def _operand(expr: Any) -> Any:
    """Wrap an operand in parentheses that would otherwise be written as a predicate."""
    return exp.Paren(this=expr) if isinstance(expr, exp.NullSafeEQ) else expr


class SparkGrammar(Spark):
    """Spark's dialect with this grammar."""

    class Tokenizer(Spark.Tokenizer):
        NUMERIC_LITERALS: ClassVar[dict[str, str]] = {}

    Parser = GrammarParser

    def tokenize(self, sql: str, dialect: Any = None) -> list[Token]:
        """Numbers with what is behind them (``3L``) as one token."""
        return [_whole(token, sql) for token in super().tokenize(sql, dialect)]


def _whole(token: Token, sql: str) -> Token:
    """Return a number token for a number, or for text that looks like one, such as ``1.5L``.

    The parser rejects a malformed number at its location.
    """
    if token.token_type not in (TokenType.VAR, TokenType.HEX_STRING) or not sql[token.start].isdigit():
        return token
    text = sql[token.start : token.end + 1]
    if text.replace("_", "").isalnum() and not is_number(text) and token.token_type is TokenType.VAR:
        return token  # a name
    return Token(TokenType.NUMBER, text, token.line, token.col, token.start, token.end, token.comments)
