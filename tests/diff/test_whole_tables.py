"""Tables that are read as a whole: what rows of a stream have met as of their ticks, and what queries were
made of that emit changes, as long as the state knows that it is what is there now; refused otherwise."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.recorded import OPEN
from tests.support.recorded_files import FileJob
from watersmeet.cli.main import main
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint

MET = """
CREATE TABLE s (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 1)
  WITH ('connector' = 'file', 'path' = 's', 'format' = 'json');
CREATE TABLE names (k BIGINT, name STRING, closed BOOLEAN)
  WITH ('connector' = 'file', 'path' = 'names', 'format' = 'json');
CREATE SINK q WITH ('connector' = 'memory');
INSERT INTO q SELECT s.k, {columns} FROM s {kind} names FOR SYSTEM_TIME AS OF PROCTIME() AS n
  ON n.k = s.k AND NOT n.closed;
"""
STREAM = [[{"t": 1, "k": 1}, {"t": 5, "k": 2}], [{"t": 9, "k": 1}, {"t": 0, "k": 1}, {"t": 9, "k": 3}]]
NAMES = [
    {"k": 1, "name": "a"},
    {"k": 1, "name": "b"},
    {"k": 2, "name": "c"},
    {"k": 3, "name": "d"},
    {"k": None},
]

Rows = list[tuple[Any, ...]]


def write(folder: str, name: str, rows: list[dict[str, Any]], at: int = 1) -> None:
    path = Path(folder) / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"closed": row.get("name") == "d", **row}) + "\n" for row in rows))
    os.utime(path, (1_700_000_000 + at,) * 2)


def run(text: str, ticks: list[Any], *, between: Any = None) -> None:
    Path("job.sql").write_text(text)
    job = FileJob(text, Checkpoint(Path(".watersmeet/job").absolute()), {"s": Path("s").absolute()})
    with job.run(OPEN):
        for number, rows in enumerate(ticks):
            if number and between is not None:
                between()
            job.read({"s": rows}) if rows is not None else job.tick(0, {})


def run_diff(capsys: Any, columns: dict[str, list[Any]], *words: str) -> tuple[int, list[Any], str]:
    """What is said of an output: status, rows that differ, error."""
    kinds = {"k": pa.int64(), "name": pa.string(), "_diff": pa.int64()}
    table = pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})
    parquet.write_table(table, "put_out.parquet")
    status = main(["diff", "job.sql", "--output", "q=put_out.parquet", "--json", *words])
    out, err = capsys.readouterr()
    found = [(row["side"], row["reason"], *row["row"]) for row in json.loads(out)["rows"]] if out else []
    return status, found, " ".join(err.split())


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("names", "1.json", NAMES)
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("JOIN", [(1, "a"), (1, "b"), (2, "c"), (1, "a"), (1, "b")]),
        ("LEFT JOIN", [(1, "a"), (1, "b"), (2, "c"), (1, "a"), (1, "b"), (3, None)]),
    ],
)
def test_rows_have_met_what_is_there_still(capsys: Any, kind: str, rows: Rows) -> None:
    run(MET.format(kind=kind, columns="n.name"), STREAM)
    ks, names = (list(column) for column in zip(*rows, strict=True))
    late = [("missing", "late", 1, "a"), ("missing", "late", 1, "b")]
    assert run_diff(capsys, {"k": ks, "name": names})[:2] == (0, late)
    # one that was lost is not said to come yet, padded or not
    status, found, _ = run_diff(capsys, {"k": ks[:-1], "name": names[:-1]})
    assert (status, [row for row in found if row[1] == "unexplained"]) == (
        1,
        [("missing", "unexplained", *rows[-1])],
    )


@pytest.mark.parametrize(("kind", "ks"), [("LEFT SEMI JOIN", [1, 2, 1]), ("LEFT ANTI JOIN", [3])])
def test_of_rows_with_a_match_or_without(capsys: Any, kind: str, ks: list[int]) -> None:
    run(MET.format(kind=kind, columns="s.k AS again").replace("s.k, s.k AS again", "s.k"), STREAM)
    status, found, _ = run_diff(capsys, {"k": ks})
    assert (status, {row[1] for row in found}) == (0, {"late"} if "SEMI" in kind else set())
    status, found, _ = run_diff(capsys, {"k": ks[:-1]})
    assert (status, ("missing", "unexplained", ks[-1]) in found) == (1, True)


def test_a_table_that_has_changed_since_is_refused(capsys: Any) -> None:
    run(MET.format(kind="JOIN", columns="n.name"), STREAM)
    write("names", "2.json", [{"k": 3, "name": "e"}])
    status, _, err = run_diff(capsys, {"k": [], "name": []})
    assert (status, "its files are not those that were read last" in err) == (2, True)
    Path("names/2.json").unlink()
    assert run_diff(capsys, {"k": [1, 1, 2, 1, 1], "name": ["a", "b", "c", "a", "b"]})[0] == 0
    write("names", "1.json", NAMES, at=2)
    assert run_diff(capsys, {"k": [], "name": []})[0] == 2


def test_a_table_that_had_changed_before_is_refused(capsys: Any) -> None:
    run(
        MET.format(kind="JOIN", columns="n.name"),
        STREAM,
        between=lambda: write("names", "1.json", NAMES, at=2),
    )
    status, _, err = run_diff(capsys, {"k": [], "name": []})
    assert (status, "before tick 2 it held something else" in err) == (2, True)


def test_table_contents_before_the_first_stream_row_are_ignored(capsys: Any) -> None:
    run(MET.format(kind="JOIN", columns="n.name"), [None, STREAM[0]])
    assert run_diff(capsys, {"k": [1, 1, 2], "name": ["a", "b", "c"]})[:2] == (0, [])


HELD = """
CREATE TABLE names (k BIGINT{key}, name STRING, closed BOOLEAN)
  WITH ('connector' = 'file', 'path' = 'names', 'format' = 'json', 'changes' = 'snapshot');
