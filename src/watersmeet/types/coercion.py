"""Types that Spark coerces operands to: arithmetic, comparisons, common types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL_FIELDS,
    MAX_DECIMAL_DIGITS,
    SMALLINT,
    STRING,
    TIMES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
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

# Rule: the one type that Spark makes of several.
#
# It is one rule, ANSI on, for what is compared (``=``, ``<``, IN, the keys of a join), for what is chosen
# from (CASE, `coalesce`) and for what is put together (UNION ALL). But of ARRAYs and STRUCTs less is
# compared (`types.coercion`), and of MAPs nothing.

Rule = Callable[[SqlType, SqlType], SqlType | None]


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """Return the common type of two types in Spark.

    Return None if Spark has none, or if one of them is an unknown type.

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
        return _text_read_as(right if left == STRING else left)
    return combine_nested(left, right, common_type)


def common_of(types: Iterable[SqlType]) -> SqlType | None:
    """Return the common type of several types, or None; VOID for no types or only NULLs."""
    common: SqlType | None = VOID
    for type_ in types:
        common = None if common is None else common_type(common, type_)
    return common


def holds(wide: SqlType, narrow: SqlType) -> bool:
    """Return True if the DECIMAL ``wide`` loses no digit of another DECIMAL or of an integer."""
    own = narrow.as_decimal
    return own is not None and own.whole_digits <= wide.whole_digits and own.scale <= wide.scale


def _number(left: SqlType, right: SqlType) -> SqlType:
    if left.is_integer and right.is_integer:
        return max(left, right, key=lambda number: number.bits)
    one, other = left.as_decimal, right.as_decimal
    if one is None or other is None:  # beside a FLOAT, too, which would lose digits of other numbers
        return DOUBLE
    scale, whole = max(one.scale, other.scale), max(one.whole_digits, other.whole_digits)
    scale = min(scale, MAX_DECIMAL_DIGITS - whole)  # digits behind the point go first
    return decimal(whole + scale, scale)


def _text_read_as(type_: SqlType) -> SqlType | None:
    """Return the type to which Spark converts a STRING next to ``type_``, or None."""
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


def combine_nested(left: SqlType, right: SqlType, rule: Rule, *, names: bool = True) -> SqlType | None:
    """Combine two nested types by applying ``rule`` to each pair of their parts.

    Return None if ``rule`` returns None for a pair, or if the types differ in shape (`same_shape`).
    """
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
    """Return True if two nested types are equal except for the types of their parts.

    The names of fields must match, ignoring case.

    Args:
        names: False: ignore the names of fields.
    """
    if not left.is_nested or left.name != right.name or len(left.inner) != len(right.inner):
        return False
    pairs = zip(left.fields, right.fields, strict=True)
    return not names or all(one.name.lower() == other.name.lower() for one, other in pairs)


# Rule: as what Spark compares ARRAYs and STRUCTs, and what functions of ARRAYs and MAPs look for.
#
# Less is taken here than side by side (`types.coercion`): an INT and a DECIMAL(10,2) are compared, an ARRAY
# of INTs and one of those are not, for neither element's type holds all values of the other one's.


def tightest_type(left: SqlType, right: SqlType, names: bool = True) -> SqlType | None:
    """Return the type in which Spark compares two types; None: it does not compare them.

    It is one of the two that holds all values of both, or DOUBLE, or TIMESTAMP. NULL fits every type.

    Args:
        names: Fields of STRUCTs must have the same names.

    >>> from watersmeet.types.parser import sql_type
    >>> tightest_type(sql_type("ARRAY<INT>"), sql_type("ARRAY<BIGINT>"))
    SqlType('ARRAY<BIGINT>')
    >>> tightest_type(sql_type("ARRAY<INT>"), sql_type("ARRAY<DECIMAL(10,2)>"))
    """
    if left == right or left.is_void or right.is_void:
        return right if left.is_void else left
    if left.is_nested or right.is_nested:
        return combine_nested(left, right, lambda one, other: tightest_type(one, other, names), names=names)
    if left.is_decimal or right.is_decimal:
        for wide, narrow in ((left, right), (right, left)):
            if wide.is_decimal and narrow.is_integer:
                return wide if holds(wide, narrow) else None
        return None
    numbers = left.is_number and right.is_number
    return common_type(left, right) if numbers or (left.is_time and right.is_time) else None


