"""`replay --trace`: watermarks, limits and rows, each with what made it so, as text for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from watersmeet.conditions import Bound
from watersmeet.event_time import MAX_TIME, NEVER, Watermark, shift
from watersmeet.spec.model import OnIdle, WatermarkRule
from watersmeet.trace.record import (
    InputWatermark,
    JoinStep,
    Limit,
    OutputWatermark,
    Released,
    TickTrace,
    Trace,
)


def row_text(row: Mapping[str, Any]) -> str:
    """A row as a case file writes it."""
    return json.dumps(row, ensure_ascii=False)


def late_text(trace: Trace, tick: TickTrace, key: str, time: int, below: Watermark | None) -> str:
    assert below is not None
    horizon = trace.horizon(key)
    if horizon is not None:
        before_by_key = {watermark.key: watermark.before for watermark in tick.inputs}
        by = min(horizon.keys, key=lambda own: before_by_key[own])
        least = trace.time(key, below)
        if shift(before_by_key[by], -horizon.reach - trace.lateness(by)) == below:
            least += f" = {_less(trace, key, by, before_by_key[by], horizon.reach, trace.lateness(by))}"
        else:
            least += ", the least time on time as of an earlier run"
        return f"{key} = {trace.time(key, time)} < {least}"
    lateness = trace.lateness(key)
    before = next(watermark.before for watermark in tick.inputs if watermark.key == key)
    least = f"W[{key}] = {trace.time(key, before)}"
    if shift(before, -lateness) != below:
        least = f"{trace.time(key, below)}, the least time on time as of an earlier run"
    elif lateness:
        least = (
            f"{trace.time(key, below)} = W[{key}] {trace.time(key, before)}"
            f" - {trace.distance(key, lateness)} allowed lateness"
        )
    return f"{key} = {trace.time(key, time)} < {least}"


def input_text(trace: Trace, watermark: InputWatermark) -> str:
    """The watermark, whether it rose, and the newest times that make it."""
    text = risen_text(trace, watermark.key, watermark.value, watermark.before)
    parts = [(p, lag) for p, lag in watermark.partitions if lag is not None]
    if not parts or not isinstance(watermark.value, int):
        return text
    texts = [
        f"{p.of} out of {p.name} = {trace.time(p.of, p.newest)}{' (idle)' if p.idle else ''}"
        if p.of is not None
        else f"{'' if len(parts) == 1 else f'{p.name}: '}newest time {trace.time(watermark.key, p.newest)}"
        f"{' (idle)' if p.idle else ''} - lag {trace.distance(watermark.key, lag)}"
        for p, lag in parts
    ]
    active = [shift(p.newest, -lag) for p, lag in parts if not p.idle]
    made = min(active) if active else max(shift(p.newest, -lag) for p, lag in parts)
    which = ("least" if len(active) == len(parts) else "of those not idle, least") if active else "highest"
    why = texts[0] if len(texts) == 1 else f"{which} of {', '.join(texts)}"
    if made == watermark.value:
        return f"{text}: {why}"
    follows = not active and any(
        branch.source.on_idle is OnIdle.FOLLOW
        for side in trace.query.sides
        if watermark.key in map(side.watermark_key, side.event_times)
        for _, branch in side.sources
    )
    return f"{text}: {'idle, it follows the other streams' if follows else 'it does not go back'} ({why})"


def risen_text(trace: Trace, key: str, value: Watermark, before: Watermark) -> str:
    rose = "" if value == before else f", rose from {'none' if before == NEVER else trace.time(key, before)}"
    return f"{key} = {trace.time(key, value)}{rose}" if value > NEVER else f"{key}: none yet"


def limit_text(trace: Trace, step: JoinStep, limit: Limit) -> str:
    if not limit.parts:
        if step.join.asof is not None and limit.value > NEVER:
            return f"{limit.key}: {trace.time(limit.key, limit.value)}, the least that may still be asked for"
        return f"{limit.key}: no bound"
    return f"{limit.key}: {_limit_value(trace, step, limit)}"


def _limit_value(trace: Trace, step: JoinStep, limit: Limit) -> str:
    """``101 = W[d.t] 102 - 1``; with several bounds, the greatest of what they give."""
    parts = [part for part in limit.parts if part[2] > NEVER]
    if limit.value == NEVER:
        by = [f"W[{bound.by}]" for bound, _, _ in limit.parts]
        return f"none yet, for {' and '.join(by)} {'has' if len(by) == 1 else 'have'} not begun"
    value = trace.time(limit.key, limit.value)
    if all(part[2] < limit.value for part in parts):
        return f"{value}, kept from before"
    if len(parts) == 1:
        return f"{value} = {_part(trace, step, limit.key, *parts[0])}"
    terms = ", ".join(f"{_part(trace, step, limit.key, *p)} = {trace.time(limit.key, p[2])}" for p in parts)
    return f"{value} = max({terms})"


def _part(trace: Trace, step: JoinStep, key: str, bound: Bound, by: Watermark, limit: Watermark) -> str:
    lateness = 0 if bound.by in step.fed else trace.query.options.allowed_lateness
    if isinstance(by, int) and shift(shift(by, -bound.c), -lateness) != limit:
        return f"W[{bound.by}] {trace.time(bound.by, by)} near the ends of time"
    return _less(trace, key, bound.by, by, bound.c, lateness)


def _less(trace: Trace, key: str, by: str, watermark: Watermark, c: int, lateness: int) -> str:
    """The watermark of ``by`` less what makes a time of ``key`` of it."""
    text = f"W[{by}] {trace.time(by, watermark)}"
    if not isinstance(watermark, int):
        return text
    if c:
        text += f" {'-' if c > 0 else '+'} {trace.distance(key, abs(c))}"
    return f"{text} - {trace.distance(key, lateness)} allowed lateness" if lateness else text


def released_text(trace: Trace, step: JoinStep, row: Released) -> str:
    if row.superseded:
        had = "had a match" if row.matched else "never matched"
        title = step.join.side(row.side).title
        return f"{title} {row_text(row.row)}: a later row will be taken instead; {had}"
    limit = next(limit for limit in step.limits if limit.key == row.key)
    best = max(limit.parts, key=lambda part: part[2], default=None)
    shown = trace.time(row.key, limit.value)
    if best is not None and best[2] == limit.value:
        shown += f" = {_part(trace, step, row.key, *best)}"
    had = "had a match" if row.matched else "never matched"
    title = step.join.side(row.side).title
    return f"{title} {row_text(row.row)}: {row.key} = {trace.time(row.key, row.time)} < limit {shown}; {had}"


def output_text(trace: Trace, step: JoinStep, output: OutputWatermark) -> str:
    """The watermark, whether it rose, and the least of what makes it."""
    key, text = output.key, risen_text(trace, output.key, output.value, output.before)
    if output.watermark == NEVER:
        return f"{text}, for W[{key}] has not begun"
    watermark = f"W[{key}] = {trace.time(key, output.watermark)}"
    if output.lateness and isinstance(output.watermark, int):
        watermark += f" - {trace.distance(key, output.lateness)} allowed lateness"
    value = shift(output.watermark, -output.lateness)
    by_limit = trace.query.options.watermark_rule is WatermarkRule.LIMIT or trace.horizon(key) is not None
    if not by_limit or step.join.asof is not None:
        if output.least is None:
            why = f"{watermark}, and no row is kept"
        elif output.least == MAX_TIME:
            why = f"{watermark}, and rows are kept only whose {key} is NULL"
        else:
            why = f"min({watermark}, least kept {trace.time(key, output.least)})"
            value = min(value, output.least)
    elif output.limit is None:
        return f"{key}: none, for no bound limits it (rule limit)"
    else:
        limit = "none yet" if output.limit == NEVER else trace.time(key, output.limit)
        why = f"min({watermark}, limit {limit})"
        value = min(value, output.limit)
    if value < output.value:
        return f"{text}: stays, though {why} is less"
    return f"{text}: {why}"
