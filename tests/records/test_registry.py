"""Avro's records that name their schemas: schemas that change, those that are not there, and who may ask."""

from __future__ import annotations

import io
import json
import socket
import struct
import threading
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.support.columns import column
from tests.support.registry import SchemaRegistry
from watersmeet.errors import EngineError
from watersmeet.runtime.records.decoding import VALUE, Decoding, RegistryDecoder
from watersmeet.runtime.records.schema_registry import Registry
from watersmeet.spec.secrets import Secret

LONG = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "shop.Order", "fields": list(fields)}


READER = record(LONG, NOTE)
COLUMNS = (column("id", "BIGINT"), column("note", "STRING"))


def encode_framed_record(number: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO(struct.pack(">bi", 0, number))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read(registry: Registry, records: list[bytes | None]) -> list[Any]:
    """Per record its row, or why it is broken."""
    task = Decoding(RegistryDecoder(registry, COLUMNS, json.dumps(READER)), ("id", "note"), "broken")
    (batch,) = task(iter([pa.RecordBatch.from_arrays([pa.array(records, pa.binary())], names=[VALUE])]))
    batch.validate(full=True)
    return [
        json.loads(row["broken"])["why"] if row["broken"] else (row["id"], row["note"])
        for row in batch.to_pylist()
    ]


def test_each_record_is_read_by_its_own_schema():
    more = record({"name": "more", "type": "string"}, NOTE, LONG)
    fewer = record({"name": "id", "type": "int"})
    other = record({"name": "id", "type": "string"}, NOTE)
    gone = record(NOTE)
    with SchemaRegistry() as server:
        for number, schema in enumerate([READER, more, fewer, other, gone], start=1):
            server.add(number, schema)
        server.add(7, {"not": "avro"}, schemaType="JSON")
        server.add(8, record({"name": "id", "type": "shop.Id"}, NOTE),
                   references=[{"name": "shop.Id", "subject": "ids/x", "version": 2}])  # fmt: skip
        enum = {"type": "enum", "name": "shop.Id", "symbols": ["A"]}
        server.schemas["/subjects/ids%2Fx/versions/2"] = {"schema": json.dumps(enum)}
        registry = Registry(server.url, unknown_is_broken=True)
        records = [
            encode_framed_record(1, READER, {"id": 1, "note": "a"}),
            encode_framed_record(2, more, {"more": "m", "note": None, "id": 2}),
            encode_framed_record(3, fewer, {"id": 3}),
            encode_framed_record(4, other, {"id": "4", "note": None}),
            encode_framed_record(5, gone, {"note": None}),
            encode_framed_record(6, READER, {"id": 6}),
            encode_framed_record(7, READER, {"id": 7}),
            encode_framed_record(8, READER, {"id": 8}),
            encode_framed_record(1, READER, {"id": 9})[:-1],
            b"\x01" + encode_framed_record(1, READER, {"id": 10})[1:],
            b"\x00\x00",
            b"",
            None,
            encode_framed_record(1, READER, {"id": 11, "note": "z"}),
        ]
        wanted = [
            (1, "a"),
            (2, None),
            (3, None),
            'schema 4: column "id" is declared BIGINT, but the schema has string',
            'schema 5: column "id" is not in the schema, which has note',
            "the registry has no Avro schema 6",
            "the registry has no Avro schema 7",
            'schema 8: column "id" is declared BIGINT, but the schema has enum shop.Id',
            "it ends early",
            "it does not begin with a schema id",
            "it ends early",
            "it ends early",
            "it has no value",
            (11, "z"),
        ]
        assert read(registry, records) == wanted
        asked = list(server.asked)
        server.add(6, READER)  # in the meantime
        assert read(registry, records[:6]) == [*wanted[:5], (6, None)]
        assert len(server.asked) == len(asked) + 1
        assert read(registry, [None, b""]) == ["it has no value", "it ends early"]


def test_a_registry_that_comes_back_and_one_that_does_not():
    with SchemaRegistry() as server:
        server.add(1, READER)
        server.failures = 2
        assert read(Registry(server.url), [encode_framed_record(1, READER, {"id": 1})]) == [(1, None)]
        url = server.url
    with pytest.raises(EngineError, match=f"registry at {url} does not answer: ") as caught:
        read(Registry(url, patience_s=0.1), [encode_framed_record(2, READER, {"id": 1})])
    assert caught.value.code == "registry-away"


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"])
def test_an_answer_that_comes_drop_by_drop_is_not_waited_for(monkeypatch, head):
    """Each drop comes in time: of the answer's head, or of what follows."""
    monkeypatch.setattr("watersmeet.runtime.records.schema_registry.WHOLE_S", 0.3)
    ended = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            connection.sendall(head)
            while not ended.wait(0.05):
                connection.sendall(b" " if head else b"H")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: drip(server.accept()[0]), daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(
            EngineError, match=r"does not answer: its answer is incomplete after 0.3 s"
        ) as away:
            read(Registry(url, patience_s=0.1), [encode_framed_record(1, READER, {"id": 1})])
        assert away.value.code == "registry-away"
        ended.set()


def test_credentials_reach_only_the_registry():
    record = encode_framed_record(1, READER, {"id": 1})
    with SchemaRegistry(login=("ada", "very-secret")) as server:
        server.add(1, READER)
        registry = Registry(server.url, "ada", Secret("very-secret"))
        assert "very-secret" not in repr(Decoding(RegistryDecoder(registry, COLUMNS, ""), (), ""))
        assert read(registry, [record]) == [(1, None)]
        with pytest.raises(EngineError) as caught:
            read(Registry(server.url, "ada", Secret("very-wrong")), [record])
        assert caught.value.code == "registry-refused"
        assert "very-wrong" not in str(caught.value)


def test_a_schema_that_is_not_there_is_waited_for_and_then_stops_the_job():
    """It may be there when the tick is repeated: counted as broken, the record would then be another."""
    records = [encode_framed_record(1, READER, {"id": 1}), encode_framed_record(5, READER, {"id": 5})]
    with SchemaRegistry() as server:
        server.add(1, READER)
        with pytest.raises(EngineError, match=r"has no schema 5, but a record uses it") as caught:
            read(Registry(server.url, patience_s=0.1), records)
        assert caught.value.code == "schema-unknown"
        registering = threading.Timer(0.5, server.add, (5, READER))
        registering.start()
        assert read(Registry(server.url), records) == [(1, None), (5, None)]
        registering.join()


@pytest.mark.parametrize(
    ("code", "body", "why"),
    [
        (404, b"<html>no such page</html>", "HTTP 404"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', "HTTP 404"),
        (200, b"<html>welcome</html>", "not a schema"),
        (200, b"[]", "not a schema"),
        (200, b"[" * 100_000, "not a schema"),
    ],
)
def test_what_is_no_registry_breaks_no_records(code, body, why):
    """A wrong path would make all records broken, and a job that goes on."""
    with SchemaRegistry() as server:
        server.answers["/schemas/ids/1"] = (code, body)
        for is_broken in (False, True):
            registry = Registry(server.url, patience_s=0.1, unknown_is_broken=is_broken)
            with pytest.raises(EngineError, match=f"is not a schema registry: .*{why}"):
                read(registry, [encode_framed_record(1, READER, {"id": 1})])


@pytest.mark.parametrize("answer", [{"schema": 5}, {"nothing": 1}, {"schema": None, "status": "maintenance"}])
@pytest.mark.parametrize("unknown_is_broken", [False, True])
def test_an_answer_without_a_schema_is_no_registry(answer, unknown_is_broken):
    """What a gateway says while the registry is away makes no record broken."""
    refers = [{"name": "shop.Other", "subject": "other", "version": 1}]
    with SchemaRegistry() as server:
        server.schemas["/schemas/ids/1"] = answer
        server.add(2, READER, references=refers)
        server.schemas["/subjects/other/versions/1"] = answer
        for number in (1, 2):
            with pytest.raises(EngineError) as raised:
                read(
                    Registry(server.url, unknown_is_broken=unknown_is_broken),
                    [encode_framed_record(number, READER, {"id": 1})],
                )
            assert raised.value.code == "no-registry"
        server.add(1, READER)
        assert read(Registry(server.url), [encode_framed_record(1, READER, {"id": 1})]) == [(1, None)]


@pytest.mark.parametrize(
    "answer",
    [
        {"schema": json.dumps(READER), "references": [{"name": "a"}]},
        {"schema": json.dumps(READER), "references": ["a"]},
        {"schema": "[" * 100_000},
    ],
)
def test_a_schema_that_is_none(answer):
    with SchemaRegistry() as server:
        server.schemas["/schemas/ids/1"] = answer
        assert read(Registry(server.url), [encode_framed_record(1, READER, {"id": 1})]) == [
            "the registry has no Avro schema 1"
        ]
