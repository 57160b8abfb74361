"""Both systems over a small workload, run as the benchmark runs them: the rows of DuckDB's batch join."""

from __future__ import annotations

import pytest

from benchmarks import compare, first_load, side_by_side
from benchmarks.workloads import Workload, prepare

TINY = Workload("tiny", rows=200, ticks=3, lag_s=90, files=2, fill_minutes=4, fill_ticks=2, heap="1g")


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["left", "left3"])
@pytest.mark.parametrize("system", ["watersmeet", "spark"])
def test_a_left_join_comes_to_the_same_rows(tmp_path, monkeypatch, system, kind):
    monkeypatch.setattr(side_by_side, "BENCH", tmp_path)
    want = compare.expected(prepare(TINY, tmp_path / "data"), kind)
    found = side_by_side.run_one(TINY, kind, system, 0, want)
    assert found.same_rows
    assert found.rows_out == want.rows > 2 * 200 * TINY.ticks
    assert len(found.ticks_s) == TINY.all_ticks
    assert found.retained is not None
    assert found.retained >= 200 * (2 * 90 + 120) / 60
    assert found.peak_of["jvm"] > 100e6


@pytest.mark.full
@pytest.mark.spark
def test_a_first_load_comes_to_a_row_per_line(capsys):
    """Asked of what was written where it is timed: in a process of its own, with a session of its own."""
    assert first_load.main(["--rows", "300", "--rounds", "1"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == list(first_load.WAYS)
