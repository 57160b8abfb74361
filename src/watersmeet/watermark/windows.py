"""When windows close: what a watermark says of them, and which watermarks they put out (semantics.md, 4).

TUMBLE and HOP windows begin at multiples of ``slide``; one closes when the watermark has reached its end. A
session closes when the watermark is beyond its end: a row just as late as its end would still be in it.
Python's integers: exact whatever the size. ``watermark``: of the time that the windows are over, less
allowed_lateness.
"""

from __future__ import annotations

from watersmeet.event_time import ENDED, NEVER, Watermark, shift


def release_limit(size: int, slide: int, watermark: Watermark) -> Watermark:
    """Compute the time below which rows are in no open window.

    >>> release_limit(10, 10, 25), release_limit(10, 4, 25), release_limit(10, 4, -3)
    (20, 16, -12)
    """
    if isinstance(watermark, float):
        return watermark
    return (watermark - size) // slide * slide + slide


def last_row_limit(gap: int, watermark: Watermark) -> Watermark:
    """Compute the time below which a row is its session's last, unless a later row exists.

    >>> last_row_limit(5, 20), last_row_limit(5, float("-inf"))
    (15, -inf)
    """
    return watermark if isinstance(watermark, float) else watermark - gap


def start_watermark(size: int, watermark: Watermark, least_open: int | None) -> Watermark:
    """Compute the watermark to emit for window_start; no later result has a lesser one.

    Args:
        size: the size of TUMBLE and HOP windows; 0 for sessions.
        least_open: for sessions, the least time of a retained row.
    """
    if watermark in (NEVER, ENDED):
        return watermark if least_open is None else min(watermark, least_open)
    start = shift(watermark, -size)
    return start if least_open is None else min(start, least_open)
