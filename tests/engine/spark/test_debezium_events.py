"""What Debezium's events come to, by the frame that Spark makes of them: values that are left out, the order
of deletes, and records that are no changes."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import watersmeet
from tests.engine.spark.running import until_caught_up
from watersmeet.cli.why import records
from watersmeet.errors import WatersmeetError
from watersmeet.names import DIFF
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.runtime.files.first_rows import UncertainValue
from watersmeet.runtime.spark.sources.columns import BROKEN, SKIPPED
from watersmeet.runtime.spark.sources.debezium import read_changes
from watersmeet.spec.model import Source

pytestmark = pytest.mark.spark

TEXT = "__debezium_unavailable_value"


def source_of(columns: str, more: str = "") -> Source:
    job = watersmeet.parse_job(
        f"""CREATE TABLE t ({columns}) WITH ('connector' = 'kafka', 'bootstrap.servers' = 'localhost:1',
        'topic' = 't', 'format' = 'debezium-json'{more}); SELECT * FROM t"""
    )
    (source,) = job.inserts[0].query.inputs[0].sources
    return source


def frame_of(spark: Any, source: Source, *texts: str) -> DataFrame:
    raw = spark.createDataFrame([(None, text) for text in texts], "key STRING, value STRING")
    return read_changes(raw, source, F.lit(None).cast("string"), {})


def read(spark: Any, columns: str, *events: Any, more: str = "") -> list[tuple[Any, ...]]:
    """The columns, diff and whether it is broken, of each change of these events."""
    source = source_of(columns, more)
    texts = [text if isinstance(text, str) else json.dumps(text) for text in events]
    frame = frame_of(spark, source, *texts)
    names = [column.name for column in source.columns]
    return [
        (*(row[name] for name in names), row[DIFF], row[BROKEN] is not None)
        for row in frame.select(*names, DIFF, BROKEN).collect()
    ]


def event(op: str, after: Any = None, before: Any = None, **more: Any) -> Mapping[str, Any]:
    return {"op": op, "before": before, "after": after, **more}


LARGE = "body STRING, raw BINARY, tags ARRAY<STRING>, marks ARRAY<INT>, hstore MAP<STRING, STRING>"
LEFT_OUT = {
    "body": TEXT,
    "raw": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    "tags": [TEXT],
    "marks": [*TEXT.encode()],
    "hstore": {TEXT: TEXT},
}
WHOLE = {"body": "b", "raw": "eA==", "tags": ["t"], "marks": [1], "hstore": {"k": "v"}}
READ = ("b", bytearray(b"x"), ["t"], [1], {"k": "v"})


def test_values_that_are_left_out_are_of_the_row_before(spark):
    found = read(
        spark, f"id INT, {LARGE}", event("u", {"id": 2, **LEFT_OUT}, {"id": 1, **WHOLE}),
        event("u", {"id": 3, "body": TEXT, "tags": ["new"]}, {"id": 3, "body": "old"}),
    )  # fmt: skip
    assert found == [
        (1, *READ, -1, False),
        (2, *READ, 1, False),
        (3, "old", None, None, None, None, -1, False),
        (3, "old", None, ["new"], None, None, 1, False),
    ]


@pytest.mark.parametrize(
    "name", [name if n < 2 else pytest.param(name, marks=pytest.mark.full) for n, name in enumerate(LEFT_OUT)]
)
def test_values_that_nobody_has_are_broken_without_a_key(spark, name):
    own = {name: LEFT_OUT[name]}
    for before in ({"id": 1}, {"id": 1, **own}):
        assert read(spark, f"id INT, {LARGE}", event("u", {"id": 1, **own}, before))[0][-1]
    assert read(spark, f"id INT, {LARGE}", event("c", {"id": 1, **own}))[0][-1]


def test_of_a_key_the_row_that_is_there_has_them(spark):
    key = "id INT PRIMARY KEY NOT ENFORCED"
    (row,) = read(spark, f"{key}, {LARGE}", event("u", {"id": 1, **LEFT_OUT}))
    assert (row[1], *row[-2:]) == (TEXT, 1, False)  # the table's tasks fill it in
    assert read(spark, f"{key}, {LARGE}", event("u", {"id": 1, **LEFT_OUT}, {"id": 1, **WHOLE})) == [
        (1, *READ, 1, False)
    ]
    assert read(spark, f"{key}, {LARGE}", event("r", {"id": 1, **LEFT_OUT}))[0][-1]
    text_key = "id STRING PRIMARY KEY NOT ENFORCED, at STRING, n INT"
    said = ", 'sequence.by' = 'at'"
    for wrong in ({"id": TEXT, "at": "1"}, {"id": "1", "at": TEXT}):
        assert read(spark, text_key, event("u", {**wrong, "n": 1}), more=said)[0][-1]


KEPT = f"""
SET output_mode = changelog; SET broken_output = broken;
CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, n INT, {LARGE}) WITH ('connector' = 'file',
    'path' = '{{folder}}/t', 'format' = 'debezium-json');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{{folder}}/out', 'format' = 'json');
