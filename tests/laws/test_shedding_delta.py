"""Laws of shedding by delta joins of three streams, against a plain join that keeps lists of rows: of rows
that are kept once more, under another key, both go. Shed rows meet nothing any more; the oldest rows go, no
more than have to, and are told once; the account adds up. By tasks whose number changes, with crashes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.shed_joins import (
    AFTER,
    BEFORE,
    LAG,
    NEVER,
    Row,
    run_tick_with_crash,
    ticks,
    up_to_the_last,
)
from tests.support.ticks import arriving
from watersmeet.event_time import ENDED
from watersmeet.observe.reports import account_of
from watersmeet.parser.statements import parse_job
from watersmeet.plan.model.nodes import ArrangePlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

NAMES = ("a", "b", "c")
MOST = 14
BAND = f"BETWEEN a.t - {BEFORE} AND a.t + {AFTER}"


def plan_delta_join(limits: str = f"SET max_rows = {MOST};", of_b: str = "") -> Any:
    """``of_b``: further options of that source. The rows of "b" are looked up by two keys, with a copy."""
    declared = "".join(
        f"CREATE TABLE {name} (k STRING, m BIGINT, t BIGINT, i BIGINT, WATERMARK FOR t AS t - {LAG})"
        f" WITH ('connector' = 'memory'{of_b if name == 'b' else ''});"
        for name in NAMES
    )
    plan = plan_job(
        parse_job(
            f"{limits} SET at_limit = shed_oldest; SET plan = delta; {declared}"
            "CREATE SINK q WITH ('connector' = 'memory');"
            "INSERT INTO q SELECT a.i AS ai, b.i AS bi, c.i AS ci FROM a"
            f" JOIN b ON a.k = b.k AND b.t {BAND} JOIN c ON c.m = b.m AND c.t {BAND};"
        )
    )
    (arranged,) = plan.queries[0].every(ArrangePlan)
    assert [side.copy_of for side in arranged.sides] == [None, None, None, "b"]
    return plan


@dataclass
class PlainChain:
    kept: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in NAMES})
    marks: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, NEVER))

    def tick(self, rows: dict[str, list[Row]], *, end: bool) -> Counter[Any]:
        seen = {row["i"] for own in self.kept.values() for row in own}
        for name in NAMES:
            self.kept[name] += [row for row in rows[name] if row["t"] >= self.marks[name]]
            self.marks[name] = max([self.marks[name], *(row["t"] - LAG for row in rows[name])])
            self.marks[name] = ENDED if end else self.marks[name]
        out: Counter[Any] = Counter()
        for a in self.kept["a"]:
            near = {
                name: [row for row in self.kept[name] if -BEFORE <= row["t"] - a["t"] <= AFTER]
                for name in "bc"
            }
            for b in (row for row in near["b"] if row["k"] == a["k"]):
                for c in (row for row in near["c"] if row["m"] == b["m"]):
                    if not {a["i"], b["i"], c["i"]} <= seen:
                        out[a["i"], b["i"], c["i"]] += 1
        of_a, of_b, of_c = (self.marks[name] for name in NAMES)
        limits = {
            "a": min(of_b, of_c) - AFTER,
            "b": min(of_a - BEFORE, of_c - BEFORE - AFTER),
            "c": min(of_a - BEFORE, of_b - BEFORE - AFTER),
        }
        for name, limit in limits.items():
            self.kept[name] = [row for row in self.kept[name] if row["t"] >= limit]
        return out


def rows_of(seed: int, count: int) -> list[dict[str, list[Row]]]:
    made = []
    for tick, other in zip(ticks(seed, count), ticks(seed + 1, count), strict=True):
        rows = {"a": tick["l"], "b": tick["r"], "c": [row | {"i": row["i"] + 10_000} for row in other["r"]]}
        made.append({name: [row | {"m": row["i"] % 3} for row in own] for name, own in rows.items()})
    return made


def check(plan: Any, seed: int, *, whose: str = "abc", nbytes: bool = False, crashes: bool = False) -> Any:
    """How many rows were shed, per input. ``whose``: of which inputs the limit is."""
    store, random, plain, total = MemoryStore(), np.random.default_rng(seed), PlainChain(), Counter[str]()
    given = rows_of(seed, 14)
    for number, rows in enumerate([*given, {name: [] for name in NAMES}]):
        end = number == len(given)
        _, output, seen = run_tick_with_crash(
            plan, "shed_oldest", store, random, rows, end=end, crashes=crashes
        )
        expected = plain.tick(rows, end=end)
        assert Counter(tuple(row.values()) for row in output.rows["q"]) == expected, number
        shed = {(alias, row["i"]) for alias, row in output.shed}
        assert len(shed) == len(output.shed), "a row was shed twice"
        assert seen is None or {(alias, row["i"]) for alias, row in seen} == shed
        every = [row | {"i": (name, row["i"])} for name in whose for row in plain.kept[name]]
        if nbytes:
            last = max((row["t"] for row in every if row["i"] in shed), default=NEVER)
            assert shed == {row["i"] for row in every if row["t"] <= last}
        else:
            assert shed == up_to_the_last(every, len(every) - MOST)
        for name in NAMES:
            plain.kept[name] = [row for row in plain.kept[name] if (name, row["i"]) not in shed]
        result = output.result.queries["q"]
        assert result.state == {name: len(plain.kept[name]) for name in NAMES}
        assert account_of(output.result).adds_up()
        assert not result.shed_joined
        total.update(alias for alias, _ in shed)
    return total


def test_rows_are_those_of_the_join_without_shed_rows(seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    assert set(check(plan_delta_join(), seed, crashes=True)) == set(NAMES)


@pytest.mark.full
def test_at_bytes(seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    assert set(check(plan_delta_join("SET max_bytes = 30000;"), seed, nbytes=True, crashes=True)) == set(
        NAMES
    )


def test_files_exceed_the_byte_limit_by_at_most_a_fifth():
    """What was shed in one tick is cleared away in the next, but for a fifth of what may be kept."""
    most, cleared = 60_000, 0
    job = LocalJob(plan_delta_join(f"SET max_bytes = {most};"), MemoryStore(), partitions=2)
    for tick in range(8):
        wide = [{"k": f"{tick} {'k' * 3_000}", "m": 0, "t": tick + 2 * i, "i": i} for i in range(9)]
        shed = job.tick(arriving(b=wide, c=wide)).shed
        job.tick({})
        held = sum(live.run.nbytes for live in job.driver.manifest.runs())
        assert held <= 1.2 * most
        cleared += len(shed)
    assert cleared > 40


@pytest.mark.full
def test_source_limit_applies_to_rows_stored_under_two_keys(seed):
    plan = plan_delta_join("", f", 'max_rows' = '{MOST}'")
    assert set(check(plan, seed, whose="b")) == {"b"}
