"""Records with a schema beside them through a real Kafka: values, and schemas that change."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from collections import Counter
from decimal import Decimal
from functools import partial
from typing import Any

import fastavro
import pytest

import watersmeet
from tests.engine.spark.running import until_caught_up
from tests.support.protobuf import classes, descriptors, file_of
from tests.support.registry import SchemaRegistry
from watersmeet.errors import WatersmeetError
from watersmeet.plan.explain import explain
from watersmeet.runtime.records import decoding
from watersmeet.runtime.records.schema_registry import Registry
from watersmeet.runtime.spark.sources import frames
from watersmeet.sinks.memory import MemorySink

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

UTC = dt.UTC


@pytest.fixture(autouse=True)
def memory():
    MemorySink.clear()
    yield
    MemorySink.clear()


PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
BUYER = {
    "type": "record",
    "name": "Buyer",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": ["null", PRICE]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "DONE"]}},
        {"name": "buyer", "type": BUYER},
    ],
}


def avro(schema: Any, **value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def order(number: int, price: Any = None, schema: Any = ORDER, **more: Any) -> bytes:
    at = dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=number, microseconds=1)
    value = {
        "id": number,
        "at": at,
        "price": price,
        "state": "DONE",
        "buyer": {"name": "Zoë", "tags": {"a": number}},
    }
    return avro(schema, **value | more)


JOB = """
SET broken_output = 'bad';
CREATE TABLE o (id BIGINT, part INT, at TIMESTAMP, price DECIMAL(11,4), state STRING,
    buyer STRUCT<name: STRING, tags: MAP<STRING, INT>>, k STRING, WATERMARK FOR at)
  WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = '{topic}', 'format' = 'avro',
    'avro.schema' = '{schema}', 'metadata.part' = 'partition', 'metadata.k' = 'key');
CREATE TABLE out WITH ('connector' = 'memory'); CREATE TABLE bad WITH ('connector' = 'memory');
INSERT INTO out SELECT id, part, at, price, state, buyer.name, buyer.tags['a'] AS tag, k FROM o;
"""


def broken() -> Counter[tuple[str, bytes]]:
    told = [json.loads(row["record"]) for row in MemorySink.rows("bad")]
    return Counter((each["why"], base64.b64decode(each["base64"])) for each in told)


def test_avro_of_one_schema(spark, kafka_broker, tmp_path):
    """Its producers go on to other schemas in the middle: what is read is right, the rest is counted."""
    kafka_broker.create_topic("avro", partitions=2)
    more = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string"}]}
    fewer = {**ORDER, "fields": ORDER["fields"][:-1]}
    other = {**ORDER, "fields": [{"name": "id", "type": "string"}, *ORDER["fields"][1:]]}
    good = [order(1, Decimal("1.25")), order(2, None), order(3, Decimal("-0.01"))]
    wrong = [
        order(4, schema=more, note="n"),
        order(5, schema=fewer),
        order(6, schema=other, id="seven"),
        b"",
        b"no Avro",
        order(7)[:-1],
    ]
    kafka_broker.produce("avro", [(0, "k", good[0]), (1, None, good[1]), *((0, None, raw) for raw in wrong)])
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    job = JOB.format(servers=kafka_broker.bootstrap_servers, topic="avro", schema=tmp_path / "order.avsc")
    until_caught_up(spark, job, tmp_path / "state")
    kafka_broker.produce("avro", [(1, None, None), (1, None, good[2])])
    run = until_caught_up(spark, job, tmp_path / "state")
    at = dt.datetime(2024, 1, 1)
    assert Counter(tuple(row.values()) for row in MemorySink.rows("out")) == Counter(
        (n, part, at + dt.timedelta(seconds=n, microseconds=1), price, "DONE", "Zoë", n, key)
        for n, part, price, key in [
            (1, 0, Decimal("1.2500"), "k"),
            (2, 1, None, None),
            (3, 1, Decimal("-0.0100"), None),
        ]
    )
    assert run.total("broken", "out", "o") == len(wrong) + 1
    assert {raw for _, raw in broken()} == {*wrong}
    assert broken()["it has no value", b""] == 1


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("id BIGINT", "id INT", ['column "id" is declared INT, but the schema has long']),
        (
            "state STRING",
            "state DATE, more INT",
            ['column "state" is declared DATE', 'column "more" is not in the schema, which has '],
        ),
        ("tags: MAP<STRING, INT>", "tags: MAP<STRING, STRING>", ['"buyer.tags[]" is declared STRING']),
        (
            "'format' = 'avro'",
            "'format' = 'json'",
            ['option "avro.schema" is for the format avro, but the format is json'],
        ),
        ("'avro.schema' = '{schema}',", "", ['needs the option "avro.schema"']),
        ("'{schema}'", "'none.avsc'", ['"none.avsc" cannot be read: No such file']),
        ("'{schema}'", "'[]'", ["option 'avro.schema': a union cannot contain a union"]),
    ],
)
def test_what_does_not_fit_is_refused(was, now, words):
    text = JOB.replace(was, now).format(servers="localhost:1", topic="t", schema=json.dumps(ORDER))
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(watersmeet.parse_job(text))
    for each in words:
        assert each in str(caught.value)


SHOP = file_of(
    {
        "Order": [
            ("id", 1, "uint64"),
            ("at", 2, ".google.protobuf.Timestamp"),
            ("note", 3, "string", "optional"),
        ]
    }
)
CHANGED = file_of(
    {
        "More": [("id", 1, "uint64"), ("at", 2, ".google.protobuf.Timestamp"), ("more", 9, "int32")],
        "Fewer": [("at", 2, ".google.protobuf.Timestamp")],
        "Other": [("id", 1, "string"), ("at", 2, ".google.protobuf.Timestamp")],
    }
)
BOTH = """
SET broken_output = 'bad';
CREATE TABLE p (id DECIMAL(20,0), at TIMESTAMP, note STRING, WATERMARK FOR at)
  WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = 'protobuf', 'format' = 'protobuf',
    'protobuf.descriptor' = '{folder}/shop.desc', 'protobuf.message' = 't.Order');
