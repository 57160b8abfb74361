"""Casts: which ones tasks compute, and how texts are read as numbers, BOOLEANs, dates and times."""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import DAY_US
from watersmeet.expressions.base import INT64, Wrong, arrow, bounds, build_array, by_value, of_distinct, raw
from watersmeet.expressions.numbers import (
    cast_to_decimal,
    decimal_to_boolean,
    decimal_to_integer,
    to_boolean,
    to_float,
    to_integer,
    truth_as_real,
)
from watersmeet.expressions.rules import Restricted, Rule, arguments
from watersmeet.expressions.texts import as_binary, boolean_to_text, whole_to_text
from watersmeet.expressions.times import (
    cut_interval,
    from_count,
    from_decimal_seconds,
    from_real_seconds,
    interval_count,
    interval_of_count,
    timestamp_to_wall,
    to_date,
    to_real_seconds,
    to_timestamp,
    unix_count,
    wall_to_timestamp,
)
from watersmeet.expressions.typed_tree import (
    INTERVAL,
    INTERVAL_OF_MONTHS,
    TypedTree,
    UnsupportedExpression,
    call,
    constant,
    constant_value,
    decimal_parts,
    interval_fields,
    require,
    widen_value,
    wrap_constant_in_call,
)
from watersmeet.spec.time_zones import UTC
from watersmeet.time_texts import BLANK, JAVA_BLANK, converter_of, read_date, read_time, zone_converter
from watersmeet.types.intervals import UNIT_US
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGERS,
    INTERVAL_FIELDS,
    STRING,
    TIMES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    SqlType,
    decimal,
)
from watersmeet.zones import zone


@arrow("text_to_integer")
def text_to_integer(text: pa.Array, kind: pa.DataType) -> pa.Array:
    least, greatest = bounds(kind)
    return of_distinct(partial(_integer, least, greatest), kind, text)


