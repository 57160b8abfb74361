"""Ticks into a topic of Kafka, killed at every step, the broker restarted: each comes once."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from tests.kills.jobs import JOB, LAG_S, Growing, Process, batch_of
from tests.kills.kafka_ticks import OUT, POINTS, ROWS, rows_of_tick
from tests.sinks.kafka_frames import identity_of, prepare_sink, sink_of, stage, stopping_at
from tests.support.forked import run_forked
from tests.support.kafka import KafkaBroker

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.kill, pytest.mark.kafka]


@pytest.fixture(scope="module")
def broker():
    """One to be stopped."""
    with KafkaBroker() as own:
        yield own


def run(
    folder: Path,
    broker: KafkaBroker,
    topic: str,
    last: int,
    point: str = "none",
    tick: int = 0,
    timeout_s: int = 5,
) -> tuple[int, str]:
    told = [str(folder), broker.bootstrap_servers, topic, str(last), point, str(tick), str(timeout_s * 1000)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    told = ["-m", "tests.kills.kafka_ticks", *told]
    return run_forked(told, 120, cwd=ROOT, env=environment)


def read_committed_records(broker: KafkaBroker, topic: str) -> Counter[tuple[bytes | None, bytes | None]]:
    """What readers of committed records see."""
    return Counter((key, value) for _, key, value in broker.consume_all(topic))


def build_expected_records(last: int) -> Counter[tuple[bytes | None, bytes | None]]:
    return Counter(
        (key.encode(), None if value is None else value.encode())
        for tick in range(1, last + 1)
        for key, value in rows_of_tick(tick)
    )


@pytest.mark.full
def test_killed_at_every_point(tmp_path, broker):
    broker.create_topic("killed", partitions=3)
    tick = 0
    for number, point in enumerate(POINTS):
        tick += 0 if point == "initialised" else 2
        while not rows_of_tick(tick):  # nothing of it would be sent
            tick += 1
        code, errors = run(tmp_path, broker, "killed", tick + 1, point, tick)
        assert code == -signal.SIGKILL, f"{point}: {errors}"
        if point in ("marked", "answered"):
            (broker.kill if number % 2 else broker.stop)()
            broker.start()
        if point not in ("half-sent", "sent", "marked"):  # what is open there ends what readers see
            is_out = point in OUT
            assert read_committed_records(broker, "killed") == build_expected_records(
                tick if is_out else tick - 1
            ), f"killed at {point}"
    code, errors = run(tmp_path, broker, "killed", tick + 3)
    assert code == 0, errors
    assert read_committed_records(broker, "killed") == build_expected_records(tick + 3)
    by_key: dict[bytes | None, list[int]] = {}
    for _, key, value in broker.consume_all("killed"):
        if value is not None:
            by_key.setdefault(key, []).append(int(value.rpartition(b" ")[2]))
    assert all(ticks == sorted(ticks) for ticks in by_key.values())


@pytest.mark.full
def test_readers_wait_at_most_the_timeout_for_a_killed_transaction(tmp_path, kafka_broker):
    """Nobody repeats the tick: the broker aborts its transaction (5 s)."""
    kafka_broker.create_topic("blocked")
    code, errors = run(tmp_path, kafka_broker, "blocked", 2, "marked", 1)
    assert code == -signal.SIGKILL, errors
    began = time.monotonic()
    kafka_broker.produce("blocked", [(0, "other", "theirs")])
    behind = Counter({(b"other", b"theirs"): 1})
    assert read_committed_records(kafka_broker, "blocked") == Counter()
    while read_committed_records(kafka_broker, "blocked") != behind:
        assert time.monotonic() - began < 5 + 5
        time.sleep(0.2)
    print(f"readers waited for {time.monotonic() - began:.1f} s")


def test_the_repeat_lets_readers_go_on_at_once(tmp_path, kafka_broker):
    kafka_broker.create_topic("let-on")
    timeout_s = 90
    began = time.monotonic()
    code, errors = run(tmp_path, kafka_broker, "let-on", 2, "marked", 1, timeout_s=timeout_s)
    assert code == -signal.SIGKILL, errors
    code, errors = run(tmp_path, kafka_broker, "let-on", 2, timeout_s=timeout_s)
    assert code == 0, errors
    assert read_committed_records(kafka_broker, "let-on") == build_expected_records(2)
    assert time.monotonic() - began < timeout_s, "the broker's own time was not waited for"


@pytest.mark.full
def test_brokers_that_go_away_within_a_transaction_are_waited_for(tmp_path, broker):
    """For longer than the transaction may take: what was sent of it is sent again, in another one."""
    broker.create_topic("away", partitions=2)
    sink = prepare_sink(sink_of(broker.bootstrap_servers, "away"), tmp_path / "files")
    away: list[threading.Timer] = []

    def go_away() -> None:
        broker.kill()
        away.append(threading.Timer(6, broker.start))
        away[0].start()

    sink._producing.close()
    end = stopping_at("half-sent", "away-ticks", ROWS // 2, lambda: not away, go_away, flush=False)
    try:
        attempt = stage(sink, 1, rows_of_tick(1), 3)
        assert sink.publish("q", 1, attempt, identity_of(1))
    finally:
        end()
        away[0].join()
        sink.close()
    assert read_committed_records(broker, "away") == build_expected_records(1)


COLUMNS = {"joined": ("a_id", "a_k", "b_id", "b_k"), "chain": ("a_id", "b_id", "c_id")}
NAMES = {"joined": "a_id, a_k, a_v, a_t, b_id, b_k, b_v, b_t", "chain": "a_id, b_id, c_id"}


@pytest.mark.full
@pytest.mark.spark
def test_whole_jobs_killed_between_their_sinks(seed, tmp_path, broker):
    """Two joins into a topic each, killed between the one's transaction and the other's; so is the broker."""
    text = JOB.format(folder=tmp_path, lag=LAG_S)
    for sink in COLUMNS:
        broker.create_topic(f"jobs-{sink}", partitions=3)
        text = text.replace(
            f"CREATE MAPPING {sink} TYPE File OPTIONS ('path' = '{tmp_path}/out/{sink}');",
            f"CREATE SINK {sink} WITH ('connector' = 'kafka', 'topic' = 'jobs-{sink}',"
            f" 'bootstrap.servers' = '{broker.bootstrap_servers}');",
        )
    (tmp_path / "job.sql").write_text(text)
    files = 4
    Growing(tmp_path, seed, files).add(files)
    more = ("--until-caught-up", "--finish")
    runs = []
    try:
        runs.append(job := Process(tmp_path, *more, kill_at=("half-published", 2)))
        assert job.await_end() == -signal.SIGKILL, job.errors.read_text()
        broker.kill()
        broker.start()
        runs.append(last := Process(tmp_path, *more))
        assert last.await_end() == 0, last.errors.read_text()
    finally:
        for job in runs:
            job.clean_up()
    for sink, names in COLUMNS.items():
        rows = [json.loads(value or b"") for _, _, value in broker.consume_all(f"jobs-{sink}")]
        told = Counter(tuple(row[name] for name in names) for row in rows)
        with duckdb.connect() as base:
            batch = f"{batch_of(tmp_path, sink)[:-1]}) AS batch({NAMES[sink]})"
            wanted = Counter(base.execute(f"SELECT {', '.join(names)} FROM {batch}").fetchall())
        assert len(rows) > 100
        assert told == wanted, f"{sink}, seed {seed}"
