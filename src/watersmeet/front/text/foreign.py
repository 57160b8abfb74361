"""Clauses of other systems that are not known here: refused before parsing, with what to write."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokens import Token, TokenType

from watersmeet.front.text.place import Text
from watersmeet.types.intervals import unit_name

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
