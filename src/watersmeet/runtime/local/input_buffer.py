"""Input of a job in this process since its last tick: rows of sources, and explicit watermarks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from watersmeet.errors import SpecError, near_names
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.runtime.local.input_rows import coerce_rows, read_time
from watersmeet.spec.model import OutputMode, Source
from watersmeet.types.sql_type import SqlType


class InputBuffer:
    """Buffer of the input for the next tick.

    See `LocalJob.push`, `LocalJob.advance` and `LocalJob.advance_key`.
    A tick takes the whole buffer. The buffer is cleared only after the tick is committed.

    Args:
        sources: the declared sources, by name.
        tables: the names of the sources whose rows may always be deleted.
    """

    def __init__(self, plan: JobPlan, sources: Mapping[str, Source], tables: Collection[str]) -> None:
        self._sources = sources
        readers = {
            name: [query for query in plan.queries if name in _list_read_sources(query)] for name in sources
        }
        self._changing = {
            name
            for name, source in sources.items()
            if source.changes
            or name in tables
            or all(query.options.output_mode is OutputMode.CHANGELOG for query in readers[name])
        }
        self._naive_is_utc, self._zone = plan.is_in_utc, plan.queries[0].options.time_zone
        self._times = {name: _event_times(plan, source) for name, source in sources.items()}
        self._keys: dict[str, SqlType] = {
            f"{side.name}.{column.name}": column.type
            for query in plan.queries
            for side in query.sides
            if side.feed is None and len(side.sources) == len(side.branches)
            for column in side.input.columns
            if column.name in side.event_times
        }
        self.clear()

    def clear(self) -> None:
        """Remove all rows and explicit watermarks."""
        self._rows: dict[str, list[pa.Table]] = {}
        self._advances: dict[str, dict[str, int]] = {}
        self.by_key: dict[str, int] = {}

    def rows(self, source: str) -> Sequence[pa.Table]:
        """Return the rows of a source in arrival order, in the form of `coerce_rows`."""
        return self._rows.get(source, ())

    def check_sources(self, sources: Iterable[str]) -> None:
        """Check that the job reads the sources.

        Raises:
            SpecError: the job does not read one of them.
        """
        for source in sources:
            if not isinstance(source, str) or source not in self._sources:
                raise _unknown_name_error("source", source, self._sources, "unknown-source")

    def push(self, source: str, data: Any, partition: str | None, diff: int) -> None:
        self.check_sources([source])
        if isinstance(diff, bool) or diff not in (1, -1):
            raise SpecError(f"diff is {diff!r}, not 1 (insert) or -1 (delete)", code="bad-value")
        if diff < 0 and source not in self._changing:
            raise SpecError(
                f'"{source}" cannot have deletes: it has no changes',
                code="no-changes",
                hint="give inserts only: +1",
            )
        if partition is not None and not isinstance(partition, str):
            raise SpecError(f"the partition {partition!r} is not a non-empty text", code="bad-value")
        rows = coerce_rows(
            self._sources[source],
            data,
            partition=partition,
            diff=diff,
            naive_is_utc=self._naive_is_utc,
            zone=self._zone,
        )
        self._rows.setdefault(source, []).append(rows)

    def advance(self, source: str, column: str, to: int | datetime | date) -> None:
        if not self._times.get(source):
            timed = [name for name, times in self._times.items() if times]
            raise _unknown_name_error("source with event times", source, timed, "unknown-source")
        if column not in self._times[source]:
            raise _unknown_name_error(
                f'event time of "{source}"', column, self._times[source], "unknown-column"
            )
        mark = read_time(to, self._times[source][column], f'the watermark of "{source}.{column}"')
        _raise_mark(self._advances.setdefault(source, {}), column, mark)

    def advance_key(self, key: str, to: int | datetime | date) -> None:
        if key not in self._keys:
            raise _unknown_name_error("watermark key", key, self._keys, "unknown-column")
        _raise_mark(self.by_key, key, read_time(to, self._keys[key], f'the watermark of "{key}"'))

    def advances(self, more: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        """Return the greatest explicit watermarks per source and column, including ``more``."""
        marks: dict[str, dict[str, int]] = {}
        for advances in (self._advances, more):
            for source, of_source in advances.items():
                for column, mark in of_source.items():
                    _raise_mark(marks.setdefault(source, {}), column, mark)
        return marks


def _raise_mark(marks: dict[str, int], name: str, mark: int) -> None:
    marks[name] = max(marks.get(name, mark), mark)


def _list_read_sources(query: QueryPlan) -> set[str]:
    return {branch.source.name for side in query.alone.sides for _, branch in side.sources}


def _event_times(plan: JobPlan, source: Source) -> dict[str, SqlType]:
    """Return the columns of a source that are event times of some input, with their types."""
    types = {column.name: column.type for column in source.columns}
    return {
        expr.name: types[expr.name]
        for query in plan.queries
        for side in query.alone.sides
        for _, branch in side.sources
        if branch.source.name == source.name
        for column, expr in branch.columns
        if column in side.event_times and expr.key == "column"
    }


def _unknown_name_error(what: str, name: str, names: Collection[str], code: str) -> SpecError:
    return SpecError(
        f'there is no {what} "{name}" in the queries of this job',
        code=code,
        hint=near_names(str(name), names) or "there is none",
    )
