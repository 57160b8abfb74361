"""Tables by key, by diffs and read as a whole, joined and grouped, in a job that is killed again and again
while they change, and whose queries and sources change, too: what its changes add up to in the end is what
DuckDB makes of the tables as they are then.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.kills.jobs import Process, differences, list_completed_ticks

pytestmark = [pytest.mark.kill, pytest.mark.spark, pytest.mark.full]

FILE = "'connector' = 'file', 'path' = '{folder}/%s', 'format' = '%s'"
DECLARED = f"""
CREATE TABLE people (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, town STRING, seen BIGINT, op STRING)
    WITH ({FILE % ("in/people", "json")}, 'op.column' = 'op', 'sequence.by' = 'seen');
CREATE TABLE orders (number BIGINT, person BIGINT, amount BIGINT, d INT)
    WITH ({FILE % ("in/orders", "json")}, 'diff.column' = 'd');
CREATE TABLE towns (name STRING PRIMARY KEY NOT ENFORCED, country STRING)
    WITH ({FILE % ("in/towns", "json")}, 'changes' = 'snapshot');
CREATE TABLE calls (n BIGINT, person BIGINT, t BIGINT, WATERMARK FOR t AS t - 100)
    WITH ({FILE % ("in/calls", "json")});
CREATE TABLE answers (n BIGINT, person BIGINT, t BIGINT, WATERMARK FOR t AS t - 100)
    WITH ({FILE % ("in/answers", "json")});
SET progress_output = ticks;
CREATE TABLE ticks WITH ({FILE % ("out/ticks", "json")});
"""
QUERIES = {
    "named": "SELECT o.number, o.amount, p.name FROM orders o LEFT JOIN people p ON p.id = o.person",
    "countries": "SELECT t.country, count(*) AS orders, sum(o.amount) AS amount, min(p.name) AS name"
    " FROM orders o JOIN people p ON p.id = o.person JOIN towns t ON t.name = p.town GROUP BY t.country",
    "towns_alone": "SELECT name, country FROM towns",
    "in_town": "SELECT town, count(*) AS people, max(name) AS name FROM people GROUP BY town",
    "answered": "SELECT c.n AS call, a.n AS answer FROM calls c JOIN answers a"
    " ON a.person = c.person AND a.t BETWEEN c.t AND c.t + 50",
}
OF_CHANGES = ("named", "countries", "in_town")
STREAMS = ("calls", "answers")

MORE = ("--conf", "spark.sql.shuffle.partitions=2")
KILLS = 5
COMES, GOES = 1, 3
"""The runs from which on a query is there with sources of its own, before all others, and one over a table
that others have read; and from which on one is no more."""


class Changing:
    """The tables as they are, and the files that tell it."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self._folder, self._draw, self._steps = folder, draw, 0
        self.people: dict[int, tuple[str, str]] = {}
        self.orders: Counter[tuple[int, int, int]] = Counter()
        self.towns: dict[str, str] = {}
        self.streams: dict[str, list[tuple[int, int, int]]] = {name: [] for name in STREAMS}
        for name in ("people", "orders", "towns", *STREAMS):
            (folder / "in" / name).mkdir(parents=True)
        self.step()

    def step(self) -> None:
        self._steps += 1
        draw = self._draw
        self._write("people", [self._person() for _ in range(draw.randrange(6))])
        self._write("orders", [self._order() for _ in range(draw.randrange(8))])
        for name in STREAMS:
            rows = [
                (len(self.streams[name]) + n, draw.randrange(4), 60 * self._steps + draw.randrange(60))
                for n in range(draw.randrange(5))
            ]
            self.streams[name] += rows
            self._write(name, [dict(zip(("n", "person", "t"), row, strict=True)) for row in rows])
        for town in draw.sample("ABCDE", 2):
            if draw.random() < 0.3:
                self.towns.pop(town, None)
            else:
                self.towns[town] = f"land {draw.randrange(3)}"
        whole = [{"name": name, "country": country} for name, country in self.towns.items()]
        self._write("towns", whole, "whole.json")

    def _person(self) -> dict[str, Any]:
        draw, number = self._draw, self._draw.randrange(8)
        sequence = self._steps
        if draw.random() < 0.25 and self._steps > 1:  # too late: what is newer stays
            row = {"id": number, "name": "stale", "town": "A", "seen": -1, "op": "c"}
            return row if number in self.people else row | {"id": 99, "seen": sequence, "op": "d"}
        if draw.random() < 0.3:
            self.people.pop(number, None)
            return {"id": number, "seen": sequence, "op": "d"}
        self.people[number] = (f"name {draw.randrange(5)}", draw.choice("ABCDE"))
        name, town = self.people[number]
        return {"id": number, "name": name, "town": town, "seen": sequence, "op": "c"}

    def _order(self) -> dict[str, Any]:
        draw = self._draw
        if self.orders and draw.random() < 0.4:
            row, d = draw.choice(sorted(self.orders)), -1
        else:
            row, d = (draw.randrange(30), draw.randrange(8), draw.randrange(100)), 1
        self.orders[row] += d
        self.orders += Counter()  # without those of which there is none
        return dict(zip(("number", "person", "amount", "d"), (*row, d), strict=True))

    def _write(self, folder: str, rows: list[dict[str, Any]], name: str | None = None) -> None:
        staged = self._folder / f".{folder}"
        staged.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(staged, (1.7e9 + self._steps,) * 2)  # Spark reads the oldest first
        staged.rename(self._folder / "in" / folder / (name or f"{self._steps:04d}.json"))

    def wanted(self, query: str) -> list[tuple[Any, ...]]:
        """By DuckDB, of the tables as they are."""
        tables = {
            "people (id BIGINT, name TEXT, town TEXT)": [(n, *row) for n, row in self.people.items()],
            "orders (number BIGINT, person BIGINT, amount BIGINT)": list(self.orders.elements()),
            "towns (name TEXT, country TEXT)": list(self.towns.items()),
            **{f"{name} (n BIGINT, person BIGINT, t BIGINT)": rows for name, rows in self.streams.items()},
        }
        with duckdb.connect() as base:
            for declared, rows in tables.items():
                base.execute(f"CREATE TABLE {declared}")
                for row in rows:
                    name = declared.split()[0]
                    base.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
            return base.execute(QUERIES[query]).fetchall()


