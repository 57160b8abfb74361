"""Wide rows and a hot key on Spark, and the sink's rows compared with the tasks'."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import until_caught_up
from watersmeet.errors import EngineError
from watersmeet.sinks.file_sink import FileSink

pytestmark = pytest.mark.spark

ROWS, SIZE = 60, 20_000


@pytest.fixture
def job(tmp_path):
    texts = []
    for side in "lr":
        (tmp_path / side).mkdir()
        rows = {
            "k": ["hot"] * ROWS,
            "t": pa.array(np.arange(ROWS) * 1000, pa.timestamp("us", tz="UTC")),
            "v": [f"{side}{n:09}" * (SIZE // 10) for n in range(ROWS)],
        }
        parquet.write_table(pa.table(rows), tmp_path / side / "a.parquet")
        texts.append(f"""
            CREATE MAPPING {side}_in (k STRING, t TIMESTAMP, v STRING) TYPE File
                OPTIONS ('path' = '{tmp_path / side}', 'format' = 'parquet');
            CREATE VIEW {side} AS SELECT * FROM TABLE(
                IMPOSE_ORDER(TABLE {side}_in, DESCRIPTOR(t), INTERVAL '1' SECOND));""")
    return f"""{"".join(texts)}
        SET max_task_memory = '16 MB';
        CREATE MAPPING joined TYPE File OPTIONS ('path' = '{tmp_path / "out"}', 'format' = 'parquet');
        INSERT INTO joined SELECT l.v AS lv, r.v AS rv FROM l JOIN r
            ON l.k = r.k AND l.t BETWEEN r.t - INTERVAL '1' HOUR AND r.t + INTERVAL '1' HOUR"""


def rows_in(path):
    tables = [parquet.read_table(file) for file in path.glob("*.parquet")]
    return {pair for table in tables for pair in zip(*(c.to_pylist() for c in table.columns), strict=True)}


def test_pairs_of_wide_rows_leave_in_little_memory(spark, job, tmp_path):
    running = until_caught_up(spark, job, tmp_path / "checkpoint")
    assert sum(tick.queries["joined"].rows_out for tick in running.ticks) == ROWS * ROWS
    found = rows_in(tmp_path / "out")
    assert len(found) == ROWS * ROWS
    assert {(len(left), len(right)) for left, right in found} == {(SIZE, SIZE)}


@pytest.mark.parametrize(
    "projected",
    [
        pytest.param("l.v AS lv, r.v AS rv", marks=pytest.mark.full),
        "upper(l.v) AS lv, r.v AS rv",
    ],
)
def test_a_sink_that_took_other_rows_stops_the_tick(spark, job, tmp_path, monkeypatch, projected):
    """Whether tasks stage the rows themselves, or Spark computes and writes them."""
    took = FileSink.staged_rows
    monkeypatch.setattr(FileSink, "staged_rows", lambda *given: took(*given) - 1)
    text = job.replace("l.v AS lv, r.v AS rv", projected)
    with pytest.raises(EngineError, match=r"has 3,599 rows, but the job wrote 3,600") as error:
        until_caught_up(spark, text, tmp_path / "checkpoint")
    assert error.value.code == "internal-rows"
    assert not [name for name in os.listdir(tmp_path / "out") if not name.startswith("_")]


@pytest.mark.parametrize("name", ["csv", pytest.param("json", marks=pytest.mark.full)])
def test_a_row_that_is_lost_between_the_tasks_and_the_sink_stops_the_tick(
    spark, job, tmp_path, monkeypatch, name
):
    """A row that Spark loses, planted in what the sink is given."""
    write = FileSink.write

    def losing(self, frame, *more):
        write(self, frame.where("monotonically_increasing_id() <> 0"), *more)

    monkeypatch.setattr(FileSink, "write", losing)
    text = job.replace("l.v AS lv, r.v AS rv", "l.k AS a, left(r.v, 3) AS b")
    head, tail = text.split("CREATE MAPPING joined")
    text = f"{head}CREATE MAPPING joined{tail.replace('parquet', name)}"
    with pytest.raises(EngineError, match=r"has 3,599 rows, but the job wrote 3,600") as error:
        until_caught_up(spark, text, tmp_path / "checkpoint")
    assert error.value.code == "internal-rows"
    assert not [name for name in os.listdir(tmp_path / "out") if not name.startswith("_")]
    monkeypatch.undo()
    running = until_caught_up(spark, text, tmp_path / "checkpoint")
    assert sum(tick.queries["joined"].rows_out for tick in running.ticks) == ROWS * ROWS


def test_a_null_that_csv_has_no_line_for_stops_the_tick(spark, job, tmp_path):
    head, tail = job.split("CREATE MAPPING joined")
    text = f"{head}CREATE MAPPING joined{tail.replace('parquet', 'csv')}"
    for number, where in enumerate(("", " WHERE length(l.v) + length(r.v) > 0")):
        null = text.replace("l.v AS lv, r.v AS rv", "nullif(left(l.v, 10), 'l000000007') AS a") + where
        with pytest.raises(EngineError, match="no line for a row of one column that is NULL") as error:
            until_caught_up(spark, null, tmp_path / f"checkpoint{number}")
        assert error.value.code == "rows-left-out"
    told = null.replace("'csv'", "'csv', 'nullValue' = '?'")
    running = until_caught_up(spark, told, tmp_path / "checkpoint1")
    assert sum(tick.queries["joined"].rows_out for tick in running.ticks) == ROWS * ROWS