CREATE TABLE j (id BIGINT, at TIMESTAMP, note STRING, WATERMARK FOR at)
  WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = 'json');
CREATE TABLE out_p WITH ('connector' = 'memory'); CREATE TABLE out_j WITH ('connector' = 'memory');
CREATE TABLE bad WITH ('connector' = 'memory');
INSERT INTO out_p SELECT * FROM p;
INSERT INTO out_j SELECT * FROM j;
"""


def test_protobuf_and_json_whose_schemas_change(spark, kafka_broker, tmp_path):
    """A field more, a field less, and one of another type: right, as absent fields are, or counted."""
    order, made = classes(SHOP)["Order"], classes(CHANGED)
    day = dt.datetime(2024, 1, 1)
    sent = [
        order(id=2**64 - 1, at=day, note=""),
        order(id=1, at=day),
        made["More"](id=2, at=day, more=5),
        made["Fewer"](at=day),
        made["Other"](id="3", at=day),
    ]
    kafka_broker.create_topic("protobuf")
    kafka_broker.produce("protobuf", [(0, None, message.SerializeToString()) for message in sent])
    texts = [
        '{"id": 1, "at": "2024-01-01T00:00:00Z", "note": "n"}',
        '{"id": 2, "at": "2024-01-01T00:00:00Z", "more": 5}',
        '{"at": "2024-01-01T00:00:00Z"}',
        '{"id": "three", "at": "2024-01-01T00:00:00Z"}',
    ]
    kafka_broker.create_topic("json")
    kafka_broker.produce("json", [(0, None, text) for text in texts])
    (tmp_path / "shop.desc").write_bytes(descriptors(SHOP))
    run = until_caught_up(
        spark, BOTH.format(servers=kafka_broker.bootstrap_servers, folder=tmp_path), tmp_path / "state"
    )
    assert Counter(tuple(row.values()) for row in MemorySink.rows("out_p")) == Counter(
        [
            (Decimal(2**64 - 1), day, ""),
            (Decimal(1), day, None),
            (Decimal(2), day, None),
            (Decimal(0), day, None),
        ]
    )
    assert Counter(tuple(row.values()) for row in MemorySink.rows("out_j")) == Counter(
        [(1, day, "n"), (2, day, None), (None, day, None)]
    )
    assert (run.total("broken", "out_p", "p"), run.total("broken", "out_j", "j")) == (1, 1)
    assert {(row["stream"], row["record"]) for row in MemorySink.rows("bad")} == {
        ("j", texts[3]),
        ("p", json.dumps({
            "why": '"id" has another type',
            "base64": base64.b64encode(sent[4].SerializeToString()).decode(),
        })),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("id DECIMAL(20,0)", "id BIGINT", ['column "id" is declared BIGINT, but the message has uint64']),
        ("'t.Order'", "'t.Ordre'", ['there is no message "t.Ordre"; there are t.Order']),
        (", 'protobuf.message' = 't.Order'", "", ['needs the option "protobuf.message"']),
        ("shop.desc", "none.desc", ["cannot be read: No such file"]),
        ("shop.desc", "no.desc", ["option 'protobuf.descriptor': it is not a descriptor"]),
    ],
)
def test_what_does_not_fit_a_message_is_refused(tmp_path, was, now, words):
    (tmp_path / "shop.desc").write_bytes(descriptors(SHOP))
    (tmp_path / "no.desc").write_bytes(b"nothing")
    text = BOTH.replace(was, now).replace("\n    'protobuf.descriptor'", " 'protobuf.descriptor'")
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(watersmeet.parse_job(text.format(servers="localhost:1", folder=tmp_path)))
    for each in words:
        assert each in str(caught.value)


REGISTERED = """
SET broken_output = 'bad';
CREATE TABLE o (id BIGINT, note STRING, at TIMESTAMP, WATERMARK FOR at)
  WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = 'registered', 'format' = 'avro',
    'avro.schema' = '{schema}', 'schema.registry' = '{url}', 'schema.registry.user' = 'ada',
    'schema.registry.password' = 'very-secret', 'metadata.at' = 'timestamp');
