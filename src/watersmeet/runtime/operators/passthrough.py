"""Operators that retain nothing: rows pass unchanged, or another query produces them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.event_time import Side
from watersmeet.names import DIFF
from watersmeet.runtime.messages.shapes import PassShape, RestShape
from watersmeet.runtime.tasks.partition import TaskPartition
from watersmeet.runtime.tasks.results import append_diffs, pad, pad_files

# Rows of a node that keeps none: what its side brought in the tick, as it came.


def pass_rows(shape: PassShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Yield the task partition's part of the tick's rows, in order."""
    files = pad_files(share.work.sides[0], share.store, share.partition, share.partitions)
    for batch, low, high in files:
        padded = pad(shape, Side.LEFT, batch, np.arange(low, high))
        if shape.changelog:
            diffs = batch.column(DIFF).to_numpy(zero_copy_only=False)[low:high]
            yield from append_diffs(padded, diffs)
        else:
            yield from padded


# No rows: those of a node in whose place another query's is run.


def no_rows(shape: RestShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Yield no rows; a reused subplan has no tasks here and no consumer that reads this output."""
    yield from ()
