"""Column types as people write them → Spark's, in one spelling: ``VARCHAR`` → ``STRING``, ``row(a int)`` →
``STRUCT<a: INT>``.

Lengths of CHAR and VARCHAR are not enforced: they are STRING. TIMESTAMP and TIMESTAMP WITH [LOCAL] TIME ZONE
are the instant type (TIMESTAMP), WITHOUT TIME ZONE is TIMESTAMP_NTZ; precisions are Spark's (µs).
"""

from __future__ import annotations

import difflib
import re

from watersmeet.errors import SqlError
from watersmeet.front.text.place import Text
from watersmeet.front.text.tokens import Cursor, statements_of

UNKNOWN = "UNKNOWN"
"""The type of an expression that only Spark can tell."""

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
_MOST_DIGITS = 38
_DECIMAL = {"DECIMAL", "NUMERIC", "DEC"}
_NESTED = {"ARRAY", "MAP", "STRUCT", "ROW"}
_WITH_LENGTH = {"STRING", "BINARY", "TIMESTAMP", "TIMESTAMP_NTZ", "FLOAT"}

INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE")


def normal_type(written: str) -> str:
    """The type's one spelling. Raises: SqlError for what is no type.

    >>> normal_type("varchar(10)"), normal_type("map<string, array<long>>")
    ('STRING', 'MAP<STRING, ARRAY<BIGINT>>')
    """
    text = Text(written)
    statements = statements_of(text)
    if len(statements) != 1:
        raise SqlError(f'"{written}" is no column type', code="unknown-type")
    cursor = Cursor(text, statements[0])
    found = parse_type(cursor)
    cursor.end()
    return found


def parse_type(cursor: Cursor) -> str:
    """Reads one type."""
    start = cursor.offset
    word = cursor.name("a column type").upper().split()[0]  # DOUBLE PRECISION is one token
    if word in _DECIMAL:
        lengths = _lengths(cursor) or [10]
        digits, scale = lengths[0], lengths[1] if len(lengths) > 1 else 0
        if not 0 < digits <= _MOST_DIGITS or scale > digits:
            message = (
                f"{word}({digits},{scale}): a DECIMAL has 1 to {_MOST_DIGITS} digits, and no more places"
            )
            raise cursor.text.error(message, "unknown-type", start)
        return f"DECIMAL({digits},{scale})"
    if word in _NESTED:
        return _array_of(cursor, _nested(cursor, word))
    if word not in _SIMPLE:
        near = difflib.get_close_matches(word, [*_SIMPLE, *_DECIMAL, *_NESTED], n=2)
        hint = (
            "did you mean " + " or ".join(near) + "?" if near else "types are Spark's, such as BIGINT, STRING"
        )
        raise cursor.text.error(f'unknown type "{word}"', "unknown-type", start, hint)
    found = _SIMPLE[word]
    cursor.accept("PRECISION") or cursor.accept("VARYING")
    if cursor.looks_at("(") and found in _WITH_LENGTH:
        _lengths(cursor)
    if found == "TIMESTAMP":
        found = _zoned(cursor)
    return _array_of(cursor, found)


def _zoned(cursor: Cursor) -> str:
    for words in (("WITH", "LOCAL", "TIME", "ZONE"), ("WITH", "TIME", "ZONE")):
        if cursor.accept(*words):
            return "TIMESTAMP"
    return "TIMESTAMP_NTZ" if cursor.accept("WITHOUT", "TIME", "ZONE") else "TIMESTAMP"


def _array_of(cursor: Cursor, element: str) -> str:
    """``INT ARRAY``, ``INT[]``."""
    while True:
        if cursor.accept("[", "]") or cursor.accept("ARRAY"):
            element = f"ARRAY<{element}>"
        else:
            return element


def _lengths(cursor: Cursor) -> list[int]:
    found: list[int] = []
    if cursor.accept("("):
        while not cursor.accept(")"):
            token = cursor.take()
            if not token.text.isdigit():
                raise cursor.text.error(f'expected a length, found "{token.text}"', "syntax", token.start)
            found.append(int(token.text))
            cursor.accept(",")
    return found


def _nested(cursor: Cursor, word: str) -> str:
    close = ">" if cursor.accept("<") else ")"
    if close == ")":
        cursor.expect("(", f"< after {word}")
    parts = [_part(cursor, word)]
    while cursor.accept(","):
        parts.append(_part(cursor, word))
    cursor.expect(close)
    wanted = {"ARRAY": 1, "MAP": 2}.get(word)
    if wanted is not None and len(parts) != wanted:
        raise cursor.text.error(f"{word} takes {wanted} type(s)", "unknown-type", cursor.offset)
    return f"{'STRUCT' if word == 'ROW' else word}<{', '.join(parts)}>"


def _part(cursor: Cursor, word: str) -> str:
    if word not in ("STRUCT", "ROW"):
        return parse_type(cursor)
    name = cursor.name("a field name")
    cursor.accept(":")
    field = name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name}`"
    kind = parse_type(cursor)
    if cursor.accept("NOT", "NULL"):
        kind += " NOT NULL"
    return f"{field}: {kind}"
