"""Kafka sources: CSV, raw values, metadata, offsets, watermarks per partition, and what is refused."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import ExitStack

import pytest

from tests.engine.spark.running import Running, until_caught_up
from tests.kafka.away import away
from tests.support.columns import column
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.spark.preflight.servers import check_topics
from watersmeet.runtime.spark.sources import topics
from watersmeet.sinks.memory import MemorySink
from watersmeet.spec.model import Source

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SECOND_MS = 1000


@pytest.fixture(autouse=True)
def memory():
    MemorySink.clear()
    yield
    MemorySink.clear()


def test_csv_raw_metadata_and_starting_offsets(spark, kafka_broker, tmp_path):
    kafka_broker.create_topic("src-csv", partitions=2)
    kafka_broker.create_topic("src-raw", partitions=2)
    csv = [(0, None, "skipped;1;1970-01-01 00:00:01"), (0, None, "a;2;1970-01-01 00:00:10")]
    csv += [
        (1, None, 'b;3;"1970-01-01 00:00:20"'),
        (1, None, "b;wrong;1970-01-01 00:00:20"),
        (1, None, "b;4"),
    ]
    kafka_broker.produce("src-csv", csv)
    kafka_broker.produce(
        "src-raw",
        [
            (0, "a", "first", 11 * SECOND_MS),
            (1, "b", "second", 19 * SECOND_MS),
            (1, "skipped", "third", 10 * SECOND_MS),
        ],
    )
    text = f"""
    SET broken_output = 'bad';
    CREATE MAPPING c (k STRING, n INT, t TIMESTAMP, part INT, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
      TYPE Kafka OPTIONS ('bootstrap.servers' = '{kafka_broker.bootstrap_servers}', 'topic' = 'src-csv',
        'format' = 'csv', 'csv.delimiter' = ';', 'metadata.part' = 'partition',
        'startingOffsets' = '{{"src-csv":{{"0":1,"1":0}}}}');
    CREATE MAPPING r (key STRING, value STRING, "timestamp" TIMESTAMP, "partition" INT, "offset" BIGINT,
        WATERMARK FOR "timestamp" AS "timestamp" - INTERVAL '5' SECONDS)
      TYPE Kafka OPTIONS ('bootstrap.servers' = '{kafka_broker.bootstrap_servers}', 'topic' = 'src-raw',
        'format' = 'raw');
    CREATE MAPPING out TYPE Memory; CREATE MAPPING bad TYPE Memory;
    INSERT INTO out
    SELECT c.k, c.n, c.part, r.key, r.value, r."partition" AS p, r."offset" AS o
    FROM c FULL JOIN r ON c.k = r.key
     AND c.t BETWEEN r."timestamp" - INTERVAL '1' SECOND AND r."timestamp" + INTERVAL '1' SECOND;
    """
    run = until_caught_up(spark, text, tmp_path / "state", finish=True)
    found = Counter(tuple(row.values()) for row in MemorySink.rows("out"))
    assert found == Counter(
        [
            ("a", 2, 0, "a", "first", 0, 0),
            ("b", 3, 1, "b", "second", 1, 0),
            (None, None, None, "skipped", "third", 1, 1),
        ]
    )
    assert run.total("broken", "out", "c") == 2
    bad = Counter((row["stream"], row["reason"], row["record"]) for row in MemorySink.rows("bad"))
    assert bad == {("c", "broken", "b;wrong;1970-01-01 00:00:20"): 1, ("c", "broken", "b;4"): 1}


LAGGING = """
CREATE MAPPING l (k STRING, t BIGINT, WATERMARK FOR t AS t - 5)
  TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = 'lag-l'{more});
CREATE MAPPING r (k STRING, t BIGINT, WATERMARK FOR t AS t - 0)
  TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = 'lag-r');
CREATE MAPPING out TYPE Memory;
INSERT INTO out SELECT l.k, l.t, r.k AS rk, r.t AS rt FROM l RIGHT JOIN r
  ON l.k = r.k AND l.t BETWEEN r.t - 10 AND r.t;
