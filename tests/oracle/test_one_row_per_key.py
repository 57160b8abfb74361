"""Where the planner promises one row per key of a result, DuckDB finds no second row for random tables."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pytest

import watersmeet
from tests.support.duckdb_batch import as_duckdb
from tests.support.effort import at_effort
from watersmeet.plan.checks.unique_keys import has_one_row_per

KEYS = {"p": ["a"], "q": ["a", "b"], "r": [], "s": ["c"]}
"""The primary keys of the tables; each table has the columns a, b and c."""

TABLES = "".join(
    "CREATE TABLE {} (a INT, b INT, c INT{}) WITH ('connector' = 'memory');\n".format(
        name, f", PRIMARY KEY ({', '.join(key)}) NOT ENFORCED" if key else ""
    )
    for name, key in KEYS.items()
)
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN")
QUERIES, DATA = at_effort(quick=100, full=500), 6


def drawn_input(draw: random.Random, alias: str) -> str:
    table = draw.choice(list(KEYS))
    return draw.choices(
        [
            f"{table} {alias}",
            f"(SELECT b AS a, c AS b, a AS c FROM {table}) {alias}",
            f"(SELECT * FROM {table} WHERE {draw.choice('abc')} = {draw.randrange(3)}) {alias}",
            f"(SELECT a, b, count(*) AS c FROM {table} GROUP BY a, b) {alias}",
            f"(SELECT b AS a, max(a) AS b, min(c) AS c FROM {table} GROUP BY b) {alias}",
            f"(SELECT max(a) AS a, min(b) AS b, count(c) AS c FROM {table}) {alias}",
            f"(SELECT DISTINCT b AS a, c AS b, c FROM {table}) {alias}",
            f"(SELECT * FROM {table} UNION ALL SELECT * FROM {draw.choice(list(KEYS))}) {alias}",
        ],
        [8, 1, 2, 1, 1, 1, 1, 1],
    )[0]


def drawn_condition(draw: random.Random, aliases: list[str]) -> str:
    """One to three conjuncts over these inputs, the last of them among the newest."""
    found = []
    for _ in range(draw.choice([1, 1, 2, 3])):
        one = f"{aliases[-1]}.{draw.choice('abc')}"
        other = f"{draw.choice(aliases)}.{draw.choice('abc')}"
        found.append(
            draw.choice([f"{one} = {other}"] * 5 + [f"{one} = {draw.randrange(3)}", f"{one} < {other}"])
        )
    return " AND ".join(found)


def drawn_query(draw: random.Random) -> tuple[str, list[str]]:
    """A query, and the names of some of its columns."""
    aliases, text = ["x1"], drawn_input(draw, "x1")
    visible = list(aliases)
    for number in range(2, draw.choice([1, 2, 2, 3, 3]) + 1):
        alias, kind = f"x{number}", draw.choices(KINDS, [6, 6, 3, 2, 1, 1, 1])[0]
        on = "" if kind.startswith("CROSS") else f" ON {drawn_condition(draw, [*visible, alias])}"
        text += f" {kind} {drawn_input(draw, alias)}{on}"
        if "SEMI" not in kind and "ANTI" not in kind:
            visible.append(alias)
    if draw.random() < 0.3:
        text += f" WHERE {drawn_condition(draw, visible)}"
    columns = [f"{alias}.{name}" for alias in visible for name in "abc"]
    if draw.random() < 0.2:
        grouped = draw.sample(columns, draw.randint(1, 3))
        items = [f"{column} AS k{n}" for n, column in enumerate(grouped)]
        select = f"SELECT {', '.join(items)}, count(*) AS n FROM {text} GROUP BY {', '.join(grouped)}"
        names = [f"k{n}" for n in range(len(grouped))]
    else:
        names = [column.replace(".", "") for column in columns]
        items = [f"{column} AS {name}" for column, name in zip(columns, names, strict=True)]
        select = f"SELECT {', '.join(items)} FROM {text}"
    return select, draw.sample(names, draw.randint(1, min(3, len(names))))


def fill(connection: duckdb.DuckDBPyConnection, draw: random.Random) -> None:
    for name, key in KEYS.items():
        rows = {}
        for number in range(draw.randint(0, 7)):
            row = {
                column: None if column not in key and draw.random() < 0.15 else draw.randrange(3)
                for column in "abc"
            }
            rows[tuple(row[column] for column in key) if key else number] = row
        connection.execute(f"CREATE OR REPLACE TABLE {name} (a INT, b INT, c INT)")
        for row in rows.values():
            connection.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", list(row.values()))


def test_promised_rows_are_alone(seed: int) -> None:
    draw = random.Random(seed)
    known = Counter[bool]()
    bases = [duckdb.connect() for _ in range(DATA)]
    for base in bases:
        fill(base, draw)
    queries = [drawn_query(draw) for _ in range(QUERIES)]
    twice = 0
    for query, key in queries:
        job = watersmeet.parse_job(f"SET output_mode = changelog; {TABLES} {query}")
        promised = has_one_row_per(job.inserts[0].query, key)
        known[promised] += 1
        filled = " AND ".join(f"{name} IS NOT NULL" for name in key)
        several = (
            f"SELECT {', '.join(key)} FROM ({as_duckdb(query)}) WHERE {filled}"
            f" GROUP BY ALL HAVING count(*) > 1"
        )
        found = [row for base in bases for row in base.execute(several).fetchall()]
        assert not (promised and found), f"seed {seed}: {query}\nby {key}: {found}"
        twice += bool(found)
    # Of those that are not promised many do have two rows.
    assert known[True] > QUERIES // 10
    assert twice > known[False] // 10


@pytest.mark.parametrize(
    ("query", "key", "promised"),
    [
        ("SELECT p.a, s.b FROM p LEFT JOIN s ON s.c = p.b", "a", True),
        ("SELECT p.a, s.b FROM p LEFT JOIN s ON s.c = p.b AND s.a > p.a", "a", True),
        ("SELECT p.a, s.b FROM p LEFT JOIN s ON s.c > p.b", "a", False),
        ("SELECT p.a, s.c FROM p LEFT JOIN s ON s.b = p.b", "a c", True),
        ("SELECT p.a, s.b FROM p FULL JOIN s ON s.c = p.b", "a", False),
        ("SELECT q.a, q.c FROM q WHERE q.b = 3", "a", True),
        ("SELECT b FROM texts WHERE a = '5'", "b", True),
        ("SELECT b FROM texts WHERE a = 5", "b", False),  # '5' and '05'
        ("SELECT q.a, p.b FROM q JOIN p ON p.a = q.b", "a", False),
        ("SELECT q.a, p.a AS other FROM q JOIN p ON p.a = q.b", "a other", True),
        ("SELECT p.a, s.b FROM p LEFT JOIN s ON s.c = CAST(p.b AS SMALLINT)", "a", False),
        ("SELECT a + 0 AS a FROM p", "a", False),
        ("SELECT CAST(a AS STRING) AS a FROM p", "a", True),
        ("SELECT CAST(a AS BIGINT) AS a FROM p", "a", True),
        ("SELECT CAST(a AS SMALLINT) AS a FROM p", "a", False),
        ("SELECT CAST(a AS BOOLEAN) AS a FROM p", "a", False),
        (
            "SELECT CAST(x.n AS STRING) AS n FROM (SELECT b AS n, count(*) AS c FROM q GROUP BY b) x",
            "n",
            True,
        ),
        ("SELECT CAST(b AS STRING) AS k, count(*) AS c FROM q GROUP BY b", "k", True),
        ("SELECT CAST(count(*) AS STRING) AS c, b FROM q GROUP BY b", "c", False),
        ("SELECT a, b, count(*) AS n FROM p GROUP BY a, b", "a", True),
        ("SELECT a, b, count(*) AS n FROM q GROUP BY a, b", "a", False),
        ("SELECT count(*) AS n FROM q", "n", True),
        ("SELECT DISTINCT b, c FROM r", "b c", True),
        ("SELECT a FROM p UNION ALL SELECT c FROM s", "a", False),
    ],
)
def test_what_is_known(query: str, key: str, promised: bool) -> None:
    texts = (
        "CREATE TABLE texts (a STRING, b INT, PRIMARY KEY (a, b) NOT ENFORCED) WITH ('connector' = 'memory');"
    )
    job = watersmeet.parse_job(f"SET output_mode = changelog; {TABLES} {texts} {query}")
    assert has_one_row_per(job.inserts[0].query, key.split()) is promised
