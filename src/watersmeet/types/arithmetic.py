"""Rule: of what type Spark's arithmetic is: sums, products, quotients and remainders, of times and intervals,
too, and what is summed up over rows.

Of DECIMALs every digit of the result is kept as long as 38 will do; then digits behind the point go, down to
6 of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from watersmeet.types.common import common_of, common_type
from watersmeet.types.sql_type import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    MOST_DIGITS,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    UNKNOWN,
    VOID,
    SqlType,
    decimal,
    interval,
)

LEAST_SCALE = 6
"""So many digits behind the point are kept when a result has too many."""

_FURTHER_SUMMED = 10
_FURTHER_OF_MEAN = 4


def result_type(operator: str, left: SqlType, right: SqlType) -> SqlType | None:
    """Of ``+``, ``-``, ``*``, ``/``, ``%`` and ``DIV``, between numbers; None: one of them is none.

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
    return fitted(*_EXACT[operator](one, other))


def sum_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    """Digits and scale of an exact sum or difference of two DECIMALs: they can be more than there are."""
    scale = max(left.scale, right.scale)
    return max(left.whole_digits, right.whole_digits) + scale + 1, scale


def product_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    return left.digits + right.digits + 1, left.scale + right.scale


def quotient_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    scale = max(LEAST_SCALE, left.scale + right.digits + 1)
    return left.whole_digits + right.scale + scale, scale


def remainder_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    scale = max(left.scale, right.scale)
    return min(left.whole_digits, right.whole_digits) + scale, scale


_EXACT = {
    "+": sum_parts, "-": sum_parts, "*": product_parts, "/": quotient_parts, "%": remainder_parts,
}  # fmt: skip


def fitted(digits: int, scale: int) -> SqlType:
    """The DECIMAL of so many digits, or of as many as there are."""
    if digits <= MOST_DIGITS:
        return decimal(digits, scale)
    return decimal(MOST_DIGITS, max(MOST_DIGITS - (digits - scale), min(scale, LEAST_SCALE)))


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
    """Of ``+``, ``-``, ``*``, ``/``, ``%`` and ``DIV``, between whatever Spark takes there.

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
    timed = _timed(operator, one, other)
    if timed is not None:
        return timed
    if one == VOID and operator == "/":
        one = other = DOUBLE
    if one == VOID or other == VOID:
        one, other = (other, other) if one == VOID else (one, one)
        if VOID in (one, other):
            one = other = DOUBLE
    if STRING in (one, other):
        one, other = _beside_text(one, other)
    if one.is_decimal != other.is_decimal:
        one, other = _of_own_digits(one, left, other), _of_own_digits(other, right, one)
    return result_type(operator, one, other)


def _beside_text(one: SqlType, other: SqlType) -> tuple[SqlType, SqlType]:
    """What a text is read as beside a number: a BIGINT or a DOUBLE."""
    beside = other if one == STRING else one
    read = BIGINT if beside.is_integer else DOUBLE
    return (read if one == STRING else one), (read if other == STRING else other)


def _of_own_digits(type_: SqlType, argument: Argument, beside: SqlType) -> SqlType:
    """Of a whole number that is written beside a DECIMAL: of its own digits."""
    if not beside.is_decimal or not type_.is_integer or argument.number is None:
        return type_
    return decimal(max(1, len(str(abs(argument.number)))), 0)


def _timed(operator: str, one: SqlType, other: SqlType) -> SqlType | None:
    """With a time or an interval in it; None: there is none, or it is not taken."""
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
    """Of `sum`; None: it is not known here."""
    if of.is_decimal:
        return decimal(min(MOST_DIGITS, of.digits + _FURTHER_SUMMED), of.scale)
    return BIGINT if of.is_integer else _real(of)


def mean_type(of: SqlType) -> SqlType | None:
    """Of `avg`; None: it is not known here."""
    if of.is_decimal:
        scale = min(MOST_DIGITS, of.scale + _FURTHER_OF_MEAN)
        return decimal(min(MOST_DIGITS, of.digits + _FURTHER_OF_MEAN), scale)
    return DOUBLE if of.is_integer else _real(of)


def _real(of: SqlType) -> SqlType | None:
    """Texts are read as numbers."""
    return DOUBLE if of.is_real or of == STRING else None
