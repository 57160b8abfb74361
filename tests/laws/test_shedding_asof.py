"""Laws of shedding by ASOF joins, against a plain one that keeps lists of rows: which left rows leave in
which tick, and with whom. A left row is never given a right row while a nearer one may have been shed: it
finds none. Shed left rows leave no more; nothing older than what was shed is kept; the account adds up. By
tasks whose number changes, with merges all the time and ticks that crashed before their commit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.effort import at_effort
from tests.support.shed_joins import LAG, NEVER, Row, run_tick_with_crash, ticks
from tests.support.ticks import arriving, check_account
from watersmeet.event_time import ENDED
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

WITHIN = 9
SHED = "SET at_limit = shed_oldest;"
BACK = f"l.t >= r.t AND r.t >= l.t - {WITHIN}"
CONDITIONS = {"back": "l.t >= r.t", "back within": BACK, "ahead": f"l.t <= r.t AND r.t <= l.t + {WITHIN}"}


def plan_asof_join(which: str, kind: str, limits: str, of_left: str = "", of_right: str = "") -> Any:
    """``limits``: settings. ``of_left``, ``of_right``: further options of the sources."""
    declared = "".join(
        f"CREATE TABLE {name} (k STRING, t BIGINT, i BIGINT, WATERMARK FOR t AS t - {LAG})"
        f" WITH ('connector' = 'memory'{more});"
        for name, more in (("l", of_left), ("r", of_right))
    )
    match, _, within = CONDITIONS[which].partition(" AND ")
    on = "l.k = r.k" + (f" AND {within}" if within else "")
    return plan_job(
        parse_job(
            f"{limits} {declared} CREATE SINK q WITH ('connector' = 'memory');"
            f"INSERT INTO q SELECT l.i AS li, r.i AS ri FROM l ASOF {kind} JOIN r"
            f" MATCH_CONDITION ({match}) ON {on};"
        )
    )


@dataclass
class PlainAsof:
    """``shed``: up to it right rows were shed."""

    which: str
    padded: bool
    left: list[Row] = field(default_factory=list)
    right: list[Row] = field(default_factory=list)
    marks: dict[str, float] = field(default_factory=lambda: {"l": NEVER, "r": NEVER})
    shed: float = NEVER

    def found(self, left: Row, low: float, high: float) -> Row | None:
        if self.which == "ahead" and low <= self.shed:
            return None
        near = [
            row
            for row in self.right
            if row["k"] == left["k"] and low <= row["t"] <= high and row["t"] > self.shed
        ]
        if not near:
            return None
        sign = 1 if self.which == "ahead" else -1
        return min(near, key=lambda row: sign * row["t"])  # of equal times that which came first

    def tick(self, rows: dict[str, list[Row]], *, end: bool) -> Counter[Any]:
        for name, own in (("l", self.left), ("r", self.right)):
            own += [row for row in rows[name] if row["t"] >= self.marks[name]]
        for name in "lr":
            self.marks[name] = max([self.marks[name], *(row["t"] - LAG for row in rows[name])])
            if end:
                self.marks[name] = ENDED
        out: Counter[Any] = Counter()
        waiting = []
        for row in self.left:
            low, high = (
                (row["t"], row["t"] + WITHIN)
                if self.which == "ahead"
                else (row["t"] - WITHIN if "within" in self.which else NEVER, row["t"])
            )
            found = self.found(row, low, high)
            decided = high < self.marks["r"]
            if found is not None and self.which == "ahead":
                decided |= found["t"] == low or found["t"] <= self.marks["r"]
            elif found is not None:
                decided |= found["t"] == high
            if not decided:
                waiting.append(row)
            elif found is not None or self.padded:
                out[row["i"], None if found is None else found["i"]] += 1
        self.left = waiting
        return out


def check(
    plan: Any, plain: PlainAsof, most: int, seed: int, *, crashes: bool = False, whose: str = "lr"
) -> Any:
    """How many rows were shed, per side. ``whose``: of which sides the limit is."""
    store, random, total = MemoryStore(), np.random.default_rng(seed), Counter[str]()
    given = ticks(seed, count=30)
    none: dict[str, list[Row]] = {"l": [], "r": []}
    for number, rows in enumerate([*given, none]):
        end = number == len(given)
        _, output, seen = run_tick_with_crash(
            plan, "shed_oldest", store, random, rows, end=end, crashes=crashes
        )
        expected = plain.tick(rows, end=end)
        assert Counter(tuple(row.values()) for row in output.rows["q"]) == expected, number
        shed = [(alias, row["i"], row["t"]) for alias, row in output.shed]
        assert len(set(shed)) == len(shed)
        assert seen is None or sorted((a, row["i"], row["t"]) for a, row in seen) == sorted(shed)

        state = output.result.queries["q"].state
        assert state["l"] == len(plain.left) - sum(alias == "l" for alias, _, _ in shed)
        kept = sum(state[name] for name in whose)
        assert kept <= most
        assert {alias for alias, _, _ in shed} <= set(whose)
        if shed:
            last = max(time for _, _, time in shed)
            assert sum(time < last for _, _, time in shed) < kept + len(shed) - most, "too many are shed"
            gone = {i for alias, i, _ in shed if alias == "l"}
            assert gone == {row["i"] for row in plain.left if row["t"] <= last and "l" in whose}
            plain.left = [row for row in plain.left if row["i"] not in gone]
            if any(alias == "r" for alias, _, _ in shed):
                plain.shed = max(plain.shed, last)
        check_account(output)
        total.update(alias for alias, _, _ in shed)
    assert not plain.left
    return total


@pytest.mark.parametrize("kind", at_effort(quick=["LEFT"], full=["", "LEFT"]))
@pytest.mark.parametrize("which", at_effort(quick=["back within"], full=CONDITIONS))
def test_a_left_row_takes_the_nearest_right_row_or_none(which, kind, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    plan = plan_asof_join(which, kind, f"{SHED} SET max_rows = 9;")
    total = check(plan, PlainAsof(which, kind == "LEFT"), 9, seed, crashes=kind == "LEFT")
    assert total["l"] > 0 < total["r"]


@pytest.mark.parametrize("which", at_effort(quick=["back within"], full=CONDITIONS))
def test_at_a_limit_of_the_right_source(which, seed, monkeypatch):
    """Left rows of the same times stay, and find none."""
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    plan = plan_asof_join(which, "LEFT", SHED, of_right=", 'max_rows' = '5'")
    total = check(plan, PlainAsof(which, True), 5, seed, crashes=True, whose="r")
    assert total["r"] > 0


def test_at_a_limit_of_the_left_source_no_answer_is_lost(seed):
    plan = plan_asof_join("back", "LEFT", SHED, of_left=", 'max_rows' = '5'")
    plain = PlainAsof("back", True)
    assert check(plan, plain, 5, seed, whose="l")["l"] > 0
    assert plain.shed == NEVER


def test_late_arrival_is_not_matched_in_place_of_a_nearer_shed_row():
    """It is on time, and further away. So it is when the job sheds no more."""
    store = MemoryStore()
    job = LocalJob(plan_asof_join("back", "LEFT", f"{SHED} SET max_rows = 1;"), store)

    def rows(*times: int) -> list[Row]:
        return [{"k": "k", "t": time, "i": time} for time in times]

    assert [row["i"] for _, row in job.tick(arriving(r=rows(9, 10))).shed] == [9]
    assert [row["i"] for _, row in job.tick(arriving(l=rows(14), r=rows(12))).shed] == [10, 12]
    again = LocalJob(plan_asof_join("back", "LEFT", ""), store)
    last = again.tick(arriving(r=rows(8, 11)), end=True)
    assert last.rows["q"] == [{"li": 14, "ri": None}]
    check_account(last)
