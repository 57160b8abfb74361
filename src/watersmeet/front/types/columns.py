"""Types of columns in a job's text and in case files, read by the grammar of `types.parser`."""

from __future__ import annotations

from watersmeet.errors import SqlError
from watersmeet.front.text.place import Text
from watersmeet.front.text.tokens import Cursor, statements_of
from watersmeet.types.parser import parse_type

UNKNOWN = "UNKNOWN"
"""The type of an expression that only Spark can tell."""


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
    return str(found)