CREATE TABLE broken WITH ('connector' = 'file', 'path' = '{{folder}}/broken', 'format' = 'json');
INSERT INTO out
SELECT id, n, body, hex(raw) AS raw, tags, marks, map_values(hstore) AS h, length(body) AS size FROM t;
"""


def test_a_table_keeps_values_that_updates_leave_out(spark, tmp_path):
    """Between runs as within a tick, and also where something is computed of them."""
    (tmp_path / "t").mkdir()
    runs = [
        [event("c", {"id": 1, "n": 1, **WHOLE}), event("c", {"id": 2, "n": 1, **WHOLE, "body": "other"})],
        [
            event("u", {"id": 1, "n": 2, **LEFT_OUT}),
            event("u", {"id": 2, "n": 2, **LEFT_OUT, "body": None}),
            event("u", {"id": 2, "n": 3, **LEFT_OUT}),
            event("u", {"id": 3, "n": 1, **LEFT_OUT}),
        ],
    ]
    total: Counter[str] = Counter()
    for number, events in enumerate(runs):
        lines = "".join(json.dumps(one) + "\n" for one in events)
        (tmp_path / "t" / f"{number}.json").write_text(lines)
        running = until_caught_up(spark, KEPT.format(folder=tmp_path), tmp_path / "checkpoint")
    for file in tmp_path.glob("out/**/*.json"):
        for row in map(json.loads, file.read_text().splitlines()):
            names = ("id", "n", "body", "raw", "tags", "marks", "h", "size")
            total[json.dumps([row.get(name) for name in names])] += row["_diff"]
    assert {row: diff for row, diff in total.items() if diff} == {
        json.dumps([1, 2, "b", "78", ["t"], [1], ["v"], 1]): 1,
        json.dumps([2, 3, None, "78", ["t"], [1], ["v"], None]): 1,
    }
    (counts,) = running.ticks[-1].queries["out"].account.values()
    told = InputAccount.of("t", counts, counts["retained"])
    assert (told.broken, told.adds_up()) == (1, True)
    (text,) = [file.read_text() for file in tmp_path.glob("broken/**/*.json")]
    assert json.loads(json.loads(text)["record"])["id"] == 3


KEY = "id INT PRIMARY KEY NOT ENFORCED"


def test_a_delete_of_a_sequence_among_the_rows_counts_as_it_comes(spark):
    """A row before says when it was changed, and not when it was deleted; without its columns it says 0."""
    events = [event("d", None, {"id": 1, "at": 5}), event("d", None, {"id": 2, "at": 0})]
    found = read(spark, f"{KEY}, at INT", *events, more=", 'sequence.by' = 'at'")
    assert found == [(1, None, -1, False), (2, None, -1, False)]


def test_a_change_of_key_is_read_as_a_whole_or_not_at_all(spark):
    """Else a row would go that is still there: the one that should take its place is broken."""
    lacking = [event("u", {"Id": 2, "ID": 2, "n": 1}, {"id": 1}), event("u", {"n": 1}, {"id": 1})]
    assert read(spark, f"{KEY}, n INT", *lacking) == [(None, None, None, True)] * 2
    unordered = event("u", {"id": 2}, {"id": 1}, source={})
    assert read(spark, f"{KEY}, lsn BIGINT", unordered, more=BY_EVENT) == [(None, None, None, True)]


def test_integers_that_do_not_fit_break_the_whole_event(spark):
    """Spark's JSON parser takes 200 for a TINYINT, and makes -56 of it."""
    columns = "id TINYINT PRIMARY KEY NOT ENFORCED, l ARRAY<TINYINT>"
    events = [
        event("u", {"id": 127, "l": [-128, None]}, {"id": 1}),
        event("u", {"id": 200, "l": []}, {"id": 1}),
        event("c", {"id": 1, "l": [128]}),
        event("d", None, {"id": 255}),
    ]
    found = read(spark, columns, *events)
    assert found[:2] == [(1, None, -1, False), (127, [-128, None], 1, False)]
    assert found[2:] == [(None, None, None, True)] * 3


