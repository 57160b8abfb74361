"""Without the extra `spark` all works but running on Spark, which says first what to install."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.boundary.test_import_edges import imports, is_own_module, module_name, part_of
from tests.support.package_paths import PACKAGE, REPOSITORY, find_paths
from tests.support.syntax import tree_of
from watersmeet.errors import EngineError
from watersmeet.runtime.spark import start_failures

BY_SPARK = {
    f"watersmeet.runtime.spark.{name}"
    for name in ("batch", "replay", "java_start", "job.class_archive", "job.run", "job.session")
}
"""Modules of the engine that load PySpark, and that others name: where a job is run, or Spark answers."""
REFUSED = {
    "run": ["run", "no.sql"],
    "run of a job": ["run", "job.sql"],
    "prepare": ["prepare"],
    "demo": ["demo"],
    "replay": ["replay", "case.json", "--engine", "spark"],
    "diff": ["diff", "job.sql", "--engine", "spark"],
}
DOCTOR = {"a job": ["doctor"], "job.sql": ["doctor", "job.sql"]}
DONE = {
    "init": ["init", "files", "shop"],
    "preview": ["preview", "job.sql"],
    "explain": ["explain", "job.sql"],
    "explain, and look": ["explain", "job.sql", "--check-sources"],
    "validate": ["validate", "pipeline.toml"],
    "replay": ["replay", "case.json", "--check"],
}
CHILD = """
import contextlib, importlib, io, json, sys
from tests.support.without_libraries import SPARK, hide_libraries
hide_libraries(SPARK)
asked, told = json.loads(sys.stdin.read()), {}
from watersmeet.cli.main import main
for name, words in asked["commands"].items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    told[name] = (status, out.getvalue(), err.getvalue())
told["missing"] = []
for module in asked["modules"]:
    try:
        importlib.import_module(module)
    except ImportError as error:
        told["missing"].append(f"{module}: {error}")
import watersmeet
text = open("job.sql").read()
for name, call in (
    ("run()", lambda: watersmeet.run(text, {"checkpoint": "state"})),
    ("start", lambda: watersmeet.sql(text, checkpoint="state").start()),
):
    try:
        call()
    except watersmeet.WatersmeetError as error:
        told[name] = str(error)
print(json.dumps(told))
"""


def modules() -> list[str]:
    """All modules that load without Spark: those outside of its engine, and those in it that they name."""
    names = {module_name(file) for file in find_paths(PACKAGE, "**/*.py")}
    outside = {name for name in names if part_of(name) != "runtime.spark" and not name.endswith("__main__")}
    named = {
        name if name in names else name.rpartition(".")[0]
        for file in find_paths(PACKAGE, "**/*.py")
        if module_name(file) in outside
        for _, name, _ in imports(tree_of(file.read_text()))
        if is_own_module(name) or name.startswith("watersmeet")
    }
    assert named >= BY_SPARK, "no module names these: correct BY_SPARK"
    return sorted(outside | {name for name in named & names if part_of(name) == "runtime.spark"} - BY_SPARK)


@pytest.fixture(scope="module")
def outputs_without_pyspark(tmp_path_factory) -> dict:
    """What commands print, and what Python raises, in a process that finds no PySpark."""
    folder = tmp_path_factory.mktemp("without")
    templates = PACKAGE / "cli" / "templates"
    for kind, name in (("files", "job.sql"), ("pipeline", "pipeline.toml")):
        (folder / name).write_text((templates / kind / f"{name}.template").read_text())
    for stream in ("orders", "deliveries"):
        (folder / "in" / stream).mkdir(parents=True)
        rows = templates / "files" / "in" / stream / "2022-03-01.csv.template"
        (folder / "in" / stream / "1.csv").write_text(rows.read_text())
    (folder / "case.json").write_text((REPOSITORY / "tests" / "cases" / "outer.json").read_text())
    commands = {f"no {name}": words for name, words in REFUSED.items()} | DONE | DOCTOR
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps({"commands": commands, "modules": modules()}),
        cwd=folder,
        env={"PYTHONPATH": f"{REPOSITORY}:{PACKAGE.parent}", "HOME": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    assert not (folder / "state").exists()
    return json.loads(child.stdout)


def test_every_other_module_loads(outputs_without_pyspark):
    assert outputs_without_pyspark["missing"] == []


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_spark_says_so_first(outputs_without_pyspark, name):
    status, out, err = outputs_without_pyspark[f"no {name}"]
    assert (status, out) == (2, "")
    assert "EngineError[missing-library]: watersmeet " in err
    assert "needs PySpark, which is not installed\nHint: pip install 'watersmeet[spark]'" in err


@pytest.mark.parametrize("name", ["run()", "start"])
def test_python_says_so_too(outputs_without_pyspark, name):
    assert (
        "needs PySpark, which is not installed\nHint: pip install 'watersmeet[spark]'"
        in outputs_without_pyspark[name]
    )


@pytest.mark.parametrize("name", DONE)
def test_what_needs_no_spark_is_done(outputs_without_pyspark, name):
    status, out, err = outputs_without_pyspark[name]
    assert (status, "Error" in err) == (0, False)
    assert out


@pytest.mark.parametrize("what", DOCTOR)
def test_doctor_says_it_once_and_goes_on(outputs_without_pyspark, what):
    """Java is not told from here: the tests' machine has it somewhere."""
    status, out, _ = outputs_without_pyspark[what]
    assert status == 1
    assert out.count("needs PySpark") == 1
    assert "FAIL  PySpark" in out
    assert f"{what} cannot be run" in out
    assert "FAIL  job.sql" not in out


@pytest.mark.parametrize(
    ("version", "missing", "problem"),
    [
        ("3.5.1", None, "x needs PySpark 4, but PySpark 3.5.1 is installed"),
        ("5.0.0", None, "x needs PySpark 4, but PySpark 5.0.0 is installed"),
        ("4.0.0", "pandas", "x needs pandas, which is not installed"),
        ("4.0.0", None, None),
        ("", None, None),
    ],
)
def test_a_pyspark_that_somebody_else_has_installed(monkeypatch, version, missing, problem):
    monkeypatch.setattr(start_failures, "pyspark_version", lambda: version)
    monkeypatch.setattr(start_failures, "find_spec", lambda name: None if name == missing else object())
    if problem is None:
        start_failures.check_pyspark("x")
        return
    with pytest.raises(EngineError) as raised:
        start_failures.check_pyspark("x")
    assert raised.value.message == problem


def test_a_version_counts_if_it_is_that_of_what_is_loaded(monkeypatch, tmp_path):
    """`spark-submit` puts a PySpark on the path that no installer knows of."""
    import pyspark

    assert start_failures.pyspark_version() == pyspark.__version__
    monkeypatch.setattr(
        start_failures,
        "find_spec",
        lambda name: SimpleNamespace(origin=str(Path("/spark/pyspark/__init__.py"))),
    )
    assert start_failures.pyspark_version() == ""
