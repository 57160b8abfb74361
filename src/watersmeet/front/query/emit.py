"""EMIT CHANGES and EMIT FINAL at the end of an INSERT or SELECT: which rows a query puts out. The parser does
not know them: they are taken off before it sees the statement."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokens import Token, TokenType

from watersmeet.front.text.place import Text
from watersmeet.spec.model import OutputMode

MODES = {"CHANGES": OutputMode.CHANGELOG, "FINAL": OutputMode.APPEND}
_HINT = (
    "use EMIT CHANGES (results are updated) or EMIT FINAL (results are final), at the end of an INSERT"
    " or SELECT"
)
_WITHIN = "write EMIT once, at the end of the INSERT or SELECT"

_WINDOW_CLOSE = ["ON", "WINDOW", "CLOSE"]
_BEFORE_NAMES = {"FROM", "JOIN", "TABLE", "AS", "INTO", "SELECT", "DISTINCT", "ALL", ",", ".", "("}
_NO_WORDS = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER)


def emitted(tokens: Sequence[Token], text: Text) -> tuple[Sequence[Token], OutputMode | None]:
    """The statement without its EMIT, and what that asks for; None: it has none.

    Raises:
        SqlError: an EMIT that stands elsewhere, or asks for something else.
    """
    place = _first(tokens)
    if place is None:
        return tokens, None
    asked = [token.text.upper() for token in tokens[place + 1 :]]
    start = tokens[place].start
    if len(asked) == 1 and asked[0] in MODES:
        return tokens[:place], MODES[asked[0]]
    if asked[0] in MODES:
        raise text.error(f"syntax: unexpected text after EMIT {asked[0]}", "syntax", start, _WITHIN)
    if asked[:3] == _WINDOW_CLOSE:
        raise text.not_supported("EMIT ON WINDOW CLOSE is", start, _HINT)
    raise text.error(f"syntax: EMIT {asked[0]}", "syntax", start, _HINT)


def refuse_emitted(tokens: Sequence[Token], text: Text) -> None:
    """Raises: SqlError, when what a view is made of says EMIT."""
    if (place := _first(tokens)) is not None:
        raise text.not_supported("EMIT in a view is", tokens[place].start, _WITHIN)


def _first(tokens: Sequence[Token]) -> int | None:
    """Where EMIT is no name of a table or column, nor an alias."""
    for place, token in enumerate(tokens):
        if token.text.upper() != "EMIT" or token.token_type in _NO_WORDS or place == 0:
            continue
        before, behind = tokens[place - 1], [other.text.upper() for other in tokens[place + 1 : place + 4]]
        if before.text.upper() in _BEFORE_NAMES and before.token_type not in _NO_WORDS:
            continue
        is_last = len(behind) == 1 and tokens[-1].token_type is TokenType.VAR
        if is_last or behind == _WINDOW_CLOSE or (behind and behind[0] in MODES):
            return place
    return None
