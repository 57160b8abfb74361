"""Rule: the one type that Spark makes of several.

It is one rule, ANSI on, for what is compared (``=``, ``<``, IN, the keys of a join), for what is chosen from
(CASE, `coalesce`) and for what is put together (UNION ALL). But of ARRAYs and STRUCTs less is compared
(`types.compared`), and of MAPs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    INTERVAL_FIELDS,
    MOST_DIGITS,
    STRING,
    TIMES,
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

Rule = Callable[[SqlType, SqlType], SqlType | None]


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """None: Spark makes none, or one of them is a type that is not known here.

    >>> from watersmeet.types.parser import sql_type
    >>> common_type(sql_type("BIGINT"), sql_type("DECIMAL(38,38)"))
    SqlType('DECIMAL(38,18)')
    """
    if left == right:
        return left
    if UNKNOWN in (left, right):
        return None
    if left.is_void or right.is_void:
        return right if left.is_void else left
    if left.is_number and right.is_number:
        return _number(left, right)
    if left.is_time and right.is_time:
        return min(left, right, key=lambda time_type: TIMES.index(time_type))
    if left.is_interval and right.is_interval:
        return _interval(left, right)
    if STRING in (left, right):
        return _beside_text(right if left == STRING else left)
    return combined(left, right, common_type)


def common_of(types: Iterable[SqlType]) -> SqlType | None:
    """Of several; of none, or only of NULLs, VOID."""
    common: SqlType | None = VOID
    for type_ in types:
        common = None if common is None else common_type(common, type_)
    return common


def holds(wide: SqlType, narrow: SqlType) -> bool:
    """Whether a DECIMAL loses no digit of another, or of an integer."""
    own = narrow.as_decimal
    return own is not None and own.whole_digits <= wide.whole_digits and own.scale <= wide.scale


def _number(left: SqlType, right: SqlType) -> SqlType:
    if left.is_integer and right.is_integer:
        return max(left, right, key=lambda number: number.bits)
    one, other = left.as_decimal, right.as_decimal
    if one is None or other is None:  # beside a FLOAT, too, which would lose digits of other numbers
        return DOUBLE
    scale, whole = max(one.scale, other.scale), max(one.whole_digits, other.whole_digits)
    scale = min(scale, MOST_DIGITS - whole)  # digits behind the point go first
    return decimal(whole + scale, scale)


def _beside_text(type_: SqlType) -> SqlType | None:
    """What a STRING is read as."""
    if type_.is_integer:
        return BIGINT
    if type_.is_number:
        return DOUBLE
    return type_ if type_.is_time or type_ in (BOOLEAN, BINARY) else None


def _interval(left: SqlType, right: SqlType) -> SqlType | None:
    if left.is_of_months != right.is_of_months:
        return None
    places = [INTERVAL_FIELDS.index(field) for span in (left, right) for field in span.span or ()]
    return interval(INTERVAL_FIELDS[min(places)], INTERVAL_FIELDS[max(places)])


def combined(left: SqlType, right: SqlType, rule: Rule, *, names: bool = True) -> SqlType | None:
    """Of two nested types the one whose parts are what ``rule`` makes of theirs; None: it makes nothing of
    some, or they are of unlike shape (`same_shape`)."""
    if not same_shape(left, right, names=names):
        return None
    parts = [rule(one, other) for one, other in zip(left.inner, right.inner, strict=True)]
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    if left.fields:
        return struct(
            [
                Field(field.name, type_, field.not_null and other.not_null)
                for field, other, type_ in zip(left.fields, right.fields, present, strict=True)
            ]
        )
    return array(present[0]) if len(present) == 1 else map_of(present[0], present[1])


def same_shape(left: SqlType, right: SqlType, *, names: bool = True) -> bool:
    """Whether two nested types have all in common besides their parts' own: fields of the same names, in any
    case (``names``: that matters)."""
    if not left.is_nested or left.name != right.name or len(left.inner) != len(right.inner):
        return False
    pairs = zip(left.fields, right.fields, strict=True)
    return not names or all(one.name.lower() == other.name.lower() for one, other in pairs)