def is_compared(left: SqlType, right: SqlType) -> bool:
    """Return whether Spark compares two ARRAYs or STRUCTs: one type holds both, or only names are unlike.

    >>> from watersmeet.types.parser import sql_type
    >>> left, named, wide, both = map(sql_type, (
    ...     "STRUCT<a: INT>", "STRUCT<b: INT>", "STRUCT<A: BIGINT>", "STRUCT<b: BIGINT>"))
    >>> is_compared(left, named), is_compared(left, wide), is_compared(left, both)
    (True, True, False)
    """
    return tightest_type(left, right) is not None or _without_names(left) == _without_names(right)


def _without_names(type_: SqlType) -> SqlType:
    """Return the type with the places of fields for their names; all may be NULL."""
    if type_.fields:
        return struct([Field(str(n), _without_names(own.type)) for n, own in enumerate(type_.fields)])
    return replace(type_, parts=tuple(map(_without_names, type_.parts))) if type_.parts else type_


def loses_digits(left: SqlType, right: SqlType) -> bool:
    """Return True if a FLOAT meets an integer anywhere in the two types.

    Functions of ARRAYs and MAPs compare them as FLOATs; operators compare them as DOUBLEs.
    """
    if left.is_nested and right.is_nested:
        return any(map(loses_digits, left.inner, right.inner))
    return FLOAT in (left, right) and (left.is_integer or right.is_integer)


# Rule: of what type Spark's arithmetic is: sums, products, quotients and remainders, of times and
# intervals, too, and what is summed up over rows.
#
# Of DECIMALs every digit of the result is kept as long as 38 will do; then digits behind the point go,
# down to 6 of them.

MIN_SCALE = 6
"""So many digits behind the point are kept when a result has too many."""

_EXTRA_SUM_DIGITS = 10
_EXTRA_MEAN_DIGITS = 4


def result_type(operator: str, left: SqlType, right: SqlType) -> SqlType | None:
    """Return the result type of ``+``, ``-``, ``*``, ``/``, ``%`` or ``DIV`` between numbers.

    Return None if an operand is not a number.

    >>> str(result_type("*", decimal(10, 2), decimal(5, 2))), str(result_type("/", BIGINT, BIGINT))
    ('DECIMAL(16,4)', 'DOUBLE')
    """
    if not left.is_number or not right.is_number:
        return None
    if operator == "DIV":
        return None if left.is_real or right.is_real else BIGINT
    one, other = left.as_decimal, right.as_decimal
    if one is None or other is None or not (left.is_decimal or right.is_decimal):
        return DOUBLE if operator == "/" else common_type(left, right)
    return fit_decimal(*_EXACT[operator](one, other))


def sum_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    """Return the digits and the scale of an exact sum or difference of two DECIMALs.

    They may exceed the maximum of a DECIMAL.
    """
    scale = max(left.scale, right.scale)
    return max(left.whole_digits, right.whole_digits) + scale + 1, scale


def product_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    return left.digits + right.digits + 1, left.scale + right.scale


def quotient_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    scale = max(MIN_SCALE, left.scale + right.digits + 1)
    return left.whole_digits + right.scale + scale, scale


def remainder_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    scale = max(left.scale, right.scale)
    return min(left.whole_digits, right.whole_digits) + scale, scale


_EXACT = {
    "+": sum_parts, "-": sum_parts, "*": product_parts, "/": quotient_parts, "%": remainder_parts,
}  # fmt: skip


def fit_decimal(digits: int, scale: int) -> SqlType:
    """Return the DECIMAL with these digits and scale, reduced to the maximum number of digits."""
    if digits <= MAX_DECIMAL_DIGITS:
        return decimal(digits, scale)
    return decimal(MAX_DECIMAL_DIGITS, max(MAX_DECIMAL_DIGITS - (digits - scale), min(scale, MIN_SCALE)))


@dataclass(frozen=True)
class Argument:
    """``value``: that of a constant, as text; ``name``: that which a STRUCT made of it has for it."""

    type: SqlType
    value: str | None = None
    name: str | None = None

    @property
    def number(self) -> int | None:
        """A constant whole number."""
        is_number = self.value is not None and self.type.is_number
        return int(Decimal(self.value or "")) if is_number else None


def whole_interval(type_: SqlType) -> SqlType:
    return interval("YEAR", "MONTH") if type_.is_of_months else interval("DAY", "SECOND")


