"""Rows of a source, read once more, each with the place in the source where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.spec.model import Source

Numbers = npt.NDArray[np.int64]

UNREAD = -1
"""The position of rows that no tick has read."""


@dataclass(frozen=True)
class Portion:
    """Rows that came together, such as those of a file, in order. ``rows``: declared columns, `PARTITION`,
    `DIFF`; ``part``, ``position``: where in the source they stand, as `TickResult.read` counts: a tick has
    read them if it was by then beyond the position. ``place``: the same for people. ``left_out``: records
    that were not read here, because they are broken or because only Spark knows what they are. ``offsets``:
    of rows that have them, where in the part each stands."""

    rows: pa.Table
    part: str
    position: int
    place: str
    left_out: tuple[str, ...] = ()
    offsets: Numbers | None = None

    def place_of(self, row: int) -> str:
        """That of one of the rows, for people."""
        if self.offsets is None:
            return self.place
        return f"{self.place} at offset {int(self.offsets[row]):,}"


@dataclass(frozen=True)
class Missing:
    """Rows that could not be read again, in ``words``. ``part``, ``position``: where they stood, as of a
    `Portion`; ``position`` None: it may be anywhere; ``until``: where they stood from the position on to
    before another one. ``why``: they are ``gone``; they were ``compacted``, by the keys of the table; the job
    has not read them, for it began behind them (``before``); or they are there, and in no order
    (``unordered``)."""

    words: str
    part: str = ""
    position: int | None = None
    until: int | None = None
    why: Literal["gone", "compacted", "before", "unordered"] = "gone"


@dataclass(frozen=True)
class Reread:
    """What of a source could be read again, and what could not be."""

    source: Source
    portions: Sequence[Portion]
    missing: tuple[Missing, ...] = ()
