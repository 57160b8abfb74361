"""The conformance cases of ``tests/cases``; ``peers`` holds scenarios of other systems' own test suites.

Each peer case states its origin (suite and test) in ``about``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.package_paths import REPOSITORY, find_paths
from watersmeet.testing.cases import load_cases

CASES = REPOSITORY / "tests" / "cases"
CASE_FILES = find_paths(CASES, "**/*.json")
OWN_CASE_FILES = find_paths(CASES, "*.json")
"""Those with the project's own cases, which hold every kind of query."""


def file_id(path: Path) -> str:
    """Return the id of a case file in a test's name: its path in `CASES` without the suffix."""
    return path.relative_to(CASES).with_suffix("").as_posix()


def case_files() -> list[Any]:
    """Return a pytest parameter for each case file; those of peers are for full effort."""
    return [
        pytest.param(path, id=file_id(path), marks=() if path in OWN_CASE_FILES else pytest.mark.full)
        for path in CASE_FILES
    ]


def all_cases(*, peers: bool = True) -> list[Any]:
    """Return a pytest parameter for each case of each file; without ``peers``, theirs are for full effort."""
    return [
        pytest.param(
            case,
            id=f"{file_id(path)}-{case['case']}",
            marks=() if peers or path in OWN_CASE_FILES else pytest.mark.full,
        )
        for path in CASE_FILES
        for case in load_cases(path)
    ]


def cases_by_name() -> dict[str, dict[str, Any]]:
    """Return all cases by their names, which are unique over all files.

    Raises: AssertionError: two cases have one name.
    """
    cases: dict[str, dict[str, Any]] = {}
    for path in CASE_FILES:
        for case in load_cases(path):
            assert case["case"] not in cases, f"{file_id(path)}: a second case {case['case']}"
            cases[case["case"]] = case
    return cases
