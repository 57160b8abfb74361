"""Page views and purchases of a web shop over six hours, both up to a minute out of order.

Visitors come back: pauses between visits are longer than the half hour that ends a session, those within
are some minutes, and a few lie close to half an hour. One visit in eight ends with a purchase.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from examples.arrivals import MINUTE, SECOND, START_US, Streams, times

GAP = 30 * MINUTE
LAG = MINUTE


def streams(rows: int, seed: int) -> Streams:
    """About ``rows``."""
    random = np.random.default_rng(seed)
    visits = max(1, rows // 7)
    visitors = max(1, visits // 3)
    visitor = random.integers(0, visitors, visits)
    start = START_US + random.integers(0, 6 * 60 * MINUTE, visits) // SECOND * SECOND
    views = random.geometric(1 / 7, visits)
    visit = np.repeat(np.arange(visits), views)
    pause = np.where(
        random.random(len(visit)) < 0.02,
        random.integers(GAP - SECOND, GAP + 2 * SECOND, len(visit)),  # about the gap, the gap itself at times
        random.exponential(2 * MINUTE, len(visit)).astype(np.int64),
    )
    pause = pause // SECOND * SECOND
    passed = np.cumsum(pause)
    before = np.concatenate([[0], np.cumsum(views)[:-1]])
    at = start[visit] + passed - passed[before][visit]
    last = before + views - 1
    buys = random.random(visits) < 1 / 8
    bought = (at[last] + 10 * SECOND)[buys]
    pages = np.array(["home", "search", "item", "basket"])[random.integers(0, 4, len(visit))]
    return {
        "views": (
            pa.table({"visitor": visitor[visit], "at": times(at), "page": pages}),
            at + random.integers(0, LAG, len(at)),
        ),
        "purchases": (
            pa.table(
                {
                    "visitor": visitor[buys],
                    "at": times(bought),
                    "amount": random.integers(5, 300, len(bought)),
                }
            ),
            bought + random.integers(0, LAG, len(bought)),
        ),
    }
