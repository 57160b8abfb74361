"""Which stored rows are equal to given ones, in every stored column, NULLs equal.

They are looked up as by a join. Where many rows share hash and value (one key for all of them), each given
row would be compared with each of these; there the rows are told apart by the hash of all that they hold.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.conditions import ExactBand, Key, RealBand
from watersmeet.engine.messages.shapes import SideShape
from watersmeet.event_time import Side
from watersmeet.kernel.hashing import hash_columns
from watersmeet.kernel.match.pairs import Condition, Search, accepted
from watersmeet.kernel.match.probe import Rows, expand
from watersmeet.kernel.pieces import column_taken
from watersmeet.kernel.slots import Slots, order_of
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.measure import REAL

MANY = 16
"""So many candidates for each row that there is of them cost more than its hash."""
FEW = 100_000
"""So few candidates cost nothing."""


def equal_rows(side: SideShape, needles: SortedRows, rows: SortedRows) -> Iterator[tuple[Rows, Rows]]:
    """Needles (rows of the side, too) and rows that are equal; see `kernel.match.pairs.find`. Cost: that of
    `find`, or of all rows that are candidates once."""
    equal = _equality(side)
    search = Search.of(equal, needles, Side.LEFT, rows)
    if search is None:
        return
    if search.candidates <= FEW + MANY * (len(needles) + len(rows)):
        yield from search.pairs()
        return
    named = np.zeros(len(rows) + 1, dtype=np.int64)
    np.add.at(named, search.first, 1)
    np.add.at(named, search.end, -1)
    candidates = np.flatnonzero(np.cumsum(named[:-1]) > 0)
    names = hashed(side)
    hashes = content(rows, candidates, names)
    order = order_of(hashes)
    hashes, candidates = hashes[order], candidates[order]
    wanted = content(needles, np.arange(len(needles)), names)
    first = np.searchsorted(hashes, wanted, side="left")
    for needle, place in expand(first, np.searchsorted(hashes, wanted, side="right")):
        row = candidates[place]
        if rows.index is not None:
            same = needles.ordinals(rows.index, needle) == rows.ordinals(rows.index, row)
            needle, row = needle[same], row[same]
        keep = accepted(equal, needles, Side.LEFT, needle, rows, row)
        if keep is not None:
            needle, row = needle[keep], row[keep]
        if len(needle):
            yield needle, row


def hashed(side: SideShape) -> tuple[str, ...]:
    """The columns by whose hash rows are told apart."""
    return tuple(field.name for field in side.stored_schema if not pa.types.is_nested(field.type))


def content(rows: SortedRows, chosen: Rows, names: tuple[str, ...]) -> Slots:
    """Hashes of what the chosen rows hold in the columns ``names``: equal ones for equal rows. int64."""
    return hash_columns([column_taken(rows.batch, name, chosen) for name in names], len(chosen))


def _equality(side: SideShape) -> Condition:
    """Rows equal in every stored column, NULLs equal."""
    exact = [index for index in side.layout.indexes if index.measure != REAL]
    decided = {index.column for index in exact if index.measure.tells_apart}
    return Condition(
        keys=tuple(
            Key(name, name, null_safe=True) for name in side.stored_schema.names if name not in decided
        ),
        bands=tuple(ExactBand(index, index, 0, 0) for index in exact),
        comparisons=(),
        rechecks=(),
        slack=0,
        residual=None,
        residual_columns=(),
        reals=tuple(
            RealBand(index, index, 0.0, 0.0, 0.0, 0.0, 2.0**1022, (), None)
            for index in side.layout.indexes
            if index.measure == REAL
        ),
    )
