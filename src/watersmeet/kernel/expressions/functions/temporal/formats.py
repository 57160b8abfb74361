"""Times as texts by a pattern, and back, as java.time's formatters do it.

A pattern is a text of pieces, with U+0001 between them: ``#`` and a letter as often as it stands, or ``=``
and what is written as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.base import INT64, Raw, made, raw
from watersmeet.kernel.expressions.functions.temporal import calendar
from watersmeet.zones import SECOND_US, zone

APART = "\x01"
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def format_time(instants: pa.Array, pattern: str, name: str) -> pa.Array:
    """`date_format`; ``name``: of the zone whose clock is read."""
    offset = zone(name).offset_at(raw(instants)) // SECOND_US
    seconds = np.floor_divide(raw(instants), SECOND_US) + offset
    micros = raw(instants) % SECOND_US
    parts = []
    for piece in pattern.split(APART):
        kind, text = piece[:1], piece[1:]
        if kind == "=":
            parts.append(pa.scalar(text, pa.string()))
        elif text[0] == "S":
            parts.append(_fraction(micros, len(text)))
        elif text[0] == "X":
            parts.append(_named(offset, _offset))
        else:
            number, written = _field(text, seconds)
            parts.append(_named(number, written))
    if not parts:
        parts = [pa.scalar("", pa.string())]
    texts = pc.binary_join_element_wise(*parts, "") if len(parts) > 1 else parts[0]
    if isinstance(texts, pa.Scalar):
        texts = pa.repeat(texts, len(instants))
    not_null = base.where_known(instants)
    return texts if not_null is None else pc.if_else(pa.array(not_null), texts, pa.scalar(None, pa.string()))


def _named(numbers: Raw, written: Callable[[int], str]) -> pa.Array:
    """Each number as text, asked once for each distinct one."""
    distinct, places = np.unique(numbers, return_inverse=True)
    return pa.array([written(number) for number in distinct.tolist()], pa.string()).take(pa.array(places))


def _fraction(micros: Raw, digits: int) -> pa.Array:
    text = pc.utf8_lpad(pa.array(micros).cast(pa.string()), 6, "0")
    return pc.utf8_slice_codeunits(pc.binary_join_element_wise(text, "000", ""), 0, digits)


def _offset(seconds: int) -> str:
    """``+05:30``, or ``Z``; parts of minutes are left out."""
    minutes = abs(seconds) // 60
    if minutes == 0:
        return "Z"
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _year(digits: int) -> Callable[[int], str]:
    if digits == 2:
        return lambda year: f"{abs(year) % 100:02}"
    if digits == 1:
        return str
    return lambda year: f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):04}"


def _padded(digits: int) -> Callable[[int], str]:
    return lambda number: f"{number:0{digits}}"


def _name_of(names: tuple[str, ...], whole: bool) -> Callable[[int], str]:
    return lambda number: names[number - 1] if whole else names[number - 1][:3]


def _field(text: str, seconds: Raw) -> tuple[Raw, Callable[[int], str]]:
    """(numbers, how one is written)."""
    letter, count = text[0], len(text)
    of_day = seconds % 86_400
    hour = of_day // 3_600
    if letter in "HhkKms":
        number = {
            "H": hour,
            "h": (hour + 11) % 12 + 1,
            "k": (hour + 23) % 24 + 1,
            "K": hour % 12,
            "m": of_day // 60 % 60,
            "s": of_day % 60,
        }[letter]
        return number, _padded(count)
    if letter == "a":
        return hour // 12, lambda half: ("AM", "PM")[half]
    days = seconds // 86_400
    if letter == "y":
        return calendar.part_of(days, "year"), _year(count)
    if letter == "E":
        return calendar.part_of(days, "dayofweek_iso"), _name_of(_DAYS, count == 4)
    part = {"M": "month", "d": "day", "D": "dayofyear", "Q": "quarter"}[letter]
    if letter == "M" and count > 2:
        return calendar.part_of(days, part), _name_of(_MONTHS, count == 4)
    return calendar.part_of(days, part), _padded(count)


_PARSED = {
    "yyyy": r"-[0-9]{4,19}|\+[0-9]{5,19}|[0-9]{4}",
    **dict.fromkeys(("MM", "dd", "HH", "mm", "ss"), "[0-9]{2}"),
    **dict.fromkeys(("M", "d", "H", "m", "s"), "0{0,17}[0-9]{1,2}"),
}
_PLACES = {"y": 0, "M": 1, "d": 2, "H": 3, "m": 4, "s": 5}
_LEAST, _GREATEST = (0, 1, 1, 0, 0, 0), (0, 12, 31, 23, 59, 59)
_MOST_DAYS = 106_751_991


def parse_time(text: pa.Array, pattern: str) -> pa.Array:
    """What `to_timestamp` reads of a text, as the clock on the wall showed it: µs; what is none fails."""
    pieces = pattern.split(APART)
    expression = "".join(_expression(piece, number) for number, piece in enumerate(pieces))
    groups = pc.extract_regex(text, rf"(?is)\A(?:{expression})\z")
    ok = raw(pc.fill_null(groups.is_valid(), False))
    fields = [np.full(len(text), low) for low in (1970, *_LEAST[1:])]
    micros = np.zeros(len(text), dtype=np.int64)
    for number, piece in enumerate(pieces):
        if piece[0] != "#":
            continue
        digits = pc.struct_field(groups, [f"f{number}"])
        digits = pc.if_else(pa.array(ok), digits, "1")
        if piece[1] == "S":
            micros = raw(pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, "0"), 0, 6).cast(INT64))
            continue
        place = _PLACES[piece[1]]
        if place == 0:
            ok &= ~raw(pc.match_substring_regex(digits, r"\A-0+\z"))
            # More digits than nine are no year of Java's.
            far = raw(pc.match_substring_regex(digits, r"\A[+-]0*[0-9]{10,}\z"))
            ok &= ~far
            digits = pc.replace_substring_regex(pc.if_else(pa.array(far), "1", digits), r"\A\+", "")
        own = raw(digits.cast(INT64))
        if place:
            ok &= (own >= _LEAST[place]) & (own <= _GREATEST[place])
        fields[place] = own
    year, month, day, hour, minute, second = (
        np.where(ok, f, d) for f, d in zip(fields, (1970, *_LEAST[1:]), strict=True)
    )
    months = (year - 1970) * 12 + month - 1
    ok &= day <= calendar.length_of(months)
    base.check(~ok, "CANNOT_PARSE_TIMESTAMP", "a text is not a time of this pattern", text)
    days = np.where(ok, calendar.first_of(months) + day - 1, 0)
    far = np.abs(days) > _MOST_DAYS
    base.check(far, "ArithmeticException", "a time is too far", text)
    clock = ((hour * 60 + minute) * 60 + second) * SECOND_US + micros
    days = np.where(far, 0, days)
    with np.errstate(over="ignore"):
        time = days * base.DAY_US + clock
    base.check((days > 0) & (time < 0), "ArithmeticException", "a time is too far", text)
    return made(time, INT64, text)


def _expression(piece: str, number: int) -> str:
    """Of RE2."""
    text = piece[1:]
    if piece[0] == "=":
        return re.escape(text)
    own = f"[0-9]{{1,{len(text)}}}" if text[0] == "S" else _PARSED[text]
    return f"(?P<f{number}>{own})"
