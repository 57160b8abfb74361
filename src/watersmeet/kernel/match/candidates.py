"""How many candidates look-ups by one index or another would find: estimated from a few needles and rows.

An index is worth what it rules out, and only the data say that. A look-up's own candidates could be counted
by its binary searches; those of other indexes cannot, so all are estimated alike, from the same pairs: some
needles, each with some of the rows that share its hash, evenly spread over both. No chance is in it: a task
that runs again estimates the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from watersmeet.event_time import Side
from watersmeet.kernel.match.pairs import PairCondition
from watersmeet.kernel.slots import BUCKET_MASK, TIME_MASK
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.measure import Measured

NEEDLES = 64
PAIRS = 16_384
"""At most so many pairs are looked at."""


def estimate_candidates(
    condition: PairCondition, needles: SortedRows, side: Side, rows: SortedRows, indexes: Sequence[Measured]
) -> list[float]:
    """Estimate the candidates of all ``needles`` among ``rows`` for each of ``indexes``.

    ``needles`` are rows of ``side``.
    """
    if len(needles) == 0 or len(rows) == 0:
        return [0.0] * len(indexes)
    chosen = np.unique(np.linspace(0, len(needles) - 1, NEEDLES).astype(np.int64))
    if rows.by_value:
        first, end = np.zeros(len(chosen), np.int64), np.full(len(chosen), len(rows))
    else:
        buckets = needles.slots[chosen] & BUCKET_MASK
        first = np.searchsorted(rows.slots, buckets, side="left")
        end = np.searchsorted(rows.slots, buckets | TIME_MASK, side="right")
    sizes = end - first
    looked_at = np.minimum(sizes, PAIRS // NEEDLES)
    needle = np.repeat(np.arange(len(chosen)), looked_at)
    if len(needle) == 0:
        return [0.0] * len(indexes)
    place = np.arange(len(needle)) - np.repeat(np.cumsum(looked_at) - looked_at, looked_at)
    row = first[needle] + place * sizes[needle] // looked_at[needle]
    weights = sizes[needle] / looked_at[needle] * (len(needles) / len(chosen))
    candidates = []
    for index in indexes:
        low, high = condition.around(needles, side, index, rows.spans[index.name][1], chosen)
        values = rows.ordinals(index, row)
        candidates.append(float(weights[(values >= low[needle]) & (values <= high[needle])].sum()))
    return candidates
