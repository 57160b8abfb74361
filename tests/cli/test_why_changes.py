"""``watersmeet why`` of changing tables over files: the example of the docs, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.columns import column
from tests.support.recorded import OPEN
from tests.support.recorded_files import SALES, FileJob
from watersmeet.cli.main import main
from watersmeet.cli.why.records import as_changes
from watersmeet.names import PARTITION
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.values import to_table
from watersmeet.spec.change_kinds import ChangeColumn, PrimaryKey
from watersmeet.spec.model import Source

CUSTOMERS = [
    [{"id": 1, "segment": "new", "op": "I"}, {"id": 2, "segment": "gold", "op": "I"}],
    [{"id": 1, "segment": "old", "op": "I"}],
    [{"id": 1, "segment": None, "op": "D"}, {"id": 9, "segment": None, "op": "D"}],
]
ORDERS = [
    [{"number": 10, "customer": 1, "d": 1}, {"number": 11, "customer": 3, "d": 1}],
    [{"number": 11, "customer": 3, "d": -1}, {"number": 12, "customer": 2, "d": 2}],
    [{"number": 12, "customer": 2, "d": -1}],
]
DOCS = Path(__file__).parents[2] / "docs" / "internals" / "decisions.md"


@pytest.fixture(scope="module")
def job_folder(tmp_path_factory: Any) -> Path:
    root: Path = tmp_path_factory.mktemp("why")
    (root / "job.sql").write_text(SALES)
    folders = {name: root / name for name in ("customers", "orders")}
    job = FileJob(SALES, Checkpoint(root / ".watersmeet" / "job"), folders)
    with job.run(OPEN):
        for customers, orders in zip(CUSTOMERS, ORDERS, strict=True):
            job.read({"customers": customers, "orders": orders})
    return root


def run_why(root: Path, capsys: Any, monkeypatch: Any, *words: str) -> str:
    monkeypatch.chdir(root)
    assert main(["why", "job.sql", "--input", *words]) == 0
    out: str = capsys.readouterr().out
    return out


def test_the_example_of_the_docs(job_folder: Path, capsys: Any, monkeypatch: Any) -> None:
    out = run_why(job_folder, capsys, monkeypatch, "c")
    shown = DOCS.read_text().partition("sales: c, by ticks 1 to 3\n")[2].partition("```")[0]
    for number in (1, 2, 3):
        shown = shown.replace(f"customers/{number}.json", f"customers/{number - 1:03}.json")
    for fate in shown.strip().split("\n\n"):
        assert fate.strip() in out


def test_diffs_are_those_that_the_records_say(job_folder: Path, capsys: Any, monkeypatch: Any) -> None:
    out = run_why(job_folder, capsys, monkeypatch, "o", "--key", "number=11")
    assert "there from tick 1 until tick 2, in which it was deleted; emitted unmatched, with NULLs" in out
    assert "took away an equal row in tick 2, with 1 row of the output" in out
    assert "(one of 2 equal rows, of 1 after tick 3)" in run_why(
        job_folder, capsys, monkeypatch, "o", "--key", "2"
    )
    assert 'met {"c": null} in tick 3' in run_why(job_folder, capsys, monkeypatch, "o", "--key", "1")


NESTED = SALES.replace(
    "id BIGINT PRIMARY KEY NOT ENFORCED, segment STRING, op STRING",
    "m STRUCT<id: BIGINT, op: STRING, at: INT>, segment STRING, id AS m.id, op AS m.op, at AS m.at,"
    " PRIMARY KEY (id) NOT ENFORCED",
).replace("'op.column' = 'op'", "'op.column' = 'op', 'sequence.by' = 'at'")
NESTED = NESTED.replace("customer BIGINT, d INT", "customer BIGINT, m STRUCT<d: INT, id: INT>, d AS m.d")


def test_keys_and_what_changes_may_be_computed(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    def customer(id: int | None, segment: str, op: str, at: int) -> dict[str, Any]:
        return {"m": {"id": id, "op": op, "at": at}, "segment": segment}

    (tmp_path / "job.sql").write_text(NESTED)
    folders = {name: tmp_path / name for name in ("customers", "orders")}
    job = FileJob(NESTED, Checkpoint(tmp_path / ".watersmeet" / "job"), folders)
    order = {"number": 10, "customer": 1, "m": {"d": 1, "id": 1}}
    first = [customer(1, "new", "I", 2), customer(1, "old", "I", 1), customer(2, "b", "I", 1)]
    with job.run(OPEN):
        job.read({"customers": first, "orders": [order]})
        job.read({"customers": [customer(2, "c", "D", 3)], "orders": [{**order, "m": {"d": -1, "id": 1}}]})
    out = run_why(tmp_path, capsys, monkeypatch, "c", "--key", "id=1")
    assert "there since tick 1; joined with o (number 10, " in out
    assert "dropped in tick 1: an older change than one that its key has had" in out
    out = run_why(tmp_path, capsys, monkeypatch, "c", "--key", "id=2")
    assert "there from tick 1 until tick 2, in which it was deleted" in out
    assert "took (m {'id': 2, 'op': 'I', 'at': 1}, segment b) away in tick 2" in out
    out = run_why(tmp_path, capsys, monkeypatch, "o", "--key", "number=10")
    assert "there from tick 1 until tick 2, in which it was deleted; joined with c" in out
    assert "took away an equal row in tick 2" in out


def test_records_that_do_not_say_what_they_change_are_broken() -> None:
    op = ChangeColumn("op", ("I",), ("D",))
    columns = [column(name, kind) for name, kind in {"op": "STRING", "id": "INT", "at": "INT"}.items()]

    def decode_changes(rows: list[dict[str, Any]], source: Source) -> list[Any]:
        """Per record its diff, and what it tells of its row; None: it is broken."""
        changes, says = as_changes(source, to_table(source.columns, rows, [1] * len(rows)), "UTC")
        told = changes.drop_columns([PARTITION]).to_pylist()
        return [tuple(row.values()) if is_so else None for row, is_so in zip(told, says, strict=True)]

    by_word = Source("s", tuple(columns[:1]), "file", change_column=op)
    words: list[dict[str, Any]] = [{"op": word} for word in ("I", "D", "X", None)]
    assert decode_changes(words, by_word) == [("I", 1), ("D", -1), None, None]
    columns.append(column("v", "STRING"))
    keyed = Source("s", tuple(columns), "file", change_column=op, primary_key=PrimaryKey(("id",), "at"))
    rows: list[dict[str, Any]] = [
        {"op": "I", "id": 1, "at": 5, "v": "x"},
        {"op": "I", "id": 1, "at": None, "v": "x"},
        {"op": "D", "id": 1, "at": None, "v": "x"},
        {"op": "D", "id": None, "at": 5, "v": "x"},
    ]
    assert decode_changes(rows, keyed) == [("I", 1, 5, "x", 1), None, ("D", 1, None, None, -1), None]
    plain = Source("s", (column("d", "INT"),), "file", change_column=ChangeColumn("d"))
    assert decode_changes([{"d": d} for d in (3, -2, 0, None)], plain) == [(3, 3), (-2, -2), (0, 0), None]
