"""A finished job, and beginning anew: through the command line, without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import watersmeet as watersmeet_package
from tests.support.columns import column
from watersmeet.cli import reset
from watersmeet.errors import SeveralErrors, StateError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local.job import LocalJob
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.sinks.file_sink import FileSink

JOB = """
CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'file', 'path' = 'in');
CREATE SINK out WITH ('connector' = 'file', 'path' = 'out');
CREATE SINK late WITH ('connector' = 'file', 'path' = 'late');
CREATE SINK topic WITH ('connector' = 'kafka', 'bootstrap.servers' = 'x:1', 'topic' = 'y');
CREATE SINK rows WITH ('connector' = 'postgres', 'url' = 'postgresql://db/x', 'table' = 't');
SET late_output = late;
INSERT INTO out SELECT x.t, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 3;
INSERT INTO topic SELECT x.t FROM a x;
INSERT INTO rows SELECT x.t FROM a x;
"""


class Left:
    """What a job has left behind. ``sinks``: those that it owns."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "job.sql"
        self.file.write_text(JOB)
        self.checkpoint = Checkpoint(folder / ".watersmeet" / "job")
        self.out, self.late = folder / "out", folder / "late"

    def make(self, *, finished: bool = True) -> None:
        job = parse_job(self.file.read_text())
        with self.checkpoint.lock():
            owner = self.checkpoint.owner()
        state = LocalJob(plan_job(job), self.checkpoint.store)
        state.tick({"a": [({"t": 1, "k": "x"}, 1)]}, clock_us=1, end=finished)
        (self.checkpoint.spark / "offsets").mkdir(parents=True)
        for sink in job.sinks:
            if sink.name in ("out", "late"):
                made = FileSink(sink)
                made.prepare([column("t", "BIGINT")], owner)
                for tick in (1, 2):
                    part = made._final(sink.name, tick)
                    part.mkdir(parents=True)
                    (made.path / f"{part.name}-00000.parquet").write_bytes(b"x")
                aside = made.path / "_set_aside" / "20240101T000000Z"
                aside.mkdir(parents=True)
                (aside / "out-000000000003-00000.parquet").write_bytes(b"x")

    def is_removed(self) -> bool:
        root = self.checkpoint.root
        gone = not any(each.exists() for each in (root, root.with_name("job.reset")))
        return gone and not any(any(each.iterdir()) for each in (self.out, self.late) if each.exists())


@pytest.fixture
def job_leftovers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Left(tmp_path)


def test_a_finished_job_says_so_before_spark_starts(watersmeet, job_leftovers, engine):
    job_leftovers.make()
    found = watersmeet("run", job_leftovers.file)
    assert (found.status, engine.job) == (2, None)
    assert found.err == (
        "StateError[job-finished]: the job was finished before, by tick 1: its input was ended (--finish),"
        f" so it accepts no more rows\nHint: to start over: watersmeet reset {job_leftovers.file}\n"
    )
    found = watersmeet("run", job_leftovers.file, "--finish")
    assert (found.status, engine.job) == (0, None)
    over = f"To start over: watersmeet reset {job_leftovers.file}"
    assert found.err == f"Nothing to do: tick 1 closed the input (--finish). {over}\n"
    shutil.move(job_leftovers.checkpoint.root, "elsewhere")
    found = watersmeet("run", job_leftovers.file, "--checkpoint", "elsewhere")
    assert found.err.endswith(f"watersmeet reset {job_leftovers.file} --checkpoint elsewhere\n")


def test_a_job_that_goes_on_is_run(watersmeet, job_leftovers, engine):
    job_leftovers.make(finished=False)
    assert watersmeet("run", job_leftovers.file).status == 0
    assert engine.job is not None


def test_reset_names_what_goes_and_what_stays(watersmeet, job_leftovers, engine):
    job_leftovers.make()
    (job_leftovers.out / "notes.txt").write_text("mine")
    found = watersmeet("reset", job_leftovers.file, "--yes")
    assert found.status == 0, found.err
    assert found.out.splitlines() == [
        "This will be deleted:",
        f"  checkpoint {job_leftovers.checkpoint.root} (finished after tick 1)",
        f'  sink "out": {job_leftovers.out}'
        " (2 files, and those that were set aside; other files stay: notes.txt)",
        f'  sink "late": {job_leftovers.late} (2 files, and those that were set aside)',
        '  not deleted: sink "topic": what was sent to Kafka',
        '  not deleted: sink "rows": the rows of its table',
        "Deleted. The next run starts from scratch.",
    ]
    assert [path.name for path in job_leftovers.out.iterdir()] == ["notes.txt"]
    shutil.rmtree(job_leftovers.out)
    assert job_leftovers.is_removed()
    assert watersmeet("run", job_leftovers.file).status == 0
    assert engine.job is not None
    again = watersmeet("reset", job_leftovers.file, "--yes")
    assert again.status == 0
    assert "Nothing to delete" in again.out


