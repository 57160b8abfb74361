"""The second half of a tick in changelog mode, for one hash range: every result is a change with a diff.

    Δout = ΔL × R_before + L_after × ΔR            (semantics.md, section 5, for two inputs)

This tick's rows are summed per equal row first: what is left are inserts, which become a new run, and
deletes, which take away one equal row each by a mark (``gone``). Rows carry the count of their live matches:
a pad goes out while it is 0 and is taken back when it rises; the left row of a SEMI join the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.conditions import ExactBand, Key, RealBand
from watersmeet.engine.messages.reports import NodeReport, SideReport, lower
from watersmeet.engine.messages.shapes import JoinShape, SideShape
from watersmeet.engine.tasks.memory import check_bytes
from watersmeet.engine.tasks.merge import merge_runs
from watersmeet.engine.tasks.results import (
    count,
    least_alive,
    pad,
    pad_files,
    put_out,
    with_diffs,
)
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import RunSlice, SideSlice
from watersmeet.event_time import Mask, Side, below
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import MOST_BYTES, same_rows, take_rows
from watersmeet.kernel.match.lasting import lasting
from watersmeet.kernel.match.pairs import Condition, find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.pieces import Columns, held_by, row_sizes, whole
from watersmeet.kernel.slots import BUCKET_MASK
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.kernel.times import to_native
from watersmeet.measure import REAL
from watersmeet.names import DIFF, ours
from watersmeet.spec.model import JoinKind
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkArray, MarkKind, MarkWriter, places_among
from watersmeet.state.run import sort_rows, write_run

_BUCKET, _SAME, _ROW = ours("bucket"), ours("same"), ours("row")
_SAMPLES = 5


@dataclass
class Change:
    """Inserts or deletes of one side. ``matches``: per row, how many live partners it has (inserts: after the
    tick; deletes: before it). ``released``: of deletes, which rows were released before the tick."""

    rows: SortedRows
    diff: int
    matches: npt.NDArray[np.int64]
    released: Mask


def run_changelog(shape: JoinShape, share: Share, slices: dict[Side, SideSlice]) -> Iterator[pa.RecordBatch]:
    report = share.report
    inserts, deletes = {}, {}
    for side in Side:
        inserts[side], deletes[side] = _changes(slices[side], report.side(side))
    left, right = slices[Side.LEFT], slices[Side.RIGHT]
    for change in (inserts[Side.LEFT], deletes[Side.LEFT]):
        for piece in right.old:
            yield from _pairs(shape, Side.LEFT, change, piece, piece.were, report)
    for change in (inserts[Side.RIGHT], deletes[Side.RIGHT]):
        for piece in left.old:
            yield from _pairs(shape, Side.RIGHT, change, piece, piece.are, report)
        yield from _new_pairs(shape, inserts[Side.LEFT], change, report)
    if right.task.padded:
        _count_lost_partners(shape, deletes[Side.RIGHT], left)

    marks = MarkWriter()
    for side in Side:
        own = slices[side]
        if own.task.padded or _leaves_matched(shape, side):
            yield from _single_changes(shape, side, own, inserts[side], deletes[side])
        for batch, low, high in pad_files(own.work, own.store, share.partition, share.partitions):
            yield from _unmatchable(shape, side, own, batch, low, high)
        inserted = _write_inserts(own, inserts[side], share.tick, report.side(side), marks)
        _release(own, report.side(side))
        report.side(side).merged = merge_runs(own, share.tick, marks)
        merged_away = {name for group in own.work.merges for name in group}
        for piece in own.old:
            if piece.name not in merged_away:
                piece.keep_marks(marks)
        report.side(side).inserted = inserted
        _least(own, inserts[side], report.side(side))
    written = marks.write(share.store, share.tick)
    for side in Side:
        fresh = {live.run.name: live for live in [*report.side(side).merged, *report.side(side).inserted]}
        names = {piece.name for piece in slices[side].old}
        for name, side_marks in written.items():
            if name in fresh:
                fresh[name].marks = side_marks
            elif name in names:
                report.side(side).marks[name] = side_marks


def _changes(own: SideSlice, report: SideReport) -> tuple[Change | None, Change | None]:
    """This tick's rows, summed per equal row: inserts, and deletes after taking their rows away."""
    if own.new is None:
        return None, None
    rows = own.new.rows
    # Before there are copies of them.
    check_bytes(_what(own), held_by(rows.batch), own.task.memory, MOST_BYTES)
    batch = whole(rows.batch)
    table = pa.Table.from_batches([batch]).append_column(_BUCKET, pa.array(rows.slots & BUCKET_MASK))
    # Arrow tells 0.0 from −0.0, and does not group by values with parts: numbers stand for such columns.
    numbered = [field.name for field in batch.schema if _has_parts(field.type) and field.name != DIFF]
    keys = [name for name in table.column_names if name != DIFF and name not in numbered]
    if numbered:
        table = table.append_column(_SAME, pa.array(group_numbers(batch, numbered)))
        keys.append(_SAME)
    table = table.select([*keys, DIFF]).append_column(_ROW, pa.array(np.arange(len(batch))))
    summed = table.group_by(keys, use_threads=False).aggregate([(DIFF, "sum"), (_ROW, "min")])
    same_rows(
        "sum changes up",
        int(pc.sum(table.column(DIFF)).as_py() or 0),
        int(pc.sum(summed.column(f"{DIFF}_sum")).as_py() or 0),
    )
    net = summed.column(f"{DIFF}_sum").to_numpy().astype(np.int64)
    count(report, "deleted", int(np.abs(batch.column(DIFF).to_numpy()).sum() - np.abs(net).sum()))
    buckets = summed.column(_BUCKET).to_numpy()
    firsts = summed.column(f"{_ROW}_min").to_numpy()
    batch = take_rows(batch.select(own.task.stored_schema.names), firsts)
    added = _repeated(own, batch, np.arange(len(net)), np.maximum(net, 0))
    gone = np.flatnonzero(net < 0)
    inserts = None
    if len(added):
        sorted_rows, _ = sort_rows(take_rows(batch, added), buckets[added], own.task.layout, own.work.index)
        zeros = np.zeros(len(sorted_rows), dtype=np.int64)
        inserts = Change(sorted_rows, 1, zeros, zeros.astype(np.bool_))
    deletes = None
    if len(gone):
        needles, order = sort_rows(take_rows(batch, gone), buckets[gone], own.task.layout, own.work.index)
        taken = _take_away(own, needles, -net[gone][order], report)
        if len(taken):
            zeros = np.zeros(len(taken), dtype=np.int64)
            deletes = Change(needles_at(needles, taken), -1, zeros, _released(own, needles, taken))
    return inserts, deletes


