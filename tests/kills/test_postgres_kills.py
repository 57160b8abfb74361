"""Ticks into a table of PostgreSQL, killed at every step, the server restarted: each comes once."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from tests.kills.jobs import JOB, LAG_S, Growing, Process, batch_of
from tests.kills.postgres_ticks import KINDS, POINTS, rows_of_tick
from tests.support.forked import run_forked
from tests.support.postgres import Postgres
from tests.support.tables import new_pipeline, tables_at
from watersmeet.state.manifest import load_newest

ROOT = Path(__file__).resolve().parents[2]
TICKS_EACH = 2

pytestmark = pytest.mark.kill


def run(kind: str, folder: Path, url: str, last: int, point: str = "none", tick: int = 0) -> tuple[int, str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    told = ["-m", "tests.kills.postgres_ticks", kind, folder, url, str(last), point, str(tick)]
    return run_forked(told, 120, cwd=ROOT, env=environment)


def build_expected_rows(kind: str, last: int) -> Counter[str]:
    rows = [row for tick in range(1, last + 1) for row in rows_of_tick(kind, tick)]
    if kind == "upsert":
        left: dict[int, str] = {}
        for key, text, gone in rows:
            left.pop(key, None)
            if not gone:
                left[key] = text
        rows = [*left.items()]
    return Counter("|".join("" if value is None else str(value) for value in row) for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_point(kind, tmp_path, postgres):
    staged = postgres.staging()
    restarts = itertools.cycle([None, "fast", None, "crash"])
    tick = 0
    for point in POINTS:
        tick += TICKS_EACH
        while not rows_of_tick(kind, tick):  # nothing of it would be staged
            tick += 1
        code, errors = run(kind, tmp_path, postgres.url, tick + 1, point, tick)
        assert code == -signal.SIGKILL, f"{point}: {errors}"
        restart = next(restarts)
        if restart is not None:
            postgres.stop(crash=restart == "crash")
            postgres.start()
        stored = Counter(postgres.run(f"SELECT * FROM killed_{kind}").splitlines())
        is_out = point in ("answered", "published")
        assert stored == build_expected_rows(kind, tick if is_out else tick - 1), f"{kind}, killed at {point}"
    last = tick + 3
    code, errors = run(kind, tmp_path, postgres.url, last)
    assert code == 0, errors
    assert Counter(postgres.run(f"SELECT * FROM killed_{kind}").splitlines()) == build_expected_rows(
        kind, last
    )
    assert postgres.staging() <= staged


@pytest.mark.full
@pytest.mark.spark
def test_whole_jobs_killed_between_their_sinks(seed, tmp_path, postgres):
    """Two joins into a table each, killed between staging, the one's transaction, the other's, and the state;
    the server crashes in between."""
    (tmp_path / "job.sql").write_text(job_into_tables(tmp_path, postgres.url, "jobs"))
    files = 8
    Growing(tmp_path, seed, files).add(files)
    to_the_end, runs = ("--until-caught-up", "--finish"), []
    try:
        for point in (("staged", 2), ("half-published", 3), ("published", 5), ("end-half-published", 0)):
            runs.append(run := Process(tmp_path, *to_the_end, kill_at=point))
            assert run.await_end() == -signal.SIGKILL, f"{point}: {run.errors.read_text()}"
            assert postgres.password not in run.errors.read_text()
            if point[0] == "published":
                postgres.stop(crash=True)
                postgres.start()
        runs.append(last := Process(tmp_path, *to_the_end))
        assert last.await_end() == 0, last.errors.read_text()
    finally:
        for run in runs:
            run.clean_up()
    check_tables(tmp_path, postgres, "jobs", seed)


@pytest.mark.full
@pytest.mark.spark
def test_whole_jobs_killed_in_the_middle_of_a_joint_commit(seed, tmp_path, postgres):
    """Rows, state and offsets of one transaction, killed before its COMMIT, and behind one that nobody was
    told of; the server crashes in between. Each time all of it is there, or nothing."""
    pipeline = new_pipeline()
    text = job_into_tables(tmp_path, postgres.url, "joint").replace("SET progress_output = ticks;", "")
    store_url = f"{postgres.url}?pipeline={pipeline}"
    (tmp_path / "job.sql").write_text(f"SET state_store = '{store_url}';\n{text}")
    Growing(tmp_path, seed, 6).add(6)
    to_the_end, runs = ("--until-caught-up", "--finish"), []
    ended = "SELECT coalesce(max(tick), 0) FROM _watersmeet_ticks WHERE target ~ '^joint_'"
    try:
        for point, tick in (("joint-moved", 2), ("joint-answered", 3), ("end-joint-moved", 0)):
            runs.append(run := Process(tmp_path, *to_the_end, kill_at=(point, tick)))
            assert run.await_end() == -signal.SIGKILL, f"{point}: {run.errors.read_text()}"
            assert postgres.password not in run.errors.read_text()
            if point == "joint-answered":
                postgres.stop(crash=True)
                postgres.start()
            newest = load_newest(tables_at(postgres.url, pipeline))
            with_rows = {part.tick for part in newest.parts.values()}
            shown = int(postgres.run(ended))
            assert shown == max(with_rows, default=0), point
            if tick:
                assert newest.tick == (tick if point == "joint-answered" else tick - 1)
        runs.append(last := Process(tmp_path, *to_the_end))
        assert last.await_end() == 0, last.errors.read_text()
    finally:
        for run in runs:
            run.clean_up()
    check_tables(tmp_path, postgres, "joint", seed)


def job_into_tables(folder: Path, url: str, prefix: str) -> str:
    """The job with a table for each of its two joins."""
    text = JOB.format(folder=folder, lag=LAG_S)
    for sink in ("joined", "chain"):
        text = text.replace(
            f"CREATE MAPPING {sink} TYPE File OPTIONS ('path' = '{folder}/out/{sink}');",
            f"CREATE SINK {sink} WITH ('connector' = 'postgres', 'url' = '{url}', 'table' ="
            f" '{prefix}_{sink}');",
        )
    return text


def check_tables(folder: Path, postgres: Postgres, prefix: str, seed: int) -> None:
    """They have the rows of the joins, each once."""
    columns = {"joined": "a_id, a_k, b_id, b_k", "chain": "a_id, b_id, c_id"}
    for sink, names in columns.items():
        told = postgres.run(f"SELECT concat_ws(',', {_texts(names)}) FROM {prefix}_{sink}").splitlines()
        with duckdb.connect() as base:
            batch = f"{batch_of(folder, sink)[:-1]}) AS batch({_all_names(sink)})"
            rows = base.execute(f"SELECT concat_ws(',', {_texts(names)}) FROM {batch}").fetchall()
        assert len(rows) > 100
        assert Counter(told) == Counter(text for (text,) in rows), f"{sink}, seed {seed}"


def _texts(names: str) -> str:
    return ", ".join(f"coalesce(CAST({name} AS VARCHAR), 'NULL')" for name in names.split(", "))


def _all_names(sink: str) -> str:
    return "a_id, a_k, a_v, a_t, b_id, b_k, b_v, b_t" if sink == "joined" else "a_id, b_id, c_id"
