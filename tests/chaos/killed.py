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

A job with a function may also be killed when it is ``cut``: how is recorded, and no part is out.
"""

from __future__ import annotations

import json
import os
import random
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from obstore.store import S3Store

from tests.chaos.special import check_shed, with_those_aside
from tests.simulation import run as runs
from tests.simulation.jobs import INSERTS, SHEDDING, Log, compute_expected_rows, query_of
from tests.sinks.lake.lake_tables import Delta, Iceberg
from tests.support import sinking
from tests.support.kafka import consume_all
from tests.support.parquet_rows import table_in
from tests.support.s3 import store_at
from tests.support.tables import tables_at
from watersmeet.runtime.coordinator.tick_phases import RunningTick, StartedTick
from watersmeet.runtime.spark.checkpoint.job_record import StoredJob
from watersmeet.sinks.base import CallsInTasks, StagesInState
from watersmeet.sinks.function import FunctionSink
from watersmeet.sinks.registry import make_sink
from watersmeet.sinks.staging import write_numbered_parts
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.state.commits import Commits
from watersmeet.state.manifest import has_reached_tick, load_newest
from watersmeet.state.store import LocalStore

LONGEST_S = 300
"""So long a process may take; what hangs is said to have ended by a signal."""

IMPORTED = (
    "deltalake", "deltalake.transaction", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "duckdb",
    "obstore", "adbc_driver_postgresql.dbapi", "watersmeet.sinks.file_sink", "watersmeet.sinks.lake.delta",
    "watersmeet.sinks.lake.iceberg", "watersmeet.sinks.postgres.sink", "watersmeet.sinks.kafka.sink",
    "watersmeet.sinks.object_store", "watersmeet.sinks.function", "watersmeet.objects.postgres_store",
)  # fmt: skip
"""Modules that a job needs: imported before jobs are forked."""

_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.chaos.killed", *IMPORTED])

POINTS = ("begun", "read", "node", "half-staged", "staged", "checked", "published", "committed", "ticked")
SINKS = ("file", "stored", "delta", "iceberg", "postgres", "kafka", "function")
"""``stored``: files in the object store. Another sink that is exactly once has its place here, and in `_spec`
and `_rows`."""
STORES = ("directory", "objects", "tables")
"""``tables``: of PostgreSQL. The same of stores: here, and in `store_of`."""


@dataclass(frozen=True)
class Job:
    """A job in a folder of its own. ``endpoint``, ``bucket``: of the object store; ``url``: of PostgreSQL;
    ``servers``: of Kafka. ``set_aside``: parts of later ticks are moved out of sight. ``aside``: a
    table that
    refuses some of the rows, which are put aside. ``then``: the query by which another one goes on.
    ``target``: how names of what it writes to end."""

    folder: str
    query: str
    sink: str
    store: str
    seed: int
    endpoint: str = ""
    bucket: str = ""
    url: str = ""
    servers: str = ""
    set_aside: bool = False
    aside: bool = False
    then: str = ""
    target: str = ""

    @property
    def name(self) -> str:
        return Path(self.folder).name.replace("-", "_")

    def logs(self) -> dict[str, Log]:
        """What it reads, nothing of it late however it is cut."""
        draw = random.Random(self.seed)
        return {side: Log(draw, side, query_of(self.query).changes, late=False) for side in "lr"}


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

        def call_and_reach_point(*arguments: Any, **named: Any) -> Any:
            answer = done(*arguments, **named)
            self.point(what)
            return answer

        setattr(owner, name, call_and_reach_point)


def run(job: Job, at: str | None = None, tick: int = 1) -> None:
    """To the end of the input, or until it is killed at the ``tick``-th such point. Raises: AssertionError
    when what is there at the end is wrong."""
    random.seed()
    os.chdir(job.folder)
    store = store_of(job)
    points, sink = _Points(random.randrange(1 << 30), at, tick), make_sink(_spec(job))
    shed_job = replace(job, target="_shed")
    shed = make_sink(_spec(shed_job)) if job.query in SHEDDING else None
    if job.aside:
        _make_picky(job)
    runs.Threads = _Inline  # type: ignore[misc, assignment]
    points.after(StoredJob, "begin", "begun")
    points.after(StartedTick, "advance", "read")
    points.after(RunningTick, "settle", "node")
    points.after(sinking, "write_part", "half-staged")
    points.after(type(sink), "take_parts", "staged")
    points.after(type(sink), "check", "checked")
    points.after(type(sink), "publish", "published")
    points.after(Commits, "commit", "committed")
    points.after(FunctionSink, "record_parts", "cut")
    for one in (sink, shed):
        if isinstance(one, StagesInState):
            one.stage_in(store)
        if isinstance(one, CallsInTasks):
            one.call_in(write_numbered_parts, partial(has_reached_tick, store))
    if job.sink == "kafka":
        _make_topic(job)
        _make_topic(shed_job)
    one = runs.Run(
        points,
        (job.then or job.query,),
        store,
        {INSERTS[0]: sink},
        job.logs(),
        runs.Trouble(),
        random.Random(),  # type: ignore[arg-type]
        set_aside=job.set_aside,
        shed=shed,
        change_queries=bool(job.then),
    )
    assert one.execute()
    logs = job.logs()
    cuts = {side: [(0, len(log.rows))] for side, log in logs.items()}
    got = _result(job)
    if shed is not None:
        manifest = load_newest(store)
        assert manifest is not None
        check_shed(job.query, got, _rows(shed_job), logs, manifest.queries[INSERTS[0]].account)
        return
    wanted = compute_expected_rows(job.query, logs, cuts)
    if job.aside:
        got = with_those_aside(job.url, job.name, got)
    if job.then:  # rows of ticks before are those of the query before
        wide, wanted = wanted, compute_expected_rows(job.then, logs, cuts)
        assert got <= wide, f"too many {dict(got - wide)}"
        got &= wanted
    assert got == wanted, f"lost {dict(wanted - got)}, too many {dict(got - wanted)}"


def run_in_fork(
    job: Job,
    at: str | None = None,
    tick: int = 1,
    planted: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> str | None:
    """Run a job in a process of its own, with a planted bug; return the same as `in_a_process`."""
    return in_a_process(partial(_run_planted, planted, job, at, tick))


def _run_planted(
    planted: Callable[[], AbstractContextManager[None]], job: Job, at: str | None, tick: int
) -> None:
    with planted():
        run(job, at, tick)


def in_a_process(work: Callable[[], None]) -> str | None:
    """Do ``work``, which is pickled, in a process of its own.

    The process is forked from one that has imported everything and used nothing: clients of this process,
    such as those of earlier tests, have threads that would be missing after a fork.

    Returns:
        None when the work came to its end, ``killed`` after SIGKILL, else what went wrong.
    """
    reading, writing = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_report, args=(writing, dict(os.environ), work))
    process.start()
    writing.close()
    outcome: str | None = "it ended and reported nothing"
    with reading, suppress(EOFError):
        outcome = reading.recv()
    process.join()
    if process.exitcode == -signal.SIGKILL:
        return "killed"
    return f"it ended with status {process.exitcode}" if process.exitcode else outcome


def _report(writing: Connection, environment: Mapping[str, str], work: Callable[[], None]) -> None:
    """Do the work, and send None, or what went wrong."""
    os.environ.update(environment)
    signal.alarm(LONGEST_S)
    try:
        work()
        writing.send(None)
    except BaseException:
        writing.send(traceback.format_exc()[-4_000:])
    os._exit(0)


def store_of(job: Job) -> Any:
    """Where its state is."""
    if job.store == "objects":
        return store_at(job.endpoint, job.bucket, job.name, timeout_s=20.0, patience_s=60.0)
    if job.store == "tables":
        return tables_at(job.url, job.name)
    return LocalStore(f"{job.folder}/state")


def _spec(job: Job) -> SinkSpec:
    if job.sink == "file":
        return SinkSpec("out", "file", {"path": f"{job.folder}/out{job.target}"})
    if job.sink == "stored":
        place = {"path": f"s3://{job.bucket}/{job.name}-out{job.target}", "endpoint": job.endpoint}
        return SinkSpec("out", "file", place | {"region": "us-east-1"})
    if job.sink == "postgres":
        more = {"on_rejected": "dead_letter"} if job.aside else {}
        return SinkSpec("out", "postgres", {"url": job.url, "table": job.name + job.target, **more})
    if job.sink == "kafka":
        topics = {"topic": job.name + job.target, "control.topic": f"{job.name}{job.target}-ticks"}
        short = {"max_wait": "60 s", "transaction.timeout.ms": "5000"}
        return SinkSpec("out", "kafka", {"bootstrap.servers": job.servers, **topics, **short})
    if job.sink == "function":
        return SinkSpec("out", "function", {"function": "tests.chaos.given:write_part"})
    return SinkSpec("out", job.sink, _table(job).options)


def _objects(job: Job) -> list[bytes]:
    """The parts that readers of ``path/*.parquet`` see."""
    options = {"endpoint": job.endpoint, "region": "us-east-1", "client_options": {"allow_http": True}}
    client = S3Store(job.bucket, prefix=f"{job.name}-out{job.target}", **options)
    names = [str(entry["path"]) for batch in client.list() for entry in batch]
    seen = [name for name in names if "/" not in name and name[0] != "_" and name.endswith(".parquet")]
    return [bytes(client.get(name).bytes()) for name in seen]


def _make_topic(job: Job) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    name = job.name + job.target
    topic = NewTopic(name, num_partitions=2, replication_factor=1)
    admin = AdminClient({"bootstrap.servers": job.servers})
    try:
        admin.create_topics([topic])[name].result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _make_picky(job: Job) -> None:
    """A table that refuses every third left row."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(job.url) as connected, connected.cursor() as cursor:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {job.name} (a bigint, b bigint, CHECK (a % 3 <> 0))")
        connected.commit()


def _table(job: Job) -> Delta | Iceberg:
    return (Delta if job.sink == "delta" else Iceberg)(Path(job.folder) / f"table{job.target}")


def _result(job: Job) -> Counter[tuple[Any, ...]]:
    if not query_of(job.query).changes:
        return Counter(_rows(job))
    total = Counter[tuple[Any, ...]]()
    for *row, diff, _ in _rows(job):
        total[tuple(row)] += diff
    return Counter({row: count for row, count in total.items() if count})


def _rows(job: Job) -> list[tuple[Any, ...]]:
    if job.sink in ("file", "stored", "function"):  # not by DuckDB: it hangs where the parent has used it
        insert = runs.SHED_INSERT if job.target else INSERTS[0]
        local = f"out{job.target}/*.parquet" if job.sink == "file" else f"given/{insert}-*.parquet"
        files = _objects(job) if job.sink == "stored" else [*Path(job.folder).glob(local)]
        tables = [table_in(file) for file in files]
        return [row for table in tables for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]
    if job.sink == "kafka":
        names = runs.SHED_COLUMNS if job.target else runs.columns_of(job.query)
        records = [
            json.loads(value or b"") for _, _, value in consume_all(job.servers, job.name + job.target)
        ]
        return [tuple(record.get(name) for name in names) for record in records]
    if job.sink == "postgres":
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(job.url) as connected, connected.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {job.name}{job.target}")
            return cursor.fetchall()
    columns = _table(job).arrow().columns
    return [*zip(*(column.to_pylist() for column in columns), strict=True)]