def _what(own: SideSlice) -> str:
    return f'the changes of "{own.task.name}" in a tick'


def _repeated(own: SideSlice, batch: Columns, rows: Rows, times: npt.NDArray[np.int64]) -> Rows:
    """These rows, each as often as it comes or goes. Raises: EngineError, when so many copies do not fit."""
    if times.max(initial=0) > 1:
        of_rows = row_sizes(batch, batch.schema.names, rows) + rows.itemsize
        held = int((of_rows.astype(np.float64) * times).sum())  # beyond int64 it may be
        check_bytes(_what(own), held, own.task.memory, MOST_BYTES)
    return np.repeat(rows, times)


def _has_parts(kind: pa.DataType) -> bool:
    """Values that are equal without being the same: REAL numbers, and what may hold some."""
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))


def needles_at(rows: SortedRows, positions: Rows) -> SortedRows:
    """The rows at ascending positions (repeats allowed), still sorted."""
    return SortedRows(
        rows.slots[positions],
        rows.base,
        rows.shift,
        rows.greatest,
        take_rows(rows.batch, positions),
        rows.index,
        rows.spans,
        rows.by_value,
    )


def _take_away(
    own: SideSlice, needles: SortedRows, wanted: npt.NDArray[np.int64], report: SideReport
) -> Rows:
    """Mark one equal live row as gone per delete; the needles that take effect, with repeats."""
    equal = _equality(own.task)
    left_over = wanted.copy()
    for piece in own.old:
        for needle, row in find(equal, needles, Side.LEFT, piece.rows):
            alive = ~piece.are("gone", row) & ~_released(own, piece.rows, row)
            needle, row = needle[alive], row[alive]
            first = np.searchsorted(needle, needle, side="left")
            chosen = np.arange(len(needle)) - first < left_over[needle]
            needle, row = needle[chosen], row[chosen]
            if len(row):
                piece.mark("gone", row)
                np.subtract.at(left_over, needle, 1)
                report.released[piece.name] = report.released.get(piece.name, 0) + len(row)
                count(report, "deleted", 2 * len(row))  # the row, and its delete
    # A row that was released cannot be found, but its partners are all still here: the delete applies.
    released = _released(own, needles, np.arange(len(needles)))
    missing = np.where(released, 0, left_over)
    count(report, "deleted", int((left_over - missing).sum()))
    count(report, "missing_deletes", int(missing.sum()))
    report.missing = _as_json(own.task, take_rows(needles.batch, np.flatnonzero(missing)[:_SAMPLES]))
    return _repeated(own, needles.batch, np.arange(len(needles)), wanted - missing)


