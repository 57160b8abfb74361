"""Debezium's events through a real Kafka into a join: with and without schema, deletes, broken events."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import watersmeet
from tests.engine.spark.running import Running, until_caught_up
from tests.support.effort import at_effort
from watersmeet.errors import WatersmeetError
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.plan.explain import explain
from watersmeet.runtime.spark.sources import kafka
from watersmeet.runtime.spark.sources.changes import add_diff_column
from watersmeet.runtime.spark.sources.columns import BROKEN

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JOB = """
SET output_mode = changelog; SET broken_output = broken;
CREATE TABLE customers (id BIGINT, name STRING, since DATE) WITH ('connector' = 'kafka',
    'bootstrap.servers' = '{servers}', 'topic' = '{topic}', 'format' = 'debezium-json');
CREATE TABLE orders (id BIGINT, customer BIGINT, op STRING) WITH ('connector' = 'kafka',
    'bootstrap.servers' = '{servers}', 'topic' = '{topic}-orders', 'op.column' = 'op');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
CREATE TABLE broken WITH ('connector' = 'file', 'path' = '{folder}/broken', 'format' = 'json');
INSERT INTO out SELECT o.id, c.name, c.since FROM orders o LEFT JOIN customers c ON o.customer = c.id;
"""


def event(op: str, before: Any = None, after: Any = None, *, schema: bool = False) -> str:
    told = {
        "before": before,
        "after": after,
        "op": op,
        "ts_ms": 1,
        "source": {"lsn": 5, "table": "customers"},
    }
    return json.dumps({"schema": {"type": "struct", "fields": []}, "payload": told} if schema else told)


def customer(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name, "since": "2024-02-29", "more": {"nested": [1]}}


ADA, ADA_L, BOB, EVE = customer(1, "Ada"), customer(1, "Ada L."), customer(2, "Bob"), customer(3, "Eve")
WAVES: list[tuple[list[str | None], list[str], dict[tuple[Any, ...], int]]] = [
    (
        [event("r", None, ADA), event("c", None, BOB, schema=True), None],
        [json.dumps({"id": 10, "customer": 1, "op": "c"}), json.dumps({"id": 11, "customer": 3, "op": "c"})],
        {(10, "Ada", "2024-02-29"): 1, (11, None, None): 1},
    ),
    (
        [
            event("u", ADA, ADA_L),
            event("d", BOB, schema=True),
            None,
            event("c", None, EVE),
            event("u", None, EVE),  # without the row before: no REPLICA IDENTITY FULL
            '{"before": null, "after": {"id": "no number"}, "op": "c"}',
            "no JSON",
        ],
        [json.dumps({"id": 12, "customer": 2, "op": "c"})],
        {(10, "Ada L.", "2024-02-29"): 1, (11, "Eve", "2024-02-29"): 1, (12, None, None): 1},
    ),
]


def test_events_become_changes(spark, kafka_broker, tmp_path):
    for topic in ("cdc", "cdc-orders"):
        kafka_broker.create_topic(topic)
    job = JOB.format(servers=kafka_broker.bootstrap_servers, topic="cdc", folder=tmp_path)
    for events, orders, wanted in WAVES:
        kafka_broker.produce("cdc", [(0, None, value) for value in events])
        kafka_broker.produce("cdc-orders", [(0, None, value) for value in orders])
        running = until_caught_up(spark, job, tmp_path / "checkpoint")
        sums: Counter[tuple[Any, ...]] = Counter()
        for file in tmp_path.glob("out/**/*.json"):
            for row in map(json.loads, file.read_text().splitlines()):
                sums[row["id"], row.get("name"), row.get("since")] += row["_diff"]
        assert {row: diff for row, diff in sums.items() if diff} == wanted
    counts = running.ticks[-1].queries["out"].account["c"]
    told = InputAccount.of("c", counts, counts["retained"])
    assert (told.adds_up(), told.broken, told.deleted, told.retained) == (True, 3, 4, 2)
    broken = "".join(file.read_text() for file in tmp_path.glob("broken/**/*.json"))
    assert all(text in broken for text in ("no number", "no JSON", "Eve"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (", 'op.column' = 'name'", "tells inserts from deletes both by its format and by"),
        (", 'metadata.id' = 'offset'", "a delete must have the same values"),
        (", 'metadata.id' = 'key'", "columns of Debezium records are columns of the table"),
        (", 'csv.sep' = ';'", "is for the format csv"),
        (", 'debezium.timestamps' = 'seconds'", "'debezium.timestamps' is 'seconds'"),
        (", 'debezium.decimals' = 'precise'", "with decimal.handling.mode = string in Debezium"),
        (", 'debezium.decimal' = 'x'", 'has no option "debezium.decimal"'),
    ],
)
def test_what_does_not_go_with_it_is_refused(more, words):
    job = JOB.format(servers="localhost:1", topic="t", folder="x").replace(
        "'debezium-json'", f"'debezium-json'{more}"
    )
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(watersmeet.parse_job(job))
    assert words in str(caught.value)


def test_explain_says_so():
    job = JOB.format(servers="localhost:1", topic="t", folder="x")
    assert "changes: as Debezium tells them" in explain(watersmeet.plan_job(watersmeet.parse_job(job)))


def test_timestamps_inside_debezium_arrays_are_refused():
    job = JOB.format(servers="localhost:1", topic="t", folder="x").replace(
        "since DATE", "since ARRAY<TIMESTAMP>"
    )
    with pytest.raises(WatersmeetError, match="numbers inside it as seconds"):
        watersmeet.plan_job(watersmeet.parse_job(job))


def test_decimals_inside_debezium_arrays_require_string_encoding():
    job = JOB.format(servers="localhost:1", topic="t", folder="x").replace(
        "since DATE", "since ARRAY<DECIMAL(5,2)>"
    )
    with pytest.raises(WatersmeetError, match="may be encoded as bytes"):
        watersmeet.plan_job(watersmeet.parse_job(job))
    said = job.replace("'debezium-json'", "'debezium-json', 'debezium.decimals' = 'string'")
    watersmeet.plan_job(watersmeet.parse_job(said))


TIMED = """
CREATE TABLE {name} (id BIGINT {key}, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, large STRING) WITH (
    'connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = '{topic}',
    'format' = 'debezium-json'{more});
