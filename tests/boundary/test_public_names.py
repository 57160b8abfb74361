"""The public names: all of them load, none comes unasked, and importing the package costs next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import watersmeet

SOURCES = Path(__file__).resolve().parents[2] / "src"

EXPECTED = {
    "__version__",
    "parse_job",
    "plan_job",
    "explain",
    "run",
    "JoinSpec",
    "LocalJob",
    "MemoryStore",
    "local",
    "Part",
    "Location",
    "WatersmeetError",
    "SpecError",
    "SqlError",
    "PlanError",
    "StateError",
    "EngineError",
    "SeveralErrors",
    "Between",
    "Grouped",
    "Job",
    "Output",
    "Relation",
    "StartedJob",
    "Window",
    "between",
    "console",
    "declared",
    "delta",
    "files",
    "hop",
    "iceberg",
    "job",
    "kafka",
    "memory",
    "pipeline",
    "pipelines",
    "run_streaming_pipeline",
    "postgres",
    "session",
    "sink",
    "sql",
    "stream",
    "tumble",
}


def in_a_fresh_interpreter(code: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_list_is_the_public_one():
    """A change here is a change for users: it belongs into the changelog."""
    assert set(watersmeet.__all__) == EXPECTED
    assert len(watersmeet.__all__) == len(EXPECTED)
    assert set(watersmeet.__all__) <= set(dir(watersmeet))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_name_loads(name):
    value = getattr(watersmeet, name)
    assert value is getattr(watersmeet, name)
    if isinstance(value, type):
        assert value.__name__ == name


def test_all_errors_of_the_tree_are_public():
    from watersmeet import errors

    tree = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.WatersmeetError)
    }
    assert tree <= EXPECTED


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = watersmeet.no_such_name


def test_importing_the_package_imports_nothing_else_of_it():
    code = (
        "import sys, watersmeet; heavy = {'numpy', 'pyarrow', 'sqlglot', 'pydantic', 'pyspark', 'duckdb'};"
        "print(*sorted(name for name in sys.modules if name.startswith('watersmeet')));"
        "print(*sorted(heavy & sys.modules.keys()))"
    )
    assert in_a_fresh_interpreter(code).splitlines() == ["watersmeet", ""]


def test_errors_load_without_the_parser():
    code = "import sys, watersmeet; watersmeet.WatersmeetError; print('sqlglot' in sys.modules)"
    assert in_a_fresh_interpreter(code).strip() == "False"


def test_plans_need_no_engine():
    code = (
        "import sys, watersmeet; watersmeet.plan_job, watersmeet.explain;"
        "print(*sorted({'pyspark', 'py4j', 'typer', 'rich'} & sys.modules.keys()))"
    )
    assert in_a_fresh_interpreter(code).strip() == ""


def test_star_import_gives_the_public_names():
    code = "from watersmeet import *; print(plan_job.__name__, explain.__name__, __version__ != '')"
    assert in_a_fresh_interpreter(code).strip() == "plan_job explain True"
