"""Why an event of Debezium's is broken: a value that is not of its column's type, or what it lacks.

Of records of other formats `broken_records` says it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.engine.spark.broken_records import RecordCheck, object_in_text, record_check, said_options
from watersmeet.errors import printable
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.debezium import (
    DECIMALS,
    METADATA_PREFIX,
    OPTIONS,
    TIMESTAMPS,
    UNAVAILABLE,
    event_fields,
    placeholders,
    reads_decimal_texts,
    timestamps_unit,
)
from watersmeet.spec.records.counted_times import DAYS
from watersmeet.spec.records.json_names import written_as
from watersmeet.types.sql_type import BINARY, DATE, TIMES

_OPS = ("c", "r", "u", "d")
_PARTS = ("before", "after")
_IDENTITY = "the table needs REPLICA IDENTITY FULL (PostgreSQL), or a PRIMARY KEY here"
_UNITS = ((14, "millis"), (17, "micros"), (20, "nanos"))
"""Of numbers with at most so many digits, and a sign."""


@dataclass(frozen=True, kw_only=True)
class EventCheck(RecordCheck):
    """Explains broken events of a source.

    Attributes:
        declared: the source with all of its columns, and the options that say how its events are read.
        is_described: the record's schema says what its numbers and bytes are.
    """

    declared: Source
    is_described: bool = False

    def _reason(self, record: str) -> str:
        whole = object_in_text(record, self.source.options)
        if not isinstance(whole, dict):
            return self._no_object(record)
        payload = whole.get("payload")
        event = payload if isinstance(payload, dict) else whole
        if not {"op", *_PARTS} & event.keys():
            return self._of_row(event)
        return replace(self, is_described=bool(whole.get("schema")))._of_event(event)

    def _of_row(self, record: Mapping[str, Any]) -> str:
        """Of what is no event, or of the row of one that does not say which change it is."""
        key, names = self.declared.primary_key, {column.name for column in self.declared.columns}
        if key is not None and record.keys() <= names:
            if lacking := [name for name in key.columns if record.get(name) is None]:
                return f"its row has no {', '.join(lacking)}, which is in the PRIMARY KEY"
            if key.sequence is not None and record.get(key.sequence) is None:
                return f"its row has no {key.sequence}, which orders the changes"
        if too_long := [
            pair for pair in self._values(record) if pair[0].type.length and not self._fits(*pair)
        ]:
            return self._misfits(too_long)
        return "it has no op, before or after, unlike a Debezium event"

    def _of_event(self, event: Mapping[str, Any]) -> str:
        op = event.get("op")
        rows = {part: event.get(part) for part in _PARTS}
        for part, row in rows.items():
            if row is not None and not isinstance(row, dict):
                return f"{part} is not a JSON object"
            if row is not None and (why := self._of_fields(row)):
                return f"in {part}, {why}"
        if op not in _OPS:
            return "it has no op" if op is None else f"op is '{printable(str(op))}', not c, r, u or d"
        return "; ".join(self._lacking(op, rows["before"], rows["after"]))

    def _lacking(
        self, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> Iterator[str]:
        key = self.declared.primary_key
        if op != "d" and after is None:
            yield f"op is '{op}', but it has no after"
        if key is None and op in ("u", "d") and before is None:
            yield f"op is '{op}', but it has no before: {_IDENTITY}"
        if key is not None and op == "d" and (lacking := _missing(before, key.columns)):
            yield f"op is 'd', but neither before nor the record's key has {', '.join(lacking)}"
        if key is not None and op != "d" and after is not None:
            of_row = [name for name in key.named if name not in event_fields(self.declared)]
            if lacking := _missing(after, of_row):
                yield f"after has no {', '.join(lacking)}"
        for column, value in self._values(after or {}):
            if _is_left_out(column, value):
                yield f"neither after nor before has {column.name}: {_IDENTITY}"
                return

    def _fits(self, column: Column, value: Any) -> bool:
        kind, is_text = column.type, isinstance(value, str)
        if self.is_described and (kind.is_decimal or kind in TIMES):
            return True  # by the schema, which is not looked at here
        if kind.is_decimal and is_text and not reads_decimal_texts(self.declared.options):
            return False
        if kind in TIMES and is_text and re.fullmatch("-?[0-9]+", value):
            value, is_text = int(value), False
        if kind in TIMES and isinstance(value, int) and not isinstance(value, bool):
            return value in DAYS if kind == DATE else timestamps_unit(self.declared.options) is not None
        return super()._fits(column, value)

    def _remedy(self, column: Column, text: str, *, is_text: bool) -> str:
        kind = column.type
        if kind.is_decimal and is_text and not reads_decimal_texts(self.declared.options):
            return f"with decimal.handling.mode = string, '{DECIMALS}' = 'string' reads it"
        if kind in TIMES and kind != DATE and re.fullmatch("-?[0-9]+", text):
            unit = next((unit for digits, unit in _UNITS if len(text) <= digits), None)
            if unit is not None and timestamps_unit(self.declared.options) is None:
                return f"'{TIMESTAMPS}' = '{unit}' reads it"
        return super()._remedy(column, text, is_text=is_text)

    def _values(self, row: Mapping[str, Any]) -> list[tuple[Column, Any]]:
        named = ((column, written_as(row, column.name)) for column in self.columns if column is not None)
        return [(c, row[name]) for c, name in named if name is not None and row[name] is not None]


def _missing(row: Mapping[str, Any] | None, names: Sequence[str]) -> list[str]:
    """Return the columns that a row does not have, or that are NULL in it."""
    values = {} if row is None else row
    return [name for name in names if (own := written_as(values, name)) is None or values.get(own) is None]


def _is_left_out(column: Column, value: Any) -> bool:
    if column.type == BINARY:
        return bool(value == b64encode(UNAVAILABLE.encode()).decode())
    return (list(value.items()) if isinstance(value, dict) else value) in placeholders(column.type)


def check_of(source: Source) -> RecordCheck | None:
    """Return what explains broken records of a source, also of Debezium's events; None: nothing does."""
    said = said_options(source)
    if said is None or said[0] != DEBEZIUM:
        return record_check(source)
    _, options, prefix = said
    fields = event_fields(source)
    columns = tuple(column for column in source.columns if column.name not in fields)
    declared = replace(source, options={n: v for n, v in source.options.items() if _reads_events(n.lower())})
    return EventCheck(
        Source(source.name, columns, "file", options), False, columns, prefix, declared=declared
    )


def _reads_events(name: str) -> bool:
    """Whether an option is one of those that `EventCheck` needs: tasks get them, and no passwords."""
    return name in OPTIONS or name.startswith(METADATA_PREFIX)
