"""Equalities of a condition change places from start to start, and the query goes on with its state, without
a flag: in each tick it puts out what the query puts out that nobody touched, and in the end what brute force
finds.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import watersmeet
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=2, full=20)
TICKS = 6
REACH = 4
SOURCES = "".join(
    f"CREATE TABLE {name} (t BIGINT, n BIGINT, i BIGINT, j STRING, `k k` BIGINT, w BIGINT,"
    " WATERMARK FOR t AS t - 3) WITH ('connector' = 'memory');\n"
    for name in "ab"
)
TARGET = "CREATE TABLE o WITH ('connector' = 'memory');\n"
KINDS = {"JOIN": (False, False), "LEFT JOIN": (True, False), "FULL JOIN": (True, True)}
EXPRESSIONS = {"sum": "{0}.i + {0}.w % 2", "text": "concat({0}.j, {0}.j)"}
"""Of which the values are to be equal, too, by names."""
Row = dict[str, Any]


def text_of(kind: str, keys: list[str], rng: random.Random, *, shuffled: bool) -> str:
    parts = [tuple(EXPRESSIONS.get(key, "{}." + key).format(of) for of in "ab") for key in keys]
    equal = [" = ".join(rng.sample(pair, 2) if shuffled else pair) for pair in parts]
    others = [f"b.t BETWEEN a.t - {REACH} AND a.t + {REACH}", "a.w + b.w < 7"]
    if shuffled:
        rng.shuffle(equal)
    places = sorted(rng.sample(range(len(equal) + 2), 2)) if shuffled else [len(equal), len(equal) + 1]
    for place, other in zip(places, others, strict=True):
        equal.insert(place, other)
    where = " AND ".join(equal)
    written = (
        f"a, b WHERE {where}"
        if kind == "JOIN" and shuffled and rng.random() < 0.5
        else f"a {kind} b ON {where}"
    )
    return f"{SOURCES}{TARGET}INSERT INTO o SELECT a.n, b.n AS m FROM {written};"


def open_job(text: str, store: MemoryStore, rng: random.Random) -> LocalJob:
    plan = watersmeet.plan_job(watersmeet.parse_job(text))
    return LocalJob(plan, store, partitions=rng.choice([1, 1, 3]))


def bag(rows: list[Row]) -> Counter[tuple[Any, Any]]:
    return Counter((row["n"], row["m"]) for row in rows)


def value(row: Row, key: str) -> Any:
    if key == "sum":
        return None if row["i"] is None else row["i"] + row["w"] % 2
    return row["j"] * 2 if key == "text" else row[key]


def brute(kind: str, keys: list[str], rows: dict[str, list[Row]]) -> Counter[tuple[Any, Any]]:
    pairs = [
        (left["n"], right["n"])
        for left in rows["a"]
        for right in rows["b"]
        if all(value(left, key) is not None and value(left, key) == value(right, key) for key in keys)
        and abs(left["t"] - right["t"]) <= REACH
        and left["w"] + right["w"] < 7
    ]
    pads = KINDS[kind]
    lonely = [(row["n"], None) for row in rows["a"] if pads[0] and row["n"] not in {n for n, _ in pairs}]
    lonely += [(None, row["n"]) for row in rows["b"] if pads[1] and row["n"] not in {n for _, n in pairs}]
    return Counter([*pairs, *lonely])


def test_equalities_may_change_places(seed: int) -> None:
    planned_otherwise = found = 0
    for number in range(seed, seed + CASES):
        rng = random.Random(number)
        kind, keys = (
            rng.choice(list(KINDS)),
            rng.sample(["i", "j", "`k k`", *EXPRESSIONS], rng.choice([2, 3])),
        )
        names = [key.strip("`") for key in keys]
        plain = text_of(kind, keys, rng, shuffled=False)
        untouched, store = open_job(plain, MemoryStore(), rng), MemoryStore()
        begun = open_job(plain, store, rng)
        begun.tick({}, clock_us=0)
        first = begun.plan.queries[0].fingerprint
        rows: dict[str, list[Row]] = {"a": [], "b": []}
        put_out = Counter[tuple[Any, Any]]()
        for tick in range(TICKS):
            fresh: dict[str, list[tuple[Row, int]]] = {"a": [], "b": []}
            for side in "ab":
                for _ in range(rng.randrange(12)):
                    row = {
                        "t": tick * 3 + rng.randrange(3),
                        "n": len(rows[side]),
                        "i": rng.choice([1, 1, 2, None]),
                        "j": rng.choice(["x", "x", "y"]),
                        "k k": rng.choice([1, 1, 2]),
                        "w": rng.randrange(5),
                    }
                    rows[side].append(row)
                    fresh[side].append((row, 1))
            text = text_of(kind, keys, rng, shuffled=True)
            asked = watersmeet.plan_job(watersmeet.parse_job(text)).queries[0].fingerprint
            planned_otherwise += asked != first
            job = open_job(text, store, rng)
            assert job.plan.queries[0].fingerprint == first, (number, text)
            end = tick == TICKS - 1
            told = [bag(of.tick(fresh, clock_us=tick, end=end).rows["o"]) for of in (job, untouched)]
            assert told[0] == told[1], (number, text)
            put_out += told[0]
        assert put_out == brute(kind, names, rows), (number, plain)
        found += len(put_out)
    assert planned_otherwise > CASES
    assert found > 20 * CASES
