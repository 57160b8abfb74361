"""A text as one JSON object, to its end, in Spark SQL.

Spark's parser stops behind the first value of a text: of two objects it would read the first one, and nobody
would hear of the second. So it is given the text as the first of two elements of an array; the second one is
ours. What stands behind the text's first value, and be it a bracket, makes that no JSON, is one element more,
or hides ours. A text that closes the array cannot open it again, nor bring our element: the names of both are
drawn anew by every process.

Fields are found whatever their case (`JsonNames`): where a column is NULL and the text has its name in
another case, the text is read once more with the name as it is declared.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from watersmeet.names import ours
from watersmeet.runtime.spark.sql_text import bind_value, literal, only_utf8, options_map, quote_name
from watersmeet.spec.records.text_records import JsonNames, escape_name, in_another_case, in_any_case
from watersmeet.types.sql_type import SqlType

_ROW, _END = (ours(f"{what}_{secrets.token_hex(8)}") for what in ("row", "end"))
_CORRUPT, _TEXT, _PARSED, _KEYS = map(ours, ("corrupt", "characters", "read", "keys"))
_NO_MATCH = "(?!)"
"""A pattern that nothing matches."""

_DEEPEST = "1002"
"""Spark's parser takes values nested 1,000 deep, and here they are within an array within an object."""


def parse_whole_json(
    text: str,
    fields: str,
    parser: Mapping[str, str],
    names: JsonNames,
    lacks_some: Callable[[str], str],
) -> str:
    """Build the SQL that parses a text as one whole JSON object.

    The result is the input of `extract_object` and `is_not_whole`.

    Args:
        text: an expression; NULL and text that is not UTF-8 are not objects.
        fields: the fields of the object, written as in a type: ``a: INT, b: STRING``.
        parser: options of Spark's JSON parser.
        names: the names of the fields, which match in any case.
        lacks_some: makes of the object the condition that a field may be there in another case.
    """
    schema = literal(f"{_ROW} ARRAY<STRUCT<{fields}, {_END}: INT>>, {_CORRUPT} STRING")
    options = {"maxNestingDepth": _DEEPEST, **parser}
    options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}

    def parse(characters: str) -> str:
        wrapped = f"""concat('{{"{_ROW}":[', {characters}, '\\n,{{"{_END}":0}}]}}')"""
        return f"from_json({wrapped}, {schema}, {options_map(options)})"

    if not names.names:
        return parse(only_utf8(text))
    renames = f"{lacks_some(extract_object(_PARSED))} AND {has_another_case(_TEXT, names)}"
    mended = f"CASE WHEN {renames} THEN {parse(rename_fields(_TEXT, names))} ELSE {_PARSED} END"
    return bind_value(_TEXT, only_utf8(text), bind_value(_PARSED, parse(_TEXT), mended))


def lacks_column(row: str, columns: Mapping[str, SqlType]) -> str:
    """Return the condition that of a row (STRUCT) some column, or some field in one, is NULL."""
    return "(" + " OR ".join(_is_missing(f"{row}.{quote_name(n)}", own) for n, own in columns.items()) + ")"


def _is_missing(value: str, own: SqlType) -> str:
    if own.is_struct:
        fields = (_is_missing(f"{value}.{quote_name(field.name)}", field.type) for field in own.fields)
        return " OR ".join([f"{value} IS NULL", *fields])
    return "true" if any(inner.is_struct for inner in own.every) else f"{value} IS NULL"


def has_another_case(text: str, names: JsonNames) -> str:
    """Return the condition that a field is not there by its name, but by one in another case."""
    needed = " OR ".join(_is_needed(name, text, names) for name in names.names)
    return f"rlike({text}, {literal(names.in_another_case)}) AND {_bind_keys(text, names, f'({needed})')}"


def rename_fields(text: str, names: JsonNames) -> str:
    """Return a text with the names of such fields as they are declared; NULL where it has two readings."""
    renamed = f"IF({_has_two_readings(text, names)}, NULL, {_rename_text_fields(text, names)})"
    return _bind_keys(text, names, renamed)


