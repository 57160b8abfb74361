"""Consolidate a tick's changes of one side in one hash range.

Changes are first summed per equal row. The remaining inserts become a new run; each remaining delete marks
one equal row as ``gone``. A delete of a row that does not exist is counted, and not applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.event_time import Mask, are_below
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import MAX_COLUMN_BYTES, same_rows, take_rows
from watersmeet.kernel.gather import Columns, as_one_batch, estimate_bytes, row_sizes
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.slots import Slots, order_of
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.names import DIFF, ours
from watersmeet.runtime.messages.reports import SideReport, lower_min
from watersmeet.runtime.tasks.memory import check_bytes
from watersmeet.runtime.tasks.merge import merge_runs
from watersmeet.runtime.tasks.results import SAMPLES, count, report_min_alive, rows_as_json
from watersmeet.runtime.tasks.side import SideSlice, find_equal_rows
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import Marks, MarkWriter
from watersmeet.state.runs.writer import write_run

_SLOT, _SAME, _ROW = ours("slot"), ours("same"), ours("row")


@dataclass
class SideChange:
    """Inserts or deletes of one side.

    Attributes:
        matches: number of live partners of each row, after the tick for inserts and before it for deletes.
        released: for deletes, the rows that were released before the tick.
    """

    rows: SortedRows
    diff: int
    matches: npt.NDArray[np.int64]
    released: Mask


def net_changes(
    own: SideSlice, report: SideReport, *, final: bool = False
) -> tuple[SideChange | None, SideChange | None]:
    """Consolidate this tick's rows into inserts and deletes.

    Deletes take effect after their rows are removed.

    Args:
        final: released rows keep their output, so deletes of them have no effect.
    """
    if own.new is None:
        return None, None
    rows = own.new.rows
    # Before there are copies of them.
    check_bytes(_changes_text(own), estimate_bytes(rows.batch), own.task.memory, MAX_COLUMN_BYTES)
    batch = as_one_batch(rows.batch)
    diffs = batch.column(DIFF).to_numpy().astype(np.int64)
    firsts, net = consolidate_rows(rows.slots, batch, diffs)
    count(report, "deleted", int(np.abs(diffs).sum() - np.abs(net).sum()))
    rows = replace(rows, batch=batch.select(own.task.stored_schema.names))
    added = repeat_rows(own, rows.batch, firsts, np.maximum(net, 0))
    gone = np.flatnonzero(net < 0)
    inserts = None
    if len(added):
        zeros = np.zeros(len(added), dtype=np.int64)
        inserts = SideChange(_select_with_spans(own, rows, added), 1, zeros, zeros.astype(np.bool_))
    deletes = None
    if len(gone):
        needles = select_needles(rows, firsts[gone])
        taken = _retract_rows(own, needles, -net[gone], report, final=final)
        if len(taken):
            zeros = np.zeros(len(taken), dtype=np.int64)
            deletes = SideChange(
                select_needles(needles, taken), -1, zeros, find_earlier_released(own, needles, taken)
            )
    return inserts, deletes


def consolidate_rows(
    slots: Slots, batch: pa.RecordBatch, diffs: npt.NDArray[np.int64]
) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Sum the multiplicities of equal rows.

    Equal rows have equal slots, so only rows with the same slot are compared.

    Args:
        batch: rows with `DIFF`, sorted by ascending ``slots``.

    Returns:
        The first row of each set of equal rows, ascending, and the sums of their multiplicities.
    """
    same = slots[1:] == slots[:-1]
    if not same.any():
        return np.arange(len(slots)), diffs
    shared = np.append(same, False) | np.insert(same, 0, False)
    places = np.flatnonzero(shared)
    part = take_rows(batch, places)
    table = pa.Table.from_batches([part]).append_column(_SLOT, pa.array(slots[places]))
    # Arrow tells 0.0 from −0.0, and does not group by values with parts: numbers stand for such columns.
    numbered = [field.name for field in batch.schema if _has_float_values(field.type) and field.name != DIFF]
    keys = [name for name in table.column_names if name != DIFF and name not in numbered]
    if numbered:
        table = table.append_column(_SAME, pa.array(group_numbers(part, numbered)))
        keys.append(_SAME)
    table = table.select([*keys, DIFF]).append_column(_ROW, pa.array(places))
    summed = table.group_by(keys, use_threads=False).aggregate([(DIFF, "sum"), (_ROW, "min")])
    firsts = np.concatenate([np.flatnonzero(~shared), summed.column(f"{_ROW}_min").to_numpy()])
    sums = np.concatenate([diffs[~shared], summed.column(f"{DIFF}_sum").to_numpy()])
    same_rows("sum changes up", int(diffs.sum()), int(sums.sum()))
    order = order_of(firsts)
    return firsts[order], sums[order]


