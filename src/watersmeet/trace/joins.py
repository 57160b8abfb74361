"""What one join did in a tick, read back from its work, its runs and its marks (`trace.recorder`).

Pairs, marks and released rows come from the join's own task, run once more over the work that it was given,
with all columns of both sides leaving and nothing merged. That changes nothing: no manifest names its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.event_time import Mask, Side
from watersmeet.kernel.batches import batches_in
from watersmeet.kernel.gather import JoinedColumn, gather
from watersmeet.kernel.match.probe import Rows
from watersmeet.names import DIFF, is_computed
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.nodes import MatchPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.runtime.messages.reports import NodeReport
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.runtime.messages.work import SideWork
from watersmeet.runtime.operators.task import NodeTask
from watersmeet.runtime.tasks.results import NO_ROWS
from watersmeet.runtime.values import to_json
from watersmeet.state.manifest import Arrangement, LiveRun
from watersmeet.state.marks import MarkKind, overlay, read_marks
from watersmeet.state.runs.layout import null_column
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.store import Store
from watersmeet.trace.record import Pair, Released, Row


class Joined(NamedTuple):
    """Facts about a join before the tick is committed.

    ``rows``: the number of rows that it emitted or passed on.
    """

    pairs: list[Pair]
    released: list[Released]
    brought: dict[Side, list[Row]]
    least: dict[str, int]
    rows: int


def again(plan: MatchPlan, task: NodeTask) -> Joined:
    """Run the join's task once more, over all hash ranges at once, merging nothing, with all columns."""
    again = _merging_nothing(task)
    assert again.work is not None
    work = again.work
    columns = [column for side in Side for column in _columns(side, task.shape.side(side))]
    shape = replace(task.shape, columns=tuple(columns), feed=None)
    batches, report = replace(again, shape=shape).collect(0, 1)
    released, brought, least = [], {}, {}
    for side, planned in zip(Side, plan.sides, strict=False):
        told = work.side(side)
        released += list(_list_released_rows(plan, side, shape, told, report, task.store))
        if planned.feeds:
            brought[side] = _brought(plan, side, shape.side(side), told, task.store)
        for column, time in report.side(side).least.items():
            least[planned.watermark_key(column)] = time
    pairs = [pair for batch in batches for pair in _pairs(plan, shape, batch)]
    return Joined(pairs, released, brought, least, report.rows_out)


def closed(task: NodeTask) -> list[Row]:
    """Return the results of the windows that an aggregation's task closed.

    The function runs the task once more, without merging runs.
    """
    batches, _ = replace(_merging_nothing(task), shape=replace(task.shape, feed=None)).collect(0, 1)
    return [
        {name: to_json(value) for name, value in row.items()}
        for batch in batches
        for row in batch.to_pylist()
    ]


def _merging_nothing(task: NodeTask) -> NodeTask:
    assert task.work is not None
    sides = [side.model_copy(update={"merges": []}) for side in task.work.sides]
    return replace(task, work=task.work.model_copy(update={"sides": sides}))


def _columns(side: Side, task: SideShape, where: Side | None = None) -> list[JoinedColumn]:
    """Return all stored columns of a side in native types, with names unique across sides."""
    return [
        JoinedColumn(
            where or side,
            field.name,
            f"{side.value}/{field.name}",
            field.type,
            null_column(field.name) if field.name in task.nullable else None,
        )
        for field in task.schema
    ]


def _read(join: MatchPlan, side: Side, task: SideShape, batch: pa.RecordBatch, rows: Rows) -> list[Row]:
    """Read stored rows of a side for people."""
    gathered = gather(tuple(_columns(side, task, Side.LEFT)), batch, rows, None, NO_ROWS)
    return _convert_to_named_rows(join, side, task, gathered)


def _convert_to_named_rows(
    join: MatchPlan, side: Side, task: SideShape, gathered: pa.RecordBatch
) -> list[Row]:
    """Convert rows of `_columns` to dictionaries by name.

    A computed key is named by its expression; other computed columns are left out.
    """
    plan = join.side(side)
    names = {name: name for name in task.schema.names if not is_computed(name)}
    for key in join.keys:
        text = text_of(key.expr(side)).replace("`", "")
        if text not in names.values():
            names.setdefault(key.column(side), text)
    values = {
        names[name]: [to_json(value) for value in gathered.column(f"{side.value}/{name}").to_pylist()]
        for name in plan.kept
        if name in names
    }
    return [{name: column[place] for name, column in values.items()} for place in range(gathered.num_rows)]


