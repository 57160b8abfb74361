"""Alignment: which sources wait, because others that they are joined with are too far behind (`max_drift`).

The source that is furthest behind never waits, so somebody always goes on, unless that one is silent. Whoever
is idle is waited for by nobody, as in `watermark.tracker`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from watersmeet.event_time import ENDED, NEVER, Watermark


@dataclass(frozen=True)
class Standing:
    """Of a source as of a tick. ``watermark``: the least of its event times'; ``idle``: all its partitions
    are."""

    watermark: Watermark
    idle: bool = False


@dataclass(frozen=True)
class Ahead:
    """How far a source is ahead of ``behind``; ``by`` None: nothing has come of that one yet."""

    behind: str
    by: int | None


def ahead(
    groups: Iterable[Collection[str]],
    standings: Mapping[str, Standing],
    max_drift: int,
    used_up: Collection[str] = (),
) -> dict[str, Ahead]:
    """The sources that are not to be read until others have caught up, and with whom they are compared.

    Args:
        groups: names of sources whose rows meet. One that is in none of ``standings`` has no watermark.
        used_up: those that have no more rows, and will have none: nobody waits for them, nor they for others.
    """
    held: dict[str, Ahead] = {}
    for group in groups:
        marks = {
            name: standings[name].watermark
            for name in group
            if name in standings and not standings[name].idle and name not in used_up
        }
        if not marks:
            continue
        behind = min(sorted(marks), key=lambda name: marks[name])
        least = marks[behind]
        for name, mark in marks.items():
            if NEVER < mark < ENDED and mark - least > max_drift:
                by = None if least == NEVER else int(mark - least)
                if name not in held or _further(by, held[name].by):
                    held[name] = Ahead(behind, by)
    return held


def _further(by: int | None, than: int | None) -> bool:
    return than is not None and (by is None or by > than)
