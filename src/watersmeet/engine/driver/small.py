"""Whether what a tick brings a node is so little that the driver does the work itself: handing it to Spark's
tasks takes longer. Of a step without rows, which has nothing to do, above all."""

from __future__ import annotations

from watersmeet.engine.driver.kinds.registry import driver_of
from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.engine.messages.work import NodeWork
from watersmeet.plan.model.nodes import NodePlan

SMALL_ROWS = 20_000
SMALL_BYTES = 8 << 20
"""Rows that come, with those of runs that are merged, and the bytes of runs. How many bytes go out as they
come shows when they do."""

MOST_MATCHES = 200_000
"""Where rows find more partners than these in all, it was much work after all, and is given to Spark."""


def is_small(node: NodePlan, shape: NodeShape, work: NodeWork, most_rows: int) -> bool:
    """Whether what the node does goes by its new rows alone, and these are few."""
    if not driver_of(node).goes_by_new_rows(shape):
        return False
    rows = nbytes = 0
    for side in work.sides:
        merged = side.merged_away()
        runs = [*side.new_runs, *(live.run for live in side.contents)]
        runs += [live.run for live in side.runs if side.replaced or live.run.name in merged]
        rows += sum(run.rows for run in runs) + sum(file.rows for file in side.pads)
        nbytes += sum(run.nbytes for run in runs)
    return rows <= most_rows and nbytes <= SMALL_BYTES