def _pairs(join: MatchPlan, shape: NodeShape, batch: pa.RecordBatch) -> Iterator[Pair]:
    rows = {side: _convert_to_named_rows(join, side, shape.side(side), batch) for side in Side}
    there = {side: _is_there(join.side(side), side, batch) for side in Side}
    diffs = batch.column(DIFF).to_pylist() if shape.changelog else [1] * batch.num_rows
    for place, diff in enumerate(diffs):
        left, right = (rows[side][place] if there[side][place] else None for side in Side)
        yield Pair(left, right, diff)


def _is_there(plan: SidePlan, side: Side, batch: pa.RecordBatch) -> Mask:
    """Return the mask of rows in which a side is not padded.

    These are rows with an event time of the side that is not NULL; for a table, with any column that is
    not NULL.
    """
    there = np.zeros(batch.num_rows, dtype=np.bool_)
    for column in plan.event_times or plan.kept:
        there |= batch.column(f"{side.value}/{column}").is_valid().to_numpy(zero_copy_only=False)
    return there


def _brought(join: MatchPlan, side: Side, task: SideShape, work: SideWork, store: Store) -> list[Row]:
    brought = []
    for run in work.new_runs:
        batch = OpenRun.open(store, run, task.layout).sorted_rows.batch
        brought += _read(join, side, task, batch, np.arange(batch.num_rows))
    for file in work.pads:
        for batch in batches_in(pa.ipc.open_file(pa.BufferReader(store.read(file.name)))):
            brought += _read(join, side, task, batch, np.arange(batch.num_rows))
    return brought


def _list_released_rows(
    join: MatchPlan, side: Side, shape: NodeShape, work: SideWork, report: NodeReport, store: Store
) -> Iterator[Released]:
    task, plan, side_report = shape.side(side), join.side(side), report.side(side)
    if join.kind.is_asof and side is Side.LEFT:
        return  # each is released in the tick in which it is put out or dropped, by the right rows as well
    new = side_report.inserted if shape.changelog else [LiveRun(run=run) for run in work.new_runs]
    for live, is_new in [*((live, False) for live in work.runs), *((live, True) for live in new)]:
        marks = dict(live.marks)
        for kind, segments in side_report.marks.get(live.run.name, {}).items():
            marks[kind] = overlay(marks.get(kind, ()), segments)
        marked = LiveRun(run=live.run, marks=marks)
        run = OpenRun.open(store, live.run, task.layout)
        rows = run.newly_released({} if is_new else work.old_limits, work.new_limits)
        rows = np.sort(rows[~_marks(store, marked, "gone")[rows]])
        matched = _had_match(store, marked)
        read = _read(join, side, task, run.sorted_rows.batch, rows)
        if join.asof is not None:
            gone = np.flatnonzero(_marks(store, marked, "gone") & ~_marks(store, live, "gone"))
            column = join.bands[0].right.column
            for row, values in zip(gone, _read(join, side, task, run.sorted_rows.batch, gone), strict=True):
                time = int(run.sorted_rows.times(column)[row])
                yield Released(side, values, plan.watermark_key(column), time, bool(matched[row]), True)
        for row, values in zip(rows, read, strict=True):
            for column in task.layout.releasing:
                time = int(run.sorted_rows.times(column)[row])
                if time < work.new_limits[column]:
                    yield Released(side, values, plan.watermark_key(column), time, bool(matched[row]))
                    break


def _marks(store: Store, live: LiveRun, kind: MarkKind) -> Mask:
    marks = read_marks(store, kind, live.marks.get(kind, ()), 0, live.run.rows)
    marked: Mask = marks > 0
    return marked


def _had_match(store: Store, live: LiveRun) -> Mask:
    return _marks(store, live, "matched") | _marks(store, live, "count")


def retained_rows(
    join: MatchPlan, side: Side, task: SideShape, arrangement: Arrangement, store: Store
) -> list[tuple[Row, bool]]:
    """Return the rows of an arrangement that are neither released nor deleted, with match flags.

    The flag is True if the row has had a match; in changelog mode, if it has a match now.
    """
    retained: list[tuple[Row, bool]] = []
    for live in arrangement.runs:
        run = OpenRun.open(store, live.run, task.layout)
        stays = run.live(arrangement.limits, 0, live.run.rows) & ~_marks(store, live, "gone")
        rows = np.flatnonzero(stays)
        matched = _had_match(store, live)[rows].tolist()
        retained += zip(_read(join, side, task, run.sorted_rows.batch, rows), matched, strict=True)
    return retained