BY_EVENT = ", 'sequence.by' = 'lsn', 'metadata.lsn' = 'source.lsn', 'metadata.MS' = 'ts_ms'"


def test_columns_are_filled_from_the_event(spark):
    told = {"ts_ms": 7, "source": {"lsn": 2**40, "table": "t"}}
    payload = {"payload": event("u", {"id": 2, "name": "b"}, {"id": 1}, **told), "schema": {}}
    found = read(
        spark, f"{KEY}, name STRING, lsn BIGINT, ms STRING",
        event("c", {"id": 1, "name": "a"}, **told), payload, event("d", None, {"id": 1}, **told),
        event("d", None, {"id": 1}), event("c", {"id": 1, "name": TEXT}, **told),
        event("c", {"id": 1, "name": "c"}, source={"lsn": "no number"}), more=BY_EVENT,
    )  # fmt: skip
    assert found == [
        (1, "a", 2**40, "7", 1, False),
        (1, None, 2**40, None, -1, False),
        (2, "b", 2**40, "7", 1, False),
        (1, None, 2**40, "7", -1, False),
        (1, None, None, None, -1, False),
        (None, None, None, None, None, True),
        (1, "c", None, None, 1, False),  # without a sequence: broken as of any table
    ]


@pytest.mark.parametrize(
    "connector", ["kafka', 'bootstrap.servers' = 'x:1', 'topic' = 't", "file', 'path' = 't"]
)
@pytest.mark.parametrize(
    ("columns", "more", "words"),
    [
        ("id INT, lsn INT", "'metadata.lsn' = 'source.lsn'", "a delete must have the same values"),
        (f"{KEY}, n INT", "'metadata.id' = 'source.lsn'", '"id" is in the primary key'),
        (f"{KEY}, lsn DOUBLE", "'metadata.lsn' = 'source.lsn'", "declare lsn BIGINT"),
        (f"{KEY}, lsn INT", "'metadata.lsn' = 'source.a.b'", "source.lsn, source.ts_ms, ts_ms"),
        (f"{KEY}, lsn INT", "'metadata.ls' = 'source.lsn'", "did you mean"),
    ],
)
def test_what_cannot_be_filled_from_the_event_is_refused(connector, columns, more, words):
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(
            watersmeet.parse_job(
                f"CREATE TABLE t ({columns}) WITH ('connector' = '{connector}', 'format' = 'debezium-json',"
                f" {more}); SELECT * FROM t"
            )
        )
    assert words in str(caught.value)


ORDERED = """
SET output_mode = changelog;
CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, name STRING, lsn BIGINT) WITH ('connector' = 'file',
    'path' = '{folder}/t', 'format' = 'debezium-json', 'sequence.by' = 'lsn', 'metadata.lsn' = 'source.lsn');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
INSERT INTO out SELECT id, name, lsn FROM t;
"""


def test_events_that_come_again_change_nothing(spark, tmp_path):
    """After a crash Debezium sends events again, also older ones than were seen."""
    events = [
        event("c", {"id": 1, "name": "a"}, source={"lsn": 1}),
        event("u", {"id": 1, "name": "b"}, source={"lsn": 2}),
        event("d", None, {"id": 1}, source={"lsn": 3}),
        event("c", {"id": 2, "name": "c"}, source={"lsn": 4}),
        event("d", None, {"id": 2}, source={"lsn": 5}),
        event("c", {"id": 2, "name": "d"}, source={"lsn": 6}),
    ]
    (tmp_path / "t").mkdir()
    total: Counter[tuple[Any, ...]] = Counter()
    for number, again in enumerate((events, events[:3], events[3:5])):
        lines = "".join(json.dumps(one) + "\n" for one in again)
        (tmp_path / "t" / f"{number}.json").write_text(lines)
        until_caught_up(spark, ORDERED.format(folder=tmp_path), tmp_path / "checkpoint")
    for file in tmp_path.glob("out/**/*.json"):
        for row in map(json.loads, file.read_text().splitlines()):
            total[row["id"], row["name"], row["lsn"]] += row["_diff"]
    assert {row: diff for row, diff in total.items() if diff} == {(2, "d", 6): 1}


DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = "io.debezium.data.VariableScaleDecimal"


def wrap_in_envelope(told: Mapping[str, Any], **columns: tuple[str, str | None, Any]) -> dict[str, Any]:
    """An event with its schema: of columns the type, its name, and the scale."""
    row = [
        {"field": name, "type": kind, "optional": True}
        | ({} if of is None else {"name": of, "version": 1})
        | ({} if scale is None else {"parameters": {"scale": str(scale), "connect.decimal.precision": "9"}})
        for name, (kind, of, scale) in columns.items()
    ]
    parts: list[dict[str, Any]] = [
        {"type": "struct", "fields": row, "optional": True, "field": part} for part in ("before", "after")
    ]
    parts.append({"type": "string", "optional": False, "field": "op"})
    return {"schema": {"type": "struct", "fields": parts, "name": "shop.t.Envelope"}, "payload": told}


def bytes_of(unscaled: int) -> str:
    size = max(1, (unscaled.bit_length() + 8) // 8)
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


@pytest.mark.parametrize("said", ["", ", 'debezium.decimals' = 'string'"])
def test_decimals_are_read_as_the_schema_says(spark, said):
    def amount(value: Any, kind: str, name: str | None, scale: Any) -> dict[str, Any]:
        return wrap_in_envelope(event("c", {"id": 1, "amount": value}), amount=(kind, name, scale))

    largest = 10**38 - 1
    given = [
        (amount(bytes_of(123456), "bytes", DECIMAL, 2), "1234.56"),
        (amount("1234", "bytes", DECIMAL, 2), "-26588.24"),  # digits alone: bytes all the same
        (amount(bytes_of(-1), "bytes", DECIMAL, 0), "-1.00"),
        (amount(bytes_of(0), "bytes", DECIMAL, 3), "0.00"),
        (amount(bytes_of(12), "bytes", DECIMAL, -2), "1200.00"),
        (amount(bytes_of(largest), "bytes", DECIMAL, 2), f"{10**36 - 1}.99"),
        (amount(bytes_of(-largest), "bytes", DECIMAL, 2), f"-{10**36 - 1}.99"),
        (amount({"scale": 1, "value": bytes_of(-15)}, "struct", VARIABLE, None), "-1.50"),
        (amount(12.5, "bytes", DECIMAL, 2), "12.50"),  # decimal.format = NUMERIC
        (amount("1234", "string", None, None), "1234.00"),
        (amount(None, "bytes", DECIMAL, 2), None),
    ]
    found = read(spark, "id INT, amount DECIMAL(38,2)", *(record for record, _ in given), more=said)
    assert found == [(1, None if text is None else Decimal(text), 1, False) for _, text in given]
    wrong = [
        amount("B!I=", "bytes", DECIMAL, 2),
        amount(bytes_of(largest), "bytes", DECIMAL, 0),  # too many digits
        amount(bytes_of(2**130), "bytes", DECIMAL, 2),
        amount(bytes_of(2**127 - 1), "bytes", DECIMAL, 2),
        amount(bytes_of(-(10**38)), "bytes", DECIMAL, 2),
        amount("BNI=", "bytes", DECIMAL, None),
        amount("BNI=", "bytes", DECIMAL, 10**9),
        amount("1234", "bytes", None, None),
        amount("12,5", "string", None, None),
    ]
    assert all(row[-1] for row in read(spark, "id INT, amount DECIMAL(38,2)", *wrong, more=said))


def test_decimals_of_both_images_are_decoded_among_other_types(spark):
    columns = {"amount": ("bytes", DECIMAL, 2), "price": ("double", None, None), "at": TIMES["micros"]}
    rows = [{"id": 1, "amount": bytes_of(n), "price": 0.1, "at": 1_000_000 * n} for n in (100, 200)]
    told = wrap_in_envelope(event("u", rows[1], rows[0], source={"lsn": 3}), **columns)
    found = read(
        spark, f"{KEY}, amount DECIMAL(9,2), price DECIMAL(9,2), at TIMESTAMP, lsn BIGINT", told,
        more=", 'metadata.lsn' = 'source.lsn'",
    )  # fmt: skip
    ((number, amount, price, at, lsn, diff, broken),) = found
    assert (number, amount, price, lsn, diff, broken) == (
        1, Decimal("2.00"), Decimal("0.10"), 3, 1, False
    )  # fmt: skip
    assert at.timestamp() == 200
    without = "id INT, amount DECIMAL(9,2), price DECIMAL(9,2)"
    assert [row[1:] for row in read(spark, without, told)] == [
        (Decimal("1.00"), Decimal("0.10"), -1, False),
        (Decimal("2.00"), Decimal("0.10"), 1, False),
    ]


TIMES = {
    "millis": ("int64", "io.debezium.time.Timestamp", None),
    "connect": ("int64", "org.apache.kafka.connect.data.Timestamp", None),
    "micros": ("int64", "io.debezium.time.MicroTimestamp", None),
    "nanos": ("int64", "io.debezium.time.NanoTimestamp", None),
    "days": ("int32", "io.debezium.time.Date", None),
    "text": ("string", "io.debezium.time.ZonedTimestamp", None),
    "number": ("int64", None, None),
}


@pytest.mark.parametrize("said", ["", ", 'debezium.timestamps' = 'millis'"])
def test_numbers_count_what_the_schema_says(spark, said):
    """The option says it of records without a schema, and of types without a name."""
    second = 1_720_000_000
    counts = {"millis": 1000, "connect": 1000, "micros": 10**6, "nanos": 10**9, "days": 1, "number": 1000}
    for kind, text in (("TIMESTAMP", "2024-07-03T09:46:40Z"), ("TIMESTAMP_NTZ", "2024-07-03T09:46:40")):
        values = [second * counts[name] if name in counts else text for name in TIMES]
        events = [
            wrap_in_envelope(event("c", {"id": 1, "t": value}), t=of)
            for value, of in zip(values, TIMES.values(), strict=True)
        ]
        found = read(spark, f"id INT, t {kind}", *events, more=said)
        broken = [name for name, row in zip(TIMES, found, strict=True) if row[-1]]
        assert broken == (["days"] if said else ["days", "number"])
        assert len({row[1] for row in found if not row[-1]}) == 1, found
    days = [
        wrap_in_envelope(event("c", {"id": 1, "d": 20_000}), d=TIMES[name]) for name in ("days", "millis")
    ]
    assert [row[-1] for row in read(spark, "id INT, d DATE", *days, more=said)] == [False, True]


BESIDE = [
    {"op": "m", "ts_ms": 1, "source": {"lsn": 1}, "message": {"prefix": "p", "content": "eA=="}},
    {"schema": {"type": "struct"}, "payload": {"op": "m", "before": None, "after": None, "message": {}}},
    {"ts_ms": 1_580_121_006_592},
    {"schema": {"type": "struct", "fields": []}, "payload": {"ts_ms": 1_580_121_006_592}},
    {"status": "BEGIN", "id": "571:53195829", "ts_ms": 1, "event_count": None, "data_collections": None},
    {"status": "END", "id": "5:1", "ts_ms": 1, "event_count": 1, "data_collections": [
        {"data_collection": "public.t", "event_count": 1}]},
]  # fmt: skip
BROKEN_ONES = [
    {"ts_ms": 1, "data": {"id": 1}},
    {"id": 1},
    {},
    {"status": "BEGIN", "id": 1},
    {"op": "x", "ts_ms": 1},
    '{"ts_ms": 1} {"op": "c"}',
    "[]",
]
COUNTED = """
SET output_mode = changelog; SET broken_output = broken;
CREATE TABLE t (id INT{key}, at TIMESTAMP) WITH ('connector' = 'file', 'path' = '{folder}/t',
    'format' = 'debezium-json'{more});
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
CREATE TABLE broken WITH ('connector' = 'file', 'path' = '{folder}/broken', 'format' = 'json');
INSERT INTO out SELECT id FROM t;
"""


@pytest.mark.parametrize("key", ["", " PRIMARY KEY NOT ENFORCED"])
def test_what_says_nothing_of_rows_is_skipped_and_counted_apart(spark, tmp_path, key):
    rows = [event("c", {"id": 1})]
    lines = [text if isinstance(text, str) else json.dumps(text) for text in [*BESIDE, *BROKEN_ONES, *rows]]
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "0.json").write_text("".join(f"{line}\n" for line in lines))
    job = COUNTED.format(folder=tmp_path, key=key, more="")
    running = until_caught_up(spark, job, tmp_path / "checkpoint")
    (counts,) = running.ticks[-1].queries["out"].account.values()
    told = InputAccount.of("t", counts, counts["retained"])
    assert (told.skipped, told.broken, told.rows_in) == (len(BESIDE), len(BROKEN_ONES), len(lines))
    assert told.adds_up()
    texts = [file.read_text() for file in tmp_path.glob("broken/**/*.json")]
    kept = [json.loads(row)["record"] for text in texts for row in text.splitlines()]
    assert sorted(kept) == sorted(lines[len(BESIDE) : -1])


