"""`watersmeet.run`: a job's text from Python, in the session that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import watersmeet
from watersmeet.history.points import END
from watersmeet.history.reader import read
from watersmeet.state.store import LocalStore

pytestmark = pytest.mark.spark

JOB = """
CREATE TABLE a (k STRING, n BIGINT, t BIGINT, WATERMARK FOR t AS t - 5)
    WITH ('connector' = 'filesystem', 'path' = '{folder}/a', 'format' = 'json');
CREATE TABLE out (k STRING, n BIGINT, m BIGINT)
    WITH ('connector' = 'filesystem', 'path' = '{folder}/out', 'format' = 'parquet');
INSERT INTO out SELECT x.k, x.n, y.n AS m FROM a x LEFT JOIN a y
    ON x.k = y.k AND y.t BETWEEN x.t + 1 AND x.t + 4;
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "a").mkdir()
    return JOB.replace("{folder}", str(tmp_path))


def add(folder: Path, name: str, *rows: dict[str, object]) -> None:
    (folder / "a" / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_output(folder: Path) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in pq.read_table(folder / "out").to_pylist())


def test_a_run_goes_on_where_the_last_one_ended(spark, job, tmp_path):
    settings = {"checkpoint": str(tmp_path / "state"), "until_caught_up": "true", "partitions": "2"}
    add(tmp_path, "1", {"k": "u", "n": 1, "t": 10}, {"k": "v", "n": 2, "t": 11})
    seen = []
    first = watersmeet.run(job, settings, on_tick=lambda tick, seconds, parts: seen.append(tick.tick))
    assert (first.ticks, first.finished, first.stopped, seen) == (1, False, False, [1])
    add(tmp_path, "2", {"k": "u", "n": 3, "t": 12})
    second = watersmeet.run(job, {**settings, "finish": "true"})
    assert second.finished
    assert read_output(tmp_path) == [("u", 1, 3), ("u", 3, None), ("v", 2, None)]
    past = read(LocalStore(tmp_path / "state" / "state"))
    assert [run.ended.how for run in past.runs if run.ended is not None] == ["caught up", "finished"]
    ticks = past.series("input/out/x", "in")
    assert (ticks.points.column("last_tick").to_pylist(), ticks.values()) == ([1, 2, 3], [2, 3, 3])
    assert past.series("time/out/x/t", "watermark").values()[-1] == END
    assert all(past.series("phase/ingest", "duration_us").values())


def test_a_job_may_keep_no_history(spark, job, tmp_path):
    settings = {"checkpoint": str(tmp_path / "state"), "until_caught_up": "true", "history": "off"}
    add(tmp_path, "1", {"k": "u", "n": 1, "t": 10})
    assert watersmeet.run(job, settings).ticks == 1
    assert not read(LocalStore(tmp_path / "state" / "state"))


def test_without_a_checkpoint_it_is_refused_and_what_is_wrong_with_the_text_comes_first(job):
    with pytest.raises(watersmeet.SpecError, match="no checkpoint"):
        watersmeet.run(job)
    with pytest.raises(watersmeet.SqlError, match='no column "q"'):
        watersmeet.run(job.replace("x.n,", "x.q,"))
