"""`doctor` says what is there, what is missing and what to type, and whether a job can be run."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError

import pytest

from tests.cli.test_before_java import FILES, JOB, TOPIC
from tests.support.package_paths import REPOSITORY
from watersmeet.cli.install import checks as machine
from watersmeet.cli.install import checks as software
from watersmeet.cli.install.checks import Status
from watersmeet.cli.page_commands import UI_PORT
from watersmeet.spec.monitoring import Address

WIDTH = 80


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"k": "x", "t": "2024-01-01T00:00:00Z"}\n')
    return tmp_path


@pytest.fixture
def busy_port():
    """A port at which this process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def checks(out: str) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(out)["checks"]}


def test_doctor_passes_on_a_complete_machine_and_leaves_no_files(watersmeet, folder):
    told = watersmeet("doctor")
    assert (told.status, told.err) == (0, "")
    assert told.out.splitlines()[-1] == "a job can be run"
    assert [line for line in told.out.splitlines() if len(line) > WIDTH] == []
    names = [line.split("  ")[1] for line in told.out.splitlines()[:6]]
    assert [name.strip() for name in names] == ["watersmeet", "Python", "User", "PySpark", "Java", "bash"]
    assert os.listdir(folder) == ["in"]


def test_doctor_reports_missing_parts_with_hints(watersmeet, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    monkeypatch.setenv("PATH", "/no/such/folder")
    told = watersmeet("doctor")
    assert told.status == 1
    assert "FAIL  Java" in told.out
    assert "JAVA_HOME is /no/such/java" in told.out
    assert "Hint: install Java 17 or newer" in told.out
    assert "note  bash" in told.out, "only jobs that need spark-submit need it"
    assert told.out.splitlines()[-1] == "a job cannot be run: 1 problem"
    assert [line for line in told.out.splitlines() if len(line) > WIDTH] == []
    told = watersmeet("doctor", "--json")
    assert told.status == 1
    assert json.loads(told.out)["can_run"] is False
    java = checks(told.out)["Java"]
    assert java["status"] == "fail"
    assert java["hint"].startswith("install Java 17")


def test_a_job_is_looked_at_as_before_a_run(watersmeet, folder):
    (folder / "job.sql").write_text(JOB.format(sink=FILES))
    told = watersmeet("doctor", "job.sql")
    assert told.status == 0
    assert "1 source, 1 INSERT: nothing is missing" in told.out
    assert "Extras" not in told.out, "just what this job needs"
    (folder / "out").mkdir()
    (folder / "out" / "notes.txt").touch()
    told = watersmeet("doctor", "job.sql", "--json")
    assert told.status == 1
    assert "notes.txt" in checks(told.out)["job.sql"]["detail"]
    assert not (folder / ".watersmeet").exists(), "nothing is made"


def test_servers_that_do_not_answer_are_problems_of_the_job(watersmeet, folder):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (folder / "job.sql").write_text(JOB.format(sink=TOPIC.format(port=port) + ", 'max_wait' = '1 s'"))
    told = watersmeet("doctor", "job.sql")
    assert told.status == 1
    assert "FAIL  job.sql" in told.out
    assert f"no broker answers at 127.0.0.1:{port}" in " ".join(told.out.split())


def test_a_job_that_is_wrong_cannot_be_run_and_one_that_is_not_there_is_a_mistake(watersmeet, folder):
    (folder / "job.sql").write_text("SELECT x FROM nowhere")
    told = watersmeet("doctor", "job.sql")
    assert told.status == 1
    assert 'unknown table or view "nowhere" (job.sql, line 1, column 15)' in " ".join(told.out.split())
    assert watersmeet("doctor", "none.sql").status == 2


def test_a_pipeline_is_a_job_too(watersmeet, folder):
    watersmeet("init", "pipeline", "p")
    os.chdir("p")
    assert watersmeet("doctor", "pipeline.toml").status == 0
    (folder / "p" / "pipeline.toml").write_text("name = 1")
    assert watersmeet("doctor", "pipeline.toml").status == 1


def test_doctor_fails_if_the_ui_port_of_a_job_is_busy(watersmeet, folder, busy_port):
    (folder / "job.sql").write_text(f"SET ui = '{busy_port}';" + JOB.format(sink=FILES))
    told = watersmeet("doctor", "job.sql", "--json")
    assert told.status == 1
    page = checks(told.out)["Page"]
    assert f"process {os.getpid()} (" in page["detail"]
    assert page["hint"] == "another port: --ui PORT"
    check = machine.check_port("Page", Address("127.0.0.1", busy_port), "--ui PORT").as_note()
    assert check.status is Status.NOTE, "a job without a page runs"


def test_the_port_that_a_page_has_by_default_is_looked_at(watersmeet):
    assert UI_PORT in checks(watersmeet("doctor", "--json").out)["Page"]["detail"]


def test_extras_are_those_of_the_package(monkeypatch):
    declared = (REPOSITORY / "pyproject.toml").read_text()
    libraries = software.libraries_of_extras()
    assert set(libraries) == {
        *("objects", "postgres", "kafka", "protobuf", "delta", "iceberg", "ui", "plot", "otel")
    }
    assert all(name in declared for names in libraries.values() for name in names)

    def distribution(name: str) -> None:
        if name in ("deltalake", "uvicorn"):
            raise PackageNotFoundError(name)

    monkeypatch.setattr(software, "distribution", distribution)
    there, missing, _ = software.check_extras()
    assert "kafka" in there.detail
    assert (missing.status, missing.detail) == (Status.NOTE, "not installed: delta, ui")
    assert missing.hint == "pip install 'watersmeet[delta]', or another of them, for jobs that need it"


def test_a_folder_in_which_no_checkpoint_can_be(folder, monkeypatch):
    (folder / "file").touch()
    check = machine.check_folder("Checkpoint", folder / "file" / "state", "--checkpoint DIR")
    assert (check.status, check.hint) == (Status.FAIL, "name another directory: --checkpoint DIR")
    monkeypatch.setattr(machine, "MIN_FREE", 1 << 60)
    monkeypatch.setattr(machine, "LITTLE_FREE", 1 << 60)
    assert machine.check_folder("Checkpoint", folder / "state", "x").status is Status.FAIL
    monkeypatch.setattr(machine, "MIN_FREE", 0)
    assert machine.check_folder("Checkpoint", folder / "state", "x").status is Status.NOTE

    def fails(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(machine.os, "fsync", fails)
    assert "Input/output error" in machine.check_folder("Checkpoint", folder, "x").detail


@pytest.mark.parametrize(
    ("limit", "used", "status", "detail"),
    [
        ("max", 0, Status.OK, "4.0 GiB available"),
        (str(2 << 30), 1 << 30, Status.NOTE, "1.0 GiB available"),
        (None, 0, Status.OK, "4.0 GiB available"),
    ],
)
def test_memory_is_that_of_the_container(folder, limit, used, status, detail):
    (folder / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {4 << 20} kB\n")
    if limit is not None:
        (folder / "memory.max").write_text(f"{limit}\n")
        cache = 1 << 30
        (folder / "memory.current").write_text(f"{used + cache}\n")
        (folder / "memory.stat").write_text(f"anon {used}\ninactive_file {cache}\n")
    check = machine.check_memory(folder, folder)
    assert (check.status, check.detail) == (status, detail)
    assert machine.check_memory(folder / "in", folder).status is Status.OK


@pytest.mark.parametrize("year", [1970, 2024, 2100])
def test_a_clock_that_nobody_has_set(year):
    assert machine.check_clock(datetime(year, 1, 1, tzinfo=UTC)).status is Status.FAIL


def test_a_time_zone_that_nobody_knows(monkeypatch):
    for name in ("Mars/Olympus", "Etc"):
        monkeypatch.setenv("TZ", name)
        assert machine.check_clock(datetime(2026, 1, 1, tzinfo=UTC)).status is Status.NOTE
    monkeypatch.setenv("TZ", ":Europe/Berlin")
    assert machine.check_clock(datetime(2026, 1, 1, tzinfo=UTC)).status is Status.OK
