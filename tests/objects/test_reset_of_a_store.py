"""`watersmeet reset` of a job whose state is in an object store."""

from __future__ import annotations

import shutil

import pytest

from tests.objects.test_looking_after import Ran, command
from watersmeet.cli import reset
from watersmeet.state.manifest import manifest_names


@pytest.fixture
def ran(tmp_path, monkeypatch, endpoint, bucket):
    monkeypatch.chdir(tmp_path)
    return Ran(tmp_path, endpoint, bucket)


def test_from_a_machine_that_has_nothing_of_the_job(ran, capsys):
    shutil.rmtree(ran.checkpoint.root)
    assert command("reset", "job.sql", "--yes") == 0
    out = capsys.readouterr().out
    assert f"state {ran.checkpoint.place}" in out
    assert "first stop a run on another machine" in out
    assert manifest_names(ran.checkpoint.store) == []
    assert ran.checkpoint.store.names("job") == []
    assert command("reset", "job.sql", "--yes") == 0
    assert "Nothing to delete" in capsys.readouterr().out


def test_no_run_begins_once_the_first_sink_is_touched(ran, monkeypatch, capsys):
    seen = []

    def killed(self, owner):
        seen.append((owner, self.checkpoint.stored_job.is_reset_unfinished()))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reset.Reset, "empty_sinks", killed)
        for _ in range(2):  # the second time without the job's id
            with pytest.raises(KeyboardInterrupt):
                reset.plan_reset(reset_job(ran), str(ran.checkpoint.root)).run()
            ran.checkpoint.store.delete("job/id")
    assert seen == [(ran.owner, True)] * 2
    assert command("reset", "job.sql", "--yes") == 0
    assert ran.checkpoint.store.names("job") == []


def reset_job(ran):
    from pathlib import Path

    from watersmeet.parser.statements import parse_job

    return parse_job(Path("job.sql").read_text())
