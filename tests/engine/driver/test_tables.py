"""Joins with tables as of the tick: when a table is read, what a repeated tick meets, where rows end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.ticks import (
    QUERY,
    arriving,
    bag,
    check_account,
    stored_names,
)
from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.parser.case_file import case_job
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick, StartedTick
from watersmeet.runtime.local import LocalJob, sources
from watersmeet.runtime.values import InMemoryTables
from watersmeet.spec.connectors import CONNECTORS
from watersmeet.state.store import MemoryStore

STREAM = {"columns": {"t": "BIGINT", "k": "BIGINT"}, "time": {"t": {"lag": 0}}}
TABLE = {"columns": {"k": "BIGINT", "v": "STRING"}}
LEFT = "SELECT l.t, c.v FROM l LEFT JOIN a FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.k = l.k"


def plan_of(query: str, **options: Any) -> Any:
    case = {"streams": {"l": STREAM, "r": STREAM}, "tables": {"a": TABLE}, "query": query, "options": options}
    return plan_job(case_job(case))


def with_table(rows: Any, *changes: tuple[int, str, int]) -> Any:
    return {**rows, "a": [({"k": k, "v": v}, diff) for k, v, diff in changes]}


def of_files(folder: Path, more: str = "") -> Any:
    """A plan whose table is in files; the stream is given."""
    return plan_job(
        parse_job(f"""
        CREATE TABLE l (t BIGINT, k BIGINT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
        CREATE TABLE a (k BIGINT, v STRING) WITH ('connector' = 'file', 'path' = '{folder}' {more});
        {LEFT}""")
    )


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each read of a table."""
    found: list[int] = []
    for kind in (sources._InMemoryTableReader, sources._FileTableReader):
        read = kind.read
        monkeypatch.setattr(kind, "read", lambda *a, read=read: found.append(1) or read(*a))
    return found


def test_a_table_is_read_when_rows_come_and_it_has_changed(reads):
    job = LocalJob(plan_of(LEFT), MemoryStore())
    for given, expected, count in (
        (with_table({}, (1, "x", 1)), {}, 0),
        (arriving(l=[{"t": 1, "k": 1}, {"t": 1, "k": None}]), {(1, "x"): 1, (1, None): 1}, 1),
        (arriving(l=[{"t": 2, "k": 1}]), {(2, "x"): 1}, 1),
        (with_table(arriving(l=[{"t": 3, "k": 1}]), (1, "x", -1), (1, "y", 2)), {(3, "y"): 2}, 2),
        (with_table(arriving(l=[{"t": 4, "k": None}]), (1, "y", -1)), {(4, None): 1}, 2),
    ):
        output = job.tick(given)
        assert (bag(output), len(reads)) == (expected, count)
        check_account(output)
    assert output.result.queries[QUERY].account["l"] == {
        "in": 5, "matched": 3, "padded": 2, "retained": 0
    }  # fmt: skip
    assert len([name for name in stored_names(job) if name.startswith("runs/q.c-")]) == 1, "the copy alone"


def test_rows_that_find_nothing_are_counted():
    for kind, place in (
        ("", "released_unmatched"),
        ("LEFT SEMI", "released_unmatched"),
        ("LEFT ANTI", "padded"),
    ):
        on = "FOR SYSTEM_TIME AS OF now() AS c ON c.k = l.k"
        job = LocalJob(plan_of(f"SELECT l.t FROM l {kind} JOIN a {on}"), MemoryStore())
        output = job.tick(with_table(arriving(l=[{"t": 1, "k": 1}, {"t": 1, "k": 2}]), (1, "x", 1)))
        account = output.result.queries[QUERY].account["l"]
        assert account == {"in": 2, "matched": 1, place: 1, "retained": 0}


@pytest.mark.parametrize("survives", ["", "work"], ids=["before the rows", "with rows put out"])
def test_a_repeated_tick_meets_the_same_table(survives, monkeypatch, reads):
    """The table changes between a tick that was not committed and its repetition."""
    store, held = MemoryStore(), InMemoryTables()
    job = LocalJob(plan_of(LEFT), store, tables=held, clock_us=0)
    job.tick(with_table(arriving(l=[{"t": 1, "k": 1}]), (1, "x", 1)))

    def raise_interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    phase, step = (ConcludedTick, "commit") if survives else (StartedTick, "advance")
    monkeypatch.setattr(phase, step, raise_interrupt)
    rows = arriving(l=[{"t": 2, "k": 1}, {"t": 2, "k": 2}])
    with pytest.raises(KeyboardInterrupt):
        job.tick(with_table(rows, (1, "x", -1), (1, "y", 1)))
    monkeypatch.undo()
    again = LocalJob(
        plan_of(LEFT), store, tables=held, clock_us=0, partitions=3, drive=partial(TickDriver, repeats=True)
    )
    output = again.tick(with_table(rows, (1, "y", -1), (2, "z", 1)))
    assert bag(output) == ({(2, "y"): 1, (2, None): 1} if survives else {(2, None): 1, (2, "z"): 1})
    assert bag(again.tick(arriving(l=[{"t": 3, "k": 2}]))) == {(3, "z"): 1}, "the tick after it reads anew"


def test_refresh_is_how_often_a_table_is_looked_at(tmp_path, reads):
    """By the ticks' clock; over a restart, too."""
    folder = tmp_path / "table"
    folder.mkdir()

    def write_lookup_file(value: str) -> None:
        pq.write_table(pa.table({"k": [1], "v": [value]}), folder / "one.parquet")

    plan, store = of_files(folder, ", 'refresh' = '10 seconds'"), MemoryStore()
    write_lookup_file("x")
    job = LocalJob(plan, store)
    met = []
    for second, value in ((0, "yy"), (9, "zzz"), (10, None), (19, "wwww"), (25, None)):
        output = job.tick(arriving(l=[{"t": second, "k": 1}]), clock_us=second * 1_000_000)
        met.append(output.rows["console"][0]["v"])
        if value is not None:
            write_lookup_file(value)
        job = LocalJob(plan, store)
    assert met == ["x", "x", "zzz", "zzz", "wwww"]
    assert len(reads) == 3
    write_lookup_file("vvvvv")
    found = job.tick(arriving(l=[{"t": 30, "k": 1}]), clock_us=5_000_000).rows["console"]
    assert (found[0]["v"], len(reads)) == ("vvvvv", 4), "the clock was set back below the last look"
    assert CONNECTORS["jdbc"].refresh_us == 60_000_000, "as the guarantees and EXPLAIN have it"


def test_files_in_all_formats(tmp_path):
    rows = [(1, "x"), (2, None), (3, 'a "b", c')]
    (tmp_path / "t.csv").write_text('k;v\n1;x\n2;\n3;"a ""b"", c"\n')
    (tmp_path / "t.json").write_text(
        '{"k": 1, "v": "x"}\n{"k": 2}\n{"v": "a \\"b\\", c", "k": 3, "more": 1}\n'
    )
    (tmp_path / "other.csv").write_text('V,more,,k\nx,1,2,1\n,1,2,2\n"a ""b"", c",1,2,3\n')
    pq.write_table(pa.table({"v": [v for _, v in rows], "k": [k for k, _ in rows]}), tmp_path / "t.parquet")
    for name, more in (
        ("t.csv", """, 'format' = 'csv', 'sep' = ';', 'escape' = '"'"""),
        ("other.csv", """, 'format' = 'csv', 'escape' = '"'"""),
        ("t.json", ", 'format' = 'json'"),
        ("t.parquet", ""),
    ):
        job = LocalJob(of_files(tmp_path / name, more), MemoryStore())
        found = job.tick(arriving(l=[{"t": k, "k": k} for k, _ in rows])).rows["console"]
        assert {(row["t"], row["v"]) for row in found} == set(rows), name


def test_quotes_that_spark_reads_otherwise_are_refused(tmp_path):
    """Without 'escape' = '"' Spark takes doubled quotes, and those around them, for part of the value."""
    (tmp_path / "t.csv").write_text('k,v\n1,x\n3,"a ""b"", c"\n')
    job = LocalJob(of_files(tmp_path / "t.csv", ", 'format' = 'csv'"), MemoryStore())
    with pytest.raises(EngineError, match="only Spark can read the record 3,") as caught:
        job.tick(arriving(l=[{"t": 1, "k": 1}]))
    assert caught.value.code == "table-unreadable"


def test_files_are_not_there_or_other_ones(tmp_path):
    def problem(more: str = "", path: Path = tmp_path) -> WatersmeetError:
        with pytest.raises(WatersmeetError) as caught:
            LocalJob(of_files(path, more), MemoryStore()).tick(arriving(l=[{"t": 1, "k": 1}]))
        return caught.value

    assert problem(path=tmp_path / "nowhere").code == "path-missing"
    assert problem(", 'format' = 'orc'").code == "unknown-format"
    pq.write_table(pa.table({"k": [1]}), tmp_path / "t.parquet")
    assert problem(path=tmp_path / "t.parquet").code == "table-unreadable"
    too_large = pa.array([2**64 - 1], pa.uint64())
    pq.write_table(pa.table({"k": too_large, "v": ["x"]}), tmp_path / "t.parquet")
    assert problem(path=tmp_path / "t.parquet").code == "table-unreadable"
    assert problem(", 'mergeSchema' = 'true'").code == "unknown-option"


def test_a_row_that_is_not_there_cannot_be_deleted():
    with pytest.raises(
        EngineError, match=r"table \"a\" has no row \(k = 1, v = x\), which the input deletes"
    ):
        LocalJob(plan_of(LEFT), MemoryStore()).tick(with_table({}, (1, "x", -1)))


def test_no_watermark_is_needed(tmp_path):
    """Rows without an event time meet a table as well."""
    plan = plan_job(
        parse_job("""
        CREATE TABLE l (k BIGINT) WITH ('connector' = 'memory');
        CREATE TABLE a (k BIGINT, v STRING) WITH ('connector' = 'memory');
        SELECT l.k, c.v FROM l JOIN a FOR SYSTEM_TIME AS OF PROCTIME() AS c USING (k)
        WHERE c.v > 'a' AND EXISTS (SELECT 1 FROM a FOR SYSTEM_TIME AS OF now() AS d WHERE d.k = l.k + 1)""")
    )
    given = with_table(arriving(l=[{"k": 1}, {"k": 2}]), (1, "x", 1), (2, "y", 1), (1, "a", 1))
    for partitions in (1, 3):
        output = LocalJob(plan, MemoryStore(), partitions=partitions).tick(given)
        assert output.rows["console"] == [{"k": 1, "v": "x"}]


def test_windows_over_rows_that_met_a_table():
    query = """SELECT window_end AS e, v, count(*) AS n FROM TABLE(TUMBLE(DATA => TABLE(
        SELECT l.t, c.v FROM l LEFT JOIN a FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.k = l.k),
        TIMECOL => DESCRIPTOR(t), SIZE => 10)) GROUP BY window_start, window_end, v"""
    job = LocalJob(plan_of(query), MemoryStore(), partitions=2)
    job.tick(with_table(arriving(l=[{"t": 1, "k": 1}, {"t": 2, "k": 2}]), (1, "x", 1)))
    job.tick(with_table(arriving(l=[{"t": 9, "k": 1}, {"t": 3, "k": 1}]), (1, "x", -1), (1, "y", 1)))
    assert bag(job.tick(arriving(l=[{"t": 12, "k": 1}]))) == {
        (10, "x", 1): 1,
        (10, None, 1): 1,
        (10, "y", 2): 1,
    }


def test_changed_query_reads_the_table_again(reads):
    """What is read of a table is no part of the stored state: it may change; what is kept of the stream may
    not."""
    store, held = MemoryStore(), InMemoryTables()
    rows = with_table(arriving(l=[{"t": 1, "k": 1}]), (1, "x", 1))
    LocalJob(plan_of(LEFT), store, tables=held).tick(rows)
    for query in (
        LEFT.replace("c.v", "upper(c.v)"),
        LEFT.replace("c.v", "c.k + 1"),
        LEFT + " AND c.v <> 'x'",
        LEFT.replace("LEFT JOIN", "JOIN").replace("c.k = l.k", "c.k <= l.k"),
    ):
        before = len(reads)
        again = LocalJob(plan_of(query), store, tables=held)
        assert again.tick(arriving(l=[{"t": 2, "k": 1}])).result.tick > 1
        assert len(reads) == before + ("upper" not in query), query
