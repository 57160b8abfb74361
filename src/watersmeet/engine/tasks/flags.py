"""What each row of a batch is worth to its join: by the flag computed of it, and by NULLs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.names import FLAG
from watersmeet.spec.flags import FLAG_CANDIDATE, FLAG_UNMATCHABLE

Flags = npt.NDArray[np.int8]


def flags_of(rows: pa.RecordBatch, not_null: Iterable[str]) -> Flags:
    """int8[n] of the FLAG_ constants.

    Args:
        rows: with `FLAG`, int8 without NULLs, or without it: then all are candidates.
        not_null: columns in which a NULL makes a candidate match nothing.
    """
    flags: Flags = np.full(rows.num_rows, FLAG_CANDIDATE, dtype=np.int8)
    if FLAG in rows.schema.names:
        flags = rows.column(FLAG).to_numpy(zero_copy_only=False)
    for name in not_null:
        column = rows.column(name)
        if column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            flags = np.where(missing & (flags == FLAG_CANDIDATE), np.int8(FLAG_UNMATCHABLE), flags)
    return flags
