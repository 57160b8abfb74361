"""Numbers in the place of timestamps count the unit that a source says, in JSON and CSV."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from pyspark.sql import functions as F

from tests.engine.spark.running import until_caught_up
from tests.engine.spark.test_run_on import account, job, read_output
from tests.support.effort import at_effort
from watersmeet import parse_job, plan_job
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.files.first_rows import read_first_rows
from watersmeet.runtime.spark.sources import kafka
from watersmeet.runtime.spark.sources.columns import BROKEN

pytestmark = pytest.mark.spark

MOMENT = dt.datetime(2026, 3, 1, 12, 30, 15, 123000)
MS = 1_772_368_215_123
UNIT = {"s": "1772368215.123", "ms": f"{MS}", "us": f"{MS}000", "ns": f"{MS}000999"}


def parse_topic_records(
    spark, unit, records, columns="id INT, at TIMESTAMP, wall TIMESTAMP_NTZ", form="json", more=""
):
    text = f"""CREATE TABLE c ({columns}) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = '{form}',
        'bootstrap.servers' = 'x:1', 'timestamp.unit' = '{unit}'{more}); SELECT * FROM c"""
    (source,) = plan_job(parse_job(text)).sources
    raw = spark.createDataFrame([(None, record.encode()) for record in records], "key BINARY, value BINARY")
    return kafka.parse_records(raw.withColumn("partition", F.lit(0)), source).collect()


@pytest.mark.parametrize("unit", at_effort(quick=("s", "ns"), full=tuple(UNIT)))
def test_records_of_topics_count_each_unit(spark, unit):
    rows = parse_topic_records(spark, unit, [f'{{"id": 1, "at": {UNIT[unit]}, "wall": "{UNIT[unit]}"}}'])
    assert [(row["at"], row["wall"], row[BROKEN]) for row in rows] == [(MOMENT, MOMENT, None)]
    rows = parse_topic_records(spark, unit, [f"1,{UNIT[unit]},{UNIT[unit]}"], form="csv")
    assert [(row["at"], row["wall"], row[BROKEN]) for row in rows] == [(MOMENT, MOMENT, None)]


def test_texts_are_read_as_before_and_what_is_no_time_is_broken(spark):
    values = ['"2026-03-01T12:30:15.123Z"', "null", '"x"', "1e3", "-1", "99999999999999999999", "true"]
    rows = parse_topic_records(
        spark, "ms", [f'{{"id": 1, "at": {value}}}' for value in values], "id INT, at TIMESTAMP"
    )
    assert [(row["at"], row[BROKEN] is not None) for row in rows] == [
        (MOMENT, False),
        (None, False),
        (None, True),
        (dt.datetime(1970, 1, 1, 0, 0, 1), False),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999000), False),
        (None, True),
        (None, True),
    ]
    assert '"at":"x"' in rows[2][BROKEN]
    german = ", 'json.timestampFormat' = 'dd.MM.yyyy HH:mm:ss.SSS'"
    (row,) = parse_topic_records(
        spark, "ms", ['{"at": "01.03.2026 12:30:15.123"}'], "at TIMESTAMP", more=german
    )
    assert row["at"] == MOMENT


@pytest.mark.parametrize(
    ("form", "head"), [("json", ""), pytest.param("csv", "id,at\n", marks=pytest.mark.full)]
)
def test_files_count_the_unit_and_so_do_tables_and_previews(spark, tmp_path, form, head):
    options = f", 'format' = '{form}', 'timestamp.unit' = 'ms'"
    record = {"json": '{{"id": {0}, "AT": {1}}}', "csv": "{0},{1}"}[form]
    content = head + "".join(f"{record.format(number, MS)}\n" for number in (1, 2))
    text = job(
        tmp_path,
        "id INT, at TIMESTAMP, WATERMARK FOR at AS at",
        "SELECT l.id, unix_millis(l.at) AS a, unix_millis(r.at) AS b"
        " FROM l LEFT JOIN r FOR SYSTEM_TIME AS OF PROCTIME() AS r ON l.id = r.id",
    ).replace(", 'format' = 'json')", f"{options})", 2)
    text = text.replace(f"/bad'{options}", "/bad', 'format' = 'json'")
    table = f"""CREATE TABLE r (id INT, at TIMESTAMP)
        WITH ('connector' = 'file', 'path' = '{tmp_path}/r'{options});"""
    text = text.replace("INSERT INTO", f"{table} INSERT INTO")
    (tmp_path / "r").mkdir()
    for folder in ("in", "r"):
        (tmp_path / folder / "a").write_text(content)
    source = next(source for source in plan_job(parse_job(text)).sources if source.name == "l")
    assert [row["at"] for row in read_first_rows(source, 10).rows] == [MOMENT, MOMENT]
    until_caught_up(spark, text, tmp_path / "state")
    assert set(read_output(tmp_path)[0]) == {(1, MS, MS), (2, MS, MS)}


def test_milliseconds_read_as_seconds_are_reported(spark, tmp_path):
    text = job(tmp_path, "id INT, at TIMESTAMP, WATERMARK FOR at AS at", "SELECT id FROM l")
    lines = [{"id": 1, "at": "2026-03-01T12:00:00Z"}, {"id": 2, "at": MS}, {"id": 3, "at": MS + 5}]
    (tmp_path / "in" / "a").write_text("\n".join(map(json.dumps, lines)))
    notices: list[str] = []
    run = until_caught_up(spark, text, tmp_path / "state", on_notice=notices.append)
    assert account(run)["ahead"] == 2
    (notice,) = [notice for notice in notices if "max_ahead" in notice]
    assert "2 of 3 rows of tick 1 are ahead of the clock by more than 'max_ahead'" in notice
    assert "at is about the year 58134. Milliseconds may" in notice
    assert "'timestamp.unit' = 'ms'" in notice


@pytest.mark.parametrize(
    ("form", "value", "said"),
    [
        ("json", "minutes", "it can be s, ms, us, ns"),
        ("parquet", "ms", "is for the formats json, csv, upsert-json, but the format is parquet"),
        ("debezium-json", "ms", "'debezium.timestamps' = 'millis'"),
    ],
)
def test_other_units_and_formats_are_refused(tmp_path, form, value, said):
    key = " PRIMARY KEY NOT ENFORCED" if form == "debezium-json" else ""
    text = f"""SET output_mode = changelog; CREATE TABLE c (id INT{key}, at TIMESTAMP)
        WITH ('connector' = 'file', 'path' = '{tmp_path}', 'format' = '{form}', 'timestamp.unit' = '{value}');
        SELECT * FROM c"""
    with pytest.raises(WatersmeetError) as caught:
        plan_job(parse_job(text))
    assert said in str(caught.value)


@pytest.mark.parametrize("type_", ["STRUCT<t: TIMESTAMP>", "ARRAY<TIMESTAMP_NTZ>", "MAP<STRING, TIMESTAMP>"])
def test_a_unit_of_times_within_others_is_refused(tmp_path, type_):
    text = f"""CREATE TABLE c (id INT, inner {type_})
        WITH ('connector' = 'file', 'path' = '{tmp_path}', 'format' = 'json', 'timestamp.unit' = 'ms');
        SELECT id FROM c"""
    with pytest.raises(WatersmeetError) as caught:
        plan_job(parse_job(text))
    assert caught.value.code == "wrong-types"
    assert "numbers inside it as seconds" in str(caught.value)
