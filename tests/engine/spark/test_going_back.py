"""Jobs on Spark that are stopped from elsewhere, go back to an earlier tick, or go on from a copy."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.engine.spark.running import Running
from tests.kills.jobs import Growing, batch_of, differences, rows_of, write_job
from watersmeet.cli.main import main
from watersmeet.errors import StateError
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint

pytestmark = pytest.mark.spark


def command(*words):
    return main([str(word) for word in words])


@pytest.fixture
def stopped_job(spark, seed, tmp_path):
    """A job that was stopped by the command, and whose state was copied."""
    write_job(tmp_path)
    growing = Growing(tmp_path, seed, files=8, rows=40)
    growing.add(4)
    text = (tmp_path / "job.sql").read_text()
    with Running(spark, text, tmp_path / "state", keep_ticks=9, trigger="1 second") as running:
        running.wait_for(lambda: len(running.ticks) >= 4)
        asked = command(
            "stop",
            tmp_path / "job.sql",
            "--checkpoint",
            tmp_path / "state",
            "--savepoint",
            tmp_path / "saved",
        )
        assert asked == 0
    assert not Checkpoint(tmp_path / "state").is_stop_requested()
    growing.add(4)
    return tmp_path


def to_the_end(spark, folder, checkpoint, **settings):
    text = (folder / "job.sql").read_text()
    run = Running(spark, text, folder / checkpoint, until_caught_up=True, finish=True, **settings)
    return run.to_the_end()


def as_the_batch(folder):
    for sink in ("joined", "chain"):
        assert differences(rows_of(folder, sink), batch_of(folder, sink)) == []


def test_it_goes_back_and_comes_to_the_same(spark, stopped_job, capsys):
    state = stopped_job / "state"
    capsys.readouterr()
    assert command("state", "ls", state, "--json") == 0
    ticks = [tick["tick"] for tick in json.loads(capsys.readouterr().out)]
    assert len(ticks) >= 4
    assert command("state", "restore", state, "--tick", ticks[1], "--yes") == 0
    with pytest.raises(StateError, match="rebuild-spark-checkpoint"):
        to_the_end(spark, stopped_job, "state")
    result = to_the_end(spark, stopped_job, "state", rebuild=True, replace_newer_files=True)
    assert result.finished
    as_the_batch(stopped_job)
    assert command("state", "check", state) == 0


@pytest.mark.full
def test_a_copy_goes_on_where_the_original_was(spark, stopped_job):
    shutil.rmtree(stopped_job / "state")
    assert to_the_end(spark, stopped_job, "saved", rebuild=True).finished
    as_the_batch(stopped_job)
