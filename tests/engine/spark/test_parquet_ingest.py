"""What a task tells that reads files itself, without Spark: as ingest of its rows, or that it refuses."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from watersmeet import MemoryStore, parse_job, plan_job
from watersmeet.errors import EngineError
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.files.parquet_files import ParquetRows
from watersmeet.runtime.spark.sources.views import BranchView, SourceView
from watersmeet.runtime.spark.task_messages import PARTS
from watersmeet.runtime.spark.tick.reading import arrow_ingest
from watersmeet.runtime.spark.tick.reading.arrow_ingest import UNSUPPORTED, IngestFiles
from watersmeet.types.parser import sql_type

US = pa.timestamp("us", "UTC")
JOB = """
CREATE TABLE a (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE TABLE b (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE SINK out WITH ('connector' = 'memory');
INSERT INTO out SELECT a.k FROM a JOIN b ON a.k = b.k AND a.t = b.t;
"""


@pytest.fixture
def task_reports(tmp_path, monkeypatch):
    """What tasks tell of the files of a, by their numbers; its k is ``__ws_0`` of the frame."""
    schema = pa.schema([("k", pa.int64()), ("t", US)])
    store, plan = MemoryStore(), plan_job(parse_job(JOB))
    start = TickDriver(restore(plan, {"out/a": schema, "out/b": schema}, store)).begin(clock_us=0).start
    view = SourceView("a", (BranchView("out/a", 0, (("k", "__ws_0"), ("t", "__ws_1"))),))
    columns = {"__ws_0": ("k", sql_type("BIGINT")), "__ws_1": ("t", sql_type("TIMESTAMP"))}
    function = IngestFiles({0: arrow_ingest._Source(view, columns, ParquetRows())}, store)

    def of(*shares):
        parts = json.dumps([[(0, str(tmp_path / path), 0, None) for path in share] for share in shares])
        monkeypatch.setattr(arrow_ingest, "read_tick_property", lambda name: parts if name == PARTS else None)
        monkeypatch.setattr(arrow_ingest, "start_of_tick", lambda: start)
        numbers = pa.record_batch({"id": pa.array(range(len(shares)))})
        return [row for batch in function(iter([numbers])) for row in batch.to_pylist()]

    return of


def write(tmp_path, name, keys, kind=None):
    times = pa.array(range(10**15, 10**15 + len(keys)), US)
    parquet.write_table(pa.table({"t": times, "k": pa.array(keys, kind or pa.int64())}), tmp_path / name)


def test_rows_of_all_files_of_a_task_are_one_report(tmp_path, task_reports):
    write(tmp_path, "1.parquet", [1, 2])
    write(tmp_path, "2.parquet", [3, None])
    write(tmp_path, "3.parquet", [4])
    reports = [json.loads(row["text"]) for row in task_reports(["1.parquet", "2.parquet"], ["3.parquet"])]
    assert [(report["arrangement"], report["counts"]["in"]) for report in reports] == [
        ("out/a", 4),
        ("out/a", 1),
    ]
    assert [report["counts"]["kept"] for report in reports] == [3, 1]
    assert reports[0]["greatest"][""]["t"] == 10**15 + 1


def test_unsupported_file_is_reported_alone(tmp_path, task_reports):
    write(tmp_path, "1.parquet", [1, 2])
    write(tmp_path, "2.parquet", [3], pa.int32())
    (row,) = task_reports(["1.parquet", "2.parquet"])
    assert row["kind"] == UNSUPPORTED
    assert "declared BIGINT" in row["text"]


def test_empty_file_is_not_reported(tmp_path, task_reports):
    write(tmp_path, "1.parquet", [])
    assert task_reports(["1.parquet"]) == []


def test_outside_of_a_tick_nothing_is_read():
    with pytest.raises(EngineError, match="outside of a tick"):
        arrow_ingest.parse_splits(None)
