"""How fast the rows of a side come: for people, and for what EXPLAIN forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from watersmeet.engine.messages.shapes import SideShape
from watersmeet.event_time import NEVER, Watermark
from watersmeet.plan.model.sides import SidePlan
from watersmeet.state.pace import Pace
from watersmeet.state.runs.run import Run


def paces_after(
    side: SidePlan,
    task: SideShape,
    before: Mapping[str, Pace],
    new: Sequence[Run],
    watermarks: Mapping[str, Watermark],
) -> dict[str, Pace]:
    """Per event time, after a tick that brought the runs ``new``. ``watermarks``: that come in."""
    rows = sum(run.rows for run in new)
    return {
        column: before.get(column, Pace()).moved(
            rows,
            [] if column in task.nullable else [run.spans[column] for run in new],
            watermarks.get(side.watermark_key(column), NEVER),
            timed=not pa.types.is_integer(task.schema.field(column).type),
        )
        for column in side.event_times
    }