@arrow("text_to_real")
def text_to_real(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast text to DOUBLE or FLOAT: the nearest value, parsed as in Java."""
    return of_distinct(_float if kind.bit_width == 32 else _double, kind, text)


@arrow("text_to_decimal")
def text_to_decimal(text: pa.Array, kind: pa.DataType) -> pa.Array:
    return of_distinct(partial(_decimal, kind.precision, kind.scale), kind, text)


@arrow("text_to_timestamp")
def text_to_timestamp(text: pa.Array, name: str) -> pa.Array:
    """Cast text to TIMESTAMP in the zone that the text names, or else in the job's zone.

    Raises:
        Fails: the text is a time without a date, for which Spark uses the day on which it runs.
    """
    parsed = of_distinct(partial(_timestamp, name), _ON_CLOCKS, text)
    not_null = parsed.is_valid().to_numpy(zero_copy_only=False)
    times, clock = (raw(pc.struct_field(parsed, n)) for n in (0, 1))
    local = not_null & (clock == _LOCAL)
    instants = np.where(local, zone(name).to_instant(np.where(local, times, 0)), times)
    return pa.array(instants, INT64, mask=~not_null)


@arrow("date_to_text")
def date_to_text(days: pa.Array) -> pa.Array:
    values = raw(days).astype("datetime64[D]")
    return _format_java_years(build_array(np.datetime_as_string(values), pa.string(), days))


@arrow("time_to_text")
def time_to_text(walls: pa.Array) -> pa.Array:
    """Cast TIMESTAMP_NTZ to text; drop trailing zeros of the fraction."""
    texts = build_array(np.datetime_as_string(raw(walls).astype("datetime64[us]")), pa.string(), walls)
    texts = pc.utf8_rtrim(pc.utf8_rtrim(pc.replace_substring(texts, "T", " "), "0"), ".")
    return _format_java_years(texts)


@arrow("timestamp_to_text")
def timestamp_to_text(instants: pa.Array, name: str) -> pa.Array:
    return time_to_text(build_array(zone(name).to_wall(raw(instants)), INT64, instants))


@arrow("decimal_to_text")
def decimal_to_text(number: pa.Array) -> pa.Array:
    return of_distinct(lambda value: format(value, "f"), pa.string(), number)


def _format_java_years(text: pa.Array) -> pa.Array:
    """Format years as Java does: at least four digits, and a sign if there are more."""
    odd = pc.fill_null(pc.invert(pc.match_substring_regex(text, "^[0-9]{4}-")), False)
    if not pc.any(odd).as_py():
        return text

    def java(one: str) -> str:
        sign, year, rest = re.fullmatch(r"(-?)(\d+)(-.*)", one).groups()  # type: ignore[union-attr]
        digits = year.lstrip("0").rjust(4, "0")
        return (sign or ("+" if len(digits) > 4 else "")) + digits + rest

    return of_distinct(java, pa.string(), text)


def _build_cast_error(kind: str) -> Wrong:
    return Wrong("CAST_INVALID_INPUT", f"a text is not a valid {kind}")


def _integer(least: int, greatest: int, text: str) -> int | Wrong:
    match = re.fullmatch(r"([+-]?)0*([0-9]+)", text.strip(BLANK))
    if match is None:
        return _build_cast_error("whole number")
    value = int(match[1] + match[2]) if len(match[2]) < 20 else 2**63
    return value if least <= value <= greatest else _build_cast_error("whole number that fits")


@by_value("text_to_boolean", pa.bool_())
def text_to_boolean(text: str) -> bool | Wrong:
    word = text.strip(BLANK)
    word = word.lower() if word.isascii() else word
    if word in ("t", "true", "y", "yes", "1"):
        return True
    return False if word in ("f", "false", "n", "no", "0") else _build_cast_error("BOOLEAN")


_REAL = re.compile(r"([+-]?)(?:([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?|(NaN|Infinity))")
_HEX = re.compile(r"([+-]?)0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP]([+-]?[0-9]+)[fFdD]?")
_WORDS = {
    "inf": math.inf, "+inf": math.inf, "infinity": math.inf, "+infinity": math.inf,
    "-inf": -math.inf, "-infinity": -math.inf, "nan": math.nan,
}  # fmt: skip


def _double(text: str) -> float | Wrong:
    word = text.strip(JAVA_BLANK)
    if _REAL.fullmatch(word):
        return float(word.rstrip("fFdD") if word[-1] in "fFdD" else word)
    if match := _HEX.fullmatch(word):
        try:
            return float.fromhex(f"{match[1]}0x{match[2]}p{match[3]}")
        except OverflowError:
            return -math.inf if match[1] == "-" else math.inf
    return _WORDS.get(word.lower() if word.isascii() else word, _build_cast_error("number"))


def _float(text: str) -> float | Wrong:
    """Parse a FLOAT and round it once.

    Rounding to a DOUBLE first would round twice if the DOUBLE lies halfway between two FLOATs.
    """
    double = _double(text)
    if isinstance(double, Wrong) or not math.isfinite(double):
        return double
    word = text.strip(JAVA_BLANK)
    with np.errstate(over="ignore"):
        single = np.float32(double)
    low, high = (float(np.nextafter(single, np.float32(side))) for side in (-np.inf, np.inf))
    near, low, high = (
        math.copysign(2.0**128, number) if math.isinf(number) else number
        for number in (float(single), low, high)
    )
    match = _REAL.fullmatch(word)
    if match is not None and double in ((near + low) / 2, (near + high) / 2):
        exact = Fraction(match[1] + match[2] + (match[3] or ""))
        if exact != Fraction(double):
            other = low if double == (near + low) / 2 else high
            near = max(near, other) if exact > Fraction(double) else min(near, other)
    return math.copysign(math.inf, near) if abs(near) == 2.0**128 else float(near)


_MOST_PLACES = 600_000_000
_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?")


def _decimal(precision: int, scale: int, text: str) -> Decimal | Wrong:
    word = text.strip(JAVA_BLANK)
    if not word.isascii():
        word = "".join(
            str(unicodedata.decimal(character))
            if character.isdecimal() and character <= "\uffff"
            else character
            for character in word
        )
    match = _NUMBER.fullmatch(word)
    if match is None:
        return _build_cast_error("number")
    fraction = match[3] or match[4] or ""
    power = re.sub(r"^([+-]?)0+(?=[0-9]{10})", r"\1", match[5] or "0")
    own = len(fraction) - int(power) if len(power.lstrip("+-")) <= 10 else 2**31
    if not -(2**31) < own < 2**31 or abs(int(power)) >= 2**31:
        return _build_cast_error("number")
    digits = ((match[2] or "") + fraction).lstrip("0") or "0"
    if len(digits) - own >= 2**31:  # Java's int
        return _TOO_FAR
    if len(digits) - own > 38:
        return Wrong("NUMERIC_OUT_OF_SUPPORTED_RANGE", "a number has more than 38 digits")
    if own - scale >= _MOST_PLACES:
        return _TOO_FAR
    whole = _round_digits(digits, own - scale)
    if len(str(whole)) > precision:
        return Wrong("NUMERIC_VALUE_OUT_OF_RANGE", "a number does not fit into the DECIMAL")
    return Decimal((int(match[1] == "-" and whole != 0), tuple(map(int, str(whole))), -scale))


def _round_digits(digits: str, dropped: int) -> int:
    """Drop the last ``dropped`` digits and round half up; a negative number appends zeros."""
    if digits == "0":
        return 0
    if dropped <= 0:
        return int(digits + "0" * -dropped)
    kept = digits[:-dropped] if dropped < len(digits) else ""
    first = digits[len(digits) - dropped] if dropped <= len(digits) else "0"
    return int(kept or "0") + (first >= "5")


@by_value("text_to_date", pa.int32())
def text_to_date(text: str) -> int | Wrong:
    days = read_date(text)
    return _build_cast_error("DATE") if days is None else days


_ON_CLOCKS = pa.struct([("time", pa.int64()), ("clock", pa.int8())])
_LOCAL, _ZONED = 0, 1
_BARE = Wrong(
    "TIME_WITHOUT_DATE",
    "a time without a date would be on the day of the run, another one after a restart",
    always=True,
)
_TOO_FAR = Wrong("ARITHMETIC_EXCEPTION", "Java does not round a number of so many places", always=True)


def _timestamp(name: str, text: str) -> tuple[int, int] | Wrong:
    wrong = _build_cast_error("TIMESTAMP")
    parsed = read_time(text)
    if parsed is None:
        return wrong
    days, of_day, zone_text = parsed
    convert = None if zone_text is None else zone_converter(zone_text.strip(JAVA_BLANK))
    if zone_text is not None and convert is None:
        return wrong
    if days is None:
        return _BARE
    wall = days * DAY_US + of_day
    instant = (convert or converter_of(name))(wall) if convert or abs(wall) > 2**62 else wall
    if not -(2**63) <= instant < 2**63:
        return wrong
    return (instant, _ZONED if convert or abs(wall) > 2**62 else _LOCAL)


@by_value("text_to_wall", INT64)
def text_to_wall(text: str) -> int | Wrong:
    """Cast text to TIMESTAMP_NTZ; ignore a zone in the text."""
    wrong = _build_cast_error("TIMESTAMP_NTZ")
    parsed = read_time(text)
    if parsed is None or parsed[0] is None:
        return wrong
    if parsed[2] is not None and zone_converter(parsed[2].strip(JAVA_BLANK)) is None:
        return wrong
    wall = parsed[0] * DAY_US + parsed[1]
    return wall if -(2**63) <= wall < 2**63 else wrong


FIELD_US = {field: UNIT_US[field.lower()] for field in INTERVAL_FIELDS[2:]}
_FIELD_MONTHS = {"YEAR": 12, "MONTH": 1}


def time_cast(value: TypedTree, to: SqlType, zone: str) -> TypedTree:
    """Cast between types of which at least one is a time or an interval, and none is text.

    Raises:
        UnsupportedExpression: tasks do not support this cast.
    """
    own = value.type
    converted = None
    if own in TIMES and to in TIMES:
        converted = _between_times(value, to, zone)
    elif own == TIMESTAMP:
        converted = _as_number(value, to)
    elif to == TIMESTAMP:
        converted = _of_number(value)
    elif own.is_interval and to.is_interval:
        converted = _between_intervals(value, to)
    elif own.is_interval and to in INTEGERS:
        converted = _whole(call(interval_count, BIGINT, value, options=[_unit(own)]), to)
    elif own in INTEGERS and to.is_interval:
        kind = ("type", INTERVAL_OF_MONTHS if to.is_of_months else INTERVAL)
        converted = call(interval_of_count, to, value, options=[_unit(to), kind])
    if converted is None:
        raise UnsupportedExpression(f"a cast from {own} to {to}")
    return converted


def _unit(type_: SqlType) -> int:
    """Return the size of the interval's last field, in µs or months."""
    last = interval_fields(type_)[1]
    return _FIELD_MONTHS.get(last) or FIELD_US[last]


def _between_times(value: TypedTree, to: SqlType, zone: str) -> TypedTree:
    own = value.type
    if to == own:
        return value
    if to == DATE:
        return call(to_date, to, value, options=[zone if own == TIMESTAMP else UTC])
    if own == DATE:
        return call(to_timestamp, to, value, options=[zone if to == TIMESTAMP else UTC])
    function = wall_to_timestamp if to == TIMESTAMP else timestamp_to_wall
    return call(function, to, value, options=[zone])


def _as_number(value: TypedTree, to: SqlType) -> TypedTree | None:
    if to in INTEGERS:
        return _whole(call(unix_count, BIGINT, value, options=[1_000_000]), to)
    return call(to_real_seconds, to, value) if to == DOUBLE else None


def _whole(count: TypedTree, to: SqlType) -> TypedTree:
    return count if to == BIGINT else call(to_integer, to, count, options=[("type", to)])


def _of_number(value: TypedTree) -> TypedTree | None:
    own = value.type
    if own in INTEGERS:
        return call(from_count, TIMESTAMP, value, options=[1_000_000, None])
    if own in (FLOAT, DOUBLE):
        return call(from_real_seconds, TIMESTAMP, widen_value(value, DOUBLE), options=[True])
    if not own.is_decimal or decimal_parts(own)[0] > 18:
        return None
    return call(from_decimal_seconds, TIMESTAMP, value, options=[False])


def _between_intervals(value: TypedTree, to: SqlType) -> TypedTree | None:
    if value.type.is_of_months != to.is_of_months:
        return None
    return call(cut_interval, to, value, options=[_unit(to)])


def cast_to(value: TypedTree, to: SqlType, zone: str) -> TypedTree:
    """CAST. Raises: UnsupportedExpression."""
    own = value.type
    if own == to:
        return value
    if own == VOID:
        return widen_value(value, to)
    if to == STRING and own in (*INTEGERS, BOOLEAN):
        return call(boolean_to_text if own == BOOLEAN else whole_to_text, to, value)
    timed = (own in TIMES and to != STRING) or (to == TIMESTAMP and own.is_number)
    if timed or own.is_interval or to.is_interval:
        return time_cast(value, to, zone)
    number = _number(value, to) if own.is_number or own == BOOLEAN else None
    if number is not None:
        return number
    if own == STRING:
        return _of_text(value, to, zone)
    if to == STRING and own in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        function = {DATE: date_to_text, TIMESTAMP: timestamp_to_text}.get(own, time_to_text)
        return call(function, to, value, options=[zone] if own == TIMESTAMP else [])
    if to == STRING and own.is_decimal:
        return call(decimal_to_text, to, value)
    require(to != STRING or own not in (FLOAT, DOUBLE), f"versions of Java write a {own} with other digits")
    raise UnsupportedExpression(f"a cast from {own} to {to}")


def _of_text(value: TypedTree, to: SqlType, zone: str) -> TypedTree:
    if value.tree[0] == "constant" and to in (DATE, TIMESTAMP):
        try:
            text = constant_value(value)
            return timestamp_literal(text, zone) if to == TIMESTAMP else date_literal(text)
        except UnsupportedExpression:
            pass  # a lenient form: read where the others are
    if to in (*INTEGERS, FLOAT, DOUBLE) or to.is_decimal:
        function = text_to_integer if to in INTEGERS else text_to_decimal if to.is_decimal else text_to_real
        return call(function, to, value, options=[("type", to)])
    require(to in _FROM_TEXT, f"a cast from STRING to {to}")
    return call(_FROM_TEXT[to], to, value, options=[zone] if to == TIMESTAMP else [])


_FROM_TEXT = {
    BOOLEAN: text_to_boolean,
    DATE: text_to_date,
    TIMESTAMP: text_to_timestamp,
    TIMESTAMP_NTZ: text_to_wall,
    BINARY: as_binary,
}


def _number(value: TypedTree, to: SqlType) -> TypedTree | None:
    """Cast a number or BOOLEAN to a number or BOOLEAN; return None if unsupported."""
    own = value.type
    if own.is_decimal and to in INTEGERS:
        return call(decimal_to_integer, to, value, options=[("type", to)])
    if to.is_decimal and (own.is_decimal or own in (*INTEGERS, BOOLEAN)):
        return call(cast_to_decimal, to, value, options=[("type", to)])
    if own in INTEGERS and to in INTEGERS and INTEGERS.index(to) > INTEGERS.index(own):
        return widen_value(value, to)
    if to in INTEGERS:
        return call(to_integer, to, value, options=[("type", to)])
    if to == BOOLEAN:
        return call(decimal_to_boolean if own.is_decimal else to_boolean, to, value)
    if own == BOOLEAN and to in (FLOAT, DOUBLE):
        return call(truth_as_real, to, value, options=[("type", to)])
    if to == DOUBLE and own.is_number:
        return widen_value(value, to)
    if to == FLOAT and own in (*INTEGERS, DOUBLE):
        return call(to_float, to, value)
    return None


def timestamp_literal(text: str, zone: str) -> TypedTree:
    match = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?", text)
    if match is None:
        raise UnsupportedExpression("this TIMESTAMP literal is read by Spark")
    days = _days(*(int(part) for part in match.groups()[:3]))
    hours, minutes, seconds = (int(part) for part in match.groups()[3:6])
    require(hours <= 23 and minutes <= 59 and seconds <= 59, "this TIMESTAMP literal is read by Spark")
    fraction = int((match.group(7) or "").ljust(6, "0"))
    wall = days * DAY_US + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction
    return call(wall_to_timestamp, TIMESTAMP, constant(wall, TIMESTAMP_NTZ), options=[zone])


def date_literal(text: str) -> TypedTree:
    match = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", text)
    if match is None:
        raise UnsupportedExpression("this DATE literal is read by Spark")
    return constant(_days(*(int(part) for part in match.groups())), DATE)


def _days(year: int, month: int, day: int) -> int:
    try:
        return date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        raise UnsupportedExpression("this literal is read by Spark") from None


FUNCTIONS: dict[str, Rule | Restricted] = {
    name.lower(): arguments(
        1, lambda compiler, value, to=type_: wrap_constant_in_call(compiler.cast_to(value, to))
    )
    for name, type_ in {
        **{
            type_.name: type_
            for type_ in (*INTEGERS, FLOAT, DOUBLE, BOOLEAN, STRING, BINARY, DATE, TIMESTAMP)
        },
        "DECIMAL": decimal(10, 0),
    }.items()
}
