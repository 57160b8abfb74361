"""Whole jobs into a user's function: rows that come, changes, rows by their keys; and what fails."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.errors import EngineError, SpecError, StateError
from watersmeet.sinks.function import FunctionSink

pytestmark = pytest.mark.spark

FUNCTIONS = '''
"""Each part becomes a file, which takes the place of one that is there."""
import json, os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path({folder!r})


def put(part, rows):
    name = f"{{part.insert}}-{{part.tick}}-{{part.number}}"
    with (HERE / "calls").open("a") as calls:
        told = [part.job, part.insert, part.tick, part.number, part.parts, part.rows, os.getpid()]
        calls.write(json.dumps(told) + "\\n")
    if (HERE / "fails").exists() and part.number == part.parts - 1:
        raise SystemExit("not now")
    if (HERE / "lazy").exists():
        return
    if (HERE / "always dies").exists():
        os._exit(7)
    if (HERE / "dies").exists():
        (HERE / "dies").unlink()
        os._exit(7)
    staged = HERE / f".{{name}}-{{os.getpid()}}"
    pq.write_table(rows.read_all(), staged)
    os.replace(staged, HERE / "given" / f"{{name}}.parquet")
'''

JOB = """
CREATE TABLE c (id BIGINT, name STRING, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/c', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE o (nr BIGINT, c BIGINT, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/o', 'format' = 'json', 'diff.column' = 'd');
CREATE SINK keyed (nr BIGINT, name STRING, PRIMARY KEY (nr) NOT ENFORCED)
    WITH ('connector' = 'function', 'function' = '{module}:put');
CREATE SINK changes WITH ('connector' = 'function', 'function' = '{module}:put');
SET output_mode = changelog;
INSERT INTO keyed SELECT o.nr, c.name FROM o LEFT JOIN c ON o.c = c.id;
INSERT INTO changes SELECT o.nr, c.name FROM o LEFT JOIN c ON o.c = c.id;
"""


class Given:
    """A job in a folder, and what its function was given."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        (folder / "given").mkdir()
        (folder / f"{name}.py").write_text(FUNCTIONS.format(folder=str(folder)))
        self.text = JOB.format(folder=folder, module=name)

    def write(self, table: str, tick: int, rows: list[dict[str, Any]]) -> None:
        (self.folder / table).mkdir(exist_ok=True)
        (self.folder / table / f"{tick}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))

    @property
    def calls(self) -> list[list[Any]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def rows(self, insert: str) -> list[dict[str, Any]]:
        return [
            row
            for file in sorted((self.folder / "given").glob(f"{insert}-*.parquet"))
            for row in pq.read_table(file).to_pylist()
        ]


@pytest.fixture
def function_job(tmp_path, tmp_path_factory, request, monkeypatch):
    """Workers find the module, whatever their folder. The session reads its file again in later tests."""
    name = f"given_{abs(hash(request.node.name)):x}"
    given = Given(tmp_path, name)
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path_factory.mktemp("functions") / f"{name}.py"
    module.write_text((tmp_path / module.name).read_text())
    request.getfixturevalue("spark").sparkContext.addPyFile(str(module))
    given.write("c", 1, [{"id": 1, "name": "Ada", "d": 1}])
    given.write("o", 1, [{"nr": nr, "c": nr % 2, "d": 1} for nr in range(8)])
    return given


def test_changes_and_rows_by_their_keys(spark, function_job, tmp_path):
    until_caught_up(spark, function_job.text, tmp_path / "state")
    function_job.write("c", 2, [{"id": 1, "name": "Ada", "d": -1}, {"id": 1, "name": "Eve", "d": 1}])
    function_job.write("o", 2, [{"nr": 0, "c": 0, "d": -1}])
    until_caught_up(spark, function_job.text, tmp_path / "state")
    net: dict[tuple[int, str | None], int] = {}
    for row in function_job.rows("changes"):
        assert set(row) == {"nr", "name", "_diff", "_tick"}
        net[row["nr"], row["name"]] = net.get((row["nr"], row["name"]), 0) + row["_diff"]
    expected = {(nr, "Eve" if nr % 2 else None) for nr in range(1, 8)}
    assert {row: n for row, n in net.items() if n} == dict.fromkeys(expected, 1)
    keyed: dict[int, str | None] = {}
    for row in function_job.rows("keyed"):
        if row["_deleted"]:
            del keyed[row["nr"]]
        else:
            keyed[row["nr"]] = row["name"]
    assert set(keyed.items()) == expected
    jobs = {job for job, *_ in function_job.calls}
    assert [len(job) > 8 for job in jobs] == [True]
    assert len({tuple(call[:4]) for call in function_job.calls}) == len(function_job.calls), "each part once"
    assert all(pid != os.getpid() for *_, pid in function_job.calls), "in workers, not in the driver"


JOINED = """
CREATE TABLE l (k BIGINT, t TIMESTAMP, s STRING, n DECIMAL(9, 2), x DOUBLE, d DATE, b BOOLEAN, a ARRAY<INT>,
    i TINYINT, w TIMESTAMP_NTZ, WATERMARK FOR t AS t)
    WITH ('connector' = 'file', 'path' = '{folder}/l', 'format' = 'json');
CREATE TABLE r (k BIGINT, t TIMESTAMP, v BIGINT, WATERMARK FOR t AS t)
    WITH ('connector' = 'file', 'path' = '{folder}/r', 'format' = 'json');
CREATE SINK joined WITH ('connector' = 'function', 'function' = '{module}:put');
SET time_zone = 'America/New_York';
INSERT INTO joined SELECT l.*, r.v, l.k + 1 AS m, r.t AS rt FROM l LEFT JOIN r ON l.k = r.k
    AND r.t BETWEEN l.t AND l.t + INTERVAL '1' HOUR;
"""


def test_what_the_driver_stages_is_what_tasks_would(spark, function_job, tmp_path, monkeypatch):
    """Columns, types, NULLs and rows, in another time zone; and no frame is staged then."""
    at = "2024-03-01T00:00:00Z"
    whole = {
        "s": "a",
        "n": "1.50",
        "x": 0.5,
        "d": "2024-02-29",
        "b": True,
        "a": [1, None],
        "i": 7,
        "w": at[:-1],
    }
    function_job.write("l", 1, [{"k": 1, "t": at} | whole, {"k": 2, "t": at}, {"k": 3, "t": at, "s": ""}])
    function_job.write(
        "r", 1, [{"k": 1, "t": at, "v": 1}, {"k": 1, "t": at, "v": None}, {"k": 9, "t": at, "v": 3}]
    )
    module, found, frames = function_job.text.split("'function' = '")[1].split(":")[0], {}, []
    write = FunctionSink.write
    monkeypatch.setattr(FunctionSink, "write", lambda *all_: frames.append(1) or write(*all_))
    for small in ("spark", "auto"):
        text = JOINED.format(folder=tmp_path, module=module)
        run = {"small_ticks": small}
        until_caught_up(spark, text, tmp_path / small, partitions=None, finish=True, run=run)
        files = sorted((tmp_path / "given").glob("joined-*.parquet"))
        tables = [pq.read_table(file) for file in files]
        for file in files:
            file.unlink()
        found[small] = (
            {table.schema for table in tables},
            sorted(str(r) for t in tables for r in t.to_pylist()),
        )
        assert bool(frames) == (small == "spark"), small
        frames.clear()
    assert found["auto"] == found["spark"]
    assert len(found["auto"][1]) == 4


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("fails", "function-failed"),
        pytest.param("lazy", "function-left-rows", marks=pytest.mark.full),
    ],
)
def test_a_failed_tick_is_repeated_with_the_same_parts(spark, function_job, tmp_path, file, code):
    (tmp_path / file).touch()
    with pytest.raises(EngineError, match=code) as caught:
        until_caught_up(spark, function_job.text, tmp_path / "state", partitions=3)
    assert "\n" not in caught.value.message
    if file == "fails":
        assert "SystemExit: not now (" in caught.value.message
    first = [call[:6] for call in function_job.calls]
    assert len({tuple(call) for call in first}) == len(first), "a call that failed is not tried again at once"
    (tmp_path / file).unlink()
    until_caught_up(spark, function_job.text, tmp_path / "state", partitions=1)
    again = [call[:6] for call in function_job.calls[len(first) :]]
    assert all(call in again for call in first)
    assert sorted(row["nr"] for row in function_job.rows("changes")) == [*range(8)]
    assert sorted(row["nr"] for row in function_job.rows("keyed")) == [*range(8)]


