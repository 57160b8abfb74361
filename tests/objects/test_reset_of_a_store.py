"""`watersmeet reset` of a job whose state is in an object store."""

from __future__ import annotations

import shutil

import pytest

from tests.objects.test_looking_after import Ran, command
from watersmeet.cli import reset
from watersmeet.state.manifest import manifest_names


@pytest.fixture
def finished_run(tmp_path, monkeypatch, endpoint, bucket):
    monkeypatch.chdir(tmp_path)
    return Ran(tmp_path, endpoint, bucket)


def test_from_a_machine_that_has_nothing_of_the_job(finished_run, capsys):
    shutil.rmtree(finished_run.checkpoint.root)
    assert command("reset", "job.sql", "--yes") == 0
    out = capsys.readouterr().out
    assert f"state {finished_run.checkpoint.place}" in out
    assert "first stop a run on another machine" in out
    assert manifest_names(finished_run.checkpoint.store) == []
    assert finished_run.checkpoint.store.names("job") == []
    assert command("reset", "job.sql", "--yes") == 0
    assert "Nothing to delete" in capsys.readouterr().out


def test_no_run_begins_once_the_first_sink_is_touched(finished_run, monkeypatch, capsys):
    seen = []

    def interrupt_before_emptying_sinks(self, owner):
        seen.append((owner, self.checkpoint.stored_job.is_reset_unfinished()))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reset.Reset, "empty_sinks", interrupt_before_emptying_sinks)
        for _ in range(2):  # the second time without the job's id
            with pytest.raises(KeyboardInterrupt):
                reset.plan_reset(reset_job(finished_run), str(finished_run.checkpoint.root)).run()
            finished_run.checkpoint.store.delete("job/id")
    assert seen == [(finished_run.owner, True)] * 2
    assert command("reset", "job.sql", "--yes") == 0
    assert finished_run.checkpoint.store.names("job") == []


def reset_job(finished_run):
    from pathlib import Path

    from watersmeet.parser.statements import parse_job

    return parse_job(Path("job.sql").read_text())
