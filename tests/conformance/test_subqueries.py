"""Views and sub-queries that join: each tick's rows are the flat query's, and all of them DuckDB's."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from tests.support.duckdb_batch import connect_duckdb, fill
from tests.support.effort import at_effort
from watersmeet.runtime.local import replay_case

STREAMS = ("a", "b", "c", "e")
COLUMNS = ("t", "k", "v", "id")
AB = "SELECT a.t AS t, a.k AS k, a.v AS v, b.t AS bt, b.v AS bv, a.id AS i, b.id AS j FROM a JOIN b"
NEAR = "ON a.k = b.k AND b.t BETWEEN a.t - 3 AND a.t + 3"

FLAT = {
    "preserved": (
        f"WITH ab AS ({AB} {NEAR} WHERE b.v > 0) "
        "SELECT ab.i, j, c.id AS c FROM ab LEFT JOIN c ON c.k = ab.k AND c.t BETWEEN ab.bt AND ab.bt + 5",
        "SELECT a.id AS i, b.id AS j, c.id AS c "
        f"FROM a JOIN b {NEAR} AND b.v > 0 LEFT JOIN c ON c.k = a.k AND c.t BETWEEN b.t AND b.t + 5",
    ),
    "null-supplying": (
        f"SELECT c.id AS c, x.i, x.j FROM c LEFT JOIN ({AB} {NEAR} WHERE a.v + b.v > 0 AND a.v <> 1) x "
        "ON x.bt BETWEEN c.t AND c.t + 5",
        "SELECT c.id AS c, a.id AS i, b.id AS j FROM c LEFT JOIN "
        f"(a JOIN b {NEAR} AND a.v + b.v > 0 AND a.v <> 1) ON b.t BETWEEN c.t AND c.t + 5",
    ),
    "of a padded side": (
        f"SELECT x.i, x.j, c.id AS c FROM ({AB.replace('JOIN', 'LEFT JOIN')} {NEAR}) x "
        "JOIN c ON c.t BETWEEN x.t AND x.t + 2 AND c.v >= x.v",
        f"SELECT a.id AS i, b.id AS j, c.id AS c FROM a LEFT JOIN b {NEAR} "
        "JOIN c ON c.t BETWEEN a.t AND a.t + 2 AND c.v >= a.v",
    ),
    "self join of a view": (
        f"WITH ab AS ({AB} {NEAR}) SELECT p.i, p.j, q.i AS i2, q.j AS j2 FROM ab p JOIN ab q "
        "ON p.k = q.k AND q.t BETWEEN p.bt + 1 AND p.bt + 2",
        "SELECT a.id AS i, b.id AS j, a2.id AS i2, b2.id AS j2 "
        f"FROM (a JOIN b {NEAR}) JOIN (a a2 JOIN b b2 ON a2.k = b2.k AND b2.t BETWEEN a2.t - 3 AND a2.t + 3) "
        "ON a.k = a2.k AND a2.t BETWEEN b.t + 1 AND b.t + 2",
    ),
}

NESTED = {
    "a filter on padded rows, beneath an outer join": (
        f"SELECT c.id AS c, x.i, x.j FROM c LEFT JOIN ({AB.replace('JOIN', 'LEFT JOIN')} {NEAR} "
        "WHERE b.v IS NULL OR b.v > 1) x ON x.k = c.k AND x.t BETWEEN c.t - 2 AND c.t + 2"
    ),
    "a filter on padded rows, at the root": (
        f"SELECT x.i, x.j FROM ({AB.replace('JOIN', 'FULL JOIN')} {NEAR} WHERE coalesce(b.v, 2) > 1) x "
        "WHERE x.i > 3"
    ),
    "a computed column that is padded": (
        "SELECT c.id AS c, x.k, x.v, x.one, x.s, x.bt FROM "
        "(SELECT a.t, b.t AS bt, a.k, coalesce(b.v, 0) AS v, 1 AS one, a.v + b.v AS s "
        f"FROM a LEFT JOIN b {NEAR}) x "
        "RIGHT JOIN c ON c.k = x.k AND c.t BETWEEN x.t - 1 AND x.t + 1 AND x.v < 2"
    ),
    "a computed column of inputs that are both padded": (
        "SELECT c.id AS c, x.v, x.i, x.j FROM c LEFT JOIN "
        "(SELECT a.t, b.t AS bt, coalesce(b.v, a.v, 9) + 1 AS v, a.id AS i, b.id AS j "
        f"FROM a FULL JOIN b {NEAR}) x ON x.t BETWEEN c.t AND c.t + 3 AND x.bt BETWEEN c.t AND c.t + 5"
    ),
    "a padded column in the WHERE and ON above": (
        "SELECT c.id AS c, e.id AS e, x.v FROM c LEFT JOIN (SELECT a.t, coalesce(b.v, 0) AS v, a.k "
        f"FROM a LEFT JOIN b {NEAR}) x ON x.k = c.k AND x.t BETWEEN c.t - 2 AND c.t + 2 "
        "LEFT JOIN e ON e.t BETWEEN c.t AND c.t + 3 AND e.v > x.v AND (e.k > x.v OR x.v > 1) "
        "WHERE x.v IS NULL OR x.v < 3"
    ),
    "a key that is computed and padded": (
        "SELECT c.id AS c, e.id AS e, x.kk FROM c LEFT JOIN (SELECT a.t, coalesce(b.v, 0) AS kk, a.k "
        f"FROM a LEFT JOIN b {NEAR}) x ON x.k = c.k AND x.t BETWEEN c.t - 2 AND c.t + 2 "
        "LEFT JOIN e ON e.k = x.kk AND e.t BETWEEN c.t AND c.t + 3"
    ),
    "USING, computed on the padded side of FULL": (
        "SELECT k, t, c.id AS c, x.i FROM (SELECT a.t, coalesce(b.v, 0) AS k, a.id AS i "
        f"FROM a LEFT JOIN b {NEAR}) x FULL JOIN c USING (k, t)"
    ),
    "views of views": (
        f"WITH ab AS ({AB} {NEAR}), abc AS (SELECT ab.*, c.id AS c, c.t AS ct FROM ab JOIN c "
        "ON c.k = ab.k AND c.t BETWEEN ab.t AND ab.t + 4 WHERE ab.v <> c.v), "
        "late AS (SELECT i, j, c, ct, v * 2 AS v FROM abc WHERE bt > t) "
        "SELECT e.id AS e, late.* FROM e LEFT JOIN late ON late.ct BETWEEN e.t AND e.t + 2 AND late.v > e.v"
    ),
    "both sides": (
        f"SELECT x.i, y.i AS yi FROM ({AB} {NEAR}) x FULL JOIN "
        "(SELECT c.t, c.id AS i, e.t AS et, c.k "
        "FROM c LEFT JOIN e ON e.k = c.k AND e.t BETWEEN c.t AND c.t + 1 "
        "WHERE e.id IS NULL) y ON y.k = x.k AND y.t BETWEEN x.t - 4 AND x.t + 4"
    ),
    "EXISTS inside": (
        "SELECT c.id AS c, x.i FROM c LEFT JOIN (SELECT a.id AS i, a.t FROM a WHERE a.v > 0 AND NOT EXISTS "
        "(SELECT 1 FROM b WHERE a.k = b.k AND b.t BETWEEN a.t - 3 AND a.t + 3)) x "
        "ON x.t BETWEEN c.t AND c.t + 5"
    ),
}


def random_case(sql: str, seed: int) -> dict[str, Any]:
    """Times in disorder, but never late; NULLs among keys and values."""
    chance = random.Random(seed)
    rows = [
        [
            name,
            {"t": time, "k": chance.choice([0, 1, 2, None]), "v": chance.choice([0, 1, 2, 3, None]), "id": n},
        ]
        for n in range(14)
        for name in STREAMS
        for time in [n + chance.randrange(4)]
    ]
    steps: list[dict[str, Any]] = [{"rows": rows[start : start + 9]} for start in range(0, len(rows), 9)]
    for step in steps:
        chance.shuffle(step["rows"])
    stream = {"columns": dict.fromkeys(COLUMNS, "BIGINT"), "time": {"t": {"lag": 6}}}
    return {
        "case": "sub-query",
        "streams": dict.fromkeys(STREAMS, stream),
        "query": sql,
        "steps": [*steps, {"end": True}],
    }


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def replay_query(sql: str, seed: int, partitions: int = 1) -> list[dict[str, Any]]:
    outputs = replay_case(random_case(sql, seed), partitions)
    assert not any("error" in output for output in outputs), outputs
    assert not any(output["late"] for output in outputs)
    return outputs


def of_duckdb(sql: str, seed: int) -> Counter[str]:
    with connect_duckdb() as connection:
        given = [each for step in random_case(sql, seed)["steps"][:-1] for each in step["rows"]]
        for name in STREAMS:
            fill(connection, name, dict.fromkeys(COLUMNS, "BIGINT"), [row for of, row in given if of == name])
        found = connection.execute(sql)
        names = [column[0] for column in found.description]
        return bag([dict(zip(names, row, strict=True)) for row in found.fetchall()])


@pytest.mark.parametrize("name", [*FLAT, *NESTED])
@pytest.mark.parametrize("seed", range(at_effort(quick=1, full=3)))
def test_all_rows_are_duckdbs(name: str, seed: int) -> None:
    sql = FLAT[name][0] if name in FLAT else NESTED[name]
    expected = of_duckdb(sql, seed)
    assert len(expected) > 2
    for partitions in at_effort(quick=(5,), full=(1, 5)):
        outputs = replay_query(sql, seed, partitions)
        assert bag([row for output in outputs for row in output["rows"]]) == expected


@pytest.mark.parametrize("name", FLAT)
def test_each_tick_is_that_of_the_flat_query(name: str) -> None:
    nested, flat = (replay_query(sql, 7) for sql in FLAT[name])
    for own, other in zip(nested, flat, strict=True):
        assert bag(own["rows"]) == bag(other["rows"])
        assert sorted(own["watermarks"].values()) == sorted(other["watermarks"].values())
        assert sorted(own["state"].values()) == sorted(other["state"].values())
