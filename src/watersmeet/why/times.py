"""Texts of values and times as columns have them; and what is known of a time alone, whoever has it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import SpecError
from watersmeet.event_time import shown_time
from watersmeet.kernel.times import known_times
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.time_zones import UTC as UTC_ZONE
from watersmeet.types.arrow import sql_name
from watersmeet.why.recorded import Recorded
from watersmeet.zones import zone


def parsed(text: str, kind: pa.DataType, name: str, zone_name: str) -> pa.Scalar:
    """A value of a column from a text. Raises: SpecError, it is none, or more than the column holds."""
    try:
        return pa.scalar(_plain(text, kind, zone_name), kind)
    except (ValueError, KeyError, InvalidOperation, OverflowError, pa.ArrowException):
        raise SpecError(
            f'"{text}" is not a value of {name} ({sql_name(kind)})',
            code="wrong-option",
            hint="--key takes VALUE for the join key, or COLUMN=VALUE for a column of the input",
        ) from None


def _plain(text: str, kind: pa.DataType, zone_name: str) -> Any:
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text.lower()]
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        return _moment(text, zone_name)
    return text


def _moment(text: str, zone_name: str) -> datetime:
    """As the columns of sources have it: UTC, and says no zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        return moment.astimezone(UTC).replace(tzinfo=None)
    if zone_name == UTC_ZONE:
        return moment
    epoch = datetime(1970, 1, 1)
    wall = np.array([(moment - epoch) // datetime.resolution], dtype=np.int64)
    return epoch + datetime.resolution * int(zone(zone_name).to_instant(wall)[0])


def canonical(text: str, side: SidePlan, column: str, zone_name: str) -> int:
    """An event time of an input, from a text. Raises: SpecError, it is none."""
    declared = side.input.column(column)
    kind = pa.int64() if declared is not None and declared.type.is_integer else pa.timestamp("us")
    value = parsed(text, kind, f"{side.name}.{column}", zone_name)
    return int(known_times(pa.array([value]))[0].as_py())


def of_a_time(text: str, query: QueryPlan, side: SidePlan, history: Recorded) -> list[str]:
    """In which ticks a row with that time was late, per event time of the input."""
    lines = []
    for column in side.event_times:
        time = canonical(text, side, column, query.options.time_zone)
        declared = side.input.column(column)
        shown = shown_time(time, declared is not None and declared.type.is_integer)
        late = [mark > time for mark in history.mark(query.name, side.name, column, "late_below")]
        row = f"a row whose {side.name}.{column} is {shown}"
        if not any(late):
            lines.append(f"{row} was on time in all ticks up to tick {history.ticks[-1]}")
        elif late[0] and history.is_behind_gap(0):
            lines.append(f"{row} was late from tick {history.ticks[0]} on; before that it is not known")
        else:
            slot = late.index(True)
            before = ", or one before it" if history.is_behind_gap(slot) else ""
            lines.append(f"{row} was late from tick {history.ticks[slot]} on{before}")
    return lines
