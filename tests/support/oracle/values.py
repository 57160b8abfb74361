"""Types and values of the oracle: from JSON, to JSON, compared as Spark SQL compares them.

Inside the oracle an integer is an int, TIMESTAMP and DATE are µs since 1970 (a DATE is its midnight), an
interval is µs, the rest are Python's own. NULL is None. This file shares nothing with the engine on purpose.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
NEVER = -math.inf
ENDED = math.inf
DAY = 86_400_000_000

INTEGERS = {"BIGINT", "INT", "INTEGER", "SMALLINT", "TINYINT", "LONG"}
UNIT_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": DAY,
    "WEEK": 7 * DAY,
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Refused(Exception):
    """The query cannot be planned; the message is the case's error."""


class Unsupported(Exception):
    """The oracle does not know this (the engine may): not a verdict."""


def saturate(value: Any) -> Any:
    """An int brought into int64; ±∞ stay."""
    if isinstance(value, float):
        return value
    return INT64_MIN if value < INT64_MIN else INT64_MAX if value > INT64_MAX else value


def kind_of(declared: str) -> str:
    """The oracle's kind of a declared type: int, ts, date, double, decimal, string, bool."""
    name = declared.upper().split("(")[0].strip()
    if name in INTEGERS:
        return "int"
    kinds = {
        "TIMESTAMP": "ts",
        "TIMESTAMP_NTZ": "ts",
        "DATE": "date",
        "DOUBLE": "double",
        "FLOAT": "double",
        "DECIMAL": "decimal",
        "NUMERIC": "decimal",
        "STRING": "string",
        "VARCHAR": "string",
        "BOOLEAN": "bool",
    }
    if name not in kinds:
        raise Unsupported(f"type {declared}")
    return kinds[name]


def timestamp_us(text: str) -> int:
    """ISO text to µs; without an offset it is UTC."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - EPOCH) // timedelta(microseconds=1)


def from_json(value: Any, declared: str) -> Any:
    """A JSON value as a value of the declared type."""
    if value is None:
        return None
    kind = kind_of(declared)
    if kind == "int":
        return int(value)
    if kind == "ts":
        return value if isinstance(value, int) else timestamp_us(value)
    if kind == "date":
        return value * DAY if isinstance(value, int) else timestamp_us(value) // DAY * DAY
    if kind == "double":
        return float(value)
    if kind == "decimal":
        scale = re.search(r",\s*(\d+)", declared)
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-int(scale.group(1)) if scale else 0))
    if kind == "bool":
        return bool(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def to_json(value: Any, kind: str) -> Any:
    """A value as a case file writes it: TIMESTAMP and DATE as ISO text, DECIMAL as text."""
    if value is None:
        return None
    if kind == "ts":
        return (EPOCH + timedelta(microseconds=value)).replace(tzinfo=None).isoformat()
    if kind == "date":
        return (EPOCH + timedelta(microseconds=value)).date().isoformat()
    if kind == "decimal":
        return str(value)
    return value


def duration(value: Any, kind: str) -> int:
    """A lag or lateness: plain units (integer times), µs (TIMESTAMP, DATE), or text: ``10 SECONDS``."""
    if isinstance(value, int):
        return value
    if kind == "int":
        return int(value)
    match = re.fullmatch(r"(?:INTERVAL\s+)?'?(-?\d+)'?\s*([A-Z]+?)S?", value.strip().upper())
    if not match:
        raise Unsupported(f"duration {value!r}")
    return int(match.group(1)) * UNIT_US[match.group(2)]


def same(a: Any, b: Any) -> Any:
    """``a = b``: NaN equals NaN, 0.0 equals -0.0; None when one is NULL."""
    if a is None or b is None:
        return None
    if isinstance(a, float) or isinstance(b, float):
        x, y = float(a), float(b)
        return x == y or (x != x and y != y)
    return a == b


def less(a: Any, b: Any) -> Any:
    """``a < b``: NaN is above everything; None when one is NULL."""
    if a is None or b is None:
        return None
    if isinstance(a, float) or isinstance(b, float):
        x, y = float(a), float(b)
        if x != x:
            return False
        return y != y or x < y
    return a < b


def bag_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Equal rows have equal keys (NaN with NaN, 0.0 with -0.0, but not 1 with TRUE)."""
    parts = []
    for name in row:
        value = row[name]
        if isinstance(value, float):
            value = "NaN" if value != value else value + 0.0
        parts.append((name, type(value).__name__, value))
    return tuple(parts)
