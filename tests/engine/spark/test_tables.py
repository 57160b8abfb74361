"""Joins with tables as of the tick, on Spark: files that change between ticks, a PostgreSQL server, and what
is refused."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.errors import WatersmeetError
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.files.table_files import digest_listing, list_local_files
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.job.run import JobRun, build_outputs
from watersmeet.runtime.spark.job.settings import RunResult, RunSettings
from watersmeet.runtime.spark.sources.tables import _list_hadoop_files

pytestmark = pytest.mark.spark

ORDERS = """
CREATE TABLE orders (id BIGINT, customer INT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND)
  WITH ('connector' = 'file', 'path' = '{folder}/orders', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'parquet');
"""
JSON_TABLE = """
CREATE TABLE customers (id BIGINT, name STRING, since DATE)
  WITH ('connector' = 'file', 'path' = '{folder}/customers', 'format' = 'json');
"""
INSERT = """
INSERT INTO out SELECT o.id, c.name, c.since FROM orders o
{kind} JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.id = o.customer {more}
"""


class Folder:
    """Orders, a table in files, and what comes out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._orders = 0
        for name in ("orders", "customers"):
            (path / name).mkdir()

    def orders(self, *customers: int | None) -> None:
        """One more file of orders, numbered from 1 on."""
        rows = []
        for customer in customers:
            self._orders += 1
            rows.append(
                {"id": self._orders, "customer": customer, "t": f"2024-01-01T00:00:{self._orders:02d}"}
            )
        self.put("orders", rows, f"{self._orders:04d}.json")
        moment = 1_700_000_000 + self._orders
        os.utime(self.path / "orders" / f"{self._orders:04d}.json", (moment, moment))

    def put(self, folder: str, rows: list[dict[str, Any]], name: str = "rows.json") -> None:
        staged = self.path / name
        staged.write_text("".join(json.dumps(row) + "\n" for row in rows))
        staged.rename(self.path / folder / name)

    def text(self, *parts: str, kind: str = "LEFT", more: str = "") -> str:
        text = "".join(parts).replace("{folder}", str(self.path))
        return text.replace("{kind}", kind).replace("{more}", more)

    def result(self) -> Counter[tuple[Any, ...]]:
        found = duckdb.sql(f"FROM read_parquet('{self.path}/out/*.parquet')").fetchall()
        return Counter(tuple(str(v) if v is not None else None for v in row) for row in found)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def run_changing(spark: Any, text: str, folder: Folder, changes: list[Any]) -> RunResult:
    """The job until it has caught up; after its n-th tick, the n-th change is made."""
    job = parse_job(text)
    plan = plan_job(job)
    left = iter(changes)
    asked = RunSettings(
        str(folder.path / "state"),
        partitions=2,
        until_caught_up=True,
        on_tick=lambda *_: next(left, lambda: None)(),
    )
    outputs = build_outputs(job, plan, asked)
    return JobRun(spark, plan, asked, outputs, Checkpoint(folder.path / "state")).execute()


def test_a_row_meets_the_table_as_of_its_tick(spark, folder):
    """Three ticks; before the second the table grows, before the third a row changes and one goes."""
    ann, bea = {"id": 1, "name": "Ann", "since": "2020-02-29"}, {"id": 2, "name": "Bea"}
    folder.put("customers", [ann])
    for _ in range(3):
        folder.orders(1, 2, None)
    run = run_changing(
        spark,
        folder.text(ORDERS, JSON_TABLE, INSERT),
        folder,
        [
            lambda: folder.put("customers", [bea, {"id": None, "name": "nobody"}], "more.json"),
            lambda: (
                (folder.path / "customers" / "more.json").unlink(),
                folder.put("customers", [ann | {"name": "Anna"}, ann]),
            ),
        ],
    )
    assert run.ticks == 3
    assert folder.result() == Counter(
        {
            ("1", "Ann", "2020-02-29"): 1, ("2", None, None): 1, ("3", None, None): 1,
            ("4", "Ann", "2020-02-29"): 1, ("5", "Bea", None): 1, ("6", None, None): 1,
            ("7", "Ann", "2020-02-29"): 1, ("7", "Anna", "2020-02-29"): 1,
            ("8", None, None): 1, ("9", None, None): 1,
        }
    )  # fmt: skip
    ((name, counts),) = run.last.queries["out"].account.items()
    account = InputAccount.of(name, counts, counts["retained"])
    assert account.adds_up()
    assert (account.rows_in, account.matched, account.padded, account.retained) == (9, 4, 5, 0)


