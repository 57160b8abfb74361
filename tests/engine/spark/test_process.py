"""A job as a process of its own: Ctrl-C in a terminal, settings of Spark."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import psutil
import pytest
from pyarrow import parquet

from tests.kills.jobs import Growing, Process, batch_of, differences, rows_of, write_job
from tests.support.effort import at_effort

pytestmark = pytest.mark.spark


@pytest.mark.full
def test_ctrl_c_stops_the_process_group_cleanly_and_settings_reach_spark(seed, tmp_path):
    write_job(tmp_path)
    job = tmp_path / "job.sql"
    job.write_text("SET spark.sql.files.maxRecordsPerFile = 7;\n" + job.read_text())
    Growing(tmp_path, seed, files=4, rows=60).add(4)
    gzip = ("--conf", "spark.sql.parquet.compression.codec=gzip")
    first = Process(tmp_path, *gzip, "--trigger", "2 seconds", own_jvm=True, forked=False)
    try:
        first.await_ticks(2)
        os.killpg(first.process.pid, signal.SIGINT)  # as a terminal does: Python, Java and the workers get it
        assert first.await_end() == 0, first.errors.read_text()
        assert "Traceback" not in first.errors.read_text()
        assert "Exception" not in first.errors.read_text()
        assert first.account["adds_up"]
    finally:
        first.clean_up()
    second = Process(tmp_path, *gzip, "--until-caught-up", "--finish")
    try:
        assert second.await_end() == 0, second.errors.read_text()
        # Spark notes files, then plans their batch: stopped in between, it reads them with the next ones
        assert first.ticks + second.ticks in (4, 5), (first.lines, second.lines)
        batches = list((tmp_path / "state" / "spark" / "commits").glob("[0-9]*"))
        assert (
            first.ticks + second.ticks == len(batches) + 1
        )  # each is told as a tick, and so is the last one
    finally:
        second.clean_up()
    for sink in ("joined", "chain"):
        assert differences(rows_of(tmp_path, sink), batch_of(tmp_path, sink)) == []
    files = list((tmp_path / "out" / "joined").glob("*.parquet"))
    assert all(".gz.parquet" in file.name for file in files)
    assert {parquet.read_metadata(file).num_rows for file in files} <= set(range(1, 8))


@pytest.fixture
def growing(tmp_path, seed):
    """Input of a job whose ticks are made by Python workers."""
    write_job(tmp_path, small_ticks="spark")
    return Growing(tmp_path, seed, files=6, rows=60)


def _descendants(run: Process) -> list[psutil.Process]:
    return psutil.Process(run.process.pid).children(recursive=True)


def _check_rest(folder) -> None:
    """What the first run left is made up for."""
    second = Process(folder, "--until-caught-up", "--finish")
    try:
        assert second.await_end() == 0, second.errors.read_text()
    finally:
        second.clean_up()
    for sink in ("joined", "chain"):
        assert differences(rows_of(folder, sink), batch_of(folder, sink)) == []


def test_a_signal_to_all_processes_is_a_stop(growing, tmp_path):
    """Ctrl-C in a terminal, and a stop by systemd: Java and the workers get it, whatever their group."""
    for number in at_effort(quick=[signal.SIGTERM], full=[signal.SIGINT, signal.SIGTERM]):
        growing.add(2)
        run = Process(tmp_path, "--trigger", "100 milliseconds", own_jvm=True, forked=False)
        try:
            run.await_ticks(1)
            growing.add(1)
            others = _descendants(run)
            assert {"java"} < {other.name() for other in others}, "there are workers, too"
            for process in [psutil.Process(run.process.pid), *others]:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            assert run.await_end() == 0, run.errors.read_text()
            assert "Error" not in run.errors.read_text()
            assert run.account["adds_up"]
        finally:
            run.clean_up()
    _check_rest(tmp_path)


@pytest.mark.full
def test_a_stop_that_java_does_not_outlive_gives_up_the_tick(growing, tmp_path, monkeypatch):
    """Started by `spark-submit`, Java ends at SIGTERM."""
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", " ")
    growing.add(4)
    first = Process(tmp_path, "--trigger", "100 milliseconds", own_jvm=True, forked=False)
    try:
        first.await_ticks(1)
        os.killpg(first.process.pid, signal.SIGTERM)
        assert first.await_end() == 0, first.errors.read_text()
        words = first.errors.read_text()
        assert "the stop signal also ended another process of the job" in words
        assert "Error" not in words
    finally:
        first.clean_up()
    _check_rest(tmp_path)


def test_java_and_workers_do_not_outlive_a_python_that_was_killed(growing, tmp_path):
    """Java ignores signals that stop a run, and ends with its standard input."""
    growing.add(4)
    run = Process(tmp_path, "--trigger", "100 milliseconds", own_jvm=True, forked=False)
    try:
        run.await_ticks(1)
        others = _descendants(run)
        assert {"java"} < {other.name() for other in others}
        run.process.kill()
        _, left = psutil.wait_procs(others, timeout=30)
        assert left == []
    finally:
        run.clean_up()
    _check_rest(tmp_path)
