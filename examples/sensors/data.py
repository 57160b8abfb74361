"""Readings of machines, one in about ten seconds each, and their failures; both up to five seconds out of
order.

A machine gets hot before it fails. One failure in five takes the sensor with it a quarter of an hour
before, and so has no reading in its last five minutes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from examples.arrivals import MINUTE, SECOND, START_US, Streams, times

LAG = 5 * SECOND


def streams(rows: int, seed: int) -> Streams:
    """About ``rows`` readings, of 20 machines."""
    random = np.random.default_rng(seed)
    machine = np.arange(rows) % 20
    at = START_US + np.arange(rows) // 20 * 10 * SECOND + random.integers(0, 10 * SECOND, rows)
    span = int(at.max()) - START_US
    failures = max(2, rows // 300)
    failed, failed_at = random.integers(0, 20, failures), START_US + random.integers(0, span, failures)
    silent = random.random(failures) < 0.2
    celsius = 60 + random.normal(0, 2, rows)
    kept = np.ones(rows, bool)
    for which, end, lost in zip(failed, failed_at, silent, strict=True):
        near = (machine == which) & (at <= end) & (at > end - 15 * MINUTE)
        celsius[near] += 30 * (1 - (end - at[near]) / (15 * MINUTE))
        if lost:
            kept &= ~near
    readings = pa.table({"machine": machine[kept], "at": times(at[kept]), "celsius": celsius[kept].round(2)})
    failed_rows = pa.table({"failure": np.arange(failures), "machine": failed, "at": times(failed_at)})
    return {
        "readings": (readings, at[kept] + random.integers(0, LAG, int(kept.sum()))),
        "failures": (failed_rows, failed_at + random.integers(0, LAG, failures)),
    }