def test_a_later_run_goes_on_with_its_copy(spark, folder, monkeypatch):
    """An unchanged table is not read again, in no tick of no run; a changed one is."""
    reads = []
    from watersmeet.runtime.spark.sources import tables

    read = tables.SparkTable.read
    monkeypatch.setattr(tables.SparkTable, "read", lambda *a: reads.append(1) or read(*a))
    folder.put("customers", [{"id": 1, "name": "Ann"}])
    text = folder.text(ORDERS, JSON_TABLE, INSERT, kind="INNER")
    for expected in (1, 1, 2):
        folder.orders(1, 7)
        folder.orders(1)
        until_caught_up(spark, text, folder.path / "state")
        assert len(reads) == expected
        if expected == 1 and len(folder.result()) == 4:
            folder.put("customers", [{"id": 1, "name": "Ada"}])
    assert [row[1] for row in sorted(folder.result().elements(), key=lambda row: int(row[0]))] == [
        *["Ann"] * 4,
        *["Ada"] * 2,
    ]


def test_in_a_chain_with_types_of_all_kinds(spark, folder):
    """A table in Parquet, seen through a view, between two joins of streams; keys of different types."""
    table = pa.table(
        {
            "ID": pa.array(["1", "2", "3"]),
            "credit": pa.array([None, 2, 3], pa.decimal128(9, 2)),
            "at": pa.array([0, 1, 2], pa.timestamp("us", tz="UTC")),
            "tags": pa.array([["a"], [], None], pa.list_(pa.string())),
            "active": pa.array([True, True, False]),
        }
    )
    pq.write_table(table, folder.path / "customers" / "one.parquet")
    (folder.path / "payments").mkdir()
    folder.orders(1, 2, 3, 2)
    folder.put("payments", [{"order_id": n, "t": "2024-01-01T00:00:09"} for n in (1, 2, 3)])
    text = """
    CREATE TABLE customers (id STRING, credit DECIMAL(9,2), at TIMESTAMP, tags ARRAY<STRING>, active BOOLEAN)
      WITH ('connector' = 'file', 'path' = '{folder}/customers');
    CREATE TABLE payments (order_id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t)
      WITH ('connector' = 'file', 'path' = '{folder}/payments', 'format' = 'json');
    CREATE VIEW c AS SELECT CAST(id AS SMALLINT) AS number, credit * 2 AS twice, at, tags FROM customers
      WHERE active;
    INSERT INTO out SELECT o.id, c.twice, c.at, c.tags, p.order_id AS paid FROM orders o
      LEFT JOIN c FOR SYSTEM_TIME AS OF PROCTIME() ON c.number = o.customer
      LEFT JOIN payments p ON p.order_id = o.id AND p.t BETWEEN o.t AND o.t + INTERVAL '1' MINUTE;
    """
    until_caught_up(spark, folder.text(ORDERS, text), folder.path / "state", finish=True)
    assert folder.result() == Counter(
        {
            ("1", None, "1970-01-01 00:00:00+00:00", "['a']", "1"): 1,
            ("2", "4.00", "1970-01-01 00:00:00.000001+00:00", "[]", "2"): 1,
            ("3", None, None, None, "3"): 1,
            ("4", "4.00", "1970-01-01 00:00:00.000001+00:00", "[]", None): 1,
        }
    )


