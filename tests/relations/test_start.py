"""What `start()` raises before a thread is begun, and who is told of what a run fails with: once, whole."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import watersmeet as ws
from watersmeet import background_job
from watersmeet.errors import EngineError, PlanError, SeveralErrors

TICKS = ws.stream({"n": "BIGINT", "at": "BIGINT"}, time="at", name="ticks")
FAILURE = SeveralErrors(
    [
        EngineError("the disk is full", code="disk-full", hint="make room"),
        PlanError("no bound", code="unbounded-state"),
    ]
)
WHOLE = "EngineError[disk-full]: the disk is full\nHint: make room\nPlanError[unbounded-state]: no bound\n"


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A run that fails when it is set."""
    opened = threading.Event()

    def run(*_: object, **__: object) -> None:
        assert opened.wait(10)
        raise FAILURE

    monkeypatch.setattr(background_job, "run_planned", run)
    yield opened
    opened.set()


def start_job() -> ws.StartedJob:
    return ws.job(TICKS.to_sink(ws.memory("q")), checkpoint="state/ticks").start()


def until_failed(job: ws.StartedJob) -> None:
    end = time.monotonic() + 10
    while job.status != "failed" and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)  # it is printed right after


def test_what_nobody_waits_for_is_printed_once(
    gate: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    job = start_job()
    gate.set()
    until_failed(job)
    told = capsys.readouterr().err
    assert told == f"watersmeet state/ticks: the job has failed\n{WHOLE}"
    with pytest.raises(SeveralErrors):
        job.await_termination()
    assert capsys.readouterr().err == ""


def test_who_waits_gets_it_raised_and_nothing_is_printed(
    gate: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    job = start_job()
    threading.Timer(0.2, gate.set).start()
    with pytest.raises(SeveralErrors) as caught:
        job.await_termination(10)
    assert str(caught.value) + "\n" == WHOLE
    assert caught.value.message == "2 problems: the disk is full; no bound"
    assert capsys.readouterr().err == ""


def test_error_is_printed_after_a_timed_out_wait(
    gate: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    job = start_job()
    assert not job.await_termination(0.05)
    gate.set()
    until_failed(job)
    assert capsys.readouterr().err.endswith(WHOLE)


def test_another_exception_has_its_type_and_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object, **__: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(background_job, "run_planned", run)
    until_failed(start_job())
    told = capsys.readouterr().err
    assert "KeyError: 'no such thing'" in told
    assert "test_start.py" in told


def test_what_is_known_when_planned_is_raised_by_start(tmp_path: Path) -> None:
    table = f"""CREATE TABLE orders (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at)
        WITH ('connector' = 'file', 'path' = '{tmp_path}/nowhere', 'format' = 'csv')"""
    orders = ws.declared(table)["orders"]
    with pytest.raises(ws.WatersmeetError) as missing:
        ws.job(orders.to_sink(ws.memory("q")), checkpoint=tmp_path / "state").start()
    assert missing.value.code == "path-missing"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("nr,at\n1,2024-01-01 00:00:00\n")
    orders = ws.declared(table.replace("nowhere", "in"))["orders"]
    job = ws.job(orders.to_sink(ws.memory("q")), checkpoint=tmp_path / "in" / "state")
    with pytest.raises(SeveralErrors) as wrong:
        job.start()
    assert [error.code for error in wrong.value.errors] == ["checkpoint-in-files", "wrong-columns"]
    assert not any(thread.name.startswith("watersmeet") for thread in threading.enumerate())


def test_a_log_without_handlers_does_not_print_it_again(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The page cannot be drawn without a history: that is known in the run's thread, before Spark starts."""
    settings = {"ui": "127.0.0.1:0", "history": "off"}
    logger = logging.getLogger()
    handlers, logger.handlers = logger.handlers, []
    try:
        job = ws.job(TICKS.to_sink(ws.memory("q")), checkpoint=tmp_path / "state", settings=settings).start()
        until_failed(job)
    finally:
        logger.handlers = handlers
    told = capsys.readouterr().err
    assert told.count("the page of a job needs its history") == 1
    assert "Hint: remove history = 'off'" in told
