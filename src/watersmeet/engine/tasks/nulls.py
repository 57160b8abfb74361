"""A row without an event time, where that fails the job: what the error says."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask
from watersmeet.names import PARTITION

LONGEST = 500
"""Characters of the row that are shown."""


def null_time_error(source: str, row: pa.RecordBatch, present: Mapping[str, Mask | None]) -> EngineError:
    """About ``row``, one row as ingest has it. ``present``: of each event time, where it is not NULL."""
    (values,) = row.to_pylist()
    empty = [column for column in present if values[column] is None]
    shown = json.dumps(
        {name: value for name, value in values.items() if not name.startswith("_")},
        default=str,
        ensure_ascii=False,
    )
    if len(shown) > LONGEST:
        shown = shown[:LONGEST] + " …"
    partition = values.get(PARTITION)
    where = f" (partition {partition})" if partition is not None else ""
    return EngineError(
        f'source "{source}"{where}: a row has no {" and no ".join(empty)} (NULL), '
        f"and null_time is 'fail'; the row: {shown}",
        code="null-time",
        hint="SET null_time = 'count' drops such rows and counts them; late_output keeps them",
    )
