"""Streams beside changing tables, and streams of changes: what their ticks come to when they are run again by
the history, against what was put out; refused where ticks, or what they read, are not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.recorded import OPEN
from tests.support.recorded_files import FileJob
from watersmeet.cli.diff import command
from watersmeet.cli.diff.source_rows import history_of
from watersmeet.cli.main import main
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint

NAMED = """
CREATE TABLE a (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 1)
  WITH ('connector' = 'file', 'path' = 'a', 'format' = 'json');
CREATE TABLE b (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 1)
  WITH ('connector' = 'file', 'path' = 'b', 'format' = 'json');
CREATE TABLE p (k BIGINT PRIMARY KEY NOT ENFORCED, name STRING, op STRING)
  WITH ('connector' = 'file', 'path' = 'p', 'format' = 'json', 'op.column' = 'op');
CREATE SINK q WITH ('connector' = 'memory');
INSERT INTO q SELECT a.k, p.name FROM a JOIN b ON b.k = a.k AND b.t BETWEEN a.t AND a.t + 5
  JOIN p ON p.k = a.k EMIT CHANGES;
"""
NAMES: list[dict[str, Any]] = [
    {
        "a": [{"t": 1, "k": 1}],
        "b": [{"t": 2, "k": 1}, {"t": 3, "k": 1}],
        "p": [{"k": 1, "name": "x", "op": "I"}],
    },
    {"p": [{"k": 1, "name": "y", "op": "I"}, {"k": 2, "name": "no", "op": "D"}]},
    {"a": [{"t": 100, "k": 9}], "b": [{"t": 100, "k": 9}]},
    {  # what came of k = 1 is final by now
        "b": [{"t": 4, "k": 1}],
        "p": [{"k": 1, "name": "z", "op": "I"}, {"k": 9, "name": "n", "op": "I"}],
    },
]
HOLDS = {"k": [1, 1, 9], "name": ["y", "y", "n"]}

SUMS = """
CREATE TABLE c (t BIGINT, v BIGINT, d INT, WATERMARK FOR t AS t - 1)
  WITH ('connector' = 'file', 'path' = 'c', 'format' = 'json', 'diff.column' = 'd');
CREATE SINK q WITH ('connector' = 'memory');
INSERT INTO q SELECT window_start AS k, sum(v) AS n
  FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(t), 10)) GROUP BY window_start EMIT {mode};
"""
CHANGES: list[dict[str, Any]] = [
    {"c": [{"t": 1, "v": 5, "d": 1}, {"t": 2, "v": 7, "d": 2}]},
    {"c": [{"t": 2, "v": 7, "d": -1}, {"t": 13, "v": 1, "d": 1}]},
    {"c": [{"t": 1, "v": 5, "d": -1}, {"t": 14, "v": 2, "d": 1}]},  # the first is late
]


def run(text: str, ticks: list[dict[str, Any]]) -> None:
    Path("job.sql").write_text(text)
    names = {name: Path(name).absolute() for files in ticks for name in files}
    job = FileJob(text, Checkpoint(Path(".watersmeet/job").absolute()), names)
    with job.run(OPEN):
        for files in ticks:
            job.read(files)


def run_diff(capsys: Any, columns: dict[str, list[Any]], *words: str) -> tuple[int, Any, str]:
    kinds = {"name": pa.string()}
    table = pa.table({name: pa.array(own, kinds.get(name, pa.int64())) for name, own in columns.items()})
    parquet.write_table(table, "put_out.parquet")
    status = main(["diff", "job.sql", "--output", "q=put_out.parquet", "--json", *words])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out else {}, " ".join(err.split())


def rows(line: Any) -> list[tuple[Any, ...]]:
    return [(own["side"], own["reason"], own["count"], *own["row"]) for own in line["rows"]]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_stream_rows_match_table_contents_until_eviction(capsys: Any) -> None:
    run(NAMED, NAMES)
    status, line, _ = run_diff(capsys, HOLDS)
    assert (status, line["equal"], line["engine"]) == (0, True, "ticks"), line
    assert line["notes"] == ["rows that were late are neither in the answer nor in the output: 1 of b"]
    status, line, _ = run_diff(capsys, {"k": [1, 9], "name": ["y", "n"]})
    assert (status, rows(line)) == (1, [("missing", "unexplained", 1, 1, "y")])
    status, line, _ = run_diff(capsys, {"k": [1, 1, 9], "name": ["y", "z", "n"]})
    assert (status, rows(line)) == (
        1,
        [("missing", "unexplained", 1, 1, "y"), ("extra", "unexplained", 1, 1, "z")],
    )


@pytest.mark.parametrize(
    ("mode", "holds"), [("FINAL", {"k": [0], "n": [12]}), ("CHANGES", {"k": [0, 10], "n": [12, 3]})]
)
def test_windows_of_changes_stay_as_they_closed(capsys: Any, mode: str, holds: Any) -> None:
    run(SUMS.format(mode=mode), CHANGES)
    status, line, _ = run_diff(capsys, holds)
    assert (status, line["equal"], line["engine"]) == (0, True, "ticks"), line
    status, line, _ = run_diff(capsys, {"k": [0], "n": [7]})
    assert (status, ("extra", "unexplained", 1, 0, 7) in rows(line)) == (1, True)


def test_what_is_not_known_is_refused(capsys: Any) -> None:
    run(NAMED, NAMES)
    status, _, err = run_diff(capsys, HOLDS, "--input", "a=a")
    assert (status, "it is not known which tick read them" in err) == (2, True)
    (file, *_) = sorted(Path("p").iterdir())
    text = file.read_text()
    file.write_text(text + text)
    status, _, err = run_diff(capsys, HOLDS)
    assert (status, "not all rows of its inputs can be read again" in err) == (2, True)
    for path in Path(".watersmeet/job").rglob("*history*/**/*"):
        if path.is_file():
            path.unlink()
    status, _, err = run_diff(capsys, HOLDS)
    assert (status, "the history does not have tick 4" in err) == (2, True)


def test_a_state_that_is_ahead_of_its_history_is_refused(capsys: Any, monkeypatch: Any) -> None:
    run(NAMED, NAMES)
    monkeypatch.setattr(command, "history_of", lambda store, tick: history_of(store, tick - 1))
    status, _, err = run_diff(capsys, HOLDS)
    assert (status, "the history does not have tick 4, that of the state" in err) == (2, True)


def test_deletes_of_what_was_not_there_are_refused(capsys: Any) -> None:
    run(SUMS.format(mode="CHANGES"), [*CHANGES, {"c": [{"t": 14, "v": 77, "d": -1}]}])
    status, _, err = run_diff(capsys, {"k": [0, 10], "n": [12, 3]})
    assert (status, 'rows of "c" were deleted more often than they had come' in err) == (2, True)


def test_without_a_state_nothing_is_known_of_ticks(capsys: Any) -> None:
    Path("job.sql").write_text(NAMED)
    for name in "abp":
        Path(name).mkdir()
        Path(name, "1.json").write_text("")
    status, _, err = run_diff(capsys, HOLDS, *(w for name in "abp" for w in ("--input", f"{name}={name}")))
    assert (status, "there is no state" in err) == (2, True)
