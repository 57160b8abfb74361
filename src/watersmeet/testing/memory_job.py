"""A job in this process over rows that are given to it: for users' tests of their joins, without Spark.

The sources are what each tick is given, the sinks what it returns, and the clock is moved by hand. The tick
is the one that Spark runs, see `runtime.local`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from watersmeet.errors import SpecError, near_names
from watersmeet.event_time import ENDED, shown_time
from watersmeet.local.jobs import Asked, plan_of
from watersmeet.names import CASE_PARTITION
from watersmeet.runtime.local import LocalJob, StepOutput
from watersmeet.runtime.local.output import check_names
from watersmeet.runtime.values import InMemoryTables
from watersmeet.spec.model import Source
from watersmeet.state.store import MemoryStore, Store

Row = Mapping[str, Any]
Change = Row | tuple[Row, int]
"""A row that comes; with −1 one that goes, of a source that has changes."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_US = 1_000_000


@dataclass(frozen=True)
class Tick:
    """Output of a tick.

    Attributes:
        of: the rows per INSERT, with values as in case files (times as ISO text, DECIMALs as text).
        late: (source, row) of late rows.
        watermarks: per INSERT the text of each input's watermark by ``alias.column``.
        retained: per INSERT and input, the number of retained rows.
        counts: per INSERT and input, the outcomes of the tick's rows (``in``, ``late``, ``null_time``,
            ``matched``, …).

    >>> from watersmeet.testing import MemoryJob
    >>> trial = MemoryJob('''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.t, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t + 1 AND x.t + 3''')
    >>> tick = trial.tick({"a": [{"t": 9, "k": "x"}]})
    >>> tick.rows, tick.watermarks["console"]["x.t"], tick.retained["console"]["x"]
    ([], '4', 1)
    >>> trial.tick({"a": [{"t": 3, "k": "x"}]}).late
    [('a', {'t': 3, 'k': 'x'})]
    """

    of: Mapping[str, Sequence[Row]]
    late: Sequence[tuple[str, Row]]
    watermarks: Mapping[str, Mapping[str, str]]
    retained: Mapping[str, Mapping[str, int]]
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]

    @property
    def rows(self) -> Sequence[Row]:
        """Rows of all INSERTs, in the order of the text."""
        return [row for rows in self.of.values() for row in rows]


class MemoryJob:
    """A job that joins what it is given.

    Args:
        job: its text, which needs no INSERT, or what `watersmeet.local.job` takes, such as
            ``watersmeet.job(…)``. Its sources may be of any connector: none is read.
        settings: as SET of a text, by name; others have their own.
        clock: the time of the first tick, of which the hidden parts are idleness and ``max_ahead``; may be
            set between ticks. None: now.
        store: where the state is kept; a job over a store in which there is state goes on from it.
        tables: what the tables hold before the first tick. They are outside of the store.

    Raises:
        WatersmeetError: what is wrong with the text.
        SpecError: it has no query, two columns of a result have one name, or settings are passed without a
            text.
        EngineError: it has an expression that only Spark computes.

    >>> from watersmeet import between, job, memory, stream
    >>> from watersmeet.testing import MemoryJob
    >>> orders = stream({"id": "INT", "t": "BIGINT"}, time="t", lag=5, name="orders").alias("o")
    >>> sent = stream({"id": "INT", "t": "BIGINT"}, time="t", lag=5, name="sent").alias("s")
    >>> joined = orders.join(sent, on="s.id = o.id", within=between("s.t", "o.t", 0, 3), how="left")
    >>> trial = MemoryJob(job(joined.select("o.id", "s.t").to_sink(memory("joined"))))
    >>> trial.tick({"orders": [{"id": 1, "t": 1}, {"id": 2, "t": 1}], "sent": [{"id": 1, "t": 3}]}).rows
    [{'id': 1, 't': 3}]
    >>> trial.end().rows
    [{'id': 2, 't': None}]
    """

    def __init__(
        self,
        job: Asked,
        *,
        settings: Mapping[str, str] | None = None,
        clock: datetime | None = None,
        store: Store | None = None,
        tables: Mapping[str, Iterable[Row]] | None = None,
    ) -> None:
        self.plan = plan_of(job, settings)
        check_names(self.plan, "row")
        self.clock = datetime.now(UTC) if clock is None else clock
        self._tables = {source.name: source for source in self.plan.tables}
        self._sources = {source.name: source for source in self.plan.sources} | self._tables
        self._held = InMemoryTables()
        if self._tables and store is not None and tables is None and store.names("manifests"):
            raise SpecError(
                f"the store does not have the rows of the tables {', '.join(self._tables)}",
                code="no-tables",
                hint="pass them: MemoryJob(text, store=store, tables={…})",
            )
        for name, rows in (tables or {}).items():
            if name not in self._tables:
                raise _unknown(name, self._tables, "table")
            changes = _changes(name, rows)
            _check_rows(self._tables[name], changes, takes_changes=False)
            self._held.change(self._tables[name], changes)
        self._job = LocalJob(
            self.plan,
            MemoryStore() if store is None else store,
            clock_us=_micros(self.clock),
            given=True,
            tables=self._held,
        )
        self._integers = {
            f"{query.name}/{side.watermark_key(name)}"
            for query in self.plan.queries
            for side in query.alone.sides
            if side.feed is None
            for name in side.event_times
            if (column := side.input.column(name)) is not None
            if not column.type.is_time
        }

    def tick(
        self,
        rows: Mapping[str, Iterable[Change]] | None = None,
        *,
        idle: Mapping[str, Iterable[str]] | None = None,
    ) -> Tick:
        """Run one tick on the rows that have arrived.

        Args:
            rows: per source, in order of arrival. A missing column is NULL; ``_partition`` names the
                partition of a row.
            idle: per source, the partitions that are idle from now on, until they have rows.

        Raises:
            SpecError: a source or column does not exist, or an argument is not a row.
            EngineError: a value is not of its column's type.
        """
        given = {name: _changes(name, source_rows) for name, source_rows in (rows or {}).items()}
        self._check(given, idle or {})
        held = self._held.held()
        try:
            return self._build_tick(self._job.tick(given, clock_us=_micros(self.clock), idle=idle))
        except Exception:
            self._held.restore(held)  # of a tick that fails nothing is left
            raise

    def end(self) -> Tick:
        """End all inputs and emit the retained rows."""
        return self._build_tick(self._job.tick({}, clock_us=_micros(self.clock), end=True))

    def _check(
        self, given: Mapping[str, Sequence[tuple[Row, int]]], idle: Mapping[str, Iterable[str]]
    ) -> None:
        for name, changes in given.items():
            if name not in self._sources:
                raise _unknown(name, self._sources, "source")
            source = self._sources[name]
            _check_rows(source, changes, takes_changes=source.changes or name in self._tables)
        for name, partitions in idle.items():
            if name not in self._sources or name in self._tables:
                raise _unknown(
                    name, [stream for stream in self._sources if stream not in self._tables], "source"
                )
            if isinstance(partitions, str):
                raise SpecError(f'idle: "{partitions}" is not a list of partitions', code="bad-value")

    def _build_tick(self, output: StepOutput) -> Tick:
        marks = {
            query: {
                key: "end" if mark == ENDED else shown_time(mark, f"{query}/{key}" in self._integers)
                for key, mark in result.input_watermarks.items()
            }
            for query, result in output.result.queries.items()
        }
        results = output.result.queries
        retained = {query: result.state for query, result in results.items()}
        counts = {query: result.counts for query, result in results.items()}
        return Tick(output.rows, output.late, marks, retained, counts)


