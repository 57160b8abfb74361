"""Every case file on the in-process engine, however it is cut into tasks and wherever its state lives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.case_files import all_cases
from watersmeet.runtime.local import replay_case
from watersmeet.testing.cases import check_case

WAYS = {
    "1": (1, None, False),
    "7": (7, None, False),
    "7-borders": (7, "borders", False),
    "3-borders-directory": (3, "borders", True),
}


@pytest.mark.parametrize("case", all_cases())
@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=() if WAYS[way][2] else pytest.mark.full) for way in WAYS],
)
def test_case(case: dict[str, Any], way: str, tmp_path: Path) -> None:
    partitions, hash_seed, stored = WAYS[way]
    outputs = replay_case(case, partitions, hash_seed, str(tmp_path) if stored else None)
    assert check_case(case, outputs) == []