@pytest.mark.parametrize(("answer", "status"), [("n", 1), ("", 1), ("y", 0)])
def test_reset_asks(watersmeet, job_leftovers, monkeypatch, answer, status):
    job_leftovers.make()
    asked = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    assert watersmeet("reset", job_leftovers.file).status == status
    assert asked == ["Delete it? [y/N] "]
    assert job_leftovers.is_removed() is (status == 0)


def test_reset_without_a_terminal_requires_the_yes_flag(watersmeet, job_leftovers, monkeypatch):
    job_leftovers.make()
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    found = watersmeet("reset", job_leftovers.file)
    assert found.status == 2
    assert "--yes" in found.err
    assert job_leftovers.checkpoint.root.exists()


def test_a_sink_of_another_checkpoint_stays(watersmeet, job_leftovers):
    job_leftovers.make()
    (job_leftovers.late / "_owner").write_text("0" * 32)
    found = watersmeet("reset", job_leftovers.file, "--yes")
    assert f'not deleted: sink "late": {job_leftovers.late}, which is not this checkpoint\'s' in found.out
    assert not job_leftovers.out.exists()
    assert len(FileSink(parse_job(JOB).sinks[2]).parts()) == 2


def test_what_is_no_checkpoint_is_not_removed(watersmeet, job_leftovers, tmp_path):
    job_leftovers.make()
    (job_leftovers.checkpoint.root / "thesis.tex").write_text("years")
    found = watersmeet("reset", job_leftovers.file, "--yes")
    assert found.status == 2
    assert "not-a-checkpoint" in found.err
    assert "thesis.tex" in found.err
    assert (job_leftovers.checkpoint.root / "state").exists()
    assert watersmeet("reset", job_leftovers.file, "--yes", "--checkpoint", tmp_path).status == 2
    assert job_leftovers.file.exists()


def test_not_while_a_run_holds_the_lock(watersmeet, job_leftovers):
    job_leftovers.make()
    with job_leftovers.checkpoint.lock():
        found = watersmeet("reset", job_leftovers.file, "--yes")
    assert found.status == 2
    assert "checkpoint-locked" in found.err
    assert job_leftovers.out.exists()


def test_killed_at_any_point_the_next_reset_finishes_it(watersmeet, job_leftovers, engine, monkeypatch):
    """Every call that changes the disk is made to fail once; a run in between is refused."""
    calls = {"n": 0, "at": 0}

    def failing(original):
        def call(*args, **kwargs):
            calls["n"] += 1
            if calls["n"] == calls["at"]:
                raise KeyboardInterrupt
            return original(*args, **kwargs)

        return call

    with monkeypatch.context() as patched:
        for home, name in ((shutil, "rmtree"), (Path, "unlink"), (Path, "rmdir"), (reset.os, "rename")):
            patched.setattr(home, name, failing(getattr(home, name)))
        interrupted = 0
        while True:
            job_leftovers.make()
            calls["n"], calls["at"] = 0, interrupted + 1
            status = watersmeet("reset", job_leftovers.file, "--yes").status
            calls["at"] = 0
            if status == 0:
                break
            assert status == 130
            interrupted += 1
            if (
                not job_leftovers.checkpoint.root.exists()
                and job_leftovers.checkpoint.root.with_name("job.reset").exists()
            ):
                refused = watersmeet("run", job_leftovers.file)
                assert (refused.status, engine.job) == (2, None)
                assert "reset-unfinished" in refused.err
            assert watersmeet("reset", job_leftovers.file, "--yes").status == 0
            assert job_leftovers.is_removed()
    assert interrupted > 10


def test_what_has_no_name_is_no_checkpoint():
    with pytest.raises(StateError, match="is not a checkpoint"):
        reset.plan_reset(parse_job(JOB), "/")


@pytest.mark.parametrize("linked", [False, True])
def test_an_interrupted_reset_stops_a_run_from_python(job_leftovers, linked):
    job_leftovers.make()
    root = job_leftovers.checkpoint.root
    root.rename(root.with_name("job.reset"))
    named = root
    if linked:
        named = job_leftovers.out.parent / "link"
        named.symlink_to(root)
    with pytest.raises(SeveralErrors, match="was interrupted") as caught:  # its sources are not there
        watersmeet_package.run(job_leftovers.file.read_text(), {"checkpoint": str(named)})
    (told,) = [error for error in caught.value.errors if error.code == "reset-unfinished"]
    assert told.hint == f"finish the reset: watersmeet reset JOB.sql --checkpoint {named}"
