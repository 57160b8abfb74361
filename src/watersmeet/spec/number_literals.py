"""Numbers as Spark SQL writes them: ``3``, ``3L``, ``1.5BD``, ``1e3``, and of what type they are.

They stay as they are written, from the job's text to Spark: beside a DECIMAL a cast is no literal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from watersmeet.types.sql_type import (
    BIGINT,
    DOUBLE,
    FLOAT,
    INT,
    MOST_CHARACTERS,
    MOST_DIGITS,
    SMALLINT,
    TINYINT,
    SqlType,
    decimal,
)

_NUMBER = re.compile(
    r"(?P<whole>\d+)(?P<size>[LSY])?"
    r"|(?P<digits>\d+\.\d*|\.\d+|\d+(?=E|F|D|BD))(?P<power>E[+-]?\d+)?(?P<kind>F|D|BD)?",
    re.IGNORECASE,
)
_SIZES = {"L": BIGINT, "S": SMALLINT, "Y": TINYINT}
_GREATEST = {
    DOUBLE: Fraction(1.7976931348623157e308),
    FLOAT: Fraction(3.4028234663852886e38),
}


class NumberError(ValueError):
    """A number that Spark would not read; the text says why."""


@dataclass(frozen=True)
class Number:
    """``value`` as it is written, before a DOUBLE or FLOAT rounds it; ``type``: Spark's."""

    value: Fraction
    type: SqlType

    @property
    def is_whole(self) -> bool:
        """Of a type of whole numbers."""
        return self.type.is_integer


def is_number(text: str) -> bool:
    """
    >>> is_number("1.5e3BD"), is_number("1e3L"), is_number("5.")
    (True, False, True)
    """
    return _NUMBER.fullmatch(text) is not None


def read_number(text: str, *, negative: bool = False) -> Number:
    """A number without its sign. ``negative``: it has one, which is part of it. Raises: NumberError.

    >>> read_number("2147483648").type, read_number("2147483648", negative=True)
    (SqlType('BIGINT'), Number(value=Fraction(-2147483648, 1), type=SqlType('INT')))
    >>> read_number("1.50").type, read_number("1e3BD").type
    (SqlType('DECIMAL(3,2)'), SqlType('DECIMAL(4,0)'))
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise NumberError(f"{text} is not a number")
    if len(text) > MOST_CHARACTERS:
        raise NumberError(f"the number {text[:20]}… has {len(text):,} characters, too many")
    sign = -1 if negative else 1
    if match["whole"] is not None:
        return _whole(text, sign * int(match["whole"]), match["size"])
    kind = (match["kind"] or ("D" if match["power"] else "BD")).upper()
    if len(match["power"] or "") > 6:
        raise NumberError(f"the exponent of {text} has too many digits")
    digits, power = match["digits"], int((match["power"] or "e0")[1:])
    value = sign * Fraction(f"0{digits}" if digits.startswith(".") else digits) * Fraction(10) ** power
    if kind == "BD":
        return Number(value, _decimal(text, digits, power))
    type_ = {"D": DOUBLE, "F": FLOAT}[kind]
    if abs(value) > _GREATEST[type_]:
        raise NumberError(f"{text} is out of the range of {type_}")
    return Number(value, type_)


def double_of(text: str) -> float:
    """The value of a number as a DOUBLE.

    >>> double_of("1.5F"), double_of("3L")
    (1.5, 3.0)
    """
    return float(read_number(text).value)


def _whole(text: str, value: int, size: str | None) -> Number:
    types = (_SIZES[size.upper()],) if size else (INT, BIGINT)
    for type_ in types:
        most = 1 << (type_.bits - 1)
        if -most <= value < most:
            return Number(Fraction(value), type_)
    if size:
        raise NumberError(f"{text} is out of the range of {types[0]}")
    return Number(Fraction(value), _decimal(text, text, 0))


def _decimal(text: str, digits: str, power: int) -> SqlType:
    whole, _, fraction = digits.partition(".")
    own = len((whole + fraction).lstrip("0")) or 1
    scale = len(fraction) - power
    precision = own - scale if scale < 0 else max(own, scale)
    if precision > MOST_DIGITS:
        raise NumberError(f"{text} has more than {MOST_DIGITS} digits")
    return decimal(precision, max(scale, 0))
