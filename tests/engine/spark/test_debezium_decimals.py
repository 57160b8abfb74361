"""DECIMALs in Debezium's events: numbers are read, texts only where they are said to be numbers. Debezium's
default are bytes in base64, of which some are digits alone."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F

import watersmeet
from watersmeet.names import DIFF
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sources.debezium import read_changes

pytestmark = pytest.mark.spark

DIGITS = base64.b64encode(bytes.fromhex("d76df8")).decode()
"""Three bytes, by which Debezium writes a number of some scale."""


def frame_of(spark: Any, key: str, said: str, *records: tuple[Any, Any]) -> Any:
    """The columns amount, diff and broken of events, each a key and a value."""
    job = watersmeet.parse_job(
        f"""CREATE TABLE t (id INT, amount DECIMAL(9,2){key}) WITH ('connector' = 'kafka',
        'bootstrap.servers' = 'localhost:1', 'topic' = 't', 'format' = 'debezium-json'{said});
        SELECT id FROM t"""
    )
    (source,) = job.inserts[0].query.inputs[0].sources
    raw = spark.createDataFrame(
        [tuple(map(json.dumps, record)) for record in records], "key STRING, value STRING"
    )
    return read_changes(raw, source, F.lit(None).cast("string"), {}).select("amount", DIFF, BROKEN)


def read(spark: Any, key: str, said: str, *records: tuple[Any, Any]) -> list[tuple[Any, Any, Any]]:
    """(amount, diff, whether it is broken) of each event."""
    rows = frame_of(spark, key, said, *records).collect()
    return [(row[0], row[1], row[2] is not None) for row in rows]


def event(amount: Any, *, schema: bool = False) -> tuple[Any, Any]:
    told = {"before": None, "after": {"id": 1, "amount": amount}, "op": "c"}
    return None, {"schema": {}, "payload": told} if schema else told


def test_a_number_stands_in_the_plan_once(spark):
    """Spark compiles the plan of every tick: of one that is too long it fails to, after seconds."""
    plan = frame_of(spark, "", "", event(1))._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("base64") == 4, "as bytes and as an object, of the row before and after"


def test_bytes_are_no_numbers(spark):
    assert DIGITS == "1234"
    wanted = [(None, None, True), (None, None, True), (None, None, True), (Decimal("12.50"), 1, False)]
    events = [event(DIGITS), event(DIGITS, schema=True), event("BAg="), event(12.5)]
    assert read(spark, "", "", *events) == wanted
    assert read(spark, "", "", event(None)) == [(None, 1, False)]


def test_string_decimals_option_reads_texts_as_numbers(spark):
    said = ", 'debezium.decimals' = 'String'"
    found = read(spark, "", said, event("1234"), event("-0.5"), event(7), event("BAg="), event("NaN"))
    assert [row[0] for row in found] == [Decimal("1234.00"), Decimal("-0.50"), Decimal("7.00"), None, None]
    assert [row[2] for row in found] == [False, False, False, True, True]


@pytest.mark.parametrize(("amount", "gone"), [(DIGITS, None), (12.5, Decimal("12.50"))])
def test_bytes_in_keys_are_none(spark, amount, gone):
    deleted = {"before": None, "after": None, "op": "d"}
    key = ", PRIMARY KEY (amount) NOT ENFORCED"
    found = read(spark, key, "", ({"amount": amount}, deleted), ({"payload": {"amount": amount}}, deleted))
    assert [row[0] for row in found] == [gone, gone]
