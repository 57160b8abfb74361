"""Joins that shed rows (SET at_limit), and a plain join to judge them by, which keeps lists of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.ticks import arriving, check_account
from watersmeet.event_time import ENDED
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.tick_phases import RunningTick
from watersmeet.runtime.local import LocalJob, StepOutput
from watersmeet.runtime.local.tick import SinkStaging, read_side_outputs
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


def plan_shedding_join(
    kind: str, at_limit: str, *, keyed: bool = True, hint: str = "", limits: str = f"SET max_rows = {MOST};"
) -> Any:
    """``limits``: settings."""
    columns = "l.i AS li" if kind in ("LEFT SEMI", "LEFT ANTI") else "l.i AS li, r.i AS ri"
    on = f"l.k = r.k AND {BAND}" if keyed else BAND
    return plan_job(
        parse_job(
            f"{limits} SET at_limit = {at_limit}; {DECLARED}"
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
    marks: dict[str, float] = field(default_factory=lambda: {"l": NEVER, "r": NEVER})
    matched: set[int] = field(default_factory=set)

    def tick(self, rows: dict[str, list[Row]], *, end: bool, left_mark: float | None = None) -> Counter[Any]:
        """What goes out; afterwards ``kept`` are the rows before any is shed. ``left_mark``: the watermark of
        left rows that a join makes, which are never late."""
        out: Counter[Any] = Counter()
        fed = () if left_mark is None else ("l",)
        new = {
            name: [row for row in own if name in fed or row["t"] >= self.marks[name]]
            for name, own in rows.items()
        }
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
            came = [row["t"] - LAG for row in own] if left_mark is None or name != "l" else [left_mark]
            self.marks[name] = max([self.marks[name], *came])
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

    def excess(self, most: int = MOST) -> int:
        return sum(map(len, self.kept.values())) - most

    def oldest(self, most: int = MOST) -> set[int]:
        """Those to be shed of more rows."""
        every = [row for own in self.kept.values() for row in own]
        return up_to_the_last(every, self.excess(most))

    def check_heaviest(self, shed: set[int], most: int = MOST) -> None:
        """They are all rows of some keys, none of which has fewer rows than one that stays, and no key too
        many. Of keys with as many rows any may be."""
        rows: dict[str, set[int]] = {}
        for row in (row for own in self.kept.values() for row in own):
            rows.setdefault(row["k"], set()).add(row["i"])
        gone = {key for key, own in rows.items() if own & shed}
        assert shed == set().union(*(rows[key] for key in gone))
        assert bool(shed) == (self.excess(most) > 0)
        if shed:
            least = min(len(rows[key]) for key in gone)
            assert all(len(rows[key]) <= least for key in rows.keys() - gone)
            assert len(shed) - least < self.excess(most)

    def crowding(self, at_limit: str, most: int) -> set[int]:
        """Those to be shed of keys of a side with more rows."""
        gone: set[int] = set()
        for own in self.kept.values():
            for key in {row["k"] for row in own}:
                of_key = [row for row in own if row["k"] == key]
                if at_limit == "shed_oldest":
                    gone |= up_to_the_last(of_key, len(of_key) - most)
                elif len(of_key) > most:
                    gone |= {row["i"] for row in of_key}
        return gone

    def shed(self, numbers: set[int]) -> None:
        for name, own in self.kept.items():
            self.kept[name] = [row for row in own if row["i"] not in numbers]


def up_to_the_last(rows: list[Row], excess: int) -> set[int]:
    """The ``excess`` oldest of them, and all that are as old as the last of these."""
    if excess <= 0:
        return set()
    last = sorted(row["t"] for row in rows)[excess - 1]
    return {row["i"] for row in rows if row["t"] <= last}


def ticks(seed: int, count: int = 25, width: int = 0) -> list[dict[str, list[Row]]]:
    """Times go on by about as much as the band is wide while too many rows come; some ticks are empty.

    Args:
        width: how many letters more the keys have; the next one as many more than the one before.
    """
    random, number, made = np.random.default_rng(seed), 0, []
    for tick in range(count):
        rows: dict[str, list[Row]] = {"l": [], "r": []}
        for name, own in rows.items():
            drawn = int(random.choice([0, 2, 5, 14]))
            for _ in range(40 if tick == count // 2 else drawn):  # once enough for every join to shed some
                number += 1
                time = 3 * tick + int(random.integers(-6, 7)) - (8 if name == "r" else 0)
                key = int(random.zipf(1.6)) % 9
                own.append({"k": f"k{key}" + width * key * "x", "t": time, "i": number})
        made.append(rows)
    return made


def shed_in(files: Any) -> list[tuple[str, int]]:
    return sorted((alias, row["i"]) for alias, row in files)


def run_tick_with_crash(
    plan: Any,
    at_limit: str,
    store: MemoryStore,
    random: np.random.Generator,
    rows: dict[str, list[Row]],
    *,
    end: bool,
    crashes: bool,
) -> tuple[LocalJob, StepOutput, list[Any] | None]:
    """A tick by a job of its own, in some tasks; if it ``crashes``, the repeat of one, in others, that was
    gone when its rows were out, and what that one had shed, as of `StepOutput.shed`."""
    seen: list[Any] | None = None
    attempted = LocalJob(plan, store, partitions=int(random.integers(1, 4)))

    def crash(tick: RunningTick, _: Any) -> Any:
        nonlocal seen
        seen = [row for query in plan.queries for row in read_side_outputs(tick, query, at_limit)]
        raise Crash

    if crashes:
        with pytest.raises(Crash):
            attempted.tick(arriving(**rows), end=end, to_sinks=SinkStaging(crash))
    job = LocalJob(plan, store, partitions=int(random.integers(1, 4)))
    return job, job.tick(arriving(**rows), end=end), seen


Judge = Callable[[Plain, set[int]], None]
"""Whether a tick has shed the rows that it should have: of the join before they go."""


def by_rows(at_limit: str) -> Judge:
    """Those of more than `MOST` rows."""

    def judge(plain: Plain, shed: set[int]) -> None:
        if at_limit == "shed_oldest":
            assert shed == plain.oldest()
        else:
            plain.check_heaviest(shed)
        assert sum(map(len, plain.kept.values())) - len(shed) <= MOST

    return judge


def check(
    plan: Any,
    plain: Plain,
    at_limit: str,
    seed: int,
    *,
    judge: Judge | None = None,
    crashes: bool = False,
    width: int = 0,
    after: Callable[[LocalJob, StepOutput], None] = lambda job, output: None,
) -> int:
    """Every tick by a job of its own, with other tasks; how many rows were shed. ``judge``: None: `by_rows`.
    ``after``: what is asked of each tick besides."""
    judge = judge or by_rows(at_limit)
    store, total, random = MemoryStore(), 0, np.random.default_rng(seed)
    given = ticks(seed, width=width)
    none: dict[str, list[Row]] = {"l": [], "r": []}
    for number, rows in enumerate([*given, none]):
        end = number == len(given)
        job, output, seen = run_tick_with_crash(plan, at_limit, store, random, rows, end=end, crashes=crashes)
        expected = plain.tick(rows, end=end)
        assert Counter(tuple(row.values()) for row in output.rows["q"]) == expected, number
        shed = shed_in(output.shed)
        numbers = {i for _, i in shed}
        assert len(numbers) == len(shed)
        judge(plain, numbers)
        assert seen is None or shed_in(seen) == shed, "a repeated tick shed other rows"
        plain.shed(numbers)
        assert output.result.queries["q"].state == {name: len(own) for name, own in plain.kept.items()}
        check_account(output)
        counts = output.result.queries["q"].counts
        assert {alias: own.get("shed", 0) for alias, own in counts.items()} == {
            alias: sum(alias == name for name, _ in shed) for alias in counts
        }
        after(job, output)
        total += len(shed)
    assert not any(plain.kept.values())
    return total
