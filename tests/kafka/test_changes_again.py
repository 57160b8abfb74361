"""Records of Kafka that change rows, read in this process: each that is read gives the rows that Spark makes
of it, and what Spark finds broken is left out; so many rows are counted of each as ingest counts."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from tests.support.columns import column
from watersmeet.cli.why.records import UNCOUNTED, RecordsAgain
from watersmeet.names import DIFF, PARTITION
from watersmeet.runtime.spark.rounded_decimals import rounded_column, wider_columns
from watersmeet.runtime.spark.sources import kafka
from watersmeet.runtime.spark.sources.changes import add_diff_column, add_key_checks
from watersmeet.runtime.spark.sources.columns import BROKEN, SKIPPED
from watersmeet.spec.change_kinds import ChangeColumn, PrimaryKey
from watersmeet.spec.model import Source
from watersmeet.spec.options.debezium import DECIMAL, NAMES_OF_DAYS, NAMES_OF_UNITS, UNAVAILABLE

RECORDS = 350
TYPES = {
    "id": "BIGINT",
    "p": "DECIMAL(8,2)",
    "s": "STRING",
    "t": "TIMESTAMP",
    "n": "TIMESTAMP_NTZ",
    "day": "DATE",
    "l": "ARRAY<STRING>",
}
VALUES: dict[str, list[str]] = {
    "id": ["1", "2", "3", "null", "1", "2", '"1"', "1.0", "9223372036854775808"],
    "p": ["1.5", "2", "null", '"1.50"', '"AQ=="', "1.234", "1234567.1"],
    "s": ['"x"', '"é"', "null", json.dumps(UNAVAILABLE), "7"],
    "t": ["1767225600123456", "-1", "0", '"2026-03-01T10:00:00Z"', "null", '"12"', "1.5", "true", "9" * 18],
    "n": ["1767225600123", "-1", '"2026-03-01T10:00:00"', "null", '"noon"', "9" * 17],
    "day": ["20000", "-719162", "2932896", '"2026-03-01"', "null", "2932897", '"x"'],
    "l": ['["a"]', "[]", "null", json.dumps([UNAVAILABLE]), "[1]"],
}
KEYED = PrimaryKey(("id",))
WITH_SEQUENCE = PrimaryKey(("id",), "p")


def source(
    types: dict[str, str],
    key: PrimaryKey | None = None,
    change: ChangeColumn | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
) -> Source:
    columns = tuple(column(name, type_) for name, type_ in types.items())
    given = {"topic": "x", "bootstrap.servers": "nowhere:1", **options}
    return Source("s", columns, "kafka", given, primary_key=key, change_column=change)


def row(rng: random.Random, share: float = 0.5) -> str:
    fields = [
        f'"{name}": {rng.choice(own[:3] if rng.random() < 0.93 else own)}'
        for name, own in VALUES.items()
        if rng.random() < share or name == "id"
    ]
    return "{" + ", ".join(fields) + "}"


def upsert(rng: random.Random) -> tuple[str | None, str | None]:
    key = rng.choice(
        ['{"id": 1}', '{"id": 2}', '{"id": 3}', '{"id": 1}', None, '{"id": null}', "7", '{"id": "1"}']
    )
    return key, rng.choice([None, row(rng), row(rng), '{"s": "x"}', '{"s": "x"}', "{", ""])


def upsert_of_text(rng: random.Random) -> tuple[str | None, str | None]:
    key = rng.choice(["1", "2", "3", None, " 1", "x", "1.0", ""])
    return key, rng.choice([None, '{"s": "x"}', '{"s": "é"}', row(rng), "[]"])


BESIDE = [
    '{"op": "m", "ts_ms": 1, "message": {"prefix": "p"}}',
    '{"op": "t", "before": null, "after": null, "ts_ms": 1}',
    '{"ts_ms": 1, "ts_us": 2}',
    '{"ts_us": 2}',
    '{"ts_ms": 1, "op": null}',
    '{"status": "BEGIN", "id": "1", "event_count": null}',
    '{"status": "END", "id": "1"}',
    '{"status": ["END"], "id": "1", "event_count": 1}',
]


def event(rng: random.Random) -> tuple[str | None, str | None]:
    """Mostly as Debezium writes them."""
    op = rng.choice("ccruuudd")
    parts = {"op": f'"{op if rng.random() < 0.95 else "t"}"', "ts_ms": "1"}
    if op in "ud" and rng.random() < 0.7:
        parts["before"] = rng.choice([row(rng), row(rng), '{"id": 1}', '{"id": 2, "p": 4}'])
    if op in "cru":
        parts["after"] = row(rng) if rng.random() < 0.95 else "null"
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in parts.items()) + "}"
    if rng.random() < 0.3:
        text = f'{{"schema": {{"type": "struct"}}, "payload": {text}}}'
    if rng.random() < 0.1:
        text = rng.choice(BESIDE)
        text = text if rng.random() < 0.5 else f'{{"schema": null, "payload": {text}}}'
    key = rng.choice(['{"id": 1}', '{"payload": {"id": 2}}', None, '{"id": null}', "{", '{"id": "x"}'])
    return key, text if rng.random() < 0.93 else rng.choice(
        [None, "", "{}", "[]", '{"payload": 1}', text + "}"]
    )


def event_of_log(rng: random.Random) -> tuple[str | None, str | None]:
    """With the place in the log, mostly."""
    key, text = event(rng)
    place = rng.choice(["5", "-1", "1099511627776", "null", '"7"', "1.5", "99999999999999999999", "true"])
    told = rng.choice([f'"source": {{"lsn": {place}}}, ', '"source": null, ', '"source": {}, ', ""])
    return key, text if text is None else text.replace('"op": ', f'{told}"op": ', 1)


def event_of_schema(rng: random.Random) -> tuple[str | None, str | None]:
    """With a schema that names types of columns, mostly."""
    key, text = event(rng)
    names = {
        name: rng.choice([None, *NAMES_OF_DAYS, *(name for own in NAMES_OF_UNITS.values() for name in own)])
        for name in ("t", "n", "day")
    }
    names["p"] = rng.choice([None, DECIMAL])
    row = [{"field": name, "type": "int64", "name": of} for name, of in names.items()]
    schema = {"fields": [{"field": part, "fields": row} for part in ("before", "after")]}
    wanted = rng.choice([json.dumps(schema)] * 4 + ["null", "{}", '{"fields": []}'])
    if text is None or '"op"' not in text:
        return key, text
    return key, text.replace('{"type": "struct"}', wanted, 1)


def by_word(rng: random.Random) -> tuple[str | None, str | None]:
    op = rng.choice(['"I"', '"D"', '"I"', '"X"', "null"])
    return None, row(rng)[:-1] + f', "op": {op}}}'


def by_diff(rng: random.Random) -> tuple[str | None, str | None]:
    return None, row(rng)[:-1] + f', "d": {rng.choice(["1", "-1", "3", "-2", "0", "null", "2000000000"])}}}'


TIMES = {"debezium.timestamps": "micros"}
NANOS = {"debezium.timestamps": "nanos", "debezium.decimals": "string"}
SKIPS = {"debezium.truncate": "skip"}
OP, TIMES_EACH = ChangeColumn("op", ("I",), ("D",)), ChangeColumn("d")
DEBEZIUM, UPSERT = {"format": "debezium-json"}, {"format": "upsert-json"}
OF_UPSERTS = {"id": "BIGINT", "p": "DECIMAL(8,2)", "s": "STRING"}
CASES = [
    pytest.param(source(OF_UPSERTS, KEYED, options=UPSERT), upsert, id="upsert"),
    pytest.param(source(OF_UPSERTS, WITH_SEQUENCE, options=UPSERT), upsert, id="upsert by sequence",
                 marks=pytest.mark.full),
    pytest.param(
        source({"id": "BIGINT", "s": "STRING", "off": "BIGINT"}, KEYED,
               options=UPSERT | {"key.format": "raw", "metadata.off": "offset"}),
        upsert_of_text,
        id="upsert by texts",
    ),
    pytest.param(source(TYPES, options=DEBEZIUM | TIMES), event, id="debezium"),
    pytest.param(source(TYPES, KEYED, options=DEBEZIUM | NANOS | SKIPS), event, id="debezium by key"),
    pytest.param(source(OF_UPSERTS, WITH_SEQUENCE, options=DEBEZIUM), event, id="debezium by sequence"),
    pytest.param(source(TYPES, KEYED, options=DEBEZIUM | TIMES), event_of_schema, id="debezium with schemas"),
    pytest.param(
        source({**OF_UPSERTS, "lsn": "BIGINT"}, PrimaryKey(("id",), "lsn"),
               options=DEBEZIUM | {"metadata.lsn": "source.lsn"}),
        event_of_log,
        id="debezium by place in the log",
    ),
    pytest.param(source({**OF_UPSERTS, "op": "STRING"}, None, OP), by_word, id="by words",
                 marks=pytest.mark.full),
    pytest.param(source({**OF_UPSERTS, "op": "STRING"}, WITH_SEQUENCE, OP), by_word, id="by words and key"),
    pytest.param(source({**OF_UPSERTS, "d": "INT"}, None, TIMES_EACH), by_diff, id="by numbers"),
]  # fmt: skip


def read_by_spark(spark: Any, given: Source, records: list[tuple[str | None, str | None]]) -> Any:
    """Per offset the rows; it is that of a record's partition here, which the frame keeps."""
    raw = spark.createDataFrame(
        [
            (as_bytes(key), as_bytes(value), "x", n, n, datetime(2026, 3, 1, tzinfo=UTC))
            for n, (key, value) in enumerate(records)
        ],
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP",
    )
    frame = add_key_checks(add_diff_column(kafka.parse_records(raw, given), given), given)
    rows = frame.drop(*map(rounded_column, wider_columns(given))).toArrow().to_pylist()
    by_record = defaultdict(list)
    for own in rows:
        by_record[int(own.pop(PARTITION))].append(own)
    return by_record


