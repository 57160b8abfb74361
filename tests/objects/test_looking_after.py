"""`watersmeet state …` of a job whose state is in an object store, and copies into one and out of it."""

from __future__ import annotations

import json
from functools import partial

import pytest

import watersmeet as package
from tests.cli.test_state_commands import JOB
from watersmeet.cli.main import main
from watersmeet.objects.settings import store_of
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.state.manifest import BEGUN, load_newest, manifest_names


class Ran:
    def __init__(self, folder, endpoint, bucket):
        self.settings = {
            "state_store": f"s3://{bucket}/job",
            "state_store_endpoint": endpoint,
            "state_store_allow_http": "true",
        }
        sets = "".join(f"SET {name} = '{value}';\n" for name, value in self.settings.items())
        (folder / "job.sql").write_text(sets + JOB)
        self.checkpoint = self.at(f"s3://{bucket}/job", folder / ".watersmeet" / "job")
        with self.checkpoint.lock():
            self.owner = self.checkpoint.owner()
        self.out = self.run(7)

    def at(self, url, folder):
        return Checkpoint(folder, store_of({**self.settings, "state_store": url, "state_cache": "none"}))

    def run(self, until, checkpoint=None):
        store = (checkpoint or self.checkpoint).store
        job = LocalJob(
            package.plan_job(package.parse_job(JOB)),
            store,
            settings=TickSettings(keep_ticks=4),
            drive=partial(TickDriver, owner=self.owner),
        )
        out = {}
        for tick in range(job.driver.tick + 1, until + 1):
            rows = [({"k": n, "t": tick * 20 + n}, 1) for n in range(6)]
            out[tick] = job.tick({"a": rows, "b": rows[tick % 3 :]}, clock_us=tick).rows
        job.driver.ledger.settle()
        return out


@pytest.fixture
def finished_run(tmp_path, monkeypatch, endpoint, bucket):
    monkeypatch.chdir(tmp_path)
    return Ran(tmp_path, endpoint, bucket)


def command(*words):
    return main([str(word) for word in words])


def test_it_is_listed_and_checked(finished_run, capsys):
    assert command("state", "ls", "job.sql", "--json") == 0
    assert [tick["tick"] for tick in json.loads(capsys.readouterr().out)] == [4, 5, 6, 7]
    assert command("state", "check", "job.sql") == 0
    run = sorted(load_newest(finished_run.checkpoint.store).files())[0]
    finished_run.checkpoint.store.delete(run)
    capsys.readouterr()
    assert command("state", "check", "job.sql") == 1
    assert run in capsys.readouterr().out


def test_it_is_not_swept_for_nobody_knows_whether_a_run_goes_on(finished_run, capsys):
    finished_run.checkpoint.store.write("runs/of-a-tick", b"x")
    assert command("state", "gc", "job.sql") == 2
    assert "cannot tell whether the job runs" in capsys.readouterr().err
    assert finished_run.checkpoint.store.has("runs/of-a-tick")


def test_copies_go_on_as_the_original_would(finished_run, capsys, bucket):
    """Into a directory, and into another store."""
    assert command("state", "copy", "job.sql", "copy") == 0
    assert command("state", "copy", "job.sql", f"s3://{bucket}/other") == 0
    assert "copied tick 7" in capsys.readouterr().out
    expected = finished_run.run(10)
    for checkpoint in (
        Checkpoint("copy"),
        finished_run.at(f"s3://{bucket}/other", "scratch"),
    ):
        assert checkpoint.owner() == finished_run.owner
        assert finished_run.run(10, checkpoint) == expected
    for place in ("copy", f"s3://{bucket}/other"):
        assert command("state", "copy", "job.sql", place) == 2
        assert "is not empty" in capsys.readouterr().err


def test_a_run_is_not_stopped_for_a_savepoint_in_a_store_that_cannot_be_written(finished_run, capsys, bucket):
    """Its names can be asked for, and nothing can be put."""
    (finished_run.checkpoint.root.parent / "local").mkdir()
    local = Checkpoint(finished_run.checkpoint.root.parent / "local")
    with local.lock():
        local.forget_stop()
        words = ["stop", "job.sql", "--checkpoint", str(local.root), "--timeout", "0", "--savepoint"]
        for to in ("s3://no-such-bucket-of-ours/other", " "):
            assert command(*words, to) == 2
            assert not local.is_stop_requested()
            captured = capsys.readouterr()
            assert captured.out == ""
        assert command(*words, f"s3://{bucket}/other") == 2
        assert local.is_stop_requested()
        assert "did-not-stop" in capsys.readouterr().err


def test_it_goes_back(finished_run, capsys):
    finished_run.checkpoint.intend(Intent(8, 1, False))
    left = f"{BEGUN}/{6:012d}.json"  # as a kill leaves it, between the manifest and its removal
    finished_run.checkpoint.store.create(left, b'{"clock_us": 1, "end": false}')
    assert command("state", "restore", "job.sql", "--tick", "5", "--yes") == 0
    assert "a run on another machine can commit no more" in capsys.readouterr().out
    assert [finished_run.checkpoint.intent(tick) for tick in (6, 8)] == [None, None]
    assert not finished_run.checkpoint.store.has(left)
    assert [name[-6:-5] for name in manifest_names(finished_run.checkpoint.store)] == ["4", "5"]
    assert finished_run.run(7) == {tick: out for tick, out in finished_run.out.items() if tick > 5}
    assert command("state", "check", "job.sql") == 0
