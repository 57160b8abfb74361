"""Run the benchmark of churn on a small scale: files have at most 1.5 times the bytes of the live rows."""

from __future__ import annotations

import pytest

from benchmarks import churn
from tests.support.effort import at_effort
from watersmeet.runtime.coordinator import merge_policy

CHURN = at_effort(quick=300_000, full=600_000)
SMALL = ["--live", "60000", "--churn", str(CHURN), "--tick", "12000", "--tasks", "2"]


@pytest.mark.parametrize("cleared", [True, pytest.param(False, marks=pytest.mark.full)])
def test_files_hold_little_but_live_rows(cleared, monkeypatch, capsys):
    if not cleared:
        monkeypatch.setattr(
            merge_policy, "MAX_RELEASED_SHARE", 1e9
        )  # rows that are gone are no reason to merge
    assert churn.main(SMALL) == (0 if cleared else 1)
    assert (
        f"bar: at most 1.5 x, after every tick: {'met' if cleared else 'not met'}" in capsys.readouterr().out
    )
