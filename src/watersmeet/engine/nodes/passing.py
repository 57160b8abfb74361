"""Rows of a node that keeps none: what its side brought in the tick, as it came."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.shapes import PassShape
from watersmeet.engine.tasks.results import pad, pad_files, with_diffs
from watersmeet.engine.tasks.share import Share
from watersmeet.event_time import Side
from watersmeet.names import DIFF


def pass_rows(shape: PassShape, share: Share) -> Iterator[pa.RecordBatch]:
    """The share's part of the tick's rows, in order."""
    files = pad_files(share.work.sides[0], share.store, share.partition, share.partitions)
    for batch, low, high in files:
        padded = pad(shape, Side.LEFT, batch, np.arange(low, high))
        if shape.changelog:
            diffs = batch.column(DIFF).to_numpy(zero_copy_only=False)[low:high]
            yield from with_diffs(padded, diffs)
        else:
            yield from padded
