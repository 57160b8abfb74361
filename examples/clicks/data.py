"""Impressions of ads and clicks on them, both up to half a minute out of order.

One impression in ten is clicked, half of these within six minutes, some only after the half hour that
counts, and some a microsecond before its end or after it. One click in twenty has no impression at all: bots,
or a page whose message was lost.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from examples.arrivals import MINUTE, SECOND, START_US, Streams, times

ADS = 50
LAG = 30 * SECOND


def streams(rows: int, seed: int) -> Streams:
    """About ``rows`` of both, spread over three hours."""
    random = np.random.default_rng(seed)
    shown, stray = rows * 9 // 10, rows // 200
    span = 3 * 60 * MINUTE
    users = max(20, rows // 40)
    ad, user = random.integers(0, ADS, shown), random.integers(0, users, shown)
    at = START_US + random.integers(0, span, shown)
    clicked = random.random(shown) < 0.1
    wait = (random.exponential(8 * MINUTE, clicked.sum())).astype(np.int64) + SECOND
    border = 30 * MINUTE + random.integers(-1, 2, len(wait))
    wait = np.where(random.random(len(wait)) < 0.05, border, wait)
    click_ad = np.concatenate([ad[clicked], random.integers(0, ADS, stray)])
    click_user = np.concatenate([user[clicked], random.integers(0, users, stray)])
    click_at = np.concatenate([at[clicked] + wait, START_US + random.integers(0, span, stray)])
    impressions = pa.table(
        {"ad": ad, "user": user, "at": times(at), "cost": random.integers(1, 400, shown)},
    )
    clicks = pa.table(
        {"click": np.arange(len(click_ad)), "ad": click_ad, "user": click_user, "at": times(click_at)}
    )
    return {
        "impressions": (impressions, at + random.integers(0, LAG, shown)),
        "clicks": (clicks, click_at + random.integers(0, LAG, len(click_at))),
    }
