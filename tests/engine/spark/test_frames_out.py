"""Where rows of relations go on Spark: its own writers, its tables, functions of this process."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

import watersmeet as ws
from tests.engine.spark.running import killed_at_commit

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=UTC)
ROWS = 40


def numbers(spark: Any, folder: Any, name: str = "numbers") -> ws.Relation:
    """Rows 0 to 39 with a time and a text, in two files that are two ticks."""
    place = folder / name
    if not place.exists():
        place.mkdir()
        for part in range(2):
            lines = [
                f'{{"n": {n}, "at": "{(START + timedelta(minutes=n)).isoformat()}", "text": "t{n}"}}'
                for n in range(part * ROWS // 2, (part + 1) * ROWS // 2)
            ]
            file = place / f"{part}.json"
            file.write_text("\n".join(lines))
            os.utime(file, (1_700_000_000 + part, 1_700_000_000 + part))  # by which Spark has them in order
    frame = spark.readStream.schema("n BIGINT, at TIMESTAMP, text STRING").option("maxFilesPerTrigger", 1)
    return ws.stream(frame.json(str(place)), time="at", name=name).select("n", "text")


def run_to_end(job: ws.Job) -> ws.StartedJob:
    started = job.start()
    assert started.await_termination(900)
    return started


def test_a_function_gets_the_same_rows_again_by_the_same_number(spark, tmp_path, monkeypatch):
    """The function has done its work when the job dies, before the tick is committed. And what Spark writes
    comes again: at least once."""
    spark.sql("CREATE DATABASE IF NOT EXISTS out_of_here")
    spark.sql("CREATE TABLE IF NOT EXISTS out_of_here.t (text STRING, n BIGINT) USING parquet")
    spark.sql("TRUNCATE TABLE out_of_here.t")
    given: list[tuple[int, list[tuple[int, str]]]] = []
    taken: dict[int, list[tuple[int, str]]] = {}
    asked: set[tuple[str, str]] = set()

    def put(rows: Any, tick: int, *, job: str, insert: str) -> None:
        assert rows.isStreaming is False
        asked.add((job, insert))
        told = [tuple(row) for row in rows.collect()]
        given.append((tick, told))
        if tick not in taken:
            taken[tick] = told

    def job(partitions: int) -> ws.Job:
        relation = numbers(spark, tmp_path)
        return ws.job(
            relation.foreach_batch(put),
            relation.to_sink(format="orc", options={"path": str(tmp_path / "orc")}, name="as_orc"),
            relation.to_table("out_of_here.t"),
            checkpoint=str(tmp_path / "state"),
            settings={"until_caught_up": True, "partitions": partitions},
        )

    with killed_at_commit(monkeypatch, 1):
        started = job(3).start()
        with pytest.raises(ws.EngineError, match="killed"):
            started.await_termination(900)
    run_to_end(job(1))
    expected = [(n, f"t{n}") for n in range(ROWS)]
    assert [tick for tick, _ in given] == [1, 2, 2]
    ((identity, insert),) = asked
    assert identity
    assert insert == "put"
    assert given[1] == given[2], "the same rows in the same order, by another number of tasks"
    assert sorted(row for rows in taken.values() for row in rows) == expected
    twice = Counter(expected) + Counter(expected[ROWS // 2 :])
    assert Counter(tuple(r) for r in spark.read.orc(str(tmp_path / "orc")).collect()) == twice
    assert Counter((r.n, r.text) for r in spark.table("out_of_here.t").collect()) == twice


def test_a_function_that_fails_ends_the_job_and_gets_the_tick_again(spark, tmp_path):
    given: list[tuple[int, bool]] = []
    fails = [True]

    def put(rows: Any, tick: int) -> None:
        given.append((tick, job.stop(timeout=0)))  # which does not wait for itself
        if fails:
            raise KeyError("no such shop")
        assert rows.columns == ["n", "text", "_deleted"]
        assert rows.where("NOT _deleted").count() == rows.count()

    def started() -> ws.StartedJob:
        relation = numbers(spark, tmp_path)
        output = relation.foreach_batch(put, name="shop", primary_key="n")
        return ws.job(output, checkpoint=str(tmp_path / "state"), settings={"until_caught_up": True}).start()

    job = started()
    with pytest.raises(ws.EngineError, match="KeyError: 'no such shop'") as failed:
        job.await_termination(900)
    assert failed.value.code == "function-failed"
    assert "test_frames_out.py, line" in failed.value.message
    fails.clear()
    job = started()
    assert job.await_termination(900)
    assert (job.status, given) == ("stopped", [(1, False), (1, False)])


class Lines(DataSourceWriter):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, rows: Any) -> WriterCommitMessage:
        with open(os.path.join(self.folder, uuid.uuid4().hex), "w") as file:
            file.writelines(f"{row.n} {row.text}\n" for row in rows)
        return WriterCommitMessage()


class OwnLines(DataSource):
    @classmethod
    def name(cls) -> str:
        return "own_lines"

    def writer(self, schema: Any, overwrite: bool) -> Lines:
        assert not overwrite
        return Lines(self.options["path"])


def test_a_data_source_of_the_users_own_writes_rows(spark, tmp_path):
    """Which is written in Python, and that the session alone knows."""
    spark.dataSource.register(OwnLines)
    out = tmp_path / "out"
    out.mkdir()
    output = numbers(spark, tmp_path).to_sink(format="own_lines", options={"path": str(out)})
    run_to_end(ws.job(output, checkpoint=str(tmp_path / "state"), settings={"until_caught_up": True}))
    lines = [line for file in out.iterdir() for line in file.read_text().splitlines()]
    assert sorted(lines) == sorted(f"{n} t{n}" for n in range(ROWS))


def test_what_spark_cannot_write_is_refused_before_a_query_starts(spark, tmp_path):
    spark.sql("CREATE DATABASE IF NOT EXISTS out_of_here")
    spark.sql("CREATE TABLE IF NOT EXISTS out_of_here.narrow (n INT, text STRING) USING parquet")
    spark.sql("CREATE TABLE IF NOT EXISTS out_of_here.other (n BIGINT, texts STRING) USING parquet")
    spark.sql("CREATE TABLE IF NOT EXISTS out_of_here.more (n BIGINT, text STRING, x INT) USING parquet")
    spark.sql("CREATE TABLE IF NOT EXISTS out_of_here.less (n BIGINT) USING parquet")
    spark.sql("CREATE OR REPLACE VIEW out_of_here.seen AS SELECT * FROM out_of_here.less")
    relation = numbers(spark, tmp_path)
    refused = {
        "nosuch": relation.to_sink(format="nosuch"),
        "does not exist": relation.to_table("out_of_here.nosuch"),
        'column "n" is int in the table, but bigint in the result': relation.to_table("out_of_here.narrow"),
        'has the column "texts", but the result does not': relation.to_table("out_of_here.other"),
        'has the column "x", but the result does not': relation.to_table("out_of_here.more"),
        'has no column "text", but the result does': relation.to_table("out_of_here.less"),
        "is a view": relation.to_table("out_of_here.seen"),
    }
    for number, (says, output) in enumerate(refused.items()):
        state = tmp_path / f"state{number}"
        job = ws.job(output, checkpoint=str(state), settings={"until_caught_up": True})
        with pytest.raises(ws.EngineError, match=says):
            job.start().await_termination(900)
        assert not spark.streams.active
    job = ws.job(refused["does not exist"], checkpoint=str(tmp_path / "state"))
    with pytest.raises(ws.EngineError) as caught:
        job.start().await_termination(900)
    assert "CREATE TABLE out_of_here.nosuch (`n` bigint, `text` string)" in str(caught.value.hint)
