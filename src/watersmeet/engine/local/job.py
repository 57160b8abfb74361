"""A job in this process: rows in, a tick, rows out. The tick is the one that Spark runs (`engine.driver`).

What comes in between two ticks is gathered (`push`, `advance`), and counts for nothing before the tick that
takes it is committed: one that fails is simply run again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.engine.driver.driver import TickDriver
from watersmeet.engine.driver.opening.as_kept import as_kept
from watersmeet.engine.driver.results import TickResult
from watersmeet.engine.local.evaluate import Projection
from watersmeet.engine.local.gathered import Gathered
from watersmeet.engine.local.given import Change, Given, Row, changes_of, given_of, zoned
from watersmeet.engine.local.kept import kept_now, kept_then
from watersmeet.engine.local.output import Output, StepOutput
from watersmeet.engine.local.sources import JobSources
from watersmeet.engine.messages.shapes import CONTROL, NodeShape
from watersmeet.engine.messages.work import TickStart
from watersmeet.engine.nodes.task import NodeTask
from watersmeet.engine.tasks.ingest import LATE, ON_TIME, IngestWriter, Judgement
from watersmeet.engine.tasks.write import Placing
from watersmeet.engine.values import HeldTables, to_json
from watersmeet.errors import EngineError, SpecError
from watersmeet.event_time import Mask
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.spec.model import OutputMode, Source
from watersmeet.spec.time_zones import UTC
from watersmeet.state.manifest import load_newest
from watersmeet.state.store import Store

Result = TypeVar("Result")

PutOut = Callable[[TickStart, Mapping[str, tuple[list[str], Any]]], TickResult]
"""Puts the rows of queries out, by name of the query, and ends the tick (`engine.driver.settling.ending`).
Arrow has no types, and would leave `LocalJob.tick` without."""


class Tasks(Protocol):
    """How the attempts of a tick's tasks are run: of the results of one task any will do."""

    def run(self, task: Callable[..., Result], *arguments: Any) -> Result:
        """What ``task`` gives. It may run more than once, and go on when nobody waits for it any more; it and
        its arguments can be pickled."""


class _Once:
    def run(self, task: Callable[..., Result], *arguments: Any) -> Result:
        return task(*arguments)


