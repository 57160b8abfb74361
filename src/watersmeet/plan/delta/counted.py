"""What a run has counted of the arrangements of delta joins: by it paths look an input up early that has few
rows of a key.

The plan's own order comes from what is shared and unique. Counts only decide among inputs of which these say
nothing, and never which keys rows are kept by: stored rows fit whatever the counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from watersmeet.plan.model.delta import CountedKey


@dataclass(frozen=True)
class Counts:
    """``keys``: of all arrangements of a query."""

    keys: tuple[CountedKey, ...] = ()

    def rank(self, alias: str, columns: Collection[str]) -> tuple[float, int]:
        """The less, the earlier an input is looked up by these columns: (rows of a key, rows). Fractions of
        a row that tenths do not tell are none."""
        own = [key for key in self.keys if key.alias == alias]
        per_key = [round(key.rows_per_key, 1) for key in own if key.keys and set(key.keys) <= set(columns)]
        rows = max((key.rows for key in own), default=0)
        return min(per_key, default=float(rows)), rows

    def of(self, alias: str, keys: Collection[str]) -> CountedKey | None:
        """What was counted of one key."""
        asked = tuple(keys)
        return next((key for key in self.keys if key.alias == alias and key.keys == asked), None)


NO_COUNTS = Counts()
