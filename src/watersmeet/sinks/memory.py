"""Store rows in this process, by sink name: for tests, notebooks and experiments.

>>> MemorySink.rows("nothing-yet")
[]
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any, ClassVar

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.sinks.base import (
    Frame,
    RowPrinter,
    Schema,
    check_unique_names,
    columns_of,
)
from watersmeet.sinks.part_mark import Identity, Resumed, check_same, format_parts, newer_parts
from watersmeet.sinks.staging import StagingSink
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.types.arrow import in_arrow
from watersmeet.types.sql_type import SqlType

INSTANTS = pa.timestamp("us", tz="UTC")
"""What TIMESTAMPs are in tables."""

Row = dict[str, Any]


class MemorySink(StagingSink[list[Row]]):
    """Sink that keeps rows in this process: exactly once as long as the process lives.

    A repeated (insert, tick) is dropped if it has the same identity, and rejected if it has not, as in file
    sinks.
    """

    sets_aside = True
    _published: ClassVar[dict[str, dict[tuple[str, int], tuple[Identity, list[Row]]]]] = {}
    _schemas: ClassVar[dict[str, list[Schema]]] = {}

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        super().__init__(spec)
        self._name = spec.name
        self._schemas.pop(spec.name, None)

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        check_unique_names(columns_of(schema), self._spec)  # a row is a dict
        self._published.setdefault(self._name, {})
        schemas = self._schemas.setdefault(self._name, [])
        if schema not in schemas:
            schemas.append(schema)

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        self._staged[insert, tick, attempt] = [row.asDict(recursive=True) for row in frame.collect()]

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        return len(self._staged[insert, tick, attempt])

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        parts = self._published.get(self._name, {})
        newer = newer_parts(
            self._name, "memory", parts, inserts, lambda insert, tick: parts[insert, tick][0], resumed
        )
        for part in newer:
            del parts[part]
        return [f"dropped: {format_parts(newer)}"] if newer else []

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        return (insert, tick) in self._published.get(self._name, {})

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        published = self._published.get(self._name, {}).get((insert, tick))
        if published is not None:
            check_same(self._name, "memory", insert, tick, published[0], identity)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        self.check(insert, tick, identity)
        rows = self._staged.pop((insert, tick, attempt), [])
        parts = self._published.setdefault(self._name, {})
        if rows:
            parts.setdefault((insert, tick), (dict(identity), rows))
        return (insert, tick) in parts

    @classmethod
    def rows(cls, name: str) -> list[Row]:
        """Return all published rows of the sink with that name, by tick."""
        parts = cls._published.get(name, {})
        return [row for part in sorted(parts, key=lambda part: part[1]) for row in parts[part][1]]

    @classmethod
    def table(cls, name: str) -> pa.Table:
        """Return all published rows as an Arrow table, by tick; TIMESTAMPs are in UTC.

        Raises:
            EngineError: The sink has no columns yet, or has columns that Arrow does not support, or several
                INSERTs give it different columns.
        """
        schemas = cls._schemas.get(name, [])
        if len(schemas) != 1:
            raise EngineError(
                f'the columns of memory sink "{name}" are unknown before its first tick'
                if not schemas
                else f'memory sink "{name}" receives rows of {len(schemas)} INSERTs with different'
                " columns, which do not form one table",
                code="no-result",
                hint="wait for its first tick" if not schemas else "declare a sink for each INSERT",
            )
        columns, rows = columns_of(schemas[0]), cls.rows(name)
        arrays = [_array(name, column, [row[column.name] for row in rows]) for column in columns]
        return pa.Table.from_arrays(arrays, names=[column.name for column in columns])

    @classmethod
    def clear(cls, name: str | None = None) -> None:
        """Forget the rows of one sink, or of all."""
        if name is None:
            cls._published.clear()
        else:
            cls._published.pop(name, None)


def _array(sink: str, column: Column, values: list[Any]) -> pa.Array:
    kind = in_arrow(column.type, INSTANTS)
    if kind is None:
        raise EngineError(
            f'memory sink "{sink}": the column "{column.name}" is {column.type}, which Arrow does not'
            " support",
            code="no-result",
            hint=f"CAST({column.name} AS STRING)",
        )
    return pa.array([_for_arrow(value, column.type) for value in values], kind)


def _for_arrow(value: Any, type_: SqlType) -> Any:
    """Convert a Spark value for Arrow.

    Spark returns instants in this process's time zone, without the zone.
    """
    if value is None:
        return None
    if type_.name == "TIMESTAMP":
        return value.astimezone(UTC)
    if not type_.is_nested:
        return value
    if type_.fields:
        return {field.name: _for_arrow(value[field.name], field.type) for field in type_.fields}
    if len(type_.inner) == 1:
        return [_for_arrow(one, type_.inner[0]) for one in value]
    key, of = type_.inner
    return [(_for_arrow(one, key), _for_arrow(other, of)) for one, other in value.items()]