class Watcher(Protocol):
    """Looks on while a tick runs; changes nothing."""

    def began(self, start: TickStart) -> None:
        """A tick began."""

    def judged(self, arrangement: str, branch: int, rows: pa.RecordBatch, judgement: Judgement) -> None:
        """Ingest took rows of a branch, in order, and judged them."""

    def ran(self, query: str, task: NodeTask) -> None:
        """A node ran; the files of its tasks and of those beneath are still there."""


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
    """A job over a store, in this process; what is committed there is where it goes on.

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

    Not thread-safe. `watersmeet.local.job` opens one with a directory or a URL for a store, and the wall
    clock.

    Args:
        partitions: into how many shares a tick's nodes are cut; may change from tick to tick.
        clock_us: the clock at the start.
        watcher: is told of each tick's stages.
        placing: for tests, where in the hash space keys fall.
        tables: what tables hold whose rows are given (`tick`); they are there before and after the job.
        change_queries: queries may have come, gone or changed since the store's state was made.
        tasks: how the tasks of a tick are run.
        given: the rows of all tables are given, whatever their connectors, in any time zone, of sources only
            the columns that count; TIMESTAMPs of the result carry UTC.
        clock: tells the time (µs since 1970) of ticks that are not told it.
        keep_output: what a tick put out is stored with it, until the next one is committed (`last`).
    """

    def __init__(
        self,
        plan: JobPlan,
        store: Store,
        *,
        partitions: int = 1,
        placing: Placing | None = None,
        clock_us: int = 0,
        watcher: Watcher | None = None,
        tasks: Tasks | None = None,
        tables: HeldTables | None = None,
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
        self.plan = plan = as_kept(plan, load_newest(store))
        self.store = store
        self.partitions = partitions
        self._watcher = watcher
        self._tasks: Tasks = _Once() if tasks is None else tasks
        self._given, self._clock, self._keep_output = given, clock, keep_output
        self._tables = HeldTables() if tables is None else tables
        self._sources = JobSources(plan, self._tables, given=given)
        self._gathered = Gathered(plan, self._sources.declared, self._sources.tables)
        self.driver = TickDriver.open(
            plan,
            self._sources.schemas,
            store,
            started_us=clock_us,
            tables=self._sources.readers,
            snapshots=self._sources.compared,
            zoned=False,
            change_queries=change_queries,
        )
        self.driver.placing = placing
        for query in plan.queries:
            _check_aggregates(query, self.driver.shapes[query.name])
        self._projections = {
            query.name: Projection(query, query.options.output_mode is OutputMode.CHANGELOG, zoned=given)
            for query in plan.queries
            if not query.is_index
        }
        self.driver.keep_late = True

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
        """Those of them that rows of others meet as they are in their tick."""
        return tuple(self._sources.tables)

    def source(self, name: str) -> Source:
        """As it is declared."""
        return self._sources.declared[name]

    def close(self) -> None:
        """Nothing of the last tick goes on behind it. Called before another job may be opened over a store
        that is remote."""
        self.driver.close()

    @property
    def last(self) -> Output | None:
        """What the last committed tick put out, if that was kept; also of a job that was opened again, to
        which its rows may never have come."""
        if self.driver.manifest is None:
            return None
        return kept_then(self.driver.manifest, self.store, self._empty)

    @property
    def position(self) -> Any:
        """What the last committed tick was told (`tick`); None before the first one."""
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
        """Promise, with the next tick, that no later row of the source has a lower time in this column: an
        explicit watermark. Every input that reads the source gets it. Of several for one column the greatest
        counts; one that is below the column's watermark fails the tick.

        Raises: SpecError.
        """
        self._gathered.advance(source, column, to)

    def advance_key(self, key: str, to: int | datetime | date) -> None:
        """The same for one watermark key, ``alias.column``, merged over all sources of that input: other
        inputs that read the same sources stay where they are.

        Raises: SpecError.
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
        put_out: PutOut | None = None,
    ) -> StepOutput:
        """One tick: what was given since the last one. If it fails, that is still there: it can be run again,
        or without (`clear`).

        Args:
            rows: more of them, per source (row, diff) as they arrive; as in case files, columns that are
                missing are NULL.
            clock_us: the tick's one clock; None: the job's, or 0.
            advances, idle, end: as `TickDriver.advance`.
            position: anything that JSON can say, such as how far what was pushed had been read: it is stored
                with the tick, and told by `position` when the job is opened again.
            check: called when the rows were read, before anything is made of them.
            put_out: ends the tick, where that is more than its commit.
        """
        if clock_us is None:
            clock_us = 0 if self._clock is None else self._clock()
        host = {"clock_us": clock_us}
        if position is not None:
            host["position"] = _as_json(position)
        held, before = self._tables.held(), self.driver.tick
        try:
            output = self._tick(rows or {}, host, clock_us, advances or {}, idle, end, check, put_out)
        except BaseException:
            if self.driver.tick != before:  # it is committed: only what comes behind that has failed
                self._gathered.clear()
            elif any(map(self._gathered.rows, self._sources.tables)):  # they come again with the next try
                self._tables.back_to(held)
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
        put_out: PutOut | None,
    ) -> StepOutput:
        driver = self.driver
        gathered = self._gathered
        if self._given:
            gathered.refuse_unknown([*rows, *advances])
        for name, table in self._sources.tables.items():
            changes = [*rows.get(name, ()), *changes_of(gathered.rows(name))]
            if changes:
                self._tables.change(table, changes)
        driver.ordered, driver.tasks = self.partitions == 1, self.partitions
        start = driver.begin(clock_us)
        if self._watcher is not None:
            self._watcher.began(start)
        zone = self.plan.queries[0].options.time_zone
        arrived = {
            name: given_of(source, rows.get(name, ()), gathered.rows(name), zone)
            for name, source in self._sources.streams.items()
            if rows.get(name) or gathered.rows(name)
        }
        reports, late = self._ingest(start, arrived)
        if check is not None:
            check()
        driver.advance(
            start,
            reports,
            advances=gathered.advances(advances),
            by_key=gathered.by_key,
            idle=idle,
            end=end,
        )
        projected = {query.name: self._run(query) for query in self.plan.queries}
        outputs = {name: rows for name, rows in projected.items() if rows is not None}
        of_stages = [row for query in self.plan.queries for row in self._late_of_stages(query)]
        at_limit = self.plan.queries[0].options.at_limit.value
        shed = [row for query in self.plan.queries for row in self._aside(query, at_limit)]
        late_tables = {name: arrived[name].late_pushed(mask) for name, mask in late.items()}
        named = {name: table.rename_columns(names) for name, (names, table) in outputs.items()}

        def told(result: TickResult) -> StepOutput:
            return StepOutput(
                result.tick,
                self._empty | named,
                {
                    name: zoned(table, self._sources.declared[name].columns) if self._given else table
                    for name, table in late_tables.items()
                    if table is not None
                },
                {name: of.output_watermarks for name, of in result.queries.items()},
                host.get("position"),
                result.finished,
                result=result,
                given_late=[
                    *((name, row) for name, mask in late.items() for row in arrived[name].late_changes(mask)),
                    *of_stages,
                ],
                shed=shed,
            )

        if put_out is not None:
            return told(put_out(start, outputs))
        output = told(driver.conclude())
        if self._keep_output:
            host |= kept_now(output, self.store)
        driver.commit(host)
        driver.commits.check()  # who has the answer takes the tick for done
        return output

    def _ingest(self, start: TickStart, arrived: Mapping[str, Given]) -> tuple[list[str], dict[str, Mask]]:
        """The reports of the tick's ingest, and per source which rows were late for some input."""
        late = {name: np.zeros(of.table.num_rows, dtype=np.bool_) for name, of in arrived.items()}
        reports = []
        for (arrangement, number), (source, evaluate) in self._sources.branches.items():
            if source not in arrived:
                continue
            batch = evaluate(arrived[source].table)
            flush_rows = self.driver.flush_rows
            judgement, report = self._tasks.run(
                _ingested, start, arrangement, number, self.store, batch, flush_rows
            )
            late[source] |= judgement == LATE
            if self._watcher is not None:
                for first in range(0, batch.num_rows, flush_rows):
                    part = slice(first, first + flush_rows)
                    self._watcher.judged(arrangement, number, batch[part], judgement[part])
            reports.append(report)
        return reports, late

    @cached_property
    def _empty(self) -> dict[str, pa.Table]:
        """Per query that puts rows out a table without any."""
        tables = {}
        for query in self.plan.queries:
            if not query.is_index:
                schema = self.driver.shapes[query.name][query.root.number].row_schema
                names, table = self._projections[query.name](schema.empty_table(), 0)
                tables[query.name] = table.rename_columns(names)
        return tables

    def _late_of_stages(self, query: QueryPlan) -> Iterator[tuple[str, Row]]:
        """Rows of stages that came too late for their inputs: (alias, the columns that the query keeps)."""
        yield from self._aside(query, "")

    def _aside(self, query: QueryPlan, reason: str) -> Iterator[tuple[str, Row]]:
        for alias, files in self.driver.aside(query.name).items():
            for file in (file for file in files if file.reason == reason):
                table = pa.ipc.open_file(pa.BufferReader(self.store.read(file.name))).read_all()
                for row in table.column("record").to_pylist():
                    yield alias, {name: to_json(value) for name, value in row.items()}

    def _run(self, query: QueryPlan) -> tuple[list[str], pa.Table] | None:
        """The rows that the query's last node gives out in this tick; None: there are none."""
        found_rows: tuple[list[str], pa.Table] | None = None
        for node in query.nodes:
            if node.rests:
                continue
            task = self.driver.node_task(query.name, node.number)
            batches: list[pa.RecordBatch] = []
            control: list[str] = []
            for partition in range(self.partitions):
                *others, last = self._tasks.run(_node_rows, task, partition, self.partitions)
                batches += others
                control.append(last.column(CONTROL)[0].as_py())
            found_rows = (
                self._projected(query, task, batches) if node is query.root and not query.is_index else None
            )
            count = 0 if found_rows is None else found_rows[1].num_rows
            self.driver.settle(query.name, node.number, control, rows_out=count)
            if self._watcher is not None:
                self._watcher.ran(query.name, task)
        return found_rows

    def _projected(
        self, query: QueryPlan, task: NodeTask, batches: list[pa.RecordBatch]
    ) -> tuple[list[str], pa.Table] | None:
        if not batches:
            return None
        table = pa.Table.from_batches(batches, schema=task.schema).drop_columns([CONTROL])
        return self._projections[query.name](table, task.tick)


def _as_json(position: Any) -> Any:
    try:
        return json.loads(json.dumps(position))
    except (TypeError, ValueError) as error:
        raise SpecError(f"the position cannot be written as JSON: {error}", code="bad-value") from None


def _ingested(
    start: TickStart, arrangement: str, branch: int, store: Store, batch: pa.RecordBatch, flush_rows: int
) -> tuple[Judgement, str]:
    """An ingest task: what became of each row, and its report."""
    writer = IngestWriter(start, arrangement, branch, store)
    judgements = [np.zeros(0, dtype=np.int8)]
    judgements += [
        writer.add(batch[first : first + flush_rows]) for first in range(0, batch.num_rows, flush_rows)
    ]
    return np.concatenate(judgements), writer.finish()


def _node_rows(task: NodeTask, partition: int, partitions: int) -> list[pa.RecordBatch]:
    """A task of a node: its rows, and last the control row."""
    return list(task.run(partition, partitions))


def _check_aggregates(query: QueryPlan, shapes: Sequence[NodeShape]) -> None:
    """Raises: EngineError for aggregates that only Spark can compute."""
    for shape in shapes:
        if shape.by_spark:
            texts = ", ".join(shape.by_spark)
            raise EngineError(
                f'"{query.name}": the in-process engine does not compute {texts} as Spark does',
                code="aggregate-function",
                hint="run it on Spark: watersmeet run, or replay --engine spark",
            )


__all__ = ["LATE", "ON_TIME", "LocalJob", "Row", "StepOutput", "Watcher"]
