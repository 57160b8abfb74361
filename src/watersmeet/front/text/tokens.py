"""Statements as token lists, and a cursor over one of them for what is read by hand (DDL, SET)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import raise_all
from watersmeet.front.text.dialect import Watersmeet
from watersmeet.front.text.external_values import Report, fill_references, read_value
from watersmeet.front.text.foreign import refuse_foreign
from watersmeet.front.text.place import Text, taken_name
from watersmeet.names import is_ours
from watersmeet.spec.grammar import MisreadError

_NO_NAMES = {TokenType.STRING, TokenType.NUMBER}


def statements_of(text: Text) -> list[list[Token]]:
    """The text's statements, each as its tokens without the semicolon; comments and empty ones are gone."""
    try:
        tokens = Watersmeet().tokenize(text.sql)
    except TokenError as error:
        raise text.syntax(error) from error
    statements: list[list[Token]] = [[]]
    taken: dict[str, Token] = {}
    for token in tokens:
        if token.token_type is not TokenType.STRING and is_ours(token.text):
            taken.setdefault(token.text.lower(), token)
        if token.token_type is TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    raise_all([taken_name(token.text, text.at(token.start)) for token in taken.values()])
    return [statement for statement in statements if statement]


def tokens_of(text: Text, start: int, end: int) -> list[Token]:
    """The tokens of a part of the text, with their places in the whole of it."""
    lines = text.sql.count("\n", 0, start)
    before = "\n" * lines + " " * (start - lines)
    try:
        return list(Watersmeet().tokenize(before + text.sql[start:end]))
    except TokenError as error:
        raise text.error("syntax: the hint cannot be read", "syntax", start) from error


def parse_tokens(text: Text, tokens: Sequence[Token]) -> exp.Expression:
    """One statement or expression as a tree."""
    refuse_foreign(text, tokens)
    _check_words(text, tokens)
    try:
        parser = Watersmeet().parser(error_level=ErrorLevel.IMMEDIATE)
        trees = parser.parse(list(tokens), text.sql)
    except (ParseError, TokenError) as error:
        raise text.syntax(error) from error
    except IndexError:  # of a call that takes its arguments by twos
        start = tokens[0].start if tokens else None
        raise text.error("syntax: a call has too few arguments", "syntax", start) from None
    except MisreadError as error:
        raise text.error(str(error), error.code, error.start, error.hint) from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Expression):
        raise text.error("syntax: expected one statement", "syntax", tokens[0].start if tokens else None)
    return trees[0]


_OPENS = (TokenType.SELECT, TokenType.COMMA, TokenType.L_PAREN)
_CLOSES = (TokenType.COMMA, TokenType.R_PAREN)


def _check_words(text: Text, tokens: Sequence[Token]) -> None:
    """Words of SQL where a value is wanted, which the parser passes over: columns of such names need quotes.
    Raises: SqlError."""
    for before, token, behind in zip(tokens, tokens[1:], tokens[2:], strict=False):
        passed_over = token.token_type is TokenType.ALIAS or (
            token.token_type in (TokenType.ALL, TokenType.DISTINCT) and behind.token_type in _CLOSES
        )
        if passed_over and before.token_type in _OPENS:
            word = token.text
            hint = f"write `{word}` for a column of that name"
            raise text.error(f"syntax: expected a value, found {word}", "syntax", token.start, hint)


class Cursor:
    """Reads one statement from left to right."""

    def __init__(self, text: Text, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.index = 0

    @property
    def at_end(self) -> bool:
        return self.index >= len(self.tokens)

    @property
    def offset(self) -> int:
        """Where the next token starts; behind the last one at the end."""
        return self.tokens[-1].end + 1 if self.at_end else self.tokens[self.index].start

    def peek(self, ahead: int = 0) -> Token | None:
        index = self.index + ahead
        return self.tokens[index] if index < len(self.tokens) else None

    def _matched(self, words: tuple[str, ...]) -> int | None:
        """How many tokens read like these words (``PRIMARY KEY`` is one token); None if they do not. Words in
        quotes are no keywords."""
        left, ahead = list(words), 0
        while left:
            token = self.peek(ahead)
            if token is None or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
                return None
            parts = token.text.upper().split()
            if left[: len(parts)] != parts:
                return None
            left, ahead = left[len(parts) :], ahead + 1
        return ahead

    def looks_at(self, *words: str) -> bool:
        return self._matched(words) is not None

    def accept(self, *words: str) -> bool:
        matched = self._matched(words)
        self.index += matched or 0
        return matched is not None

    def expect(self, word: str, what: str | None = None) -> None:
        if not self.accept(word):
            raise self.unexpected(what or word)

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise self.unexpected("more")
        self.index += 1
        return token

    def name(self, what: str) -> str:
        """A name, quoted or not."""
        token = self.peek()
        quoted = token is not None and token.token_type is TokenType.IDENTIFIER
        plain = token is not None and token.token_type not in _NO_NAMES and _is_word(token.text)
        if token is None or not (quoted or plain):
            raise self.unexpected(what)
        self.index += 1
        return token.text

    def dotted(self, what: str) -> str:
        """A name with dots in it: ``spark.sql.x``, ``schema.orders``; a string counts as well."""
        token = self.peek()
        if token is not None and token.token_type is TokenType.STRING:
            return self.take().text
        return self.name(what) + self.fields(what)

    def fields(self, what: str = "a field") -> str:
        """What follows a name with dots: ``.x.y``, or nothing."""
        written = ""
        while self.accept("."):
            written += f".{self.name(what)}"
        return written

    def string(self, what: str) -> str:
        token = self.peek()
        if token is None or token.token_type is not TokenType.STRING:
            raise self.unexpected(what)
        return self.take().text

    def external_value(self) -> str | None:
        """Read ``FROM FILE 'path'`` as the content of the file; None: there is none. Problems are added to
        the text's."""
        offset = self.offset
        if not self.accept("FROM", "FILE"):
            return None
        return read_value(self.string("the path of a file"), self.report_at(offset))

    def fill(self, value: str, offset: int) -> str:
        """The value with what ``${NAME}`` means in it. Problems are added to the text's."""
        return fill_references(value, self.report_at(offset))

    def report_at(self, offset: int) -> Report:
        """What adds a problem at an offset to the text's."""
        return lambda message, code, hint: self.text.problem(message, code, offset, hint)

    def until_comma(self) -> list[Token]:
        """The tokens up to the next comma or closing parenthesis of this level."""
        depth, taken = 0, []
        while (token := self.peek()) is not None:
            if depth == 0 and token.token_type in (TokenType.COMMA, TokenType.R_PAREN):
                break
            depth += token.token_type is TokenType.L_PAREN
            depth -= token.token_type is TokenType.R_PAREN
            taken.append(self.take())
        return taken

    def rest(self) -> list[Token]:
        rest = list(self.tokens[self.index :])
        self.index = len(self.tokens)
        return rest

    def end(self) -> None:
        if not self.at_end:
            raise self.unexpected("the end of the statement")

    def wrong(self, message: str, code: str, offset: int, hint: str | None = None) -> Exception:
        return self.text.error(message, code, offset, hint)

    def unexpected(self, wanted: str, hint: str | None = None) -> Exception:
        token = self.peek()
        actual = f'"{token.text}"' if token is not None else "the end"
        hint = self.text.missing_semicolon(self.offset) or hint
        return self.text.error(f"syntax: expected {wanted}, found {actual}", "syntax", self.offset, hint)


def _is_word(text: str) -> bool:
    return text[:1].isalpha() or text[:1] == "_"
