"""In how many tasks ticks are run on Spark: few rows in one, many in as many as they need."""

from __future__ import annotations

import json
import os
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import until_caught_up
from watersmeet.errors import EngineError
from watersmeet.runtime.coordinator import node_cost
from watersmeet.runtime.spark.tick.task_placement import TaskCounts

pytestmark = pytest.mark.spark


BEGAN = 1_700_000_000


class Sides:
    """Two inputs of files, and the join of their rows by a key and a time within an hour."""

    def __init__(self, folder, *, condition="", settings=""):
        self.folder = folder
        texts = []
        for side in "lr":
            (folder / side).mkdir()
            texts.append(
                f"CREATE TABLE {side} (k BIGINT, t TIMESTAMP, v STRING,"
                " WATERMARK FOR t AS t - INTERVAL '1' SECOND) WITH ('connector' = 'File',"
                f" 'path' = '{folder / side}', 'format' = 'parquet',"
                " 'maxFilesPerTrigger' = '1');"
            )
        self.text = f"""{settings} {"".join(texts)}
            CREATE TABLE joined WITH ('connector' = 'File', 'path' = '{folder}/out', 'format' = 'json');
            INSERT INTO joined SELECT l.k, length(r.v) AS size FROM l LEFT JOIN r
                ON l.k = r.k AND r.t BETWEEN l.t - INTERVAL '1' HOUR AND l.t + INTERVAL '1' HOUR
                {condition}"""
        self.files = self.rows = 0

    def come(self, rows, size=1, of_a_key=1):
        for side in "lr":
            keys = np.arange(self.rows, self.rows + rows) // of_a_key
            times = pa.array(keys * 1000, pa.timestamp("us", tz="UTC"))
            table = pa.table({"k": keys, "t": times, "v": ["v" * size] * rows})
            path = self.folder / side / f"{self.files:03}.parquet"
            parquet.write_table(table, path)
            os.utime(path, (BEGAN + self.files,) * 2)  # Spark takes those first that are oldest
        self.rows += rows
        self.files += 1

    def found(self):
        """How many rows there are of each key."""
        rows = Counter()
        for file in self.folder.glob("out/*.json"):
            for row in map(json.loads, file.read_text().splitlines()):
                rows[row["k"]] += row.get("_diff", 1)
        return rows


@pytest.fixture
def counts(monkeypatch):
    """The numbers of tasks, as they are asked for."""
    told = []
    of = TaskCounts.of

    def record_task_count(self, query, number, amount):
        told.append(of(self, query, number, amount))
        return told[-1]

    monkeypatch.setattr(TaskCounts, "of", record_task_count)
    return told


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param("", id=""),
        pytest.param("AND hash(l.v, r.v) IS NOT NULL", id="computed-by-spark", marks=pytest.mark.full),
    ],
)
def test_ticks_are_run_in_as_many_tasks_as_they_need(spark, tmp_path, monkeypatch, counts, condition):
    """One run of them after the other, over the same state, which each cuts as it needs."""
    monkeypatch.setattr(node_cost, "MIN_TASK_ROWS", 500)
    monkeypatch.setattr(node_cost, "MAX_TASK_ROWS", 4_000)
    sides = Sides(tmp_path, condition=condition)
    for rows in (100, 600, 8_000, 100):
        sides.come(rows)
    run = until_caught_up(spark, sides.text, tmp_path / "checkpoint", partitions=None)
    assert counts == [1, 2, 8, 1]
    assert [tick.tasks for tick in run.ticks] == [{"joined": count} for count in counts]
    files = Counter(file.name[: len("joined-000000000001")] for file in tmp_path.glob("out/*.json"))
    assert [files[part] for part in sorted(files)] == counts
    sides.come(100)
    until_caught_up(spark, sides.text, tmp_path / "checkpoint", partitions=3)
    sides.come(10)
    until_caught_up(spark, sides.text, tmp_path / "checkpoint", partitions=None, finish=True)
    assert counts[4] == 3
    assert counts[5] == 1
    assert sides.found() == dict.fromkeys(range(sides.rows), 1)


@pytest.mark.full
def test_changes_that_two_tasks_may_not_hold_are_spread_over_more(spark, tmp_path, counts):
    sides = Sides(tmp_path, settings="SET max_task_memory = '16 MB'; SET output_mode = 'changelog';")
    sides.come(500, size=100_000, of_a_key=2)  # 50 MB a side, of rows that have to be told apart
    with pytest.raises(EngineError, match="may hold 16"):
        until_caught_up(spark, sides.text, tmp_path / "two", partitions=2)
    counts.clear()
    until_caught_up(spark, sides.text, tmp_path / "checkpoint", partitions=None)
    assert max(counts) >= 16
    assert sides.found() == dict.fromkeys(range(250), 4)
