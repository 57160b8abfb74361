"""Rows that another query kept, held by its key, and that are held by another one from now on: their runs are
written once more, without the rows that are gone. Cost: these rows, in the driver, once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.kernel.batches import take_rows
from watersmeet.kernel.hashing import hash_columns
from watersmeet.kernel.pieces import whole
from watersmeet.kernel.slots import Slots
from watersmeet.state.manifest import Arrangement, LiveRun, Manifest
from watersmeet.state.marks import read_marks
from watersmeet.state.runs.opened import OpenRun
from watersmeet.state.runs.run import Run
from watersmeet.state.runs.written import sort_rows, write_run
from watersmeet.state.store import Store

Brought = tuple[str, int, str, str]
"""A side whose rows another query kept: query, node and name, and how they are held (`SideShape.held`)."""


def with_held_anew(
    manifest: Manifest,
    brought: Collection[Brought],
    shapes: Mapping[str, Sequence[NodeShape]],
    store: Store,
) -> Manifest:
    """The state, all of whose rows are held as the sides say that keep them."""
    queries = dict(manifest.queries)
    for name, number, side, held in brought:
        shape = next(own for own in shapes[name][number].sides if own.name == side)
        if held == shape.held:
            continue
        node = queries[name].nodes[number]
        kept = node.arrangements.get(side, Arrangement())
        runs = [_written(live, shape, store, manifest.tick + 1) for live in kept.runs if live.stored]
        arrangements = {**node.arrangements, side: kept.model_copy(update={"runs": runs})}
        nodes = list(queries[name].nodes)
        nodes[number] = node.model_copy(update={"arrangements": arrangements})
        queries[name] = queries[name].model_copy(update={"nodes": nodes})
    return manifest.model_copy(update={"queries": queries})


def _written(live: LiveRun, shape: SideShape, store: Store, made_in: int) -> LiveRun:
    """All rows of a run that are there, by the key of the side."""
    bare = replace(shape.layout, indexes=(), by_value=False, found_by=())
    rows = whole(OpenRun.open(store, live.run, bare).sorted_rows.batch)
    gone = read_marks(store, "gone", live.marks.get("gone", ()), 0, live.run.rows)
    chosen = take_rows(rows, np.flatnonzero(~gone))
    hashes = hash_columns([chosen.column(name) for name in shape.keys], chosen.num_rows)
    return LiveRun(run=written_anew(live.run, chosen, hashes, shape, store, made_in))


def written_anew(
    run: Run,
    rows: pa.RecordBatch,
    hashes: Slots,
    shape: SideShape,
    store: Store,
    made_in: int,
    index: str | None = None,
    *,
    stands_for: int | None = None,
) -> Run:
    """A run of some rows of ``run``, as ``shape`` holds them, that is merged with others as that would be.

    Args:
        hashes: int64[n], of the rows; ``made_in``: the tick that comes next;
            ``index``: by which they are sorted within one; None: the first;
            ``stands_for``: see `Run`.
    """
    return write_run(
        store,
        shape.arrangement,
        sort_rows(rows, hashes, shape.layout, index)[0],
        shape.layout,
        tick=run.tick,
        made_in=made_in,
        level=run.level,
        group=run.group,
        stands_for=stands_for,
    )
