"""Paths in pyproject.toml exist: most tools check nothing, and report nothing, when a folder is missing."""

from __future__ import annotations

import tomllib

from tests.support.package_paths import REPOSITORY, find_paths

TOOLS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]


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
        *TOOLS["pytest"]["ini_options"]["testpaths"],
    )