CREATE SINK q WITH ('connector' = 'memory');
INSERT INTO q SELECT a.k, b.name FROM names a JOIN names b ON b.k = a.k EMIT CHANGES;
"""


def test_table_changes_sum_to_the_last_contents(capsys: Any) -> None:
    run(HELD.format(key=""), [None, None], between=lambda: write("names", "1.json", NAMES[1:], at=2))
    holds = [(row["k"], row["name"]) for row in NAMES[1:] if row["k"] is not None]
    ks, names = (list(column) for column in zip(*holds, strict=True))
    assert run_diff(capsys, {"k": ks, "name": names, "_diff": [1, 1, 1]})[:2] == (0, [])
    status, found, _ = run_diff(capsys, {"k": [*ks, 1], "name": [*names, "a"], "_diff": [1, 1, 1, 1]})
    assert (status, found) == (1, [("extra", "unexplained", 1, "a")])
    write("names", "1.json", NAMES, at=3)
    status, _, err = run_diff(capsys, {"k": ks, "name": names, "_diff": [1, 1, 1]})
    assert (status, "its files are not those that were read last" in err) == (2, True)


def test_by_a_key_that_comes_twice_it_is_refused(capsys: Any) -> None:
    text = HELD.format(key=" PRIMARY KEY NOT ENFORCED")
    run(text, [None], between=None)
    status, _, err = run_diff(capsys, {"k": [1], "name": ["a"], "_diff": [1]})
    assert (status, "several have the same key, or a key is NULL" in err) == (2, True)


def test_by_a_key_it_holds_a_row_of_each(capsys: Any) -> None:
    write("names", "1.json", NAMES[1:4])
    run(HELD.format(key=" PRIMARY KEY NOT ENFORCED"), [None])
    output = {"k": [1, 2, 3], "name": ["b", "c", "d"], "_diff": [1, 1, 1]}
    assert run_diff(capsys, output)[:2] == (0, [])
    assert run_diff(capsys, output, "--engine", "spark")[0] == 2
