"""Bad days of brokers and topics within a job: away for a while, rows that expire, topics that go or
come again with other partitions, records of another shape."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import TopicPartition

from tests.engine.spark.running import Running
from tests.kafka.away import away
from tests.support.effort import at_effort
from watersmeet.errors import EngineError
from watersmeet.runtime.spark.job import heartbeat
from watersmeet.runtime.spark.job.stream import JobTicks
from watersmeet.sinks.memory import MemorySink

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

OUTAGE_S = at_effort(quick=2.0, full=20.0)

JOB = """
CREATE MAPPING l (k BIGINT, v STRING, t BIGINT, WATERMARK FOR t AS t - 100000)
  TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = '{name}'{more});
CREATE MAPPING out TYPE Memory;
CREATE MAPPING broken TYPE Memory;
SET broken_output = broken;
INSERT INTO out SELECT k, v, t FROM l;
"""


class Job:
    """Rows of a topic of two partitions."""

    def __init__(self, spark, broker, folder, name: str, more: str = "") -> None:
        self.spark, self.broker, self.folder, self.name = spark, broker, folder, name
        self.text = JOB.format(servers=broker.bootstrap_servers, name=name, more=more)
        broker.create_topic(name, partitions=2)

    def send(self, *numbers: int, partitions: int = 2) -> None:
        records = [(n % partitions, None, json.dumps({"k": n, "t": n})) for n in numbers]
        self.broker.produce(self.name, records)

    def expire(self, *firsts: int) -> None:
        """Rows below these offsets, one per partition."""
        admin = self.broker._admin()
        places = [TopicPartition(self.name, number, first) for number, first in enumerate(firsts)]
        for each in admin.delete_records(places).values():
            each.result(30)

    def running(self, **settings) -> Running:
        return Running(self.spark, self.text, self.folder / "state", trigger="300 milliseconds", **settings)

    def run(self, **settings) -> Running:
        found = self.running(until_caught_up=True, **settings)
        found.to_the_end()
        return found

    def fails(self, change) -> EngineError:
        """How a run ends in which ``change`` is made after ten rows."""
        with self.running() as run:
            run.wait_for(lambda: sum(read().values()) == 10)
            change(run)
            with pytest.raises(EngineError) as failed:
                run.wait_for(lambda: False, 150)  # Kafka's clients ask for a minute for what is gone
            run.error = None
        return failed.value


def read() -> Counter[int]:
    return Counter(row["k"] for row in MemorySink.rows("out"))


@pytest.fixture(autouse=True)
def memory():
    MemorySink.clear()
    yield
    MemorySink.clear()


@pytest.mark.parametrize("how", ["hung", pytest.param("killed", marks=pytest.mark.full)])
def test_job_waits_for_a_broker_that_is_away_for_a_while(spark, kafka_broker, tmp_path, monkeypatch, how):
    monkeypatch.setattr(heartbeat, "PATIENCE_S", 1)
    broker, said = kafka_broker, []
    job = Job(spark, broker, tmp_path, f"away-{how}")
    job.send(*range(10))
    with job.running(on_notice=said.append) as run:
        run.wait_for(lambda: sum(read().values()) == 10)
        with away(broker, how):
            run.wait_for(lambda: bool(said), 30)
            until = time.monotonic() + OUTAGE_S
            run.wait_for(lambda: time.monotonic() > until, OUTAGE_S + 30)
        job.send(*range(10, 20))
        run.wait_for(lambda: sum(read().values()) == 20)
        run.wait_for(lambda: len(said) == 2, 30)
    assert f"no Kafka broker answers at {broker.bootstrap_servers} (source l)" in said[0]
    assert "answers again" in said[1]
    assert read() == Counter(range(20))


@pytest.mark.full
def test_broker_that_stays_away_ends_the_job(spark, stoppable_broker, tmp_path):
    short = {
        "kafka.default.api.timeout.ms": 1000,
        "kafka.request.timeout.ms": 1000,
        "fetchOffset.numRetries": 1,
    }
    more = "".join(f", '{name}' = '{value}'" for name, value in short.items())
    job = Job(spark, stoppable_broker, tmp_path, "stays-away", more)
    job.send(*range(10))
    error = job.fails(lambda _: stoppable_broker.kill())
    assert error.code == "kafka-unreachable", error
    assert "run again" in (error.hint or "")
    stoppable_broker.start()
    job.send(10, 11)
    job.run()
    assert read() == Counter(range(12))


def test_a_topic_that_is_deleted_while_the_job_runs(spark, kafka_broker, tmp_path):
    job = Job(spark, kafka_broker, tmp_path, "bad-deleted")
    job.send(*range(10))
    error = job.fails(lambda _: kafka_broker.delete_topic(job.name))
    assert error.code == "topic-missing"
    assert '"l"' in error.message
    assert job.name in error.message
    assert "--accept-loss l" in (error.hint or "")


def test_rows_that_expire_while_the_job_runs(spark, kafka_broker, tmp_path):
    """Told with their number by the run that was to read them."""
    job = Job(spark, kafka_broker, tmp_path, "bad-expired")
    job.send(*range(10))

    def expire(run: Running) -> None:
        gate, of_batch = threading.Event(), JobTicks.of_batch

        def wait_for_gate(*told: Any) -> None:
            assert gate.wait(60)
            of_batch(*told)

        with patch.object(JobTicks, "of_batch", wait_for_gate):  # no tick can begin
            job.send(*range(10, 30))
            job.expire(12, 11)
            gate.set()

    error = job.fails(expire)
    assert error.code == "offsets-expired"
    assert "begins at offset 12, but the job has only read up to 5: 7 rows have expired" in error.message
    assert "begins at offset 11, but the job has only read up to 5: 6 rows have expired" in error.message
    job.run(accept_loss=["l"])
    gone = {*range(10, 24, 2), *range(11, 23, 2)}
    assert read() == Counter(set(range(30)) - gone)


@pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.full)])
def test_a_topic_made_again_with_other_partitions(spark, kafka_broker, tmp_path, partitions):
    job = Job(spark, kafka_broker, tmp_path, f"bad-again-{partitions}")
    job.send(*range(10))

    def make_again(_: Running) -> None:
        kafka_broker.delete_topic(job.name)
        kafka_broker.create_topic(job.name, partitions=partitions)
        job.send(*range(100, 160), partitions=partitions)

    error = job.fails(make_again)
    assert error.code in ("topic-made-again", "topic-missing")
    with pytest.raises(EngineError) as refused:
        job.run()
    assert refused.value.code == "topic-made-again"
    assert read() == Counter(range(10))
    job.run(accept_loss=["l"])
    job.send(*range(160, 164), partitions=partitions)
    job.run()
    assert read() == Counter([*range(10), *range(100, 164)])


def test_partitions_that_are_added_between_runs(spark, kafka_broker, tmp_path):
    job = Job(spark, kafka_broker, tmp_path, "bad-added")
    job.send(*range(10))
    job.run()
    kafka_broker.add_partitions(job.name, 5)
    job.send(*range(10, 30), partitions=5)
    job.run()
    assert read() == Counter(range(30))


def test_many_partitions_are_read_without_waiting_for_more(spark, kafka_broker, tmp_path):
    """Else each of Spark's tasks waits half a second, as long as brokers wait for rows by default."""
    name, partitions = "bad-many", at_effort(quick=12, full=24)
    kafka_broker.create_topic(name, partitions=partitions * 2)
    text = JOB.format(servers=kafka_broker.bootstrap_servers, name=name, more="")
    took: list[float] = []
    rounds = at_effort(quick=2, full=3)

    def record_ingest_seconds(_: object, __: float, parts: Mapping[str, float]) -> None:
        took.append(parts["ingest"])

    for number in range(rounds):
        rows = range(number * partitions, (number + 1) * partitions)
        kafka_broker.produce(name, [(n % partitions, None, json.dumps({"k": n, "t": n})) for n in rows])
        Running(
            spark, text, tmp_path / "state", until_caught_up=True, on_tick=record_ingest_seconds
        ).to_the_end()
    assert read() == Counter(range(rounds * partitions))
    assert min(took) < partitions / 2 * 0.5, took