def job_of(folder: Path, names: tuple[str, ...]) -> str:
    return (DECLARED + "".join(
        f"CREATE TABLE {name} WITH ({FILE % (f'out/{name}', 'parquet')});\n"
        f"INSERT INTO {name} {QUERIES[name]}{'' if name == 'answered' else ' EMIT CHANGES'};\n"
        for name in names
    )).format(folder=folder)  # fmt: skip


def sum_emitted_changes(folder: Path, query: str) -> Counter[tuple[Any, ...]]:
    """What the changes that went out add up to."""
    rows = duckdb.sql(f"SELECT * EXCLUDE (_tick) FROM read_parquet('{folder}/out/{query}/*.parquet')")
    total: Counter[tuple[Any, ...]] = Counter()
    for *row, diff in rows.fetchall():
        total[tuple(row)] += diff
    return Counter({row: count for row, count in total.items() if count})


def test_tables_change_and_queries_too_while_it_is_killed(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    tables = Changing(tmp_path, draw)
    runs: list[Process] = []

    def started(*arguments: str, own_jvm: bool = False) -> Process:
        runs.append(Process(tmp_path, *arguments, *MORE, own_jvm=own_jvm))
        return runs[-1]

    def queries_of(number: int) -> tuple[str, ...]:
        come = ("answered", "in_town") if number >= COMES else ()
        return (*come, "named", "countries", *(() if number >= GOES else ("towns_alone",)))

    def begin(number: int, *arguments: str, own_jvm: bool = False) -> Process:
        """A run that has begun. A tick that was interrupted comes to its end before queries change."""
        (tmp_path / "job.sql").write_text(job_of(tmp_path, queries_of(number)))
        run = started(*arguments, *(["--change-queries"] if number >= COMES else []), own_jvm=own_jvm)
        while not run.ticks:
            if not run.look(1):
                continue
            if run.process.wait(30) == 0:
                return run
            assert "interrupted" in run.errors.read_text(), run.errors.read_text()
            (tmp_path / "job.sql").write_text(job_of(tmp_path, queries_of(number - 1)))
            again = started("--until-caught-up", *(["--change-queries"] if number > COMES else []))
            assert again.await_end() == 0, again.errors.read_text()
            return begin(number, *arguments, own_jvm=own_jvm)
        return run

    try:
        for number in range(KILLS):
            tables.step()
            whom = draw.choice(["python", "jvm", "both"])
            own_jvm = whom != "python"
            if number not in (COMES, GOES) and draw.random() < 0.4:
                (tmp_path / "job.sql").write_text(job_of(tmp_path, queries_of(number)))
                run = started(*(["--change-queries"] if number >= COMES else []), own_jvm=own_jvm)
                run.look_for(draw.uniform(3, 9))  # anywhere up to its first tick
            else:
                run = begin(number, "--trigger", "100 milliseconds", own_jvm=own_jvm)
                for seen in range(run.ticks + 1, run.ticks + draw.choice([1, 1, 2])):
                    tables.step()
                    run.await_ticks(seen)
                tables.step()
                run.look_for(draw.uniform(0, 1))
            print(f"kill {number} (seed {seed}): {whom}, {run.age_s:.1f} s old, tick {run.ticks}", flush=True)
            run.kill(whom)
        tables.step()
        last = begin(KILLS, "--until-caught-up")
        assert last.await_end() == 0, last.errors.read_text()
    finally:
        for run in runs:
            run.clean_up()
    for name in OF_CHANGES:
        assert sum_emitted_changes(tmp_path, name) == Counter(tables.wanted(name)), name
    rows = f"read_parquet('{tmp_path}/out/answered/*.parquet')"
    pairs = tables.wanted("answered")
    assert len(pairs) > 5
    shown = ", ".join(map(str, pairs))
    assert differences(rows, f"(VALUES {shown})") == []
    ticks = list_completed_ticks(tmp_path)
    assert ticks == list(range(1, len(ticks) + 1)), "each tick is told once"
