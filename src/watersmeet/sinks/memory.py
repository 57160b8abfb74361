"""Rows kept in this process, by the sink's name: for tests and for trying things out.

>>> MemorySink.rows("nothing-yet")
[]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from watersmeet.sinks.base import ArrowPart, Frame, LeftOut, RowPrinter, Schema, StagedPart
from watersmeet.sinks.part_mark import Identity, Resumed, check_same, listed, newer_parts
from watersmeet.spec.model import Sink as SinkSpec

Row = dict[str, Any]


class MemorySink:
    """Exactly once as long as the process lives: the same (insert, tick) again is dropped if it is of the
    same identity, and refused if it is not, as files do it."""

    idempotent = True
    sets_aside = True
    secrets: Mapping[str, str] = MappingProxyType({})
    tells_rows = True
    appends_to = None
    keyed = None
    _published: ClassVar[dict[str, dict[tuple[str, int], tuple[Identity, list[Row]]]]] = {}

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        self._name = spec.name
        self._staged: dict[tuple[str, str, int], list[Row]] = {}

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        self._published.setdefault(self._name, {})

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        self._staged[attempt, insert, tick] = [row.asDict(recursive=True) for row in frame.collect()]

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        return len(self._staged[attempt, insert, tick])

    def leaves_out(self, columns: int) -> LeftOut | None:
        return None

    def arrow_part(self, schema: Any, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        return None

    def take_parts(self, insert: str, tick: int, attempt: str, parts: Sequence[StagedPart]) -> None:
        """No task stages any."""

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        parts = self._published.get(self._name, {})
        newer = newer_parts(
            self._name, "memory", parts, inserts, lambda insert, tick: parts[insert, tick][0], resumed
        )
        for part in newer:
            del parts[part]
        return [f"dropped: {listed(newer)}"] if newer else []

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        return (insert, tick) in self._published.get(self._name, {})

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        published = self._published.get(self._name, {}).get((insert, tick))
        if published is not None:
            check_same(self._name, "memory", insert, tick, published[0], identity)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        self.check(insert, tick, identity)
        rows = self._staged.pop((attempt, insert, tick), [])
        parts = self._published.setdefault(self._name, {})
        if rows:
            parts.setdefault((insert, tick), (dict(identity), rows))
        return (insert, tick) in parts

    def discard(self, attempt: str) -> None:
        self._staged = {key: rows for key, rows in self._staged.items() if key[0] != attempt}

    def close(self) -> None:
        """Nothing is held: the rows are the process's."""

    @classmethod
    def rows(cls, name: str) -> list[Row]:
        """All published rows of the sink of that name, by tick."""
        parts = cls._published.get(name, {})
        return [row for part in sorted(parts, key=lambda part: part[1]) for row in parts[part][1]]

    @classmethod
    def clear(cls, name: str | None = None) -> None:
        """Forget the rows of one sink, or of all."""
        if name is None:
            cls._published.clear()
        else:
            cls._published.pop(name, None)