def test_heartbeats_do_not_hide_that_all_other_records_are_broken(spark, tmp_path):
    (tmp_path / "t").mkdir()
    lines = [*map(json.dumps, BESIDE), *["{not json"] * 120]
    (tmp_path / "t" / "0.json").write_text("\n".join(lines))
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, COUNTED.format(folder=tmp_path, key="", more=""), tmp_path / "checkpoint")
    assert caught.value.code == "all-records-broken"
    assert "none of the first 120 records" in str(caught.value)


@pytest.mark.parametrize("key", ["", " PRIMARY KEY NOT ENFORCED"])
def test_a_truncation_stops_the_job_until_it_is_to_be_skipped(spark, tmp_path, key):
    (tmp_path / "t").mkdir()
    events = [event("c", {"id": 1}), event("t"), {"payload": event("t", source={"table": "t"})}]
    (tmp_path / "t" / "0.json").write_text("\n".join(map(json.dumps, events)))
    job = COUNTED.format(folder=tmp_path, key=key, more="")
    for _ in range(2):
        with pytest.raises(WatersmeetError, match="was emptied by TRUNCATE") as caught:
            until_caught_up(spark, job, tmp_path / "checkpoint")
        assert caught.value.code == "table-truncated"
    skips = COUNTED.format(folder=tmp_path, key=key, more=", 'debezium.truncate' = 'skip'")
    running = until_caught_up(spark, skips, tmp_path / "checkpoint")
    (counts,) = running.ticks[-1].queries["out"].account.values()
    assert (counts["retained"] if key else counts["in"] - counts["skipped"], counts["skipped"]) == (1, 2)
    with pytest.raises(WatersmeetError, match="it can be 'stop'"):
        watersmeet.plan_job(watersmeet.parse_job(skips.replace("'skip'", "'empty'")))