CREATE TABLE out_{name} WITH ('connector' = 'file', 'path' = '{folder}/out_{name}', 'format' = 'json');
INSERT INTO out_{name}
SELECT id, CAST(d AS STRING) AS d, unix_micros(t) AS t, CAST(n AS STRING) AS n FROM {name};
"""
"""A table of the topic, and what it is copied to."""


def run_timed(spark, broker, topic, folder, tables: dict[str, tuple[str, str]]) -> Running:
    """Run one job of several tables of one topic, by their names, with their keys and further options."""
    job = "SET output_mode = changelog; SET broken_output = broken; SET time_zone = 'America/New_York';"
    job += f"CREATE TABLE broken WITH ('connector' = 'file', 'path' = '{folder}/broken', 'format' = 'json');"
    told = {"servers": broker.bootstrap_servers, "topic": topic, "folder": folder}
    for name, (key, more) in tables.items():
        job += TIMED.format(name=name, key=key, more=more, **told)
    return until_caught_up(spark, job, folder / "checkpoint")


def written(folder, name: str) -> list[dict[str, Any]]:
    files = folder.glob(f"out_{name}/**/*.json")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


SUMMER_US = 1_720_000_000_123_456  # 2024-07-03 09:46:40.123456 UTC
FALL_BACK_US = 1_730_613_600_000_001  # 2024-11-03 06:00:00.000001 UTC: New York has 01:00 a second time
TIMES = [
    # (id, d, t, n): written, and what it is
    ((1, 0, SUMMER_US, SUMMER_US), ("1970-01-01", SUMMER_US, "2024-07-03 09:46:40.123456")),
    ((2, -1, -1, -1), ("1969-12-31", -1, "1969-12-31 23:59:59.999999")),
    ((3, 2023, FALL_BACK_US, FALL_BACK_US), ("1975-07-17", FALL_BACK_US, "2024-11-03 06:00:00.000001")),
    ((4, None, None, None), (None, None, None)),
    ((5, "2024-02-29", "2024-07-03T09:46:40.123456Z", "2024-07-03T09:46:40.123456"),
     ("2024-02-29", SUMMER_US, "2024-07-03 09:46:40.123456")),
    ((6, -719_162, -62_135_596_800_000_000, -62_135_596_800_000_000),
     ("0001-01-01", -62_135_596_800_000_000, "0001-01-01 00:00:00")),
    ((7, 2_932_896, 253_402_300_799_999_999, 253_402_300_799_999_999),
     ("9999-12-31", 253_402_300_799_999_999, "9999-12-31 23:59:59.999999")),
]  # fmt: skip
UNREADABLE = [
    {"d": 2**31 - 1},  # infinity, as Debezium writes it
    {"t": 2**63 - 1},
    {"n": 9_223_372_036_825_200_000},
    {"t": 10**30},
    {"d": "soon"},
    {"d": True},
    {"n": 1.5},
    {"t": [1]},
    {"large": "__debezium_unavailable_value"},
]


def build_row(row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("id", "d", "t", "n"), row, strict=True)) | {"large": "x"}


def test_times_are_numbers_of_the_declared_unit(spark, kafka_broker, tmp_path):
    """In a table with a primary key; at full effort also in one without."""
    kafka_broker.create_topic("times")
    events = [event("c", None, build_row(row)) for row, _ in TIMES]
    events += [event("c", None, build_row((100, 0, 0, 0)) | wrong) for wrong in UNREADABLE]
    gone = build_row((8, 5, SUMMER_US, "2024-07-03"))
    events += [event("c", None, gone, schema=True), event("d", gone)]
    kafka_broker.produce("times", [(0, None, value) for value in events])
    micros = ", 'debezium.timestamps' = 'micros'"
    tables = {"keyed": ("PRIMARY KEY NOT ENFORCED", micros)} | at_effort(
        quick={}, full={"plain": ("", micros)}
    )
    running = run_timed(spark, kafka_broker, "times", tmp_path, tables)
    for name in tables:
        found = written(tmp_path, name)
        assert {row["id"]: (row.get("d"), row.get("t"), row.get("n")) for row in found} == {
            row[0]: wanted for row, wanted in TIMES
        }
        assert {row["_diff"] for row in found} == {1}
        account = running.ticks[-1].queries[f"out_{name}"].account
        assert sum(counts.get("broken", 0) for counts in account.values()) == len(UNREADABLE)


def test_numbers_of_an_undeclared_unit_are_broken(spark):
    """Spark's frame over the records says so; a topic has no part in it."""
    records = [(event("c", None, build_row((n, 1, t, t))).encode(), n) for n, t in ((1, 5), (2, -7))]
    raw = spark.createDataFrame(records, "value BINARY, offset BIGINT").selectExpr(
        "CAST(NULL AS BINARY) AS key", "value", "'x' AS topic", "0 AS partition", "offset",
        "TIMESTAMP '2026-03-01 00:00:00' AS timestamp",
    )  # fmt: skip
    told = {"name": "times", "key": "", "servers": "x:1", "topic": "x", "folder": "x"}
    for unit, micros in (("", {}), ("millis", {1: 5000, 2: -7000}), ("Nanos", {1: 0, 2: -1})):
        more = f", 'debezium.timestamps' = '{unit}'" if unit else ""
        job = "SET output_mode = changelog;" + TIMED.format(**told, more=more)
        (source,) = watersmeet.plan_job(watersmeet.parse_job(job)).sources
        frame = add_diff_column(kafka.parse_records(raw, source), source)
        rows = frame.selectExpr("*", "unix_micros(t) AS us").collect()
        assert {row["id"]: row["us"] for row in rows if row[BROKEN] is None} == micros
        assert sum(row[BROKEN] is not None for row in rows) == (0 if unit else 2)