def _select_with_spans(own: SideSlice, rows: SortedRows, positions: Rows) -> SortedRows:
    """Select the rows at ascending positions (repeats allowed), and compute their spans."""
    if len(positions) == len(rows) and bool((positions == np.arange(len(rows))).all()):
        return rows
    chosen = select_needles(rows, positions)
    ordinals = {index.name: chosen.ordinals(index) for index in own.task.layout.measured}
    spans = {name: (int(values.min()), int(values.max())) for name, values in ordinals.items()}
    greatest = chosen.greatest if chosen.index is None else spans[chosen.index.name][1]
    return replace(chosen, spans=spans, greatest=greatest)


def _changes_text(own: SideSlice) -> str:
    return f'the changes of "{own.task.name}" in a tick'


def repeat_rows(own: SideSlice, batch: Columns, rows: Rows, times: npt.NDArray[np.int64]) -> Rows:
    """Repeat each row by its multiplicity.

    Raises:
        EngineError: the copies exceed the memory of a task.
    """
    if times.max(initial=0) > 1:
        of_rows = row_sizes(batch, batch.schema.names, rows) + rows.itemsize
        held = int((of_rows.astype(np.float64) * times).sum())  # beyond int64 it may be
        check_bytes(_changes_text(own), held, own.task.memory, MAX_COLUMN_BYTES)
    return np.repeat(rows, times)


def _has_float_values(kind: pa.DataType) -> bool:
    """Return True if values of the type may be equal without being identical.

    These are floating-point types and nested types, which may contain them.
    """
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))


def select_needles(rows: SortedRows, positions: Rows) -> SortedRows:
    """Select the rows at ascending positions (repeats allowed); they stay sorted."""
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


def _retract_rows(
    own: SideSlice, needles: SortedRows, wanted: npt.NDArray[np.int64], report: SideReport, *, final: bool
) -> Rows:
    """Mark one equal live row as gone per delete; the needles that take effect, with repeats."""
    left_over = wanted.copy()
    for piece in own.old:
        for needle, row in find_equal_rows(own.task, needles, piece.rows):
            alive = ~piece.read_marks("gone", row) & ~find_earlier_released(own, piece.rows, row)
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
    released = find_earlier_released(own, needles, np.arange(len(needles)))
    missing = left_over if final else np.where(released, 0, left_over)
    count(report, "deleted", int((left_over - missing).sum()))
    count(report, "missing_deletes", int(missing.sum()))
    report.missing = rows_as_json(
        own.task.schema, take_rows(needles.batch, np.flatnonzero(missing)[:SAMPLES])
    )
    return repeat_rows(own, needles.batch, np.arange(len(needles)), wanted - missing)


def find_earlier_released(own: SideSlice, among: SortedRows, rows: Rows) -> Mask:
    """Return the mask of rows that an earlier tick released."""
    released = np.zeros(len(rows), dtype=np.bool_)
    for column in own.task.layout.releasing:
        released |= are_below(among.times(column)[rows], own.work.old_limits.get(column, float("-inf")))
    return released


