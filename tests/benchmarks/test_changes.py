"""The benchmark of changes runs, and only those that come put out what rows do in append mode."""

from __future__ import annotations

import re

import pytest

from benchmarks import changes


@pytest.mark.parametrize(
    "join", ["key", *(pytest.param(join, marks=pytest.mark.full) for join in ("band", "hot"))]
)
def test_insert_only_changes_emit_as_many_rows_as_append(join, capsys):
    assert changes.main(["--join", join, "--rows", "1000", "--ticks", "1", "--tasks", "2"]) == 0
    out = [re.search(r"([\d,]+) rows out", line)[1] for line in capsys.readouterr().out.splitlines()]
    assert out[0] == out[1] != out[2]
