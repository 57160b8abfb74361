"""Jobs of changes whose queries and indexes come, go, change and change places: what each query puts out adds
up to what it adds up to alone, whoever makes its rows, whatever it was given when it came, and wherever it
looks rows up.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import watersmeet
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import StateError

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=1, full=8)
CHUNKS = at_effort(quick=1, full=2)
TICKS = 20
SECOND = 1_000_000

DECLARED = """
SET output_mode = changelog;
CREATE TABLE p (k BIGINT PRIMARY KEY NOT ENFORCED, g BIGINT, v BIGINT, s BIGINT, op STRING)
  WITH ('connector' = 'file', 'path' = 'p', 'format' = 'json', 'op.column' = 'op', 'op.insert' = 'c',
  'op.delete' = 'x', 'sequence.by' = 's', 'tombstones' = '5 s');
CREATE TABLE t (a BIGINT, g BIGINT, c BIGINT, d INT)
  WITH ('connector' = 'file', 'path' = 't', 'format' = 'json', 'diff.column' = 'd');
CREATE VIEW w AS SELECT g, count(*) AS n, sum(v) AS s FROM p GROUP BY g;
"""
WHOLE = ("SELECT k, g, v FROM p", "SELECT a, g FROM t")
"""They stay, unless an index does: of their rows are those that queries are given which come."""
QUERIES = (
    *WHOLE,
    "SELECT p.k, t.a FROM p JOIN t ON p.g = t.g",
    "SELECT p.k, p.v, t.c FROM p JOIN t ON p.g = t.g",
    "SELECT p.g, count(*) AS n FROM p JOIN t ON p.g = t.g GROUP BY p.g",
    "SELECT g, n FROM w WHERE n > 1",
    "SELECT w.g, w.s, t.a FROM w JOIN t ON t.g = w.g",
    "SELECT g, c FROM (SELECT g, c, ROW_NUMBER() OVER (PARTITION BY g ORDER BY c) AS rn FROM t)"
    " WHERE rn <= 2",
    "SELECT k, v, rn FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v DESC) AS rn FROM p)"
    " WHERE rn <= 2",
    "SELECT p.k, t.a FROM p LEFT JOIN t ON p.g <=> t.g",
    "SELECT p.k, q.k AS l, t.c FROM p JOIN p q ON p.g = q.g JOIN t ON t.a = q.k",
    "SELECT p.k, t.a, t.c + 1 AS d FROM p JOIN t ON p.g = t.g WHERE t.c > 1 AND p.v < 4",
    "SELECT t.g + 1 AS h, count(*) AS n FROM t WHERE a > 2 GROUP BY t.g + 1",
    "SELECT p.k, t.a FROM p LEFT JOIN t ON p.g = CAST(t.g AS INT) + 1 AND t.a > 1",
)

INDEXES = ("p (g)", "p (g) INCLUDE (v)", "p (k), (g)", "t (g)", "t (g), (a)", "t (a), (g)")

Chosen = dict[str, str]
"""The queries of a job by the names of their INSERTs, in its order; of indexes what they are of."""
Rows = dict[str, list[tuple[dict[str, Any], int]]]


class Changing:
    """Rows of the tables as they come: some too late, by their sequence."""

    def __init__(self, draw: random.Random) -> None:
        self._draw, self._sequence = draw, 0
        self._there: list[dict[str, Any]] = []

    def tick(self) -> Rows:
        draw, rows = self._draw, Rows(p=[], t=[])
        for _ in range(draw.randrange(6)):
            self._sequence += 1
            late, op = draw.choice([0, 0, 0, 3, 8]), draw.choice("cccx")
            row = {"k": draw.randrange(6), "g": draw.choice([0, 1, 2, None]), "v": draw.randrange(5)}
            rows["p"].append(({**row, "s": self._sequence - late, "op": op}, 1))
        for _ in range(draw.randrange(6)):
            if self._there and draw.random() < 0.4:
                gone = self._there.pop(draw.randrange(len(self._there)))
                rows["t"].append(({**gone, "d": -1}, 1))
            else:
                row = {"a": draw.randrange(6), "g": draw.choice([0, 1, 2, None]), "c": draw.randrange(4)}
                self._there.append(row)
                rows["t"].append(({**row, "d": 1}, 1))
        return rows


def open_job(chosen: Chosen, store: MemoryStore, partitions: int, *, change: bool = False) -> LocalJob:
    text = DECLARED + "".join(
        f"CREATE INDEX {name} ON {query};\n"
        if query in INDEXES
        else f"CREATE TABLE {name} WITH ('connector' = 'file', 'path' = 'out/{name}', 'format' = 'json');\n"
        f"INSERT INTO {name} {query};\n"
        for name, query in chosen.items()
    )
    plan = watersmeet.plan_job(watersmeet.parse_job(text))
    return LocalJob(plan, store, partitions=partitions, change_queries=change)


def open_changed_job(other: Chosen, store: MemoryStore, partitions: int) -> LocalJob | None:
    """The changed job; None: it is refused, for what a query needs is not there for it."""
    try:
        return open_job(other, store, partitions, change=True)
    except StateError as error:
        if error.code != "changed-query":
            raise
        return None


def run_tick(job: LocalJob, number: int, rows: Rows) -> dict[str, list[dict[str, Any]]]:
    read = {source.name for source in job.plan.sources}
    return job.tick({name: of for name, of in rows.items() if name in read}, clock_us=number * SECOND).rows


def add_changes(total: Counter[str], rows: list[dict[str, Any]]) -> None:
    for row in rows:
        values = {name: value for name, value in row.items() if name not in ("_diff", "_tick")}
        total[repr(values)] += row["_diff"]


def net(total: Counter[str]) -> dict[str, int]:
    return {row: count for row, count in total.items() if count}


def draw_changed_queries(draw: random.Random, chosen: Chosen) -> Chosen:
    """Some go, one changes or comes, and all may stand in another order."""
    stay = {
        name: query for name, query in chosen.items() if draw.random() < (0.85 if query in INDEXES else 0.75)
    }
    for query in WHOLE:  # a source that nobody reads would come back with all of its rows
        if not any(other in INDEXES and other[0] == query[-1] for other in stay.values()):
            stay[f"whole_{query[-1]}"] = query
    for name, query in stay.items():
        if query not in WHOLE and query not in INDEXES and draw.random() < 0.2:
            stay[name] = draw.choice(QUERIES[len(WHOLE) :])
    free = [f"o{n}" for n in range(6) if f"o{n}" not in stay]
    if free and draw.random() < 0.6:
        stay[draw.choice(free)] = draw.choice(QUERIES[len(WHOLE) :])
    free = [f"i{n}" for n in range(3) if f"i{n}" not in stay]
    if free and draw.random() < 0.4:
        stay[draw.choice(free)] = draw.choice(INDEXES)
    names = list(stay)
    draw.shuffle(names)
    return {name: stay[name] for name in names}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_query_adds_up_to_what_it_is_alone(seed: int, chunk: int) -> None:
    changes = compared = beside = 0
    other_rows = set[tuple[int, str]]()
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        draw, history = random.Random(number), list[Rows]()
        tables, store = Changing(draw), MemoryStore()
        chosen = dict(zip(("whole_p", "whole_t"), WHOLE, strict=True))
        more = {f"i{n}": draw.choice(INDEXES) for n in range(2)}
        chosen |= {"o0": draw.choice(QUERIES), "o1": draw.choice(QUERIES)}
        chosen = draw_changed_queries(draw, {**more, **chosen})
        job = open_job(chosen, store, draw.choice([1, 3]))
        totals = {name: Counter[str]() for name, query in chosen.items() if query not in INDEXES}
        for tick in range(TICKS):
            if tick and draw.random() < 0.35:
                other = draw_changed_queries(draw, chosen)
                before = {query.name: query.fingerprint for query in job.plan.queries}
                again = open_changed_job(other, store, draw.choice([1, 2, 5]))
                if again is None:
                    job = open_job(chosen, store, draw.choice([1, 2, 5]))
                else:
                    job, changes = again, changes + 1
                    for query in job.plan.queries:
                        if query.is_index:
                            continue
                        beside += any(
                            told.startswith(f'query "{query.name}" starts') and "looks them up" in told
                            for told in job.driver.said
                        )
                        if before.get(query.name) != query.fingerprint:
                            totals[query.name] = Counter()
                        elif chosen[query.name] != other[query.name]:  # it goes on with another projection
                            other_rows.add((number, query.name))
                    chosen = other
            rows = tables.tick()
            history.append(rows)
            out = run_tick(job, tick, rows)
            for name in totals.keys() & out.keys():
                add_changes(totals[name], out[name])
        for name, query in chosen.items():
            if (number, name) in other_rows or query in INDEXES:
                continue
            alone, total = open_job({name: query}, MemoryStore(), 1), Counter[str]()
            for tick, rows in enumerate(history):
                add_changes(total, run_tick(alone, tick, rows)[name])
            compared += 1
            assert net(totals[name]) == net(total), f"random-{number}, {name}: {query}"
    assert changes > CASES // CHUNKS
    assert beside >= CASES // CHUNKS // 2, beside
    assert compared > CASES
