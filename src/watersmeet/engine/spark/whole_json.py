"""A text as one JSON object, to its end, in Spark SQL.

Spark's parser stops behind the first value of a text: of two objects it would read the first one, and nobody
would hear of the second. So it is given the text as the first of two elements of an array; the second one is
ours. What stands behind the text's first value, and be it a bracket, makes that no JSON, is one element more,
or hides ours. A text that closes the array cannot open it again, nor bring our element: the names of both are
drawn anew by every process.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from watersmeet.engine.spark.text import literal, only_utf8, options_map
from watersmeet.names import ours

_ROW, _END = (ours(f"{what}_{secrets.token_hex(8)}") for what in ("row", "end"))
_CORRUPT = ours("corrupt")
_DEEPEST = "1002"
"""Spark's parser takes values nested 1,000 deep, and here they are within an array within an object."""


def whole_json(text: str, fields: str, parser: Mapping[str, str]) -> str:
    """What `object_in` and `not_whole` take.

    Args:
        text: an expression; NULL is no object, nor is what is no UTF-8.
        fields: of the object, as in a type: ``a: INT, b: STRING``.
        parser: options of Spark's JSON parser.
    """
    wrapped = f"""concat('{{"{_ROW}":[', {only_utf8(text)}, '\\n,{{"{_END}":0}}]}}')"""
    schema = literal(f"{_ROW} ARRAY<STRUCT<{fields}, {_END}: INT>>, {_CORRUPT} STRING")
    options = {"maxNestingDepth": _DEEPEST, **parser}
    options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f"from_json({wrapped}, {schema}, {options_map(options)})"


def whole(value: str, name: str) -> str:
    """A value that is not JSON in the same form, as the one field of an object; NULL is not whole."""
    one, end = (f"named_struct({literal(name)}, {value}, '{_END}', {mark})" for mark in ("NULL", "0"))
    elements = f"IF({value} IS NULL, NULL, array({one}, {end}))"
    return f"named_struct('{_ROW}', {elements}, '{_CORRUPT}', CAST(NULL AS STRING))"


def object_in(parsed: str) -> str:
    """The object; it is used where `not_whole` does not hold. ``parsed``: a column with what a text gave."""
    return f"get({parsed}.{_ROW}, 0)"


def not_whole(parsed: str) -> str:
    """The condition that a text was no object of these fields. ``parsed``: as `object_in`."""
    has_end = f"size({parsed}.{_ROW}) = 2 AND get({parsed}.{_ROW}, 1).{_END} IS NOT NULL"
    is_one = f"{has_end} AND {object_in(parsed)} IS NOT NULL"
    return f"NOT (coalesce({is_one}, false) AND {parsed}.{_CORRUPT} IS NULL)"