def test_postgres(spark, folder, postgres):
    """A table of a database, read anew after 'refresh'; the password stays where it is."""
    postgres.run(
        "CREATE TABLE customers (id int PRIMARY KEY, name varchar(20), since date, at timestamp);"
        "INSERT INTO customers VALUES (1, 'Ann', '2020-02-29', '2020-02-29 12:00:00'), (2, 'Bea', NULL, NULL)"
    )
    table = f"""
    CREATE TABLE customers (id BIGINT, name STRING, since DATE, at TIMESTAMP) WITH ('connector' = 'jdbc',
      'url' = '{postgres.jdbc_url}', 'dbtable' = 'customers', 'user' = 'watersmeet',
      'password' = '{postgres.password}', 'refresh' = '{{refresh}}');
    """
    insert = INSERT.replace("c.since", "c.at")
    text = folder.text(ORDERS, table, insert, more="AND c.since > DATE '2020-01-01'")
    folder.orders(1, 2, 3)
    folder.orders(1)
    run_changing(
        spark,
        text.replace("{refresh}", "1 hour"),
        folder,
        [lambda: postgres.run("UPDATE customers SET name = 'Ada' WHERE id = 1")],
    )
    noon = "2020-02-29 12:00:00+00:00"
    first = {("1", "Ann", noon): 1, ("2", None, None): 1, ("3", None, None): 1, ("4", "Ann", noon): 1}
    assert folder.result() == Counter(first)
    folder.orders(1)
    run_changing(spark, text.replace("{refresh}", "1 millisecond"), folder, [])
    assert folder.result() == Counter(first | {("5", "Ada", noon): 1})
    stored = [path for path in (folder.path / "state").rglob("*") if path.is_file()]
    assert stored
    assert not [path for path in stored if postgres.password.encode() in path.read_bytes()]
    job = parse_job(text.replace("{refresh}", "off"))
    plan = plan_job(job)
    assert postgres.password not in f"{job!r} {plan!r}"


def test_a_database_that_is_away_is_waited_for(spark, folder, postgres, caplog):
    postgres.run(
        "CREATE TABLE away (id int, name text, since date); INSERT INTO away VALUES (1, 'Ann', NULL)"
    )
    table = f"""
    CREATE TABLE customers (id BIGINT, name STRING, since DATE) WITH ('connector' = 'jdbc',
      'url' = '{postgres.jdbc_url}', 'dbtable' = 'away', 'user' = 'watersmeet',
      'password' = '{postgres.password}', 'refresh' = '1 millisecond');
    """
    folder.orders(1)
    folder.orders(1)
    said = 'table "customers": the database does not answer'

    def comes_back() -> None:
        for _ in range(600):
            if said in "\n".join(caplog.messages):
                break
            time.sleep(0.1)
        postgres.start()

    started = threading.Thread(target=comes_back)

    def goes() -> None:
        postgres.run("UPDATE away SET name = 'Ada'")
        postgres.stop()
        started.start()

    try:
        run_changing(spark, folder.text(ORDERS, table, INSERT), folder, [goes])
    finally:
        started.join()
    assert folder.result() == Counter({("1", "Ann", None): 1, ("2", "Ada", None): 1})
    assert said in "\n".join(caplog.messages)
    assert postgres.password not in "\n".join(caplog.messages)


