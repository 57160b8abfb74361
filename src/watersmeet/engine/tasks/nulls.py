"""A row without an event time, where that fails the job: what the error says."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask
from watersmeet.kernel.times import known_times
from watersmeet.names import PARTITION
from watersmeet.types.json_values import rows_of

LONGEST = 500
"""Characters of the row that are shown."""


def null_time_error(source: str, row: pa.RecordBatch, present: Mapping[str, Mask | None]) -> EngineError:
    """About ``row``, one row as ingest has it. ``present``: of each event time, where it is not NULL."""
    (values,) = rows_of(row)
    told = dict(zip(row.schema.names, values, strict=True))
    empty = [
        f"{column} ({'NULL' if told[column] is None else 'out of range'})"
        for column in present
        if known_times(row.column(column)).null_count
    ]
    shown = json.dumps({n: value for n, value in told.items() if not n.startswith("_")}, ensure_ascii=False)
    if len(shown) > LONGEST:
        shown = shown[:LONGEST] + " …"
    partition = told.get(PARTITION)
    where = f" (partition {partition})" if partition is not None else ""
    return EngineError(
        f'source "{source}"{where}: a row has no valid {" and no valid ".join(empty)}, '
        f"and on_null_time is 'fail'; the row: {shown}",
        code="null-time",
        hint="SET on_null_time = 'count' to drop and count such rows; SET late_output writes them to a sink",
    )
