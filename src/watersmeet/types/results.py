"""Rule: of what type the result of a function is, by the types of its arguments.

Spark's functions follow few rules, each with a name here; which function follows which is in the table of
Spark's functions (`spec.functions`), which was made by asking Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from watersmeet.types.arrow import in_arrow
from watersmeet.types.coercion import (
    Argument,
    combine_nested,
    common_of,
    computed_type,
    is_span,
    mean_type,
    tightest_type,
    total_type,
    whole_interval,
)
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_DECIMAL_DIGITS,
    STRING,
    TIMESTAMP,
    TINYINT,
    VOID,
    Field,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)

Arguments = Sequence[Argument]
Result = SqlType | None
"""None: Spark takes no such arguments, or this rule does not tell."""


def _types(arguments: Arguments) -> list[SqlType]:
    return [argument.type for argument in arguments]


def _as_number(type_: SqlType) -> SqlType:
    """Return DOUBLE for a text or NULL in place of a number; otherwise the type itself."""
    return DOUBLE if type_ in (STRING, VOID) else type_


def _as_integer(type_: SqlType) -> SqlType:
    return INT if type_ == VOID else type_


def _array_of(type_: Result) -> Result:
    return None if type_ is None else array(type_)


def _as_array(type_: SqlType) -> SqlType:
    return array(VOID) if type_ == VOID else type_


def _element(type_: SqlType) -> Result:
    return VOID if type_ == VOID else type_.element


def _value(type_: SqlType) -> Result:
    return type_.entry[1] if type_.entry is not None else _element(type_)


def _as_map(type_: SqlType) -> SqlType:
    return map_of(VOID, VOID) if type_ == VOID else type_


def _key(type_: SqlType) -> SqlType:
    return type_.entry[0] if type_.entry is not None else VOID


def _with_element(arguments: Arguments, place: int) -> Result:
    """Return the type of the ARRAY with one more element."""
    element = _element(arguments[0].type)
    return None if element is None else _array_of(_of_elements(element, arguments[place].type))


def _of_elements(one: SqlType, other: SqlType) -> Result:
    """Return the common type of two elements in functions of ARRAYs.

    A FLOAT and an integer give a FLOAT.
    """
    if one.is_nested and other.is_nested:
        return combine_nested(one, other, _of_elements)
    is_float = FLOAT in (one, other) and (one.is_integer or other.is_integer)
    return FLOAT if is_float else tightest_type(one, other)


def _of_two_arrays(arguments: Arguments) -> Result:
    return _of_elements(_as_array(arguments[0].type), _as_array(arguments[1].type))


def _concat_type(arguments: Arguments) -> Result:
    """Return the type of `concat`: ARRAY, BINARY if all arguments are, otherwise STRING."""
    types = _types(arguments)
    if any(type_.name == "ARRAY" for type_ in types):
        return common_of(types)
    return BINARY if types and all(type_ == BINARY for type_ in types) else STRING


def _text_or_bytes(arguments: Arguments) -> Result:
    return BINARY if arguments[0].type == BINARY else STRING


def _total(arguments: Arguments) -> Result:
    own = arguments[0].type
    if own.is_interval:
        return own
    return DOUBLE if own in (VOID, TIMESTAMP) else total_type(own)


def _mean(own: SqlType) -> Result:
    if own.is_interval:
        return whole_interval(own)
    return DOUBLE if own in (VOID, TIMESTAMP) else mean_type(own)


def _round_decimal(own: SqlType, places: int) -> SqlType:
    """Return the DECIMAL type that `round` gives for a DECIMAL.

    It has at most ``places`` digits after the decimal point.
    """
    whole = own.whole_digits + 1
    if places < 0:  # digits before the point are rounded away, and one is carried
        return decimal(min(max(whole, -places + 1), MAX_DECIMAL_DIGITS), 0)
    scale = min(own.scale, places)
    return decimal(min(whole + scale, MAX_DECIMAL_DIGITS), scale)


def _round_type(arguments: Arguments) -> Result:
    own = _as_number(arguments[0].type)
    places = 0
    if len(arguments) > 1:
        given = arguments[1]
        if given.type == VOID:
            places = 0
        elif given.number is None:
            return None if own.is_decimal else own
        else:
            places = given.number
    return _round_decimal(own, places) if own.is_decimal else own


def _whole_number(arguments: Arguments) -> Result:
    """Return the type of `ceil` and `floor`."""
    own = arguments[0].type
    if len(arguments) == 1:
        if not own.is_decimal:
            return BIGINT
        return decimal(own.whole_digits + 1, 0) if own.scale else own
    places = arguments[1].number
    wide = _IN_DECIMAL.get(own.name) or (own if own.is_decimal else None)
    if places is None or wide is None:
        return None
    return _round_decimal(wide, places)


_IN_DECIMAL = {
    "TINYINT": decimal(3, 0), "SMALLINT": decimal(5, 0), "INT": decimal(10, 0), "BIGINT": decimal(20, 0),
    "FLOAT": decimal(14, 7), "DOUBLE": decimal(30, 15), "STRING": decimal(38, 18), "VOID": decimal(38, 18),
}  # fmt: skip


def _arithmetic(operator: str) -> Callable[[Arguments], Result]:
    return lambda arguments: computed_type(operator, arguments[0], arguments[1])


def _struct(arguments: Arguments) -> Result:
    return struct(
        [Field(argument.name or f"col{place}", argument.type) for place, argument in enumerate(arguments, 1)]
    )


def _named_struct(arguments: Arguments) -> Result:
    names = arguments[::2]
    if any(name.value is None or name.type != STRING for name in names):
        return None
    return struct(
        [Field(name.value or "", own.type) for name, own in zip(names, arguments[1::2], strict=False)]
    )


def _map(arguments: Arguments) -> Result:
    key, value = common_of(_types(arguments[::2])), common_of(_types(arguments[1::2]))
    return None if key is None or value is None else map_of(key, value)


def _entries(arguments: Arguments) -> Result:
    entry = _as_map(arguments[0].type).entry
    if entry is None:
        return None
    return array(struct([Field("key", entry[0]), Field("value", entry[1])]))


def _of_entries(arguments: Arguments) -> Result:
    element = _element(arguments[0].type)
    if element is None or len(element.fields) != 2:
        return None
    return map_of(*element.inner)


def _map_of_arrays(arguments: Arguments) -> Result:
    key, value = _element(arguments[0].type), _element(arguments[1].type)
    return None if key is None or value is None else map_of(key, value)


def _merged_map(arguments: Arguments) -> Result:
    """Return the type of `map_zip_with`: a MAP of the common key type and the lambda's result."""
    key = common_of([_key(arguments[0].type), _key(arguments[1].type)])
    return None if key is None else map_of(key, arguments[2].type)