CREATE TABLE out WITH ('connector' = 'memory'); CREATE TABLE bad WITH ('connector' = 'memory');
INSERT INTO out SELECT id, note FROM o;
"""


def test_a_registry_tells_the_schema_of_each_record(spark, kafka_broker, tmp_path, monkeypatch):
    """One that comes while the job is stopped, too; the password is in none of its files, nor in the plan."""
    kafka_broker.create_topic("registered")
    number, text = (
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    )
    reader = {"type": "record", "name": "R", "fields": [number, text]}
    older = {"type": "record", "name": "R", "fields": [number]}
    other = {"type": "record", "name": "R", "fields": [text, {"name": "id", "type": "int"}]}

    def add_schema_header(schema_number: int, raw: bytes) -> bytes:
        return b"\x00" + schema_number.to_bytes(4, "big") + raw

    with SchemaRegistry(login=("ada", "very-secret")) as server:
        server.add(1, older)
        server.add(2, reader)
        job = REGISTERED.format(
            servers=kafka_broker.bootstrap_servers, schema=json.dumps(reader), url=server.url
        )
        first = [
            add_schema_header(1, avro(older, id=1)),
            add_schema_header(2, avro(reader, id=2, note="b")),
            add_schema_header(3, b"x"),
        ]
        kafka_broker.produce("registered", [(0, None, raw) for raw in first])
        with monkeypatch.context() as patience:
            patience.setattr(decoding, "Registry", partial(Registry, patience_s=0.2))
            with pytest.raises(WatersmeetError, match="has no schema 3, but a record uses it") as caught:
                until_caught_up(spark, job, tmp_path / "state")
        assert caught.value.code == "schema-unknown"
        assert not MemorySink.rows("out")
        job = job.replace("'metadata.at'", "'schema.registry.unknown' = 'broken', 'metadata.at'")
        run = until_caught_up(spark, job, tmp_path / "state")
        assert run.total("broken", "out", "o") == 1
        server.add(3, other)
        kafka_broker.produce("registered", [(0, None, add_schema_header(3, avro(other, id=3, note="c")))])
        run = until_caught_up(spark, job, tmp_path / "state")
    assert {tuple(row.values()) for row in MemorySink.rows("out")} == {(1, None), (2, "b"), (3, "c")}
    assert broken() == {("the registry has no Avro schema 3", first[2]): 1}
    files = [file for file in (tmp_path / "state").rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"very-secret" in file.read_bytes()]
    plan = watersmeet.plan_job(watersmeet.parse_job(job))
    assert "very-secret" not in repr(plan) + explain(plan)
    read = frames.read(spark, plan.sources[0])
    assert "very-secret" not in str(read._jdf.queryExecution().toString())


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("'{url}'", "'ftp://x'", "option 'schema.registry' is 'ftp://x'"),
        ("'{url}'", "'http://me:hidden@x'", "option 'schema.registry' is 'http://***@x'"),
        (
            "'format' = 'avro',\n    'avro.schema' = '{schema}',",
            "",
            'option "schema.registry" is for the format avro',
        ),
        ("'schema.registry' = '{url}', ", "", 'needs "schema.registry"'),
        (
            "'schema.registry.user'",
            "'schema.registry.unknown' = 'brocken', 'schema.registry.user'",
            "option 'schema.registry.unknown' is 'brocken'",
        ),
    ],
)
def test_what_is_wrong_with_a_registry_is_refused(was, now, words):
    assert was in REGISTERED
    reader = json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "long"}, {"name": "note", "type": "string"}]})  # fmt: skip
    text = REGISTERED.replace(was, now).format(servers="localhost:1", schema=reader, url="http://localhost:1")
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(watersmeet.parse_job(text))
    assert words in str(caught.value)
    assert "hidden" not in str(caught.value)


HEADED = """
SET broken_output = 'bad';
CREATE TABLE o (id BIGINT, at TIMESTAMP, WATERMARK FOR at)
  WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = 'headed',
    'schema.header' = 'confluent', 'metadata.at' = 'timestamp');
