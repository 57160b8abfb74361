"""Projects that `init` makes: they are whole, their own tests pass, and one is run on Spark."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.boundary.test_docs import problems_of, section
from tests.support.lent_jvms import lent
from tests.support.package_paths import find_paths
from watersmeet.cli.init import DEFAULT_KIND, ENDING, kinds, make_project
from watersmeet.cli.install.origin import requirement
from watersmeet.errors import SpecError

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "src" / "watersmeet" / "cli" / "templates"

every_kind = pytest.mark.parametrize("kind", kinds())


def files_in(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def files_of(kind: str) -> dict[str, bytes]:
    """The files of a project: those of the template, with the watersmeet that is installed here."""
    files = {name.removesuffix(ENDING): text for name, text in files_in(TEMPLATES / kind).items()}
    ours, _, others = files["requirements.txt"].decode().partition("\n")
    extras = ours.removeprefix("watersmeet[").removesuffix("]")
    return files | {"requirements.txt": f"{requirement(extras)}\n{others}".encode()}


def test_kinds_are_the_folders_of_templates():
    assert set(kinds()) == {path.name for path in find_paths(TEMPLATES, "*")}
    assert {"files", "kafka", "python", "pipeline"} <= set(kinds())
    assert DEFAULT_KIND in kinds()


@every_kind
def test_a_template_has_what_every_project_needs(kind):
    files = files_in(TEMPLATES / kind)
    assert all(name.endswith(ENDING) for name in files), "others are left out"
    names = {name.removesuffix(ENDING) for name in files}
    assert {"README.md", ".gitignore"} <= names
    assert [name for name in names if name.startswith("test_")]
    assert "requirements.txt" in names


@every_kind
def test_the_project_is_the_template(kind, tmp_path, watersmeet):
    done = watersmeet("init", kind, tmp_path / "shop")
    assert (done.status, done.err) == (0, "")
    assert files_in(tmp_path / "shop") == files_of(kind)


@every_kind
def test_what_it_says_to_run_is_there(kind, tmp_path, watersmeet):
    """And does not go on until it is stopped."""
    told = watersmeet("init", kind, tmp_path / "shop").out
    project = tmp_path / "shop"
    assert f"made {len(files_in(project))} files" in told
    commands = [line.strip() for line in told.split("next:\n")[1].splitlines()]
    install = "python -m pip install -r requirements.txt"
    assert commands[:3] == [f"cd {project}", install, "python -m pytest"]
    for command in commands[1:]:
        assert problems_of(command) == []
        for word in command.split():
            assert "." not in word or (project / word).exists()


@contextmanager
def own_tests(project: Path) -> Iterator[dict[str, Callable[[], None]]]:
    """The tests of a project, which find its modules as pytest would have it."""
    (file,) = project.glob("test_*.py")
    before = set(sys.modules)
    sys.path.insert(0, str(project))
    try:
        loaded = runpy.run_path(str(file))
        yield {name: value for name, value in loaded.items() if name.startswith("test_")}
    finally:
        sys.path.remove(str(project))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(f"{project}{os.sep}"):
                del sys.modules[name]


@every_kind
def test_its_own_tests_pass(kind, tmp_path):
    """And need neither Spark nor the folder that they are started in; `test_wheel` has pytest run some."""
    make_project(kind, tmp_path)
    with own_tests(tmp_path) as tests:
        assert len(tests) >= 3
        for test in tests.values():
            test()


@every_kind
def test_its_own_tests_fail_when_the_join_is_wrong(kind, tmp_path):
    make_project(kind, tmp_path)
    (file,) = (
        path for path in tmp_path.iterdir() if path.name in ("job.sql", "delivered.py", "pipeline.toml")
    )
    text = file.read_text()
    wrong = text.replace("INTERVAL '1' HOUR", "INTERVAL '2' HOUR").replace('"1h"', '"2h"')
    wrong = wrong.replace('= "1 hour"', '= "2 hours"')
    assert wrong != text
    file.write_text(wrong)
    with own_tests(tmp_path) as tests, pytest.raises(AssertionError):
        tests["test_an_order_meets_its_delivery_within_the_hour"]()


JOBS = [
    (kind, job)
    for kind in kinds()
    for job in ("job.sql", "pipeline.toml")
    if (TEMPLATES / kind / f"{job}{ENDING}").exists()
]


@pytest.mark.parametrize(("kind", "job"), JOBS)
def test_its_job_is_planned(kind, job, tmp_path, watersmeet, monkeypatch):
    make_project(kind, tmp_path)
    monkeypatch.chdir(tmp_path)
    done = watersmeet("explain", job)
    assert (done.status, done.err) == (0, "")


def test_a_pipeline_is_right(tmp_path, watersmeet, monkeypatch):
    make_project("pipeline", tmp_path)
    monkeypatch.chdir(tmp_path)
    done = watersmeet("validate", "pipeline.toml")
    assert (done.status, done.err) == (0, "")
    assert "order_id, order_time, delivered_delivery_time, delivered_address" in done.out


@pytest.mark.parametrize(("kind", "job"), [("files", "job.sql"), ("pipeline", "pipeline.toml")])
def test_the_first_rows_of_files_are_shown(kind, job, tmp_path, watersmeet, monkeypatch):
    make_project(kind, tmp_path)
    monkeypatch.chdir(tmp_path)
    done = watersmeet("preview", job, "--json")
    assert done.status == 0
    assert "Pier 9" in done.out


def test_files_is_the_kind_of_who_says_none(tmp_path, watersmeet, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = watersmeet("init")
    assert done.status == 0
    assert f"made {len(files_in(tmp_path))} files here" in done.out
    assert "cd " not in done.out
    assert files_in(tmp_path) == files_of(DEFAULT_KIND)


@every_kind
def test_nothing_is_overwritten(kind, tmp_path, watersmeet):
    (tmp_path / "README.md").write_text("mine")
    done = watersmeet("init", kind, tmp_path)
    assert done.status == 2
    assert "SpecError[already-there]" in done.err
    assert "README.md" in done.err
    assert files_in(tmp_path) == {"README.md": b"mine"}


def test_a_second_project_in_the_same_place_is_refused(tmp_path, watersmeet):
    assert watersmeet("init", "files", tmp_path).status == 0
    before = files_in(tmp_path)
    done = watersmeet("init", "files", tmp_path)
    assert done.status == 2
    assert "and 2 more" in done.err
    assert files_in(tmp_path) == before


def test_other_files_stay_where_they_are(tmp_path, watersmeet):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mine.csv").write_text("a")
    assert watersmeet("init", "files", tmp_path).status == 0
    assert (tmp_path / "in" / "mine.csv").read_text() == "a"


def test_a_link_that_leads_nowhere_is_in_the_way(tmp_path):
    (tmp_path / "job.sql").symlink_to(tmp_path / "elsewhere.sql")
    with pytest.raises(SpecError, match=r"already job\.sql"):
        make_project("files", tmp_path)
    assert not (tmp_path / "elsewhere.sql").exists()


@pytest.mark.parametrize("beneath", ["", "b"])
def test_init_rejects_a_file_in_place_of_a_folder(beneath, tmp_path):
    (tmp_path / "afile").write_text("mine")
    with pytest.raises(SpecError) as refused:
        make_project("files", tmp_path / "afile" / beneath)
    assert refused.value.message == f'"{tmp_path / "afile"}" cannot be written: Not a directory'


def test_cd_hint_works_for_a_folder_named_like_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = make_project("files", Path("-shop")).told()
    (line,) = [line for line in told.splitlines() if line.strip().startswith("cd ")]
    subprocess.run(["sh", "-ec", f"{line}; test -e job.sql"], check=True)


def test_what_was_made_goes_again_when_the_rest_cannot_be(tmp_path):
    """`in` is a file: the folder cannot be made."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "in").write_text("mine")
    with pytest.raises(SpecError) as refused:
        make_project("files", tmp_path / "shop")
    assert refused.value.code == "not-writable"
    assert files_in(tmp_path) == {"shop/in": b"mine"}


