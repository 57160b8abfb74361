"""Queries that keep their rows together put out what each of them puts out alone, tick by tick; and they do
keep them together.

Each job is drawn: two to four queries over the same two or three streams, with other aliases, kinds of join,
bounds and columns. Runs are merged all the time, tasks are two or three, and the job is opened again between
ticks.
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
from watersmeet.plan.model.job import JobPlan

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=2, full=40)
CHUNKS = at_effort(quick=1, full=4)

SOURCES = "".join(
    f"CREATE MAPPING {name} (k INT, t BIGINT, v INT, w STRING, WATERMARK FOR t AS t - {lag}) "
    f"TYPE File OPTIONS ('path' = 'in/{name}', 'format' = 'json');\n"
    for name, lag in (("s", 3), ("u", 5), ("w", 0))
)
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


def draw_query(rng: random.Random, number: int) -> str:
    """One INSERT over two or three of the streams, which may be the same stream twice."""
    aliases = [f"{letter}{rng.choice(['', number])}" for letter in "abc"]
    names = [rng.choice("su"), rng.choice("suw"), rng.choice("uw")]
    count = rng.choice([2, 2, 2, 3])
    text = f"{names[0]} AS {aliases[0]}"
    for right in range(1, count):
        left = aliases[right - 1]
        low, high = rng.choice([0, 0, -4, -10]), rng.choice([0, 5, 20, 60])
        kind = rng.choice(KINDS) if count == 2 else "JOIN"
        if rng.random() < 0.15 and count == 2:
            kind = rng.choice(["LEFT ANTI JOIN", "LEFT SEMI JOIN"])
        other = aliases[right]
        text += f" {kind} {names[right]} AS {other} ON {left}.k = {other}.k"
        text += f" AND {other}.t BETWEEN {left}.t + {low} AND {left}.t + {high}"
        if rng.random() < 0.3:
            text += f" AND {left}.v <> {other}.v"
        if rng.random() < 0.2:
            text += f" AND {other}.v > 1"
    shown = aliases[:1] if "SEMI" in text or "ANTI" in text else aliases[:count]
    columns = [f"{alias}.{column}" for alias in shown for column in "ktvw" if rng.random() < 0.5]
    columns = columns or [f"{shown[0]}.k"]
    listed = ", ".join(f"{column} AS c{place}" for place, column in enumerate(columns))
    return (
        f"CREATE MAPPING out{number} TYPE File OPTIONS ('path' = 'out/{number}', 'format' = 'json');\n"
        f"INSERT INTO out{number} SELECT {listed} FROM {text};\n"
    )


def draw_ticks(rng: random.Random) -> list[dict[str, list[tuple[dict[str, Any], int]]]]:
    ticks, now = [], 0
    for _ in range(rng.randrange(6, 14)):
        now += rng.randrange(0, 15)
        rows: dict[str, list[tuple[dict[str, Any], int]]] = {}
        for name in "suw":
            rows[name] = [
                (
                    {
                        "k": rng.choice([0, 1, 2, None]),
                        "t": rng.choice([now, now, None]) if rng.random() < 0.1 else now - rng.randrange(9),
                        "v": rng.randrange(4),
                        "w": rng.choice(["p", "q", None]),
                    },
                    1,
                )
                for _ in range(rng.randrange(5))
            ]
        ticks.append(rows)
    return ticks


def plan_job_text(text: str) -> JobPlan:
    return watersmeet.plan_job(watersmeet.parse_job(SOURCES + text))


def run_ticks(plan: JobPlan, ticks: list[Any], rng: random.Random) -> list[dict[str, Any]]:
    """Per tick and query: rows, rows in state, account, watermarks."""
    store, found = MemoryStore(), []
    job = LocalJob(plan, store)
    for number, rows in enumerate(ticks):
        if rng.random() < 0.3:
            job = LocalJob(plan, store)
        job.partitions = rng.choice([1, 2, 3])
        result = job.tick(rows, end=number == len(ticks) - 1)
        found.append(
            {
                name: (
                    Counter(map(repr, result.rows[name])),
                    told.state,
                    told.account,
                    dict(told.output_watermarks),
                )
                for name, told in result.result.queries.items()
            }
        )
    return found


def shares(plan: JobPlan) -> list[str]:
    return [side.sharers[0] for query in plan.queries for side in query.sides if side.sharers]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_query_is_what_it_is_alone(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        rng = random.Random(number)
        texts = [draw_query(rng, place) for place in range(rng.choice([2, 2, 3, 4]))]
        ticks = draw_ticks(rng)
        together = run_ticks(plan_job_text("".join(texts)), ticks, rng)
        for place, text in enumerate(texts):
            alone = run_ticks(plan_job_text(text), ticks, rng)
            for tick, (own, all_of_them) in enumerate(zip(alone, together, strict=True), start=1):
                name = f"out{place}"
                assert all_of_them[name] == own[name], f"random-{number}, tick {tick}: {text}"


@pytest.mark.full
def test_random_cases_cover_each_kind(seed: int) -> None:
    """Without these kinds, agreement proves little."""
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 40):
        rng = random.Random(number)
        texts = [draw_query(rng, place) for place in range(rng.choice([2, 2, 3, 4]))]
        plan = plan_job_text("".join(texts))
        shared = Counter(shares(plan))
        seen["jobs that share"] += bool(shared)
        seen["by three or more"] += any(count > 2 for count in shared.values())
        seen["within a query"] += any(
            len(own) > len(set(own))
            for own in ([side.sharers[0] for side in query.sides if side.sharers] for query in plan.queries)
        )
        seen["columns of others"] += any(side.of_others for query in plan.queries for side in query.sides)
        result = run_ticks(plan, draw_ticks(rng), rng)
        seen["rows"] += sum(len(told[0]) for tick in result for told in tick.values()) > 5
    assert all(count > 4 for count in seen.values()), seen
    assert len(seen) == 5, seen


def test_inputs_that_follow_others_are_shared_within_a_query_alone() -> None:
    """Of a source that follows others while it is idle, rows are late by what it is joined with."""
    sources = SOURCES.replace("'format'", "'idle_timeout' = '10 s', 'on_idle' = 'follow', 'format'")
    joined = "AS a JOIN {} AS b ON a.k = b.k AND b.t BETWEEN a.t - 5 AND a.t + 5"
    out = "CREATE MAPPING {0} TYPE File OPTIONS ('path' = 'out/{0}', 'format' = 'json');\n"
    out += "INSERT INTO {0} SELECT a.v FROM s " + joined.replace("{}", "{1}") + ";\n"
    plan = watersmeet.plan_job(watersmeet.parse_job(sources + out.format("x", "u") + out.format("y", "w")))
    assert not shares(plan)
    job = LocalJob(plan, MemoryStore())

    def rows(time: int) -> list[tuple[dict[str, Any], int]]:
        return [({"k": 1, "t": time, "v": 1, "w": ""}, 1)]

    job.tick({"s": rows(10), "u": rows(10), "w": rows(10)})
    for number in range(2, 9):
        job.tick({"u": rows(10 * number), "w": rows(10 + number)}, clock_us=20_000_000 * number)
    out_rows = job.tick({"s": rows(30), "w": rows(30)}, clock_us=200_000_000).rows
    assert [len(out_rows[name]) for name in "xy"] == [0, 1]  # late where u went on
    within = out.format("x", "s")
    assert shares(watersmeet.plan_job(watersmeet.parse_job(sources + within)))


def list_run_files(texts: list[str]) -> set[str]:
    """The files of runs after some ticks."""
    store = MemoryStore()
    job = LocalJob(plan_job_text("".join(texts)), store)
    for number in range(30):
        rows = [({"k": place % 5, "t": number, "v": place, "w": "x"}, 1) for place in range(20)]
        job.tick({"s": rows, "u": rows})
    return set(store.names("runs"))


def test_runs_are_there_once() -> None:
    """A query that needs no more of its rows than another adds no file; by another key it has its own."""
    first = (
        "CREATE MAPPING x TYPE File OPTIONS ('path' = 'out/x', 'format' = 'json');\n"
        "INSERT INTO x SELECT a.v, b.w FROM s a JOIN u b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 50;\n"
    )
    second = (
        "CREATE MAPPING y TYPE File OPTIONS ('path' = 'out/y', 'format' = 'json');\n"
        "INSERT INTO y SELECT l.w FROM s l LEFT JOIN u r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 20;\n"
    )
    alone, together = list_run_files([first]), list_run_files([first, second])
    assert len(together) <= len(alone) + 4, (
        len(alone),
        len(together),
    )  # merged ones wait for the other a tick
    assert len(list_run_files([first, second.replace("l.k = r.k", "l.v = r.v")])) > 1.5 * len(alone)


@pytest.mark.parametrize("how", ["torn", "gone"])
def test_what_others_are_to_take_over_is_looked_at_on_start(how: str) -> None:
    both = "".join(
        f"CREATE MAPPING {name} TYPE File OPTIONS ('path' = 'out/{name}', 'format' = 'json');\n"
        f"INSERT INTO {name} SELECT a.v FROM s a JOIN u b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + {end};\n"
        for name, end in (("x", 50), ("y", 60))
    )
    store = MemoryStore()
    job = LocalJob(plan_job_text(both), store)
    for number in range(3):
        job.tick({"s": [({"k": 1, "t": number, "v": 1, "w": "x"}, 1)]})
    (name,) = {live.merged_from.file for live in job.driver.manifest.runs() if live.merged_from}
    LocalJob(plan_job_text(both), store)
    data = bytearray(store.read(name))
    store.delete(name)
    if how == "torn":
        data[len(data) // 2] ^= 1
        store.write(name, bytes(data))
    with pytest.raises(StateError, match=name):
        LocalJob(plan_job_text(both), store)


def test_explain_says_so() -> None:
    text = watersmeet.explain(
        plan_job_text(
            "CREATE MAPPING x TYPE File OPTIONS ('path' = 'out/x', 'format' = 'json');\n"
            "INSERT INTO x SELECT a.v FROM s a JOIN s b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 5;\n"
            "CREATE MAPPING y TYPE File OPTIONS ('path' = 'out/y', 'format' = 'json');\n"
            "INSERT INTO y SELECT c.v FROM s c JOIN u d ON c.k = d.k AND d.t BETWEEN c.t AND c.t + 5;\n"
        )
    )
    assert "a: with b, y's c; each has its own retention and matches" in text
    assert "c: with x's a, x's b; each has its own retention and matches" in text
