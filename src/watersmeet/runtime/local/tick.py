"""Run one tick in this process: read the given rows, and store the output of the last node as tables.

`runtime.tick` defines the order of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.event_time import Mask
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.runtime.coordinator.commit import StagedParts
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.coordinator.tick_phases import RunningTick, StartedTick
from watersmeet.runtime.local.evaluate import Projection
from watersmeet.runtime.local.input_buffer import InputBuffer
from watersmeet.runtime.local.input_rows import SourceRows, add_utc_zone, build_source_rows
from watersmeet.runtime.local.output import StepOutput, store_output
from watersmeet.runtime.local.sources import JobSources
from watersmeet.runtime.messages.reports import IngestReport, NodeReport
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.runtime.messages.work import TickStart
from watersmeet.runtime.operators.task import NodeTask
from watersmeet.runtime.tasks.ingest import LATE, IngestWriter, Judgement
from watersmeet.runtime.tick import Backend, NodeResult
from watersmeet.runtime.values import Change, Row, to_json
from watersmeet.state.store import Store

Result = TypeVar("Result")

RowsOut = tuple[list[str], Any]
"""Names of columns, which may be equal, and an Arrow table."""


@dataclass(frozen=True)
class SinkStaging:
    """Staging of a tick's rows for sinks.

    Args:
        stage: stages the rows of queries, by name, and returns the parts to publish.
        host: engine data that the manifest then stores.
        told: facts that distinguish the tick from others with its number.
    """

    stage: Callable[[RunningTick, Mapping[str, RowsOut]], StagedParts]
    host: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)


class Tasks(Protocol):
    """Runner of the attempts of a tick's tasks; any result of one task is valid."""

    def run(self, task: Callable[..., Result], *arguments: Any) -> Result:
        """Run ``task`` and return its result.

        The task may run more than once, and may continue after its result is no longer needed. The task and
        its arguments can be pickled.
        """


class InlineRunner:
    """Each task runs once, at once."""

    def run(self, task: Callable[..., Result], *arguments: Any) -> Result:
        return task(*arguments)


class TickObserver(Protocol):
    """Looks on while a tick runs; changes nothing."""

    def began(self, tick: StartedTick) -> None:
        """Receive a tick that has started."""

    def judged(self, arrangement: str, branch: int, rows: pa.RecordBatch, judgement: Judgement) -> None:
        """Receive the rows of a branch that ingest has judged, in order, and the judgement."""

    def ran(self, query: str, task: NodeTask) -> None:
        """Receive a node that has run; the files of its tasks and of its inputs' still exist."""


@dataclass(frozen=True)
class LocalParts:
    """Data that all ticks of a job in this process share.

    Args:
        gathered: the input since the last tick.
        runner: runs the tasks of a tick.
        shapes: the shapes of the nodes, per query.
        projections: per query, computes its result from the rows of its last node.
        all_given: see ``given`` of `LocalJob`.
        keep_output: see ``keep_output`` of `LocalJob`.
    """

    plan: JobPlan
    store: Store
    shapes: Mapping[str, Sequence[NodeShape]]
    sources: JobSources
    gathered: InputBuffer
    runner: Tasks
    watcher: TickObserver | None
    projections: Mapping[str, Projection]
    all_given: bool
    keep_output: bool

    @cached_property
    def empty(self) -> dict[str, pa.Table]:
        """Return, per query that puts rows out, a result without any; made when it is first asked for."""
        tables = {}
        for query in self.plan.queries:
            if not query.is_index:
                schema = self.shapes[query.name][query.root.number].row_schema
                names, table = self.projections[query.name](schema.empty_table(), 0)
                tables[query.name] = table.rename_columns(names)
        return tables


