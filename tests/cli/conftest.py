"""The command line as a function, and an engine that is not there."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from watersmeet import running
from watersmeet.cli.main import main
from watersmeet.history.recorder import HistoryRecorder


class FakeEngine:
    """Stands for watersmeet.runtime.spark.job.run: remembers its call, reports the ticks it was given."""

    def __init__(self) -> None:
        self.ticks: list[object] = []
        self.error: BaseException | None = None
        self.stopped = False
        self.changed: dict = {}
        self.waiting: dict = {}
        self.backlog: dict = {}
        self.notices: list[str] = []
        self.job = self.plan = self.settings = None

    def run_job(self, job, plan, settings):
        self.job, self.plan, self.settings = job, plan, settings
        settings.on_backlog(self.backlog)
        settings.on_start(self.waiting, None)
        for notice in self.notices:
            settings.on_notice(notice)
        for tick in self.ticks:
            settings.on_begin(tick.tick)
            settings.on_tick(tick, 0.25, {"ingest": 0.1})
        if self.error is not None:
            raise self.error
        return SimpleNamespace(
            stopped=self.stopped, ticks=len(self.ticks), finished=False, changed=self.changed
        )


def tick(number: int, **account: int) -> SimpleNamespace:
    """A tick's result with one query ``q`` of one input ``a``."""
    counts = {"in": account.get("in", 0)}
    retained = account.pop("retained", 0)
    query = SimpleNamespace(
        input_watermarks={"a.t": 5 + number},
        output_watermarks={"a.t": 5 + number},
        late_below={"a.t": 4 + number},
        matches=0,
        total_rows_out=3 * number,
        state_bytes=0,
        state={"a": retained},
        counts={"a": counts},
        account={"a": account},
        rows_out=3,
        late={},
        holding={},
        idle=(),
        missing_deletes=(),
        heavy={},
        split={},
        shed_joined={},
    )
    return SimpleNamespace(
        tick=number,
        queries={"q": query},
        rows_in={"a": counts["in"]},
        held={},
        rounded={},
        tasks={},
        traffic={},
        measured=dict,
        finished=False,
    )


@pytest.fixture
def engine(monkeypatch):
    fake = FakeEngine()
    module = ModuleType("watersmeet.runtime.spark.job.run")
    module.run_job = fake.run_job
    monkeypatch.setitem(sys.modules, "watersmeet.runtime.spark.job.run", module)
    monkeypatch.setattr(running, "check_before_java", lambda *_, **__: None)  # nothing is read or written
    monkeypatch.setattr(HistoryRecorder, "started", lambda *_: None)  # it has no checkpoint to keep one in
    return fake


@pytest.fixture
def make_tick():
    return tick


@pytest.fixture
def watersmeet(capsys):
    """Run a command line; its exit status and what it wrote."""

    def run(*argv: object) -> SimpleNamespace:
        capsys.readouterr()
        status = main([str(word) for word in argv])
        written = capsys.readouterr()
        return SimpleNamespace(status=status, out=written.out, err=written.err)

    return run


JOB = """
CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'file', 'path' = 'in');
SELECT x.t, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 3;
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job's file, in the working directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "job.sql"
    file.write_text(JOB)
    return file
