"""How many rows a change stands for: a diff of +3 is three rows that come, one of -3 three deletes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.event_time import Mask
from watersmeet.names import DIFF


def read_multiplicities(batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
    """Return the multiplicity of each row of the batch, or None if all are one."""
    if DIFF not in batch.schema.names:
        return None
    times = np.abs(batch.column(DIFF).to_numpy(zero_copy_only=False))
    return None if (times == 1).all() else times


def sum_multiplicities(mask: Mask, times: npt.NDArray[np.int64] | None) -> int:
    """Return how many rows the chosen rows represent."""
    return int(np.count_nonzero(mask) if times is None else times[mask].sum())