def test_records_of_another_shape_in_the_middle(spark, kafka_broker, tmp_path):
    """A field more is not read; one less is NULL, an event time that is NULL is counted; a value of another
    type makes the record broken, which is counted and kept; texts take any value, as JSON writes it."""
    job = Job(spark, kafka_broker, tmp_path, "bad-shapes")
    records = [
        '{"k": 1, "v": "a", "t": 1}',
        '{"k": 2, "v": "b", "t": 2, "w": {"new": [1]}}',
        '{"k": 3, "t": 3}',
        '{"k": 4, "v": "d"}',
        '{"k": 5, "v": 5.50, "t": 5}',
        '{"k": 6, "v": {"x": 1}, "t": 6}',
        '{"k": "seven", "v": "g", "t": 7}',
        '{"k": 8.5, "v": "h", "t": 8}',
        '{"k": 9, "v": "i", "t": "2024-01-01T00:00:00Z"}',
        '{"k": [10], "v": "j", "t": 10}',
    ]
    for part in (records[:1], records[1:5], records[5:]):
        kafka_broker.produce(job.name, [(0, None, record) for record in part])
        last = job.run()
    rows = {row["k"]: row["v"] for row in MemorySink.rows("out")}
    assert rows == {1: "a", 2: "b", 3: None, 5: "5.5", 6: '{"x":1}'}
    assert last.total("in", "out", "l") == 10
    assert last.total("null_time", "out", "l") == 1
    assert last.total("broken", "out", "l") == 4
    broken = {row["record"] for row in MemorySink.rows("broken")}
    assert broken == set(records[6:])
