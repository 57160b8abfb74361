"""``watersmeet state export``: the rows that a job retains, as others read them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import duckdb
import pytest

import watersmeet as package
from tests.cli.test_state_commands import JOB, Ran
from tests.support.case_files import case_files
from tests.support.effort import at_effort
from watersmeet.cli.state_commands import export
from watersmeet.errors import StateError
from watersmeet.parser.case_file import case_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob, replay_case
from watersmeet.state.manifest import load_newest
from watersmeet.state.store import LocalStore
from watersmeet.testing.cases import load_cases

TIMED = """
CREATE TABLE a (k INT, `x y` STRING, t TIMESTAMP, n TIMESTAMP_NTZ, WATERMARK FOR t AS t - INTERVAL '5' SECOND)
  WITH ('connector' = 'file', 'path' = 'in/a');
CREATE TABLE b (k INT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECOND)
  WITH ('connector' = 'file', 'path' = 'in/b');
CREATE TABLE c (k INT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECOND)
  WITH ('connector' = 'file', 'path' = 'in/c');
CREATE TABLE out WITH ('connector' = 'file', 'path' = 'out');
INSERT INTO out SELECT a.k, a.`x y`, a.t, a.n, c.t AS ct FROM a
LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '1' HOUR
LEFT JOIN c ON upper(a.`x y`) = CAST(c.k AS STRING) AND c.t BETWEEN b.t AND b.t + INTERVAL '1' HOUR;
"""


@pytest.fixture
def recorded_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Ran(tmp_path, 5)
    made.run(9)
    return made


def read_export(folder="seen"):
    """Per input its rows, read by DuckDB, and what the index says of the file."""
    told = json.loads(Path(folder, "index.json").read_text())
    read = {}
    for file in told["files"]:
        rows = duckdb.sql(f"SELECT * FROM '{folder}/{file['file']}'")
        read[file["input"]] = (Counter(rows.fetchall()), rows.columns, file)
        assert file["rows"] == len(rows.fetchall())
    return told, read


def test_rows_that_are_retained_are_there_and_no_others(watersmeet, recorded_job):
    said = watersmeet("state", "export", "job.sql", "seen")
    assert (said.status, said.err) == (0, "")
    assert "exported tick 9 to seen" in said.out
    told, read = read_export()
    assert told["tick"] == 9
    rows = {"a": [], "b": []}
    for tick in range(1, 10):
        made = [(n, tick * 20 + n) for n in range(6)]
        rows["a"] += made
        rows["b"] += made[tick % 3 :]
    watermark = 9 * 20 + 5 - 5
    met = [(k, t, any(k == j and t <= u <= t + 50 for j, u in rows["b"])) for k, t in rows["a"]]
    assert read["a"][0] == Counter(row for row in met if row[1] + 50 >= watermark)
    assert {row[:2] for row in read["b"][0]} == {row for row in rows["b"] if row[1] >= watermark}
    kept = json.loads(watersmeet("state", "show", "job.sql", "--json").out)["inputs"]
    least, most = next(side["times"]["t"] for side in kept if side["input"] == "a")
    assert watermark - 50 <= int(least) <= min(row[1] for row in read["a"][0])
    assert int(most) == max(row[1] for row in read["a"][0])
    assert f"out/a: t from {least} to {most}\n" in watersmeet("state", "show", "job.sql").out
    assert read["a"][1] == ["k", "t", "_matched"]
    assert read["a"][2]["columns"] == {"k": "a.k", "t": "a.t"}


def test_times_are_times_and_computed_columns_say_what_they_are(watersmeet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text(TIMED)
    job = LocalJob(package.plan_job(package.parse_job(TIMED)), LocalStore(".watersmeet/job/state"))
    at = "2023-11-14T22:13:20"
    a = [({"k": 1, "x y": "q", "t": at, "n": at}, 1), ({"k": 2, "x y": None, "t": at, "n": None}, 1)]
    job.tick({"a": a, "b": [({"k": 1, "t": at}, 1)], "c": []}, clock_us=1_700_000_000_000_000)
    assert watersmeet("state", "export", "job.sql", "seen").status == 0
    _, read = read_export()
    file = read["a"][2]["file"]
    said = duckdb.sql(
        f"SELECT epoch(t), epoch(n), k, \"x y\", typeof(t), typeof(n) FROM 'seen/{file}'"
    ).fetchall()
    types, epoch = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP"), 1_700_000_000.0
    assert Counter(said) == Counter([(epoch, epoch, 1, "q", *types), (epoch, None, 2, None, *types)])
    assert read["a"][1] == ["k", "x y", "t", "n", "UPPER(`x y`)", "_matched"]
    assert {"a.k", "b.t", "UPPER(`x y`)"} < set(read["#1"][1])


NAMED = """
CREATE TABLE a (k STRING, `_MATCHED` STRING, t BIGINT, WATERMARK FOR t AS t - 5)
  WITH ('connector' = 'file', 'path' = 'in/a');