@pytest.mark.parametrize("op", ["m", "t"])
@pytest.mark.parametrize(("after", "is_skipped"), [(None, True), ({"id": 1}, True), ({"id": "x"}, False)])
def test_why_skips_what_the_job_skips(spark, op, after, is_skipped):
    """Also where such a record has a row, which then has to be one."""
    source = source_of("id INT", ", 'debezium.truncate' = 'skip'")
    text = json.dumps(event(op, after))
    (row,) = frame_of(spark, source, text).collect()
    assert (row[DIFF], row[BROKEN] == SKIPPED) == (None, is_skipped)
    read_event = records.events(source, {}, "UTC", frozenset())
    if is_skipped:
        assert read_event(None, text.encode()) is None
    else:
        with pytest.raises(UncertainValue):
            read_event(None, text.encode())


def test_plan_builds_a_composite_key_once(spark):
    """Not once for each of its times: the plan would grow with the square of their number."""
    columns = ", ".join(f"k{n} TIMESTAMP" for n in range(4))
    source = source_of(f"{columns}, PRIMARY KEY (k0, k1, k2, k3) NOT ENFORCED")
    plan = frame_of(spark, source, "{}")._jdf.queryExecution().analyzed().toString()
    assert plan.count("named_struct(k0, coalesce(") == 1
