"""The canary of the fuzzer, and how many rows it draws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.effort import at_effort


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
    """Number of rows of each side of a join."""
    return at_effort(quick=100, full=1_000)