def test_init_does_not_overwrite_a_file_created_concurrently(tmp_path, monkeypatch):
    """Whoever looks, and writes then, is not alone."""
    monkeypatch.setattr("os.path.lexists", lambda path: False)
    (tmp_path / "test_job.py").write_text("mine")
    with pytest.raises(SpecError):
        make_project("files", tmp_path)
    assert files_in(tmp_path) == {"test_job.py": b"mine"}


def test_unknown_template_is_rejected_with_suggestions(tmp_path, watersmeet):
    done = watersmeet("init", "kafak", tmp_path)
    assert done.status == 2
    assert 'there is no project template "kafak"' in done.err
    assert "kafka" in done.err.split("Hint:")[1]
    far = watersmeet("init", "shop")
    assert far.status == 2
    assert all(kind in far.err for kind in kinds())
    assert files_in(tmp_path) == {}


def test_two_files_of_ones_own(tmp_path, watersmeet, monkeypatch):
    """The job of the page, over files with a header, in an empty directory."""
    told = section(ROOT / "docs" / "users" / "projects.md", "Two CSV files of your own")
    job = "".join(line[4:] for line in told.splitlines(keepends=True) if line.startswith("    "))
    (tmp_path / "job.sql").write_text(job)
    (tmp_path / "orders.csv").write_text(
        "order_id,order_time\n1,2022-03-01T10:00:00\n2,2022-03-01T11:00:00\n"
    )
    (tmp_path / "deliveries.csv").write_text(
        "order_id,delivery_time,address\n1,2022-03-01T10:40:00,Pier 7\n2,2022-03-01T12:00:01,Pier 9\n"
    )
    monkeypatch.chdir(tmp_path)
    done = watersmeet("preview", "job.sql", "--json")
    assert done.status == 0, done.err
    (rows,) = (shown["rows"] for line in done.out.splitlines() if "rows" in (shown := json.loads(line)))
    assert sorted([row[0], row[3]] for row in rows) == [[1, "Pier 7"], [2, None]]


def read_delivered_rows(project: Path) -> list[tuple[int, str | None]]:
    rows = [
        json.loads(line)
        for part in (project / "out" / "delivered").glob("*.json")
        for line in part.read_text().splitlines()
    ]
    return sorted((row["order_id"], row["address"]) for row in rows)


def test_a_directory_in_the_place_of_the_kind(tmp_path):
    with pytest.raises(SpecError) as raised:
        make_project("my shop", tmp_path)
    assert "watersmeet init files 'my shop')" in str(raised.value.hint)


@pytest.mark.spark
def test_a_project_of_python_runs_on_spark(tmp_path):
    """As its README says."""
    make_project("python", tmp_path)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": sys.executable} | lent()
    done = subprocess.run(
        [sys.executable, "job.py", "--finish"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "tick 1: out " in done.stdout
    assert read_delivered_rows(tmp_path) == [(1, "Pier 7"), (2, "Pier 9"), (3, None)]
