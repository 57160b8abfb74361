"""Conditions over ARRAYs, MAPs and STRUCTs of both sides: computed by tasks or asked of Spark, the rows are
those of Spark's own batch join."""

from __future__ import annotations

import random
from collections import Counter
from functools import reduce

import pytest

from tests.engine.spark.test_conditions import play, write_file
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

COLUMNS = (
    "id INT, k INT, t TIMESTAMP, s STRING, tags ARRAY<STRING>, n ARRAY<INT>, m MAP<STRING, INT>,"
    " r STRUCT<a: INT, B: ARRAY<INT>, `x y`: STRING>, ts ARRAY<TIMESTAMP>, lr ARRAY<STRUCT<a: INT, d: DATE>>"
)
SOURCES = """
SET time_zone = 'America/New_York';
CREATE MAPPING ra ({columns}) TYPE File OPTIONS ('path' = '{path}/ra', 'format' = 'json');
CREATE MAPPING rb ({columns}) TYPE File OPTIONS ('path' = '{path}/rb', 'format' = 'json');
CREATE VIEW a AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE ra, DESCRIPTOR(t), INTERVAL '400' DAY));
CREATE VIEW b AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE rb, DESCRIPTOR(t), INTERVAL '400' DAY));
"""
NEAR = "b.t BETWEEN a.t - INTERVAL '20' HOUR AND a.t + INTERVAL '20' HOUR"
IN_TASKS = [
    "arrays_overlap(a.tags, b.tags) AND size(array_intersect(a.n, b.n)) < 2",
    "array_contains(a.n, b.k) OR a.m['x'] > b.m['y'] OR a.r.B[0] = b.k",
    "(a.n < b.n OR a.r <=> b.r) AND a.lr.d <> b.lr.d",
]
ASKED = [
    "exists(a.n, k -> k = b.k) AND NOT exists(a.ts, e -> hour(e) = hour(b.t))",
    "a.lr.d <> b.lr.d OR element_at(map_filter(a.m, (k, v) -> v > b.k), 'x') = 1",
    "array_contains(a.tags, b.s) AND size(sentences(a.s)) <= size(sentences(b.tags[0]))",
    "map_keys(a.m) <> map_keys(b.m) AND size(sentences(concat(a.r.`x y`, b.tags[0]))) < 3"
    " AND a.lr.a <> b.lr.a",
]


def rows(rng: random.Random, first: int, count: int) -> list[dict]:
    texts, numbers = ["p", "q", "é", "", None], [0, 1, 2, None]
    moments = ["2024-03-10T06:30:00Z", "2024-03-10T07:30:00Z", None]

    def some(values: list, least: int = 0) -> list | None:
        found = [rng.choice(values) for _ in range(rng.randrange(least, 4))]
        return found if least or rng.random() < 0.9 else None

    return [
        {
            "id": n,
            "k": rng.choice(numbers),
            "t": f"2024-03-10T{rng.randrange(24):02}:{rng.randrange(60):02}:00Z",
            "s": rng.choice(texts),
            "tags": some(texts, 1),
            "n": some(numbers),
            "m": rng.choice([{"x": 1, "y": 0}, {"y": None}, {}, {"x": 2}, None]),
            "r": rng.choice([{"a": 1, "B": some(numbers, 1), "x y": rng.choice(texts)}, None]),
            "ts": some(moments),
            "lr": some([{"a": 1, "d": "2024-03-10"}, {"a": None, "d": None}, None]),
        }
        for n in range(first, first + count)
    ]


def odd(conditions: list[str]) -> str:
    """Whether an odd number of them is TRUE."""
    return reduce(lambda found, text: f"({found}) <> (({text}) <=> TRUE)", conditions, "FALSE")


def test_rows_are_those_of_the_batch_join(spark, tmp_path, seed):
    rng = random.Random(seed)
    for name, first in (("ra", 0), ("rb", 1000)):
        write_file(tmp_path / name, 0, rows(rng, first, 60))
    guard = f"{NEAR} AND size(b.tags) > 0 AND get(a.r.B, 0) IS NOT NULL"
    queries = {
        name: f"SELECT a.id, b.id AS other, a.n, b.m, a.r FROM a LEFT JOIN b ON {guard} AND ({odd(texts)})"
        for name, texts in (("tasks", IN_TASKS), ("asked", ASKED))
    }
    MemorySink.clear()
    sinks = "".join(f"CREATE MAPPING {name} TYPE Memory;" for name in queries)
    inserts = "".join(f"INSERT INTO {name} {query};" for name, query in queries.items())
    sources = SOURCES.format(path=tmp_path, columns=COLUMNS)
    plan = play(spark, sources + sinks + inserts, tmp_path / "checkpoint")
    exact = {query.name for query in plan.queries if query.root.residual_exact is not None}
    assert exact == {"tasks"}
    for name in ("a", "b"):
        spark.read.schema(COLUMNS).json(str(tmp_path / f"r{name}")).createOrReplaceTempView(name)
    different = {}
    for name, query in queries.items():
        expected = Counter(repr(row.asDict(recursive=True)) for row in spark.sql(query).collect())
        found = Counter(repr(dict(row)) for row in MemorySink.rows(name))
        assert len({row["other"] for row in MemorySink.rows(name)}) > 5, name
        if found != expected:
            different[name] = (
                list((expected - found).elements())[:2],
                list((found - expected).elements())[:2],
            )
    assert different == {}