def computed_type(operator: str, left: Argument, right: Argument) -> SqlType | None:
    """Return the result type of ``+``, ``-``, ``*``, ``/``, ``%`` or ``DIV``, or None.

    The operands may have any types that Spark accepts there.

    >>> from watersmeet.types.parser import sql_type
    >>> of = lambda text, value=None: Argument(sql_type(text), value)
    >>> computed_type("-", of("DATE"), of("DATE")), computed_type("+", of("DATE"), of("INTERVAL HOUR"))
    (SqlType('INTERVAL DAY'), SqlType('TIMESTAMP'))
    >>> computed_type("*", of("DECIMAL(10,2)"), of("INT", "100"))
    SqlType('DECIMAL(14,2)')
    """
    one, other = left.type, right.type
    if UNKNOWN in (one, other):
        return None
    timed = _time_arithmetic_type(operator, one, other)
    if timed is not None:
        return timed
    if one == VOID and operator == "/":
        one = other = DOUBLE
    if one == VOID or other == VOID:
        one, other = (other, other) if one == VOID else (one, one)
        if VOID in (one, other):
            one = other = DOUBLE
    if STRING in (one, other):
        one, other = _coerce_text_operand(one, other)
    if one.is_decimal != other.is_decimal:
        one, other = _of_own_digits(one, left, other), _of_own_digits(other, right, one)
    return result_type(operator, one, other)


def _coerce_text_operand(one: SqlType, other: SqlType) -> tuple[SqlType, SqlType]:
    """Convert a text next to a number to a BIGINT or a DOUBLE."""
    beside = other if one == STRING else one
    read = BIGINT if beside.is_integer else DOUBLE
    return (read if one == STRING else one), (read if other == STRING else other)


def _of_own_digits(type_: SqlType, argument: Argument, beside: SqlType) -> SqlType:
    """Return a DECIMAL with the literal's digits for an integer literal next to a DECIMAL.

    Return other types unchanged.
    """
    if not beside.is_decimal or not type_.is_integer or argument.number is None:
        return type_
    return decimal(max(1, len(str(abs(argument.number)))), 0)


def _time_arithmetic_type(operator: str, one: SqlType, other: SqlType) -> SqlType | None:
    """Return the type of an operation with a time or an interval.

    Return None if there is no such operand, or if Spark rejects it.
    """
    if operator in ("*", "/"):
        scaled = next((type_ for type_ in (one, other) if is_span(type_)), None)
        if scaled is None:
            return None
        return whole_interval(scaled) if scaled.is_interval else scaled
    if operator == "DIV":
        return BIGINT if all(is_span(type_) or type_ == VOID for type_ in (one, other)) else None
    if operator not in ("+", "-"):
        return None
    if operator == "-" and one == DATE and other == DATE:
        return interval("DAY", "DAY")
    if operator == "-" and (one.is_time or other.is_time) and {one, other} <= _TIMES_OR_TEXTS:
        return (
            interval("DAY", "DAY")
            if TIMESTAMP not in (one, other) and TIMESTAMP_NTZ not in (one, other)
            else interval("DAY", "SECOND")
        )
    if operator == "+" and (other.is_time or other == STRING) and not one.is_time:
        one, other = other, one
    if is_span(other) and (one.is_time or one == STRING):
        if one != DATE or not other.is_interval or other.is_of_months or other.span == ("DAY", "DAY"):
            return one
        return TIMESTAMP
    if one == DATE and other in (TINYINT, SMALLINT, INT):
        return DATE
    if operator == "+" and VOID in (one, other) and (one.is_time or other.is_time):
        moved = other if one == VOID else one
        return TIMESTAMP if moved == DATE else moved
    if is_span(one) and (is_span(other) or other == VOID):
        return one if other == VOID else common_of([one, other])
    return other if is_span(other) and one == VOID else None


_TIMES_OR_TEXTS = {DATE, TIMESTAMP, TIMESTAMP_NTZ, STRING, VOID}


def is_span(type_: SqlType) -> bool:
    return type_.is_interval or type_.name == "INTERVAL"


def total_type(of: SqlType) -> SqlType | None:
    """Return the type of `sum`, or None if it is unknown."""
    if of.is_decimal:
        return decimal(min(MAX_DECIMAL_DIGITS, of.digits + _EXTRA_SUM_DIGITS), of.scale)
    return BIGINT if of.is_integer else _real(of)


def mean_type(of: SqlType) -> SqlType | None:
    """Return the type of `avg`, or None if it is unknown."""
    if of.is_decimal:
        scale = min(MAX_DECIMAL_DIGITS, of.scale + _EXTRA_MEAN_DIGITS)
        return decimal(min(MAX_DECIMAL_DIGITS, of.digits + _EXTRA_MEAN_DIGITS), scale)
    return DOUBLE if of.is_integer else _real(of)


def _real(of: SqlType) -> SqlType | None:
    """Return DOUBLE for real numbers and for texts; otherwise None.

    Spark reads the texts as numbers.
    """
    return DOUBLE if of.is_real or of == STRING else None
