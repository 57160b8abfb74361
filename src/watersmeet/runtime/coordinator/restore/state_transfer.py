"""Transfer state between queries when a job begins, and rewrite runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.event_time import NEVER, are_below
from watersmeet.kernel.batches import same_rows, take_rows
from watersmeet.kernel.gather import as_one_batch
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.slots import Slots, hash_columns
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.names import input_of
from watersmeet.plan.identity.completeness import Times
from watersmeet.plan.model.job import QueryPlan
from watersmeet.runtime.coordinator.shared_inputs import (
    home_of,
    node_of,
    rename_keys,
    rename_keys_to_own,
    side_home,
)
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.state.manifest import (
    Arrangement,
    LiveRun,
    Manifest,
    NodeState,
    QueryState,
)
from watersmeet.state.marks import MarkArray, MarkKind, MarkWriter, read_marks
from watersmeet.state.runs.layout import Run
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.runs.writer import sort_rows, write_run
from watersmeet.state.store import Store
from watersmeet.watermark.tracker import InputState

# Runs of the state that are written once more when a job begins, in the driver: by another key, because
# the query that stored their rows went; or without released rows, because a query retains rows for longer
# now, or is a new one. Files that are there stay as they are: others may need them.

Shapes = Mapping[str, Sequence[NodeShape]]
"""Per query."""

BroughtSide = tuple[str, int, str, str]
"""A side whose rows another query kept: query, node and name, and how they are held (`SideShape.held`)."""

_STAYING_MARKS: tuple[MarkKind, ...] = ("matched", "unknown")
"""The marks of rows that stay. Those that are gone do not."""


def rekey_runs(
    manifest: Manifest, brought: Collection[BroughtSide], shapes: Shapes, store: Store
) -> Manifest:
    """Hold all rows that other queries kept by the keys of the sides that keep them now."""
    queries = dict(manifest.queries)
    for name, number, side, held in brought:
        shape = next(own for own in shapes[name][number].sides if own.name == side)
        if held == shape.held:
            continue
        node = queries[name].nodes[number]
        kept = node.arrangements.get(side, Arrangement())
        runs = [_rekey(live, shape, store, manifest.tick + 1) for live in kept.runs if live.stored]
        arrangements = {**node.arrangements, side: kept.model_copy(update={"runs": runs})}
        nodes = list(queries[name].nodes)
        nodes[number] = node.model_copy(update={"arrangements": arrangements})
        queries[name] = queries[name].model_copy(update={"nodes": nodes})
    return manifest.model_copy(update={"queries": queries})


def _rekey(live: LiveRun, shape: SideShape, store: Store, made_in: int) -> LiveRun:
    rows, alive = stored_rows(live, shape, store)
    chosen = take_rows(rows, alive)
    hashes = hash_columns([chosen.column(name) for name in shape.keys], chosen.num_rows)
    return LiveRun(run=rewrite_run(live.run, chosen, hashes, shape, store, made_in)[0])


def stored_rows(live: LiveRun, shape: SideShape, store: Store) -> tuple[pa.RecordBatch, Rows]:
    """Return the rows of a run with the columns of ``shape``, and those that are not gone."""
    bare = replace(shape.layout, indexes=(), by_value=False, found_by=())  # however it is sorted
    rows = as_one_batch(OpenRun.open(store, live.run, bare).sorted_rows.batch)
    gone = read_marks(store, "gone", live.marks.get("gone", ()), 0, live.run.rows)
    return rows, np.flatnonzero(~gone)


def rewrite_run(
    run: Run,
    rows: pa.RecordBatch,
    hashes: Slots,
    shape: SideShape,
    store: Store,
    made_in: int,
    index: str | None = None,
    *,
    stands_for: int | None = None,
) -> tuple[Run, SortedRows, Rows]:
    """Write a run of some rows of ``run``, as ``shape`` holds them, that is merged as that one would be.

    Args:
        hashes: int64[n], of the rows.
        made_in: the tick that comes next.
        index: by which they are sorted within one; None: the first.
        stands_for: see `Run`.

    Returns:
        The run, its rows, and the positions that these had.
    """
    left, order = sort_rows(rows, hashes, shape.layout, index)
    written = write_run(
        store,
        shape.arrangement,
        left,
        shape.layout,
        tick=run.tick,
        made_in=made_in,
        level=run.level,
        group=run.group,
        stands_for=stands_for,
    )
    return written, left, order


def greatest_times(before: Times, now: Times) -> Times:
    """Return the greater time of each event-time column."""
    return {name: max(before.get(name, NEVER), now.get(name, NEVER)) for name in {**before, **now}}


class RunRewriter:
    """Writes what is known of retained rows, and runs without those that were released."""

    def __init__(self, manifest: Manifest, store: Store) -> None:
        self._store, self._made_in = store, manifest.tick + 1
        self._merged_by_others = {
            name for live in manifest.runs() if live.merged_from for name in live.merged_from.runs
        }

    def retained(self, kept: Arrangement, shape: SideShape, times: Times, *, is_longer: bool) -> Arrangement:
        """Mark the rows of a side below one of the ``times`` as unknown.

        Args:
            is_longer: the side begins without limits, and without rows that these, or marks, have taken away.
        """
        runs, marks = [], MarkWriter()
        for live in kept.runs:
            if is_longer and not live.retained:
                continue
            rows, of_kind = None, dict[MarkKind, MarkArray]()
            # others keep what they have: not all that was merged for them is there any more
            own = live.model_copy(update={"merged_from": None} if is_longer else {})
            if is_longer and (live.released or live.run.name in self._merged_by_others):
                own, rows, order = self._without_released(live, kept, shape)
                of_kind = {
                    kind: self._read(live, kind)[order] for kind in _STAYING_MARKS if kind in live.marks
                }
            if times:
                rows = OpenRun.open(self._store, live.run, shape.layout).sorted_rows if rows is None else rows
                unknown = of_kind["unknown"] if "unknown" in of_kind else self._read(own, "unknown")
                for column, time in times.items():
                    unknown = unknown | are_below(rows.times(column), time)
                of_kind["unknown"] = unknown
            for kind, of_rows in of_kind.items():
                marks.add(own.run.name, kind, 0, of_rows)
            runs.append(own)
        written = marks.write(self._store, self._made_in)
        for own in runs:
            own.marks = {**own.marks, **written.get(own.run.name, {})}
        if is_longer:
            gone_below = greatest_times(kept.limits, kept.gone_below)
            kept = kept.model_copy(update={"limits": {}, "candidates": {}, "gone_below": gone_below})
        return kept.model_copy(update={"runs": runs})

    def _read(self, live: LiveRun, kind: MarkKind) -> MarkArray:
        return read_marks(self._store, kind, live.marks.get(kind, ()), 0, live.run.rows)

    def _without_released(
        self, live: LiveRun, kept: Arrangement, shape: SideShape
    ) -> tuple[LiveRun, SortedRows, Rows]:
        """Write the retained rows of ``live`` alone; return also which of its rows they are, in order."""
        opened = OpenRun.open(self._store, live.run, shape.layout)
        there = opened.live(kept.limits, 0, live.run.rows) & ~self._read(live, "gone")
        rows, held = np.flatnonzero(there), opened.sorted_rows
        same_rows(f'what is retained of run "{live.run.name}"', live.retained, len(rows))
        chosen, slots = take_rows(as_one_batch(held.batch), rows), held.slots[rows]
        index = live.run.index
        run, left, order = rewrite_run(live.run, chosen, slots, shape, self._store, self._made_in, index)
        return LiveRun(run=run), left, rows[order]


# State that one query keeps for several, when the plan says that another one does from now on, or each
# for itself: the query went in whose place others rest, INSERTs are in another order, or a query that
# changed makes other rows. Runs are never changed, so whoever needs them takes them along.

T = TypeVar("T")


def transfer_state(manifest: Manifest, stay: Iterable[QueryPlan]) -> tuple[Manifest, list[BroughtSide]]:
    """Move retained rows to the nodes that retain them in the new plan.

    Args:
        stay: the queries that continue.

    Returns:
        The state in which each node of these queries has its rows, whichever query retained them
            before;
        and the sides of delta joins whose rows other queries retained, stored by their keys.
    """
    brought = list[BroughtSide]()
    moved = {
        query.name: _transfer(manifest, query, brought)
        for query in stay
        if manifest.queries[query.name].nodes
    }
    return manifest.model_copy(update={"queries": {**manifest.queries, **moved}}), brought


def _transfer(manifest: Manifest, query: QueryPlan, brought: list[BroughtSide]) -> QueryState:
    state = manifest.queries[query.name]
    read_elsewhere = {alias for alias, _, _ in query.shared_inputs}
    nodes, late_below = list(state.nodes), dict(state.late_below)
    inputs = {alias: of_input for alias, of_input in state.inputs.items() if alias not in read_elsewhere}
    resting = {node.number for taken in query.taken for node in taken.nodes}
    for node in query.nodes:
        kept = state.nodes[node.number]
        if node.number in resting:
            promised = {} if query.nodes[node.number].rests else kept.emitted
            nodes[node.number] = NodeState(elsewhere=kept.elsewhere, emitted=promised)
            continue
        if kept.elsewhere is not None:
            home = home_of(manifest, kept.elsewhere)
            nodes[node.number] = node_of(manifest, home)
            before = manifest.queries[home.query]
            inputs = deepcopy(rename_keys(home.aliases, before.inputs)) | inputs
            late_below |= rename_keys_to_own(before.late_below, home)
        for side in node.sides:
            of_node = nodes[node.number]
            if side.kept_by is not None:
                inputs.pop(side.name, None)
                nodes[node.number] = _without(of_node, side.name)
            elif side.name in of_node.kept_by:
                brought.append((query.name, node.number, side.name, of_node.kept_by[side.name].held))
                nodes[node.number], of_inputs = _with_side(manifest, of_node, side.name)
                inputs |= deepcopy(of_inputs)
    return state.model_copy(update={"nodes": nodes, "inputs": inputs, "late_below": late_below})


def _without(node: NodeState, side: str) -> NodeState:
    """Return the state of a node without the rows of a side that another query retains."""
    arrangements = {name: kept for name, kept in node.arrangements.items() if name != side}
    return node.model_copy(update={"arrangements": arrangements})


def _with_side(manifest: Manifest, node: NodeState, side: str) -> tuple[NodeState, dict[str, InputState]]:
    """Return a node's state with a side that another query retained, and the side's input."""
    kept = node.kept_by[side]
    query, number, name = side_home(manifest, kept.query, kept.node, kept.side)
    there = manifest.queries[query].nodes[number].arrangements
    arrangements = {**node.arrangements, **({side: there[name]} if name in there else {})}
    others = {own: by for own, by in node.kept_by.items() if own != side}
    inputs, alias = manifest.queries[query].inputs, input_of(name)
    of_input = {side: inputs[alias]} if input_of(side) == side and alias in inputs else {}
    return node.model_copy(update={"arrangements": arrangements, "kept_by": others}), of_input
