"""`benchmarks.bars`: what rounds come to, as a table."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import whole
from benchmarks.bars import PARTS, Round, bars, main, table
from benchmarks.whole import FLINK, FLINKS, OURS, Whole
from benchmarks.workloads import WORKLOADS


def run(seconds: float, cpu_s: float, tick_s: float, peak: int) -> Whole:
    return Whole(seconds, cpu_s, [9.0, 9.0, *[tick_s] * 9], peak, 1)


def test_rounds_are_judged_against_the_bars_by_their_median_ratio() -> None:
    empty = Whole(10.0, 8.0, [], 1, None)
    slow = Round(run(20.0, 30.0, 0.5, 60), run(100.0, 120.0, 7.0, 100), empty, empty)
    rounds = [Round(run(20.0, 20.0, 0.5, 60), run(90.0, 120.0, 6.0, 100), empty, empty), slow, slow]
    lines = table(list(bars(PARTS["100k"], "inner", rounds))).splitlines()
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "100k, inner: whole run, × Spark 9.00 ≥ 7 met",
        "100k, inner: the same, empty run not taken off 5.00 –",
        "100k, inner: ticks after the third, × Spark 14.00 ≥ 12 met",
        "100k, inner: CPU, × less 4.00 ≥ 5 NOT MET",
        "100k, inner: CPU, empty run taken off, × less 5.09 –",
        "100k, inner: peak memory, of Spark's 0.60 ≤ 0.5 NOT MET",
    ]


def test_small_ticks_are_judged_in_milliseconds_too() -> None:
    empty = Whole(10.0, 8.0, [], 1, None)
    rounds = [Round(run(20.0, 20.0, 0.1, 60), run(30.0, 40.0, 0.4, 100), empty, empty)]
    found = {bar.text: (bar.value, bar.met) for bar in bars(PARTS["1k"], "left", rounds)}
    assert found["1k, left: median tick, ms"] == (100.0, True)
    assert found["1k, left: median tick, of Spark's"] == (0.25, True)


@pytest.mark.parametrize("part", list(PARTS))
def test_no_commit_goes_before_its_time_is_read(part: str, tmp_path: Path) -> None:
    workload = WORKLOADS[PARTS[part].workload]
    command = whole.command(OURS, workload, tmp_path, tmp_path, PARTS[part].kinds[0])
    (kept,) = [given for given in command if given.startswith("spark.sql.streaming.minBatchesToRetain=")]
    assert int(kept.partition("=")[2]) > workload.all_ticks


def test_flink_is_judged_by_whole_runs_and_has_no_ticks() -> None:
    empty, flink = Whole(10.0, 8.0, [], 1, None), Whole(35.0, 50.0, [], 50, 1)
    rounds = [Round(run(20.0, 20.0, 0.5, 60), flink, empty, empty)]
    lines = table(list(bars(PARTS["flink-100k"], "inner", rounds))).splitlines()
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "100k, inner, beside Flink: whole run, × Flink 2.50 ≥ 2 met",
        "100k, inner, beside Flink: the same, empty run not taken off 1.75 –",
        "100k, inner, beside Flink: CPU, × less 2.50 –",
        "100k, inner, beside Flink: CPU, empty run taken off, × less 3.50 –",
        "100k, inner, beside Flink: peak memory, of Flink's 1.20 –",
    ]


def test_missing_flink_skips_its_parts_with_a_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = [text for name, part in PARTS.items() if part.other in FLINKS for text in ("--only", name)]
    monkeypatch.delenv("FLINK_VENV", raising=False)
    assert main(only) == 0
    monkeypatch.setenv("FLINK_VENV", str(tmp_path))  # no Python in it
    assert main(only) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert first.startswith("Flink is left out: the variable FLINK_VENV names no virtual environment with it")


def test_flink_runs_in_the_python_of_its_own_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (tmp_path / "lib" / "python3.11" / "site-packages" / "pyflink").mkdir(parents=True)
    monkeypatch.setenv("FLINK_VENV", str(tmp_path))
    command = whole.command(FLINK, WORKLOADS["100k"], tmp_path, tmp_path, "inner")
    assert command[:3] == [str(tmp_path / "bin" / "python"), "-m", "benchmarks.flink_own"]
    assert "hadoop-client-api" in whole.hadoop_classes()


def test_benchmarks_of_their_own_are_judged_by_their_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = {"benchmarks.keyless": '{"5": 1.5, "100": 2.75}', "benchmarks.retention": "1.1"}
    asked = []

    class Child:
        returncode = 0

        def __init__(self, command: list[str], **_: object) -> None:
            asked.append(command[2:])
            self.stdout = ["a round\n", lines[command[2]] + "\n"]

        def __enter__(self) -> Child:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(subprocess, "Popen", Child)
    assert main(["--only", "keyless", "--only", "retained", "--rounds", "2"]) == 0
    assert asked == [["benchmarks.keyless", "--rounds", "2"], ["benchmarks.retention", "--grown"]]
    said = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in said[-3:]] == [
        "keyless, 5 matches a row: warm ticks, × DuckDB's batch 1.50 ≤ 2.5 met",
        "keyless, 100 matches a row: warm ticks, × DuckDB's batch 2.75 ≤ 2.5 NOT MET",
        "retained, 100,000,000 rows: CPU of a tick, × with 1,000,000 1.10 ≤ 1.2 met",
    ]
    monkeypatch.setattr(Child, "returncode", 1)
    with pytest.raises(SystemExit, match="has failed"):
        main(["--only", "keyless"])
