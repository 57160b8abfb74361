"""A text as one JSON object, to its end, in Spark SQL.

Spark's parser stops behind the first value of a text: of two objects it would read the first one, and nobody
would hear of the second. So it is given the text as the one element of an array, in an object with another
member behind that: what stands behind the text's first value, and be it a bracket, makes that no JSON, is a
second element, or hides the last member. Only a text that closes the array and opens one of the same name
again is not told: ``{"a": 1}], "row": [{"a": 2}``.
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.engine.spark.text import literal, options_map
from watersmeet.names import ours

_ROW, _END, _CORRUPT = "row", "end", ours("corrupt")


def whole_json(text: str, fields: str, parser: Mapping[str, str]) -> str:
    """What `object_in` and `not_whole` take.

    Args:
        text: an expression; NULL is no object.
        fields: of the object, as in a type: ``a: INT, b: STRING``.
        parser: options of Spark's JSON parser.
    """
    wrapped = f"""concat('{{"{_ROW}":[', {text}, '\\n],"{_END}":0}}')"""
    schema = literal(f"{_ROW} ARRAY<STRUCT<{fields}>>, {_END} INT, {_CORRUPT} STRING")
    options = dict(parser) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f"from_json({wrapped}, {schema}, {options_map(options)})"


def whole(value: str, name: str) -> str:
    """A value that is not JSON in the same form, as the one field of an object; NULL is not whole."""
    fields = f"{literal(name)}, {value}"
    return (
        f"named_struct('{_ROW}', array(named_struct({fields})), '{_END}', IF({value} IS NULL, NULL, 0),"
        f" '{_CORRUPT}', CAST(NULL AS STRING))"
    )


def object_in(parsed: str) -> str:
    """The object; it is used where `not_whole` does not hold. ``parsed``: a column with what a text gave."""
    return f"get({parsed}.{_ROW}, 0)"


def not_whole(parsed: str) -> str:
    """The condition that a text was no object of these fields. ``parsed``: as `object_in`."""
    is_one = f"size({parsed}.{_ROW}) = 1 AND {object_in(parsed)} IS NOT NULL AND {parsed}.{_END} IS NOT NULL"
    return f"NOT (coalesce({is_one}, false) AND {parsed}.{_CORRUPT} IS NULL)"
