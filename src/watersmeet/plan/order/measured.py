"""What a run of a query has measured, as far as EXPLAIN forecasts from it. The plan does not depend on it: a
plan that changed with the data could not read its own state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class MeasuredSide:
    """One side of a node, as of a tick.

    ``retained``: rows, or partial aggregates of them; ``most``: the most after any tick; ``file_bytes``: what
    its files take, which may hold released rows, too; ``row_bytes``: of a row in them, None: there are none.
    ``paces``: per event-time column how many rows were kept, and how much event time (µs, or units of integer
    times) they cover: more than none. ``reaches``: per event-time column how far back from its watermark rows
    are kept; None: what releases them has no watermark yet.
    """

    retained: int
    most: int
    file_bytes: int
    row_bytes: float | None
    paces: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    reaches: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """An order of inner joins that the measured rates would have chosen, were they declared.

    ``aliases``: as they would be joined; ``rates``: rows per second to declare, per source; ``keeps`` and
    ``instead_of``: bytes, of it and of the plan's own order.
    """

    aliases: tuple[str, ...]
    rates: Mapping[str, float]
    keeps: float
    instead_of: float


@dataclass(frozen=True)
class MeasuredQuery:
    """Of one query. ``tick``: the last committed one; ``sides``: by their names in the plan; ``problem``: why
    nothing of it can be said; ``better``: other orders of joins."""

    tick: int = 0
    sides: Mapping[str, MeasuredSide] = field(default_factory=dict)
    problem: str | None = None
    better: tuple[Order, ...] = ()
