"""``watersmeet report``: from what a run kept, and nothing else."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.support.recorded import OPEN, RecordedJob
from watersmeet.errors import EngineError
from watersmeet.history.segments import FOLDER
from watersmeet.page.html import SCRIPTS
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint

JOB = """
CREATE TABLE orders (id BIGINT, `at` TIMESTAMP, WATERMARK FOR `at` AS `at` - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'in/orders', 'format' = 'json');
CREATE TABLE n (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 5)
  WITH ('connector' = 'file', 'path' = 'in/n', 'format' = 'json');
CREATE SINK `</script><script>alert(1)</script>` WITH ('connector' = 'memory');
INSERT INTO `</script><script>alert(1)</script>` SELECT `a&b`.id FROM orders `a&b`;
CREATE SINK numbers WITH ('connector' = 'memory');
INSERT INTO numbers SELECT x.id FROM n x LEFT JOIN n y ON x.id = y.id AND y.t BETWEEN x.t AND x.t + 3;
"""


@pytest.fixture
def recorded_runs(tmp_path, monkeypatch):
    """Two runs, of three ticks and of two, the second of which fails."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(JOB)
    checkpoint = Checkpoint(tmp_path / ".watersmeet" / "job")
    clock = [1_700_000_000_000_000]

    def run(ticks, outcome, error=None):
        job = RecordedJob(JOB, checkpoint.store, clock_us=clock[0], clock=lambda: clock[0])
        with job.run(outcome):
            for _ in range(ticks):
                clock[0] += 1_000_000
                at = (clock[0] - 1_700_000_000_000_000) // 1_000_000
                job.tick(
                    clock[0],
                    {
                        "orders": [{"id": at, "at": f"2026-01-01T00:00:{at:02}"}],
                        "n": [{"id": at, "t": 100 * at}, {"id": 7, "t": 1}],
                    },
                )
            if error is not None:
                raise error
        return job

    run(3, OPEN)
    with pytest.raises(EngineError):
        run(2, None, EngineError("the disk is full </script>", code="full"))
    return checkpoint


def document_in(page: str) -> dict:
    """What a browser would find in the page."""
    (text,) = re.findall(r'<script type="application/json" id="document">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def charts_in(page: str) -> dict:
    return {
        chart["key"]: {one["name"]: one["values"] for one in chart["series"]}
        for chart in document_in(page)["charts"]
    }


@pytest.mark.parametrize("named", ["job.sql", ".watersmeet/job"])
def test_one_file_with_all_of_it(watersmeet, recorded_runs, tmp_path, named):
    said = watersmeet("report", named, "-o", "out.html").out
    assert said == "out.html: 2 runs, until tick 5\n"
    page = (tmp_path / "out.html").read_text()
    document, charts = document_in(page), charts_in(page)
    assert [run["status"] for run in document["runs"]] == ["stopped", "failed"]
    assert "the disk is full </script>" in document["runs"][1]["error"]
    assert document["ticks"] == 5
    assert charts["integers"]["numbers.x.t"] == [95, 195, 295, 395, 495]
    assert len(charts["read"]["n"]) == len(charts["written"]["numbers"]) == 5
    assert charts["late"]["numbers.x"] == [1, 2, 3, 4]
    (of_x,) = [one for one in document["inputs"] if one["name"] == "numbers.x"]
    assert of_x["in"] == 10 == sum(of_x["places"].values())
    assert of_x["late"] == {"t": {"<100": 1, "<1000": 3}}
    assert "LEFT OUTER JOIN" in document["plan"]


def test_report_escapes_names_and_loads_no_external_resources(watersmeet, recorded_runs):
    page = watersmeet("report", "job.sql", "-o", "-").out
    assert page.count("<script") == 1 + len(SCRIPTS)
    assert page.count("</script>") == 1 + len(SCRIPTS)
    assert "alert(1)" in json.dumps(document_in(page))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    head = page.partition("<style>")[0]
    assert "http" not in head.replace("http-equiv", "")
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", page.replace("$", ""))


def test_report_rejects_a_job_without_history(watersmeet, recorded_runs, tmp_path):
    for file in (recorded_runs.state / FOLDER).iterdir():
        file.unlink()
    assert "[no-history]: there is no history" in watersmeet("report", "job.sql").err


def test_report_rejects_a_path_without_state(watersmeet, tmp_path, monkeypatch):
    """As of an empty directory, of a job that never ran, of a file that is no job."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "rows.csv").write_text("id\n1\n")
    for named in ("empty", "rows.csv"):
        found = watersmeet("report", named)
        assert found.status == 2
        assert "[no-state]: there is no state in" in found.err


def test_report_rejects_a_run_before_its_first_tick(watersmeet, tmp_path):
    with Checkpoint(tmp_path / "begun").lock():
        found = watersmeet("report", str(tmp_path / "begun"))
    assert "[no-state]: the run that uses" in found.err
    assert "has not committed its first tick yet" in found.err


def test_ui_warns_about_a_job_without_history(watersmeet, recorded_runs, tmp_path, monkeypatch):
    monkeypatch.setattr("watersmeet.page.server.ServedPage.run", lambda serving: None)
    assert watersmeet("ui", "job.sql", "--listen", "0").err == ""
    (tmp_path / "empty").mkdir()
    assert "note: there is no history there" in watersmeet("ui", "empty", "--listen", "0").err


def test_served_page_asks_for_the_token_that_the_job_names(watersmeet, recorded_runs, tmp_path, monkeypatch):
    monkeypatch.setattr("watersmeet.page.server.ServedPage.run", lambda serving: None)
    job = tmp_path / "job.sql"
    job.write_text(f"SET token_file = '{tmp_path / 'token'}'; {job.read_text()}")
    asked = ("ui", "job.sql", "--listen", "0")
    assert watersmeet(*asked).out.endswith(f"/ (token in {tmp_path / 'token'})\n")
    assert watersmeet(*asked, "--token-file", "t").out.endswith(f"/ (token in {tmp_path / 't'})\n")
    assert watersmeet(*asked, "--no-token").out.endswith("/ (no token: open to every user of this machine)\n")
    config = os.environ["XDG_CONFIG_HOME"]
    told = watersmeet("ui", recorded_runs.root, "--listen", "0").out
    assert told.endswith(f"/ (token in {config}/watersmeet/token)\n")


def test_runs_without_ticks_are_shown(watersmeet, recorded_runs):
    """As of a job whose first tick failed, or whose segments were removed."""
    for name in recorded_runs.store.names(FOLDER):
        if name.endswith(".arrow"):
            recorded_runs.store.delete(name)
    found = watersmeet("report", "job.sql", "-o", "out.html")
    assert (found.status, found.out) == (0, "out.html: 2 runs, of no tick\n"), found.err
    with open("out.html", encoding="utf-8") as file:
        assert "the disk is full" in file.read()


def test_report_rejects_an_unwritable_output_path(watersmeet, recorded_runs):
    assert "no/such/x.html cannot be written" in watersmeet("report", "job.sql", "-o", "no/such/x.html").err


def test_it_goes_along_with_a_copy_and_goes_with_a_reset(watersmeet, recorded_runs, tmp_path):
    watersmeet("state", "copy", "job.sql", "copy")
    assert "2 runs, until tick 5" in watersmeet("report", "copy").out
    watersmeet("reset", "job.sql", "--yes")
    assert not recorded_runs.root.exists()
