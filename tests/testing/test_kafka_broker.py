"""The broker of the test kit is a real one: what is sent is there, in order, also after it went away."""

from __future__ import annotations

import pytest

from tests.support.kafka import JARS_VARIABLE, KafkaBroker, broker_jars
from watersmeet.errors import WatersmeetError

pytestmark = pytest.mark.full


def test_missing_jars_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    with pytest.raises(WatersmeetError, match="no Kafka broker") as caught:
        broker_jars()
    assert caught.value.code == "no-kafka-broker"
    assert "scripts/jars" in caught.value.hint


@pytest.mark.kafka
def test_records_come_back_by_partition_and_offset(kafka_broker):
    kafka_broker.create_topic("kit-order", partitions=3)
    kafka_broker.produce("kit-order", [(2, "c", "1"), (0, None, b"2", 1_356_998_400_000), (2, "c", None)])
    assert kafka_broker.consume_all("kit-order") == [(0, None, b"2"), (2, b"c", b"1"), (2, b"c", None)]


@pytest.mark.kafka
def test_empty_topic_has_no_records_and_a_deleted_one_is_missing(kafka_broker):
    from confluent_kafka import KafkaException

    kafka_broker.create_topic("kit-empty", partitions=2)
    assert kafka_broker.consume_all("kit-empty") == []
    kafka_broker.delete_topic("kit-empty")
    with pytest.raises(KafkaException):
        kafka_broker.consume_all("kit-empty")


@pytest.mark.kafka
def test_a_restarted_broker_keeps_port_and_data():
    with KafkaBroker() as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("kept", partitions=2)
        broker.produce("kept", ((n % 2, None, str(n)) for n in range(10_000)))

        broker.restart()
        assert broker.running
        assert broker.bootstrap_servers == servers
        assert len(broker.consume_all("kept")) == 10_000

        broker.produce("kept", [(0, None, "after the restart")])
        broker.kill()
        assert not broker.running
        broker.start()
        records = broker.consume_all("kept")
        assert [int(value) for partition, _, value in records if partition == 1] == list(range(1, 10_000, 2))
        assert records[5_000] == (0, None, b"after the restart")
    assert not broker.running
