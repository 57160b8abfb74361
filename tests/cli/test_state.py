"""``watersmeet state``: what a job keeps, and who shares it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import watersmeet as package
from watersmeet.runtime.local import LocalJob
from watersmeet.state.manifest import load_newest
from watersmeet.state.store import LocalStore

DECLARED = "".join(
    f"CREATE TABLE {name} (k INT, t BIGINT, WATERMARK FOR t AS t - 5)"
    f" WITH ('connector' = 'file', 'path' = 'in/{name}', 'format' = 'json');\n"
    for name in "ab"
) + "".join(
    f"CREATE TABLE {name} WITH ('connector' = 'file', 'path' = 'out/{name}', 'format' = 'json');\n"
    for name in ("first", "second", "third")
)


def insert(name: str, kind: str = "JOIN") -> str:
    on = "ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 50"
    return f"INSERT INTO {name} SELECT a.k, b.t FROM a {kind} b {on};\n"


OTHER = "INSERT INTO third SELECT x.k FROM a x JOIN b y ON x.t = y.t AND x.k < y.k;\n"


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """The job's text and its state, after two ticks."""
    text = DECLARED + insert("first") + insert("second", "LEFT JOIN") + OTHER
    (tmp_path / "job.sql").write_text(text)
    job = LocalJob(
        package.plan_job(package.parse_job(text)), LocalStore(tmp_path / ".watersmeet" / "job" / "state")
    )
    for tick in range(2):
        rows = [({"k": n, "t": tick * 10 + n}, 1) for n in range(4)]
        job.tick({"a": rows, "b": rows[: 3 - tick]})
    return tmp_path


def test_rows_and_files_and_who_has_them(watersmeet, job_folder, monkeypatch):
    monkeypatch.chdir(job_folder)
    told = json.loads(watersmeet("state", "show", "job.sql", "--json").out)
    manifest = load_newest(LocalStore(".watersmeet/job/state"))
    assert manifest is not None
    assert (told["tick"], told["finished"], told["differences"]) == (2, False, [])
    sides = {(side["query"], side["input"]): side for side in told["inputs"]}
    assert {name: side["rows"] for name, side in sides.items()} == {
        (query, alias): manifest.queries[query].nodes[0].arrangements[alias].stored
        for query, alias in [
            ("first", "a"),
            ("first", "b"),
            ("second", "a"),
            ("second", "b"),
            *[("third", n) for n in "xy"],
        ]
    }
    assert sides["first", "a"]["shared_with"] == ["second/a"]
    assert sides["second", "a"]["shared_bytes"] == sides["first", "a"]["bytes"] > 0
    assert sides["third", "x"]["shared_with"] == []
    assert sides["third", "x"]["shared_bytes"] == 0
    runs = {live.run.name: live.run.nbytes for live in manifest.runs()}
    assert (told["files"], told["bytes"]) == (len(runs), sum(runs.values()))
    assert told["bytes"] < sum(side["bytes"] for side in told["inputs"])
    shown = watersmeet("state", "show", "job.sql", "--checkpoint", ".watersmeet/job")
    assert (shown.status, shown.err) == (0, "")
    assert "as of tick 2 (" in shown.out
    assert "first/a shares its rows with second/a\n" in shown.out
    assert "each counted once" in shown.out


def test_what_differs_from_the_text(watersmeet, job_folder, monkeypatch):
    monkeypatch.chdir(job_folder)
    text = DECLARED.replace("CREATE TABLE a", "CREATE TABLE c", 1).replace("in/a", "in/c")
    text += "INSERT INTO first SELECT b.k FROM b JOIN c ON b.k = c.k AND c.t BETWEEN b.t AND b.t + 1;\n"
    text += insert("second", "LEFT JOIN").replace(" a ", " b x ").replace("a.", "x.").replace("third", "x")
    Path("job.sql").write_text(text)
    told = json.loads(watersmeet("state", "show", "job.sql", "--json").out)
    first, *others = told["differences"]
    assert first == (
        'query "first" is changed: it would start without state (its inputs were a of a, b of b, now'
        " they are b of b, c of c; the join of a and b is now that of b and c; the join of a and b was"
        " ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 50, now it is ON b.k = c.k AND c.t BETWEEN b.t AND"
        " b.t + 1; rows are stored by a.k = b.k, and cannot be looked up by other keys)"
    )
    assert [text.split(" (")[0] for text in others] == [
        'query "second" is changed: it would start without state',
        'query "third" is removed: its state would be deleted',
        'source "a" is no longer read',
        'source "c" is new to the job: the job reads it as a new job would',
    ]
    assert "the job's text differs from that of the state" in watersmeet("state", "show", "job.sql").out


def test_how_a_query_differs_and_what_would_come_of_that(watersmeet, job_folder, monkeypatch):
    """Before it is run so, an operator asks from when on its results would be complete."""
    monkeypatch.chdir(job_folder)
    text = Path("job.sql").read_text()
    wider = text.replace("a.t + 50;", "a.t + 60;").replace("x.k < y.k", "x.k < y.k AND x.k > 1")
    Path("job.sql").write_text(wider)
    anew, *goes_on = json.loads(watersmeet("state", "show", "job.sql", "--json").out)["differences"]
    assert anew.startswith('query "third" is changed: it would start without state (')
    for name, text in zip(("first", "second"), goes_on, strict=True):
        assert text.startswith(f'query "{name}" is changed: it would keep its state (the join of a and b')
        assert "a.t + 60" in text
        assert "; complete are its results with a.t >= " in text


CHANGES = """
SET output_mode = changelog;
CREATE TABLE x (k INT, d INT)
  WITH ('connector' = 'file', 'path' = 'in/x', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE z (k INT PRIMARY KEY NOT ENFORCED, g STRING)
  WITH ('connector' = 'file', 'path' = 'in/z', 'format' = 'json');
CREATE TABLE rows WITH ('connector' = 'file', 'path' = 'out/rows', 'format' = 'json');
CREATE TABLE sums WITH ('connector' = 'file', 'path' = 'out/sums', 'format' = 'json');
INSERT INTO rows SELECT x.k, z.g FROM x JOIN z ON x.k = z.k;
INSERT INTO sums SELECT b.g, count(*) AS c FROM x a JOIN z b ON a.k = b.k GROUP BY b.g;
"""


def test_rows_that_one_query_keeps_for_another(watersmeet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text(CHANGES)
    plan = package.plan_job(package.parse_job(CHANGES))
    job = LocalJob(plan, LocalStore(".watersmeet/job/state"))
    job.tick(
        {"x": [({"k": n, "d": 1}, 1) for n in range(5)], "z": [({"k": n, "g": "a"}, 1) for n in range(3)]}
    )
    told = json.loads(watersmeet("state", "show", "job.sql", "--json").out)
    sides = {(side["query"], side["input"]): side for side in told["inputs"]}
    assert {name: side["rows"] for name, side in sides.items()} == {
        ("rows", "x"): 5, ("rows", "z"): 3, ("rows", "z.z"): 3, ("sums", "a with b"): 1,
    }  # fmt: skip
    assert sides["rows", "x"]["shared_with"] == ["sums/a"]
    assert sides["rows", "z.z"]["shared_with"] == ["sums/b.z"]
    shown = watersmeet("explain", "job.sql", "--checkpoint", ".watersmeet/job")
    assert shown.status == 0, shown.err


def test_no_state_is_an_error(watersmeet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text(DECLARED + insert("first"))
    refused = watersmeet("state", "show", "job.sql")
    assert refused.status == 2
    assert "has not committed a tick" in refused.err
