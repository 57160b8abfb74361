"""Options of Kafka sources and sinks: what nobody would read is refused, with the nearest name."""

from __future__ import annotations

import pytest

from tests.support.columns import column
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options.kafka import CONSUMER, PRODUCER
from watersmeet.spec.options.names import sink_option_problems, source_option_problems

NEEDED = {"topic": "x", "bootstrap.servers": "x:1"}


def source(**options):
    return Source("a", (column("k", "STRING"),), "kafka", {**NEEDED, **options})


def sink(**options):
    return Sink("a", "kafka", {**NEEDED, **options})


@pytest.mark.parametrize(
    ("name", "value", "code", "hint"),
    [
        ("starting.offsets", "earliest", "unknown-option", "startingOffsets"),
        ("kafka.bootstrap.server", "x", "unknown-option", 'did you mean "kafka.bootstrap.servers"?'),
        ("fetch.min.byte", "1", "unknown-option", 'did you mean "fetch.min.bytes"?'),
        ("sasl.mechanisms", "PLAIN", "unknown-option", 'did you mean "sasl.mechanism"?'),
        ("registry.url", "x", "unknown-option", "'kafka.registry.url'"),
        ("kafka.auto.offset.reset", "latest", "wrong-option", "'startingOffsets'"),
        ("value.deserializer", "x", "wrong-option", "'format'"),
        ("kafka.bootstrap.servers", "y:1", "wrong-option", "'bootstrap.servers', which is the same option"),
        ("metadata.q", "key", "unknown-option", '"k"'),
        ("metadata.k", "ofset", "wrong-option", 'did you mean "offset"'),
        ("failOnDataLoss", "false", "wrong-option", "lost silently"),
        ("failOnDataLoss", "no", "wrong-option", "--accept-loss a"),
        ("csv.sep", ";", "unknown-option", "'format' = 'csv'"),
        ("json.dateFromat", "y", "unknown-option", 'json.dateFormat'),
        ("json.mode", "FAILFAST", "unknown-option", "broken_output"),
        ("json.timestampFormat", "YYYY", "wrong-option", "yyyy is"),
        ("startingOffsets", "newest", "wrong-option", "'latest'"),
        ("startingOffsets", '{"y": {"0": 5}}', "wrong-option", 'does not read the topic "y"'),
        ("startingOffsets", "{}", "wrong-option", "'earliest'"),
        ("maxOffsetsPerTrigger", "many", "wrong-option", "above zero"),
        ("minPartitions", "0", "wrong-option", "above zero"),
        ("topic", " ", "missing-option", "'topic' = 'orders'"),
        ("bootstrap.servers", "", "missing-option", "'localhost:9092'"),
        ("format", "jsn", "unknown-format", 'did you mean "json"?'),
    ],
)  # fmt: skip
def test_options_of_sources(name, value, code, hint):
    (refused,) = source_option_problems(source(**{name: value}))
    assert refused.code == code
    assert 'Kafka source "a"' in refused.message
    assert f'"{name}"' in refused.message or f"'{name}'" in refused.message or value in refused.message
    assert hint in refused.hint


@pytest.mark.parametrize("format_", ["jsn", "parquet", "avro"])
def test_formats_of_sinks(format_):
    (refused,) = sink_option_problems(sink(format=format_))
    assert refused.code == "unknown-format"
    assert refused.message == f'Kafka sink "a" cannot write format "{format_}"'


def test_places_of_sinks():
    assert [p.code for p in sink_option_problems(Sink("a", "kafka", {}))] == ["missing-option"] * 2
    assert sink_option_problems(Sink("a", "kafka", {"topic": "x", "Kafka.Bootstrap.Servers": "x:1"})) == []


def test_raw_fills_one_column():
    columns = (column("k", "STRING"), column("v", "STRING"), column("key", "STRING"))
    (refused,) = source_option_problems(Source("a", columns, "kafka", {**NEEDED, "format": "raw"}))
    assert (refused.code, "2 are declared" in refused.message) == ("raw-needs-one-column", True)
    assert source_option_problems(Source("a", columns[1:], "kafka", {**NEEDED, "format": "raw"})) == []


def test_valid_source_and_sink_options_are_accepted():
    taken = {
        "format": "json", "startingOffsets": '{"x": {"0": 5, "1": -2}}', "maxOffsetsPerTrigger": "10",
        "metadata.k": " Key", "failOnDataLoss": "TRUE",
        "json.dateFormat": "yyyy", "fetch.min.bytes": "1", "kafka.Fetch.Max.Bytes": "1",
        "sasl.jaas.config": "x", "ssl.truststore.location": "x", "kafka.my.own.interceptor.setting": "x",
    }  # fmt: skip
    assert source_option_problems(source(**taken)) == []
    written = {"key": "k", "acks": "all", "kafka.linger.ms": "5", "compression.type": "zstd", "ACKS": "1"}
    written["delivery"] = "at-least-once"
    assert sink_option_problems(sink(**written)) == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [("compresion.type", '"compression.type"'), ("kafka.linger.msec", '"kafka.linger.ms"'), ("Keys", "key")],
)
def test_options_of_sinks(name, hint):
    (refused,) = sink_option_problems(sink(**{name: "x"}))
    assert (refused.code, f'Kafka sink "a" has no option "{name}"') == ("unknown-option", refused.message)
    assert hint in refused.hint


@pytest.mark.kafka
def test_the_names_are_those_of_the_clients(spark):
    clients = spark._jvm.org.apache.kafka.clients
    assert set(clients.consumer.ConsumerConfig.configNames()) == CONSUMER
    assert set(clients.producer.ProducerConfig.configNames()) == PRODUCER
