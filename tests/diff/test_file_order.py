"""Of a table with a primary key, which of several files counted last: by ticks, and within one by the files'
times of change and their names; refused where that is not known, and only there."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.recorded import OPEN
from tests.support.recorded_files import FileJob
from watersmeet.cli.diff.source_rows import orders_of
from watersmeet.cli.main import main
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.state.file_lists import FileRead

TEXT = """
CREATE TABLE p (id BIGINT PRIMARY KEY NOT ENFORCED, v BIGINT, op STRING{columns})
    WITH ('connector' = 'file', 'path' = 'p', 'format' = 'json', 'op.column' = 'op'{options});
CREATE SINK q WITH ('connector' = 'memory');
INSERT INTO q SELECT id, v FROM p EMIT CHANGES;
"""

Ticks = list[list[tuple[int, str, int, list[dict[str, Any]]]]]


def row(id: int, v: int | None, **more: Any) -> dict[str, Any]:
    return {"id": id, "v": v, "op": "D" if v is None else "I", **more}


def run(ticks: Ticks, *, columns: str = "", options: str = "", history: bool = True) -> None:
    text = TEXT.format(columns=columns, options=options)
    Path("job.sql").write_text(text)
    job = FileJob(text, Checkpoint(Path(".watersmeet/job").absolute()), {"p": Path("p").absolute()})
    with job.run(OPEN):
        for files in ticks:
            job.read_in_steps("p", files)
    for path in () if history else Path(".watersmeet/job").rglob("*history*/**/*"):
        if path.is_file():
            path.unlink()


def run_diff(capsys: Any, put_out: dict[int, int]) -> tuple[int, list[Any], str]:
    """What is said of a table that came to these rows: status, differing rows, error."""
    table = pa.table(
        {"id": pa.array(put_out.keys(), pa.int64()), "v": pa.array(put_out.values(), pa.int64())}
    )
    parquet.write_table(table.append_column("_diff", pa.array([1] * len(put_out))), "put_out.parquet")
    status = main(["diff", "job.sql", "--output", "q=put_out.parquet", "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out)["rows"] if out else [], " ".join(err.split())


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_of_a_tick_count_by_time_and_name(capsys: Any) -> None:
    first = [
        (0, "c.json", 2, [row(1, 12), row(2, 22)]),
        (0, "b.json", 1, [row(1, 11)]),
        (0, "a.json", 2, [row(2, 20)]),
    ]
    run([first, [(0, "0.json", 0, [row(3, 99)])]])
    assert run_diff(capsys, {1: 12, 2: 22, 3: 99})[:2] == (0, [])
    status, rows, _ = run_diff(capsys, {1: 11, 2: 22, 3: 99})
    assert (status, [(own["side"], own["row"]) for own in rows]) == (
        1,
        [("extra", [1, 11]), ("missing", [1, 12])],
    )


STEPS: Ticks = [
    [(0, "z.json", 9, [row(1, 11)]), (1, "y.json", 5, [row(1, 12)])],  # two steps of one tick
    [(0, "x.json", 8, [row(2, 21)])],
    [(0, "w.json", 7, [row(2, 22)])],  # an older file, of a later tick
]


def test_the_history_tells_which_steps_one_tick_read(capsys: Any) -> None:
    run(STEPS)
    assert run_diff(capsys, {1: 11, 2: 22})[:2] == (0, [])


def test_without_it_what_goes_by_it_is_refused(capsys: Any) -> None:
    run(STEPS, history=False)
    status, _, err = run_diff(capsys, {1: 11, 2: 22})
    assert status == 2
    assert "keys of it (2) have records in several files, and which of these counted last is not known" in err


def test_files_of_one_name_and_time_are_in_no_order(capsys: Any) -> None:
    run([[(0, "a/1.json", 1, [row(1, 11)]), (0, "b/1.json", 1, [row(1, 12), row(2, 22)])]])
    status, _, err = run_diff(capsys, {1: 12, 2: 22})
    assert status == 2
    assert "keys of it (1) have records in several files" in err


def test_a_file_that_was_listed_at_another_time_may_be_in_either_order() -> None:
    files = [FileRead(0, 0, "file:/p/a", 1, 5, 9_000_000), FileRead(0, 0, "file:/p/b", 2, 5, 2_000_000)]
    no_ticks: Any = list
    assert orders_of(files, "p", "files", no_ticks) == [[0, 1], [1, 0]]
    assert orders_of(files[1:] * 2, "p", "files", no_ticks) == [[0, 0]]


@pytest.mark.parametrize(
    ("more", "is_refused"), [({"s": 4}, False), ({"s": 3}, True), ({"s": 4, "op": "D"}, True)]
)
def test_where_each_says_when_it_was_no_order_matters(
    capsys: Any, more: dict[str, Any], is_refused: bool
) -> None:
    files = [(0, "a/1.json", 1, [row(1, 11, s=3)]), (0, "b/1.json", 1, [row(1, 12) | more])]
    run([files], columns=", s BIGINT", options=", 'sequence.by' = 's'")
    status, rows, err = run_diff(capsys, {1: 12})
    assert (status, rows, "in several files" in err) == ((2, [], True) if is_refused else (0, [], False))


def test_random_files_count_as_the_job_counted_them(seed: int, capsys: Any, place: Path) -> None:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 10):
        rng = random.Random(number)
        home = place / str(number)
        home.mkdir()
        os.chdir(home)
        ticks: Ticks = []
        for tick in range(3):
            names = rng.sample("abcdef", rng.randint(1, 4))
            steps = sorted(rng.choice([0, 0, 1]) for _ in names)
            steps = [step - steps[0] for step in steps]
            ticks.append(
                [
                    (step, f"{rng.choice(['', f'{tick}/'])}{name}{tick}.json", rng.randint(0, 3) + tick % 2,
                     [row(rng.randrange(4), rng.choice([None, *range(9)])) for _ in range(rng.randint(1, 3))])
                    for step, name in zip(steps, names, strict=True)
                ]
            )  # fmt: skip
        history = rng.random() < 0.7
        run(ticks, history=history)
        holds: dict[int, int] = {}
        for files in ticks:
            by_time = sorted(files, key=lambda own: (own[2], own[1][-7:]))
            for record in (record for *_, records in by_time for record in records):
                holds.pop(record["id"], None)
                if record["op"] == "I":
                    holds[record["id"]] = record["v"]
        status, rows, _ = run_diff(capsys, holds)
        seen["refused" if status == 2 else "equal" if not rows else "differs"] += 1
        seen["refused with a history"] += status == 2 and history
    assert (seen["differs"], seen["refused with a history"]) == (0, 0), (seed, seen)
    assert all(seen[what] for what in ("equal", "refused")), seen
