"""Rows that come and go leave files of at most 1.5 times the live rows' bytes: the benchmark, on a small
scale; and it tells when they do not."""

from __future__ import annotations

import pytest

from benchmarks import churn
from watersmeet.engine.driver import merge_policy

SMALL = ["--live", "60000", "--churn", "600000", "--tick", "12000", "--tasks", "2"]


@pytest.mark.parametrize("cleared", [True, False])
def test_files_hold_little_but_live_rows(cleared, monkeypatch, capsys):
    if not cleared:
        monkeypatch.setattr(merge_policy, "MOST_GONE", 1e9)  # rows that are gone are no reason to merge
    assert churn.main(SMALL) == (0 if cleared else 1)
    assert (
        f"bar: at most 1.5 x, after every tick: {'met' if cleared else 'not met'}" in capsys.readouterr().out
    )
