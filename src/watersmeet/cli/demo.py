"""`demo`: two live streams joined on Spark, on real data, and the proof that nothing was lost or doubled.

The prepared files are read one per stream and tick, in order of arrival, and the input is ended at the end.
Then the result is compared, row for row, with a batch join that DuckDB makes of the same files.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from watersmeet.cli.demo_data import Layout, prepare
from watersmeet.cli.run import Appearance, run_text
from watersmeet.engine.spark.job.settings import RunSettings
from watersmeet.engine.spark.start_failures import check_pyspark
from watersmeet.errors import counted

PLACE = ".demo/"
"""Where the jobs' texts look for data; the chosen directory takes its place."""


@dataclass(frozen=True)
class Demo:
    """``job``: the job's file and the folder of its state and result. ``batch``: the same join in DuckDB's
    words,
    over ``{streams}``, with the result's columns in order."""

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
class Comparison:
    """Rows of the result and of the batch join, and how many rows of each the other does not have."""

    rows: int
    expected: int
    missing: int
    surplus: int

    @property
    def equal(self) -> bool:
        return not self.missing and not self.surplus


def run_demo(name: str, directory: Path, live: bool | None, layout: Layout | None = None) -> int:
    """The exit status: 0 if the result equals the batch join and the account adds up."""
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
        print(f"NOT EQUAL: {counted(compared.missing, 'row')} missing, {compared.surplus:,} too many")
    if not ended.account.adds_up():
        print("the account does NOT add up")
    print(f"result: {work / 'result'} (read_parquet('{work / 'result'}/*.parquet'))")
    print(f"took {time.monotonic() - started:.0f} s")
    return 0 if compared.equal and ended.account.adds_up() else 1


def job_text(demo: Demo, directory: Path) -> str:
    """The job's statements, over ``directory``."""
    text = files("watersmeet.cli").joinpath("jobs", f"{demo.job}.sql").read_text(encoding="utf-8")
    place = str(directory).replace("'", "''").replace("${", "$${")
    return text.replace(f"'{PLACE}", f"'{place}/")


def compare(demo: Demo, streams: Path, result: Path) -> Comparison:
    """The result's Parquet files against the batch join of the streams' files, as bags of rows."""
    import duckdb

    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'; SET threads = 2; SET enable_progress_bar = false")
        db.execute(f"CREATE TABLE expected AS {demo.batch.format(streams=_quoted(streams))}")
        if any(result.glob("*.parquet")):
            parts = f"read_parquet('{_quoted(result)}/*.parquet')"
            columns = ", ".join(f'"{row[0]}"::{row[1]} AS "{row[0]}"' for row in _columns(db, "expected"))
            db.execute(f"CREATE TABLE result AS SELECT {columns} FROM {parts}")
        else:
            db.execute("CREATE TABLE result AS SELECT * FROM expected LIMIT 0")
        return Comparison(
            _count(db, "SELECT * FROM result"),
            _count(db, "SELECT * FROM expected"),
            _count(db, "SELECT * FROM expected EXCEPT ALL SELECT * FROM result"),
            _count(db, "SELECT * FROM result EXCEPT ALL SELECT * FROM expected"),
        )


def _columns(db: Any, table: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in db.execute(f"DESCRIBE {table}").fetchall()]


def _count(db: Any, query: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM ({query})").fetchall()[0][0])


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
