"""`--metrics` and `--log-format` where they are wrong, and where nothing is run: before Spark is started."""

from __future__ import annotations

import json
import socket

import pytest

from watersmeet.cli.main import main

JOB = """
CREATE TABLE a (k STRING, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'file', 'path' = '{folder}',
  'format' = 'json');
CREATE SINK out WITH ('connector' = 'console');
INSERT INTO out SELECT k FROM a;
"""


@pytest.fixture
def run(tmp_path, capfd):
    (tmp_path / "in").mkdir()
    text = tmp_path / "job.sql"
    text.write_text(JOB.format(folder=tmp_path / "in"))

    def command(*flags: str, sql: str | None = None) -> tuple[int, str]:
        if sql is not None:
            text.write_text(sql)
        status = main(["run", str(text), "--checkpoint", str(tmp_path / "state"), *flags])
        told = capfd.readouterr()
        assert told.out == ""
        return status, told.err

    return command


@pytest.mark.parametrize("address", ["", "70000", "localhost", "host:", ":9464", "http://host:9464"])
def test_what_is_no_address_is_refused(run, address):
    status, told = run("--metrics", address)
    assert status == 2
    assert f"metrics is '{address}'" in told
    assert "[bad-setting]" in told
    assert "Hint: use a port such as 9464" in told


def test_a_log_of_no_form_is_refused(run):
    status, told = run("--log-format", "xml")
    assert status == 2
    assert "log_format is 'xml'" in told
    assert "use 'text' or 'json'" in told


def test_busy_metrics_port_is_reported_before_spark_starts(run):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        status, told = run("--metrics", str(other.getsockname()[1]))
    assert status == 2
    assert told.startswith("EngineError[port-taken]: metrics cannot be shown at 127.0.0.1:")
    assert "another program uses this port\nHint: another port" in told
    assert "Traceback" not in told


def test_what_is_wrong_with_a_job_is_logged_as_it_is_to_be(run):
    status, told = run("--log-format", "json", sql=JOB.replace("SELECT k", "SELECT z"))
    line = json.loads(told)
    assert (status, line["level"]) == (2, "error")
    assert "z" in line["message"]
    assert line["code"] == "unknown-column"
    assert run("--log-format", "text", sql="SET log_format = 'json'; SELECT 1 FROM nowhere")[0] == 2
    status, told = run(sql="SET log_format = 'json'; SELECT k FROM nowhere")
    assert json.loads(told)["level"] == "error"
