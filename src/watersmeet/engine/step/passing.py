"""Rows of a node that keeps none: what its side brought in the tick, as it came."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.engine.step.results import pad, pad_files
from watersmeet.engine.step.tasks import PassShape, Share
from watersmeet.event_time import Side
from watersmeet.names import DIFF


def pass_rows(shape: PassShape, share: Share) -> Iterator[pa.RecordBatch]:
    """The share's part of the tick's rows, in order."""
    files = pad_files(share.work.sides[0], share.store, share.partition, share.partitions)
    for batch, low, high in files:
        rows = pad(shape, Side.LEFT, batch, np.arange(low, high))
        if shape.changelog:
            diffs = batch.column(DIFF).slice(low, high - low)
            rows = pa.RecordBatch.from_arrays([*rows.columns, diffs], names=[*rows.schema.names, DIFF])
        yield rows
