"""Ticks into a user's function that is idempotent by part, killed at every step: each row comes once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from tests.kills.function_ticks import POINTS, rows_of_tick
from tests.kills.jobs import JOB, LAG_S, Growing, Process, batch_of
from tests.support.forked import run_forked

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.kill


def run(folder: Path, last: int, point: str = "none", tick: int = 0) -> tuple[int, str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    told = ["-m", "tests.kills.function_ticks", folder, str(last), point, str(tick)]
    return run_forked(told, 120, cwd=ROOT, env=environment)


def query_database(folder: Path, sql: str) -> list[tuple]:
    with closing(sqlite3.connect(folder / "given.db")) as base:
        return base.execute(sql).fetchall()


def build_expected_rows(last: int) -> Counter:
    return Counter((tick, *row) for tick in range(1, last + 1) for row in rows_of_tick(tick))


def test_killed_at_every_point(tmp_path):
    tick = 0
    for point in POINTS:
        for _ in range(2):
            tick += 2
            while not rows_of_tick(tick):
                tick += 1
            code, errors = run(tmp_path, tick + 1, point, tick)
            assert code == -signal.SIGKILL, f"{point}: {errors}"
            known = Counter(query_database(tmp_path, "SELECT tick, k, v FROM rows"))
            assert known <= build_expected_rows(tick), point
            assert known >= build_expected_rows(tick - 1), point
            assert (known == build_expected_rows(tick)) == (point in ("out", "published")), point
    code, errors = run(tmp_path, tick + 3)
    assert code == 0, errors
    assert Counter(query_database(tmp_path, "SELECT tick, k, v FROM rows")) == build_expected_rows(tick + 3)
    cuts = query_database(tmp_path, "SELECT count(DISTINCT parts) FROM calls GROUP BY tick")
    assert {count for (count,) in cuts} == {1}, "a tick that is repeated has the parts that it had"
    assert query_database(tmp_path, "SELECT count(*) FROM calls WHERE was_there = 1")[0][0] > 0
    assert not query_database(tmp_path, "SELECT 1 FROM rows GROUP BY tick, k HAVING count(*) > 1")


FUNCTIONS = '''
"""Puts each part's rows into a file of SQLite, once."""
import json, os, signal, sqlite3
from pathlib import Path

HERE = Path(__file__).parent


def put(part, rows):
    base = sqlite3.connect(HERE / "given.db", timeout=60, isolation_level=None)
    try:
        base.execute("CREATE TABLE IF NOT EXISTS parts (name TEXT PRIMARY KEY)")
        base.execute("CREATE TABLE IF NOT EXISTS rows (name TEXT, row TEXT)")
        base.execute("CREATE TABLE IF NOT EXISTS calls (name TEXT, parts INT)")
        name = json.dumps([part.job, part.insert, part.tick, part.number])
        base.execute("INSERT INTO calls VALUES (?, ?)", (name, part.parts))
        base.execute("BEGIN IMMEDIATE")
        if base.execute("INSERT OR IGNORE INTO parts VALUES (?)", (name,)).rowcount:
            for batch in rows:
                values = [(name, json.dumps(row, default=str)) for row in batch.to_pylist()]
                base.executemany("INSERT INTO rows VALUES (?, ?)", values)
        else:
            part.skip()
        if part.tick == 2 and part.number == 1 and not (HERE / "killed").exists():
            (HERE / "killed").touch()
            os.kill(int((HERE / "driver").read_text()), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        base.execute("COMMIT")
    finally:
        base.close()
'''


@pytest.mark.full
@pytest.mark.spark
def test_whole_jobs_killed_while_the_function_has_some_parts(seed, tmp_path):
    """The driver dies within a part; then between two sinks; another number of tasks goes on."""
    (tmp_path / "given_to.py").write_text(FUNCTIONS)
    text = JOB.format(folder=tmp_path, lag=LAG_S)
    for sink in ("joined", "chain"):
        text = text.replace(
            f"CREATE MAPPING {sink} TYPE File OPTIONS ('path' = '{tmp_path}/out/{sink}');",
            f"CREATE SINK {sink} WITH ('connector' = 'function', 'function' = 'given_to:put');",
        )
    (tmp_path / "job.sql").write_text(text)
    Growing(tmp_path, seed, 4).add(4)
    more = ("--until-caught-up", "--finish")
    runs: list[Process] = []
    try:
        runs.append(job := Process(tmp_path, *more, "--partitions", "3"))
        (tmp_path / "driver").write_text(str(job.process.pid))
        assert job.await_end() == -signal.SIGKILL, job.errors.read_text()
        runs.append(job := Process(tmp_path, *more, "--partitions", "2", kill_at=("half-published", 3)))
        assert job.await_end() == -signal.SIGKILL, job.errors.read_text()
        runs.append(last := Process(tmp_path, *more, "--partitions", "5"))
        assert last.await_end() == 0, last.errors.read_text()
    finally:
        for job in runs:
            job.clean_up()
    names = {"joined": ("a_id", "a_k", "b_id", "b_k"), "chain": ("a_id", "b_id", "c_id")}
    every = {"joined": "a_id, a_k, a_v, a_t, b_id, b_k, b_v, b_t", "chain": "a_id, b_id, c_id"}
    assert query_database(tmp_path, "SELECT 1 FROM calls GROUP BY name HAVING count(*) > 1"), (
        "parts came again"
    )
    assert not query_database(tmp_path, "SELECT 1 FROM calls GROUP BY name HAVING count(DISTINCT parts) > 1")
    for sink, columns in names.items():
        with duckdb.connect() as base, closing(sqlite3.connect(tmp_path / "given.db")) as given:
            rows = [
                json.loads(row)
                for name, row in given.execute("SELECT name, row FROM rows")
                if json.loads(name)[1] == sink
            ]
            told = Counter(tuple(row[name] for name in columns) for row in rows)
            batch = f"{batch_of(tmp_path, sink)[:-1]}) AS batch({every[sink]})"
            wanted = Counter(base.execute(f"SELECT {', '.join(columns)} FROM {batch}").fetchall())
        assert len(rows) > 100
        assert told == wanted, f"{sink}, seed {seed}"
