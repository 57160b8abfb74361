"""A topic took the rows that were sent to it, as its brokers tell."""

from __future__ import annotations

import json

import pytest

from tests.engine.spark.running import Running
from watersmeet.errors import EngineError
from watersmeet.runtime.spark.tick.sink_row_counts import SinkRowCounter, WrittenRows
from watersmeet.sinks.kafka.sink import AtLeastOnceSink
from watersmeet.spec.model import Sink

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ROWS = 50
JOB = """
CREATE MAPPING f (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 100000)
  TYPE File OPTIONS ('path' = '{path}', 'format' = 'json');
CREATE MAPPING out TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = '{topic}',
  'delivery' = 'at-least-once'{more});
INSERT INTO out SELECT k, t FROM f{where};
"""


@pytest.fixture
def write(monkeypatch):
    """Lets a test do something around what the sink does."""
    found = []
    own = AtLeastOnceSink.write

    def around(self, frame, *told):
        own(self, found[0](frame), *told)

    monkeypatch.setattr(AtLeastOnceSink, "write", around)
    return found


def run(spark, broker, folder, topic, where="", more=""):
    """One tick of a run that goes on where the last one stopped."""
    (folder / "in").mkdir(exist_ok=True)
    number = len(list((folder / "in").iterdir()))
    rows = [{"k": n, "t": n} for n in range(ROWS)]
    (folder / "in" / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    text = JOB.format(
        path=folder / "in", servers=broker.bootstrap_servers, topic=topic, where=where, more=more
    )
    running = Running(spark, text, folder / "state", until_caught_up=True)
    running.to_the_end()
    return sum(tick.queries["out"].rows_out for tick in running.ticks)


@pytest.mark.parametrize(
    ("where", "more"),
    [
        ("", ""),
        pytest.param(" WHERE k + t >= 0", ", 'kafka.acks' = '1'", marks=pytest.mark.full),
    ],
)
def test_a_row_that_never_came_stops_the_tick(spark, kafka_broker, tmp_path, write, where, more):
    topic = f"taken-{len(where)}"
    kafka_broker.create_topic(topic, partitions=3)
    write.append(lambda frame: frame.where("k <> 7"))
    with pytest.raises(EngineError, match="has 49 rows, but the job wrote 50") as error:
        run(spark, kafka_broker, tmp_path, topic, where, more)
    assert error.value.code == "internal-rows"
    write[0] = lambda frame: frame
    assert run(spark, kafka_broker, tmp_path, topic, where, more) == 2 * ROWS
    assert len(kafka_broker.consume_all(topic)) == 49 + 2 * ROWS


def test_rows_of_others_do_no_harm(spark, kafka_broker, tmp_path, write):
    kafka_broker.create_topic("taken-shared", partitions=2)

    def others(frame):
        kafka_broker.produce("taken-shared", [(n % 2, None, "theirs") for n in range(9)])
        return frame

    write.append(others)
    assert run(spark, kafka_broker, tmp_path, "taken-shared") == ROWS
    assert len(kafka_broker.consume_all("taken-shared")) == 9 + ROWS


def test_a_topic_that_was_not_there_before(spark, kafka_broker, tmp_path, write):
    def create_topic_during_write(frame):
        kafka_broker.create_topic("taken-later", partitions=2)
        return frame

    write.append(create_topic_during_write)
    assert run(spark, kafka_broker, tmp_path, "taken-later") == ROWS


def test_a_topic_that_gets_more_partitions(spark, kafka_broker):
    options = {"bootstrap.servers": kafka_broker.bootstrap_servers, "topic": "taken-grows"}
    sink, takings = AtLeastOnceSink(Sink("out", "kafka", options)), SinkRowCounter(spark)
    kafka_broker.create_topic("taken-grows", partitions=1)

    def send(partitions):
        kafka_broker.produce("taken-grows", [(n % partitions, None, "ours") for n in range(9)])

    def grow():
        kafka_broker.add_partitions("taken-grows", 4)
        send(4)

    try:
        for write in (lambda: send(1), grow, lambda: send(4)):
            assert takings.of(sink, "out", 1, "a", write, lambda: 9) == WrittenRows(9, at_least=True)
    finally:
        takings.close()


def test_what_others_wrote_into_new_partitions_before_the_tick_is_not_of_it(spark, kafka_broker, monkeypatch):
    monkeypatch.setattr("watersmeet.runtime.spark.tick.sink_row_counts.MAX_WAIT_S", 0.5)
    options = {"bootstrap.servers": kafka_broker.bootstrap_servers, "topic": "taken-others"}
    sink, takings = AtLeastOnceSink(Sink("out", "kafka", options)), SinkRowCounter(spark)
    kafka_broker.create_topic("taken-others", partitions=1)

    def send(rows, partition=0):
        kafka_broker.produce("taken-others", [(partition, None, "a row")] * rows)

    try:
        assert takings.of(sink, "out", 1, "a", lambda: send(9), lambda: 9) == WrittenRows(9, at_least=True)
        kafka_broker.add_partitions("taken-others", 2)
        send(100, partition=1)
        assert takings.of(sink, "out", 2, "a", lambda: send(4), lambda: 9) == WrittenRows(4, at_least=True)
    finally:
        takings.close()
