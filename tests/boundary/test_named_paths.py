"""Paths and markers that code, scripts and configuration name exist.

Most tools check nothing, and report nothing, when a folder that they are given is missing.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

import pytest

from tests.support.package_paths import REPOSITORY, find_paths
from tests.support.syntax import nodes_of, tree_of

MAKEFILE = REPOSITORY / "Makefile"
TOOLS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]
PYTEST = TOOLS["pytest"]["ini_options"]

FOLDERS = ("src", "tests", "scripts", "docs", "benchmarks", "examples", "monitoring")
TEXTS = (
    *("Makefile", "pyproject.toml", ".ci/run", "scripts/*"),
    *(f"{folder}/**/*.py" for folder in ("src", "tests", "docs", "benchmarks", "examples")),
)
INVENTING = ("tests/boundary/test_docs.py", "tests/boundary/test_site.py", "tests/testing/test_effort.py")
"""Tests that make up paths of their own."""

NAMED = re.compile(rf"(?<![\w./:{{}}\\-])({'|'.join(FOLDERS)})/[\w./-]*\w")


def test_paths_that_tools_are_given_exist():
    build = TOOLS["hatch"]["build"]["targets"]
    assert find_paths(
        REPOSITORY,
        *build["wheel"]["packages"],
        *build["sdist"]["include"],
        *(name.removeprefix("!") for name in TOOLS["ruff"]["lint"]["per-file-ignores"]),
        *TOOLS["mypy"]["files"],
        TOOLS["mypy"]["mypy_path"],
        *TOOLS["pyright"]["include"],
        *PYTEST["testpaths"],
    )


def test_paths_that_texts_name_exist():
    """Pages are those of `test_docs`."""
    find_paths(REPOSITORY, *FOLDERS)
    inventing = find_paths(REPOSITORY, *INVENTING)
    missing = [
        f"{file.relative_to(REPOSITORY)}: {named[0]}"
        for file in find_paths(REPOSITORY, *TEXTS)
        if file.is_file() and file not in inventing
        for named in NAMED.finditer(file.read_text())
        if not (REPOSITORY / named[0]).exists()
    ]
    assert not missing, "\n".join(missing)


def test_markers_that_make_leaves_out_are_registered():
    registered = {line.partition(":")[0] for line in PYTEST["markers"]}
    left_out = re.findall(r"\bnot (\w+)", "".join(re.findall(r'-m "(.+)"', MAKEFILE.read_text())))
    assert left_out
    assert set(left_out) - registered == set()


ROOTS = {"__file__", "PACKAGE", "REPOSITORY"}
SEARCHES = {"glob", "rglob", "iterdir", "walk", "listdir", "scandir"}


def searches(tree: ast.Module) -> Iterator[int]:
    """Yield lines that search a folder of the repository, and find nothing in one that is missing."""
    named = set(ROOTS)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            named |= {alias.asname for alias in node.names if alias.name in ROOTS and alias.asname}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names = {inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name)}
            if names & named and "find_paths" not in names:
                named.add(node.targets[0].id)
    for node in nodes_of(tree):
        is_search = (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES
        )
        if is_search and named & {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}:
            yield node.lineno


def test_tests_search_by_find_paths():
    files = find_paths(REPOSITORY, "tests/**/*.py")
    places = [
        f"{file.relative_to(REPOSITORY)}:{line}"
        for file in files
        for line in searches(tree_of(file.read_text()))
    ]
    assert places == [], "find_paths(folder, pattern) fails if nothing is there"


@pytest.mark.parametrize(
    ("source", "is_seen"),
    [
        ("(REPOSITORY / 'tests').rglob('*.py')", True),
        ("ROOT = Path(__file__).parents[2]\nPAGES = ROOT / 'docs'\nfor page in PAGES.glob('*'): ...", True),
        ("from tests.support.package_paths import REPOSITORY as ROOT\nos.listdir(ROOT / 'docs')", True),
        ("find_paths(REPOSITORY, 'tests/**/*.py')", False),
        ("(PACKAGE,) = find_paths(REPOSITORY, 'src')\ntmp_path.glob('*')", False),
    ],
)
def test_a_search_that_finds_nothing_in_a_missing_folder_is_seen(source, is_seen):
    assert bool([*searches(tree_of(source))]) == is_seen
