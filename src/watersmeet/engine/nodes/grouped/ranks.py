"""The first rows of partitions, for one hash range of these: of one that changes, rows that are no longer
among the first are taken back, and those that have come among them put out.

All rows of a partition are kept, for deletes may bring later ones up: each different row once, with how often
it is there, which adds up as what is kept of groups does (`changed_groups`). Cost: the tick's rows, and all
rows of the partitions that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.summed import RankShape
from watersmeet.engine.nodes.grouped.groups import changed_groups
from watersmeet.engine.tasks.results import cut
from watersmeet.engine.tasks.share import Share
from watersmeet.kernel.batches import one_array, one_table, take_rows
from watersmeet.kernel.groups import GROUP
from watersmeet.kernel.partial import ROWS
from watersmeet.kernel.ranks import IS, WAS, Numbers, moved, ranked, within
from watersmeet.names import DIFF

CHUNK_ROWS = 200_000
"""Maximum numbered rows in a batch that the node emits."""


def rank_rows(shape: RankShape, share: Share) -> Iterator[pa.RecordBatch]:
    """The changes of the first rows of the share's partitions."""
    return changed_groups(shape, share, partial(_of_partitions, shape))


def _of_partitions(
    shape: RankShape, old: list[pa.Table], own: list[pa.Table], keys: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """The rows that some partitions take back and put out; see `grouped.groups.OfGroups`."""
    kept = [_counted(table, was=True) for table in old] + [_counted(table, was=False) for table in own]
    rows, was_before, is_before = ranked(one_table(kept), shape.parts, shape.order, shape.most)
    was = within(shape.most, was_before, rows.column(WAS).to_numpy())
    now = within(shape.most, is_before, rows.column(IS).to_numpy())
    columns = _columns(shape, rows, keys)
    if not shape.results:
        diffs = now - was
        chosen = np.flatnonzero(diffs)
        yield from _out(shape, columns, chosen, {}, diffs[chosen])
        return
    ((number, kind),) = shape.results
    for chosen, numbers, diffs in moved((was_before, was), (is_before, now)).numbers(CHUNK_ROWS):
        yield from _out(shape, columns, chosen, {number: pa.array(numbers, kind)}, diffs)


def _counted(rows: pa.Table, *, was: bool) -> pa.Table:
    """Kept rows with how often they were there, and are."""
    there = rows.column(ROWS)
    before = there if was else pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)])
    return rows.append_column(WAS, before).append_column(IS, there)


def _columns(shape: RankShape, rows: pa.Table, keys: pa.RecordBatch) -> pa.RecordBatch:
    """The rows under the names that their columns have in the result."""
    partitions = pa.array(rows.column(GROUP).to_numpy())
    by = set(shape.partition)
    arrays = [
        keys.column(column).take(partitions) if column in by else one_array(rows.column(column))
        for _, column in shape.keys
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in shape.keys])


def _out(
    shape: RankShape,
    columns: pa.RecordBatch,
    chosen: Numbers,
    numbers: dict[str, pa.Array],
    diffs: Numbers,
) -> Iterator[pa.RecordBatch]:
    batch = take_rows(columns, chosen)
    arrays = [*batch.columns, *numbers.values(), pa.array(diffs.astype(np.int64, copy=False))]
    yield from cut(shape, pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *numbers, DIFF]))