def query(job: Asked, tables: Mapping[str, Iterable[Change]]) -> Sequence[Row]:
    """Run a job to the end of its inputs and return its rows: the batch result.

    Args:
        job: see `MemoryJob`.
        tables: rows per source. All arrive in one tick, so no row is late.

    >>> query('''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.t, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t + 1 AND x.t + 3''',
    ...     {"a": [{"t": 1, "k": "x"}, {"t": 3, "k": "x"}, {"t": 2, "k": "y"}]})
    [{'t': 1, 'u': 3}]
    """
    trial = MemoryJob(job, clock=datetime(9999, 12, 31, tzinfo=UTC))
    return [*trial.tick(tables).rows, *trial.end().rows]


def _unknown(name: str, names: Collection[str], what: str) -> SpecError:
    return SpecError(
        f'there is no {what} "{name}" in the queries of this job',
        code=f"unknown-{what}",
        hint=near_names(name, names) or f"there are {', '.join(names) or 'none'}",
    )


def _changes(name: str, given: Any) -> list[tuple[Row, int]]:
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
        raise SpecError(f'the rows of "{name}" are {given!r}, not a list of rows', code="bad-value")
    return [_change(change) for change in given]


def _change(given: Change) -> tuple[Row, int]:
    if not isinstance(given, tuple):
        return given, 1
    if len(given) != 2 or isinstance(given[1], bool) or given[1] not in (1, -1):
        raise SpecError(
            f"{given!r} is not a change",
            code="bad-value",
            hint="pass a pair of a row and +1 (insert) or -1 (delete)",
        )
    return given


def _check_rows(source: Source, changes: Sequence[tuple[Row, int]], *, takes_changes: bool) -> None:
    columns = {column.name for column in source.columns}
    for row, diff in changes:
        if not isinstance(row, Mapping):
            raise SpecError(
                f'a row of "{source.name}" is {row!r}, not a mapping of columns to values',
                code="bad-value",
                hint='pass {"id": 1, "at": "2024-05-01T10:00:00"}, or a pair of that and +1 or -1',
            )
        if diff < 0 and not takes_changes:
            raise SpecError(
                f'"{source.name}" cannot have deletes: it has no changes',
                code="no-changes",
                hint="give inserts only: +1",
            )
        for name in row:
            if name not in columns and name != CASE_PARTITION:
                raise SpecError(
                    f'source "{source.name}" has no column "{name}"',
                    code="unknown-column",
                    hint=near_names(str(name), columns) or f"its columns are {', '.join(sorted(columns))}",
                )


def _micros(clock: datetime) -> int:
    if not isinstance(clock, datetime):
        raise SpecError(f"the clock is {clock!r}, not a datetime", code="bad-value")
    given = clock if clock.tzinfo is not None else clock.replace(tzinfo=UTC)
    passed = given - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * _SECOND_US + passed.microseconds