@dataclass(frozen=True)
class LocalTick(Backend):
    """Tick in this process; see `Backend`.

    Args:
        parts: the shared data of the job.
        rows: further rows besides those that were pushed, per source.
        partitions: the number of partitions of the nodes.
        told_host: data that the manifest stores, except for the output.
        arrived: the rows per stream.
        late: which of ``arrived`` were late for some input.
        rows_out: the output rows per query.
        late_of_stages, shed: (alias, row) of side output rows.
        outputs: the output of the tick, built before it commits.
    """

    parts: LocalParts
    rows: Mapping[str, Sequence[Change]]
    partitions: int
    told_host: Mapping[str, Any]
    to_sinks: SinkStaging | None
    arrived: dict[str, SourceRows] = field(default_factory=dict)
    late: dict[str, Mask] = field(default_factory=dict)
    rows_out: dict[str, RowsOut] = field(default_factory=dict)
    late_of_stages: list[tuple[str, Row]] = field(default_factory=list)
    shed: list[tuple[str, Row]] = field(default_factory=list)
    outputs: list[StepOutput] = field(default_factory=list)

    @property
    def task_count(self) -> int:
        return self.partitions

    @property
    def ordered(self) -> bool:
        return self.partitions == 1

    def ingest(self, tick: StartedTick) -> Sequence[IngestReport]:
        parts, sources, pushed = self.parts, self.parts.sources, self.parts.gathered
        if parts.watcher is not None:
            parts.watcher.began(tick)
        zone = parts.plan.queries[0].options.time_zone
        for name, source in sources.streams.items():
            if self.rows.get(name) or pushed.rows(name):
                given = build_source_rows(source, self.rows.get(name, ()), pushed.rows(name), zone)
                self.arrived[name] = given
                self.late[name] = np.zeros(given.table.num_rows, dtype=np.bool_)
        reports = []
        for (arrangement, number), (source_name, evaluate) in sources.branches.items():
            if source_name not in self.arrived:
                continue
            batch = evaluate(self.arrived[source_name].table)
            judgement, report = parts.runner.run(
                _run_ingest_task, tick.start, arrangement, number, parts.store, batch
            )
            self.late[source_name] |= judgement == LATE
            if parts.watcher is not None:
                for rows in _split_rows(batch, tick.start.flush_rows):
                    parts.watcher.judged(arrangement, number, batch[rows], judgement[rows])
            reports.append(report)
        return reports

    def run(self, tick: RunningTick, query: QueryPlan, node: NodePlan) -> NodeResult:
        parts, task = self.parts, tick.node_task(query.name, node.number)
        batches: list[pa.RecordBatch] = []
        reports: list[NodeReport] = []
        for partition in range(self.partitions):
            rows, report = parts.runner.run(task.collect, partition, self.partitions)
            batches += rows
            reports.append(report)
        count = 0
        if node is query.root and not query.is_index and batches:
            table = pa.Table.from_batches(batches, schema=task.shape.row_schema)
            self.rows_out[query.name] = _, projected = parts.projections[query.name](table, task.tick)
            count = projected.num_rows
        if parts.watcher is not None:
            parts.watcher.ran(query.name, task)
        return NodeResult(reports, count)

    def together(self) -> AbstractContextManager[None]:
        return nullcontext() if self.parts.store.is_remote else self.parts.store.together()

    def stage(self, tick: RunningTick) -> StagedParts:
        plan = self.parts.plan
        at_limit = plan.queries[0].options.at_limit.value
        for query in plan.queries:
            self.late_of_stages.extend(read_side_outputs(tick, query, ""))
            self.shed.extend(read_side_outputs(tick, query, at_limit))
        return StagedParts() if self.to_sinks is None else self.to_sinks.stage(tick, self.rows_out)

    def host(self, result: TickResult) -> Mapping[str, Any]:
        output = self.output(result)
        self.outputs.append(output)
        if self.to_sinks is not None:
            return self.to_sinks.host
        if not self.parts.keep_output:
            return self.told_host
        return {**self.told_host, **store_output(output, self.parts.store)}

    def output(self, result: TickResult) -> StepOutput:
        """Return the rows that the tick emits."""
        parts = self.parts
        named = {query: table.rename_columns(names) for query, (names, table) in self.rows_out.items()}
        late_tables, late_rows = dict[str, pa.Table](), list[tuple[str, Row]]()
        for name, mask in self.late.items():
            late_rows += [(name, row) for row in self.arrived[name].select_late_changes(mask)]
            table = self.arrived[name].select_late_pushed(mask)
            if table is not None:
                columns = parts.sources.declared[name].columns
                late_tables[name] = add_utc_zone(table, columns) if parts.all_given else table
        return StepOutput(
            result.tick,
            {**parts.empty, **named},
            late_tables,
            {name: of.output_watermarks for name, of in result.queries.items()},
            self.told_host.get("position"),
            result.finished,
            result=result,
            given_late=[*late_rows, *self.late_of_stages],
            shed=self.shed,
        )


def read_side_outputs(tick: RunningTick, query: QueryPlan, reason: str) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a query that a tick set aside, as (alias, the columns that the query keeps).

    Args:
        reason: by which rows were shed; empty: late rows of stages.
    """
    for alias, files in tick.aside(query.name).items():
        for file in (file for file in files if file.reason == reason):
            table = pa.ipc.open_file(pa.BufferReader(tick.begun.run.store.read(file.name))).read_all()
            for row in table.column("record").to_pylist():
                yield alias, {name: to_json(value) for name, value in row.items()}


def _split_rows(batch: pa.RecordBatch, rows: int) -> list[slice]:
    return [slice(first, first + rows) for first in range(0, batch.num_rows, rows)]


def _run_ingest_task(
    start: TickStart, arrangement: str, branch: int, store: Store, batch: pa.RecordBatch
) -> tuple[Judgement, IngestReport]:
    """Run an ingest task; return the outcome of each row, and the task's report."""
    writer = IngestWriter(start, arrangement, branch, store)
    judgements = [np.zeros(0, dtype=np.int8)]
    judgements += [writer.add(batch[part]) for part in _split_rows(batch, start.flush_rows)]
    return np.concatenate(judgements), writer.finish()
