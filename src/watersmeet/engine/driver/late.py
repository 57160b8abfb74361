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


def late_below(
    query: QueryPlan, inputs: Mapping[str, InputState], before: Mapping[str, Watermark]
) -> dict[str, Watermark]:
    """Per key of the inputs: rows below are late, once their watermarks are these; never below ``before``."""
    below = {
        side.watermark_key(column): shift(watermark, -lateness_of(query, side))
        for side in query.sides
        for column, watermark in inputs[side.name].watermarks.items()
    }
    for join in query.every(JoinPlan):
        if join.horizon is not None:
            below |= horizon_limits(join.horizon, below)
    return {key: max(below.get(key, NEVER), before.get(key, NEVER)) for key in {**before, **below}}


def late_columns(side: SidePlan, late_below: Mapping[str, Watermark]) -> dict[str, Watermark]:
    """The same for one input, per event time."""
    return {column: late_below.get(side.watermark_key(column), NEVER) for column in side.event_times}
