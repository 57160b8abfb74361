"""Tokenize statements, and reject clauses of other systems."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import raise_all
from watersmeet.names import is_ours
from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.parser.text.external_values import Report, fill_references, read_value
from watersmeet.parser.text.source_position import Text, reserved_name_error
from watersmeet.spec.grammar import MisreadError
from watersmeet.types.intervals import unit_name

# Clauses of other systems that are not known here: refused before parsing, with what to write.

_WINDOW_PART = re.compile(r"(tumble|hop|session)_(start|end|rowtime|proctime)")
_WINDOW_HINT = (
    "put the window function into FROM: SELECT window_start, window_end, … FROM TABLE(TUMBLE(TABLE"
    " name, DESCRIPTOR(event_time), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, …; or HOP,"
    " SESSION"
)
_CUMULATE_HINT = (
    "use TABLE(TUMBLE(TABLE name, DESCRIPTOR(event_time), step)) for one row per step and sum the steps"
    " in the target system; or write one query with TUMBLE per size"
)
_MATCH_HINT = (
    "join the stream with itself: FROM s a JOIN s b ON b.k = a.k AND b.ts > a.ts AND b.ts <= a.ts +"
    " INTERVAL '1' HOUR; use LEFT ANTI JOIN for a missing event, ASOF JOIN for the next row"
)
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)


def refuse_foreign(text: Text, tokens: Sequence[Token]) -> None:
    """Raise SqlError for the first clause of another system among the tokens of a statement."""
    for place, token in enumerate(tokens):
        name, following = token.text.lower(), tokens[place + 1 : place + 2]
        if token.token_type in _QUOTED or not following:
            continue
        if following[0].token_type is TokenType.L_PAREN:
            if name == "window" or _WINDOW_PART.fullmatch(name):
                raise text.not_supported(f"{name}() is", token.start, _WINDOW_HINT)
            if name == "cumulate":
                raise text.not_supported("CUMULATE is", token.start, _CUMULATE_HINT)
            if name == "match_recognize":
                raise text.not_supported("MATCH_RECOGNIZE is", token.start, _MATCH_HINT)
        if name == "within" and (lengths := _lengths(tokens[place + 1 :])):
            raise text.not_supported("WITHIN after JOIN is", token.start, _within_hint(lengths))


def _lengths(tokens: Sequence[Token]) -> list[str]:
    """Return the lengths behind WITHIN as intervals (``1 HOUR``, ``(1 HOUR, 2 HOURS)``); none of a name."""
    lengths: list[str] = []
    rest = list(tokens[1:6] if tokens[0].token_type is TokenType.L_PAREN else tokens[:2])
    while len(rest) > 1 and rest[0].token_type is TokenType.NUMBER and unit_name(rest[1].text) is not None:
        lengths.append(f"INTERVAL '{rest[0].text}' {rest[1].text.upper()}")
        rest = rest[3:]
    return lengths


def _within_hint(lengths: Sequence[str]) -> str:
    before, after = lengths[0], lengths[-1]
    return (
        f"write the time bound in ON: AND d.ts BETWEEN o.ts - {before} AND o.ts + {after}, where o.ts"
        " and d.ts are the event times of the left and the right side"
    )


# Statements as token lists, and a cursor over one of them for what is read by hand (DDL, SET).

_NO_NAMES = {TokenType.STRING, TokenType.NUMBER}


def statements_of(text: Text) -> list[list[Token]]:
    """Split the text into statements, each as its tokens without the semicolon.

    Drop comments and empty statements.
    """
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
    raise_all([reserved_name_error(token.text, text.at(token.start)) for token in taken.values()])
    return [statement for statement in statements if statement]


def tokens_of(text: Text, start: int, end: int) -> list[Token]:
    """Tokenize a part of the text; tokens have their locations in the whole text."""
    lines = text.sql.count("\n", 0, start)
    before = "\n" * lines + " " * (start - lines)
    try:
        return list(Watersmeet().tokenize(before + text.sql[start:end]))
    except TokenError as error:
        raise text.error("syntax: the hint cannot be read", "syntax", start) from error


def parse_tokens(text: Text, tokens: Sequence[Token]) -> exp.Expression:
    """Parse one statement or expression into a tree."""
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
    """Raise SqlError if a keyword stands where SQL needs a value; the parser would skip it.

    Columns with such names need quotes.
    """
    for before, token, behind in zip(tokens, tokens[1:], tokens[2:], strict=False):
        passed_over = token.token_type is TokenType.ALIAS or (
            token.token_type in (TokenType.ALL, TokenType.DISTINCT) and behind.token_type in _CLOSES
        )
        if passed_over and before.token_type in _OPENS:
            word = token.text
            hint = f"write `{word}` for a column of that name"
            raise text.error(f"syntax: expected a value, found {word}", "syntax", token.start, hint)


class TokenCursor:
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
        """Offset at which the next token starts; at the end, the offset after the last token."""
        return self.tokens[-1].end + 1 if self.at_end else self.tokens[self.index].start

    def peek(self, ahead: int = 0) -> Token | None:
        index = self.index + ahead
        return self.tokens[index] if index < len(self.tokens) else None

    def _count_matching_tokens(self, words: tuple[str, ...]) -> int | None:
        """Return the number of tokens that match these words, or None if they do not match.

        ``PRIMARY KEY`` is one token. Quoted words are not keywords.
        """
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
        return self._count_matching_tokens(words) is not None

    def accept(self, *words: str) -> bool:
        matched = self._count_matching_tokens(words)
        self.index += matched or 0
        return matched is not None

    def expect(self, word: str, what: str | None = None) -> None:
        if not self.accept(word):
            raise self.syntax_error(what or word)

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise self.syntax_error("more")
        self.index += 1
        return token

    def name(self, what: str) -> str:
        """Read a name, quoted or not."""
        token = self.peek()
        quoted = token is not None and token.token_type is TokenType.IDENTIFIER
        plain = token is not None and token.token_type not in _NO_NAMES and _is_word(token.text)
        if token is None or not (quoted or plain):
            raise self.syntax_error(what)
        self.index += 1
        return token.text

    def take_dotted_name(self, what: str) -> str:
        """Read a name with dots: ``spark.sql.x``, ``schema.orders``; a string is accepted, too."""
        token = self.peek()
        if token is not None and token.token_type is TokenType.STRING:
            return self.take().text
        return self.name(what) + self.fields(what)

    def fields(self, what: str = "a field") -> str:
        """Read the dotted suffix of a name: ``.x.y``, or an empty text."""
        written = ""
        while self.accept("."):
            written += f".{self.name(what)}"
        return written

    def string(self, what: str) -> str:
        token = self.peek()
        if token is None or token.token_type is not TokenType.STRING:
            raise self.syntax_error(what)
        return self.take().text

    def external_value(self) -> str | None:
        """Read ``FROM FILE 'path'`` as the content of the file.

        Problems are added to those of the text.

        Returns:
            The content, empty if the file cannot be read; None if the next tokens are not this clause.
        """
        offset = self.offset
        if not self.accept("FROM", "FILE"):
            return None
        return read_value(self.string("the path of a file"), self.report_at(offset))

    def fill(self, value: str, offset: int) -> str:
        """Replace each ``${NAME}`` in the value; add problems to those of the text."""
        return fill_references(value, self.report_at(offset))

    def report_at(self, offset: int) -> Report:
        """Return a function that adds a problem at an offset to the text."""
        return lambda message, code, hint: self.text.problem(message, code, offset, hint)

    def until_comma(self) -> list[Token]:
        """Read the tokens up to the next comma or closing parenthesis of this nesting level."""
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
            raise self.syntax_error("the end of the statement")

    def wrong(self, message: str, code: str, offset: int, hint: str | None = None) -> Exception:
        return self.text.error(message, code, offset, hint)

    def syntax_error(self, wanted: str, hint: str | None = None) -> Exception:
        token = self.peek()
        actual = f'"{token.text}"' if token is not None else "the end"
        hint = self.text.missing_semicolon(self.offset) or hint
        return self.text.error(f"syntax: expected {wanted}, found {actual}", "syntax", self.offset, hint)


def _is_word(text: str) -> bool:
    return text[:1].isalpha() or text[:1] == "_"
