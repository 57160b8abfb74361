"""DataFrames whose records say what changes, joined: against sums of what a dict and a bag hold."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import watersmeet as ws
from tests.engine.spark.running import killed_at_commit

pytestmark = pytest.mark.spark

CUSTOMERS = "id BIGINT, name STRING, what STRING, version BIGINT"
ORDERS = "number BIGINT, customer BIGINT, times INT"


class Shop:
    """Two folders of JSON, a file of each per tick, and what they come to after all of them."""

    def __init__(self, folder: Path, spark: Any, seed: int) -> None:
        self.folder, self.spark, self.draw = folder, spark, random.Random(seed)
        self.customers: dict[int, tuple[int, str | None]] = {}
        self.orders: Counter[tuple[int, int]] = Counter()
        self.broken = 0
        for name in ("customers", "orders"):
            (folder / name).mkdir()

    def add(self) -> None:
        """A tick's records: of customers in no order, some older than what was there, some of one version, of
        which a row counts before a delete and the greatest row, and some unclear."""
        draw = self.draw
        records = [
            {
                "id": draw.randrange(6),
                "name": draw.choice("abc"),
                "what": draw.choice(["put", "put", "gone"]),
                "version": version,
            }
            for version in draw.choices(range(12), k=24)
        ]
        for record in sorted(records, key=lambda r: (r["version"], r["what"] == "put", r["name"])):
            if record["version"] >= self.customers.get(record["id"], (-1, None))[0]:
                name = record["name"] if record["what"] == "put" else None
                self.customers[record["id"]] = record["version"], name
        unclear = [
            {"id": None, "name": "x", "what": "put", "version": 99},
            {"id": 1, "name": "x", "what": "?", "version": 99},
            {"id": 1, "name": "x", "what": "gone"},
        ]
        self.broken += len(unclear)
        draw.shuffle(records)
        self.put("customers", [*records, *unclear])
        changes = []
        for _ in range(12):
            row, times = (draw.randrange(4), draw.randrange(6)), draw.choice([1, 2, -1])
            if self.orders[row] + times >= 0:
                self.orders[row] += times
                changes.append({"number": row[0], "customer": row[1], "times": times})
        self.put("orders", [*changes, {"number": 1, "customer": 1}])
        self.broken += 1

    def put(self, name: str, rows: list[dict[str, Any]]) -> None:
        number = len(list((self.folder / name).iterdir()))
        path = self.folder / name / f"{number}.json"
        path.write_text("\n".join(json.dumps(row) for row in rows))
        os.utime(path, (1_700_000_000 + number,) * 2)

    def frame(self, name: str, schema: str, tasks: int) -> Any:
        """Its rows in another order for another number of tasks."""
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / name)).repartition(tasks)

    def job(self, tasks: int, **settings: Any) -> ws.Job:
        customers = ws.stream(
            self.frame("customers", CUSTOMERS, tasks),
            name="customers", op="what", inserts="put", deletes="gone", key="id", sequence="version",
        )  # fmt: skip
        orders = ws.stream(self.frame("orders", ORDERS, tasks), name="orders", diff="times")
        joined = orders.alias("o").join(customers.alias("c"), on="o.customer = c.id", how="left")
        return ws.job(
            joined.select("o.number", "o.customer", "c.name").to_sink(ws.files(str(self.folder / "out"))),
            checkpoint=str(self.folder / "state"),
            settings=settings,
        )

    def expected(self) -> dict[tuple[Any, ...], int]:
        return {
            (number, customer, self.customers.get(customer, (-1, None))[1]): times
            for (number, customer), times in self.orders.items()
            if times
        }

    def sums(self) -> dict[tuple[Any, ...], int]:
        files = f"'{self.folder}/out/*.parquet'"
        rows = duckdb.sql(
            f"""SELECT number, customer, name, sum(_diff)::INT FROM read_parquet({files})
            GROUP BY ALL HAVING sum(_diff) <> 0"""
        ).fetchall()
        return {row[:3]: row[3] for row in rows}


def test_changes_of_frames_come_to_what_is_there(tmp_path, spark, seed, monkeypatch):
    """A tick that dies when its rows are out is repeated with its rows in another order."""
    print("seed", seed)
    shop = Shop(tmp_path, spark, seed)
    for _ in range(3):
        shop.add()
    with killed_at_commit(monkeypatch, 1):
        job = shop.job(1, until_caught_up=True).start()
        with pytest.raises(ws.EngineError, match="killed"):
            job.await_termination(120)
    again = shop.job(3, until_caught_up=True).start()
    assert again.await_termination(120)
    assert again.account is not None
    assert again.account.adds_up()
    assert shop.sums() == shop.expected(), f"seed {seed}"
    assert sum(one.broken for one in again.account.inputs) == shop.broken


BY_SPARK = """
    SET output_mode = changelog;
    CREATE TABLE counted (value BIGINT, timestamp TIMESTAMP)
      TYPE Spark OPTIONS ('format' = 'rate-micro-batch', 'rowsPerBatch' = '5', 'startTimestamp' = '1000',
        'diff.column' = 'value');
    CREATE TABLE last (value BIGINT, timestamp TIMESTAMP PRIMARY KEY NOT ENFORCED)
      TYPE Spark OPTIONS ('format' = 'rate-micro-batch', 'rowsPerBatch' = '5', 'startTimestamp' = '1000',
        'sequence.by' = 'value');
    CREATE SINK out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'parquet');
    INSERT INTO out SELECT unix_seconds(c.timestamp) AS second, l.value FROM counted c
      JOIN last l ON l.timestamp = c.timestamp"""


def test_changes_of_any_source_of_sparks_are_read_by_a_text(tmp_path, spark):
    """Of numbers from 0 on: how often their time comes, and the last one of their time."""
    settings = {"checkpoint": str(tmp_path / "state"), "until_caught_up": True}
    for _ in range(2):
        ws.run(BY_SPARK.replace("{folder}", str(tmp_path)), settings)
    rows = duckdb.sql(
        f"""SELECT second, value, sum(_diff)::INT FROM read_parquet('{tmp_path}/out/*.parquet')
        GROUP BY ALL HAVING sum(_diff) <> 0 ORDER BY second"""
    ).fetchall()
    assert [row[1:] for row in rows] == [(4, 0 + 1 + 2 + 3 + 4), (9, 5 + 6 + 7 + 8 + 9)]
