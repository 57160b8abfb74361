"""A job in this process: rows in, a tick, rows out. The tick is the one that Spark runs (`engine.driver`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.engine.driver.driver import TickDriver
from watersmeet.engine.driver.opening.as_kept import as_kept
from watersmeet.engine.driver.results import TickResult
from watersmeet.engine.driver.tables import TableReader
from watersmeet.engine.local.evaluate import BranchEvaluator, Projection, declared_schema
from watersmeet.engine.local.tables import LocalSnapshot, reader_of
from watersmeet.engine.messages.shapes import CONTROL, NodeShape
from watersmeet.engine.messages.work import TickStart
from watersmeet.engine.nodes.task import NodeTask
from watersmeet.engine.tasks.ingest import LATE, ON_TIME, IngestWriter, Judgement
from watersmeet.engine.tasks.write import Placing
from watersmeet.engine.values import HeldTables, arrow_type, to_json, to_table
from watersmeet.errors import EngineError
from watersmeet.names import CASE_PARTITION
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.spec.model import Column, OutputMode, Source
from watersmeet.spec.options.changes import diff_of
from watersmeet.spec.time_zones import UTC
from watersmeet.state.manifest import load_newest
from watersmeet.state.store import Store

Row = Mapping[str, Any]
Result = TypeVar("Result")


@dataclass(frozen=True)
class StepOutput:
    """Of one tick: ``tables``, per query that put rows out, the columns' names, which may repeat, and the
    rows; the late rows: (source, row), and of stages (alias of the input, row); ``shed``: (alias, the columns
    that the query keeps)."""

    tables: Mapping[str, tuple[list[str], pa.Table]]
    late: list[tuple[str, Row]]
    result: TickResult
    shed: list[tuple[str, Row]] = field(default_factory=list)

    @cached_property
    def rows(self) -> Mapping[str, list[dict[str, Any]]]:
        """Per query the output rows, with values as in case files: of the years 1 to 9999."""
        return {
            name: _as_written(*self.tables[name]) if name in self.tables else []
            for name in self.result.queries
        }


PutOut = Callable[[TickStart, Mapping[str, tuple[list[str], pa.Table]]], TickResult]
"""Puts the rows of queries out, by name of the query, and ends the tick (`engine.driver.settling.ending`)."""


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
    """A job over a store; what is committed there is where it goes on.

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
    ) -> None:
        for query in plan.queries:
            if not given and query.options.time_zone != UTC:
                raise EngineError(
                    f"the in-process engine computes in UTC, not in {query.options.time_zone}",
                    code="unsupported-time-zone",
                    hint="run it on Spark, or leave SET time_zone out",
                )
            _refuse_computed_by_spark(query)
        self.plan = plan = as_kept(plan, load_newest(store))
        self.store = store
        self.partitions = partitions
        self._watcher = watcher
        self._tasks: Tasks = _Once() if tasks is None else tasks
        self._branches = {
            (f"{query.name}/{side.name}", number): (
                branch.source.name,
                BranchEvaluator(side, branch, query.options.time_zone, f'INSERT "{query.name}": '),
            )
            for query in plan.queries
            for side in query.sides
            for number, branch in side.ingested
        }
        sources = {source.name: source for source in plan.sources}
        self._sources = sources
        if given:
            self._sources = {
                name: replace(declared, columns=self._mentioned(name)) for name, declared in sources.items()
            }
        schemas = {
            f"{query.name}/{side.name}": declared_schema(side)
            for query in plan.queries
            for side in query.sides
            if not side.sources
        }
        for (arrangement, _), (source, evaluator) in self._branches.items():
            if arrangement not in schemas:
                schemas[arrangement] = evaluator.schema(sources[source])
        self._tables = HeldTables() if tables is None else tables
        self._table_sources = {source.name: source for source in plan.tables}
        if given:  # columns of types that are not known here may be there, if nobody asks for them
            self._table_sources = {
                source.name: replace(source, columns=_known(source.columns))
                for source in self._table_sources.values()
            }
        readers: dict[str, TableReader] = {}
        for query, node in plan.lookups:
            ((_, branch),) = node.table.sources
            evaluator = BranchEvaluator(node.table, branch, query.options.time_zone)
            name = f"{query.name}/{node.table.name}"
            schemas[name] = evaluator.schema(branch.source)
            table = self._table_sources[branch.source.name]
            readers[name] = reader_of(table, evaluator, self._tables, given=given)
        compared: dict[str, LocalSnapshot] = {}
        for query, snapshot in plan.compared:
            side, ((_, branch),) = snapshot.side, snapshot.side.sources
            evaluator = BranchEvaluator(side, branch, query.options.time_zone)
            name = f"{query.name}/{side.name}"
            schemas[name] = evaluator.schema(branch.source)
            table = self._table_sources[branch.source.name]
            reader = reader_of(table, evaluator, self._tables, given=given)
            compared.setdefault(branch.source.name, LocalSnapshot()).readers[name] = reader
        self.driver = TickDriver.open(
            plan,
            schemas,
            store,
            started_us=clock_us,
            tables=readers,
            snapshots=compared,
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

    def _mentioned(self, source: str) -> tuple[Column, ...]:
        """The columns of a source that the branches that read it mention."""
        columns = [
            column
            for name, evaluator in self._branches.values()
            if name == source
            for column in evaluator.columns
        ]
        return tuple(dict.fromkeys(columns))

    @property
    def state(self) -> dict[str, dict[str, int]]:
        """Retained rows per query and alias."""
        return self.driver.retained()

    def tick(
        self,
        rows: Mapping[str, Sequence[tuple[Row, int]]],
        *,
        clock_us: int = 0,
        advances: Mapping[str, Mapping[str, int]] | None = None,
        idle: Mapping[str, Iterable[str]] | None = None,
        end: bool = False,
        check: Callable[[], None] | None = None,
        put_out: PutOut | None = None,
    ) -> StepOutput:
        """One tick.

        Args:
            rows: per source (row, diff) as they arrive.
            advances, idle, end: as `TickDriver.advance`.
            check: called when the rows were read, before anything is made of them.
            put_out: ends the tick, where that is more than its commit.
        """
        driver = self.driver
        for name, table in self._table_sources.items():
            if rows.get(name):
                self._tables.change(table, rows[name])
        driver.ordered, driver.tasks = self.partitions == 1, self.partitions
        start = driver.begin(clock_us)
        if self._watcher is not None:
            self._watcher.began(start)
        tables = {
            name: to_table(
                self._sources[name].columns,
                *_changes(self._sources[name], given),
            )
            for name, given in rows.items()
            if given and name in self._sources
        }
        late = {name: np.zeros(table.num_rows, dtype=np.bool_) for name, table in tables.items()}
        reports = []
        for (arrangement, number), (source, evaluate) in self._branches.items():
            if source in tables:
                batch = evaluate(tables[source])
                judgement, report = self._tasks.run(
                    _ingested, start, arrangement, number, self.store, batch, driver.flush_rows
                )
                late[source] |= judgement == LATE
                if self._watcher is not None:
                    for first in range(0, batch.num_rows, driver.flush_rows):
                        part = slice(first, first + driver.flush_rows)
                        self._watcher.judged(arrangement, number, batch[part], judgement[part])
                reports.append(report)
        if check is not None:
            check()
        driver.advance(start, reports, advances=advances, idle=idle, end=end)
        projected = {query.name: self._run(query) for query in self.plan.queries}
        outputs = {name: rows for name, rows in projected.items() if rows is not None}
        of_stages = [row for query in self.plan.queries for row in self._late_of_stages(query)]
        at_limit = self.plan.queries[0].options.at_limit.value
        shed = [row for query in self.plan.queries for row in self._aside(query, at_limit)]
        if put_out is None:
            result = driver.conclude()
            driver.commit({"clock_us": clock_us})
            driver.commits.check()  # who has the answer takes the tick for done
        else:
            result = put_out(start, outputs)
        dropped = [
            (name, row)
            for name, mask in late.items()
            for row in _left_over([rows[name][int(position)] for position in np.flatnonzero(mask)])
        ]
        return StepOutput(outputs, dropped + of_stages, result, shed)

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


def _known(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Those of types that this engine has."""
    kept = []
    for column in columns:
        with suppress(EngineError):
            arrow_type(column.type)
            kept.append(column)
    return tuple(kept)


def _as_written(names: Sequence[str], table: pa.Table) -> list[dict[str, Any]]:
    """Rows as case files have them."""
    columns = [[to_json(value) for value in column.to_pylist()] for column in table.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


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


def _changes(source: Source, given: Sequence[tuple[Row, int]]) -> tuple[list[Row], list[int]]:
    """The rows and their diffs; of what a delete says, as far as it says which row of a primary key goes."""
    diffs = [diff * _said(source, row) for row, diff in given]
    rows = [row for row, _ in given]
    if source.primary_key is not None:
        named = {*source.primary_key.named, CASE_PARTITION}
        rows = [
            row if diff > 0 else {name: value for name, value in row.items() if name in named}
            for row, diff in zip(rows, diffs, strict=True)
        ]
    return rows, diffs


def _said(source: Source, row: Row) -> int:
    """How often the row comes by what it says itself. Raises: EngineError, when that is nothing known."""
    change = source.change_column
    if change is None:
        return 1
    value = row.get(change.column)
    diff = diff_of(change, value)
    if diff is None:
        raise EngineError(
            f'a row of "{source.name}" does not say what becomes of it: "{change.column}" is {value!r}',
            code="bad-value",
            hint=None
            if change.is_diff
            else f"inserts are {', '.join(change.inserts)}; deletes are {', '.join(change.deletes)}",
        )
    return diff


def _left_over(changes: Sequence[tuple[Row, int]]) -> list[Row]:
    """The rows of late changes; one that comes and goes in the same tick was never there."""
    if all(diff > 0 for _, diff in changes):
        return [row for row, _ in changes]
    keys = [
        repr(sorted((name, _equal(value)) for name, value in row.items() if name != CASE_PARTITION))
        for row, _ in changes
    ]
    sums = Counter[str]()
    for key, (_, diff) in zip(keys, changes, strict=True):
        sums[key] += diff
    return [row for key, (row, _) in zip(keys, changes, strict=True) if sums[key]]


def _equal(value: Any) -> Any:
    """The same for values that are equal: -0.0 is 0.0."""
    return value + 0.0 if isinstance(value, float) else value


__all__ = ["LATE", "ON_TIME", "LocalJob", "Row", "StepOutput", "Watcher"]
