"""Parse types as users and Spark write them: ``varchar(10)`` is STRING, ``row(a int)`` is a STRUCT.

CHAR and VARCHAR are STRING, with a length that is compared with records. TIMESTAMP and TIMESTAMP WITH [LOCAL]
TIME ZONE are the instant type (TIMESTAMP), WITHOUT TIME ZONE is TIMESTAMP_NTZ; precisions are Spark's (µs).
``row(a int)`` is ``STRUCT<a: INT>``.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from watersmeet.errors import SqlError
from watersmeet.types.sql_type import (
    INTERVAL_FIELDS,
    MAX_DECIMAL_DIGITS,
    UNKNOWN,
    VOID,
    Field,
    SqlType,
    array,
    decimal,
    interval,
    map_of,
    struct,
)

_SIMPLE = {
    "BOOLEAN": "BOOLEAN", "BOOL": "BOOLEAN",
    "TINYINT": "TINYINT", "BYTE": "TINYINT", "INT8": "TINYINT",
    "SMALLINT": "SMALLINT", "SHORT": "SMALLINT", "INT16": "SMALLINT", "INT2": "SMALLINT",
    "INT": "INT", "INTEGER": "INT", "INT32": "INT", "INT4": "INT",
    "BIGINT": "BIGINT", "LONG": "BIGINT", "INT64": "BIGINT",
    "FLOAT": "FLOAT", "REAL": "FLOAT", "DOUBLE": "DOUBLE", "FLOAT64": "DOUBLE",
    "STRING": "STRING", "VARCHAR": "STRING", "CHAR": "STRING", "TEXT": "STRING", "CHARACTER": "STRING",
    "NVARCHAR": "STRING", "JSON": "STRING",
    "BINARY": "BINARY", "VARBINARY": "BINARY", "BYTES": "BINARY", "BYTEA": "BINARY",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP", "DATETIME": "TIMESTAMP", "TIMESTAMPTZ": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP", "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
    "VOID": "VOID",
}  # fmt: skip
_DECIMAL = ("DECIMAL", "NUMERIC", "DEC")
_NESTED = ("ARRAY", "MAP", "STRUCT", "ROW")
NAMES = frozenset((*_SIMPLE, *_DECIMAL, *_NESTED))
"""By which a column's type may begin."""
_WORD = re.compile(r"`(?P<quoted>(?:[^`]|``)*)`|(?P<plain>[<>(),:\[\]]|[^\s<>(),:`\[\]]+|`)")
_WITH_LENGTH = ("STRING", "BINARY", "TIMESTAMP", "TIMESTAMP_NTZ", "FLOAT")


_INSTEAD = {
    "VARIANT": "declare it STRING, and take it apart: get_json_object(x, '$.a'), from_json(x, 'a INT')",
    "TIME": "declare STRING or TIMESTAMP; hour(x), minute(x) and second(x) take a TIMESTAMP apart",
    "INTERVAL": "declare a number of seconds, and multiply it: n * INTERVAL '1' SECOND",
    "GEOMETRY": "declare it BINARY",
    "GEOGRAPHY": "declare it BINARY",
}
"""What to declare where Spark has a type that no column can have here."""


