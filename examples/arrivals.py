"""Streams as they arrive: rows with their times of arrival, cut into what each tick brings.

All data are made with a seed: the same numbers give the same rows in the same ticks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_US = 1_714_521_600_000_000
"""2024-05-01, midnight UTC."""
SECOND = 1_000_000
MINUTE = 60 * SECOND
TIMESTAMP = pa.timestamp("us", tz="UTC")
FIRST_FILE_S = 1_714_521_600
"""Modification times of files rise from here on: Spark reads the oldest first."""

Numbers = np.ndarray[Any, Any]
Streams = Mapping[str, tuple[pa.Table, Numbers]]
"""By source: its rows, and when each one arrives, in µs."""
Tick = Mapping[str, pa.Table]
"""By source: the rows that one tick brings, in order of arrival."""


def times(microseconds: Numbers) -> pa.Array:
    """TIMESTAMPs of µs since 1970, NULL below 0."""
    return pa.array(microseconds, pa.int64(), mask=microseconds < 0).cast(TIMESTAMP)


def in_ticks(streams: Streams, ticks: int) -> Sequence[Tick]:
    """Cut all streams at the same moments of arrival, which lie equally far apart."""
    first = min(int(arrived.min()) for _, arrived in streams.values() if len(arrived))
    last = max(int(arrived.max()) for _, arrived in streams.values() if len(arrived))
    edges = np.linspace(first, last + 1, ticks + 1)
    cut: list[dict[str, pa.Table]] = [{} for _ in range(ticks)]
    for name, (rows, arrived) in streams.items():
        order = np.argsort(arrived, kind="stable")
        ordered, places = rows.take(pa.array(order)), np.searchsorted(arrived[order], edges)
        for number in range(ticks):
            start = int(places[number])
            cut[number][name] = ordered.slice(start, int(places[number + 1]) - start)
    return cut


def write_files(ticks: Sequence[Tick], folder: Path) -> None:
    """A Parquet file of each source per tick, ``folder/SOURCE/NUMBER.parquet``."""
    for number, tick in enumerate(ticks):
        for name, rows in tick.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            file = folder / name / f"{number:04}.parquet"
            pq.write_table(rows, file)
            os.utime(file, (FIRST_FILE_S + number, FIRST_FILE_S + number))


def on_time(ticks: Sequence[Tick], source: str, time: str, lag: timedelta) -> Iterator[dict[str, Any]]:
    """The rows of a source that are not late, by a plain loop over ticks: a row is late if its time is more
    than ``lag`` behind the newest one of the ticks *before*. Rows without a time are left out, too."""
    newest: datetime | None = None
    for tick in ticks:
        rows = [row for row in tick[source].to_pylist() if row[time] is not None]
        yield from (row for row in rows if newest is None or row[time] >= newest - lag)
        newest = max([row[time] for row in rows] + ([newest] if newest else []), default=None)
