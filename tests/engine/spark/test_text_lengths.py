"""Texts that are longer than their VARCHAR(n) break their record, of each format and reader."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import until_caught_up
from watersmeet import parse_job, plan_job
from watersmeet.engine.spark.sources.files.first_rows import first_rows
from watersmeet.sinks.memory import MemorySink
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import STRING

JOB = """SET file_reader = '{reader}';
SET broken_output = aside;
CREATE TABLE aside WITH ('connector' = 'memory');
CREATE TABLE a (id INT, at TIMESTAMP, s VARCHAR(3), spare CHAR(1), WATERMARK FOR at AS at)
  WITH ('connector' = 'file', 'path' = '{path}/in', 'format' = '{form}');
CREATE TABLE out WITH ('connector' = 'memory');
INSERT INTO out SELECT id, s FROM a;
"""
ROWS = [
    {"id": 1, "at": "2026-03-01T10:00:00Z", "s": "äöü", "spare": "xx"},
    {"id": 2, "at": "2026-03-01T10:00:00Z", "s": "abcd", "spare": "x"},
    {"id": 3, "at": "2026-03-01T10:00:00Z", "s": None, "spare": "x"},
    {"id": 4, "at": "2026-03-01T10:00:00Z", "s": "abc ", "spare": "x"},
]


@pytest.mark.spark
@pytest.mark.parametrize("reader", ["auto", "spark"])
@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_text_that_is_too_long_breaks_its_record(spark, tmp_path, form, reader):
    """A length is one of characters; of columns that nobody asks for none is compared."""
    (tmp_path / "in").mkdir()
    if form == "parquet":
        table = pa.Table.from_pylist(ROWS)
        times = pa.array([0] * len(ROWS), pa.timestamp("us", "UTC"))
        ids = table["id"].cast(pa.int32())
        table = table.set_column(0, "id", ids).set_column(1, "at", times)
        parquet.write_table(table, tmp_path / "in" / "a")
    else:
        records = [
            json.dumps(r) if form == "json" else ",".join(str(v or "") for v in r.values()) for r in ROWS
        ]
        lines = [*([] if form == "json" else ["id,at,s,spare"]), *records]
        (tmp_path / "in" / "a").write_text("\n".join(lines) + "\n")
    MemorySink.clear()
    notes: list[str] = []
    text = JOB.format(path=tmp_path, form=form, reader=reader)
    (tick,) = until_caught_up(spark, text, tmp_path / "state", on_notice=notes.append).ticks
    assert sorted(row["id"] for row in MemorySink.rows("out")) == [1, 3]
    assert tick.broken["a"].rows == 2
    kept = [json.loads(row["record"]) for row in MemorySink.rows("aside")]
    assert sorted(record["id"] for record in kept) == [2, 4], "what a query uses of it, to be read again"
    assert {record["s"] for record in kept} == {"abcd", "abc "}
    (said,) = [note for note in notes if "did not parse" in note]
    if form != "parquet":
        assert """"s":"abcd"} (s is VARCHAR(3), and has 'abcd': declare it STRING)""" in said
        (source,) = plan_job(parse_job(text)).sources
        assert len(first_rows(source, 9).rows) == 1, "spare is looked at, too"


def test_types_of_all_lengths_are_one_type():
    assert sql_type("VARCHAR(3)") == sql_type("char(5)") == STRING
    assert str(sql_type("VARCHAR(3)")) == "STRING"
    assert (sql_type("VARCHAR(3)").length, sql_type("STRING").length) == (3, 0)
