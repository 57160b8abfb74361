"""EXPLAIN of an ASOF join: which row is taken, when that is decided, and what is kept for it."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.conditions import AsofRule
from watersmeet.event_time import Side
from watersmeet.plan.explain.durations import distance, shifted
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.order.forecast import key_in_time


def nearest_lines(join: JoinPlan, asof: AsofRule) -> Iterator[str]:
    """Which row is the nearest."""
    right = join.right.title
    _, column = _times(join)
    which = "latest" if asof.latest else "earliest"
    texts = " AND ".join(dict.fromkeys(join.bands[0].texts))
    of_key = " of the same key" if join.keys else ""
    yield f"the {which} row of {right} by {column}{of_key}, of those with {texts}"
    of_a_tick = "source partition, and place in it" if join.right.in_order else "in it by a hash of the row"
    yield f"of equal times the row that came first: by tick, {of_a_tick}"


def retention_line(join: JoinPlan, asof: AsofRule, side: Side) -> str:
    """For how long rows of a side are kept."""
    return _left(join, asof) if side is Side.LEFT else _right(join, asof)


def _times(join: JoinPlan) -> tuple[str, str]:
    band = join.bands[0]
    return join.left.watermark_key(band.left.column), join.right.watermark_key(band.right.column)


def _left(join: JoinPlan, asof: AsofRule) -> str:
    left, right = _times(join)
    in_time, band = key_in_time(join, left), join.bands[0]
    assert band.upper is not None
    alone = "padded with NULLs" if join.kind.pads_left else "dropped"
    last = f"the watermark of {right} is above {shifted(left, band.upper, in_time)}"
    if asof.latest:
        until = f"a row is there that no later one can be nearer than, or {last}"
    else:
        until = (
            f"the watermark of {right} is at its nearest row, or above {shifted(left, band.upper, in_time)}"
        )
    return f"{join.left.title}: until {until}; then emitted with its nearest row, or {alone} without one"


def _right(join: JoinPlan, asof: AsofRule) -> str:
    left, right = _times(join)
    in_time, name = key_in_time(join, right), join.right.title
    asked = f"the least {left} that may still ask"
    oldest = None if asof.closed_lower is None else _shifted_from(asked, asof.closed_lower, in_time)
    if not asof.latest:
        return f"{name}: until {right} is below {oldest}; then dropped"
    assert asof.closed_upper is not None
    newest = _shifted_from(asked, asof.closed_upper, in_time)
    per_key = "of each key " if join.keys else ""
    limit = "" if oldest is None else f", as long as {right} is not below {oldest}"
    return f"{name}: {per_key}the last row below {newest}, and all newer ones{limit}"


def _shifted_from(asked: str, by: int, in_time: bool) -> str:
    if by == 0:
        return asked
    return f"{distance(abs(by), in_time)} {'before' if by < 0 else 'after'} {asked}"
