"""Below which times the rows of a tick are late, by the watermarks before it."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.event_time import NEVER, Watermark, shift
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.nodes.retention import horizon_limits
from watersmeet.watermark.tracker import InputState


def lateness_of(query: QueryPlan, side: SidePlan) -> int:
    """What is still to be taken off an input's watermarks: those that stages have a part in have it off."""
    return 0 if side.feed is not None or side.stages else query.options.allowed_lateness


def late_by_watermarks(query: QueryPlan, watermarks: Mapping[str, Watermark]) -> dict[str, Watermark]:
    """Return per key of the inputs below which times rows are late, once its watermarks are these.

    ``watermarks``: by the same keys. A key without one has no limit of its own.
    """
    below = {
        key: shift(watermarks[key], -lateness_of(query, side))
        for side in query.sides
        for key in map(side.watermark_key, side.event_times)
        if key in watermarks
    }
    for join in query.every(JoinPlan):
        if join.horizon is not None:
            below |= horizon_limits(join.horizon, below)
    return below


def late_below(
    query: QueryPlan, inputs: Mapping[str, InputState], before: Mapping[str, Watermark]
) -> dict[str, Watermark]:
    """Per key of the inputs: rows below are late, once their watermarks are these; never below ``before``."""
    watermarks = {
        side.watermark_key(column): watermark
        for side in query.sides
        for column, watermark in inputs[side.name].watermarks.items()
    }
    below = late_by_watermarks(query, watermarks)
    return {key: max(below.get(key, NEVER), before.get(key, NEVER)) for key in {**before, **below}}


def late_columns(side: SidePlan, late_below: Mapping[str, Watermark]) -> dict[str, Watermark]:
    """The same for one input, per event time."""
    return {column: late_below.get(side.watermark_key(column), NEVER) for column in side.event_times}
