"""Run the second half of a tick for one partition of one node: read rows, emit rows, report.

The shape of a node selects its strategy, a function of this folder
(`runtime.coordinator.operators.registry`). This module has the common parts: the work file, the destinations
of rows, the report.

A task may run more than once: it writes files under new names and reports them, and only a report that the
driver commits counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from watersmeet.kernel.batches import one_batch, size
from watersmeet.parallel import parallel_map
from watersmeet.runtime.messages.reports import NodeReport, SideReport
from watersmeet.runtime.messages.shapes import FeedShape, NodeShape
from watersmeet.runtime.messages.work import PASSING, NodeWork, read_work, write_work
from watersmeet.runtime.tasks.deferred_conditions import (
    AnswerFile,
    apply_answers,
    find_unanswered_candidates,
)
from watersmeet.runtime.tasks.feed import FeedWriter
from watersmeet.runtime.tasks.key_limits import check_keys
from watersmeet.runtime.tasks.memory import max_output_bytes
from watersmeet.runtime.tasks.results import lower_min_times
from watersmeet.runtime.tasks.run_writer import PlaceHashes, SideWriter
from watersmeet.runtime.tasks.side import ManyMatches, SpentWork, TaskPartition
from watersmeet.state.store import Store, take_traffic

OUTPUT_ROWS = 200_000
"""Small results are collected into batches of about this many rows before they leave."""


@dataclass(frozen=True)
class InlineResult:
    """Result of inline execution of a node: the emitted rows per task partition, and the reports."""

    shares: list[list[pa.RecordBatch]]
    reports: list[NodeReport]

    @property
    def rows(self) -> list[pa.RecordBatch]:
        return [batch for share in self.shares for batch in share]


@dataclass(frozen=True)
class NodeTask:
    """One node of one tick, which runs once per partition.

    Attributes:
        file: name of the node's work file.
        placing: replacement for the hash function, for tests.
        answers: files per partition with results of the node's condition that Spark computed.
        work: contents of the work file, read-only; None: they are read from the file.
    """

    shape: NodeShape
    store: Store
    file: str
    tick: int
    placing: PlaceHashes | None = None
    answers: Mapping[int, Sequence[AnswerFile]] = field(default_factory=dict)
    work: NodeWork | None = field(default=None, repr=False)

    def send(self) -> None:
        """Write the work file for tasks of other processes, unless it was written for a repeated tick."""
        if self.work is not None and self.file.startswith(PASSING):
            write_work(self.store, self.file, self.work)

    def ask(self, partition: int, partitions: int) -> Iterator[pa.RecordBatch]:
        """Yield the partition's candidate pairs that ``answers`` does not cover; write nothing."""
        share = self._share(partition, partitions)
        check_keys(self.shape, share)
        return find_unanswered_candidates(self.shape, share, self.answers.get(partition, ()))

    def run(self, partition: int, partitions: int) -> Iterator[pa.RecordBatch | NodeReport]:
        """Yield the rows of the ``partition``-th of ``partitions`` shares, and last the report.

        Rows that another node takes are written for it instead; then there is only the report.
        """
        yield from self._run(self._share(partition, partitions))

    def collect(self, partition: int, partitions: int) -> tuple[list[pa.RecordBatch], NodeReport]:
        """Return the rows of the ``partition``-th of ``partitions`` shares, and the report."""
        return _split_rows_and_report(self.run(partition, partitions))

    def alone(self, most_matches: int, shares: int = 1) -> InlineResult | None:
        """Run the whole node in this process as ``shares`` partitions, each in its own thread.

        Returns:
            The result, or None if a partition exceeds its part of ``most_matches``, or has as much other
            work (see `TaskPartition`).
        """
        most, whole = -(-most_matches // shares), self._share(0, shares)

        def one(number: int) -> tuple[list[pa.RecordBatch], NodeReport]:
            own = replace(
                whole, report=self._report(number), partition=number, most_matches=most, spent=SpentWork()
            )
            return _split_rows_and_report(self._run(own))

        try:
            ran = parallel_map(one, range(shares))
        except ManyMatches:
            return None
        return InlineResult([rows for rows, _ in ran], [report for _, report in ran])

    def _run(self, share: TaskPartition) -> Iterator[pa.RecordBatch | NodeReport]:
        partition, partitions = share.partition, share.partitions
        work, report = share.work, share.report
        shape = apply_answers(self.shape, self.store, self.answers.get(partition, ()))
        check_keys(shape, share)
        ordered, schema = partitions == 1, self.shape.row_schema
        writer = None
        if self.shape.feed is not None:
            writer = self._writer(self.shape.feed, work, work.fed_index, ordered=ordered)
        paths = [self._writer(feed, work, None, ordered=ordered) for feed in self.shape.path_feeds]
        abroad = [self._writer(feed, work, None, ordered=ordered) for feed in self.shape.abroad]
        of_paths: dict[int, list[FeedWriter]] = {}
        of_all: list[FeedWriter] = []
        for feed, other in zip(self.shape.abroad, abroad, strict=True):
            (of_all if feed.path is None else of_paths.setdefault(feed.path, [])).append(other)
        share = replace(share, paths=paths, paths_abroad=of_paths)
        for batch in _collect(shape.strategy(shape, share), max_output_bytes(shape.memory)):
            share.count_emitted(batch, 1 + len(of_all))
            report.rows_out += batch.num_rows
            lower_min_times(self.shape, batch, report.least_out)
            for other in of_all:
                other.add(batch)
            if writer is not None:
                writer.add(batch)
            else:
                yield batch if batch.schema.equals(schema) else batch.cast(schema)
        report.fed = None if writer is None else writer.finish()
        report.fed_by_path = [path.finish() for path in paths]
        report.fed_abroad = [other.finish() for other in abroad]
        report.traffic = take_traffic(self.store)
        yield report

    def _writer(self, feed: FeedShape, work: NodeWork, index: str | None, *, ordered: bool) -> FeedWriter:
        runs = SideWriter(
            feed.side,
            self.store,
            self.tick,
            placing=self.placing,
            index=index,
            ordered=ordered,
            lasting=not feed.side.changes,
            tasks=work.tasks,
        )
        return FeedWriter(feed, runs, work, self.store)

    def _share(self, partition: int, partitions: int) -> TaskPartition:
        work = self.work or read_work(self.store, self.file)
        return TaskPartition(self.store, self.tick, work, self._report(partition), partition, partitions)

    def _report(self, partition: int) -> NodeReport:
        return NodeReport(partition=partition, sides=[SideReport() for _ in self.shape.sides])


def _split_rows_and_report(
    ran: Iterator[pa.RecordBatch | NodeReport],
) -> tuple[list[pa.RecordBatch], NodeReport]:
    *rows, report = ran
    assert isinstance(report, NodeReport)
    return rows, report


def _collect(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Merge small batches up to about ``most`` bytes; retain the order of the rows."""
    held: list[pa.RecordBatch] = []
    rows = held_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        of_batch = size(batch.columns)
        if held and held_bytes + of_batch > most:
            yield one_batch(held)
            held, rows, held_bytes = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        held_bytes += of_batch
        if rows >= OUTPUT_ROWS:
            yield one_batch(held)
            held, rows, held_bytes = [], 0, 0
    if held:
        yield one_batch(held)
