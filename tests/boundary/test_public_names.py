"""The public names: all of them load, none comes unasked, and importing the package costs next to nothing."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import watersmeet
from tests.boundary.test_docs import documented_modules
from tests.support.syntax import tree_of

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
    "table",
    "tumble",
}


DOORS = ("watersmeet", "watersmeet.local", "watersmeet.testing")
"""Modules whose names are public, and loaded when they are asked for."""

WHOLE = ("watersmeet.pipelines",)
"""Modules whose names are public, and are all loaded with them."""


def public_names() -> list[tuple[str, str]]:
    """Module and name; a version has nothing to be shown of it."""
    return [
        (door, name)
        for door in (*DOORS, *WHOLE)
        for name in importlib.import_module(door).__all__
        if name != "__version__"
    ]


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


@pytest.mark.parametrize(("door", "name"), public_names(), ids=lambda word: word)
def test_every_public_name_has_an_example_that_is_run(door, name):
    """`test_docs` runs those of all modules that it lists."""
    value = getattr(importlib.import_module(door), name)
    own = vars(value)["__doc__"] if isinstance(value, type) else value.__doc__
    assert ">>> " in (own or "")
    assert getattr(value, "__module__", value.__name__) in documented_modules()


def for_types(door: str) -> dict[str, str]:
    """What a door imports for type checkers: name -> module."""
    file = Path(importlib.import_module(door).__file__)
    (block,) = (
        node
        for node in tree_of(file.read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        alias.name: found.module
        for found in block.body
        if isinstance(found, ast.ImportFrom) and found.module.startswith("watersmeet")
        for alias in found.names
    }


@pytest.mark.parametrize("door", DOORS)
def test_type_checkers_find_names_where_they_are(door):
    """Names are loaded when they are asked for, which no type checker sees: it is told the same."""
    module = importlib.import_module(door)
    homes = module._HOMES | dict.fromkeys(getattr(module, "_MODULES", ()), "watersmeet")
    assert for_types(door) == homes
    assert set(homes) == set(module.__all__) - {"__version__"}


@pytest.mark.parametrize("door", DOORS)
def test_no_public_name_is_hidden_by_a_module_of_the_same_name(door):
    """Whoever loads a module beneath a package sets it as the package's attribute, in place of the name."""
    module = importlib.import_module(door)
    beneath = {path.stem for path in Path(module.__file__).parent.iterdir() if not path.stem.startswith("_")}
    assert beneath & set(module.__all__) == set(getattr(module, "_MODULES", ()))