def _zip_type(arguments: Arguments) -> Result:
    fields = []
    for place, argument in enumerate(arguments):
        element = _element(argument.type)
        if element is None:
            return None
        fields.append(Field(argument.name or str(place), element))
    return array(struct(fields))


def _part_of_time(arguments: Arguments) -> Result:
    """Return the type of `extract` by the unit that the query states."""
    if arguments[0].type == VOID:
        return DOUBLE
    unit, own = (arguments[0].value or "").lower(), arguments[1].type
    if unit in _SECONDS:
        return decimal(8, 6)
    if own.is_interval or own.name == "INTERVAL":
        return TINYINT if unit in _SMALL_PARTS else INT
    return INT if arguments[0].value else None


_SECONDS = ("second", "s", "sec", "seconds", "secs")
_SMALL_PARTS = (
    "month", "mon", "mons", "months", "hour", "h", "hours", "hr", "hrs", "minute", "m", "min", "mins",
    "minutes",
)  # fmt: skip


def _decode_type(arguments: Arguments) -> Result:
    """Return the type of `decode`: STRING for bytes, otherwise the common type of the values."""
    if len(arguments) == 2:
        return STRING
    otherwise = arguments[-1].type if len(arguments) % 2 == 0 else STRING
    return common_of([*_types(arguments[2::2]), otherwise])


def _of_branches(arguments: Arguments) -> Result:
    """Return the type of `when`, whose arguments are (condition, value) pairs and a default."""
    branches = arguments[1::2] if len(arguments) % 2 == 0 else [*arguments[1::2], arguments[-1]]
    return common_of(_types(branches))


def _chosen_text(arguments: Arguments) -> Result:
    """Return the type of `elt`."""
    return BINARY if all(type_ == BINARY for type_ in _types(arguments[1:])) else STRING


def _pad_type(arguments: Arguments) -> Result:
    is_binary = arguments[0].type == BINARY and all(type_ == BINARY for type_ in _types(arguments[2:]))
    return BINARY if is_binary else STRING


def _real(arguments: Arguments) -> Result:
    return FLOAT if set(_types(arguments)) <= {FLOAT, VOID} and arguments[0].type == FLOAT else DOUBLE


def _fold_type(arguments: Arguments) -> Result:
    """Return the type of `aggregate`: that of the last lambda's result, or of the start value."""
    return arguments[3 if len(arguments) > 3 else 1].type


def _histogram(arguments: Arguments) -> Result:
    return array(struct([Field("x", _as_number(arguments[0].type)), Field("y", DOUBLE)]))


def _by_number_format(arguments: Arguments) -> Result:
    """Return the type of `to_number`: a DECIMAL with the digits of its format."""
    written = arguments[1].value
    if written is None:
        return None
    whole, _, fraction = written.upper().replace("D", ".").partition(".")
    digits, scale = (sum(sign in "09" for sign in part) for part in (whole, fraction))
    return decimal(digits + scale, scale) if 0 < digits + scale <= MAX_DECIMAL_DIGITS else None


def _of_variant(arguments: Arguments) -> Result:
    """Return the type of `variant_get` by the type that the query states."""
    if len(arguments) == 2:
        return SqlType("VARIANT")
    written = arguments[2].value
    return None if written is None else sql_type(written).nullable


