"""The second half of a tick, in append mode, for one hash range: match, release, pad, merge.

    new left × old right, new left × new right, old left × new right    each pair with a new row, once
    released rows of a padded side that never matched                   pads
    runs that the driver wants merged                                   new runs, with their marks

A task does nothing that depends on running once: it writes files under new names and reports them in its last
row; only a report that the driver commits counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.engine.step.changelog import run_changelog
from watersmeet.engine.step.counts import lower
from watersmeet.engine.step.existence import first_matches, mark_gone
from watersmeet.engine.step.feed import FeedWriter
from watersmeet.engine.step.merge import merge_runs
from watersmeet.engine.step.orders import choose_orders
from watersmeet.engine.step.ranges import matches_by_range, reach_of, shares
from watersmeet.engine.step.results import count, least_alive, note_least, pad, pad_files
from watersmeet.engine.step.slice import HashRange, SideSlice, concat_batches
from watersmeet.engine.step.tasks import CONTROL, JoinReport, JoinShape, JoinWork, SideReport
from watersmeet.engine.step.write import Placing, SideWriter
from watersmeet.event_time import Side
from watersmeet.kernel.pairs import find, gather
from watersmeet.kernel.slots import borders
from watersmeet.spec.model import JoinKind
from watersmeet.state.marks import MarkWriter
from watersmeet.state.run import OpenRun
from watersmeet.state.store import Store

OUTPUT_ROWS = 200_000
"""Small results are collected into batches of about this many rows before they leave."""


@dataclass(frozen=True)
class JoinTask:
    """One join of one tick, to be run once per partition. ``work``: its work file; ``placing``: for tests."""

    shape: JoinShape
    store: Store
    work: str
    tick: int
    placing: Placing | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.shape.schema

    def run(self, partition: int, partitions: int) -> Iterator[pa.RecordBatch]:
        """Joined rows of the ``partition``-th of ``partitions`` hash ranges, and last the control row.

        Rows that another join takes are written for it instead; then there is only the control row.
        """
        query = JoinWork.model_validate_json(bytes(self.store.read(self.work)))
        by_value = self.shape.left.layout.by_value
        reach = None
        if by_value:
            slices = shares(self.shape, query, self.store, partition, partitions)
            if partitions > 1:
                reach = reach_of(self.shape, query, self.store, slices)
        else:
            cuts = borders(partitions)
            own = HashRange(cuts[partition], cuts[partition + 1])
            slices = {
                side: SideSlice(self.shape.side(side), query.side(side), self.store, own, own)
                for side in Side
            }
        report = JoinReport(partition=partition, left=SideReport(), right=SideReport())
        self._choose_orders(slices, reach, report)
        feed = self.shape.feed
        writer = None
        if feed is not None:
            side_writer = SideWriter(
                feed.side, self.store, self.tick, placing=self.placing, index=query.fed_index
            )
            writer = FeedWriter(feed, side_writer)
        if self.shape.changelog:
            batches = run_changelog(self, query, slices, report, partition, partitions)
        else:
            batches = _run_append(self, slices, reach, report, partition, partitions)
        for batch in _collect(batches):
            report.rows_out += batch.num_rows
            note_least(self.shape, batch, report.least_out)
            if writer is not None:
                writer.add(batch)
            else:
                yield _with_control(batch, self.schema, None)
        report.fed = None if writer is None else writer.finish()
        empty = pa.RecordBatch.from_arrays(
            [pa.nulls(1, field.type) for field in self.shape.row_schema], schema=self.shape.row_schema
        )
        yield _with_control(empty, self.schema, report.model_dump_json())

    def _choose_orders(
        self, slices: Mapping[Side, SideSlice], reach: Mapping[Side, SideSlice] | None, report: JoinReport
    ) -> None:
        for side in Side:
            for own, others in ((slices, reach or slices), (reach, slices)):
                if own is not None:
                    new = others[side.other].new
                    needles = None if new is None else new.rows
                    new_too = not self.shape.changelog and (side is Side.RIGHT or own is not slices)
                    choose_orders(self.shape, side, own[side], needles, report.side(side), new_too=new_too)


def _run_append(
    task: JoinTask,
    slices: dict[Side, SideSlice],
    reach: Mapping[Side, SideSlice] | None,
    report: JoinReport,
    partition: int,
    partitions: int,
) -> Iterator[pa.RecordBatch]:
    if task.shape.kind.hides_right:
        yield from first_matches(task.shape, slices, reach or slices, report)
    elif reach is None:
        yield from _matches(task.shape, slices, report)
    else:
        yield from matches_by_range(task.shape, slices, reach, report)
    marks = MarkWriter()
    for side in Side:
        own = slices[side]
        leaves = side is Side.LEFT and task.shape.kind is JoinKind.SEMI
        _settle_new(own, leaves, report.side(side))
        yield from _release(task.shape, side, own, report.side(side), leaves=leaves)
        for batch, low, high in pad_files(own, partition, partitions):
            yield pad(task.shape, side, batch, np.arange(low, high))
        merged = merge_runs(own, task.tick, marks)
        gone = {name for group in own.work.merges for name in group}
        for piece in [*own.old, *own.new_runs]:
            if piece.name not in gone:
                for kind in sorted(piece.touched):
                    marks.add(piece.name, kind, piece.start, piece.marks(kind))
        report.side(side).merged = merged
        if leaves:
            least_alive(own, [*own.old, *own.new_runs], report.side(side))
        else:
            _least(own, report.side(side), partition, partitions, task.store)
    written = marks.write(task.store, task.tick)
    for side in Side:
        own = slices[side]
        merged_runs = {live.run.name: live for live in report.side(side).merged}
        names = {piece.name for piece in [*own.old, *own.new_runs]}
        for name, found in written.items():
            if name in merged_runs:
                merged_runs[name].marks = found
            elif name in names:
                report.side(side).marks[name] = found


def _matches(shape: JoinShape, slices: dict[Side, SideSlice], report: JoinReport) -> Iterator[pa.RecordBatch]:
    left, right = slices[Side.LEFT], slices[Side.RIGHT]
    for side, own, other in ((Side.LEFT, left, right), (Side.RIGHT, right, left)):
        if own.new is None:
            continue
        for piece in other.old:
            for needle, row in piece.partners(shape.condition, own.new.rows, side):
                own.new.matched[needle] = True
                piece.mark_matched(row)
                report.matches += len(needle)
                batches = (own.new.rows.batch, piece.rows.batch)
                if side is Side.LEFT:
                    yield gather(shape.columns, batches[0], needle, batches[1], row)
                else:
                    yield gather(shape.columns, batches[1], row, batches[0], needle)
        if side is Side.LEFT and right.new is not None:
            for needle, row in find(shape.condition, own.new.rows, side, right.new.looked_up):
                own.new.matched[needle] = True
                right.new.matched[row] = True
                report.matches += len(needle)
                yield gather(shape.columns, own.new.rows.batch, needle, right.new.rows.batch, row)


def _settle_new(own: SideSlice, leaves: bool, report: SideReport) -> None:
    """Carry what is known of the merged new rows over to the runs that they came from."""
    for piece, rows in own.matched_new():
        if leaves:
            mark_gone(piece, rows, report)
        else:
            piece.mark_matched(rows)


def _release(
    shape: JoinShape, side: Side, own: SideSlice, report: SideReport, *, leaves: bool = False
) -> Iterator[pa.RecordBatch]:
    for pieces, is_new in ((own.old, False), (own.new_runs, True)):
        for piece in pieces:
            rows = own.released(piece, is_new=is_new)
            if leaves:
                rows = rows[~piece.marks("gone")[rows]]
            if not len(rows):
                continue
            report.released[piece.name] = report.released.get(piece.name, 0) + len(rows)
            matched = piece.marks("matched")[rows]
            hits = int(matched.sum())
            count(report, "matched", hits)
            count(report, "padded" if own.task.padded else "released_unmatched", len(rows) - hits)
            if own.task.padded and hits < len(rows):
                yield pad(shape, side, piece.rows.batch, np.sort(rows[~matched]))


def _least(own: SideSlice, report: SideReport, partition: int, partitions: int, store: Store) -> None:
    """The least event times over the retained rows of the runs that this task answers for (whole runs)."""
    runs = [*(live.run for live in own.work.runs), *own.work.new_runs]
    for number, run in enumerate(runs):
        if number % partitions != partition:
            continue
        found = OpenRun.open(store, run, own.task.layout).least(own.work.new_limits)
        for column, time in (found or {}).items():
            lower(report.least, column, time)


def _collect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, small batches put together."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        rows += batch.num_rows
        if rows >= OUTPUT_ROWS:
            yield concat_batches(held)
            held, rows = [], 0
    if held:
        yield concat_batches(held)


def _with_control(batch: pa.RecordBatch, schema: pa.Schema, control: str | None) -> pa.RecordBatch:
    column = pa.array([control] * batch.num_rows, type=pa.string())
    joined = pa.RecordBatch.from_arrays([*batch.columns, column], names=[*batch.schema.names, CONTROL])
    return joined.cast(schema)