CREATE TABLE b (k STRING, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'file', 'path' = 'in/b');
CREATE TABLE out WITH ('connector' = 'file', 'path' = 'out');
INSERT INTO out SELECT a.k, a.`_MATCHED`, b.t FROM a
LEFT JOIN b ON a.k || 'X' = b.k AND a.k || 'x' = lower(b.k) AND b.t BETWEEN a.t AND a.t + 10;
"""


def test_no_column_takes_the_place_of_another_one(watersmeet, tmp_path, monkeypatch):
    """Not in DuckDB and Spark either, who tell no cases apart."""
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text(NAMED)
    job = LocalJob(package.plan_job(package.parse_job(NAMED)), LocalStore(".watersmeet/job/state"))
    a = [({"k": k, "_MATCHED": said, "t": 1}, 1) for k, said in (("1", "user's"), ("2", None))]
    job.tick({"a": a, "b": [({"k": "1X", "t": 1}, 1)]}, clock_us=1)
    assert watersmeet("state", "export", "job.sql", "seen").status == 0
    _, read = read_export()
    rows, columns, file = read["a"]
    assert len({column.lower() for column in columns}) == len(columns) == 6
    assert columns[:4] == ["k", "_MATCHED", "t", "k || 'X'"]
    assert rows == Counter([("1", "user's", 1, "1X", "1x", True), ("2", None, 1, "2X", "2x", False)])
    assert (file["matched"], columns[-1]) == ("__matched", "__matched")
    assert set(file["columns"]) == set(columns[:-1])
    assert read["b"][2]["matched"] == "_matched"


def test_a_link_may_say_where_to(watersmeet, recorded_job):
    Path("there").mkdir()
    Path("link").symlink_to("there")
    Path("to-come").symlink_to("not/yet/there")
    for place in ("link", "to-come"):
        assert watersmeet("state", "export", "job.sql", place).status == 0
        assert Path(place).is_symlink()
        assert read_export(place)[0]["tick"] == 9


def test_what_stands_in_the_way(watersmeet, recorded_job):
    Path("full").mkdir()
    Path("full/x").touch()
    Path("a-file").touch()
    for place, words in (("full", "full is not empty"), ("a-file", "a-file is not empty")):
        refused = watersmeet("state", "export", "job.sql", place)
        assert (refused.status, words in refused.err) == (2, True)
    refused = watersmeet("state", "export", ".watersmeet/job", "seen")
    assert (refused.status, "name the job's file" in refused.err) == (2, True)
    refused = watersmeet("state", "export", "job.sql", "/proc/seen")
    assert (refused.status, "cannot be written to /proc/seen" in refused.err) == (2, True)
    refused = watersmeet("state", "export", "job.sql", "x" * 300)
    assert (refused.status, "File name too long" in refused.err) == (2, True)
    Path("job.sql").write_text(JOB.replace("LEFT JOIN", "JOIN"))
    assert watersmeet("state", "export", "job.sql", "empty/in/it").status == 0
    newest = load_newest(recorded_job.checkpoint.store)
    run = next(iter(newest.runs())).run
    file = recorded_job.checkpoint.state / run.name
    content = bytearray(file.read_bytes())
    content[-40] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)
    refused = watersmeet("state", "export", "job.sql", "seen")
    assert (refused.status, "is damaged" in refused.err) == (2, True)
    assert not Path("seen").exists()
    assert [path.name for path in Path().iterdir() if path.name.startswith(".export")] == []


def test_a_job_that_goes_on_is_exported_as_of_one_tick(watersmeet, recorded_job, monkeypatch):
    """Ticks remove what an earlier attempt was about to read."""
    real, gone_on = export.retained_rows, []

    def retained(store, live, *args):
        if len(gone_on) < 3:
            gone_on.append(recorded_job.run(10 + len(gone_on) * 8 + 8))
        return real(store, live, *args)

    monkeypatch.setattr(export, "retained_rows", retained)
    assert watersmeet("state", "export", "job.sql", "seen").status == 0
    assert read_export()[0]["tick"] > 9


@pytest.mark.parametrize("path", case_files())
def test_as_many_rows_as_the_state_says_of_any_kind_of_node(path, tmp_path):
    """In the middle of each case."""
    for number, case in enumerate(load_cases(path)[:: at_effort(quick=6, full=1)]):
        steps = case["steps"][: 1 + len(case["steps"]) * (number % 3) // 3]
        place, folder = tmp_path / f"{number}", tmp_path / f"{number}-seen"
        folder.mkdir()
        try:
            replay_case({**case, "steps": steps}, 2, None, str(place))
        except Exception:  # it is a case of an error
            continue
        manifest = load_newest(LocalStore(place))
        if manifest is None:
            continue
        try:
            plan = plan_job(case_job(case))
            files = export._written(LocalStore(place), manifest, plan, folder)[1]
        except StateError as error:
            raise AssertionError(case["case"]) from error
        kept = {
            (query, input_name): (own.retained, own.stored)
            for query, state in manifest.queries.items()
            for node in state.nodes
            for input_name, own in node.arrangements.items()
        }
        for side, file in zip(export._retained_sides(manifest, plan), files, strict=True):
            if (side.query, side.name) in kept:
                retained, stored = kept[side.query, side.name]
                assert file.rows == (stored if file.partial else retained), (case["case"], file)
