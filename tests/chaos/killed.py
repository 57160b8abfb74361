"""One run of a job without Spark, in a process that is killed (SIGKILL) at a point of a tick; forked from one
that has imported everything.

The runs are those of simulations (`tests.simulation.run`) over a real store and a real sink. Points:

    begun        what the tick is made of is remembered, nothing is read
    read         its rows are read, nothing is made of them
    node         a node is done
    half-staged  one task has staged its rows, others have not
    staged       all have
    checked      the sink has looked whether it may publish
    published    the sink shows the rows, no manifest has the tick
    committed    the manifest has it, nothing that is garbage by that is gone
    ticked       all is done
"""

from __future__ import annotations

import json
import os
import random
import signal
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.simulation import run as runs
from tests.simulation.jobs import INSERTS, QUERIES, Log, expected
from tests.sinks.lake.lake_tables import Delta, Iceberg
from tests.support import sinking
from tests.support.s3 import store_at
from watersmeet.engine.driver import driver as drivers
from watersmeet.engine.driver.driver import TickDriver
from watersmeet.engine.spark.checkpoint.stored_job import StoredJob
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.state.store import LocalStore

POINTS = ("begun", "read", "node", "half-staged", "staged", "checked", "published", "committed", "ticked")
SINKS = ("file", "delta", "iceberg", "postgres")
"""Another sink that is exactly once has its place here, and in `_spec` and `_rows`."""
STORES = ("directory", "objects")
"""The same of stores: here, and in `_store`."""


@dataclass(frozen=True)
class Job:
    """A job in a folder of its own. ``place``: endpoint and bucket of the store, URL of the server."""

    folder: str
    query: str
    sink: str
    store: str
    seed: int
    endpoint: str = ""
    bucket: str = ""
    url: str = ""

    @property
    def name(self) -> str:
        return Path(self.folder).name.replace("-", "_")

    def logs(self) -> dict[str, Log]:
        """What it reads, nothing of it late however it is cut."""
        draw = random.Random(self.seed)
        return {side: Log(draw, side, QUERIES[self.query].changes, late=False) for side in "lr"}


class _Inline:
    """In the place of threads."""

    def submit(self, work: Any, *arguments: Any) -> Any:
        value = work(*arguments)
        return SimpleNamespace(result=lambda: value)


class _Points:
    """What `tests.simulation.run.Run` asks of a world; kills this process at a point."""

    def __init__(self, seed: int, at: str | None, tick: int) -> None:
        self.random, self.counts, self.now_us = random.Random(seed), Counter[str](), 1_000_000
        self._at, self._left = at, tick

    def point(self, what: str) -> None:
        if what == self._at:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def after(self, owner: Any, name: str, what: str) -> None:
        done = getattr(owner, name)

        def stepped(*arguments: Any, **named: Any) -> Any:
            answer = done(*arguments, **named)
            self.point(what)
            return answer

        setattr(owner, name, stepped)


def run(job: Job, at: str | None = None, tick: int = 1) -> None:
    """To the end of the input, or until it is killed at the ``tick``-th such point. Raises: AssertionError
    when what is there at the end is wrong."""
    random.seed()
    points, sink = _Points(random.randrange(1 << 30), at, tick), make_sink(_spec(job))
    runs.Threads = _Inline  # type: ignore[misc, assignment]
    points.after(StoredJob, "begin", "begun")
    points.after(TickDriver, "advance", "read")
    points.after(TickDriver, "settle", "node")
    points.after(sinking, "_write", "half-staged")
    points.after(type(sink), "take_parts", "staged")
    points.after(type(sink), "check", "checked")
    points.after(type(sink), "publish", "published")
    points.after(drivers, "commit", "committed")
    one = runs.Run(
        points,
        (job.query,),
        _store(job),
        {INSERTS[0]: sink},
        job.logs(),
        runs.Trouble(),
        random.Random(),  # type: ignore[arg-type]
    )
    assert one.execute()
    logs = job.logs()
    cuts = {side: [(0, len(log.rows))] for side, log in logs.items()}
    got, wanted = _result(job), expected(job.query, logs, cuts)
    assert got == wanted, f"lost {dict(wanted - got)}, too many {dict(got - wanted)}"


def forked(job: Job, at: str | None = None, tick: int = 1) -> str | None:
    """The same in a process of its own: ``killed``, None when it came to its end, or what went wrong."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            run(job, at, tick)
            os.write(writing, b"null")
        except BaseException:
            os.write(writing, json.dumps(traceback.format_exc()[-4_000:]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) == signal.SIGKILL else f"signal {os.WTERMSIG(status)}"
    return json.loads(said)


def _store(job: Job) -> Any:
    if job.store == "objects":
        return store_at(job.endpoint, job.bucket, job.name, timeout_s=20.0, patience_s=60.0)
    return LocalStore(f"{job.folder}/state")


def _spec(job: Job) -> SinkSpec:
    if job.sink == "file":
        return SinkSpec("out", "file", {"path": f"{job.folder}/out"})
    if job.sink == "postgres":
        return SinkSpec("out", "postgres", {"url": job.url, "table": job.name})
    return SinkSpec("out", job.sink, _table(job).options)


def _table(job: Job) -> Delta | Iceberg:
    return (Delta if job.sink == "delta" else Iceberg)(Path(job.folder) / "table")


def _result(job: Job) -> Counter[tuple[Any, ...]]:
    if not QUERIES[job.query].changes:
        return Counter(_rows(job))
    total = Counter[tuple[Any, ...]]()
    for *row, diff, _ in _rows(job):
        total[tuple(row)] += diff
    return Counter({row: count for row, count in total.items() if count})


def _rows(job: Job) -> list[tuple[Any, ...]]:
    if job.sink == "file":
        import duckdb

        files = [*Path(job.folder).glob("out/*/*.parquet")]
        return duckdb.sql(f"FROM read_parquet('{job.folder}/out/*/*.parquet')").fetchall() if files else []
    if job.sink == "postgres":
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(job.url) as connected, connected.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {job.name}")
            return cursor.fetchall()
    columns = _table(job).arrow().columns
    return [*zip(*(column.to_pylist() for column in columns), strict=True)]
