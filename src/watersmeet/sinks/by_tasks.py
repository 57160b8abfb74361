"""Frames that a sink stages by its own part (`ArrowPart`) within Spark's tasks.

A task may run more than once, at the same time even: when it failed, or was slow, or its machine went. Each
attempt stages what it has under a name of its own, and says so in one row of text; of these rows Spark gives
the driver those of one attempt per task. What other attempts staged is not named, and does not count.

A WatersmeetError within a task arrives as such a row, too: running the task again would not help.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from watersmeet.errors import WatersmeetError, error_from, plain_of
from watersmeet.sinks.base import ArrowPart, Frame, StagedPart

_STAGED, _ERROR = "staged", "error"


def staged_by_tasks(frame: Frame, part: ArrowPart) -> list[StagedPart]:
    """Stage all rows of a frame with ``part``; what it said, once per task that had rows.

    Args:
        part: sent to tasks as it is, its secrets too; Spark does not show it. It is told no numbers of
            partitions (always 0), and must tell attempts apart by itself.

    Raises:
        WatersmeetError: the first one that a part raised.
    """
    said = [json.loads(row[0]) for row in frame.mapInArrow(_Staging(part), f"{_STAGED} STRING").collect()]
    for row in said:
        if _ERROR in row:
            raise error_from(row[_ERROR])
    return [row[_STAGED] for row in said]


def numbered_here(part: ArrowPart, count: int) -> list[StagedPart]:
    """See `Numbered`: one after the other, in this process."""
    rows = [pa.record_batch({"id": pa.array([number], pa.int64())}) for number in range(count)]
    said = [part.write(0, row.schema, iter([row])) for row in rows]
    return [staged for staged in said if staged is not None]


@dataclass(frozen=True, repr=False)
class _Staging:
    """The function given to `mapInArrow`."""

    part: ArrowPart

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        rows = (batch for batch in chain([first], batches) if batch.num_rows)
        try:
            staged = self.part.write(0, first.schema, rows)
            said = {_STAGED: {} if staged is None else dict(staged)}
        except WatersmeetError as error:
            said = {_ERROR: plain_of(error)}
        yield pa.record_batch({_STAGED: pa.array([json.dumps(said)])})
