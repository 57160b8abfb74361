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
    """Encoding of values as ordinals.

    ``whole``: an integer is its own ordinal, TIMESTAMP and DATE are µs; exact. ``decimal``: the value
    times 10 ** ``places``, for numbers for which the product has at most 18 digits; exact. ``real``:
    the bit pattern of the value's double, with NaN as the greatest and -0.0 as 0.0; for other numbers
    the last bits of the double may be off. ``text``: the first bytes in UTF-8; texts that differ only
    after them have the same ordinal.
    """

    kind: Literal["whole", "decimal", "real", "text"]
    places: int = 0

    @property
    def is_injective(self) -> bool:
        """Injectivity: different values have different ordinals.

        For decimals this applies to values with at most ``places`` decimal places.
        """
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
