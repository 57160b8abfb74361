"""``watersmeet diff`` of changing tables: their final contents in DuckDB against the changes that the job put
out, summed; and what is refused because it cannot be decided."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.changing_fates import keyed_case
from tests.support.effort import at_effort
from tests.support.recorded import OPEN
from tests.support.recorded_files import SALES, FileJob
from watersmeet.cli.diff.replay import tick_dependence
from watersmeet.cli.diff.source_rows import WholeTables, collect_source_files
from watersmeet.cli.job_file import job_in
from watersmeet.cli.main import main
from watersmeet.diff.bags import (
    COUNT,
    Differences,
    differences,
    fetch_rows,
    open_database,
    quote_identifier,
)
from watersmeet.diff.duckdb_sql import DuckDb
from watersmeet.diff.explanations import QueryFacts
from watersmeet.diff.statement import AT, column_name, statement
from watersmeet.diff.table_contents import FILE, POSITION, fold_changes
from watersmeet.errors import SpecError
from watersmeet.parser.case_file import case_job
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.replay import _parse_step
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.values import to_table
from watersmeet.spec.change_kinds import ChangeColumn
from watersmeet.spec.model import Column, Job, with_inputs
from watersmeet.state.store import MemoryStore
from watersmeet.types.sql_type import BIGINT

CASES = at_effort(quick=8, full=40)

CUSTOMERS = [
    [{"id": 1, "segment": "new", "op": "I"}, {"id": 2, "segment": "gold", "op": "I"}],
    [{"id": 1, "segment": "old", "op": "I"}, {"id": 2, "segment": None, "op": "D"}],
]
ORDERS = [
    [{"number": 10, "customer": 1, "d": 1}, {"number": 11, "customer": 2, "d": 2}],
    [{"number": 11, "customer": 2, "d": -1}],
]


class _Job(FileJob):
    """``tables``: what a query has put out in each tick."""

    def __init__(self, root: Path, text: str, query: str) -> None:
        folders = {name: root / name for name in ("customers", "orders")}
        super().__init__(text, Checkpoint(root / ".watersmeet" / "job"), folders)
        self.tables: list[pa.Table] = []
        tick = self.job.tick

        def tick_and_record(*given: Any, **named: Any) -> Any:
            output = tick(*given, **named)
            self.tables.append(output.tables[query])
            return output

        self.job.tick = tick_and_record  # type: ignore[method-assign]


def run_job(
    root: Path, customers: Any = CUSTOMERS, orders: Any = ORDERS, text: str = SALES, query: str = "sales"
) -> pa.Table:
    (root / "job.sql").write_text(text)
    job = _Job(root, text, query)
    with job.run(OPEN):
        for of_customers, of_orders in zip(customers, orders, strict=True):
            job.read({"customers": of_customers, "orders": of_orders})
    return pa.concat_tables(job.tables)


def run_diff(root: Path, capsys: Any, put_out: pa.Table, *words: str) -> tuple[int, dict[str, Any], str]:
    parquet.write_table(put_out, root / "put_out.parquet")
    status = main(["diff", "job.sql", "--output", "sales=put_out.parquet", "--json", *words])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out else {}, err


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_diff_sums_the_emitted_changes(place: Path, capsys: Any) -> None:
    put_out = run_job(place)
    status, line, _ = run_diff(place, capsys, put_out)
    assert (status, line["equal"], line["batch_rows"], line["engine"]) == (0, True, 2, "duckdb")
    lost = put_out.filter(pa.compute.not_equal(put_out.column("_tick"), 2))
    status, line, _ = run_diff(place, capsys, lost)
    assert status == 1
    found = {(row["side"], row["count"], *row["row"]) for row in line["rows"]}
    assert found == {
        ("extra", 2, "gold", 11),
        ("extra", 1, "new", 10),
        ("missing", 1, None, 11),
        ("missing", 1, "old", 10),
    }


def test_what_cannot_be_decided_is_refused(place: Path, capsys: Any) -> None:
    put_out = run_job(place, orders=[ORDERS[0], [{"number": 77, "customer": 2, "d": -1}]])
    status, _, err = run_diff(place, capsys, put_out)
    assert status == 2
    assert 'the rows of "orders" cannot be determined: rows of it (1) were deleted more often' in " ".join(
        err.split()
    )
    status, _, err = run_diff(place, capsys, put_out, "--input", "orders=orders")
    assert status == 2
    assert "the order of changes is not known" in " ".join(err.split())


COMPUTED = SALES.replace(
    "id BIGINT PRIMARY KEY NOT ENFORCED, segment STRING, op STRING",
    "number BIGINT, segment STRING, is STRING, m STRUCT<id: BIGINT>, id AS number + 1,"
    " op AS CASE WHEN is = 'gone' THEN 'D' ELSE 'I' END, PRIMARY KEY (id) NOT ENFORCED",
)


@pytest.mark.parametrize("key", ["number + 1", "m.id"])
def test_keys_and_what_changes_may_be_computed(place: Path, capsys: Any, key: str) -> None:
    customers = [
        [
            {
                "number": own["id"] - 1,
                "segment": own["segment"],
                "is": "gone" if own["op"] == "D" else "",
                "m": {"id": own["id"]},
            }
            for own in rows
        ]
        for rows in CUSTOMERS
    ]
    put_out = run_job(place, customers, text=COMPUTED.replace("number + 1", key))
    status, line, err = run_diff(place, capsys, put_out)
    if key == "m.id":
        assert status == 2
        assert "not-compared" in err
    else:
        assert (status, line["equal"], line["batch_rows"], line["engine"]) == (0, True, 2, "duckdb")


def test_texts_of_which_it_is_computed_what_changes_are_looked_at(place: Path) -> None:
    """As in a run: a record with a text that is longer than its VARCHAR(n) is broken."""
    job = SALES.replace("op STRING", "is VARCHAR(1), op AS left(is, 1)")
    (place / "rows.json").touch()
    named = {"customers": "rows.json", "orders": "rows.json"}
    read = collect_source_files(
        plan_job(parse_job(job)), None, MemoryStore(), named, lambda: pytest.fail("no state")
    )
    assert read["customers"].asked == {"id", "segment", "is"}


def test_rows_without_what_says_that_they_come_are_not_compared(place: Path, capsys: Any) -> None:
    text = SALES.replace("customer BIGINT, d INT", "customer BIGINT, n INT, d AS n * 2")
    orders = [[{"number": 10, "customer": 1, "n": 1}], []]
    status, _, err = run_diff(place, capsys, run_job(place, orders=orders, text=text))
    assert status == 2
    assert "not-compared" in err


@pytest.mark.parametrize(
    "relation",
    ["s JOIN s z ON s.k = z.k AND s.t = z.t JOIN p ON p.k = s.k", "c JOIN c z ON c.k = z.k AND c.t = z.t"],
)
def test_stream_joined_with_changes_requires_a_replay_of_ticks(relation: str) -> None:
    text = """
    CREATE TABLE s (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 1) WITH ('connector' = 'memory');
    CREATE TABLE c (t BIGINT, k BIGINT, d INT, WATERMARK FOR t AS t - 1)
      WITH ('connector' = 'file', 'path' = 'c', 'format' = 'json', 'diff.column' = 'd');
    CREATE TABLE p (k BIGINT, d INT)
      WITH ('connector' = 'file', 'path' = 'p', 'format' = 'json', 'diff.column' = 'd');
    """
    alias = relation.split()[0]
    job = job_in(f"{text} SELECT {alias}.k FROM {relation} EMIT CHANGES;", "job.sql", {}, None)
    why = tick_dependence(job.inserts[0], WholeTables(plan_job(job), None, pytest.fail))
    assert why is not None
    assert f'"{alias}" is a stream' in why


AS_OF = """
CREATE TABLE s (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 1)
  WITH ('connector' = 'file', 'path' = 's', 'format' = 'json');
