"""JSON of Kafka's records is read to its end: what stands behind an object makes the record broken, in every
format that is JSON, and no second object is passed over.

The oracle is Python's own parser.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.support.json_records import drawn
from watersmeet.names import DIFF
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.sources import kafka
from watersmeet.runtime.spark.sources.columns import BROKEN

pytestmark = pytest.mark.spark

PLAIN = """
CREATE TABLE c (id INT, m STRUCT<a: INT>, b ARRAY<INT>, s STRING) WITH ('connector' = 'kafka', 'topic' = 't',
    'bootstrap.servers' = 'x:1', 'format' = 'json'{more});
SELECT * FROM c
"""
KEYED = """
SET output_mode = changelog;
CREATE TABLE c (id INT PRIMARY KEY NOT ENFORCED, s STRING) WITH ('connector' = 'kafka', 'topic' = 't',
    'bootstrap.servers' = 'x:1', 'format' = '{format}');
SELECT * FROM c
"""
PIECES = [
    "}",
    "]",
    ",",
    "x",
    '{"id": 6}',
    '\n{"id": 7}',
    ',{"id": 8}',
    ',"s": 2',
    ', "row": {"id": 9}',
    '], "x": [{"id": 9}',
    '], "row": [{"id": 9}',
    '], "end": 0}',
    ', "end": 0',
    " ",
    "\n",
    "\t",
    "null",
    "1",
    "//",
    '"',
]


def parse_records(spark: Any, job: str, records: list[tuple[bytes | None, bytes | None]]) -> list[Any]:
    (source,) = plan_job(parse_job(job)).sources
    raw = spark.createDataFrame(records, "key BINARY, value BINARY")
    return kafka._parse_by_format(raw, source, F.lit("0")).collect()


def texts(rng: random.Random) -> list[str]:
    found = []
    for number in range(400):
        row = drawn(rng, number, (
            ("m", [None, {"a": 1}, {}, {"a": 2, "z": {"y": [{}]}}]),
            ("b", [None, [], [1, 2]]),
            ("s", [None, "}", '{"id": 9}{', "]\n}", '"', "\\", "\u00fc"]),
            ("row", [{"id": 5}, 0]),
            ("end", [0, {}]),
        ))  # fmt: skip
        text = json.dumps(row, ensure_ascii=rng.random() < 0.5)
        text = rng.choice(["", "", " ", "\n"]) + text
        text += "".join(rng.choices(PIECES, k=rng.choice([0, 0, 1, 2])))
        found.append(text if rng.random() < 0.9 else text[: rng.randrange(len(text))])
    return found


def object_of(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def test_an_object_is_as_deep_as_spark_takes_it(spark):
    values = [b'{"a":' * depth + b"1" + b"}" * depth for depth in (1_000, 1_001)]
    rows = parse_records(spark, PLAIN.format(more=""), [(None, value) for value in values])
    assert [row[BROKEN] is None for row in rows] == [True, False]


@pytest.mark.parametrize("header", [b"", b"\0\0\0\0\7"])
def test_a_record_is_one_object_to_its_end(spark, seed, header):
    given = texts(random.Random(seed))
    more = ", 'schema.header' = 'confluent'" if header else ""
    rows = parse_records(spark, PLAIN.format(more=more), [(None, header + text.encode()) for text in given])
    broken = 0
    for text, row in zip(given, rows, strict=True):
        value = object_of(text)
        if value is None:
            assert row[BROKEN] == text, text
            broken += 1
            continue
        assert row[BROKEN] is None, text
        within = None if value.get("m") is None else value["m"].get("a")
        assert (row["id"], row["b"], row["s"]) == (value["id"], value.get("b"), value.get("s")), text
        assert (None if row["m"] is None else row["m"]["a"]) == within, text
    assert 50 < broken < len(given) - 50


BROKEN_BYTES = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc3"]


def test_bytes_that_are_no_text_break_a_record(spark):
    """In every format of text, in values and keys; whatever Unicode has is none of them."""
    for piece in [*BROKEN_BYTES, "\ufffd".encode(), "\U0010ffff".encode(), b"\x7f"]:
        is_text = piece not in BROKEN_BYTES
        value, key = (b'{"id": 1, "s": "%b"}' % piece, b'{"id": 1, "x": "%b"}' % piece)
        for job, records in (
            (PLAIN.format(more=""), [(None, value)]),
            (PLAIN.format(more="").replace("m STRUCT<a: INT>, b ARRAY<INT>, ", "").replace("'json'", "'csv'"),
             [(None, b"1,%b" % piece)]),
            (KEYED.format(format="upsert-json"), [(b'{"id": 1}', value), (key, b'{"id": 1, "s": "a"}')]),
            (KEYED.format(format="debezium-json"), [(b'{"id": 1}', b'{"op": "c", "after": %b}' % value)]),
        ):  # fmt: skip
            for row in parse_records(spark, job, records):
                assert (row[BROKEN] is None) is is_text, (piece, job)
                assert not is_text or row["s"] in ("a", piece.decode())


def test_keys_and_values_of_tables_are_whole(spark):
    two = b'{"id": 1, "s": "a"}{"id": 2, "s": "b"}'
    one = b'{"id": 1, "s": "a"}'
    rows = parse_records(
        spark,
        KEYED.format(format="upsert-json"),
        [(b'{"id": 1}', one), (b'{"id": 1}', two), (b'{"id": 1}{"id": 2}', one), (b'{"id": 1}}', None)],
    )
    assert [row[BROKEN] is None for row in rows] == [True, False, False, False]
    assert (rows[0]["id"], rows[0]["s"], rows[0][DIFF]) == (1, "a", 1)


def test_events_of_debezium_are_whole(spark):
    event = b'{"op": "c", "after": {"id": 1, "s": "a"}}'
    with_schema = b'{"schema": {}, "payload": %b}' % event
    values = [event, event + event, event + b"}", with_schema, with_schema + b"\n" + event]
    rows = parse_records(
        spark, KEYED.format(format="debezium-json"), [(b'{"id": 1}', value) for value in values]
    )
    assert [row[BROKEN] is None for row in rows] == [True, False, False, True, False]
    assert [row["s"] for row in rows if row[BROKEN] is None] == ["a", "a"]
    assert rows[1][BROKEN] == (event + event).decode()
