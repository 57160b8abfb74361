"""Paths and markers that code, scripts and configuration name exist.

Most tools check nothing, and report nothing, when a folder that they are given is missing.
"""

from __future__ import annotations

import re
import tomllib

from tests.support.package_paths import REPOSITORY, find_paths

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
        *TOOLS["ruff"]["lint"]["per-file-ignores"],
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
