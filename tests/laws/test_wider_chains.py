"""Chains of joins that accept more and more, over one state, and inputs of which one is far ahead of others:
from the times on that the job tells the results are those that the last query has over all rows, and no row
goes out alone that has a partner.

The oracle is a batch join of all rows by nested loops, of the queries as they were and are.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest

import watersmeet
from tests.laws.test_narrower_queries import Condition, KilledError, Killing, Row
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import PlanError

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=3, full=40)
LAG = 6
NAMES = "abcd"
KINDS = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
SOURCES = "".join(
    f"CREATE MAPPING s{name} (k INT, t BIGINT, n INT, w INT, WATERMARK FOR t AS t - {LAG}) "
    f"TYPE File OPTIONS ('path' = 'in/{name}', 'format' = 'json');\n"
    for name in NAMES
)
Found = tuple[Row | None, ...]


class Join:
    """Of one more input, ``conditions``: per input before that is asked, by its place."""

    def __init__(self, kind: str, conditions: dict[int, Condition]) -> None:
        self.kind, self.conditions = kind, conditions

    def text(self, place: int) -> str:
        on = " AND ".join(c.text(NAMES[of], NAMES[place]) for of, c in self.conditions.items())
        return f" {self.kind} s{NAMES[place]} {NAMES[place]} ON {on}"

    def holds(self, left: Found, right: Row) -> bool:
        rows = [(left[of], condition) for of, condition in self.conditions.items()]
        return all(row is not None and condition.holds(row, right) for row, condition in rows)

    def wider(self, rng: random.Random) -> Join:
        return Join(self.kind, {of: _wider(rng, own) for of, own in self.conditions.items()})


def _wider(rng: random.Random, old: Condition) -> Condition:
    low = old.low - rng.choice([0, 0, rng.randrange(15), rng.randrange(40)])
    high = old.high + rng.choice([0, 0, rng.randrange(15), rng.randrange(40)])
    return Condition(low, high, rng.choice([old.more, old.more, None]))


def text_of(joins: list[Join]) -> str:
    names = NAMES[: len(joins) + 1]
    text = "CREATE MAPPING o TYPE File OPTIONS ('path' = 'out/o', 'format' = 'json');\nINSERT INTO o SELECT "
    text += ", ".join(f"{name}.n AS n{name}, {name}.w AS w{name}" for name in names) + " FROM sa a"
    return text + "".join(join.text(place) for place, join in enumerate(joins, 1)) + ";\n"


def open_job(joins: list[Join], store: MemoryStore, *, change: bool = False) -> LocalJob:
    plan = watersmeet.plan_job(watersmeet.parse_job(SOURCES + text_of(joins)))
    return LocalJob(plan, store, change_queries=change)


def batch(rows: dict[str, list[Row]], joins: list[Join]) -> list[Found]:
    lefts: list[Found] = [(row,) for row in rows["a"]]
    for place, join in enumerate(joins, 1):
        rights, pairs = rows[NAMES[place]], list[Found]()
        matched_left, matched_right = set[int](), set[int]()
        for number, left in enumerate(lefts):
            for right in rights:
                if join.holds(left, right):
                    pairs.append((*left, right))
                    matched_left.add(number)
                    matched_right.add(right["n"])
        if join.kind in ("LEFT JOIN", "FULL JOIN"):
            pairs += [(*left, None) for number, left in enumerate(lefts) if number not in matched_left]
        if join.kind in ("RIGHT JOIN", "FULL JOIN"):
            pairs += [(*[None] * place, right) for right in rights if right["n"] not in matched_right]
        lefts = pairs
    return lefts


def numbers(found: list[Found]) -> Counter[tuple[int | None, ...]]:
    return Counter(tuple(None if row is None else row["n"] for row in rows) for rows in found)


def complete_from(job: LocalJob) -> dict[str, float]:
    assert job.driver.manifest is not None
    return job.driver.manifest.queries["o"].complete_from


def joins_of(rng: random.Random) -> list[Join]:
    joins = []
    for place in range(1, rng.choice([1, 2, 2, 3]) + 1):
        conditions = {}
        for of in rng.sample(range(place), rng.choice([1, 1, min(2, place)])):
            low = rng.choice([-12, -5, 0])
            conditions[of] = Condition(low, low + rng.choice([6, 20]), rng.choice([None, None, 2]))
        joins.append(Join(rng.choice(KINDS), conditions))
    return joins


def ticks_of(rng: random.Random, names: str, count: int) -> list[dict[str, list[Row]]]:
    """No row is late; of some inputs all rows come some ticks later."""
    late = {name: rng.choice([0, 0, 3, 6]) for name in names}
    now, numbered, keys = 0, itertools.count(1), rng.choice([2, 6, 15])
    ticks: list[dict[str, list[Row]]] = [{name: [] for name in names} for _ in range(count)]
    for tick in range(count):
        now += rng.randrange(9)
        for name in names:
            for _ in range(rng.randrange(4)):
                row = {"k": rng.randrange(keys), "t": now - rng.randrange(LAG), "w": rng.randrange(4)}
                ticks[min(tick + late[name], count - 1)][name].append({**row, "n": next(numbered)})
    return ticks


def build_tick_input(rows: dict[str, list[Row]]) -> dict[str, Any]:
    return {f"s{name}": [(row, 1) for row in of_name] for name, of_name in rows.items()}


def is_alone(row: tuple[int | None, ...]) -> bool:
    """A row of the last input, that no other one has joined."""
    return row[-1] is not None and not any(row[:-1])


def test_results_are_complete_from_reported_times_and_pads_are_correct(seed: int) -> None:
    seen = Counter[str]()
    for number in range(seed, seed + CASES):
        rng = random.Random(number)
        eras = [joins_of(rng)]
        for _ in range(rng.choice([1, 2, 3])):
            eras.append([join.wider(rng) for join in eras[-1]])
        count = 6 + 3 * len(eras)
        came = sorted(rng.sample(range(1, count - 2), len(eras) - 1))
        names = NAMES[: len(eras[0]) + 1]
        said = f"random-{number}: {[text_of(joins) for joins in eras]} from ticks {came}"
        store = Killing()
        try:
            job = open_job(eras[0], store)
        except PlanError:
            seen["refused"] += 1
            continue
        rows: dict[str, list[Row]] = {name: [] for name in names}
        found, era, is_over = Counter[tuple[int | None, ...]](), 0, False
        for place, of_tick in enumerate(ticks_of(rng, names, count)):
            if place in came:
                era += 1
                job = open_job(eras[era], store, change=True)
                if text_of(eras[era]) != text_of(eras[era - 1]):
                    is_over = not any("keeps its rows" in told for told in job.driver.said)
                    seen["changed"] += 1
                    if not is_over and rng.random() < 0.2:
                        store.kill = True
                        with pytest.raises(KilledError):
                            job.tick(build_tick_input(of_tick))
                        job = open_job(eras[era], store, change=True)
            elif rng.random() < 0.2:
                job = open_job(eras[era], store)
            if is_over:
                seen["begun anew"] += 1
                break
            job.partitions = rng.choice([1, 2])
            output = job.tick(build_tick_input(of_tick), end=place == count - 1)
            for name in names:
                rows[name] += of_tick[name]
            of_query = [tuple(row[f"n{name}"] for name in names) for row in output.rows["o"]]
            found.update(of_query)
            alone = [row for row in of_query if None in row]
            now = numbers(batch(rows, eras[era])) if alone else Counter[tuple[int | None, ...]]()
            # what joins beneath said by the query of before stays said
            before = itertools.product(eras[: era + 1], repeat=len(names) - 2) if alone else ()
            ever = [now, *(numbers(batch(rows, _joins(mixed, eras[era]))) for mixed in before)]
            for row in alone:
                told = [now] if is_alone(row) else ever
                assert any(row in of_query for of_query in told), f"{said}: {row} in tick {place}"
        else:
            from_when = complete_from(job)
            truth = [row for row in batch(rows, eras[-1]) if _is_within_reported_times(row, from_when)]
            times = {row["n"]: row["t"] for of_name in rows.values() for row in of_name}
            told = Counter(
                {
                    row: times_out
                    for row, times_out in found.items()
                    if _is_within_reported_times(
                        tuple(None if n is None else {"t": times[n]} for n in row), from_when
                    )
                }
            )
            assert told == numbers(truth), f"{said}: {told - numbers(truth)}, {numbers(truth) - told}"
            seen["complete"] += len(truth)
            seen["missing"] += (numbers(batch(rows, eras[-1])) - found).total()
            seen[f"{len(names)} inputs"] += 1
    asked = ("changed", "complete", "missing", "2 inputs", "3 inputs", "4 inputs")
    assert at_effort(quick=any, full=all)(seen[what] for what in asked), seen


def _joins(mixed: tuple[list[Join], ...], last: list[Join]) -> list[Join]:
    """The joins beneath the last one, each of one of the queries; and the last one."""
    return [*(joins[place] for place, joins in enumerate(mixed)), last[-1]]


def _is_within_reported_times(row: Found, from_when: dict[str, float]) -> bool:
    times = [(f"{name}.t", own["t"]) for name, own in zip(NAMES, row, strict=False) if own is not None]
    return all(time >= from_when.get(key, time) for key, time in times)


def test_what_was_missing_before_an_earlier_change_is_missing_for_a_later_one() -> None:
    """Of a at 110 the partner in b is gone, so they are not there for c at 130, which is asked for since."""

    def joins(back: int, on: int) -> list[Join]:
        return [
            Join("JOIN", {0: Condition(-back, 9, None)}),
            Join("FULL JOIN", {0: Condition(-5, on, None)}),
        ]

    store = MemoryStore()
    open_job(joins(5, 9), store).tick(
        build_tick_input({"a": [row(1, 106, 9)], "b": [row(2, 93)], "c": [row(3, 100, 9)]})
    )
    nothing: dict[str, list[Row]] = {"a": [], "b": [], "c": []}
    open_job(joins(20, 9), store, change=True).tick(build_tick_input(nothing))
    job = open_job(joins(20, 29), store, change=True)
    job.tick(build_tick_input({**nothing, "a": [row(4, 110)], "c": [row(5, 130)]}))
    out = job.tick(build_tick_input(nothing), end=True)
    assert out.rows["o"] == []
    assert out.result.queries["o"].account["c"] == {"in": 2, "unknown": 2, "retained": 0}


@pytest.mark.parametrize(("window", "least"), [("SESSION", 119), ("TUMBLE", 109)])
def test_windows_are_complete_from_where_no_row_that_is_missing_was_in_them(window: str, least: int) -> None:
    """W[a] is 94, so of b what is below 89 has left: a row of a below 109 may have had a partner there. It
    would have begun the session of a row that comes within its gap."""

    def text(back: int) -> str:
        return (
            "CREATE MAPPING o TYPE File OPTIONS ('path' = 'out/o', 'format' = 'json');\n"
            "CREATE VIEW j AS SELECT a.t AS at FROM sa a JOIN sb b"
            f" ON a.k = b.k AND b.t BETWEEN a.t - {back} AND a.t + 9;\n"
            f"INSERT INTO o SELECT window_start, count(*) AS n FROM {window}(TABLE j, DESCRIPTOR(at), 10)"
            " GROUP BY window_start, window_end;\n"
        )

    def job(back: int, *, change: bool = False) -> LocalJob:
        plan = watersmeet.plan_job(watersmeet.parse_job(SOURCES + text(back)))
        return LocalJob(plan, store, change_queries=change)

    store = MemoryStore()
    job(5).tick(build_tick_input({"a": [row(1, 100, 9)], "b": [row(2, 88), row(3, 100, 9)]}))
    wider = job(20, change=True)
    wider.tick(build_tick_input({"a": [row(4, 108), row(5, 112)], "b": [row(6, 112, 1)]}))
    assert complete_from(wider)["window_start"] == least


def row(number: int, time: int, key: int = 1) -> Row:
    return {"k": key, "t": time, "n": number, "w": 0}
