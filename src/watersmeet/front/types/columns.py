"""Types of columns in a job's text and in case files, read by the grammar of `types.parser`."""

from __future__ import annotations

from watersmeet.errors import SqlError
from watersmeet.front.text.place import Text
from watersmeet.front.text.tokens import Cursor, statements_of
from watersmeet.types.parser import parse_type
from watersmeet.types.sql_type import SqlType


def type_named(written: str) -> SqlType:
    """The type that a text is. Raises: SqlError for what is no type that a column can be declared with.

    >>> type_named("varchar(10)"), type_named("map<string, array<long>>")
    (SqlType('STRING'), SqlType('MAP<STRING, ARRAY<BIGINT>>'))
    """
    text = Text(written)
    statements = statements_of(text)
    if len(statements) != 1:
        raise SqlError(f'"{written}" is not a column type', code="unknown-type")
    cursor = Cursor(text, statements[0])
    type_ = parse_type(cursor)
    cursor.end()
    return type_
