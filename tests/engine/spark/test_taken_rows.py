"""Queries over the same three tables on Spark, of which one makes the rows that others take, and keeps the
tables for one that joins them otherwise: results are those of the tables, counted here in plain Python."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.state.manifest import load_newest

pytestmark = pytest.mark.spark

TEXT = """
SET output_mode = changelog;
CREATE TABLE customers (id BIGINT PRIMARY KEY NOT ENFORCED, segment STRING, op STRING)
  WITH ('connector' = 'file', 'path' = '{0}/customers', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE orders (number BIGINT, customer BIGINT, d INT)
  WITH ('connector' = 'file', 'path' = '{0}/orders', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE lines (number BIGINT, price BIGINT, d INT)
  WITH ('connector' = 'file', 'path' = '{0}/lines', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE names WITH ('connector' = 'file', 'path' = '{0}/names', 'format' = 'json');
CREATE TABLE sums WITH ('connector' = 'file', 'path' = '{0}/sums', 'format' = 'parquet');
CREATE TABLE priced WITH ('connector' = 'file', 'path' = '{0}/priced', 'format' = 'json');
CREATE TABLE keyed WITH ('connector' = 'file', 'path' = '{0}/keyed', 'format' = 'json');
INSERT INTO names SELECT c.segment, l.price FROM customers c
  JOIN orders o ON o.customer = c.id JOIN lines l ON l.number = o.number;
INSERT INTO sums SELECT x.segment, sum(z.price * 2) AS total FROM customers x
  JOIN orders y ON y.customer = x.id JOIN lines z ON z.number = y.number GROUP BY x.segment;
INSERT INTO priced SELECT a.number, b.price
  FROM orders a JOIN lines b ON b.number = a.number;
INSERT INTO keyed SELECT k.id, k.segment FROM customers k WHERE k.segment <> 'b';
"""

FIRST = {
    "customers": [{"id": n, "segment": "ab"[n % 2], "op": "I"} for n in range(6)],
    "orders": [{"number": n, "customer": n % 6 if n else None, "d": 1} for n in range(12)],
    "lines": [{"number": n % 12, "price": n, "d": 1} for n in range(40)],
}
SECOND = {
    "customers": [{"id": 0, "segment": "b", "op": "I"}, {"id": 1, "segment": None, "op": "D"}],
    "orders": [{"number": 3, "customer": 3, "d": -1}, {"number": 20, "customer": 2, "d": 1}],
    "lines": [{"number": 20, "price": 100, "d": 2}, {"number": 0, "price": 0, "d": -1}],
}


def write_next_file(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    place = folder / name
    place.mkdir(exist_ok=True)
    number = len(list(place.iterdir()))
    staged = folder / "staged.json"
    staged.write_text("".join(json.dumps(row) + "\n" for row in rows))
    staged.rename(place / f"{number}.json")


def sums_of(spark: Any, folder: Path, name: str) -> Counter[tuple[Any, ...]]:
    rows = spark.read.format("parquet" if name == "sums" else "json").load(f"{folder}/{name}/*").collect()
    sums: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        values = row.asDict()
        diff = values.pop("_diff")
        values.pop("_tick")
        sums[tuple(values[column] for column in sorted(values))] += diff
    return Counter({values: diff for values, diff in sums.items() if diff})


def compute_expected_results(*parts: dict[str, list[dict[str, Any]]]) -> dict[str, Counter[tuple[Any, ...]]]:
    segments: dict[int, str] = {}
    orders: Counter[tuple[int, int | None]] = Counter()
    lines: Counter[tuple[int, int]] = Counter()
    for part in parts:
        for row in part["customers"]:
            segments.pop(row["id"], None)
            if row["op"] == "I":
                segments[row["id"]] = row["segment"]
        for row in part["orders"]:
            orders[row["number"], row["customer"]] += row["d"]
        for row in part["lines"]:
            lines[row["number"], row["price"]] += row["d"]
    names: Counter[tuple[Any, ...]] = Counter()
    priced: Counter[tuple[Any, ...]] = Counter()
    totals: Counter[str] = Counter()
    for (number, customer), times in orders.items():
        for (of_order, price), more in lines.items():
            priced[number, price] += times * more * (number == of_order)
            if number == of_order and customer in segments and times * more:
                names[price, segments[customer]] += times * more
                totals[segments[customer]] += 2 * price * times * more
    keyed = Counter((n, segment) for n, segment in segments.items() if segment != "b")
    priced = Counter({row: times for row, times in priced.items() if times})
    return {
        "names": names,
        "sums": Counter(dict.fromkeys(totals.items(), 1)),
        "keyed": keyed,
        "priced": priced,
    }


@pytest.mark.full
def test_queries_of_which_one_makes_and_keeps_the_rows(spark, tmp_path):
    text, checkpoint = TEXT.format(tmp_path), tmp_path / "checkpoint"
    for parts in ((FIRST,), (FIRST, SECOND)):
        for name, rows in parts[-1].items():
            write_next_file(tmp_path, name, rows)
        until_caught_up(spark, text, checkpoint)
        for name, rows in compute_expected_results(*parts).items():
            assert sums_of(spark, tmp_path, name) == rows, name
    manifest = load_newest(Checkpoint(checkpoint).store)
    assert manifest is not None
    kept = {name: [bool(node.elsewhere) for node in query.nodes] for name, query in manifest.queries.items()}
    assert kept["sums"] == [True, True, True, True, False]
    assert kept["keyed"] == [True]
    assert not any(kept["names"])
    arrangements = manifest.queries["priced"].nodes[0]
    assert set(arrangements.kept_by) == {"a", "b"}
    assert not any(own.runs for own in arrangements.arrangements.values())
