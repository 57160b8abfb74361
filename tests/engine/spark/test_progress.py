"""SET progress_output: a row per tick, written when all sinks have their rows of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from tests.support.ordered_files import write_rows_file
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.spark.tick.outputs import PROGRESS_INSERT
from watersmeet.sinks.file_sink import FileSink

pytestmark = pytest.mark.spark

JOB = """
CREATE TABLE a (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND)
  WITH ('connector' = 'file', 'path' = '{folder}/a', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE n (id BIGINT, n INT, WATERMARK FOR n AS n)
  WITH ('connector' = 'file', 'path' = '{folder}/n', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE times WITH ('connector' = 'file', 'path' = '{folder}/times', 'format' = 'json');
CREATE TABLE numbers WITH ('connector' = 'file', 'path' = '{folder}/numbers', 'format' = 'json');
CREATE TABLE ticks WITH ('connector' = 'file', 'path' = '{folder}/ticks', 'format' = 'json');
SET progress_output = ticks;
INSERT INTO times SELECT id, t FROM a;
INSERT INTO numbers SELECT id, n FROM n WHERE id > 0;
"""


def job(folder: Path) -> str:
    (folder / "a").mkdir()
    (folder / "n").mkdir()
    for tick in (1, 2):
        rows = [{"id": tick, "t": f"2024-01-01T00:00:0{tick}"}] * tick
        write_rows_file(folder / "a" / f"{tick}.json", tick, rows)
        write_rows_file(
            folder / "n" / f"{tick}.json", tick, [{"id": n, "n": tick * 10} for n in (tick - 1, 7)]
        )
    return JOB.replace("{folder}", str(folder))


def read_tick_rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "ticks").glob("*.json"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for row in rows:
        for name in ("rows_in", "rows_out", "watermarks", "shed", "shed_joined"):
            row[name] = json.loads(row[name])
    return sorted(rows, key=lambda row: row["tick"])


def test_a_row_per_tick(spark, tmp_path):
    text = job(tmp_path)
    run = until_caught_up(spark, text, tmp_path / "c", finish=True)
    rows = read_tick_rows(tmp_path)
    assert [row["tick"] for row in rows] == [tick.tick for tick in run.ticks] == [1, 2, 3]
    assert [row["rows_in"] for row in rows] == [{"a": 1, "n": 2}, {"a": 2, "n": 2}, {"a": 0, "n": 0}]
    out = [{"times": 1, "numbers": 1}, {"times": 2, "numbers": 2}, {"times": 0, "numbers": 0}]
    assert [row["rows_out"] for row in rows] == out
    assert rows[1]["watermarks"] == {"times": {"a.t": "2024-01-01 00:00:01"}, "numbers": {"n.n": "20"}}
    assert [row["finished"] for row in rows] == [False, False, True]
    assert [(row["shed"], row["shed_joined"]) for row in rows] == [({}, {})] * 3
    clocks = [row["clock"] for row in rows]
    assert clocks == sorted(clocks)
    assert until_caught_up(spark, text, tmp_path / "c", finish=True).ticks == []
    assert read_tick_rows(tmp_path) == rows


CHAIN = """
CREATE TABLE a (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = '{folder}/a', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE chained WITH ('connector' = 'file', 'path' = '{folder}/chained', 'format' = 'json');
CREATE TABLE aside WITH ('connector' = 'file', 'path' = '{folder}/aside', 'format' = 'json');
CREATE TABLE ticks WITH ('connector' = 'file', 'path' = '{folder}/ticks', 'format' = 'json');
SET progress_output = ticks;
SET plan = cascade;
SET max_rows = 4;
SET at_limit = shed_oldest;
SET shed_output = aside;
INSERT INTO chained SELECT b.id, c.id AS c, d.id AS d FROM a b
  JOIN a c ON c.id = b.id AND c.t BETWEEN b.t AND b.t + INTERVAL '1' HOUR
  JOIN a d ON d.id = b.id AND d.t BETWEEN b.t AND b.t + INTERVAL '1' HOUR;
"""


@pytest.mark.full
def test_it_tells_what_was_shed_in_each_tick(spark, tmp_path):
    (tmp_path / "a").mkdir()
    for tick in (1, 2, 3):
        rows = [{"id": n, "t": f"2024-01-01T00:0{tick}:0{n}"} for n in range(tick + 1)]
        write_rows_file(tmp_path / "a" / f"{tick}.json", tick, rows)
    run = until_caught_up(spark, CHAIN.replace("{folder}", str(tmp_path)), tmp_path / "c", finish=True)
    aside: dict[int, dict[str, int]] = {}
    for file in (tmp_path / "aside").glob("shed-rows-*.json"):
        of_tick = aside.setdefault(int(file.parent.name.rpartition("-")[2]), {})
        for line in file.read_text().splitlines():
            name = json.loads(line)["input"].rpartition("/")[2]
            of_tick[name] = of_tick.get(name, 0) + 1
    rows = read_tick_rows(tmp_path)
    assert [{**row["shed"].get("chained", {}), **row["shed_joined"].get("chained", {})} for row in rows] == [
        aside.get(row["tick"], {}) for row in rows
    ]
    assert {name for row in rows for name in row["shed_joined"].get("chained", ())} == {"b with c"}
    assert sum(bool(row["shed_joined"]) for row in rows) > 1, "counted per tick"
    totals = {name: sum(of.get(name, 0) for of in aside.values()) for name in "bcd"}
    (last,) = (tick.queries["chained"] for tick in run.ticks[-1:])
    assert {name: own.get("shed", 0) for name, own in last.account.items()} == totals


@pytest.mark.parametrize("where", [pytest.param("others are out", marks=pytest.mark.full), "it is out"])
def test_a_tick_that_is_repeated_tells_it_once(spark, tmp_path, where, monkeypatch):
    text, publish = job(tmp_path), FileSink.publish

    def broken(self: FileSink, insert: str, tick: int, *others: Any) -> bool:
        if insert == PROGRESS_INSERT and tick == 2:
            assert len(list((tmp_path / "times" / "_ticks").iterdir())) == 2  # the others come first
            if where == "it is out":
                publish(self, insert, tick, *others)
            raise RuntimeError("broken on purpose")
        return publish(self, insert, tick, *others)

    monkeypatch.setattr(FileSink, "publish", broken)
    with pytest.raises(WatersmeetError, match="broken on purpose"):
        until_caught_up(spark, text, tmp_path / "c")
    monkeypatch.setattr(FileSink, "publish", publish)
    before = read_tick_rows(tmp_path)
    assert [row["tick"] for row in before] == ([1] if where == "others are out" else [1, 2])
    until_caught_up(spark, text, tmp_path / "c")
    assert [row["tick"] for row in read_tick_rows(tmp_path)] == [1, 2]
    assert read_tick_rows(tmp_path)[: len(before)] == before
    parts = (tmp_path / "times").glob("*.json")
    lines = [line for file in parts for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == [1, 2, 2]


def test_what_cannot_be(spark, tmp_path):
    text = job(tmp_path)
    with pytest.raises(WatersmeetError, match='progress_output = "tikcs", but this job has no such sink'):
        until_caught_up(
            spark, text.replace("progress_output = ticks", "progress_output = tikcs"), tmp_path / "c"
        )
