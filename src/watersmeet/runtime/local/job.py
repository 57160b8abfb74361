"""A job in this process: rows in, a tick, rows out. The tick is the one that Spark runs (`runtime.tick`).

What comes in between two ticks is gathered (`push`, `advance`), and counts for nothing before the tick that
takes it is committed: one that fails is simply run again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any, ClassVar

from watersmeet.errors import EngineError, SpecError
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.runtime.coordinator.driver import Restored, TickDriver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.coordinator.restore.plan_for_state import plan_for_state
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local.evaluate import Projection
from watersmeet.runtime.local.input_buffer import InputBuffer
from watersmeet.runtime.local.input_rows import list_changes
from watersmeet.runtime.local.output import Output, StepOutput, load_output
from watersmeet.runtime.local.sources import JobSources
from watersmeet.runtime.local.tick import (
    InlineRunner,
    LocalParts,
    LocalTick,
    SinkStaging,
    Tasks,
    TickObserver,
)
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.runtime.tasks.ingest import LATE, ON_TIME
from watersmeet.runtime.tick import TickInput, run_tick
from watersmeet.runtime.values import Change, InMemoryTables, Row
from watersmeet.spec.model import OutputMode, Source
from watersmeet.spec.time_zones import UTC
from watersmeet.state.manifest import load_newest
from watersmeet.state.store import Store


def _refuse_computed_by_spark(query: QueryPlan) -> None:
    for node in query.nodes:
        if node.left_to_spark:
            raise EngineError(
                f'"{query.name}": the in-process engine does not compute a condition as Spark does: '
                + "; ".join(node.left_to_spark),
                code="residual-function",
                hint="run it on Spark",
            )


class LocalJob:
    """Job over a store in this process; it resumes from the committed state in the store.

    >>> from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
    >>> plan = plan_job(parse_job('''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT a.t, b.t AS u FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 3'''))
    >>> job = LocalJob(plan, MemoryStore())
    >>> job.push("a", [{"t": 1, "k": "x"}, {"t": 2, "k": "y"}])
    >>> job.push("b", {"t": 3, "k": "x"})
    >>> job.advance("a", "t", 9)
    >>> output = job.tick()
    >>> output.table.to_pylist(), output.watermarks
    ([{'t': 1, 'u': 3}], {'console': {'a.t': 1, 'b.t': -2}})

    Not thread-safe. `watersmeet.local.job` opens a job with a directory or a URL as its store, and with
    the wall clock.

    Args:
        partitions: the number of partitions of a tick's nodes; may change from tick to tick.
        clock_us: the clock at the start.
        watcher: observes the stages of each tick.
        settings: settings of the ticks; rows carry no zone, and side output rows are always
            collected.
        drive: builds the driver from the contents of the store.
        tables: the rows of tables that the caller provides (`tick`); the object outlives the job.
        change_queries: True if queries may have been added, removed or changed since the state was
            made.
        tasks: runs the tasks of a tick.
        given: True if the caller provides the rows of all tables, whatever their connectors, in any
            time zone, and of sources only the columns that are used; TIMESTAMPs of the result carry
            UTC.
        clock: returns the time (µs since 1970) for ticks without an explicit one.
        keep_output: True to store the output of a tick with it until the next tick commits (`last`).
    """

    backend: ClassVar[type[LocalTick]] = LocalTick

    def __init__(
        self,
        plan: JobPlan,
        store: Store,
        *,
        partitions: int = 1,
        settings: TickSettings | None = None,
        drive: Callable[[Restored], TickDriver] = TickDriver,
        clock_us: int = 0,
        watcher: TickObserver | None = None,
        tasks: Tasks | None = None,
        tables: InMemoryTables | None = None,
        given: bool = False,
        change_queries: bool = False,
        clock: Callable[[], int] | None = None,
        keep_output: bool = False,
    ) -> None:
        for query in plan.queries:
            if not given and query.options.time_zone != UTC:
                raise EngineError(
                    f"the in-process engine supports time_zone = 'UTC' only, not '{query.options.time_zone}'",
                    code="unsupported-time-zone",
                    hint="run it on Spark, or remove SET time_zone",
                )
            _refuse_computed_by_spark(query)
        self.plan = plan = plan_for_state(plan, load_newest(store))
        self.store = store
        self.partitions = partitions
        self._all_given, self._clock = given, clock
        self._tables = InMemoryTables() if tables is None else tables
        self._sources = JobSources(plan, self._tables, given=given)
        self._gathered = InputBuffer(plan, self._sources.declared, self._sources.tables)
        settings = settings or TickSettings()
        restored = restore(
            plan,
            self._sources.schemas,
            store,
            replace(
                settings,
                zoned=False,
                keep_late=True,
                change_queries=change_queries or settings.change_queries,
            ),
            started_us=clock_us,
            tables=self._sources.readers,
            snapshots=self._sources.compared,
        )
        self.driver = drive(restored)
        for query in plan.queries:
            _check_aggregates(query, self.driver.shapes[query.name])
        projections = {
            query.name: Projection(query, query.options.output_mode is OutputMode.CHANGELOG, zoned=given)
            for query in plan.queries
            if not query.is_index
        }
        self._parts = LocalParts(
            plan,
            store,
            self.driver.shapes,
            self._sources,
            self._gathered,
            InlineRunner() if tasks is None else tasks,
            watcher,
            projections,
            given,
            keep_output,
        )

    @property
    def partitions(self) -> int:
        """Into how many shares the nodes of the next tick are cut."""
        return self._partitions

    @partitions.setter
    def partitions(self, partitions: int) -> None:
        if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
            raise SpecError(
                f"partitions must be a whole number above zero, not {partitions!r}",
                code="bad-value",
                hint="for example partitions=4",
            )
        self._partitions = partitions

    @property
    def state(self) -> dict[str, dict[str, int]]:
        """Retained rows per query and alias."""
        return self.driver.retained()

    @property
    def sources(self) -> tuple[str, ...]:
        """All that rows can be pushed of."""
        return tuple(self._sources.declared)

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables with which rows of other inputs join as of their tick."""
        return tuple(self._sources.tables)

    def source(self, name: str) -> Source:
        """Return the declared source of this name."""
        return self._sources.declared[name]

    def close(self) -> None:
        """Finish the background work of the last tick.

        Call it before another job opens the same remote store.
        """
        self.driver.close()

    @property
    def last(self) -> Output | None:
        """Output of the last committed tick, if it was stored.

        It is also available after the job is reopened, when the caller may never have received the rows.
        """
        if self.driver.manifest is None:
            return None
        return load_output(self.driver.manifest, self.store, self._parts.empty)

    @property
    def position(self) -> Any:
        """Position passed to the last committed tick (`tick`); None before the first one."""
        return None if self.driver.manifest is None else self.driver.manifest.host.get("position")

    def push(self, source: str, data: Any, *, partition: str | None = None, diff: int = 1) -> None:
        """Give rows of a source, for the next tick. Until that is committed they are nowhere else.

        Args:
            data: an Arrow table or batch, a frame of pandas or Polars, a mapping, or a list of mappings, with
                the declared columns, no more and no fewer. TIMESTAMPs without a zone are of UTC.
            partition: the partition that they came in, of a source with several.
            diff: +1: they come; −1, of a source with changes: they go.

        Raises:
            SpecError: there is no such source, or its columns are others.
            EngineError: a value has no place in its column's type.
            SeveralErrors: all of that. Nothing of ``data`` is taken then.
        """
        self._gathered.push(source, data, partition, diff)

    def advance(self, source: str, column: str, to: int | datetime | date) -> None:
        """Set an explicit watermark with the next tick: no later row of the source has a lower time.

        Every input that reads the source gets it. Of several values for one column, the greatest applies; a
        value below the column's watermark fails the tick.

        Raises:
            SpecError: no query reads this source and column as an event time, or the value is invalid.
        """
        self._gathered.advance(source, column, to)

    def advance_key(self, key: str, to: int | datetime | date) -> None:
        """Set an explicit watermark for one watermark key, ``alias.column``, with the next tick.

        It applies to the merged watermark over all sources of that input; the watermarks of other inputs
        that read the same sources do not change. Of several values for one key, the greatest applies; a
        value below the key's watermark fails the tick.

        Raises:
            SpecError: the job has no such key, or the value is invalid.
        """
        self._gathered.advance_key(key, to)

    def clear(self) -> None:
        """Forget what was given since the last tick."""
        self._gathered.clear()

    def tick(
        self,
        rows: Mapping[str, Sequence[Change]] | None = None,
        *,
        clock_us: int | None = None,
        advances: Mapping[str, Mapping[str, int]] | None = None,
        idle: Mapping[str, Iterable[str]] | None = None,
        end: bool = False,
        position: Any = None,
        check: Callable[[], None] | None = None,
        to_sinks: SinkStaging | None = None,
    ) -> StepOutput:
        """Run one tick over the input since the last one.

        If the tick fails, the input stays: run it again, or drop it first (`clear`).

        Args:
            rows: further rows per source, as (row, diff) in arrival order; as in case files, missing
                columns are NULL.
            clock_us: the tick's clock; None: the job's clock, or 0.
            advances, idle, end: see `StartedTick.advance`.
            position: any JSON value, such as the read progress of the pushed rows. It is stored with the
                tick, and `position` returns it when the job is reopened.
            check: called after the rows are read and before they are processed.
            to_sinks: stages the rows for sinks as well.
        """
        if clock_us is None:
            clock_us = 0 if self._clock is None else self._clock()
        host = {"clock_us": clock_us}
        if position is not None:
            host["position"] = _check_json(position)
        held, before = self._tables.held(), self.driver.tick
        try:
            output = self._tick(rows or {}, host, clock_us, advances or {}, idle, end, check, to_sinks)
        except BaseException:
            if self.driver.tick != before:  # it is committed: only what comes behind that has failed
                self._gathered.clear()
            elif any(map(self._gathered.rows, self._sources.tables)):  # they come again with the next try
                self._tables.restore(held)
            raise
        self._gathered.clear()
        return output

    def _tick(
        self,
        rows: Mapping[str, Sequence[Change]],
        host: dict[str, Any],
        clock_us: int,
        advances: Mapping[str, Mapping[str, int]],
        idle: Mapping[str, Iterable[str]] | None,
        end: bool,
        check: Callable[[], None] | None,
        to_sinks: SinkStaging | None,
    ) -> StepOutput:
        gathered = self._gathered
        if self._all_given:
            gathered.check_sources([*rows, *advances])
        for name, table in self._sources.tables.items():
            changes = [*rows.get(name, ()), *list_changes(gathered.rows(name))]
            if changes:
                self._tables.change(table, changes)
        tick = self.backend(self._parts, rows, self.partitions, host, to_sinks)
        given = TickInput(
            clock_us,
            told={} if to_sinks is None else to_sinks.told,
            advances=gathered.advances(advances),
            by_key=gathered.by_key,
            idle=idle,
            end=end,
            check=check,
        )
        run_tick(self.driver, tick, given)
        if to_sinks is None:
            self.driver.ledger.check()  # who has the answer takes the tick for done
        (output,) = tick.outputs
        return output


def _check_json(position: Any) -> Any:
    try:
        return json.loads(json.dumps(position))
    except (TypeError, ValueError) as error:
        raise SpecError(f"the position cannot be written as JSON: {error}", code="bad-value") from None


def _check_aggregates(query: QueryPlan, shapes: Sequence[NodeShape]) -> None:
    """Check that the in-process engine can compute all aggregates.

    Raises:
        EngineError: Only Spark can compute an aggregate.
    """
    for shape in shapes:
        if shape.by_spark:
            texts = ", ".join(shape.by_spark)
            raise EngineError(
                f'"{query.name}": the in-process engine does not compute {texts} as Spark does',
                code="aggregate-function",
                hint="run it on Spark: watersmeet run, or replay --engine spark",
            )


__all__ = ["LATE", "ON_TIME", "LocalJob", "Row", "StepOutput"]
