"""Finding rows by another key than the one by whose hashes they are sorted: the upper bits of that key's
hashes in ascending order, and beside each the place of its row.

As many bits do as tell the rows of a run apart: of up to 65,536 rows 16, else 32, and the same for places. So
an entry takes 4 bytes, or 8, and about one row or less shares its bits with another key's needle; the keys
themselves are compared by whoever looks up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.slots import Slots, order_of

Prefixes: TypeAlias = "npt.NDArray[Any]"
"""uint16 or uint32."""

FEW_ROWS = 1 << 16
"""So many rows are told apart, and numbered, by 16 bits."""


@dataclass(frozen=True)
class SortedPrefixes:
    """``prefixes``: the upper bits of hashes, ascending; ``places``: of each one's row; ``keys``: how many
    different hashes there are (by 32 bits)."""

    prefixes: Prefixes
    places: Prefixes
    keys: int


def sorted_prefixes(hashes: Slots) -> SortedPrefixes:
    """Of the hashes of at most 2**32 rows, in the rows' order. Cost: one sort."""
    kind = np.dtype(np.uint16 if len(hashes) <= FEW_ROWS else np.uint32)
    order = order_of(_upper(hashes, 32))
    in_order = _upper(hashes, 32)[order]
    keys = int(np.count_nonzero(in_order[1:] != in_order[:-1])) + min(1, len(order))
    prefixes = in_order >> np.int64(32 - 8 * kind.itemsize)
    return SortedPrefixes(prefixes.astype(kind), order.astype(kind), keys)


def with_prefix(hashes: Slots, prefixes: Prefixes) -> tuple[Rows, Rows]:
    """Per hash the half-open range of positions in ``prefixes`` that share its upper bits: int64[n] each."""
    sought = _upper(hashes, 8 * prefixes.itemsize).astype(prefixes.dtype)
    return np.searchsorted(prefixes, sought, side="left"), np.searchsorted(prefixes, sought, side="right")


def _upper(hashes: Slots, bits: int) -> Slots:
    """The upper bits, without a sign."""
    return (hashes.view(np.uint64) >> np.uint64(64 - bits)).view(np.int64)