def _released(own: SideSlice, among: SortedRows, rows: Rows) -> Mask:
    """Which of these rows were released before this tick."""
    released = np.zeros(len(rows), dtype=np.bool_)
    for column in own.task.layout.releasing:
        released |= below(among.times(column)[rows], own.work.old_limits.get(column, float("-inf")))
    return released


def _as_json(side: SideShape, rows: pa.RecordBatch) -> list[str]:
    """The kept columns of stored rows, as a JSON object per row."""
    columns = {f.name: to_native(rows.column(f.name), f.type).to_pylist() for f in side.schema}
    return [
        json.dumps({name: _plain(values[row]) for name, values in columns.items()}, ensure_ascii=False)
        for row in range(rows.num_rows)
    ]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    return str(value)


def _equality(side: SideShape) -> Condition:
    """Rows equal in every stored column, NULLs equal."""
    exact = [index for index in side.layout.indexes if index.measure != REAL]
    decided = {index.column for index in exact if index.measure.tells_apart}
    return Condition(
        keys=tuple(
            Key(name, name, null_safe=True) for name in side.stored_schema.names if name not in decided
        ),
        bands=tuple(ExactBand(index, index, 0, 0) for index in exact),
        comparisons=(),
        rechecks=(),
        slack=0,
        residual=None,
        residual_columns=(),
        reals=tuple(
            RealBand(index, index, 0.0, 0.0, 0.0, 0.0, 2.0**1022, (), None)
            for index in side.layout.indexes
            if index.measure == REAL
        ),
    )


def _pairs(
    shape: JoinShape,
    side: Side,
    change: Change | None,
    piece: RunSlice,
    marks: Callable[[MarkKind, Rows], MarkArray],
    report: NodeReport,
) -> Iterator[pa.RecordBatch]:
    """Changes of ``side`` × rows of the other side's old run that are not gone, by these ``marks``: those of
    the piece before this tick, or now."""
    if change is None:
        return
    for needle, row in find(shape.condition, change.rows, side, piece.looked_up):
        alive = ~marks("gone", row)
        if shape.lasting:
            in_sight = piece.alive(row) & ~change.released[needle]
            alive &= in_sight | _lasting(shape, side, change.rows, needle, piece.rows, row)
        needle, row = needle[alive], row[alive]
        if not len(row):
            continue
        np.add.at(change.matches, needle, 1)
        piece.add(row, change.diff)
        report.matches += len(row)
        if shape.kind.hides_right:
            continue
        if side is Side.LEFT:
            joined = put_out(shape, change.rows.batch, needle, piece.rows.batch, row)
        else:
            joined = put_out(shape, piece.rows.batch, row, change.rows.batch, needle)
        yield from with_diffs(joined, np.full(len(row), change.diff))


def _new_pairs(
    shape: JoinShape, inserts: Change | None, change: Change | None, report: NodeReport
) -> Iterator[pa.RecordBatch]:
    """Left inserts × right changes of the same tick."""
    if inserts is None or change is None:
        return
    for needle, row in find(shape.condition, inserts.rows, Side.LEFT, change.rows):
        if shape.lasting:
            keep = ~change.released[row]
            keep |= _lasting(shape, Side.LEFT, inserts.rows, needle, change.rows, row)
            needle, row = needle[keep], row[keep]
        np.add.at(inserts.matches, needle, change.diff)
        if change.diff > 0:
            np.add.at(change.matches, row, 1)
        report.matches += len(row)
        if shape.kind.hides_right:
            continue
        yield from with_diffs(
            put_out(shape, inserts.rows.batch, needle, change.rows.batch, row),
            np.full(len(row), change.diff),
        )


def _count_lost_partners(shape: JoinShape, right: Change | None, left: SideSlice) -> None:
    """Add the left rows that were deleted in this tick to the partners of the right ones that were: only so
    is it known which of these had a pad. Where rows are padded, no bounds come from joins above."""
    if right is None:
        return
    for piece in left.old:
        lost = piece.newly("gone")
        if len(lost):
            for needle, row in find(shape.condition, right.rows, Side.RIGHT, piece.rows):
                np.add.at(right.matches, needle[places_among(row, lost) >= 0], 1)