CREATE TABLE names (k BIGINT, name STRING) WITH ('connector' = 'file', 'path' = 'names', 'format' = 'json');
CREATE TABLE named WITH ('connector' = 'file', 'path' = 'named', 'format' = 'json');
CREATE TABLE plain WITH ('connector' = 'file', 'path' = 'plain', 'format' = 'json');
INSERT INTO named SELECT s.k, n.name FROM s JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS n ON n.k = s.k;
INSERT INTO plain SELECT s.k FROM s WHERE s.k > 1;
"""


def test_the_queries_that_can_be_decided_are_compared(place: Path, capsys: Any) -> None:
    (place / "job.sql").write_text(AS_OF)
    for folder in ("s", "names"):
        (place / folder).mkdir()
    (place / "s" / "1.json").write_text('{"t": 1, "k": 1}\n{"t": 2, "k": 2}\n')
    (place / "names" / "1.json").write_text('{"k": 1, "name": "a"}\n')
    parquet.write_table(pa.table({"k": pa.array([2], pa.int64())}), place / "out.parquet")
    words = ["diff", "job.sql", "--json", "--input", "s=s", "--output", "plain=out.parquet"]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (json.loads(out)["query"], json.loads(out)["equal"]) == ("plain", True)
    assert '"named": "names" is a table that the job reads again in each tick: what it held' in " ".join(
        err.split()
    )


NAMED = """
CREATE SINK segments WITH ('connector' = 'memory');
INSERT INTO segments SELECT c.segment FROM customers c EMIT CHANGES;
"""


@pytest.mark.parametrize("why", ["has many rows", "were deleted more often"])
def test_what_is_wrong_with_a_table_is_nothing_to_queries_without_it(
    place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    orders = ORDERS
    if why == "has many rows":
        monkeypatch.setattr("watersmeet.cli.diff.duckdb_rows.MAX_RECORDS", 4)
    else:
        orders = [ORDERS[0], [{"number": 77, "customer": 2, "d": -1}]]
    tables, inserted = SALES.split("CREATE SINK", 1)
    both = "".join([tables, NAMED, "CREATE SINK", inserted] if why == "has many rows" else [SALES, NAMED])
    put_out = run_job(place, orders=orders, text=both, query="segments")
    parquet.write_table(put_out, place / "put_out.parquet")
    assert main(["diff", "job.sql", "--output", "segments=put_out.parquet", "--json"]) == 2
    out, err = capsys.readouterr()
    assert (json.loads(out)["query"], json.loads(out)["equal"]) == ("segments", True)
    assert why in " ".join(err.split())


# random tables


def with_diffs(job: Job) -> Job:
    """The job over records that say in a column what becomes of their rows, as files have them."""

    def source(own: Any) -> Any:
        return replace(
            own, columns=(*own.columns, Column("diff", BIGINT)), change_column=ChangeColumn("diff")
        )

    def add_diff_column(own: Any) -> Any:
        return replace(own, branches=tuple(replace(b, source=source(b.source)) for b in own.branches))

    (insert,) = job.inserts
    query = replace(insert.query, relation=with_inputs(insert.query.relation, add_diff_column))
    return replace(job, inserts=(replace(insert, query=query),))


def in_files(
    records: list[tuple[dict[str, Any], int, int]], rng: random.Random
) -> tuple[list[int], list[int]]:
    """Records, in their order, in files of which a tick reads several: the file of each, and of each file
    where it stands in the order."""
    files, places, last = [], list[int](), None
    for *_, at in records:
        if last != at or rng.random() < 0.4:
            places.append(len(places))
        files.append(len(places))
        last = at
    numbers = rng.sample(range(1, len(places) + 1), len(places))
    order = [places[numbers.index(number)] for number in range(1, len(places) + 1)]
    return [numbers[file - 1] for file in files], order


def compare_case(
    case: dict[str, Any], *, lose: bool = False, backwards: bool = False
) -> Differences | SpecError:
    """The error where it cannot be decided; ``lose``: without what the last tick put out; ``backwards``: as
    if files had counted the other way round."""
    rng = random.Random(case["case"])
    job = case_job(case)
    plan = plan_job(job)
    local = LocalJob(plan, MemoryStore())
    records: dict[str, list[tuple[dict[str, Any], int, int]]] = {s.name: [] for s in plan.sources}
    tables = []
    for number, step in enumerate(case["steps"]):
        given = _parse_step(plan, step, 0)
        tables.append(local.tick(given.rows, clock_us=0).tables["q"])
        for name, rows in given.rows.items():
            records[name] += [(dict(row), diff, number) for row, diff in rows]
    local.close()
    put_out = pa.concat_tables(tables[:-1] if lose else tables)
    db = open_database("/tmp")
    try:
        folded = {}
        for source in {
            s.name: s for i in with_diffs(job).inserts[0].query.inputs for s in i.sources
        }.values():
            own = records[source.name]
            table = to_table(source.columns, [{**row, "diff": diff} for row, diff, _ in own], [1] * len(own))
            table = table.select([column.name for column in source.columns])
            files, order = in_files(own, rng)
            order = [-rank for rank in order] if backwards else order
            for name, values in ((AT, [at for *_, at in own]), (FILE, files)):
                table = table.append_column(name, pa.array(values, pa.int64()))
            db.register("given", table.append_column(POSITION, pa.array(range(len(own)), pa.int64())))
            fetch_rows(db, "CREATE OR REPLACE TABLE records AS SELECT * FROM given")
            folded[source.name] = quote_identifier(f"t{source.name}")
            fold_changes(db, source, "records", folded[source.name], [order])
        sql = statement(job.inserts[0].query, DuckDb(folded), QueryFacts(settled=True))
        fetch_rows(db, f"CREATE OR REPLACE TABLE answer AS {sql}")
        names = [output.name for output in job.inserts[0].query.outputs]
        diffs = put_out.column("_diff")
        shown = put_out.select(names).rename_columns([column_name(n) for n in range(len(names))])
        db.register("output", shown.append_column(COUNT, diffs))
        return differences(db, names, "answer", "output", [], whole=None, limit=100)
    except SpecError as error:
        return error
    finally:
        db.close()


def test_final_contents_of_random_tables_are_what_the_job_came_to(seed: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + CASES):
        case = keyed_case(number)
        same = compare_case(case)
        if isinstance(same, SpecError):
            seen["more often" if "more often" in same.message else "newer"] += 1
            continue
        assert same.equal, (number, same, case)
        seen["equal"] += 1
        less = compare_case(case, lose=True)
        seen["lost"] += isinstance(less, Differences) and not less.equal
        other = compare_case(case, backwards=True)
        seen["in order"] += isinstance(other, Differences) and not other.equal
    kinds = ("more often", "newer", "lost", "in order")
    assert sum(seen[what] > 0 for what in kinds) >= at_effort(quick=2, full=len(kinds)), seen
    assert seen["equal"] > CASES // 3, seen
