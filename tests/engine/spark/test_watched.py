"""A job on Spark as those see it who watch it: Prometheus, Spark's own UI, a log."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import watersmeet
from watersmeet.cli.main import main
from watersmeet.observe.row_accounting import PLACES

pytestmark = pytest.mark.spark

JOB = """
CREATE TABLE a (k STRING, n BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'file', 'path' = '{folder}/a', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE b (k STRING, n BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'file', 'path' = '{folder}/b', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE SINK met WITH ('connector' = 'file', 'path' = '{folder}/met', 'format' = 'parquet');
INSERT INTO met SELECT a.k, a.n, b.n AS m FROM a LEFT JOIN b
  ON a.k = b.k AND b.t BETWEEN a.t - INTERVAL '10' SECONDS AND a.t + INTERVAL '10' SECONDS
    AND length(a.k) + b.n > 0;
"""
DESCRIPTION = "spark.job.description"


@pytest.fixture
def job(tmp_path) -> str:
    """Three files a side, of 20 rows."""
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        for number in range(3):
            rows = range(number * 20, number * 20 + 20)
            lines = [{"k": f"k{n % 5}", "n": n, "t": f"2026-11-26T10:00:{n:02}Z"} for n in rows]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (tmp_path / side / f"{number}.json").write_text(text)
    return JOB.format(folder=tmp_path)


def read_ui_job_descriptions(spark: Any, job: str) -> set[str]:
    """What Spark's UI says of the jobs that were this job's."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = (jobs.apply(n).description() for n in range(jobs.size()))
    return {text.get() for text in found if text.isDefined() and text.get().startswith(f"{job}: ")}


def test_figures_are_the_account_s_and_spark_s_jobs_say_what_they_are_for(spark, job, tmp_path):
    notices, answers = list[str](), list[str]()

    def on_tick(result, seconds, parts):
        (shown,) = (said for said in notices if said.startswith("metrics are shown at "))
        url, access = shown.removeprefix("metrics are shown at ").split(" ", 1)
        assert access == f"(token in {tmp_path / 'token'})"
        header = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=header), timeout=10) as answer:
            answers.append(answer.read().decode())

    settings = {
        "checkpoint": str(tmp_path / "shop"),
        "metrics": "0",
        "token_file": str(tmp_path / "token"),
        "finish": True,
        "partitions": 2,
        "small_ticks": "spark",
    }
    spark.sparkContext.setLocalProperty(DESCRIPTION, "what it was before")
    try:
        result = watersmeet.run(job, settings, on_notice=notices.append, on_tick=on_tick)
        assert spark.sparkContext.getLocalProperty(DESCRIPTION) == "what it was before"
    finally:
        spark.sparkContext.setLocalProperty(DESCRIPTION, None)
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answers[-1])
        for sample in family.samples
    }
    account = result.last.queries["met"].account
    for alias in ("a", "b"):
        of = ("input", alias), ("job", "shop")
        assert samples["watersmeet_input_rows_total", *of, ("query", "met")] == account[alias]["in"] == 60
        assert samples["watersmeet_retained_rows", *of, ("query", "met")] == account[alias]["retained"] == 0
        gone = [
            samples["watersmeet_rows_total", *of, ("outcome", place), ("query", "met")]
            for place in PLACES
            if place != "retained"
        ]
        assert sum(gone) == 60
    assert samples["watersmeet_output_rows_total", ("job", "shop"), ("query", "met")] > 60
    assert samples["watersmeet_tick_duration_seconds_count", ("job", "shop")] == result.ticks == len(answers)
    parts = {
        dict(key[1:]).get("phase")
        for key in samples
        if key[0] == "watersmeet_tick_phase_duration_seconds_count"
    }
    assert {"begin", "ingest", "advance", "join and write", "publish", "commit"} == parts
    ticks = {f"shop: tick {n}, {part}" for n in range(1, 4) for part in ("ingest", "met, join")}
    assert ticks <= read_ui_job_descriptions(spark, "shop")


def test_a_run_that_is_logged_says_nothing_else(spark, job, tmp_path, capfd):
    """On standard error an object of JSON a line; with what it failed with, too."""
    text = tmp_path / "job.sql"
    text.write_text(job)
    command = ["run", str(text), "--log-format", "json", "--checkpoint", str(tmp_path / "shop")]
    capfd.readouterr()
    assert main([*command, "--until-caught-up"]) == 0
    told = capfd.readouterr()
    lines = [json.loads(line) for line in told.err.splitlines()]
    assert told.out == ""
    assert [line["tick"] for line in lines if "rows_in" in line] == [1, 2, 3]
    assert {line["query"] for line in lines if "rows_in" in line} == {"met"}
    assert lines[-1]["account"]["adds_up"]
    (tmp_path / "a" / "4.json").write_text('{"k": "a", "n": 1, "t": "2026-11-26T10:00:00Z"}\n')
    Path(tmp_path / "a" / "0.json").write_text("{}")
    assert main([*command, "--until-caught-up", "--json"]) == 2
    told = capfd.readouterr()
    lines = [json.loads(line) for line in told.err.splitlines()]
    assert all(json.loads(line) for line in told.out.splitlines())
    assert [line["level"] for line in lines if line["level"] == "error"] == ["error"]
    assert (lines[-1]["job"], lines[-1]["code"], "hint" in lines[-1]) == ("shop", "file-changed", True)
