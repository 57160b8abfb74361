"""Values of mappings that users give, read as what they are: nothing is cut, rounded, or made a text that is
none. What pandas puts where nothing is known (NaN, NA, NaT) is no value of any column but one of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from math import isinf
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.engine.values import Readers, to_table
from watersmeet.names import DIFF, PARTITION
from watersmeet.spec.model import Column

_FRACTION = re.compile(r"[.,]\d{6}(\d+)")
"""Of a time as text: digits behind the microseconds."""


def table_of(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, naive_is_utc: bool = True
) -> pa.Table:
    """The rows, with these columns; one that a row does not have is NULL.

    Args:
        naive_is_utc: times that say no zone are UTC's.

    Raises: EngineError, for a value that is none of its column's type.
    """
    read = _READERS[naive_is_utc]
    return to_table(columns, rows, [1] * len(rows), read).drop_columns([PARTITION, DIFF])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return str(value)


def _moment(value: Any) -> datetime:
    if not isinstance(value, str | date) or value != value:  # pandas' NaT is a datetime
        value = _of_numpy(value)
    more = _FRACTION.search(value) if isinstance(value, str) else None
    if getattr(value, "nanosecond", 0) or (more is not None and more[1].strip("0")):
        raise ValueError(f"{value} has more digits than microseconds")
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    return value if isinstance(value, datetime) else datetime.combine(value, time())


def _of_numpy(value: Any) -> Any:
    """A datetime64 as text. Raises: TypeError, for what is no time."""
    if type(value).__name__ == "datetime64" and value == value:
        return str(value)
    raise TypeError(f"{value!r} is not a date or time")


def _timestamp(value: Any) -> datetime:
    moment = _moment(value)
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _instant(value: Any) -> datetime:
    moment = _moment(value)
    if moment.tzinfo is None:
        raise ValueError(f"{value} has no time zone, but time_zone is not UTC")
    return moment.astimezone(UTC).replace(tzinfo=None)


def _date(value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    moment = _moment(value)
    if moment.time() != time():
        raise ValueError(f"{value} has a time of day, but the column is a DATE")
    return moment.date()


def _floating(value: Any) -> float:
    if isinstance(value, str | bytes | bool | np.bool_):
        raise TypeError(f"{value!r} is not a number")
    number = float(value)
    if isinstance(value, int) and number != value:
        raise ValueError(f"{value} has more digits than the column")
    return number


def _single(value: Any) -> float:
    number = _floating(value)
    with np.errstate(over="ignore"):
        narrow = float(np.float32(number))
    if isinstance(value, int) and narrow != value:
        raise ValueError(f"{value} has more digits than the column")
    if isinf(narrow) and not isinf(number):
        raise ValueError(f"{value} is too large for the column")
    return number


_READERS = {
    naive_is_utc: Readers(_text, _timestamp if naive_is_utc else _instant, _date, _floating, _single)
    for naive_is_utc in (True, False)
}
