"""The oracle reproduces every given case: it reads semantics.md as they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.case_files import CASES, all_cases
from tests.support.oracle.case import run_case_with_account
from tests.support.oracle.windowed import has_windows, run_windowed_case
from tests.support.package_paths import find_paths
from watersmeet.testing.cases import check_case, load_cases


@pytest.mark.parametrize("case", all_cases())
def test_oracle_reproduces_the_case(case: dict[str, Any]) -> None:
    """And counts every row of an append query in exactly one place."""
    if has_windows(case):
        assert check_case(case, run_windowed_case(case)) == []
        return
    lines, account = run_case_with_account(case)
    assert check_case(case, lines) == []
    if case.get("options", {}).get("output_mode") == "changelog":
        return
    for counts in account.values():
        assert counts["in"] == sum(n for what, n in counts.items() if what not in ("in", "not_there"))


def test_copies_are_the_shared_cases() -> None:
    """The copies in this repository are those that the project was given."""
    shared = Path(__file__).parents[3] / "shared" / "cases"
    if not shared.is_dir():
        pytest.skip("no ../shared/cases beside this clone")
    for path in find_paths(shared, "**/*.json"):
        assert load_cases(path) == load_cases(CASES / path.relative_to(shared)), path