def _by_schema(arguments: Arguments) -> Result:
    """Return the type of `from_json` and the like by the schema that the query states."""
    schema = arguments[1].value if len(arguments) > 1 else None
    if not schema:
        return None
    fields = sql_type(f"STRUCT<{schema}>")
    written = fields if fields.is_struct and fields.fields else sql_type(schema)
    return written.nullable if in_arrow(written) is not None else None


def _sequence(arguments: Arguments) -> Result:
    steps = [argument.type for argument in arguments[2:] if not is_span(argument.type)]
    return _array_of(common_of([*_types(arguments[:2]), *steps]))


def _chosen(start: int) -> Callable[[Arguments], Result]:
    return lambda arguments: common_of(_types(arguments[start:]))


def _shift_type(arguments: Arguments) -> Result:
    return BIGINT if arguments[0].type == BIGINT else INT


def _percentile(arguments: Arguments) -> Result:
    own = arguments[0].type
    kind = whole_interval(own) if own.is_interval else DOUBLE
    several = len(arguments) > 1 and arguments[1].type.name == "ARRAY"
    return array(kind) if several else kind


def _as_percentage(arguments: Arguments) -> Result:
    own = _as_number(arguments[0].type)
    return array(own) if len(arguments) > 1 and arguments[1].type.name == "ARRAY" else own


def _most_frequent(arguments: Arguments) -> Result:
    fields = [Field("item", arguments[0].type), Field("count", BIGINT)]
    return array(struct(fields))


def _bucket(arguments: Arguments) -> Result:
    return TIMESTAMP if arguments[1].type in (DATE, STRING, VOID) else arguments[1].type


def _best(arguments: Arguments) -> Result:
    """Return the type of `max_by` and the like; with a number of values it is an ARRAY."""
    return array(arguments[0].type) if len(arguments) > 2 else arguments[0].type


RULES: Mapping[str, Callable[[Arguments], Result]] = {
    "argument 1": lambda arguments: arguments[0].type,
    "number": lambda arguments: _as_number(arguments[0].type),
    "integer": lambda arguments: _as_integer(arguments[0].type),
    "text or bytes": _text_or_bytes,
    "common type": _chosen(0),
    "common type from 2": _chosen(1),
    "array": lambda arguments: _as_array(arguments[0].type),
    "array of argument 1": lambda arguments: array(arguments[0].type),
    "array of argument 2": lambda arguments: array(arguments[1].type),
    "array of argument 3": lambda arguments: array(arguments[2].type),
    "array of common type": lambda arguments: _array_of(common_of(_types(arguments))),
    "array of both": _of_two_arrays,
    "map of argument 1": lambda arguments: _as_map(arguments[0].type),
    "array with argument 2": lambda arguments: _with_element(arguments, 1),
    "array with argument 3": lambda arguments: _with_element(arguments, 2),
    "element": lambda arguments: _element(arguments[0].type),
    "element or value": lambda arguments: _value(arguments[0].type),
    "concatenated": _concat_type,
    "sum": _total,
    "mean": lambda arguments: _mean(arguments[0].type),
    "mean of argument 2": lambda arguments: _mean(arguments[1].type),
    "rounded": _round_type,
    "whole number": _whole_number,
    "sum of two": _arithmetic("+"),
    "difference": _arithmetic("-"),
    "product": _arithmetic("*"),
    "quotient": _arithmetic("/"),
    "remainder": _arithmetic("%"),
    "shifted": _shift_type,
    "struct": _struct,
    "named struct": _named_struct,
    "map": _map,
    "map of arrays": _map_of_arrays,
    "map of entries": _of_entries,
    "entries": _entries,
    "keys": lambda arguments: array(_key(arguments[0].type)),
    "values": lambda arguments: _array_of(_value(arguments[0].type)),
    "map with keys": lambda arguments: map_of(arguments[1].type, _value(arguments[0].type) or VOID),
    "map with values": lambda arguments: map_of(_key(arguments[0].type), arguments[1].type),
    "merged map": _merged_map,
    "or zero": lambda arguments: common_of([arguments[0].type, INT]),
    "number format": _by_number_format,
    "of a variant": _of_variant,
    "zipped": _zip_type,
    "part of a time": _part_of_time,
    "decoded": _decode_type,
    "sequence": _sequence,
    "percentile": _percentile,
    "one of the values": _as_percentage,
    "most frequent": _most_frequent,
    "bucket": _bucket,
    "best": _best,
    "branches": _of_branches,
    "chosen text": _chosen_text,
    "padded": _pad_type,
    "real": _real,
    "folded": _fold_type,
    "histogram": _histogram,
    "by schema": _by_schema,
}
"""By the names that the table of functions has."""


def result_of(rule: str, arguments: Arguments) -> Result:
    """Return the type of a call by the rule of that name.

    >>> result_of("array of argument 1", [Argument(DATE)]), result_of("real", [])
    (SqlType('ARRAY<DATE>'), None)
    """
    try:
        return RULES[rule](arguments)
    except IndexError:  # fewer arguments than the rule looks at
        return None
