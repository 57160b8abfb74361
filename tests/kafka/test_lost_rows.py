"""Topics that were made again, rows that expired, aborted transactions: refused with a count, or not read."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.engine.spark.running import Running
from watersmeet.errors import EngineError, SpecError
from watersmeet.sinks.memory import MemorySink

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JOB = """
CREATE MAPPING l (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 100000)
  TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = '{name}'{more});
CREATE MAPPING f (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 100000)
  TYPE File OPTIONS ('path' = '{path}', 'format' = 'json');
CREATE MAPPING out TYPE Memory;
INSERT INTO out SELECT k, t FROM l UNION ALL SELECT k, t FROM f;
"""


class Job:
    """Rows of a topic of two partitions and of files, as they come."""

    def __init__(self, spark, broker, folder, name: str, more: str = "") -> None:
        self.spark, self.broker, self.folder, self.name = spark, broker, folder, name
        (folder / "in").mkdir()
        self.text = JOB.format(servers=broker.bootstrap_servers, name=name, path=folder / "in", more=more)
        broker.create_topic(name, partitions=2)

    def send(self, first: int, count: int) -> None:
        rows = range(first, first + count)
        self.broker.produce(self.name, [(n % 2, None, json.dumps({"k": n, "t": n})) for n in rows])

    def put(self, number: int) -> None:
        (self.folder / "in" / f"{number}.json").write_text(json.dumps({"k": number, "t": number}))

    def make_again(self) -> None:
        self.broker.delete_topic(self.name)
        self.broker.create_topic(self.name, partitions=2)

    def running(self, **settings) -> Running:
        return Running(self.spark, self.text, self.folder / "state", **settings)

    def run(self, **settings) -> Running:
        found = self.running(until_caught_up=True, **settings)
        found.to_the_end()
        return found

    def refused(self, **settings) -> EngineError:
        with pytest.raises(EngineError) as refused:
            self.run(**settings)
        return refused.value

    @staticmethod
    def rows() -> Counter[int]:
        return Counter(row["k"] for row in MemorySink.rows("out"))


@pytest.fixture(autouse=True)
def memory():
    MemorySink.clear()
    yield
    MemorySink.clear()


def test_a_topic_made_again_is_refused_until_that_is_accepted(spark, kafka_broker, tmp_path):
    """More rows came to the new topic than were read of the old one: by offsets alone nothing looks wrong."""
    job = Job(spark, kafka_broker, tmp_path, "again-down")
    job.send(0, 20)
    job.put(900)
    job.run()
    job.make_again()
    job.send(100, 55)
    for _ in range(2):
        error = job.refused()
        assert error.code == "topic-made-again"
        assert "--accept-loss l" in (error.hint or "")
    assert job.rows() == Counter([*range(20), 900])
    job.put(901)
    notes: list[str] = []
    job.run(accept_loss=["l"], on_notice=notes.append)
    assert any("created again" in note for note in notes)
    assert job.rows() == Counter([*range(20), *range(100, 155), 900, 901])
    job.send(200, 4)
    job.run()
    assert job.rows() == Counter([*range(20), *range(100, 155), *range(200, 204), 900, 901])


def test_a_topic_made_again_while_the_job_runs(spark, kafka_broker, tmp_path):
    job = Job(spark, kafka_broker, tmp_path, "again-up")
    job.send(0, 20)
    with job.running(trigger="3 seconds") as run:
        run.wait_for(lambda: sum(job.rows().values()) == 20)
        job.make_again()
        job.send(100, 55)
        with pytest.raises(EngineError) as refused:
            run.wait_for(lambda: False, 60)
        run.error = None
    assert refused.value.code in ("topic-made-again", "topic-missing", "offsets-expired"), refused.value
    assert job.rows() == Counter(range(20)), "nothing of the new topic was taken for the old one's"
    assert job.refused().code == "topic-made-again"


@pytest.mark.full
def test_expired_rows_are_counted(spark, kafka_broker, tmp_path):
    job = Job(spark, kafka_broker, tmp_path, "expired")
    job.send(0, 20)
    job.run()
    job.send(20, 20)
    places = [TopicPartition(job.name, 0, 15), TopicPartition(job.name, 1, 12)]
    admin = kafka_broker._admin()
    for each in admin.delete_records(places).values():
        each.result(30)
    error = job.refused()
    assert error.code == "offsets-expired"
    assert "begins at offset 15, but the job has only read up to 10: 5 rows have expired" in error.message
    assert "begins at offset 12, but the job has only read up to 10: 2 rows have expired" in error.message
    job.run(accept_loss=["l"])
    gone = {20, 22, 24, 26, 28, 21, 23}
    assert job.rows() == Counter(set(range(40)) - gone)


def test_expired_rows_are_reported_by_source_after_joins_are_reordered(spark, kafka_broker, tmp_path):
    """Spark knows sources by their number: that of the state, whatever the text begins with."""
    job = Job(spark, kafka_broker, tmp_path, "expired-mirrored")
    declared, _ = job.text.split("INSERT")
    near = "ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 10"
    job.text = f"{declared}INSERT INTO out SELECT a.k, b.t FROM l a JOIN f b {near};"
    job.send(0, 20)
    job.put(3)
    job.run()
    job.text = f"{declared}INSERT INTO out SELECT a.k, b.t FROM f b JOIN l a {near};"
    job.put(7)
    job.run()
    assert job.rows() == Counter([3, 7])
    job.send(20, 20)
    admin = kafka_broker._admin()
    for each in admin.delete_records([TopicPartition(job.name, 0, 15)]).values():
        each.result(30)
    error = job.refused()
    assert error.code == "offsets-expired"
    assert 'source "l"' in error.message
    assert "begins at offset 15, but the job has only read up to 10: 5 rows have expired" in error.message
    with pytest.raises(SpecError, match="no Kafka source"):
        job.run(accept_loss=["out"])


def test_a_rebuilt_checkpoint_of_kafka_and_files(spark, kafka_broker, tmp_path):
    job = Job(spark, kafka_broker, tmp_path, "rebuilt")
    job.send(0, 20)
    job.put(900)
    job.run()
    job.send(20, 5)
    job.put(901)
    job.run(rebuild=True)
    assert job.rows() == Counter([*range(25), 900, 901])
    assert job.run(rebuild=True).ticks == []


@pytest.mark.parametrize("level", [None, pytest.param("read_uncommitted", marks=pytest.mark.full)])
def test_aborted_transactions_are_not_read(spark, kafka_broker, tmp_path, level):
    more = f", 'isolation.level' = '{level}'" if level else ""
    job = Job(spark, kafka_broker, tmp_path, f"aborted-{level}", more)
    producer = Producer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": job.name, "log_level": 2}
    )
    producer.init_transactions(60)
    for first, commits in ((0, True), (10, False), (20, True), (30, False)):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce(job.name, json.dumps({"k": number, "t": number}), partition=0)
        producer.flush(60)
        if commits:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    job.run()
    read = range(40) if level else (*range(10), *range(20, 30))
    assert job.rows() == Counter(read)


def test_fail_on_data_loss_false_is_refused(spark, kafka_broker, tmp_path):
    job = Job(spark, kafka_broker, tmp_path, "silent", ", 'failOnDataLoss' = 'false'")
    with pytest.raises(SpecError, match="lost silently") as refused:
        job.run()
    assert "--accept-loss" in (refused.value.hint or "")


def test_a_topic_comes_to_a_job_that_ran_and_another_goes(spark, kafka_broker, tmp_path):
    """Offsets stay those of their topics, whatever their number among the sources is."""
    declared = "CREATE MAPPING out TYPE Memory;\n"
    for name in ("stays", "comes", "goes"):
        kafka_broker.create_topic(name, partitions=2)
        declared += (
            f"CREATE MAPPING {name} (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 100000) TYPE Kafka"
            f" OPTIONS ('bootstrap.servers' = '{kafka_broker.bootstrap_servers}', 'topic' = '{name}');\n"
            f"CREATE MAPPING of_{name} TYPE Memory;\n"
        )

    def insert(name):
        return f"INSERT INTO of_{name} SELECT k, t FROM {name};\n"

    def send(name, *rows):
        kafka_broker.produce(name, [(n % 2, None, json.dumps({"k": n, "t": n})) for n in rows])

    def run(*names, **settings):
        text = declared + "".join(map(insert, names))
        found = Running(spark, text, tmp_path / "state", until_caught_up=True, **settings)
        found.to_the_end()
        return {name: Counter(row["k"] for row in MemorySink.rows(f"of_{name}")) for name in names}

    send("goes", 1, 2, 3)
    send("stays", 4, 5)
    send("comes", 6, 7, 8)
    assert run("goes", "stays") == {"goes": Counter([1, 2, 3]), "stays": Counter([4, 5])}
    send("goes", 9)
    send("stays", 10)
    rows = {"comes": Counter([6, 7, 8]), "stays": Counter([4, 5, 10])}
    assert run("comes", "stays", change_queries=True) == rows
    send("comes", 11)
    send("stays", 12)
    rows = {"comes": Counter([6, 7, 8, 11]), "stays": Counter([4, 5, 10, 12])}
    assert run("comes", "stays") == rows
    back = run("stays", "goes", "comes", change_queries=True)
    assert back == {**rows, "goes": Counter([1, 2, 3, 1, 2, 3, 9])}  # it is read as by a job that begins
