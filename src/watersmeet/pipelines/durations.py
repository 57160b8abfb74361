"""Lengths of time in a pipeline: a text such as ``"5 minutes"``, a `datetime.timedelta`, or a plain number.

A plain number counts the units of an integer event time, as in SQL. A text or a timedelta beside an integer
event time counts milliseconds, for a pipeline takes integers for epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from watersmeet.deprecated_names import warn_of_earlier_name
from watersmeet.errors import SpecError, WatersmeetError
from watersmeet.relations.terms import length_us
from watersmeet.types.sql_type import INTEGERS, SqlType

_MILLISECOND = timedelta(milliseconds=1)
_MAX_NUMBER = 2**53
_HINT = 'write a number and a unit: "5 minutes", "1 hour 30 minutes" or "500 milliseconds"'
_UNITS = (
    ("days", timedelta(days=1)),
    ("hours", timedelta(hours=1)),
    ("minutes", timedelta(minutes=1)),
    ("seconds", timedelta(seconds=1)),
    ("milliseconds", _MILLISECOND),
    ("microseconds", timedelta.resolution),
)


def _read(given: Any) -> timedelta | int:
    """Return the length that a text, a number or a timedelta says."""
    if isinstance(given, int) and not isinstance(given, bool):
        if abs(given) > _MAX_NUMBER:
            raise _build_length_error("but a number of at most 2^53 is expected", _HINT)
        return given
    if isinstance(given, timedelta):
        return given
    if not isinstance(given, str):
        raise _build_length_error("but a length of time is expected", _HINT)
    try:
        return timedelta(microseconds=length_us(given, "length"))
    except WatersmeetError:
        raise _build_length_error("which is not a length of time", _HINT) from None
    except OverflowError:
        raise _build_length_error("which is longer than a billion days", _HINT) from None


def _read_positive(given: Any) -> timedelta | int:
    length = _read(given)
    if is_less(length, 0):
        raise _build_length_error("which is below zero", _HINT)
    return length


def _build_length_error(reason: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError("length", "{reason}", {"reason": reason, "hint": hint})


_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "string", "examples": ["5 minutes", "500 milliseconds"]}, {"type": "integer"}]}
)
Length = Annotated[timedelta | int, BeforeValidator(_read_positive), _SCHEMA]
"""Not negative."""
SignedLength = Annotated[timedelta | int, BeforeValidator(_read), _SCHEMA]


def in_units(length: timedelta | int, time: SqlType) -> timedelta | int:
    """Return the length in the unit of an event time of this type.

    Raises:
        SpecError: the event time is an integer, and the length is no whole number of milliseconds.
    """
    if isinstance(length, int) or time not in INTEGERS:
        return length
    count, rest = divmod(length, _MILLISECOND)
    if rest:
        raise SpecError(
            f'"{written(length)}" is not a whole number of milliseconds, which integer event times count',
            code="bad-value",
            hint="use milliseconds or longer units, or a plain number of the event time's own unit",
        )
    return count


def is_less(one: timedelta | int, other: timedelta | int) -> bool:
    """Return True if a length is less than another; a number counts milliseconds beside a text."""
    first, second = (
        length if isinstance(length, timedelta) else timedelta(milliseconds=length) for length in (one, other)
    )
    return first < second


def written(length: timedelta | int) -> int | str:
    """Return the length as TOML has it.

    >>> written(timedelta(minutes=-90)), written(timedelta(0)), written(5)
    ('-1 hours -30 minutes', '0 seconds', 5)
    """
    if isinstance(length, int):
        return length
    sign, rest, parts = ("-" if is_less(length, 0) else ""), abs(length), []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{sign}{count} {unit}")
    return " ".join(parts) or "0 seconds"


OLD_NAMES = {
    f"{name}_ms": name
    for name in (
        "lag", "time_window", "min_delta", "max_delta", "allowed_lateness", "size", "slide", "gap",
    )
}  # fmt: skip
"""Earlier names of lengths, which were numbers of milliseconds."""


def with_new_names(given: Any, fields: Mapping[str, Any]) -> Any:
    """Return a part's values by the names of today; warn of earlier ones.

    Args:
        fields: those of the part, by name.
    """
    if not isinstance(given, Mapping):
        return given
    values = dict(given)
    for old, new in OLD_NAMES.items():
        if old in values and new in fields and new not in values:
            value = values.pop(old)
            if value is None:
                continue
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_NUMBER:
                value = timedelta(milliseconds=value)
                warn_of_earlier_name(old, f"{new} = {written(value)!r}".replace("'", '"'))
            values[new] = value
    if "lateness" in fields and "lateness" not in values:
        if values.get("late_data") in ("drop", "reopen"):
            del values["late_data"]
            values["lateness"] = "join"
            warn_of_earlier_name("late_data", 'lateness = "join"')
        elif OLD_NAMES.keys() & given.keys() and "late_data" not in values:
            values["lateness"] = "join"  # with earlier names, a join had that rule
            warn_of_earlier_name(
                "a join without lateness", 'lateness = "join", or new names for the rule of SQL'
            )
    return values
