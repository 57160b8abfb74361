"""Whole jobs into tables of Delta and Iceberg: rows that come, changes, rows by keys; and a repeated tick."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from tests.engine.spark.test_postgres_sinks import write
from tests.support.effort import at_effort
from watersmeet.state.commits import Commits

pytestmark = pytest.mark.spark

SOURCES = """
CREATE TABLE c (id BIGINT, name STRING, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/c', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE o (nr BIGINT, c BIGINT, price DOUBLE, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/o', 'format' = 'json', 'diff.column' = 'd');
"""
QUERIES = """
SET output_mode = changelog;
INSERT INTO rows SELECT o.nr, c.name, o.price FROM o LEFT JOIN c ON o.c = c.id;
INSERT INTO changes SELECT o.nr, upper(c.name) AS name FROM o LEFT JOIN c ON o.c = c.id;
INSERT INTO more SELECT o.nr, c.name FROM o JOIN c ON o.c = c.id WHERE o.price > 1.9;
"""


class Delta:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sink(self, table: str) -> str:
        return f"'connector' = 'delta', 'path' = '{self.folder}/lake/{table}'"

    def rows(self, table: str) -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        return DeltaTable(f"{self.folder}/lake/{table}").to_pyarrow_table().to_pylist()


class Iceberg:
    def __init__(self, folder: Path) -> None:
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/lake",
        }

    def sink(self, table: str) -> str:
        options = ", ".join(f"'catalog.{name}' = '{value}'" for name, value in self.catalog.items())
        return f"'connector' = 'iceberg', {options}, 'table' = 'shop.{table}'"

    def rows(self, table: str) -> list[dict[str, Any]]:
        from pyiceberg.catalog import load_catalog

        found = load_catalog("default", **self.catalog).load_table(f"shop.{table}")
        return found.scan().to_arrow().to_pylist()


@pytest.fixture(params=[Delta, Iceberg], ids=["delta", "iceberg"])
def lake(request, tmp_path):
    return request.param(tmp_path)


def sum_changes(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    sums: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        sums[row["nr"], row["name"]] += row["_diff"]
    return Counter({row: count for row, count in sums.items() if count})


def test_tables_hold_the_join_after_every_tick(spark, seed, lake, tmp_path, monkeypatch):
    """The second tick dies after its sinks were published, and is repeated."""
    sinks = "CREATE SINK rows (nr BIGINT, name STRING, price DOUBLE, PRIMARY KEY (nr) NOT ENFORCED)"
    sinks += f" WITH ({lake.sink('rows')});"
    sinks += "".join(f"CREATE SINK {name} WITH ({lake.sink(name)});" for name in ("changes", "more"))
    text = SOURCES.format(folder=tmp_path) + sinks + QUERIES
    draw = random.Random(seed)
    customers: dict[int, str] = {}
    orders: dict[int, tuple[int, float]] = {}
    for tick in range(at_effort(quick=2, full=3)):
        changes: dict[str, list[dict[str, Any]]] = {"c": [], "o": []}
        for number in draw.sample(range(6), 4):
            if number in customers:
                changes["c"].append({"id": number, "name": customers.pop(number), "d": -1})
            if draw.random() < 0.7:
                customers[number] = draw.choice(["ADA", 'B"Ö\n', "", "EVE"])
                changes["c"].append({"id": number, "name": customers[number], "d": 1})
        for nr in draw.sample(range(30), 12):
            if nr in orders:
                was = orders.pop(nr)
                changes["o"].append({"nr": nr, "c": was[0], "price": was[1], "d": -1})
            if draw.random() < 0.7:
                orders[nr] = (draw.randrange(6), draw.choice([1.5, -0.0, 2.25]))
                changes["o"].append({"nr": nr, "c": orders[nr][0], "price": orders[nr][1], "d": 1})
        for table, rows in changes.items():
            write(tmp_path, table, tick, rows)
        if tick == 1:
            with monkeypatch.context() as patch:
                patch.setattr(Commits, "commit", _dies)
                with pytest.raises(Exception, match="power went"):
                    until_caught_up(spark, text, tmp_path / "state")
        until_caught_up(spark, text, tmp_path / "state")
        joined = {nr: customers.get(c) for nr, (c, _) in orders.items()}
        stored = lake.rows("rows")
        assert {row["nr"]: (row["name"], row["price"]) for row in stored} == {
            nr: (joined[nr], price) for nr, (_, price) in orders.items()
        }, seed
        assert len(stored) == len(joined)
        assert sum_changes(lake.rows("changes")) == Counter(joined.items())
        dear = {(nr, customers[c]) for nr, (c, price) in orders.items() if c in customers and price > 1.9}
        assert sum_changes(lake.rows("more")) == Counter(dear)


def _dies(*_: Any) -> None:
    raise OSError("power went")


def test_rows_that_come_go_straight_from_tasks_in_many_of_them(spark, lake, tmp_path):
    """More rows than are worked off in this process; and as many through Spark's own projection."""
    rows = at_effort(quick=20_000, full=60_000)
    for table in "ab":
        of_table = [{"k": n, "v": f"{table}{n}", "t": "2026-01-01T00:00:00Z"} for n in range(rows)]
        write(tmp_path, table, 0, of_table)
    tables = "\n".join(
        f"CREATE TABLE {name} (k BIGINT, v STRING, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' ="
        f" 'file', 'path' = '{tmp_path}/{name}', 'format' = 'json');"
        for name in "ab"
    )
    text = f"""{tables}
    CREATE SINK straight WITH ({lake.sink("straight")});
    CREATE SINK computed WITH ({lake.sink("computed")});
    INSERT INTO straight SELECT a.k, a.t, b.v AS w FROM a JOIN b ON a.k = b.k AND a.t = b.t;
    INSERT INTO computed SELECT a.k, a.t, reverse(b.v) AS w, array(a.k) AS l
      FROM a JOIN b ON a.k = b.k AND a.t = b.t;
    """
    until_caught_up(spark, text, tmp_path / "state")
    straight, computed = lake.rows("straight"), lake.rows("computed")
    assert Counter((row["k"], row["w"]) for row in straight) == Counter((n, f"b{n}") for n in range(rows))
    assert Counter((row["k"], row["w"], *row["l"]) for row in computed) == Counter(
        (n, f"b{n}"[::-1], n) for n in range(rows)
    )
    assert {row["t"].isoformat() for row in straight + computed} == {"2026-01-01T00:00:00+00:00"}
