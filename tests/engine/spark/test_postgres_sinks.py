"""Whole jobs into tables of PostgreSQL: rows that come, changes, and rows by their keys."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from tests.support.effort import at_effort
from watersmeet.errors import WatersmeetError

pytestmark = pytest.mark.spark

JOB = """
CREATE TABLE c (id BIGINT, name STRING, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/c', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE o (nr BIGINT, c BIGINT, price DOUBLE, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/o', 'format' = 'json', 'diff.column' = 'd');
CREATE SINK rows (nr BIGINT, name STRING, price DOUBLE, PRIMARY KEY (nr) NOT ENFORCED)
    WITH ('connector' = 'postgres', 'url' = '{url}', 'table' = 'shop.{name}_rows');
CREATE SINK changes WITH ('connector' = 'postgres', 'url' = '{url}', 'table' = '{name}_changes');
CREATE SINK counts WITH ('connector' = 'postgres', 'url' = '{url}', 'table' = '{name}_counts');
CREATE SINK nested WITH ('connector' = 'postgres', 'url' = '{url}', 'table' = '{name}_nested');
SET output_mode = changelog;
INSERT INTO rows SELECT o.nr, c.name, o.price FROM o LEFT JOIN c ON o.c = c.id;
INSERT INTO changes SELECT o.nr, c.name FROM o LEFT JOIN c ON o.c = c.id;
INSERT INTO counts SELECT c.id, count(*) AS n FROM o JOIN c ON o.c = c.id GROUP BY c.id;
INSERT INTO nested SELECT o.nr, struct(c.name, array(o.nr)) AS s FROM o JOIN c ON o.c = c.id;
"""


def write(folder: Path, table: str, tick: int, rows: list[dict[str, Any]]) -> None:
    (folder / table).mkdir(exist_ok=True)
    (folder / table / f"{tick}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_tables_hold_the_join_after_every_tick(spark, postgres, tmp_path):
    postgres.run("CREATE SCHEMA IF NOT EXISTS shop")
    staged = postgres.staging()
    text = JOB.format(folder=tmp_path, url=postgres.url, name="joined")
    seed = 20130101
    draw = random.Random(seed)
    customers: dict[int, str] = {}
    orders: dict[int, tuple[int, float]] = {}
    for tick in range(at_effort(quick=2, full=3)):
        changes: dict[str, list[dict[str, Any]]] = {"c": [], "o": []}
        for number in draw.sample(range(6), 4):
            if number in customers:
                changes["c"].append({"id": number, "name": customers.pop(number), "d": -1})
            if draw.random() < 0.7:
                customers[number] = draw.choice(["Ada", 'B"ö\n', "", "Eve"])
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
        until_caught_up(spark, text, tmp_path / "state")
        joined = {nr: (customers.get(c), c) for nr, (c, _) in orders.items()}
        stored = json.loads(postgres.run("SELECT json_agg(json_build_array(nr, name)) FROM shop.joined_rows"))
        assert dict(stored) == {nr: name for nr, (name, _) in joined.items()}, seed
        assert len(stored) == len(joined)
        stored = json.loads(
            postgres.run(
                "SELECT json_agg(r) FROM (SELECT nr, name, sum(_diff) AS n FROM joined_changes"
                " GROUP BY nr, name"
                " HAVING sum(_diff) <> 0) r"
            )
        )
        assert {r["nr"]: r["name"] for r in stored} == {nr: name for nr, (name, _) in joined.items()}
        assert {r["n"] for r in stored} == {1}
        met = [c for c, _ in orders.values() if c in customers]
        stored = json.loads(
            postgres.run(
                "SELECT json_agg(r) FROM (SELECT id, n FROM joined_counts GROUP BY id, n"
                " HAVING sum(_diff) <> 0) r"
            )
        )
        assert {r["id"]: r["n"] for r in stored} == {c: met.count(c) for c in met}
    stored = json.loads(
        postgres.run(
            "SELECT json_agg(r) FROM (SELECT nr, s FROM joined_nested GROUP BY nr, s"
            " HAVING sum(_diff) <> 0) r"
        )
    )
    wanted = {nr: {"name": name, "col2": [nr]} for nr, (name, c) in joined.items() if c in customers}
    assert {row["nr"]: row["s"] for row in stored} == wanted
    assert postgres.staging() <= staged
    text_of_plans = "\n".join(str(path) for path in tmp_path.rglob("*"))
    assert postgres.password not in text_of_plans
    for path in (tmp_path / "state").rglob("*"):
        assert not path.is_file() or postgres.password.encode() not in path.read_bytes(), path


def test_rows_that_come_go_straight_from_tasks_in_many_of_them(spark, postgres, tmp_path):
    """More rows than are worked off in this process."""
    rows = 60_000
    for table in "ab":
        of_table = [{"k": n, "v": f"{table}{n}", "t": "2026-01-01T00:00:00Z"} for n in range(rows)]
        write(tmp_path, table, 0, of_table)
    tables = "\n".join(
        f"CREATE TABLE {name} (k BIGINT, v STRING, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' ="
        f" 'file', 'path' = '{tmp_path}/{name}', 'format' = 'json');"
        for name in "ab"
    )
    text = f"""{tables}
    CREATE SINK out WITH ('connector' = 'postgres', 'url' = '{postgres.url}', 'table' = 'straight');
    INSERT INTO out SELECT a.k, a.v, b.v AS w FROM a JOIN b ON a.k = b.k AND a.t = b.t;
    """
    until_caught_up(spark, text, tmp_path / "state")
    counts = postgres.run(
        "SELECT count(*), count(DISTINCT k), count(*) FILTER (WHERE w = 'b' || k) FROM straight"
    )
    assert counts.strip() == f"{rows}|{rows}|{rows}"
    postgres.run("DROP TABLE straight")
    for table in "ab":
        write(tmp_path, table, 1, [{"k": rows, "v": f"{table}{rows}", "t": "2026-01-01T00:00:00Z"}])
    with pytest.raises(WatersmeetError, match="is not the one that this job wrote to"):
        until_caught_up(spark, text, tmp_path / "state")
    until_caught_up(spark, text, tmp_path / "state", accept_target=["out"])
    assert postgres.run("SELECT k FROM straight").split() == [str(rows)]


def test_a_refused_row_stops_the_job_and_is_named(spark, postgres, tmp_path):
    write(tmp_path, "c", 0, [{"id": 1, "name": "a\0b", "d": 1}])
    write(tmp_path, "o", 0, [{"nr": 5, "c": 1, "price": 1.0, "d": 1}])
    postgres.run("CREATE SCHEMA IF NOT EXISTS shop")
    text = JOB.format(folder=tmp_path, url=postgres.url, name="refused")
    with pytest.raises(WatersmeetError, match=r"NUL character.*nr: 5") as caught:
        until_caught_up(spark, text, tmp_path / "state")
    assert caught.value.code == "sink-refused-row"
    assert postgres.run("SELECT count(*) FROM refused_changes").strip() == "0"
