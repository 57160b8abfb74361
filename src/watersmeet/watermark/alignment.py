"""Alignment: which sources wait, because others that they are joined with are too far behind (`max_drift`).

The source that is furthest behind never waits, so somebody always goes on, unless that one is silent. Whoever
is idle is waited for by nobody, as in `watermark.tracker`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from watersmeet.event_time import ENDED, NEVER, Watermark


@dataclass(frozen=True)
class SourcePosition:
    """The position of a source as of a tick.

    ``watermark``: the least over its event times. ``idle``: True if all of its partitions are idle.
    """

    watermark: Watermark
    idle: bool = False


@dataclass(frozen=True)
class SourceDrift:
    """The distance of a source ahead of source ``behind``.

    ``by`` None: no rows of that source have arrived yet.
    """

    behind: str
    by: int | None


def find_sources_ahead(
    groups: Iterable[Collection[str]],
    standings: Mapping[str, SourcePosition],
    max_drift: int,
    used_up: Collection[str] = (),
) -> dict[str, SourceDrift]:
    """Find the sources to pause until others catch up, with the source each is compared with.

    Args:
        groups: names of sources whose rows meet. A source without an entry in ``standings`` has no
            watermark.
        used_up: sources that have no more rows, now or later: no source waits for them, nor do they
            wait for others.
    """
    held: dict[str, SourceDrift] = {}
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
                if name not in held or _is_further(by, held[name].by):
                    held[name] = SourceDrift(behind, by)
    return held


def _is_further(by: int | None, than: int | None) -> bool:
    return than is not None and (by is None or by > than)