def _bind_keys(text: str, names: JsonNames, body: str) -> str:
    """Bind `_KEYS` to the names of the fields of the objects that columns come from.

    The names are NULL where they cannot be determined: Spark's function for it takes no options of a parser,
    and so no NaN.
    """
    of_rows = (
        f"coalesce(json_object_keys(get_json_object({text}, '{path}')), array())" for path in names.rows
    )
    of_all = f"json_object_keys({text})"
    keys = (
        f"IF({of_all} IS NULL, NULL, array_distinct(concat({', '.join(of_rows)})))" if names.rows else of_all
    )
    return bind_value(_KEYS, keys, body)


def _is_needed(name: str, text: str, names: JsonNames) -> str:
    """Return the SQL condition that a field has to be renamed.

    For fields of the objects that columns come from: the object has the field only in another case. For
    other fields, which may be on any level: the text has the name in another case.
    """
    if name not in names.columns:
        return f"rlike({text}, {literal(in_another_case(name))})"
    others = f"exists({_KEYS}, k -> rlike(k, {literal(_name_pattern(name))}))"
    of_keys = f"(NOT array_contains({_KEYS}, {literal(name)}) AND {others})"
    return f"IF({_KEYS} IS NULL, rlike({text}, {literal(in_another_case(name))}), {of_keys})"


def _name_pattern(name: str) -> str:
    return f"^(?iu:{escape_name(name)})$"


def _has_two_readings(text: str, names: JsonNames) -> str:
    """Return the SQL condition that a text is ambiguous.

    It is ambiguous if two names differ only in case, or if a name occurs twice and may be inside a
    value.
    """
    within = "true" if names.has_maps else "false"
    if names.texts and not names.has_maps:
        within = f"rlike({text}, {literal(names.object_in_text)})"
    conditions = []
    for name in names.names:
        spelled = f"regexp_extract_all({text}, {literal(in_any_case(name))}, 1)"
        of_text = f"size(array_distinct({spelled})) > 1"
        several = of_text
        if name in names.columns:
            own = f"size(filter({_KEYS}, k -> rlike(k, {literal(_name_pattern(name))}))) > 1"
            several = f"IF({_KEYS} IS NULL, {of_text}, {own})"
        several = f"({several} OR (size({spelled}) > 1 AND {within}))"
        conditions.append(f"({_is_needed(name, text, names)} AND {several})")
    return " OR ".join(conditions)


def _rename_text_fields(text: str, names: JsonNames) -> str:
    renamed = text
    for name in names.names:
        needed = _is_needed(name, text, names)
        searched = f"IF({needed}, {literal(in_any_case(name))}, {literal(_NO_MATCH)})"
        declared = '"' + name.replace("$", r"\$") + '"$2'
        renamed = f"regexp_replace({renamed}, {searched}, {literal(declared)})"
    return renamed


def wrap_value(value: str, name: str) -> str:
    """Wrap a value that is not JSON in the same form, as the only field of an object.

    NULL counts as not whole.
    """
    one, end = (f"named_struct({literal(name)}, {value}, '{_END}', {mark})" for mark in ("NULL", "0"))
    elements = f"IF({value} IS NULL, NULL, array({one}, {end}))"
    return f"named_struct('{_ROW}', {elements}, '{_CORRUPT}', CAST(NULL AS STRING))"


def extract_object(parsed: str) -> str:
    """Return the SQL of the parsed object, for rows where `is_not_whole` is false.

    Args:
        parsed: a column with the result of `parse_whole_json`.
    """
    return f"get({parsed}.{_ROW}, 0)"


def is_not_whole(parsed: str) -> str:
    """Return the SQL condition that a text was not an object of these fields.

    Args:
        parsed: as for `extract_object`.
    """
    has_end = f"size({parsed}.{_ROW}) = 2 AND get({parsed}.{_ROW}, 1).{_END} IS NOT NULL"
    is_one = f"{has_end} AND {extract_object(parsed)} IS NOT NULL"
    return f"NOT (coalesce({is_one}, false) AND {parsed}.{_CORRUPT} IS NULL)"
