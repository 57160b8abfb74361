"""What a join promises of its output: the output watermark of each key (semantics.md, section 2.7)."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.event_time import NEVER, Watermark


def output_watermarks(
    watermarks: Mapping[str, Watermark],
    limits: Mapping[str, Watermark],
    least_retained: Mapping[str, int],
    emitted: Mapping[str, Watermark],
    *,
    tight: bool,
) -> dict[str, Watermark]:
    """The output watermark of every key that has one, never below ``emitted``.

    Args:
        watermarks, limits: per key ``alias.column``, allowed_lateness taken off already.
        least_retained: per key, the least time among its input's retained rows; absent without any.
        tight: the rule ``tight``, else ``limit``.
    """
    output: dict[str, Watermark] = dict(emitted)
    for key, watermark in watermarks.items():
        if tight:
            value = min(watermark, least_retained.get(key, watermark))
        elif key in limits:
            value = min(watermark, limits[key])
        else:
            continue
        value = max(value, emitted.get(key, NEVER))
        if value > NEVER:
            output[key] = value
    return output


def risen(before: Mapping[str, Watermark], after: Mapping[str, Watermark]) -> dict[str, Watermark]:
    """The watermarks that rose."""
    return {key: value for key, value in after.items() if value > before.get(key, NEVER)}
