"""What is known without Java is told before it starts, all at once, and nothing that a run would accept."""

from __future__ import annotations

import errno
import fcntl
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.cli.test_check_sources import answer
from watersmeet import StateError, WatersmeetError, declared, files, job, run
from watersmeet.errors import EngineError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.restore.changed_queries import identify_queries
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, DirectoryLock, holder
from watersmeet.runtime.spark.checkpoint.restart import build_host
from watersmeet.runtime.spark.checkpoint.spark_log import read_file_text
from watersmeet.runtime.spark.job import gateway, session
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.runtime.spark.preflight import servers
from watersmeet.runtime.spark.preflight.run import find_server_problems
from watersmeet.runtime.spark.sources.files.progress import BatchFiles
from watersmeet.sinks.memory import MemorySink
from watersmeet.spec.model import Column, Sink
from watersmeet.state import file_lists
from watersmeet.state.commits import commit
from watersmeet.state.file_lists import FileRead
from watersmeet.state.manifest import Manifest, NodeState, QueryState
from watersmeet.state.store import MemoryStore
from watersmeet.types.sql_type import STRING

JOB = """
CREATE TABLE a (k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'file', 'path' = 'in', 'format' = 'json');
CREATE SINK o WITH ({sink});
INSERT INTO o SELECT k, t FROM a;
"""
FILES = "'connector' = 'file', 'path' = 'out', 'format' = 'parquet'"
TOPIC = "'connector' = 'kafka', 'topic' = 'x', 'bootstrap.servers' = '127.0.0.1:{port}'"
SERVER = "'connector' = 'postgres', 'url' = 'postgresql://127.0.0.1:9/db', 'table' = 't', 'max_wait' = '1 s'"
TABLE = """CREATE TABLE d (k STRING, v INT) WITH ('connector' = 'jdbc', 'dbtable' = 'd',
  'url' = 'jdbc:postgresql://127.0.0.1:9/db');"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A directory to work in, and a Java that leaves a trace if anybody starts it."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(gateway, "current_gateway", lambda: None)
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session, "start", partial(pytest.fail, "Spark was started"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"k": "x", "t": "2024-01-01T00:00:00Z"}\n')
    yield tmp_path
    assert not (tmp_path / "started").exists(), "Java was started"


def find_problems(text: str, **how) -> list[WatersmeetError]:
    asked = parse_job(text)
    return find_server_problems(asked, plan_job(asked), RunSettings("state", **how))


def codes(text: str, **how) -> list[str]:
    return [problem.code for problem in find_problems(text, **how)]


def keep_state(text: str, *, committed: int = 0, files: Sequence[FileRead] = (), **more) -> Checkpoint:
    """A checkpoint as it is after a first tick of one batch."""
    checkpoint, plan = Checkpoint("state"), plan_job(parse_job(text))
    for name in ("offsets", "commits", "sources/0"):
        (checkpoint.spark / name).mkdir(parents=True)
    (checkpoint.spark / "metadata").write_text('{"id": "q"}')
    offsets = f'v1\n{{"batchTimestampMs":0}}\n{json.dumps({"logOffset": -1})}'
    (checkpoint.spark / "offsets" / "0").write_text(offsets)
    for batch in range(committed + 1):
        (checkpoint.spark / "commits" / str(batch)).write_text("v1\n{}")
    with checkpoint.lock():
        lists = file_lists.add(checkpoint.store, [], files)
        host = build_host("q", checkpoint.offsets(0), plan, {}, BatchFiles([], lists, {}))
        queries = {q.name: QueryState(nodes=[NodeState() for _ in q.nodes]) for q in plan.queries}
        known = {"sources": [source.name for source in plan.sources], **identify_queries(plan)}
        made = {"tick": 1, "clock_us": 0, "queries": queries, "host": host, "owner": checkpoint.owner()}
        commit(checkpoint.store, Manifest(**{**made, **known, **more}))
    return checkpoint


def test_preflight_reports_all_problems_at_once(watersmeet, folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").touch()
    (folder / "file").touch()
    text = f"""{JOB.format(sink=FILES.replace("'out'", "'mine'"))}
        CREATE SINK p WITH ({FILES.replace("'out'", "'file/out'")});
        INSERT INTO p SELECT k, t FROM a"""
    (folder / "job.sql").write_text(text)
    told = watersmeet("run", "job.sql", "--accept-loss", "a", "--checkpoint", "file/state", "--jars", "none")
    assert told.status == 2
    starts = [line.split("]")[0].split("[")[1] for line in told.err.splitlines() if "Error[" in line]
    assert starts == ["wrong-option", "checkpoint-not-writable", "jars-missing"]
    told = watersmeet("run", "job.sql", "--accept-target", "z", "--checkpoint", "state")
    starts = [line.split("]")[0].split("[")[1] for line in told.err.splitlines() if "Error[" in line]
    assert starts == ["wrong-option", "sink-not-empty", "sink-not-writable"]
    assert not (folder / "state").exists(), "nothing is made"


def test_the_checkpoint_of_a_query_of_spark_is_refused(watersmeet, folder):
    """Once a job has gone on in such a directory, as versions before let it, it goes on there."""
    (folder / "state" / "offsets").mkdir(parents=True)
    (folder / "state" / "metadata").touch()
    (folder / "job.sql").write_text(JOB.format(sink=FILES))
    command = ("run", "job.sql", "--checkpoint", "state", "--jars", "none")
    assert "checkpoint-of-spark" in watersmeet(*command).err
    assert {path.name for path in (folder / "state").iterdir()} == {"offsets", "metadata"}
    (folder / "state" / "job").touch()
    told = watersmeet(*command).err
    assert "checkpoint-of-spark" not in told
    assert "jars-missing" in told


def test_moved_files_are_reported_before_any_change(watersmeet, folder):
    """By `doctor`, too; each command says which flags to add."""
    size = (folder / "in" / "1.json").stat().st_size
    text = JOB.format(sink=FILES)
    keep_state(text, files=[FileRead(0, 0, "file:///gone/in/1.json", 0, size, 0)])
    (folder / "job.sql").write_text(text)
    before = sorted(folder.rglob("*"))
    command = ("run", "job.sql", "--checkpoint", "state", "--jars", "none", "--rebuild-spark-checkpoint")
    for told in (watersmeet(*command), watersmeet("doctor", "job.sql", "--checkpoint", "state")):
        words = " ".join((told.err + told.out).split())
        assert "read its files from /gone/in" in words
        assert "run with --accept-moved a; otherwise set 'path' back" in words
    assert "[jars-missing]" in watersmeet(*command, "--accept-moved", "a").err
    told = watersmeet(*command, "--accept-moved", "b").err
    assert '--accept-moved b: the job has no source "b" of local or mounted files' in told
    assert sorted(folder.rglob("*")) == before


def test_python_api_reports_the_same_problems(folder):
    (folder / "out").mkdir()
    (folder / "out" / "notes.txt").touch()
    with pytest.raises(WatersmeetError) as told:
        run(JOB.format(sink=FILES), {"checkpoint": "state"})
    assert told.value.code == "sink-not-empty"
    rows = declared(JOB[: JOB.index("CREATE SINK")])["a"]
    with pytest.raises(WatersmeetError) as told:
        job(rows.to_sink(files("out")), checkpoint="state").start()
    assert told.value.code == "sink-not-empty"


def test_a_started_job_fails_by_a_broker_that_is_away(monkeypatch):
    monkeypatch.setattr(servers, "BROKERS_S", 0.3)
    text = JOB.replace("'file', 'path' = 'in'", TOPIC[14:].format(port=9))
    started = job(
        declared(text[: text.index("CREATE SINK")])["a"].to_sink(files("out")), checkpoint="s"
    ).start()
    with pytest.raises(WatersmeetError) as told:
        started.await_termination(20)
    assert told.value.code == "kafka-unreachable"
    assert "waiting up to" in started.notices[0]


def test_results_of_an_earlier_job_stay():
    sink = MemorySink(Sink("o", "memory"))
    sink.prepare([Column("k", STRING)], "me")
    assert codes(JOB.format(sink="'connector' = 'memory'")) == []
    assert MemorySink.table("o").column_names == ["k"]


def test_preflight_reports_a_state_that_does_not_match():
    text = JOB.format(sink=FILES)
    checkpoint = keep_state(text)
    assert codes(text) == []
    assert codes(text.replace("SELECT k, t", "SELECT k, t, 1 AS n")) == [], "columns may change"
    other = text.replace("FROM a;", "FROM a WHERE k > 'b';")
    assert codes(other) == ["changed-query"]
    assert codes(other, change_queries=True) == []
    with checkpoint.lock():
        assert codes(text) == ["checkpoint-locked"]
    (checkpoint.spark / "metadata").rename("metadata")
    assert codes(text) == ["spark-checkpoint-lost"]
    assert codes(text, rebuild=True) == []


@pytest.mark.parametrize("name", ["metadata", "offsets/0", "commits/0"])
def test_what_may_not_be_read_is_not_lost(monkeypatch, name):
    """Nor damaged: nothing is to be made anew, and no commit is taken for a torn one."""
    text = JOB.format(sink=FILES)
    checkpoint = keep_state(text)
    file, read_text = checkpoint.spark / name, Path.read_text

    def deny_read_of_file(path, *arguments, **named):
        if path == file:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_text(path, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", deny_read_of_file)
    assert codes(text) == (["place-unusable"] if name == "metadata" else [])  # others are read later
    with pytest.raises(EngineError, match=f"Spark's checkpoint: {file} cannot be used: Permission") as told:
        read_file_text(file)
    assert told.value.hint.startswith("run it as the user who owns it")
    if name == "commits/0":
        with pytest.raises(EngineError, match="cannot be used"):
            checkpoint.spark_files.drop_torn_commits()
        assert file.exists()


def test_preflight_reports_lost_state():
    text = JOB.format(sink=FILES)
    checkpoint = keep_state(text)
    for manifest in (checkpoint.state / "manifests").iterdir():
        manifest.unlink()
    assert codes(text) == ["state-lost"]


def test_preflight_reports_a_finished_job():
    text = JOB.format(sink=FILES)
    keep_state(text, finished=True)
    assert codes(text) == ["job-finished"]
    assert codes(text, finish=True) == []


def test_what_a_run_would_mend_is_not_refused():
    """A commit that a power failure tore, and a batch that was only planned, of which nothing is whole."""
    text = JOB.format(sink=FILES)
    checkpoint = keep_state(text, committed=1)
    assert codes(text) == ["checkpoint-gap"]
    (checkpoint.spark / "commits" / "1").write_text("")
    assert codes(text) == []
    (checkpoint.spark / "commits" / "1").unlink()
    (checkpoint.spark / "offsets" / "1").write_text("")
    (checkpoint.spark / "metadata").write_text("")
    assert codes(text) == []


def test_own_earlier_output_is_not_refused(folder):
    text = JOB.format(sink=FILES)
    owner = keep_state(text).owner()
    (folder / "out" / "_ticks" / "o-000000000001").mkdir(parents=True)
    assert codes(text) == ["sink-of-another-run"], "nobody's"
    (folder / "out" / "_owner").write_text(f"{owner}\n")
    assert codes(text) == []
    (folder / "out" / "_owner").write_text("another\n")
    assert codes(text) == ["sink-of-another-run"]
    (folder / "out" / "_ticks" / "o-000000000001").rmdir()
    assert codes(text) == [], "it may change hands"


def test_who_looks_at_a_checkpoint_does_not_hold_it(folder):
    text, looking = JOB.format(sink=FILES), threading.Event()
    root = keep_state(text).root

    def look():
        while not looking.is_set():
            holder(root)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert [codes(text) for _ in range(20)] == [[]] * 20
    finally:
        looking.set()
        for thread in threads:
            thread.join()
    hold = DirectoryLock(root)
    with pytest.raises(StateError, match="another run"):
        Checkpoint("state").check_free()
    hold.release()


def test_two_that_look_at_once_do_not_take_each_other_for_a_run(folder, monkeypatch):
    checkpoint, answers, lock = Checkpoint(keep_state(JOB.format(sink=FILES)).root), [], fcntl.flock

    def lock_and_look(handle, kind):
        lock(handle, kind)
        monkeypatch.setattr(fcntl, "flock", lock)
        answers.append(checkpoint.is_locked())

    monkeypatch.setattr(fcntl, "flock", lock_and_look)
    answers.append(checkpoint.is_locked())
    assert answers == [False, False]


def test_lock_is_released_when_its_process_dies(folder):
    root = Path("state")
    at_home, in_a_store = Checkpoint(root), Checkpoint(root, MemoryStore())
    assert (at_home.is_locked(), in_a_store.is_locked()) == (False, None)
    root.mkdir()
    code = (
        "import fcntl, time; f = open('state/lock', 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", f"{code}; time.sleep(60)"], stdout=subprocess.PIPE) as run:
        assert run.stdout.readline()
        assert (at_home.is_locked(), in_a_store.is_locked()) == (True, True)
        run.kill()
    assert (at_home.is_locked(), in_a_store.is_locked()) == (False, None)


@pytest.mark.parametrize(
    ("library", "sink"),
    [
        ("confluent_kafka", TOPIC.format(port=9)),
        ("adbc_driver_postgresql", SERVER),
        ("deltalake", "'connector' = 'delta', 'path' = 'out'"),
    ],
)
def test_preflight_reports_a_missing_library(monkeypatch, library, sink):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr("watersmeet.spec.options.lake.find_spec", lambda module: None)
    assert "missing-library" in codes(JOB.format(sink=sink))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (JOB.format(sink=FILES).replace("'file', 'path' = 'in'", TOPIC[14:].format(port=9)), "kafka"),
        (JOB.format(sink=TOPIC.format(port=9)), "sink"),
        (JOB.format(sink=SERVER), "sink"),
        (
            f"{TABLE}{JOB.format(sink=FILES)}".replace("SELECT k, t FROM a", "SELECT a.k, d.v FROM a JOIN d")[
                :-2
            ]
            + " FOR SYSTEM_TIME AS OF PROCTIME() ON a.k = d.k",
            "database",
        ),
    ],
)
def test_preflight_reports_unreachable_servers(monkeypatch, text, code):
    monkeypatch.setattr("watersmeet.runtime.spark.preflight.run.SINK_S", 0.3)
    monkeypatch.setattr(servers, "BROKERS_S", 0.3)
    monkeypatch.setattr("watersmeet.runtime.spark.preflight.servers.DATABASE_S", 0.3)
    assert codes(text) == [f"{code}-unreachable"]


def test_preflight_reports_an_unresolvable_host(monkeypatch):
    monkeypatch.setattr("watersmeet.runtime.spark.preflight.servers.DATABASE_S", 0)
    text = f"{TABLE}{JOB.format(sink=FILES)}".replace("127.0.0.1:9", f"{'a' * 64}.example")
    joined = "SELECT a.k FROM a JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON a.k = d.k"
    assert codes(text.replace("SELECT k, t FROM a", joined)) == ["database-unreachable"]


def test_stop_cancels_the_server_check_without_a_report(monkeypatch):
    asked = parse_job(JOB.format(sink=TOPIC.format(port=9)))
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    began = time.monotonic()
    assert find_server_problems(asked, plan_job(asked), RunSettings("state", stop=stop)) == []
    assert time.monotonic() - began < 5


def test_a_broker_that_comes_up_in_time_is_waited_for(monkeypatch):
    monkeypatch.setattr(servers, "PAUSE_S", 0.05)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    text = JOB.format(sink=FILES).replace("'file', 'path' = 'in'", TOPIC[14:].format(port=port))

    def come_up():
        time.sleep(0.3)
        with socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(10)
            to, _ = server.accept()
            with to:
                to.recv(1000)
                to.sendall(answer(("x", 0)))

    broker = threading.Thread(target=come_up, daemon=True)
    broker.start()
    assert codes(text) == []
    broker.join()


def test_java_proxy_disables_server_checks():
    text = JOB.format(sink=FILES).replace("'file', 'path' = 'in'", TOPIC[14:].format(port=9))
    proxy = "SET spark.driver.extraJavaOptions = '-DsocksProxyHost=proxy';"
    assert codes(proxy + text) == []


def test_unreachable_broker_does_not_delay_other_problems(folder):
    (folder / "out").mkdir()
    (folder / "out" / "notes.txt").touch()
    text = JOB.format(sink=FILES).replace("'file', 'path' = 'in'", TOPIC[14:].format(port=9))
    began = time.monotonic()
    assert codes(text) == ["sink-not-empty", "kafka-unreachable"]
    assert time.monotonic() - began < servers.BROKERS_S / 2


def test_a_broker_that_is_slow_is_left_to_the_run(monkeypatch):
    monkeypatch.setattr(servers, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = JOB.format(sink=FILES).replace(
            "'file', 'path' = 'in'", TOPIC[14:].format(port=silent.getsockname()[1])
        )
        assert codes(text) == []
