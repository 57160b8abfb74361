"""Records of Kafka read in this process: each that is read is what Spark makes of it, and what Spark finds
broken is left out."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.columns import column
from watersmeet.cli.why.records import RecordsAgain
from watersmeet.errors import EngineError
from watersmeet.names import DIFF, PARTITION
from watersmeet.runtime.spark.rounded_decimals import rounded_column, wider_columns
from watersmeet.runtime.spark.sources import kafka
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.spec.model import Source

RECORDS = 400
TYPES = {
    "n": "BIGINT",
    "i": "INT",
    "d": "DOUBLE",
    "p": "DECIMAL(8,2)",
    "s": "STRING",
    "b": "BOOLEAN",
    "t": "TIMESTAMP",
    "day": "DATE",
}
BESIDE = {
    "at": ("TIMESTAMP", "timestamp"),
    "off": ("BIGINT", "offset"),
    "part": ("INT", "partition"),
    "k": ("STRING", "key"),
}
VALUES = {
    "n": ["0", "-7", "9223372036854775807", "9223372036854775808", "1e3", "1.0", "07", '"5"', "true"],
    "i": ["1", "-2147483648", "2147483648", " 3", "3 "],
    "d": ["1.5", "-0.0", "1e400", "NaN", '"NaN"', "12", ".5", "5."],
    "p": ["1.25", "1.255", "999999.99", "1000000.00", "-0.1", "3"],
    "s": ['"a"', '"\\u00e9"', '"x,y"', "5", "{}", '""', '" a "', '"it\'s"', "null"],
    "b": ["true", "false", "TRUE", '"true"', "1"],
    "t": [
        '"2026-03-01 10:00:00"',
        '"2026-03-01T10:00:00.123456Z"',
        '"2026-03-01T10:00:00+02:00"',
        '"2026-13-01"',
        "17",
        '"10:00"',
    ],
    "day": ['"2026-03-01"', '"2026-3-1"', '"2026-02-30"', "3"],
}
ODD = [
    None,
    b"",
    b"{}",
    b"null",
    b"[]",
    b"{",
    b"\xff{}",
    b'{"n": 1}{"n": 2}',
    b'{"n": 1} x',
    b' {"n": 1}\n',
    b"\xef\xbb\xbf{}",
    b"[{}]",
    b"{'n': 1}",
    b'{"n": 1, "n": 2}',
    b'{"s": "\\ud800"}',
    b"\0\0\0\0\1{}",
]


def as_json(rng: random.Random) -> bytes:
    fields = [f'"{name}": {rng.choice(VALUES[name])}' for name in VALUES if rng.random() < 0.25]
    return ("{" + ", ".join(fields) + "}").encode()


def as_csv(rng: random.Random, null: str = "") -> bytes:
    """Mostly of as many values as there are columns, as they are written in JSON, with and without quotes."""
    values = []
    for of in VALUES.values():
        value = rng.choice([*of[:3], null]) if rng.random() < 0.97 else rng.choice(of)
        values.append(value.strip('"') if rng.random() < 0.8 else value)
    return ",".join(values[: rng.choice([8, 8, 8, 8, 7, 9])]).encode()


AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "l", "type": {"type": "array", "items": "int"}},
    ],
}


def as_avro(rng: random.Random) -> bytes:
    out = io.BytesIO()
    time = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=rng.randint(0, 10**6))
    row = {
        "n": rng.randint(-9, 9),
        "s": rng.choice([None, "x", "é"]),
        "t": time,
        "l": [1, 2][: rng.randint(0, 2)],
    }
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), row)
    return out.getvalue()


def source(types: dict[str, str], **options: str) -> Source:
    beside = {f"metadata.{name}": of for name, (_, of) in BESIDE.items()}
    columns = [column(name, type_) for name, type_ in types.items()]
    columns += [column(name, type_) for name, (type_, _) in BESIDE.items()]
    given = {"topic": "x", "bootstrap.servers": "nowhere:1", **beside, **options}
    return Source("s", tuple(columns), "kafka", given)


def with_header(rng: random.Random) -> bytes:
    return b"\0\0\0\0\1" + as_json(rng)


def with_options(rng: random.Random) -> bytes:
    return as_csv(rng, "NULL").replace(b",", b";")


OPTIONS = {"format": "csv", "csv.sep": ";", "csv.nullValue": "NULL"}
OF_AVRO = {"n": "BIGINT", "s": "STRING", "t": "TIMESTAMP", "l": "ARRAY<INT>"}
NONE = [None, b"", b"\xff"]
CASES = [
    pytest.param(source(TYPES), as_json, ODD, id="json"),
    pytest.param(source(TYPES, **{"schema.header": "confluent"}), with_header, ODD, id="json with a header"),
    pytest.param(source(TYPES, format="csv"), as_csv, [*NONE, b" ", b"1\n2"], id="csv"),
    pytest.param(source(TYPES, **OPTIONS), with_options, [], id="csv with options"),
    pytest.param(source({"v": "STRING"}, format="raw"), as_csv, NONE, id="raw"),
    pytest.param(source({"v": "BINARY"}, format="raw"), as_csv, NONE, id="bytes"),
    pytest.param(
        source(OF_AVRO, **{"format": "avro", "avro.schema": json.dumps(AVRO)}), as_avro, NONE, id="avro"
    ),
]


@pytest.mark.spark
@pytest.mark.parametrize(("given", "draw", "odd"), CASES)
def test_as_spark_reads_them(
    given: Source, draw: Any, odd: list[bytes | None], spark: Any, seed: int
) -> None:
    rng = random.Random(f"{seed} {given.options}")
    values = [*odd, *(draw(rng) for _ in range(RECORDS))]
    keys = [rng.choice([None, b"k", b"", "é".encode(), b"\xff"]) for _ in values]
    stamps = [rng.randint(0, 2 * 10**12) for _ in values]
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    raw = spark.createDataFrame(
        [
            (k, v, "x", 3, n, datetime.fromtimestamp(ms / 1000, UTC))
            for n, (k, v, ms) in enumerate(zip(keys, values, stamps, strict=True))
        ],
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP",
    )
    by_spark = kafka.parse_records(raw, given).drop(*map(rounded_column, wider_columns(given))).toArrow()
    needed = frozenset(own.name for own in given.columns)
    taken = RecordsAgain(given, "Europe/Berlin", needed)(
        "x",
        3,
        pa.array(range(len(values))),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(stamps),
    )
    assert sorted([*taken.records.tolist(), *taken.left_out]) == list(range(len(values)))
    held = by_spark.filter(pc.is_in(by_spark["off"], pa.array(taken.records)))  # others may be no texts
    rows = {row["off"]: row for row in held.to_pylist()}
    for number, row in zip(
        taken.records.tolist(), taken.rows.drop_columns([PARTITION, DIFF]).to_pylist(), strict=True
    ):
        wanted = rows[number]
        assert wanted.pop(BROKEN) is None, (values[number], row)
        del wanted[PARTITION]
        plain = {
            name: value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value
            for name, value in wanted.items()
        }
        assert repr(plain) == repr(row), values[number]
    assert len(taken.records) > RECORDS / 20, "most of them are odd"
    assert len(taken.left_out) >= len(values) - by_spark[BROKEN].null_count


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (source({"v": "INT"}, format="raw"), "how its values are read, only Spark knows"),
        (
            source(TYPES, **{"json.allowComments": "true"}),
            "only Spark supports the option 'allowcomments' for json",
        ),
        (source(TYPES, **{"format": "csv", "csv.comment": "#"}), "only Spark supports the option 'comment'"),
        (source({"f": "FLOAT"}), "only Spark can read f as FLOAT"),
        (
            source({"n": "INT"}, **{"metadata.n": "timestamp"}),
            "how timestamp is read as INT, only Spark knows",
        ),
    ],
)
def test_what_only_spark_knows_is_refused(given: Source, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        RecordsAgain(given, "UTC", frozenset())
