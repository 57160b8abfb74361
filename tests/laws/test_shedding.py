"""Laws of shedding (SET at_limit), against a plain join in Python that keeps lists of rows.

A tick's rows are those of the join over the rows that were not shed by then; a shed row is never padded nor
put out by ANTI; no more than ``max_rows`` are kept after any tick; what is shed is what the setting says; and
the account adds up. All of it by one to three tasks that change from tick to tick, with keys split, with
merges all the time, with a new job for each tick, and with ticks that crashed before their commit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.split_keys import split_every_key
from tests.support.ticks import arriving, check_account
from watersmeet.engine.driver import merge_policy
from watersmeet.engine.driver.settling import shedding
from watersmeet.engine.local import LocalJob
from watersmeet.event_time import ENDED
from watersmeet.front.sql import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.state.store import MemoryStore

KINDS = ["INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"]
BEFORE, AFTER, LAG, MOST = 12, 30, 4, 15
NEVER = -(1 << 40)
DECLARED = "".join(
    f"CREATE TABLE {name} (k STRING, t BIGINT, i BIGINT, WATERMARK FOR t AS t - {LAG})"
    " WITH ('connector' = 'memory');"
    for name in ("l", "r")
)
BAND = f"r.t BETWEEN l.t - {BEFORE} AND l.t + {AFTER} AND l.i + r.i > 0"
"""The last condition has the numbers of both sides kept."""

Row = dict[str, Any]


class Crash(Exception):
    """The job is gone, after its tasks ran and before anything was committed."""


def planned(kind: str, at_limit: str, *, keyed: bool = True, hint: str = "", most: int = MOST) -> Any:
    columns = "l.i AS li" if kind in ("LEFT SEMI", "LEFT ANTI") else "l.i AS li, r.i AS ri"
    on = f"l.k = r.k AND {BAND}" if keyed else BAND
    return plan_job(
        parse_job(
            f"SET max_rows = {most}; SET at_limit = {at_limit}; {DECLARED}"
            f"CREATE SINK q WITH ('connector' = 'memory');"
            f"INSERT INTO q SELECT {hint} {columns} FROM l {kind} JOIN r ON {on};"
        )
    )


@dataclass
class Plain:
    """The join, row by row."""

    kind: str
    keyed: bool
    kept: dict[str, list[Row]] = field(default_factory=lambda: {"l": [], "r": []})
    marks: dict[str, int] = field(default_factory=lambda: {"l": NEVER, "r": NEVER})
    matched: set[int] = field(default_factory=set)

    def tick(self, rows: dict[str, list[Row]], *, end: bool) -> Counter[Any]:
        """What goes out; afterwards ``kept`` are the rows before any is shed."""
        out: Counter[Any] = Counter()
        new = {name: [row for row in own if row["t"] >= self.marks[name]] for name, own in rows.items()}
        seen = {row["i"] for own in self.kept.values() for row in own}
        for left in [*self.kept["l"], *new["l"]]:
            for right in [*self.kept["r"], *new["r"]]:
                if left["i"] in seen and right["i"] in seen:
                    continue
                same = left["k"] == right["k"] or not self.keyed
                if not same or not -BEFORE <= right["t"] - left["t"] <= AFTER:
                    continue
                if self.kind == "LEFT SEMI" and left["i"] not in self.matched:
                    out[left["i"],] += 1
                elif self.kind not in ("LEFT SEMI", "LEFT ANTI"):
                    out[left["i"], right["i"]] += 1
                self.matched |= {left["i"], right["i"]}
        for name, own in rows.items():
            self.marks[name] = max([self.marks[name], *(row["t"] - LAG for row in own)])
            self.kept[name] += new[name]
            if end:
                self.marks[name] = ENDED
        limits = {"l": self.marks["r"] - AFTER, "r": self.marks["l"] - BEFORE}
        pads = {"l": ("LEFT", "FULL", "LEFT ANTI"), "r": ("RIGHT", "FULL")}
        for name, limit in limits.items():
            for row in self.kept[name]:
                if row["t"] < limit and row["i"] not in self.matched and self.kind in pads[name]:
                    out[
                        (row["i"],)
                        if self.kind == "LEFT ANTI"
                        else (row["i"], None)
                        if name == "l"
                        else (None, row["i"])
                    ] += 1
            gone = self.matched if self.kind == "LEFT SEMI" and name == "l" else set()
            self.kept[name] = [row for row in self.kept[name] if row["t"] >= limit and row["i"] not in gone]
        return out

    def excess(self) -> int:
        return sum(map(len, self.kept.values())) - MOST

    def oldest(self) -> set[int]:
        if self.excess() <= 0:
            return set()
        every = [row for own in self.kept.values() for row in own]
        last = sorted(row["t"] for row in every)[self.excess() - 1]
        return {row["i"] for row in every if row["t"] <= last}

    def check_heaviest(self, shed: set[int]) -> None:
        """They are all rows of some keys, none of which has fewer rows than one that stays, and no key too
        many. Of keys with as many rows any may be."""
        rows: dict[str, set[int]] = {}
        for row in (row for own in self.kept.values() for row in own):
            rows.setdefault(row["k"], set()).add(row["i"])
        gone = {key for key, own in rows.items() if own & shed}
        assert shed == set().union(*(rows[key] for key in gone))
        assert bool(shed) == (self.excess() > 0)
        if shed:
            least = min(len(rows[key]) for key in gone)
            assert all(len(rows[key]) <= least for key in rows.keys() - gone)
            assert len(shed) - least < self.excess()

    def shed(self, numbers: set[int]) -> None:
        for name, own in self.kept.items():
            self.kept[name] = [row for row in own if row["i"] not in numbers]


def ticks(seed: int, count: int = 25) -> list[dict[str, list[Row]]]:
    """Times go on by about as much as the band is wide while too many rows come; some ticks are empty."""
    random, number, made = np.random.default_rng(seed), 0, []
    for tick in range(count):
        rows: dict[str, list[Row]] = {"l": [], "r": []}
        for name, own in rows.items():
            for _ in range(int(random.choice([0, 2, 5, 14]))):
                number += 1
                time = 3 * tick + int(random.integers(-6, 7)) - (8 if name == "r" else 0)
                own.append({"k": f"k{int(random.zipf(1.6)) % 9}", "t": time, "i": number})
        made.append(rows)
    return made


def shed_in(files: Any) -> list[tuple[str, int]]:
    return sorted((alias, row["i"]) for alias, row in files)


def check(plan: Any, plain: Plain, at_limit: str, seed: int, *, crashes: bool = False) -> int:
    """Every tick by a job of its own, with other tasks; how many rows were shed."""
    store, total, random = MemoryStore(), 0, np.random.default_rng(seed)
    given = ticks(seed)
    for number, rows in enumerate([*given, {"l": [], "r": []}]):
        end = number == len(given)
        seen: list[Any] = []

        attempted = LocalJob(plan, store, partitions=int(random.integers(1, 4)))

        def crash(*_: Any, seen: list[Any] = seen, attempted: LocalJob = attempted) -> Any:
            seen.append(Counter(shed_in(attempted._aside(plan.queries[0], at_limit))))
            raise Crash

        if crashes:
            with pytest.raises(Crash):
                attempted.tick(arriving(**rows), end=end, put_out=crash)
        job = LocalJob(plan, store, partitions=int(random.integers(1, 4)))
        output = job.tick(arriving(**rows), end=end)
        expected = plain.tick(rows, end=end)
        assert Counter(tuple(row.values()) for row in output.rows["q"]) == expected, number
        shed = shed_in(output.shed)
        numbers = {i for _, i in shed}
        assert len(numbers) == len(shed)
        if at_limit == "shed_oldest":
            assert numbers == plain.oldest()
        else:
            plain.check_heaviest(numbers)
        assert not seen or seen == [Counter(shed)], "a repeated tick shed other rows"
        plain.shed(numbers)
        state = output.result.queries["q"].state
        assert state == {name: len(own) for name, own in plain.kept.items()}
        assert sum(state.values()) <= MOST
        check_account(output)
        counts = output.result.queries["q"].counts
        assert {alias: own.get("shed", 0) for alias, own in counts.items()} == {
            alias: sum(alias == name for name, _ in shed) for alias in counts
        }
        total += len(shed)
    assert not any(plain.kept.values())
    return total


@pytest.mark.parametrize("at_limit", ["shed_oldest", "shed_heaviest"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_join_without_shed_rows(kind, at_limit, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    assert check(planned(kind, at_limit), Plain(kind, True), at_limit, seed) > 0


@pytest.mark.parametrize("at_limit", ["shed_oldest", "shed_heaviest"])
@pytest.mark.parametrize("kind", ["LEFT", "LEFT ANTI", "FULL"])
def test_with_crashes_and_split_keys(kind, at_limit, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    split_every_key(monkeypatch)
    assert check(planned(kind, at_limit), Plain(kind, True), at_limit, seed, crashes=True) > 0


@pytest.mark.parametrize("kind", ["FULL", "LEFT SEMI", "LEFT ANTI"])
def test_without_a_key(kind, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    plan = planned(kind, "shed_oldest", keyed=False)
    assert check(plan, Plain(kind, False), "shed_oldest", seed) > 0


def test_the_oldest_by_a_number_and_by_a_timestamp():
    """Sides that have both, each in another order: one is not older for its number being less than µs."""
    declared = "".join(
        f"CREATE TABLE {name} (i BIGINT, {times}, WATERMARK FOR n AS n - 9,"
        " WATERMARK FOR t AS t - INTERVAL '9' DAYS) WITH ('connector' = 'memory');"
        for name, times in (("l", "n BIGINT, t TIMESTAMP"), ("r", "t TIMESTAMP, n BIGINT"))
    )
    on = "r.n BETWEEN l.n - 9 AND l.n + 9 AND r.t BETWEEN l.t - INTERVAL '9' DAYS AND l.t + INTERVAL '9' DAYS"
    plan = plan_job(
        parse_job(
            f"SET max_rows = 4; SET at_limit = shed_oldest; {declared}"
            "CREATE SINK q WITH ('connector' = 'memory');"
            f"INSERT INTO q SELECT l.i, r.i AS j FROM l JOIN r ON {on} AND l.i + r.i < 0;"
        )
    )
    rows = [{"i": i, "n": i, "t": f"2022-03-0{i}T00:00:00"} for i in range(1, 5)]
    output = LocalJob(plan, MemoryStore()).tick(arriving(l=rows, r=rows))
    assert shed_in(output.shed) == [("l", 1), ("l", 2), ("r", 1), ("r", 2)]


@pytest.mark.parametrize("side", ["l", "r"])
@pytest.mark.parametrize("kind", ["FULL", "LEFT ANTI"])
def test_with_a_broadcast_side(kind, side, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    plan = planned(kind, "shed_oldest", hint=f"/*+ BROADCAST({side}) */")
    assert check(plan, Plain(kind, True), "shed_oldest", seed) > 0


def test_wide_rows_are_written_a_few_at_a_time(monkeypatch):
    """The driver holds no more of them at once than a task would."""
    monkeypatch.setattr(shedding, "output_bytes", lambda memory: 5_000)
    job = LocalJob(planned("LEFT", "shed_oldest", most=2), MemoryStore())
    files = []

    def put_out(*_: Any) -> Any:
        files.extend(file for of_side in job.driver.aside("q").values() for file in of_side)
        raise Crash

    rows = [{"k": "k" * 2_000, "t": number, "i": number} for number in range(12)]
    with pytest.raises(Crash):
        job.tick(arriving(l=rows, r=[]), put_out=put_out)
    assert sum(file.rows for file in files) == 10
    assert max(file.rows for file in files) == 2
