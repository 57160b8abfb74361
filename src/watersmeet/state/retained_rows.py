"""The retained rows of runs as others may read them: without what is released or gone, and without what a run
holds for the engine alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.event_time import Mask, Watermark
from watersmeet.kernel.batches import take_rows
from watersmeet.names import ours
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkKind, read_marks
from watersmeet.state.runs.layout import StoredColumn, order_of_times, origins_in
from watersmeet.state.runs.reader import batches_of
from watersmeet.state.store import Store

MATCHED = ours("matched")
"""Whether a row has had a match, or how many it has."""

_ROWS, _BYTES = 1 << 16, 1 << 26
"""So many rows, or bytes of them, are looked at at a time, about."""


def retained_rows(
    store: Store,
    live: LiveRun,
    limits: Mapping[str, Watermark],
    columns: Sequence[StoredColumn] = (),
    matches: MarkKind | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the retained rows of one run, in its order.

    Args:
        limits: per event time, the limit below which rows are released, if the rows have that event
            time (partial aggregates are released by panes).
        columns: the wanted columns, by the names that the result has; a column that the run lacks is
            left out. Empty: all retained columns, with the run's names.
        matches: the marks that become the column `MATCHED`; None: no such column.

    Raises:
        StateError: the run is missing or damaged.
    """
    first = 0
    at_once = max(1, min(_ROWS, _BYTES * live.run.rows // max(live.run.nbytes, 1)))
    for batch in batches_of(store, live.run):
        names = _names(batch.schema, columns)
        for low in range(0, batch.num_rows, at_once):
            part = batch.slice(low, at_once)
            start, stop = first + low, first + low + part.num_rows
            keep = _retained_mask(part, limits, names)
            if "gone" in live.marks:
                keep &= ~read_marks(store, "gone", live.marks["gone"], start, stop)
            shown = {name: part.column(own) for name, own in names.items()}
            if matches is not None:
                shown[MATCHED] = pa.array(
                    read_marks(store, matches, live.marks.get(matches, ()), start, stop)
                )
            rows = np.flatnonzero(keep)
            if len(rows):
                yield take_rows(pa.RecordBatch.from_pydict(shown), rows)
        first += batch.num_rows


def _retained_mask(part: pa.RecordBatch, limits: Mapping[str, Watermark], names: Mapping[str, str]) -> Mask:
    keep = np.ones(part.num_rows, dtype=np.bool_)
    for name, limit in limits.items():
        own = names.get(name, name)
        if order_of_times(own) in part.schema.names:
            keep &= part.column(own).to_numpy(zero_copy_only=True) >= limit
    return keep


def _names(schema: pa.Schema, columns: Sequence[StoredColumn]) -> dict[str, str]:
    """Map each shown column name to the run's column name."""
    held = origins_in(schema)
    if not columns:
        return {name: name for names in held.values() for name in names}
    there = [(column.name, held[column.origin]) for column in columns if column.origin in held]
    return {name: name if name in own else own[0] for name, own in there}
