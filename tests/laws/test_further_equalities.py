"""A query that is asked for further equalities goes on with its state: rows are found by the equalities that
it was made with, and the others are tested on the pairs. Those of old may change places at the same time.

The oracle is that of narrower queries: it knows in which tick each row came, and nothing of state.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.laws.test_narrower_queries import (
    KINDS,
    OF_LEFT,
    TARGET,
    Condition,
    Found,
    KilledError,
    Killing,
    Row,
    joined,
    numbers,
    opened,
    text_of,
    ticks_of,
)
from tests.support.effort import at_effort
from watersmeet import MemoryStore
from watersmeet.errors import StateError

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=3, full=20)
Values = Callable[[Row], Any]
EQUALITIES: dict[str, tuple[str, str, str, Values, Values]] = {
    "k": ("{}.k", "=", "{}.k", lambda row: row["k"], lambda row: row["k"]),
    "w": ("{}.w", "=", "{}.w", lambda row: row["w"], lambda row: row["w"]),
    "of expressions": (
        "abs({}.w - 1)",
        "=",
        "{0}.k + {0}.w",
        lambda row: abs(row["w"] - 1),
        lambda row: row["k"] + row["w"],
    ),
    "null": (
        "nullif({}.w, 2)",
        "<=>",
        "nullif({}.w, 3)",
        lambda row: None if row["w"] == 2 else row["w"],
        lambda row: None if row["w"] == 3 else row["w"],
    ),
    "never null": (
        "nullif({}.w, 1)",
        "=",
        "{}.w",
        lambda row: float("nan") if row["w"] == 1 else row["w"],
        lambda row: row["w"],
    ),
}


class Equalities(Condition):
    """An interval, and equalities by name, which stand in another order each time."""

    def __init__(self, low: int, high: int, names: list[str], rng: random.Random) -> None:
        super().__init__(low, high, None)
        self.names, self._rng = names, rng

    def text(self, left: str, right: str) -> str:
        parts = []
        for name in self._rng.sample(self.names, len(self.names)):
            one, sign, other, _, _ = EQUALITIES[name]
            sides = [one.format(left), other.format(right)]
            parts.append(f" {sign} ".join(self._rng.sample(sides, 2)))
        parts.insert(
            self._rng.randrange(len(parts) + 1),
            f"{right}.t BETWEEN {left}.t + {self.low} AND {left}.t + {self.high}",
        )
        return " AND ".join(parts)

    def holds(self, left: Row, right: Row) -> bool:
        near = self.low <= right["t"] - left["t"] <= self.high
        return near and all(of(left) == to(right) for *_, of, to in map(EQUALITIES.__getitem__, self.names))

    def further(self) -> Equalities:
        left = [name for name in EQUALITIES if name not in self.names]
        more = self._rng.sample(left, self._rng.choice([1, 1, 2]))
        high = self.high - self._rng.choice([0, 0, 3])
        return Equalities(self.low, high, [*self.names, *more], self._rng)


def test_further_equalities_are_tested_on_pairs(seed: int) -> None:
    seen = Counter[str]()
    for number in range(seed, seed + CASES):
        rng = random.Random(number)
        kinds = [(*KINDS, *OF_LEFT)[number % 6]]
        if number % 6 == 0:
            kinds.append(rng.choice(KINDS))
        old = [Equalities(-5, 9, rng.sample(list(EQUALITIES), rng.choice([1, 2])), rng) for _ in kinds]
        new = [each.further() for each in old]
        keeping = " AND a.k >= 0 AND a.w >= 0 AND a.k + b.k + a.w + b.w >= 0" if kinds[0] in OF_LEFT else ""

        def text(of: list[Equalities], kinds: list[str] = kinds, keeping: str = keeping) -> str:
            made = text_of(kinds, list(of)).removesuffix(";\n") + keeping
            shown = "" if keeping else "".join(f", {x}.k AS k{x}" for x in "abc"[: len(kinds) + 1])
            return made.replace(" FROM s a", f"{shown} FROM s a") + ";\n"

        count, came = 12, rng.randrange(2, 9)
        rows, ticks = ticks_of(rng, count)
        store, said = Killing(), f"random-{number}: {text(old)} then {text(new)}at tick {came}"
        job, found = opened(text(old), store), Counter[tuple[int | None, ...]]()
        for place, given in enumerate(ticks):
            of_tick = {source.name: given[source.name] for source in job.plan.sources}
            if place == came:
                with pytest.raises(StateError, match=r"in \"o\" the join of .* ON") as refused:
                    opened(text(new), store)
                assert "keeps its rows" in str(refused.value.hint), said
                job = opened(text(new), store, change=True)
                assert any("keeps its rows" in told for told in job.driver.said), said
                if number % 3 == 1:
                    store.kill = True
                    with pytest.raises(KilledError):
                        job.tick(of_tick)
                    job = opened(text(new), store, change=True)
                    seen["killed"] += 1
            elif rng.random() < 0.4:
                job = opened(text(new if place >= came else old), store)
                seen["restarted"] += 1
            job.partitions = rng.choice([1, 3])
            for row in job.tick(of_tick, end=place == count - 1).rows["o"]:
                found[tuple(value for name, value in row.items() if name in ("na", "nb", "nc"))] += 1
        lefts: list[Found] = [(row,) for row in rows["s"]]
        for place, kind in enumerate(kinds):
            lefts = joined(lefts, rows["uv"[place]], kind, (old[place], new[place], came), place + 1)
        assert found == numbers(lefts), f"{said}: {found - numbers(lefts)}, {numbers(lefts) - found}"
        seen.update(kinds)
    reached = at_effort(quick=any, full=all)
    assert reached(seen[what] for what in (*KINDS, *OF_LEFT)), seen
    assert reached(seen[what] for what in ("killed", "restarted")), seen


JOINED = (
    "SELECT a.n, a.w, b.n AS m, b.w AS v FROM s a LEFT JOIN u b ON {} AND b.t BETWEEN a.t - 5 AND a.t + 9;"
)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("a.k = b.k AND a.w = b.w", "a.k = b.k", "no longer ON a.w = b.w"),
        ("a.k = b.k AND a.w = b.w", "b.k = a.k AND a.w + 1 = b.w", "was ON a.k = b.k AND a.w = b.w, now"),
        ("a.k = b.k", "a.k <=> b.k", "was ON a.k = b.k, now it is ON a.k IS NOT DISTINCT FROM b.k"),
    ],
)
def test_an_equality_that_goes_is_told_with_what_rows_lie_by(old: str, new: str, told: str) -> None:
    store = MemoryStore()
    opened(TARGET + JOINED.format(old), store).tick({"s": [], "u": []})
    with pytest.raises(StateError) as refused:
        opened(TARGET + JOINED.format(new), store)
    assert told in refused.value.message
    gone = "a.w = b.w" if "a.w" in old else "a.k = b.k"
    assert "starts without its stored rows" in str(refused.value.hint)
    begun = opened(TARGET + JOINED.format(new), store, change=True)
    assert any(f"rows are stored by {gone}" in said for said in begun.driver.said)
    assert "IS TRUE" not in refused.value.message
