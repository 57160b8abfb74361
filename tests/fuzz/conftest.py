"""The canary of the fuzzer, and how many rows it draws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.effort import random_cases


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that hostile values would make, in a directory that nothing may write into: looked at after each
    test."""
    folder = tmp_path / "canary"
    folder.mkdir()
    yield folder / "file"
    assert not list(folder.iterdir()), "a value of a row was run"


@pytest.fixture(scope="session")
def count() -> int:
    """How many rows a side of a join has; more by WATERSMEET_RANDOM_CASES."""
    return random_cases(400)