@pytest.mark.parametrize("what", ["renamed", pytest.param("no function", marks=pytest.mark.full)])
def test_rows_that_are_out_do_not_come_again_by_another_name(spark, function_job, tmp_path, what):
    """What a sink was called cannot be left to those that are there now."""
    (tmp_path / "fails").touch()
    with pytest.raises(EngineError, match="function-failed"):
        until_caught_up(spark, function_job.text, tmp_path / "state", partitions=3)
    (tmp_path / "fails").unlink()
    first = len(function_job.calls)
    changed = function_job.text.replace("keyed", "by_key")
    if what == "no function":
        start, end = (
            function_job.text.index(" (nr BIGINT, name"),
            function_job.text.index("CREATE SINK changes"),
        )
        changed = f"{function_job.text[:start]} WITH ('connector' = 'memory');\n{function_job.text[end:]}"
    with pytest.raises(StateError, match="interrupted-tick") as caught:
        until_caught_up(spark, changed, tmp_path / "state")
    assert '"keyed" has rows of tick 1 (function sink "keyed")' in caught.value.message
    assert len(function_job.calls) == first
    until_caught_up(spark, function_job.text, tmp_path / "state")
    assert sorted(row["nr"] for row in function_job.rows("keyed")) == [*range(8)]


def test_a_worker_that_dies_is_tried_again_with_the_same_part(spark, function_job, tmp_path):
    (tmp_path / "dies").touch()
    try:
        until_caught_up(spark, function_job.text, tmp_path / "state")
    except EngineError:  # with one attempt per task the tick fails, and is repeated
        until_caught_up(spark, function_job.text, tmp_path / "state")
    assert sorted(row["nr"] for row in function_job.rows("changes")) == [*range(8)]
    assert sorted(row["nr"] for row in function_job.rows("keyed")) == [*range(8)]


def test_a_function_that_ends_its_process_is_named_as_what_may_have(spark, function_job, tmp_path):
    (tmp_path / "always dies").touch()
    with pytest.raises(EngineError, match="worker-gone") as caught:
        until_caught_up(spark, function_job.text, tmp_path / "state")
    assert "no function of yours" in str(caught.value.hint)
    (tmp_path / "always dies").unlink()
    until_caught_up(spark, function_job.text, tmp_path / "state")
    assert sorted(row["nr"] for row in function_job.rows("changes")) == [*range(8)]


def test_a_function_that_is_not_there_is_refused_before_the_state_is_made(spark, function_job, tmp_path):
    with pytest.raises(SpecError, match="no-function"):
        until_caught_up(spark, function_job.text.replace(":put", ":get"), tmp_path / "state")
    assert not (tmp_path / "state").exists()