"""


def test_a_lagging_and_a_silent_partition_hold_the_watermark(spark, kafka_broker, tmp_path):
    kafka_broker.create_topic("lag-l", partitions=3)
    kafka_broker.create_topic("lag-r", partitions=1)
    text = LAGGING.format(servers=kafka_broker.bootstrap_servers, more="")

    def tick():
        return until_caught_up(spark, text, tmp_path / "state").ticks[-1].queries["out"].input_watermarks

    def build_record(partition: int, time: int):
        return (partition, None, f'{{"k": "a", "t": {time}}}')

    kafka_broker.produce("lag-l", [build_record(0, 100), build_record(1, 20)])
    kafka_broker.produce("lag-r", [build_record(0, 3), build_record(0, 25)])
    assert tick()["l.t"] == float("-inf") or tick()["l.t"] < -(2**62), "partition 2 was never heard of"
    kafka_broker.produce("lag-l", [build_record(2, 90)])
    assert tick() == {"l.t": 15, "r.t": 25}, "the least of 95, 15 and 85"
    assert MemorySink.rows("out") == [
        {"k": "a", "t": 20, "rk": "a", "rt": 25},
        {"k": None, "t": None, "rk": "a", "rt": 3},
    ]
    kafka_broker.produce("lag-l", [build_record(1, 120)])
    assert tick()["l.t"] == 85


def test_a_silent_partition_goes_idle_and_comes_back(spark, kafka_broker, tmp_path):
    for topic, partitions in (("idle-l", 2), ("idle-r", 1)):
        kafka_broker.create_topic(topic, partitions=partitions)
    text = LAGGING.replace("lag-", "idle-").format(
        servers=kafka_broker.bootstrap_servers, more=", 'idle_timeout' = '2 seconds'"
    )
    kafka_broker.produce("idle-l", [(0, None, '{"k": "a", "t": 100}')])
    kafka_broker.produce("idle-r", [(0, None, '{"k": "b", "t": 3}')])
    with Running(spark, text, tmp_path / "state") as run:
        run.wait_for(lambda: bool(run.ticks) and run.ticks[-1].queries["out"].input_watermarks["l.t"] == 95)
        run.wait_for(lambda: len(MemorySink.rows("out")) == 1)
        kafka_broker.produce(
            "idle-l", [(1, None, '{"k": "late", "t": 94}'), (1, None, '{"k": "a", "t": 95}')]
        )
        run.wait_for(lambda: run.total("late", "out", "l") == 1)
        assert run.total("in", "out", "l") == 3
    assert MemorySink.rows("out") == [{"k": None, "t": None, "rk": "b", "rt": 3}], (
        "the pad came by a tick without rows"
    )


def test_unread_rows_are_seen_and_a_broker_that_is_away_counts_as_having_some(
    spark, kafka_broker, monkeypatch
):
    kafka_broker.create_topic("unread", partitions=2)
    kafka_broker.produce("unread", [(0, None, "1"), (1, None, "2")])
    options = {"bootstrap.servers": kafka_broker.bootstrap_servers, "topic": "unread"}
    source = Source("u", (column("value", "STRING"),), "kafka", options)
    read = '{{"unread":{{"0":1,"1":{}}}}}'
    with monkeypatch.context() as patient:  # the first look of a session, on a busy machine
        patient.setattr(topics, "POLL_TIMEOUT_MS", 60_000)
        assert topics.find_unread_partitions(spark, source, read.format(1)) == ()
        assert topics.find_unread_partitions(spark, source, read.format(0)) == ("1",)
        assert topics.find_unread_partitions(spark, source, '{"unread":{"0":1}}') == ("1",), (
            "a partition nobody knew"
        )
    away = Source("u", (column("value", "STRING"),), "kafka", {**options, "bootstrap.servers": "127.0.0.1:9"})
    assert topics.find_unread_partitions(spark, away, read.format(1)) == ("0", "1")


@pytest.mark.parametrize("how", ["hung", pytest.param("stopped", marks=pytest.mark.full)])
def test_no_partition_goes_idle_while_the_broker_is_away(spark, kafka_broker, tmp_path, how):
    """Nobody knows what was not read: the watermark waits, and no row is late because of that."""
    for topic, partitions in ((f"unseen-{how}-l", 2), (f"unseen-{how}-r", 1)):
        kafka_broker.create_topic(topic, partitions=partitions)
    text = LAGGING.replace("lag-", f"unseen-{how}-").format(
        servers=kafka_broker.bootstrap_servers, more=", 'idle_timeout' = '2 seconds'"
    )
    left = [(0, None, '{"k": "a", "t": 100}'), (1, None, '{"k": "a", "t": 20}')]
    kafka_broker.produce(f"unseen-{how}-l", left)
    kafka_broker.produce(f"unseen-{how}-r", [(0, None, '{"k": "a", "t": 100}')])
    with ExitStack() as outage, Running(spark, text, tmp_path / "state") as run:
        run.wait_for(lambda: run.total("in", "out", "l") == 2)
        outage.enter_context(away(kafka_broker, how))
        time.sleep(6)
        assert run.ticks[-1].queries["out"].input_watermarks["l.t"] == 15


def refusal(spark, text, folder) -> WatersmeetError:
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, text, folder)
    assert "Exception" not in str(caught.value)
    assert "\tat " not in str(caught.value)
    return caught.value


def test_a_missing_topic_is_named_with_its_neighbours(spark, kafka_broker, tmp_path):
    kafka_broker.create_topic("lag-left")
    text = LAGGING.format(servers=kafka_broker.bootstrap_servers, more="").replace("'lag-l'", "'lag-lefd'")
    error = refusal(spark, text, tmp_path / "state")
    assert error.code == "topic-missing"
    assert '"lag-lefd"' in error.message
    assert kafka_broker.bootstrap_servers in error.message
    assert "lag-left" in error.hint
    assert not (tmp_path / "state" / "spark").exists()


def test_a_broker_that_does_not_answer_is_named(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(topics, "ADMIN_TIMEOUT_MS", 1500)
    error = refusal(spark, LAGGING.format(servers="127.0.0.1:9", more=""), tmp_path / "state")
    assert error.code == "kafka-unreachable"
    assert "127.0.0.1:9" in error.message


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (", 'topci' = 'x'", "unknown-option"),
        (", 'format' = 'xml'", "unknown-format"),
        (", 'format' = 'raw'", "raw-needs-one-column"),
        (", 'metadata.k' = 'header'", "wrong-option"),
    ],
)
def test_wrong_options_are_named(spark, kafka_broker, tmp_path, more, code):
    for topic in ("opt-l", "opt-r"):
        if topic not in _topics(kafka_broker):
            kafka_broker.create_topic(topic)
    text = LAGGING.replace("lag-", "opt-").format(servers=kafka_broker.bootstrap_servers, more=more)
    assert refusal(spark, text, tmp_path / "state").code == code


def _topics(broker) -> set[str]:
    return set(broker._admin().list_topics(timeout=10).topics)


def test_a_topic_that_goes_away_ends_the_job_with_its_name(spark, kafka_broker, tmp_path):
    for topic in ("gone-l", "gone-r"):
        kafka_broker.create_topic(topic)
    text = LAGGING.replace("lag-", "gone-").format(servers=kafka_broker.bootstrap_servers, more="")
    kafka_broker.produce("gone-l", [(0, None, '{"k": "a", "t": 1}')])
    until_caught_up(spark, text, tmp_path / "state")
    kafka_broker.delete_topic("gone-l")
    assert refusal(spark, text, tmp_path / "state").code == "topic-missing"
    kafka_broker.create_topic("gone-l")
    error = refusal(spark, text, tmp_path / "state")
    assert error.code == "topic-made-again"
    assert "--accept-loss l" in error.hint


def test_topics_are_looked_for_without_spark(kafka_broker):
    def check(topic):
        servers = kafka_broker.bootstrap_servers
        check_topics(Source("a", (), "kafka", {"bootstrap.servers": servers, "topic": topic}))

    kafka_broker.create_topic("looked-for", partitions=2)
    check("looked-for")
    for _ in range(2):  # the first look has not created it
        with pytest.raises(WatersmeetError) as caught:
            check("looked-for,looked-fur")
        assert caught.value.code == "topic-missing"
        assert '"looked-fur"' in caught.value.message


def test_backlog_of_unread_rows_is_reported(spark, kafka_broker, tmp_path):
    kafka_broker.create_topic("behind", partitions=2)
    kafka_broker.produce("behind", [(n % 2, None, json.dumps({"t": n})) for n in range(100)])
    told = []
    text = f"""
        CREATE TABLE k (t BIGINT, WATERMARK FOR t) WITH ('connector' = 'kafka', 'topic' = 'behind',
          'bootstrap.servers' = '{kafka_broker.bootstrap_servers}', 'maxOffsetsPerTrigger' = '40');
        CREATE SINK behind_out WITH ('connector' = 'memory');
        INSERT INTO behind_out SELECT t FROM k"""
    with Running(spark, text, tmp_path, trigger="0", on_backlog=told.append) as running:
        running.wait_for(lambda: len(MemorySink.rows("behind_out")) == 100)
    assert told[:3] == [{}, {"k": (20, "rows")}, {"k": (0, "rows")}]
