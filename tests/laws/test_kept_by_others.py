"""Queries that join the same tables otherwise keep them once, and each puts out what it does alone, tick by
tick.

Each job is drawn: two to four delta joins of some of four tables, by other keys, with other aliases, columns
and conditions. Keys may be NULL. Tasks are one to three, the job is opened again between ticks, ticks fail
before they are committed and are repeated, and queries go, those that keep rows for others too.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.laws.test_taken_rows import TABLE, Played, plan_queries
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import StateError
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import ArrangePlan

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=1, full=40)
CHUNKS = at_effort(quick=1, full=4)

KEYS = {"c": "k", "s": "k", "o": "kj", "l": "jv"}
"""Per table the columns by which it is joined."""


def draw_join(rng: random.Random) -> tuple[list[tuple[str, str]], str]:
    """(table, alias) in order, and FROM."""
    tables = rng.sample(sorted(KEYS), rng.choice([2, 3, 3, 4]))
    letters = rng.choice(["abde", "xyzu", "efgh"])
    joined = [(table, letters[place]) for place, table in enumerate(tables)]
    text = f"{tables[0]} {letters[0]}"
    for place, (table, alias) in enumerate(joined[1:], 1):
        _, other = joined[rng.randrange(place)]
        before = next(name for name, letter in joined if letter == other)
        shared = [column for column in KEYS[table] if column in KEYS[before]] or ["v"]
        conditions = [f"{alias}.{column} = {other}.{column}" for column in rng.sample(shared, 1)]
        if rng.random() < 0.15:
            conditions.append(f"{alias}.v <= {other}.v + 1")
        text += f" JOIN {table} {alias} ON {' AND '.join(conditions)}"
    return joined, text


def draw_query(rng: random.Random, number: int) -> str:
    joined, text = draw_join(rng)
    columns = [f"{alias}.{column}" for _, alias in joined for column in "vw" if rng.random() < 0.4]
    columns = columns or [f"{joined[-1][1]}.v"]
    if rng.random() < 0.2:
        columns.append(f"{joined[0][1]}.v * {joined[-1][1]}.v")
    listed = ", ".join(f"{column} AS c{place}" for place, column in enumerate(columns))
    where = rng.choice(["", "", "", f" WHERE {joined[0][1]}.v > 0", f" WHERE {joined[-1][1]}.w = 'p'"])
    insert = f"INSERT INTO out{number} SELECT /*+ PLAN(delta) */ {listed} FROM {text}{where};\n"
    return TABLE.format(number) + insert


def draw_ticks(rng: random.Random) -> list[dict[str, Any]]:
    """Changes of all tables; of those without a key also deletes of what is not there."""
    ticks = []
    for tick in range(rng.randrange(4, 9)):

        def some(*values: Any) -> Any:
            return rng.choice(values)

        rows: dict[str, list[tuple[dict[str, Any], int]]] = {"p": []}
        rows["c"] = [
            ({"k": some(0, 1, 2), "v": some(0, 1, 2), "w": some("p", "q", None), "op": some(*"IID")}, 1)
            for _ in range(rng.randrange(4))
        ]
        rows["s"] = [
            (row | {"n": tick * 3 + rng.randrange(6), "v": some(0, 1, None)}, 1) for row, _ in rows["c"]
        ]
        rows["o"] = [
            (
                {
                    "k": some(0, 1, 2, None),
                    "j": some(0, 1, None),
                    "v": some(0, 1, 2),
                    "w": some("p", "q"),
                    "d": some(1, 1, 2, -1),
                },
                1,
            )
            for _ in range(rng.randrange(5))
        ]
        rows["l"] = [
            ({"j": some(0, 1, None), "v": some(0, 1, None), "w": some("p", "q"), "d": some(1, 1, -1)}, 1)
            for _ in range(rng.randrange(5))
        ]
        ticks.append(rows)
    return ticks


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_query_puts_out_what_it_does_alone(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        rng = random.Random(number)
        texts = [draw_query(rng, place) for place in range(rng.choice([2, 2, 3, 4]))]
        ticks = draw_ticks(rng)
        goes, leaves = rng.choice([None, *range(len(texts))]), rng.randrange(1, len(ticks))
        alone = [Played([text], rng, rough=False) for text in texts]
        together = Played(texts, rng, rough=True)
        for tick, rows in enumerate(ticks):
            if goes is not None and tick == leaves and not together.goes(texts[goes]):
                break
            found = together.tick(rows)
            for place, own in enumerate(alone):
                expected = own.tick(rows)[f"out{place}"]
                if goes == place and tick >= leaves:
                    continue
                # Which rows count as kept is whoever keeps them's: all are in.
                told = found[f"out{place}"]
                assert told[0] == expected[0], f"random-{number}, tick {tick + 1}: {''.join(texts)}"
                came = [
                    {alias: counts.get("in", 0) for alias, counts in account.items()}
                    for account in (told[2], expected[2])
                ]
                assert came[0] == came[1], f"random-{number}, tick {tick + 1}: {''.join(texts)}"


def list_shared_inputs(plan: JobPlan) -> list[tuple[str, str]]:
    """The inputs of queries that others keep, and whose keeps them."""
    return [
        (f"{query.name}/{side.name}", side.kept_by.query)
        for query in plan.queries
        for node in query.nodes
        for side in node.sides
        if side.kept_by is not None
    ]


def _has_further_keys(query: QueryPlan) -> bool:
    """It looks rows that another query keeps up by a key by which they are not held."""
    return any(
        side.kept_by is not None and bool(own.others)
        for node in query.every(ArrangePlan)
        for side, own in zip(node.sides, node.arranged, strict=True)
    )


@pytest.mark.full
def test_random_cases_cover_each_kind(seed: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 90):
        rng = random.Random(number)
        plan = plan_queries([draw_query(rng, place) for place in range(3)])
        kept = list_shared_inputs(plan)
        seen["jobs"] += bool(kept)
        seen["several"] += len(kept) > 2
        seen["further keys"] += any(map(_has_further_keys, plan.queries))
        sides = [side for query in plan.queries for node in query.nodes for side in node.sides]
        seen["wider"] += any(side.of_others for side in sides)
        alone = [side for query in plan.queries for node in query.alone.nodes for side in node.sides]
        seen["with NULLs"] += sum(len(s.not_null) for s in alone if s.branches) > sum(
            len(s.not_null) for s in sides if s.branches and s.kept_by is None
        ) + sum(len(s.not_null) for s in sides if s.kept_by is not None)
    assert min(seen[what] for what in ("jobs", "several", "further keys", "wider", "with NULLs")) > 4, seen


BY_RANGES = (
    "INSERT INTO out{0} SELECT /*+ PLAN(delta) */ a.{1}, a.{2}, b.v FROM (SELECT v AS {1}, j AS {2} FROM o) a"
    " JOIN l b ON a.{1} BETWEEN b.v - 1 AND b.v + 1 AND a.{2} BETWEEN b.j - 1 AND b.j + 1;\n"
)


@pytest.mark.parametrize("names", ["qp", "xy"])
def test_columns_by_which_rows_are_sorted_are_called_alike(names: str) -> None:
    """Runs say by its name what they are sorted by: rows of a view with other names are kept apart."""
    texts = [TABLE.format(n) + BY_RANGES.format(n, *own) for n, own in enumerate(["pq", names])]
    rng = random.Random(5)
    together, alone = (
        LocalJob(plan_queries(texts), MemoryStore()),
        LocalJob(plan_queries(texts[1:]), MemoryStore()),
    )
    assert not any(name == "out1/a" for name, _ in list_shared_inputs(together.plan))
    for _ in range(6):
        rows: dict[str, Any] = {
            name: [
                ({"k": 1, "j": rng.randrange(20), "v": rng.randrange(1000, 1020), "w": "p", "d": 1}, 1)
                for _ in range(20)
            ]
            for name in "ol"
        }
        told = [Counter(map(repr, job.tick(rows).rows["out1"])) for job in (together, alone)]
        assert told[0] == told[1]


def test_column_dropped_from_the_state_is_refused_when_it_returns() -> None:
    """Of rows that are equal in what was asked for a delete took any: what stands beside them is not
    theirs."""
    narrow = TABLE.format(0) + "INSERT INTO out0 SELECT a.v, b.v AS bv FROM c a JOIN o b ON a.v = b.j;\n"
    wide = narrow.replace("SELECT a.v", "SELECT a.v, a.w")

    def changes(*rows: tuple[int, str, str]) -> dict[str, Any]:
        return {"c": [({"k": k, "v": 1, "w": w, "op": op}, 1) for k, w, op in rows]}

    for other in ("", TABLE.format(1) + "INSERT INTO out1 SELECT a.w FROM c a JOIN l y ON a.v = y.j;\n"):
        store = MemoryStore()
        job = LocalJob(plan_queries([narrow if other else wide, other]), store)
        job.tick(changes((0, "a", "I"), (1, "b", "I")))
        job = LocalJob(plan_queries([narrow]), store, change_queries=bool(other))
        job.tick(changes((1, "b", "D")))
        with pytest.raises(StateError, match=r"lack .*a\.(c\.)?w"):
            LocalJob(plan_queries([wide]), store)
