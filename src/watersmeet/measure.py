"""How values of a band count: every value as an int64 ordinal, so that a lesser value has no greater ordinal.

Whatever is ordered by ordinals (slots of runs, binary searches, ranges of tasks) needs to know no types.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from watersmeet.names import ours


@dataclass(frozen=True)
class Measure:
    """What a value's ordinal is.

    ``whole``: an integer is itself, TIMESTAMP and DATE are µs; exact. ``decimal``: the value times
    10 ** ``places``, for numbers of which that has at most 18 digits; exact. ``real``: the value's double, by
    its bit pattern, NaN the greatest, -0.0 as 0.0; for other numbers the double may be off in its last bits.
    ``text``: its first bytes in UTF-8; texts that differ only behind them have one ordinal.
    """

    kind: Literal["whole", "decimal", "real", "text"]
    places: int = 0

    @property
    def is_injective(self) -> bool:
        """Values that differ have ordinals that differ (of decimals with at most so many places)."""
        return self.kind in ("whole", "decimal")


WHOLE = Measure("whole")
REAL = Measure("real")
TEXT = Measure("text")


@dataclass(frozen=True)
class Measured:
    """A column of one side of a join, and how its values count; the same column may count in several ways."""

    column: str
    measure: Measure = WHOLE

    @cached_property
    def name(self) -> str:
        """One text per way of counting a column; of whole values the column's own name."""
        if self.measure == WHOLE:
            return self.column
        return ours(f"{self.measure.kind}{self.measure.places or ''}:{self.column}")
