"""Orders of three weeks, their payments and shipments.

Of 100 orders 5 are never paid, 3 are paid after more than the day that counts, and 6 of those that are paid
are never sent. Messages come up to ten minutes out of order, but for two payments in 100, whose messages
come a day late.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from examples.arrivals import MINUTE, START_US, Streams, times

HOUR = 60 * MINUTE
LAG = 10 * MINUTE


def streams(rows: int, seed: int) -> Streams:
    """About ``rows`` in all."""
    random = np.random.default_rng(seed)
    orders = rows * 10 // 28
    number = np.arange(orders)
    ordered = START_US + np.sort(random.integers(0, 21 * 24 * HOUR, orders))
    pays = random.random(orders) >= 0.05
    wait = (random.exponential(2 * HOUR, orders)).astype(np.int64) % (22 * HOUR)
    wait += np.where(random.random(orders) < 0.03, 24 * HOUR + MINUTE, 0)  # too long
    paid = (ordered + wait)[pays]
    sends = pays & (random.random(orders) >= 0.06)
    sent = (ordered + wait + random.integers(HOUR, 40 * HOUR, orders))[sends]

    def arrives(at: np.ndarray) -> np.ndarray:
        return at + random.integers(0, LAG, len(at))

    stuck = np.where(random.random(len(paid)) < 0.02, 24 * HOUR, 0)
    return {
        "orders": (
            pa.table(
                {"order_id": number, "ordered_at": times(ordered), "amount": random.integers(5, 500, orders)}
            ),
            arrives(ordered),
        ),
        "payments": (
            pa.table(
                {
                    "order_id": number[pays],
                    "paid_at": times(paid),
                    "method": random.choice(["card", "bank"], len(paid)),
                }
            ),
            arrives(paid) + stuck,
        ),
        "shipments": (
            pa.table(
                {"order_id": number[sends], "sent_at": times(sent), "parcel": 9_000_000 + number[sends]}
            ),
            arrives(sent),
        ),
    }
