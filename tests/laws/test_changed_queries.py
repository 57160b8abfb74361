"""Queries that come to a job with state, and go from it: those that stay put out what they put out alone, and
one that comes what it would have, but for what rows from before would have come to by themselves.

Rows have numbers, so it can be told which of them were there when a query came.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest

import watersmeet
from watersmeet import LocalJob, MemoryStore
from watersmeet.engine.driver import merge_policy
from watersmeet.errors import StateError

CASES = int(os.environ.get("WATERSMEET_RANDOM_CASES", "1840")) // 46
CHUNKS = 2
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT ANTI JOIN")

SOURCES = "".join(
    f"CREATE MAPPING {name} (k INT, t BIGINT, n INT, w INT, WATERMARK FOR t AS t - 4) "
    f"TYPE File OPTIONS ('path' = 'in/{name}', 'format' = 'json');\n"
    for name in "su"
)


def query(rng: random.Random, name: str) -> str:
    """A join whose rows show the numbers of the rows that they are made of; all keep rows equally long."""
    left, right = rng.choice([("a", "b"), ("x", "y")])
    kind = rng.choice(KINDS)
    shown = [f"{left}.n AS ln"] + ([] if "ANTI" in kind else [f"{right}.n AS rn"])
    shown += [f"{left}.w"] if rng.random() < 0.5 else []
    more = f" AND {left}.w <= {right}.w + {rng.choice([0, 9])}"
    return (
        f"CREATE MAPPING {name} TYPE File OPTIONS ('path' = 'out/{name}', 'format' = 'json');\n"
        f"INSERT INTO {name} SELECT {', '.join(shown)} FROM s {left} {kind} u {right}"
        f" ON {left}.k = {right}.k AND {right}.t BETWEEN {left}.t - 10 AND {left}.t + 25{more};\n"
    )


def ticks_of(rng: random.Random, count: int) -> list[dict[str, Any]]:
    ticks, now, number = [], 0, 0
    for _ in range(count):
        now += rng.randrange(12)
        rows: dict[str, Any] = {}
        for name in "su":
            rows[name] = []
            for _ in range(rng.randrange(5)):
                number += 1
                row = {"k": rng.randrange(3), "t": now - rng.randrange(7), "n": number, "w": rng.randrange(4)}
                rows[name].append((row, 1))
        ticks.append(rows)
    return ticks


def opened(texts: list[str], store: MemoryStore, *, change: bool = False) -> LocalJob:
    plan = watersmeet.plan_job(watersmeet.parse_job(SOURCES + "".join(texts)))
    return LocalJob(plan, store, change_queries=change)


def alone(text: str, ticks: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    job = opened([text], MemoryStore())
    (name,) = [query.name for query in job.plan.queries]
    return [job.tick(rows, end=number == len(ticks) - 1).rows[name] for number, rows in enumerate(ticks)]


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(map(repr, rows))


@pytest.fixture(autouse=True)
def merge_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_queries_that_come_and_go(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        rng = random.Random(number)
        ticks = ticks_of(rng, 14)
        texts = {name: query(rng, name) for name in ("first", "second", "third")}
        came = {"first": 0, "second": 0, "third": rng.randrange(2, 9)}
        goes = rng.choice(["second", "second", None])
        leaves = rng.randrange(came["third"], 12)
        store, live = MemoryStore(), ["first", "second"]
        job = opened([texts[name] for name in live], store)
        found: dict[str, dict[int, list[dict[str, Any]]]] = {name: {} for name in texts}
        for place, rows in enumerate(ticks):
            before = list(live)
            if place == came["third"]:
                live = ["third", *live] if rng.random() < 0.3 else [*live, "third"]
            if place == leaves and goes is not None:
                live = [name for name in live if name != goes]
            if live != before:
                with pytest.raises(StateError, match=r"came|went"):
                    opened([texts[name] for name in live], store)
                job = opened([texts[name] for name in live], store, change=True)
                assert job.driver.said
            elif rng.random() < 0.2:
                job = opened([texts[name] for name in live], store)
            job.partitions = rng.choice([1, 2, 3])
            output = job.tick(rows, end=place == len(ticks) - 1)
            for name in live:
                found[name][place] = output.rows[name]
            told = [list(result.input_watermarks.values()) for result in output.result.queries.values()]
            assert all(watermarks == told[0] for watermarks in told), f"random-{number}, tick {place}"
        for name, text in texts.items():
            old = ticks[: came[name]]
            there = max([row["n"] for rows in old for side in rows.values() for row, _ in side] + [0])
            for place, want in enumerate(alone(text, ticks)):
                if place not in found[name]:
                    continue
                if name == "third":  # rows of which none came with the query or after it
                    want = [row for row in want if max(row.get(side) or 0 for side in ("ln", "rn")) > there]
                assert bag(found[name][place]) == bag(want), f"random-{number}, tick {place}: {text}"


def test_what_is_said_and_refused() -> None:
    rng = random.Random(1)
    first = query(rng, "first")
    store = MemoryStore()
    job = opened([first], store)
    rows = [({"k": 1, "t": number, "n": number, "w": 1}, 1) for number in range(8)]
    job.tick({"s": rows, "u": rows})
    second = first.replace("first", "second")
    came = opened([first, second], store, change=True)
    assert [said for said in came.driver.said if "with 8 rows of" in said], came.driver.said
    came.tick({"s": rows})
    with pytest.raises(StateError, match="second went"):
        opened([first], store)
    with pytest.raises(StateError, match="first changed"):
        opened([first.replace("+ 25", "+ 26"), second], store)
    changed = opened([first.replace("+ 25", "+ 26"), second], store, change=True)
    changed.tick({"s": rows, "u": rows})
    changes = (
        first.replace("INSERT INTO first SELECT", "INSERT INTO third SELECT")
        .replace("MAPPING first", "MAPPING third")
        .replace(";\nINSERT", ";\nINSERT")
        .rstrip()
        .rstrip(";")
        + " EMIT CHANGES;\n"
    )
    with pytest.raises(StateError, match="puts out changes"):
        opened([first.replace("+ 25", "+ 26"), second, changes], store, change=True)


def test_the_files_of_a_query_that_went_go() -> None:
    rng = random.Random(2)
    first = query(rng, "first")
    other = first.replace("first", "second").replace(".k =", ".w =").replace(".k AND", ".w AND")
    store = MemoryStore()
    job = opened([first, other], store)
    rows = [({"k": 1, "t": number, "n": number, "w": 1}, 1) for number in range(8)]
    job.tick({"s": rows, "u": rows})
    both = set(store.names("runs"))
    job = opened([first], store, change=True)
    assert set(store.names("runs")) == both
    job.tick({})
    assert both <= set(store.names("runs"))  # the manifest before it is whole
    job.tick({})
    assert 0 < len(store.names("runs")) < len(both)
