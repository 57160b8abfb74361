"""Event times as users give them, in the units in which they are computed (`event_time`)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from watersmeet.errors import SpecError
from watersmeet.event_time import MAX_TIME, MIN_TIME
from watersmeet.types.sql_type import SqlType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(value: Any, type_: SqlType, where: str) -> int:
    """A time of a column of this type.

    Args:
        value: a whole number in the column's units (µs since 1970 of TIMESTAMP and DATE), or of times a
            datetime (without a zone: of UTC) or a date.
        where: begins what is said of it.

    Raises: SpecError.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not MIN_TIME <= value <= MAX_TIME:
            raise SpecError(f"{where}: {value} is out of the range of BIGINT", code="bad-value")
        return value
    if type_.is_time and isinstance(value, date) and value == value:
        moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    raise SpecError(
        f"{where}: {value!r} is not a valid {type_}",
        code="bad-value",
        hint="give a datetime, or a whole number of µs since 1970"
        if type_.is_time
        else "give a whole number",
    )
