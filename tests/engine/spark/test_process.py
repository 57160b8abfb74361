"""A job as a process of its own: Ctrl-C in a terminal, settings of Spark."""

from __future__ import annotations

import os
import signal

import pytest
from pyarrow import parquet

from tests.kills.jobs import Growing, Process, batch_of, differences, rows_of, write_job

pytestmark = pytest.mark.spark


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
    files = list((tmp_path / "out" / "joined").glob("*/*.parquet"))
    assert all(".gz.parquet" in file.name for file in files)
    assert {parquet.read_metadata(file).num_rows for file in files} <= set(range(1, 8))