class Token(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int: ...


class TypeCursor(Protocol):
    """Input of the type grammar: the tokens of a statement, or the words of a text (`sql_type`)."""

    @property
    def offset(self) -> int: ...
    def looks_at(self, *words: str) -> bool: ...
    def accept(self, *words: str) -> bool: ...
    def expect(self, word: str, what: str | None = None) -> None: ...
    def take(self) -> Token: ...
    def name(self, what: str) -> str: ...
    def wrong(self, message: str, code: str, offset: int, hint: str | None = None) -> Exception: ...


@lru_cache(maxsize=4096)
def sql_type(text: str) -> SqlType:
    """Parse a type; an unknown type gets the text in capitals as its name.

    >>> sql_type("map<string, decimal(8, 2)>").entry
    (SqlType('STRING'), SqlType('DECIMAL(8,2)'))
    >>> sql_type("interval day to second"), sql_type("Variant")
    (SqlType('INTERVAL DAY TO SECOND'), SqlType('VARIANT'))
    """
    words = _Words(text)
    try:
        type_ = _type(words, declared=False)
        words.end()
    except SqlError:
        return SqlType(text.strip().upper())
    return type_


def parse_type(cursor: TypeCursor) -> SqlType:
    """Parse a type that a column can be declared with.

    Raises:
        SqlError: the text is not such a type.
    """
    return _type(cursor, declared=True)


def _type(cursor: TypeCursor, *, declared: bool) -> SqlType:
    """Parse a type.

    Args:
        declared: The user declares it. The type of a computed value may also be an INTERVAL or
            unknown.
    """
    start = cursor.offset
    if not declared and cursor.accept("INTERVAL"):
        return _interval(cursor)
    word = cursor.name("a column type").upper().split()[0]  # DOUBLE PRECISION is one token
    if word in _DECIMAL:
        lengths = _lengths(cursor) or [10]
        digits, scale = lengths[0], lengths[1] if len(lengths) > 1 else 0
        if not 0 < digits <= MAX_DECIMAL_DIGITS or scale > digits:
            raise cursor.wrong(
                f"{word}({digits},{scale}) is not a type: "
                + ("its scale is greater than its precision" if scale > digits else "its precision is wrong"),
                "unknown-type",
                start,
                f"write DECIMAL(precision, scale): precision 1 to {MAX_DECIMAL_DIGITS}, scale "
                "0 to the precision",
            )
        return decimal(digits, scale)
    if word in _NESTED:
        return _array_of(cursor, _nested(cursor, word, declared))
    if not declared and word in ("UNKNOWN", "NULL"):
        return UNKNOWN if word == "UNKNOWN" else VOID
    if word not in _SIMPLE and not declared:
        written = ",".join(map(str, _lengths(cursor)))
        return SqlType(f"{word}({written})" if written else word)
    if word not in _SIMPLE:
        near = difflib.get_close_matches(word, [*_SIMPLE, *_DECIMAL, *_NESTED], n=2)
        hint = _INSTEAD.get(word) or (
            "did you mean " + " or ".join(near) + "?" if near else "types are Spark's, such as BIGINT, STRING"
        )
        raise cursor.wrong(f'unknown type "{word}"', "unknown-type", start, hint)
    name = _SIMPLE[word]
    cursor.accept("PRECISION") or cursor.accept("VARYING")
    lengths = _lengths(cursor) if cursor.looks_at("(") and name in _WITH_LENGTH else []
    if name == "TIMESTAMP":
        name = _parse_time_zone(cursor)
    return _array_of(cursor, SqlType(name, length=lengths[0] if name == "STRING" and lengths else 0))


def _parse_time_zone(cursor: TypeCursor) -> str:
    for words in (("WITH", "LOCAL", "TIME", "ZONE"), ("WITH", "TIME", "ZONE")):
        if cursor.accept(*words):
            return "TIMESTAMP"
    return "TIMESTAMP_NTZ" if cursor.accept("WITHOUT", "TIME", "ZONE") else "TIMESTAMP"


def _array_of(cursor: TypeCursor, element: SqlType) -> SqlType:
    """Parse the array suffixes of ``INT ARRAY`` and ``INT[]``."""
    while cursor.accept("[", "]") or cursor.accept("ARRAY"):
        element = array(element)
    return element


def _lengths(cursor: TypeCursor) -> list[int]:
    lengths: list[int] = []
    if cursor.accept("("):
        while not cursor.accept(")"):
            token = cursor.take()
            if not (token.text.isascii() and token.text.isdigit()):
                raise cursor.wrong(f'expected a length, found "{token.text}"', "syntax", token.start)
            lengths.append(int(token.text))
            cursor.accept(",")
    return lengths


def _nested(cursor: TypeCursor, word: str, declared: bool) -> SqlType:
    close = ">" if cursor.accept("<") else ")"
    if close == ")":
        cursor.expect("(", f"< after {word}")
    parts = [_part(cursor, word, declared)]
    while cursor.accept(","):
        parts.append(_part(cursor, word, declared))
    cursor.expect(close)
    wanted = {"ARRAY": 1, "MAP": 2}.get(word)
    if wanted is not None and len(parts) != wanted:
        raise cursor.wrong(f"{word} takes {wanted} type(s)", "unknown-type", cursor.offset)
    if word == "ARRAY":
        return array(parts[0].type)
    return map_of(parts[0].type, parts[1].type) if word == "MAP" else struct(parts)


def _part(cursor: TypeCursor, word: str, declared: bool) -> Field:
    """Parse one part of a nested type, between two commas; ARRAY and MAP parts have no name."""
    if word not in ("STRUCT", "ROW"):
        return Field("", _type(cursor, declared=declared))
    name = cursor.name("a field name")
    cursor.accept(":")
    return Field(name, _type(cursor, declared=declared), cursor.accept("NOT", "NULL"))


def _interval(cursor: TypeCursor) -> SqlType:
    """Parse the fields after the word INTERVAL."""
    if not any(map(cursor.looks_at, INTERVAL_FIELDS)):
        return SqlType("INTERVAL")
    first = last = _field(cursor)
    if cursor.accept("TO"):
        last = _field(cursor)
    return interval(first, last)


def _field(cursor: TypeCursor) -> str:
    field = next((name for name in INTERVAL_FIELDS if cursor.accept(name)), None)
    if field is None:
        raise cursor.wrong("syntax: expected a field of an INTERVAL", "syntax", cursor.offset)
    return field


@dataclass(frozen=True)
class _Word:
    """``quoted``: it stands in backticks, which are taken off ``text``."""

    text: str
    start: int
    quoted: bool


class _Words:
    """A `TypeCursor` over a text of one type."""

    def __init__(self, text: str) -> None:
        self._words = [
            _Word(match["plain"], match.start(), False)
            if match["quoted"] is None
            else _Word(match["quoted"].replace("``", "`"), match.start(), True)
            for match in _WORD.finditer(text)
        ]
        self._next = 0
        self._length = len(text)

    @property
    def offset(self) -> int:
        return self._words[self._next].start if self._next < len(self._words) else self._length

    def looks_at(self, *words: str) -> bool:
        following = self._words[self._next : self._next + len(words)]
        return [None if word.quoted else word.text.upper() for word in following] == list(words)

    def accept(self, *words: str) -> bool:
        accepted = self.looks_at(*words)
        self._next += len(words) if accepted else 0
        return accepted

    def expect(self, word: str, what: str | None = None) -> None:
        if not self.accept(word):
            raise self._syntax_error(what or word)

    def take(self) -> _Word:
        if self._next == len(self._words):
            raise self._syntax_error("more")
        self._next += 1
        return self._words[self._next - 1]

    def name(self, what: str) -> str:
        word = self.take()
        if not word.quoted and not (word.text[:1].isalpha() or word.text[:1] == "_"):
            raise self._syntax_error(what)
        return word.text

    def end(self) -> None:
        if self._next < len(self._words):
            raise self._syntax_error("the end")

    def wrong(self, message: str, code: str, offset: int, hint: str | None = None) -> SqlError:
        return SqlError(message, code=code, hint=hint)

    def _syntax_error(self, wanted: str) -> SqlError:
        return self.wrong(f"syntax: expected {wanted}", "syntax", self.offset)