def as_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def plain(own: dict[str, Any]) -> str:
    return repr(
        {
            name: value.astimezone(UTC).replace(tzinfo=None)
            if isinstance(value, datetime) and value.tzinfo is not None
            else value
            for name, value in own.items()
        }
    )


@pytest.mark.spark
@pytest.mark.parametrize(("given", "draw"), CASES)
def test_as_spark_reads_them(given: Source, draw: Any, spark: Any, seed: int) -> None:
    rng = random.Random(f"{seed} {given.options} {given.primary_key}")
    records = [draw(rng) for _ in range(RECORDS)]
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    by_spark = read_by_spark(spark, given, records)
    keys, values = (pa.array([as_bytes(own) for own in of], pa.binary()) for of in zip(*records, strict=True))
    needed = frozenset(own.name for own in given.columns)
    count = len(records)
    taken = RecordsAgain(given, "Europe/Berlin", needed)(
        "x", 0, pa.array(range(count)), keys, values, pa.array([0] * count)
    )
    rows = defaultdict(list)
    for number, own in zip(
        taken.records.tolist(), taken.rows.drop_columns([PARTITION]).to_pylist(), strict=True
    ):
        rows[number].append(own)
    seen: Counter[str] = Counter()
    for number in range(count):
        wanted = by_spark[number]
        times = sum(abs(own[DIFF]) if own[BROKEN] is None else 1 for own in wanted)
        if number in taken.left_out:
            assert number not in rows
            seen["left out"] += 1
            assert taken.counted[number] in (UNCOUNTED, times), records[number]
            continue
        assert taken.counted[number] == times, records[number]
        if [own[BROKEN] for own in wanted] == [SKIPPED]:
            assert number not in rows
            seen["skipped"] += 1
            continue
        assert all(own.pop(BROKEN) is None for own in wanted), (records[number], rows[number])
        assert sorted(map(plain, wanted)) == sorted(map(plain, rows[number])), records[number]
        seen[f"{len(wanted)} rows"] += 1
        seen["goes"] += any(own[DIFF] < 0 for own in wanted)
    assert min(seen["1 rows"], seen["goes"], seen["left out"]) > RECORDS / 30, seen
    if given.options.get("format") == "debezium-json":
        assert min(seen["2 rows"], seen["skipped"]) > 0, seen
