"""Which reasons excuse a difference: rows that are not yet due, and rows that were late."""

from __future__ import annotations

import pytest

from watersmeet.diff.bags import LATE, MISSING, NOT_DUE, REASONS, Differences


@pytest.mark.parametrize("reason", REASONS)
def test_only_late_and_pending_rows_are_explained(reason: str) -> None:
    """Rows that were shed, or that another query or file may explain, still count: the exit status is 1."""
    found = Differences(["k"], 3, 0, {(MISSING, reason): 3}, [], 0)
    assert found.unexplained == (0 if reason in (NOT_DUE, LATE) else 3)
    assert not found.equal