def settle_changes(
    own: SideSlice,
    inserts: SideChange | None,
    tick: int,
    report: SideReport,
    marks: MarkWriter,
    *,
    looked_up_after: bool = False,
    has_partners: bool = True,
) -> None:
    """Write the inserts, release rows, merge runs, and add all that to the report.

    Marks that ``marks`` collects enter the report when `report_marks` gets what was written.

    Args:
        looked_up_after: other nodes look up the rows in this tick, too. This task does not know which
            rows have partners, and it also reports marks of runs that a merge replaces.
        has_partners: rows are joined; otherwise only their release is counted.
    """
    are_counted = has_partners and not looked_up_after
    inserted = _write_inserts(own, inserts, tick, report, marks, are_counted=are_counted)
    _release(own, report, are_counted=are_counted)
    report.merged = merge_runs(own, tick, marks)
    merged_away = own.work.list_merged_runs()
    for piece in own.old:
        if looked_up_after or piece.name not in merged_away:
            piece.keep_marks(marks)
    report.inserted = inserted
    _report_min_times(own, inserts, report)


def report_marks(own: SideSlice, written: Mapping[str, Marks], report: SideReport) -> None:
    """Record the new marks of the slice's runs in the report.

    Args:
        written: marks by run.
    """
    fresh = {live.run.name: live for live in [*report.merged, *report.inserted]}
    names = {piece.name for piece in own.old}
    for name, marks in written.items():
        if name in fresh:
            fresh[name].marks = marks
        elif name in names:
            report.marks[name] = marks


def _write_inserts(
    own: SideSlice,
    inserts: SideChange | None,
    tick: int,
    report: SideReport,
    marks: MarkWriter,
    *,
    are_counted: bool,
) -> list[LiveRun]:
    if inserts is None:
        return []
    run = write_run(
        own.store, own.task.arrangement, inserts.rows, own.task.layout, tick=tick, group=f"{tick}"
    )
    matched = np.flatnonzero(inserts.matches)
    marks.add_rows(own.store, run.name, "count", (), 0, run.rows, matched, inserts.matches[matched])
    gone = np.zeros(len(inserts.rows), dtype=np.bool_)
    for column in own.task.layout.releasing:
        gone |= are_below(inserts.rows.times(column), own.work.new_limits.get(column, float("-inf")))
    if are_counted:
        _count_released(own, report, inserts.matches[gone])
    else:
        count(report, "released", int(gone.sum()))
    return [LiveRun(run=run, released=int(gone.sum()))]


def _release(own: SideSlice, report: SideReport, *, are_counted: bool) -> None:
    for piece in own.old:
        rows = own.released(piece, is_new=False)
        rows = rows[~piece.read_marks("gone", rows)]
        if len(rows):
            report.released[piece.name] = report.released.get(piece.name, 0) + len(rows)
            if are_counted:
                _count_released(own, report, piece.read_marks("count", rows))
            else:
                count(report, "released", len(rows))


def _count_released(own: SideSlice, report: SideReport, matches: npt.NDArray[np.int64]) -> None:
    hits = int((matches > 0).sum())
    count(report, "matched", hits)
    count(report, "padded" if own.task.padded else "released_unmatched", len(matches) - hits)


def _report_min_times(own: SideSlice, inserts: SideChange | None, report: SideReport) -> None:
    """Report the minimum event times of this task's retained rows.

    Cost: that of `report_min_alive`, and one pass over the inserts.
    """
    report_min_alive(own, own.old, report)
    if inserts is None:
        return
    live = np.ones(len(inserts.rows), dtype=np.bool_)
    for releasing in own.task.layout.releasing:
        limit = own.work.new_limits.get(releasing, float("-inf"))
        live &= ~are_below(inserts.rows.times(releasing), limit)
    if live.any():
        for column in own.task.layout.event_times:
            lower_min(report.least, column, int(inserts.rows.times(column)[live].min()))
