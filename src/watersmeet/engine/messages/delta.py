"""The shapes of the nodes of a delta join; see `plan.model.delta`."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.engine.messages.shapes import LookupShape, NodeShape, PassShape


@dataclass(frozen=True, kw_only=True)
class ArrangeShape(NodeShape):
    """Rows of several inputs, and copies of some of them. ``changes``: how those of each input leave.
    ``final``: what a row came to stays when it is released, so a delete of it has nothing to take back."""

    changes: tuple[PassShape, ...]
    final: bool

    @property
    def event_times(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, kw_only=True)
class DeltaShape(NodeShape):
    """One look-up of each path: ``lookups``, of the side with the same number; ``by``: the number of the
    further key by which it finds rows (`RunLayout.found_by`; None: that by which they are sorted).
    ``times``: of the columns that leave with joined rows, the watermark keys. ``is_last``: all paths' rows
    leave, with the same columns."""

    lookups: tuple[LookupShape, ...]
    by: tuple[int | None, ...]
    times: tuple[str, ...]
    is_last: bool

    @property
    def event_times(self) -> tuple[str, ...]:
        return self.times
