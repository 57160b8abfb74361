"""The command over the state of a job that was run in this process: reasons, exit status, files that were
changed or are gone, outputs in files of text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.recorded import OPEN
from tests.support.recorded_files import FileJob
from watersmeet.cli.diff import source_rows
from watersmeet.cli.main import main
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.checkpoint.spark_positions import NOTHING_READ, OFFSETS
from watersmeet.spec.model import Source
from watersmeet.state.store import MemoryStore

JOB = """
CREATE TABLE o (id BIGINT, at TIMESTAMP, note STRING, WATERMARK FOR at AS at - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'in/o', 'format' = 'json');
CREATE TABLE d (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'in/d', 'format' = 'json');
CREATE SINK out WITH ('connector' = 'file', 'path' = 'out', 'format' = '{form}');
INSERT INTO out SELECT o.id, o.at, o.note, d.at AS came FROM o LEFT JOIN d
  ON d.id = o.id AND d.at BETWEEN o.at AND o.at + INTERVAL '1' HOUR;
"""
NOTE = 'a "b", c'
TICKS = [
    {"o": [[1, "10:00", NOTE], [2, "10:01", ""]], "d": [[1, "10:30"]]},
    {"o": [[3, "14:00", None]], "d": [[9, "14:00"]]},
    {"o": [[4, "14:01", "x"]], "d": [[2, "10:02"]]},
]
Compared = Callable[..., tuple[int, dict[str, Any]]]


def run_file_job(root: Path, form: str, ahead: list[list[Any]] | None = None) -> None:
    """The job after its ticks: the delivery of order 2 came too late, and its pad is put out.

    Args:
        ahead: orders of the year 9022, which the first tick has besides.
    """
    text = JOB.format(form=form)
    (root / "job.sql").write_text(text)
    job = FileJob(text, Checkpoint(root / ".watersmeet" / "job"), {name: root / "in" / name for name in "od"})
    with job.run(OPEN):
        for tick in TICKS:
            rows = {
                name: [
                    dict(zip(("id", "at", "note"), [n, f"2022-03-01 {at}:00", *more], strict=False))
                    for n, at, *more in given
                ]
                for name, given in tick.items()
            }
            for n, at, note in ahead or []:
                rows["o"].append({"id": n, "at": f"9022-03-01 {at}:00", "note": note})
            ahead = None
            job.read(rows)


@pytest.fixture
def diff_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Compared:
    monkeypatch.chdir(tmp_path)

    def compare(*more: str) -> tuple[int, dict[str, Any]]:
        status = main(["diff", "job.sql", "--json", *more])
        printed = capsys.readouterr()
        return status, json.loads(printed.out) if printed.out else {"error": printed.err}

    return compare


def part(root: Path, tick: int, form: str, lines: list[str]) -> None:
    (root / "out" / "_ticks" / f"out-{tick:012}").mkdir(parents=True)
    (root / "out" / f"out-{tick:012}-00000.{form}").write_text("".join(f"{line}\n" for line in lines))


def reasons(found: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(of["side"], of["reason"]): of["rows"] for of in found["differences"]}


JSON = [
    json.dumps({"id": 1, "at": "2022-03-01T10:00:00.000000Z", "note": NOTE, "came": "2022-03-01T10:30:00Z"}),
    json.dumps({"id": 2, "at": "2022-03-01T10:01:00.000000Z", "note": "", "came": None}),
]
CSV = [
    "id,at,note,came",
    '1,2022-03-01T10:00:00.000000Z,"a \\"b\\", c",2022-03-01T10:30:00.000000Z',
    '2,2022-03-01T10:01:00.000000Z,"",',
]


@pytest.mark.parametrize(("form", "lines"), [("json", JSON), ("csv", CSV)])
def test_parts_of_text_late_rows_and_strict(
    tmp_path: Path, diff_command: Compared, form: str, lines: list[str]
) -> None:
    run_file_job(tmp_path, form)
    part(tmp_path, 2, form, lines)
    part(tmp_path, 4, form, lines)  # of a tick that the state does not know
    expected = {("missing", "late"): 1, ("extra", "late"): 1, ("missing", "not yet due"): 2}
    status, found = diff_command()
    assert (status, reasons(found), found["engine"]) == (0, expected, "duckdb"), found
    assert (found["late"], found["output_rows"], found["batch_rows"]) == ({"d": 1}, 2, 4)
    assert diff_command("--strict")[0] == 1

    told = {tuple(row["row"][:1]): row["row"][2] for row in found["rows"]}
    assert told == {(2,): "", (3,): None, (4,): "x"}, "a text without signs is no NULL"
    (tmp_path / f"out/out-{2:012}-00000.{form}").write_text("\n".join(lines[:-1]) + "\n")
    status, found = diff_command()
    assert (status, reasons(found)) == (0, {("missing", "late"): 1, ("missing", "not yet due"): 2})
    (tmp_path / f"out/out-{2:012}-00000.{form}").write_text("\n".join([*lines[:-2], lines[-1]]) + "\n")
    status, found = diff_command("--limit", "0")
    assert (status, found["rows"]) == (1, []), "the first row is lost"


def test_rows_ahead_of_the_clock_are_in_neither(tmp_path: Path, diff_command: Compared) -> None:
    ahead = [[5, "10:00", "far"], [6, "10:01", "farther"]]
    run_file_job(tmp_path, "json", ahead)
    part(tmp_path, 2, "json", JSON)
    status, found = diff_command()
    assert (status, found["batch_rows"]) == (0, 4), found
    assert not [row for row in found["rows"] if row["row"][0] in (5, 6)]


def test_strict_lets_pass_what_is_equal(tmp_path: Path, diff_command: Compared) -> None:
    run_file_job(tmp_path, "json")
    rows = [
        {"id": 1, "at": "2022-03-01T10:00:00Z", "note": NOTE, "came": "2022-03-01T10:30:00Z"},
        {"id": 2, "at": "2022-03-01T10:01:00Z", "note": "", "came": "2022-03-01T10:02:00Z"},
        {"id": 3, "at": "2022-03-01T14:00:00Z", "note": None, "came": None},
        {"id": 4, "at": "2022-03-01T14:01:00Z", "note": "x", "came": None},
    ]
    (tmp_path / "all.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    status, found = diff_command("--strict", "--output", "out=all.json")
    assert (status, found["equal"]) == (0, True), found


def test_changed_and_deleted_files_are_reported(tmp_path: Path, diff_command: Compared) -> None:
    run_file_job(tmp_path, "json")
    part(tmp_path, 2, "json", JSON)
    first = tmp_path / "in/o/000.json"
    first.write_text(first.read_text().replace("10:01:00", "10:01:30"))
    os.utime(first, ns=(1, 1))
    status, found = diff_command()
    assert status == 1
    expected = {("missing", "not yet due"): 2, ("missing", "late"): 1, ("extra", "changed file"): 1}
    assert reasons(found) == expected, found
    assert found["notes"] == [f"o: 1 file was changed since it was read: {first}"]
    first.unlink()
    status, found = diff_command()
    assert (status, reasons(found)["extra", "changed file"]) == (1, 2), found
    assert found["notes"] == [f"o: 1 file is gone since it was read: {first}"]


def test_a_changed_file_explains_nothing_of_queries_that_do_not_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row lost from ``first`` was told as of the changed file of ``c``, which only ``second`` reads."""
    monkeypatch.chdir(tmp_path)
    table = """CREATE TABLE {0} (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '10' SECONDS)
      WITH ('connector' = 'file', 'path' = 'in/{0}', 'format' = 'json');"""
    query = """CREATE SINK {0} WITH ('connector' = 'file', 'path' = '{0}', 'format' = 'json');
      INSERT INTO {0} SELECT {1}.id, {2}.at FROM {1} JOIN {2}
        ON {1}.id = {2}.id AND {2}.at BETWEEN {1}.at AND {1}.at + INTERVAL '1' HOUR;"""
    queries = (query.format(*names) for names in (("first", "a", "b"), ("second", "b", "c")))
    text = "\n".join([*map(table.format, "abc"), *queries])
    (tmp_path / "job.sql").write_text(text)
    job = FileJob(
        text, Checkpoint(tmp_path / ".watersmeet/job"), {name: tmp_path / "in" / name for name in "abc"}
    )
    with job.run(OPEN):
        job.read({name: [{"id": 1, "at": "2022-03-01 10:00:00"}] for name in "abc"})
    changed = next((tmp_path / "in/c").iterdir())
    changed.write_text(changed.read_text() * 2)
    assert main(["diff", "job.sql", "--json"]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert [of["reason"] for of in first["differences"]] == ["unexplained"]
    assert [of["reason"] for of in second["differences"]] == ["changed file"]
    assert (first["notes"], len(second["notes"])) == ([], 1)


def test_unreadable_outputs_and_changed_plans_are_rejected(tmp_path: Path, diff_command: Compared) -> None:
    run_file_job(tmp_path, "json")
    part(tmp_path, 2, "json", ['{"id": "none", "at": "2022-03-01T10:00:00Z"}'])
    status, found = diff_command()
    assert (status, 'what "out" has written cannot be read' in found["error"]) == (2, True), found
    (tmp_path / "rows.csv").write_text("id,at,note\nx,y,z\n")
    assert diff_command("--output", "out=rows.csv")[0] == 2
    (tmp_path / "rows.parquet").write_text("none")
    assert diff_command("--output", "out=rows.parquet")[0] == 2
    (tmp_path / "job.sql").write_text(JOB.format(form="json").replace("'1' HOUR", "'2' HOUR"))
    status, found = diff_command()
    assert (status, "plan-changed" in found["error"]) == (2, True), found


def test_rows_of_a_state_that_went_on_are_of_a_later_tick(tmp_path: Path) -> None:
    from watersmeet.cli.diff.command import _has_later_rows
    from watersmeet.cli.diff.outputs import EmittedRows

    assert _has_later_rows(EmittedRows("x", True), 3, lambda: 4)
    assert not _has_later_rows(EmittedRows("x", True), 3, lambda: 3)
    assert not _has_later_rows(EmittedRows("x", False), 3, lambda: 4)
    assert _has_later_rows(EmittedRows("x", True, True), 3, lambda: 3)


def test_of_a_topic_of_which_nothing_was_read_there_are_no_ends():
    source = Source("s", (), "kafka", {"topic": "t"})
    manifest: Any = SimpleNamespace(host={OFFSETS: f"v1\n{{}}\n{NOTHING_READ}"})
    assert source_rows._read_recorded_files(source, 0, manifest, [], MemoryStore()).ends == {}
    manifest.host[OFFSETS] = 'v1\n{}\n{"t": {"0": 3}}'
    assert source_rows._read_recorded_files(source, 0, manifest, [], MemoryStore()).ends == {"t": {"0": 3}}
