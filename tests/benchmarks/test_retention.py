"""The benchmark of retention runs, over a state that the engine made and that has what it says."""

from __future__ import annotations

import pytest

from benchmarks import retention


@pytest.mark.parametrize("kind", [pytest.param("left", marks=pytest.mark.full), "inner3"])
def test_retention_is_measured_over_all_joins(monkeypatch, capsys, kind):
    monkeypatch.setattr(retention, "ROWS_PER_TICK", 500)
    monkeypatch.setattr(retention, "BAR_MS", 1e9)
    found = retention.main(["--rows", "9_000", "--kind", kind, "--repeats", "1"])
    text = capsys.readouterr().out
    assert found == 0
    assert f"{kind}: " in text
    assert text.count("met (< 1e+09 ms)") == 2
    assert ("join 2, #1: " in text) == (kind == "inner3")


def test_moving_limits_release_and_others_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "ROWS_PER_TICK", 500)
    driver = retention.filled("left", 6_000, 2, tmp_path)
    assert retention.retained(driver) == 6_000  # six ticks
    ((shape,),) = driver.shapes.values()
    runs = retention.runs_of(driver, shape, retention.Side.LEFT)
    assert sum(live.run.rows for live in runs) == 3_000
    for case in ("below", "within", "moving"):
        clock = retention.measured(driver, case, 0, 2)
        assert set(clock.wall) == {"choose", "open", "release", "least"}


@pytest.mark.full
def test_benchmark_compares_ticks_of_large_and_small_state(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(retention, "ROWS_PER_TICK", 500)
    monkeypatch.setattr(retention, "BASE_ROWS", 2_000)
    monkeypatch.setattr(retention, "BENCH", tmp_path)
    assert retention.main(["--grown", "--rows", "6_000", "--rows", "4_000", "--repeats", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = [line.partition(" rows retained, tick ")[0] for line in lines[:2]]
    assert told == ["inner: 4,000", "inner: 6,000"], "two ticks more"
    assert float(lines[-1]) > 0
    assert lines[-2].startswith(f"at most {float(lines[-1]):.2f}x; bar: 1.2x: ")
    assert not [*(tmp_path / "work").iterdir()], "nothing is left"