CREATE TABLE out WITH ('connector' = 'memory'); CREATE TABLE bad WITH ('connector' = 'memory');
INSERT INTO out SELECT id FROM o;
"""


def test_json_after_a_schema_id_header_is_read(spark, kafka_broker, tmp_path):
    """A record without the header is broken, whatever it says; so is one behind it that is no JSON."""
    kafka_broker.create_topic("headed")
    head = b"\x00\x00\x00\x00\x07"
    good = [head + b'{"id": 1}', b"\x00\xff\xff\xff\xff" + b'{"id": 2}']
    wrong = [b'{"id": 3}', head + b"{", head, head[:4], b"", b"\x01" + head[1:] + b'{"id": 4}']
    kafka_broker.produce("headed", [(0, None, raw) for raw in [*good, *wrong]])
    run = until_caught_up(spark, HEADED.format(servers=kafka_broker.bootstrap_servers), tmp_path / "state")
    assert sorted(row["id"] for row in MemorySink.rows("out")) == [1, 2]
    assert run.total("broken", "out", "o") == len(wrong)
    assert {row["record"] for row in MemorySink.rows("bad")} >= {'{"id": 3}', "{"}


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("'confluent'", "'glue'", "option 'schema.header' is 'glue'"),
        (
            "'schema.header'",
            "'format' = 'csv', 'schema.header'",
            'option "schema.header" is for the format json, but the format is csv',
        ),
    ],
)
def test_what_is_wrong_with_a_header_is_refused(was, now, words):
    assert was in HEADED
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(watersmeet.parse_job(HEADED.replace(was, now).format(servers="localhost:1")))
    assert words in str(caught.value)
