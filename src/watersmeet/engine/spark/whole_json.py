"""A text as one JSON object, to its end, in Spark SQL.

Spark's parser stops behind the first value of a text: of two objects it would read the first one, and nobody
would hear of the second. So it is given the text as a member of an object, with another member behind it:
what stands behind the text's first value, and be it a brace, makes that no JSON, or hides the last member.
Only what goes on as members of an object would do is not told: ``{"a": 1}, "b": 2``.
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.engine.spark.text import literal
from watersmeet.names import ours

ROW = "row"
"""In what `whole_json` gives: the object; it is used where `not_whole` does not hold."""

_END, _CORRUPT = "end", ours("corrupt")


def whole_json(text: str, fields: str, parser: Mapping[str, str]) -> str:
    """The text as a STRUCT with `ROW`.

    Args:
        text: an expression; NULL is no object.
        fields: of the object, as in a type: ``a: INT, b: STRING``.
        parser: options of Spark's JSON parser.
    """
    wrapped = f"""concat('{{"{ROW}":', {text}, '\\n,"{_END}":0}}')"""
    schema = literal(f"{ROW} STRUCT<{fields}>, {_END} INT, {_CORRUPT} STRING")
    options = dict(parser) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    given = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in sorted(options.items()))
    return f"from_json({wrapped}, {schema}, map({given}))"


def whole(value: str, name: str) -> str:
    """A value that is not JSON in the same form, as the one field of an object; NULL is not whole."""
    fields = f"{literal(name)}, {value}"
    return (
        f"named_struct('{ROW}', named_struct({fields}), '{_END}', IF({value} IS NULL, NULL, 0),"
        f" '{_CORRUPT}', CAST(NULL AS STRING))"
    )


def not_whole(parsed: str) -> str:
    """The condition that a text was no object of these fields. ``parsed``: a column with what it gave."""
    absent = " OR ".join(f"{parsed}.{name} IS NULL" for name in (ROW, _END))
    return f"({absent} OR {parsed}.{_CORRUPT} IS NOT NULL)"
