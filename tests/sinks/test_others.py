"""Kafka, console and memory sinks, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.support.columns import column
from watersmeet.errors import EngineError, SpecError
from watersmeet.sinks.base import KeyedRecords
from watersmeet.sinks.console import PlainPrinter, _FirstRows
from watersmeet.sinks.memory import MemorySink
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Sink
from watersmeet.types.sql_type import BIGINT, BINARY, STRING, TIMESTAMP

ORIGIN = {"rows": "of one tick"}
SERVERS = {"bootstrap.servers": "localhost:9092", "topic": "out"}


def kafka(columns, **options):
    sink = make_sink(Sink("out", "kafka", {**SERVERS, **options}))
    sink.prepare([column(name, kind) for name, kind in columns])
    return sink


def test_kafka_json_keeps_nulls_and_has_the_key():
    sink = kafka([("id", "BIGINT"), ("t", "TIMESTAMP")], key="id")
    assert sink._records._expressions([("id", BIGINT), ("t", TIMESTAMP)]) == (
        "CAST(`id` AS STRING)",
        "to_json(struct(*), map('timestampformat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS[XXXXX]',"
        " 'timestampntzformat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS', 'ignorenullfields', 'false'))",
    )


def test_kafka_raw_writes_the_single_non_key_column():
    sink = kafka([("id", "STRING"), ("body", "BINARY")], key="id", format="raw")
    assert sink._records._expressions([("id", STRING), ("body", BINARY)]) == ("`id`", "`body`")


TOLD = {"security.protocol": "SSL", "kafka.linger.ms": "5"}


def test_kafka_settings_get_their_prefix():
    sink = kafka([("id", "BIGINT")], delivery="at-least-once", **TOLD)
    assert sink._settings == {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.security.protocol": "SSL",
        "kafka.linger.ms": "5",
    }


@pytest.mark.parametrize(
    ("options", "columns", "code"),
    [
        ({"topic": ""}, [("a", "INT")], "missing-option"),
        ({"bootstrap.servers": ""}, [("a", "INT")], "missing-option"),
        ({"format": "avro"}, [("a", "INT")], "unknown-format"),
        ({"key": "idd"}, [("id", "INT")], "unknown-column"),
        ({"format": "raw"}, [("a", "INT"), ("b", "INT")], "raw-needs-one-column"),
        ({"format": "raw"}, [("a", "INT"), ("_diff", "BIGINT"), ("_tick", "BIGINT")], "raw-of-changes"),
    ],
)
def test_kafka_refuses_at_the_start(options, columns, code):
    with pytest.raises(SpecError, match=code):
        kafka(columns, **options)


def test_console_says_how_many_more(capsys):
    PlainPrinter().show("select-1", 5, ["t", "t"], [("1", None), ("[2]", "x")], 1232)
    assert capsys.readouterr().out.splitlines() == [
        "select-1, tick 5",
        "t    t",
        "1    NULL",
        "[2]  x",
        "… and 1,232 more rows",
    ]


def test_console_rows_is_a_number():
    with pytest.raises(SpecError, match="wrong-option"):
        make_sink(Sink("console", "console", {"rows": "many"}))


def test_first_rows_bounds_what_comes_back_and_counts_all():
    batches = [pa.record_batch({"c0": [str(i) for i in range(4)]}) for _ in range(3)]
    found = [row for batch in _FirstRows(6)(iter(batches)) for row in batch.to_pylist()]
    assert [row["c0"] for row in found] == ["0", "1", "2", "3", "0", "1", None]
    assert [row["__ws_rows"] for row in found] == [None] * 6 + [12]


def test_first_rows_of_nothing_is_nothing():
    assert list(_FirstRows(6)(iter([]))) == []


def test_two_columns_of_one_name_are_not_lost_in_memory():
    """Rows are dicts: the first of them would be gone, and a table of them would have the last one twice."""
    MemorySink.clear("m")
    columns = [column("at", "DATE"), column("k", "INT")]
    with pytest.raises(SpecError, match="duplicate-column"):
        make_sink(Sink("m", "memory")).prepare([*columns, column("at", "DATE")])
    make_sink(Sink("m", "memory")).prepare(columns)
    assert MemorySink.table("m").column_names == ["at", "k"]


def test_memory_publishes_once_per_tick():
    MemorySink.clear("m")
    sink = make_sink(Sink("m", "memory", {}))

    def frame(value):
        return SimpleNamespace(collect=lambda: [SimpleNamespace(asDict=lambda recursive: {"a": value})])

    for attempt, tick in (("a1", 1), ("a2", 1), ("a1", 0)):
        sink.write(frame(tick), "i", tick, attempt)
        sink.publish("i", tick, attempt, ORIGIN)
    sink.write(frame(9), "i", 9, "a9")
    sink.discard("a9")
    sink.publish("i", 9, "a9", ORIGIN)
    assert MemorySink.rows("m") == [{"a": 0}, {"a": 1}]
    sink.write(frame(5), "i", 1, "a3")
    with pytest.raises(EngineError, match="sink-of-another-tick"):
        sink.publish("i", 1, "a3", {"rows": "of another"})
    with pytest.raises(EngineError, match="sink-ahead"):
        sink.resume(["i"], Resumed(0))
    sink.resume(["i"], Resumed(0, last_parts={"i": (0, ORIGIN)}, set_aside=True))
    assert MemorySink.rows("m") == [{"a": 0}]


@pytest.mark.parametrize(
    ("key", "options", "code"),
    [
        ((), {"format": "upsert-json"}, "primary-key"),
        ((), {"format": "debezium-json"}, "primary-key"),
        (("id",), {}, "primary-key"),
        (("id",), {"format": "raw"}, "primary-key"),
        (("nosuch",), {"format": "upsert-json"}, "unknown-column"),
        (("id",), {"format": "upsert-json", "key": "id"}, "wrong-option"),
        (("id", "b"), {"format": "upsert-json", "key.format": "raw"}, "wrong-option"),
        (("id",), {"format": "upsert-json", "key.format": "avro"}, "wrong-option"),
        ((), {"key.format": "raw"}, "wrong-option"),
    ],
)
def test_what_a_primary_key_goes_with(key, options, code):
    with pytest.raises(SpecError, match=code):
        make_sink(Sink("out", "kafka", {**SERVERS, **options}, primary_key=key)).prepare(
            [column("id", "BIGINT"), column("b", "INT")]
        )


def test_records_by_a_key_are_made_before_they_are_written():
    spec = {**SERVERS, "format": "debezium-json", "key.format": "raw"}
    sink = make_sink(Sink("out", "kafka", spec, primary_key=("id",)))
    sink.prepare([column("id", "BIGINT"), column("b", "INT")])
    assert sink.keyed == KeyedRecords(("id",), events=True, plain_key=True)
    assert kafka([("id", "BIGINT")]).keyed is None
