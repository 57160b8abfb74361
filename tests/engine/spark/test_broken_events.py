"""Why an event of Debezium's is broken is said of each that Spark calls broken."""

from __future__ import annotations

import json
import pickle

import pytest
from pyspark.sql import functions as F

from tests.engine.spark.running import until_caught_up
from watersmeet.errors import EngineError
from watersmeet.parser.statements import parse_job
from watersmeet.runtime.spark.broken_records import build_check
from watersmeet.runtime.spark.rejected_values import misfit_sql
from watersmeet.runtime.spark.sources.changes import add_key_checks
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sources.debezium import read_changes

TEXT = "__debezium_unavailable_value"
COLUMNS = "id INT, n BIGINT, s STRING, v VARCHAR(3), price DECIMAL(9,2), at TIMESTAMP, day DATE, raw BINARY"
KEY = "PRIMARY KEY (id) NOT ENFORCED"
ROW = {"id": 1, "n": 2}


def source_of(key="", more="", columns=COLUMNS):
    key = f", {key}" if key else ""
    text = f"""CREATE TABLE t ({columns}{key}) WITH ('connector' = 'file', 'path' = '/nowhere',
        'format' = 'debezium-json'{more}); SELECT * FROM t"""
    (source,) = parse_job(text).inserts[0].query.inputs[0].sources
    return source


def explain_record(record, key="", more=""):
    check = build_check(source_of(key, more))
    return check.explain(record if isinstance(record, str) else json.dumps(record))


def create_event(**values):
    return {"op": "c", "before": None, "after": {**ROW, **values}}


IN_AFTER = "in after, "
IDENTITY = "REPLICA IDENTITY FULL"
CASES = [
    (create_event(n="x"), "", f"{IN_AFTER}n is BIGINT, but the value is 'x': declare it STRING"),
    (create_event(n=1.5), "", "n is BIGINT, but the value is 1.5: declare it DOUBLE"),
    ({"payload": create_event(n="x"), "schema": None}, "", f"{IN_AFTER}n is BIGINT, but the value is 'x'"),
    (create_event(price="AfQ="), "", "is 'AfQ=': with decimal.handling.mode = string, 'debezium.decimals' ="),
    (create_event(price="1234"), "", "'debezium.decimals' = 'string' reads it"),
    (create_event(at=1646128800000), "", "is 1646128800000: 'debezium.timestamps' = 'millis' reads it"),
    (create_event(at="1646128800000000"), "", "'debezium.timestamps' = 'micros' reads it"),
    (create_event(day="soon"), "", "day is DATE, but the value is 'soon'"),
    ({"before": {"id": "y"}, "op": "d"}, "", "in before, id is INT, but the value is 'y'"),
    ({"before": None, "after": ROW}, "", "it has no op"),
    ({"op": "x", "after": ROW}, "", "op is 'x', not c, r, u or d"),
    ({"op": 7, "after": ROW}, "", "op is '7', not c"),
    ({"op": "c", "before": ROW}, "", "op is 'c', but it has no after"),
    ({"op": "u", "after": ROW}, "", f"op is 'u', but it has no before: the table needs {IDENTITY}"),
    ({"op": "d", "after": ROW}, "", f"op is 'd', but it has no before: the table needs {IDENTITY}"),
    ({"op": "c", "after": [1]}, "", "after is not a JSON object"),
    (create_event(s=TEXT), "", "neither after nor before has s"),
    (create_event(raw="X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="), "", "neither after nor before has raw"),
    (ROW, "", "it has no op, before or after, unlike a Debezium event"),
    ("{not json", "", "it is not a JSON object"),
    ("7", "", "it is not a JSON object"),
    ({"op": "d", "before": {"n": 2}}, KEY, "op is 'd', but neither before nor the record's key has id"),
    ({"op": "c", "after": {"n": 2}}, KEY, "its row has no id, which is in the PRIMARY KEY"),
    (create_event(id=None), KEY, "its row has no id, which is in the PRIMARY KEY"),
    (create_event(v="abcd"), "", "v is VARCHAR(3), but the value is 'abcd': declare it STRING"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "key", "said"), [case for case in CASES if "its row" not in case[2]])
def test_of_an_event(record, key, said):
    assert said in explain_record(record, key)


@pytest.mark.parametrize(
    ("record", "key", "more"),
    [
        (create_event(s="fine"), "", ""),
        (create_event(price="1.5"), "", ", 'debezium.decimals' = 'string'"),
        (create_event(at=1646128800000), "", ", 'debezium.timestamps' = 'millis'"),
        (create_event(day=19000), "", ""),
        ({"schema": {"fields": []}, "payload": create_event(price="AfQ=", at=1646128800000)}, "", ""),
        ({"op": "u", "after": ROW}, KEY, ""),
    ],
)
def test_a_value_that_is_read_is_no_reason(record, key, more):
    assert explain_record(record, key, more) == ""


def test_tasks_get_no_password():
    text = f"""CREATE TABLE t (id INT, price DECIMAL(9,2), lsn BIGINT, {KEY}) WITH ('connector' = 'kafka',
        'topic' = 't', 'bootstrap.servers' = 'b:1', 'properties.sasl.jaas.config' = 'hidden-words',
        'format' = 'debezium-json', 'debezium.decimals' = 'string', 'metadata.lsn' = 'source.lsn');
        SELECT * FROM t"""
    (source,) = parse_job(text).inserts[0].query.inputs[0].sources
    check = build_check(source)
    assert b"hidden-words" in pickle.dumps(source)
    assert b"hidden-words" not in pickle.dumps(check)
    assert check.explain(json.dumps({"op": "c", "after": {"id": 1, "price": "1.5"}})) == ""


@pytest.mark.spark
@pytest.mark.parametrize("key", ["", KEY])
def test_each_of_them_is_broken_to_spark(spark, key):
    """And so is a row of which it is not said which change it is."""
    source, cases = source_of(key), [case for case in CASES if case[1] == key]
    texts = [record if isinstance(record, str) else json.dumps(record) for record, _, _ in cases]
    raw = spark.createDataFrame([(text,) for text in texts], "value STRING")
    frame = add_key_checks(read_changes(raw, source, F.lit(None).cast("string"), {}), source)
    told = [f"coalesce({BROKEN}, {misfit_sql(source, ['`v`'])}) AS b"]
    for (_, _, said), row in zip(cases, frame.selectExpr(*told).collect(), strict=True):
        assert said in build_check(source).explain(row["b"])


@pytest.mark.spark
def test_a_job_that_stops_says_why(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text(json.dumps({"op": "x", "after": ROW}) + "\n")
    text = f"""SET output_mode = changelog;
        CREATE TABLE t ({COLUMNS}) WITH ('connector' = 'file', 'format' = 'debezium-json',
          'path' = '{tmp_path}/in');
        CREATE TABLE out WITH ('connector' = 'memory');
        INSERT INTO out SELECT * FROM t;"""
    with pytest.raises(EngineError, match="\\(op is 'x', not c, r, u or d\\)") as stopped:
        until_caught_up(spark, text, tmp_path / "state")
    assert stopped.value.code == "all-records-broken"
