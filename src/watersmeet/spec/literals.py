"""Literals of numbers, dates and times as Spark SQL writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from watersmeet.time_texts import JAVA_BLANK, read_date, read_time, zone_converter
from watersmeet.types.sql_type import (
    BIGINT,
    DOUBLE,
    FLOAT,
    INT,
    MAX_DECIMAL_DIGITS,
    MAX_NUMBER_CHARACTERS,
    SMALLINT,
    TINYINT,
    SqlType,
    decimal,
)

# Numbers as Spark SQL writes them: ``3``, ``3L``, ``1.5BD``, ``1e3``, and of what type they are.
#
# They stay as they are written, from the job's text to Spark: beside a DECIMAL a cast is no literal.

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
        """True if the type is an integer type."""
        return self.type.is_integer


def is_number(text: str) -> bool:
    """Return True if the text is a number literal of Spark.

    >>> is_number("1.5e3BD"), is_number("1e3L"), is_number("5.")
    (True, False, True)
    """
    return _NUMBER.fullmatch(text) is not None


def read_number(text: str, *, negative: bool = False) -> Number:
    """Parse a number literal without its sign.

    Args:
        negative: The number has a minus sign, which is part of its value.

    Raises:
        NumberError: The text is not a number, or is too long.

    >>> read_number("2147483648").type, read_number("2147483648", negative=True)
    (SqlType('BIGINT'), Number(value=Fraction(-2147483648, 1), type=SqlType('INT')))
    >>> read_number("1.50").type, read_number("1e3BD").type
    (SqlType('DECIMAL(3,2)'), SqlType('DECIMAL(4,0)'))
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise NumberError(f"{text} is not a number")
    if len(text) > MAX_NUMBER_CHARACTERS:
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
    """Return the value of a number literal as a DOUBLE.

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
    if precision > MAX_DECIMAL_DIGITS:
        raise NumberError(f"{text} has more than {MAX_DECIMAL_DIGITS} digits")
    return decimal(precision, max(scale, 0))


# ``DATE '…'`` and ``TIMESTAMP '…'``: which texts Spark reads so.

TYPED = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")
"""The types that stand before a text."""

_WORDS = re.compile(r"\s*(epoch|now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_US_OF_DAY = 86_400_000_000
_MOST = 2**63 + _US_OF_DAY
"""µs; whether a time less than a day beyond a BIGINT fits is left to Spark."""


def typed_problem(kind: str, text: str) -> tuple[str, str] | None:
    """Return the problem and the hint if ``text`` is not a literal of type ``kind``.

    Return None if it is one, or if it is a word for a time.

    >>> typed_problem("DATE", "2024-13-01")
    ("DATE '2024-13-01' is not a valid DATE", "write one as DATE '2024-01-31'")
    >>> typed_problem("TIMESTAMP", "2024-03-01 10:00:00 Europe/Berlin") is None
    True
    """
    if _WORDS.match(text):
        return None
    form = "2024-01-31" if kind == "DATE" else "2024-01-31 23:59:59.999999"
    malformed = f"{kind} '{text}' is not a valid {kind}", f"write one as {kind} '{form}'"
    if kind == "DATE":
        return malformed if read_date(text) is None else None
    parsed = read_time(text)
    if parsed is None:
        return malformed
    days, of_day, zone = parsed
    if zone is not None and zone_converter(zone.strip(JAVA_BLANK)) is None:
        return f"{kind} '{text}': there is no time zone {zone.strip()}", "such as Europe/Berlin, Z or +01:00"
    if days is None:
        if kind == "TIMESTAMP_NTZ":
            return malformed
        return (
            f"{kind} '{text}' has no date, so it would depend on the day of the run",
            "write a date before it",
        )
    return None if abs(days * _US_OF_DAY + of_day) < _MOST else malformed