def test_postgres_is_not_as_declared(spark, folder, postgres):
    postgres.run("CREATE TABLE places (id int, town text)")
    folder.orders(1)

    def problem(columns: str = "id BIGINT", **options: str) -> str:
        given = {"url": postgres.jdbc_url, "dbtable": "places", "user": "watersmeet"}
        given |= {"password": postgres.password, **options}
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items() if value)
        table = f"CREATE TABLE customers ({columns}) WITH ('connector' = 'jdbc', {listed});\n"
        query = (
            "SELECT o.id FROM orders o JOIN customers FOR SYSTEM_TIME AS OF now() AS c ON c.id = o.customer"
        )
        with pytest.raises(WatersmeetError) as caught:
            until_caught_up(spark, folder.text(ORDERS, table, query), folder.path / "state")
        assert postgres.password not in str(caught.value)
        assert "\tat " not in str(caught.value)
        return str(caught.value)

    assert 'places has no column twon\nHint: did you mean "town"?' in problem("id BIGINT, twon STRING")
    assert 'relation "nowhere" does not exist' in problem(dbtable="nowhere")
    assert "password authentication failed" in problem(password="wrong")
    assert "[jdbc-driver-missing]" in (found := problem(url="jdbc:mysql://127.0.0.1:1/shop?password=x"))
    assert "password=***" in found
    assert "com.mysql:mysql-connector-j" in found
    assert 'needs one of the options "dbtable" and "query"' in problem(query="SELECT 1 AS id")
    assert 'needs the option "url"' in problem(url="")
    assert "the option is called 'user'" in problem(username="x")
    assert "refused" in problem(url="jdbc:postgresql://127.0.0.1:1/postgres")


@pytest.mark.parametrize(
    ("table", "code", "words"),
    [
        ("'path' = '{folder}/nowhere'", "path-missing", "does not exist"),
        ("'format' = 'json'", "missing-option", 'needs the option "path"'),
        ("'path' = '{folder}/customers', 'format' = 'avro'", "unknown-format", '"avro"'),
        ("'path' = '{folder}/customers', 'latestFirst' = 'true'", "unknown-option", "for streams"),
        ("'path' = '{folder}/customers', 'headr' = 'true', 'format' = 'csv'", "unknown-option", '"header"'),
        ("'path' = '{folder}/parquet'", "wrong-columns", 'no column name\nHint: did you mean "nam"?'),
        ("'path' = '{folder}/typed'", "column-type", '"customers": name is declared STRING, but is int64'),
        ("'path' = '{folder}/customers', 'format' = 'json'", "table-unreadable", 'as declared: {"id'),
    ],
)  # fmt: skip
def test_files_are_not_as_declared(spark, folder, table, code, words):
    (folder.path / "parquet").mkdir()
    pq.write_table(
        pa.table({"id": [1], "nam": ["x"], "since": [None]}), folder.path / "parquet" / "p.parquet"
    )
    (folder.path / "typed").mkdir()
    pq.write_table(pa.table({"id": [1], "name": [1], "since": [None]}), folder.path / "typed" / "p.parquet")
    (folder.path / "customers" / "broken.json").write_text('{"id": "one", "name": "Ann"}\n')
    folder.orders(1)
    declared = (
        f"CREATE TABLE customers (id BIGINT, name STRING, since DATE) WITH ('connector' = 'file', {table});"
    )
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, folder.text(ORDERS, declared, INSERT), folder.path / "state")
    assert caught.value.code == code
    assert words in str(caught.value)


def test_a_listing_by_hadoop_sees_what_a_local_one_does(spark, folder):
    folder.put("customers", [{"id": 1}])
    folder.put("customers", [], ".hidden")
    (folder.path / "customers" / "deep").mkdir()
    folder.put("customers/deep", [{"id": 2}], "two.json")
    source = next(iter(parse_job(folder.text(ORDERS, JSON_TABLE, INSERT)).inserts)).query.inputs[1].sources[0]
    path = str(folder.path / "customers")
    local = list_local_files(source, path)
    found = _list_hadoop_files(spark, source, path)
    assert [(name.removeprefix("file:"), size) for name, size, _ in sorted(found)] == [e[:2] for e in local]
    before = digest_listing(_list_hadoop_files(spark, source, path))
    folder.put("customers", [{"id": 1}, {"id": 3}])
    assert digest_listing(_list_hadoop_files(spark, source, path)) != before
