"""Tables that are compared with what they held before, on Spark: files that are replaced, a PostgreSQL
server, several inputs that read one table, what is broken, and folders that are empty for a while."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import Running, until_caught_up
from watersmeet.errors import WatersmeetError
from watersmeet.sinks.file_sink import FileSink

pytestmark = pytest.mark.spark

FILES = """
CREATE TABLE customers (id BIGINT{key}, name STRING)
  WITH ('connector' = 'file', 'path' = '{folder}/customers', 'format' = 'json', 'changes' = 'snapshot');
"""
OUT = """
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
CREATE TABLE bad WITH ('connector' = 'file', 'path' = '{folder}/bad', 'format' = 'json');
SET broken_output = bad;
"""
KEY = " PRIMARY KEY NOT ENFORCED"


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "customers").mkdir()

    def put(self, rows: list[tuple[int | None, str]], name: str = "rows.json") -> None:
        staged = self.path / name
        staged.write_text("".join(json.dumps({"id": i, "name": n}) + "\n" for i, n in rows))
        staged.rename(self.path / "customers" / name)

    def text(self, *parts: str, key: str = "") -> str:
        return "".join(parts).replace("{folder}", str(self.path)).replace("{key}", key)

    def rows(self, sink: str = "out") -> list[dict[str, Any]]:
        files = sorted((self.path / sink).glob("*.json"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def sums(self) -> Counter[tuple[Any, ...]]:
        sums: Counter[tuple[Any, ...]] = Counter()
        for row in self.rows():
            values = tuple(v for name, v in sorted(row.items()) if name not in ("_diff", "_tick"))
            sums[values] += row["_diff"]
        return Counter({row: times for row, times in sums.items() if times})


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_files_without_a_stream(spark, folder):
    text = folder.text(FILES, OUT, "INSERT INTO out SELECT id, name FROM customers")
    checkpoint = folder.path / "checkpoint"
    folder.put([(1, "Ada"), (1, "Ada"), (2, "Bea")])
    until_caught_up(spark, text, checkpoint)
    assert folder.sums() == {(1, "Ada"): 2, (2, "Bea"): 1}
    assert until_caught_up(spark, text, checkpoint).ticks == []  # nothing has changed
    folder.put([(1, "Ada"), (3, "Cyd")])
    until_caught_up(spark, text, checkpoint)
    assert folder.sums() == {(1, "Ada"): 1, (3, "Cyd"): 1}
    last = [(row["id"], row["_diff"]) for row in folder.rows() if row["_tick"] == 2]
    assert sorted(last) == [(1, -1), (2, -1), (3, 1)]


def test_files_by_key_while_it_runs(spark, folder):
    """Two inputs are one reading; broken rows are told once; an empty folder says nothing."""
    text = folder.text(
        FILES,
        OUT,
        "INSERT INTO out SELECT a.id AS a, a.name AS b, c.name AS c FROM customers a"
        " JOIN customers c ON c.id = a.id",
        key=KEY,
    )
    notices: list[str] = []
    folder.put([(1, "Ada"), (2, "Bea"), (None, "Nul"), (2, "Abe")])
    with Running(spark, text, folder.path / "c", trigger="200 ms", on_notice=notices.append) as running:
        running.wait_for(lambda: folder.sums() == {(1, "Ada", "Ada"): 1, (2, "Abe", "Abe"): 1})
        running.wait_for(lambda: len(folder.rows("bad")) == 2)  # shown after the query's rows
        assert sorted(json.loads(row["record"])["name"] for row in folder.rows("bad")) == ["Bea", "Nul"]
        assert {(row["stream"], row["reason"]) for row in folder.rows("bad")} == {("customers", "broken")}
        (folder.path / "customers" / "rows.json").unlink()
        running.wait_for(lambda: any("no file" in said for said in notices))
        folder.put([(1, "Eve"), (2, "Bea"), (2, "Abe"), (None, "Nul")], "other.json")
        running.wait_for(lambda: folder.sums() == {(1, "Eve", "Eve"): 1, (2, "Abe", "Abe"): 1})
        folder.put([], "other.json")
        running.wait_for(lambda: not folder.sums())
    assert len(folder.rows("bad")) == 2
    for row in folder.rows():
        assert row["b"] == row["c"]  # never one of the two alone


def test_postgres(spark, folder, postgres):
    postgres.run(
        "CREATE TABLE towns (id int, town text, at timestamp);"
        "INSERT INTO towns VALUES (1, 'Rome', '2024-01-01'), (2, NULL, NULL), (2, NULL, NULL)"
    )
    table = f"""
    CREATE TABLE towns (id INT, town STRING, at TIMESTAMP)
      WITH ('connector' = 'jdbc', 'url' = '{postgres.jdbc_url}', 'dbtable' = 'towns', 'user' = 'watersmeet',
      'password' = '{postgres.password}', 'refresh' = '100 ms', 'changes' = 'snapshot');
    """
    text = folder.text(table, OUT, "INSERT INTO out SELECT town, count(*) AS n FROM towns GROUP BY town")
    with Running(spark, text, folder.path / "c", trigger="100 ms") as running:
        running.wait_for(lambda: folder.sums() == {(1, "Rome"): 1, (2, None): 1})
        postgres.run(
            "BEGIN; UPDATE towns SET town = 'Rome' WHERE id = 2; DELETE FROM towns WHERE id = 1; COMMIT"
        )
        running.wait_for(lambda: folder.sums() == {(2, "Rome"): 1})
    postgres.run("ALTER TABLE towns RENAME TO towns_before")
    with pytest.raises(WatersmeetError):
        until_caught_up(spark, text, folder.path / "c")
    assert folder.sums() == {(2, "Rome"): 1}  # what cannot be read has not gone
    postgres.run("ALTER TABLE towns_before RENAME TO towns; TRUNCATE towns")
    until_caught_up(spark, text, folder.path / "c")
    assert not folder.sums()


@pytest.mark.parametrize("with_stream", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_tick_that_failed_half_way_compares_the_same_again(spark, folder, monkeypatch, with_stream):
    """The first sink shows the tick, the second one does not, and then the table is replaced."""
    sinks = OUT.replace("CREATE TABLE bad", "CREATE TABLE more").replace("/bad'", "/more'")
    sinks = sinks.replace("SET broken_output = bad;", "")
    inserts = (
        "INSERT INTO out SELECT id, name FROM customers; INSERT INTO more SELECT name, id FROM customers;"
    )
    stream = """
    CREATE TABLE s (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t)
      WITH ('connector' = 'file', 'format' = 'json', 'path' = '{folder}/s');
    CREATE TABLE rest WITH ('connector' = 'file', 'path' = '{folder}/rest', 'format' = 'json');
    INSERT INTO rest SELECT id FROM s;
    """
    if with_stream:
        (folder.path / "s").mkdir()
        (folder.path / "s" / "1.json").write_text('{"id": 5, "t": "2024-01-01T00:00:00"}\n')
    text, checkpoint = folder.text(FILES, sinks, inserts, stream * with_stream), folder.path / "c"
    folder.put([(1, "Ada"), (2, "Bea")])
    publish = FileSink.publish

    def broken(self: FileSink, insert: str, *others: Any) -> bool:
        if insert == "more":
            raise RuntimeError("broken on purpose")
        return publish(self, insert, *others)

    monkeypatch.setattr(FileSink, "publish", broken)
    with pytest.raises(WatersmeetError, match="broken on purpose"):
        until_caught_up(spark, text, checkpoint)
    folder.put([(1, "Eve")])
    monkeypatch.setattr(FileSink, "publish", publish)
    first = Counter({(1, "Ada"): 1, (2, "Bea"): 1})
    assert folder.sums() == first
    until_caught_up(spark, text, checkpoint)
    told = {sink: {json.dumps(row, sort_keys=True) for row in folder.rows(sink)} for sink in ("out", "more")}
    assert told["out"] == told["more"]
    assert Counter((row["id"], row["name"]) for row in folder.rows() if row["_tick"] == 1) == first
    until_caught_up(spark, text, checkpoint)
    assert folder.sums() == {(1, "Eve"): 1}
