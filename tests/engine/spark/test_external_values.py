"""A job whose secrets are elsewhere, on Spark: none is kept, and with another password it is the same job."""

from __future__ import annotations

import json

import pytest

import watersmeet

pytestmark = pytest.mark.spark

JOB = """
SET spark.hadoop.acme.pin = FROM FILE '{folder}/pin';
SET spark.sql.acme.mode = '${{ACME_PASSWORD}}';
CREATE TABLE a (k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND)
  WITH ('connector' = 'file', 'path' = '${{IN_FOLDER}}', 'format' = 'json');
CREATE SINK out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
INSERT INTO out SELECT k, '${{ACME_PASSWORD}}' AS c FROM a;
"""


def test_secrets_of_a_job_are_not_stored(spark, tmp_path, monkeypatch, capfd):
    text, said = JOB.format(folder=tmp_path), []
    settings = {"checkpoint": str(tmp_path / "state"), "until_caught_up": True, "small_ticks": "spark"}
    monkeypatch.setenv("IN_FOLDER", str(tmp_path / "in"))
    (tmp_path / "in").mkdir()
    for number, secret in enumerate(("s3cret-one", "s3cret-two")):
        monkeypatch.setenv("ACME_PASSWORD", secret)
        (tmp_path / "pin").write_text(f"{secret}\n")
        line = {"k": f"row {number}", "t": f"2026-01-01T00:00:0{number}Z"}
        (tmp_path / "in" / f"{number}.json").write_text(f"{json.dumps(line)}\n")
        assert watersmeet.run(text, settings, on_notice=said.append).ticks == 1
    (tmp_path / "pin").unlink()
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any("history" in file.parts for file in written)
    assert [file for file in written if b"s3cret" in file.read_bytes()] == []
    assert "s3cret" not in "".join([*said, *capfd.readouterr()])
    parts = [part.read_text() for part in tmp_path.glob("out/*.json")]
    lines = [json.loads(line) for part in parts for line in part.splitlines()]
    assert sorted(line["k"] for line in lines) == ["row 0", "row 1"]
    assert {line["c"] for line in lines} == {"${ACME_PASSWORD}"}