def _lasting(
    shape: JoinShape, side: Side, needles: SortedRows, needle: Rows, rows: SortedRows, row: Rows
) -> Mask:
    """Which pairs of needles (rows of ``side``) and rows of the other side may come to a result. It is asked
    of released rows only: others meet whatever their condition says."""
    if side is Side.LEFT:
        return lasting(shape.lasting, needles, needle, rows, row)
    return lasting(shape.lasting, rows, row, needles, needle)


def _leaves_matched(shape: JoinShape, side: Side) -> bool:
    """Rows of the side leave while they have a match, not while they have none."""
    return shape.kind is JoinKind.SEMI and side is Side.LEFT


def _single_changes(
    shape: JoinShape,
    side: Side,
    own: SideSlice,
    inserts: Change | None,
    deletes: Change | None,
) -> Iterator[pa.RecordBatch]:
    """Rows of one side alone, that come or go: pads, and what a SEMI or ANTI join puts out."""
    sign = -1 if _leaves_matched(shape, side) else 1
    for piece in own.old:
        if "count" not in piece.touched:
            continue
        changed, old, new = piece.counts_changed()
        alive = ~piece.are("gone", changed)
        for rows, diff in (
            (changed[alive & (old == 0) & (new > 0)], -sign),
            (changed[alive & (old > 0) & (new == 0)], sign),
        ):
            if len(rows):
                yield from with_diffs(pad(shape, side, piece.rows.batch, rows), np.full(len(rows), diff))
    for change in (inserts, deletes):
        if change is not None:
            rows = np.flatnonzero((change.matches == 0) == (sign > 0))
            if len(rows):
                yield from with_diffs(
                    pad(shape, side, change.rows.batch, rows), np.full(len(rows), change.diff)
                )


def _unmatchable(
    shape: JoinShape, side: Side, own: SideSlice, batch: pa.RecordBatch, low: int, high: int
) -> Iterator[pa.RecordBatch]:
    """Pads of rows that can match nothing, as often as each comes or goes."""
    diffs = batch.column(DIFF).to_numpy(zero_copy_only=False)[low:high].astype(np.int64)
    times = np.abs(diffs)
    rows = _repeated(own, batch, np.arange(low, high), times)
    if len(rows):
        yield from with_diffs(pad(shape, side, batch, rows), np.repeat(np.sign(diffs), times))


def _write_inserts(
    own: SideSlice, inserts: Change | None, tick: int, report: SideReport, marks: MarkWriter
) -> list[LiveRun]:
    if inserts is None:
        return []
    run = write_run(own.store, own.task.arrangement, inserts.rows, own.task.layout, tick=tick)
    if inserts.matches.any():
        marks.add(run.name, "count", 0, inserts.matches)
    gone = np.zeros(len(inserts.rows), dtype=np.bool_)
    for column in own.task.layout.releasing:
        gone |= below(inserts.rows.times(column), own.work.new_limits.get(column, float("-inf")))
    _count_released(own, report, inserts.matches[gone])
    return [LiveRun(run=run, released=int(gone.sum()))]


def _release(own: SideSlice, report: SideReport) -> None:
    for piece in own.old:
        rows = own.released(piece, is_new=False)
        rows = rows[~piece.are("gone", rows)]
        if len(rows):
            report.released[piece.name] = report.released.get(piece.name, 0) + len(rows)
            _count_released(own, report, piece.are("count", rows))


def _count_released(own: SideSlice, report: SideReport, matches: npt.NDArray[np.int64]) -> None:
    hits = int((matches > 0).sum())
    count(report, "matched", hits)
    count(report, "padded" if own.task.padded else "released_unmatched", len(matches) - hits)


def _least(own: SideSlice, inserts: Change | None, report: SideReport) -> None:
    """The least event times over this task's retained rows. Cost: see `least_alive`, and the inserts."""
    least_alive(own, own.old, report)
    if inserts is None:
        return
    live = np.ones(len(inserts.rows), dtype=np.bool_)
    for releasing in own.task.layout.releasing:
        limit = own.work.new_limits.get(releasing, float("-inf"))
        live &= ~below(inserts.rows.times(releasing), limit)
    if live.any():
        for column in own.task.layout.event_times:
            lower(report.least, column, int(inserts.rows.times(column)[live].min()))
