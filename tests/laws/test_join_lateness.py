"""Laws of the rule ``lateness = join``, asked of what the engine puts out and of nothing else.

A row is in exactly one place: late, matched, padded, kept, or gone without a partner. No pair comes twice.
The horizon of both sides is one, never goes back, no row that leaves later is below it, and it is the least
watermark less the reach and allowed lateness. No row below it is kept, and all others that may match are.
Whatever comes at or above the least watermark meets all its partners; only what comes below may miss some.
The order of rows within a tick, and how many tasks there are, have no say.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest

from tests.support.effort import at_effort
from tests.support.random_lateness import KINDS, late_case
from watersmeet.runtime.local import replay_case
from watersmeet.testing.cases import row_multiset

CASES = at_effort(quick=8, full=92)

Case = dict[str, Any]
Row = dict[str, Any]
Line = dict[str, Any]


def cases(seed: int, **profile: Any) -> Iterator[tuple[int, Case]]:
    """Of integer times, in conditions over times and keys alone."""
    number = seed
    for _ in range(CASES):
        number += 1
        while True:
            case = late_case(number, timed=False, shape="plain", **profile)
            if not any(".v" in text for text in case["drawn"]["on"]):
                break
            number += 1
        yield number, case


@dataclass
class Seen:
    """Rows of one stream, by number, and what became of them. ``came``: the step of each."""

    rows: dict[int, Row] = field(default_factory=dict)
    came: dict[int, int] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    padded: Counter[int] = field(default_factory=Counter)
    matched: Counter[int] = field(default_factory=Counter)


def replay_and_track_rows(
    case: Case, **how: Any
) -> tuple[list[Line], dict[str, Seen], Counter[tuple[int, int]]]:
    """The engine's lines, what became of the rows of each stream, and the pairs."""
    lines = replay_case(case, **how)
    seen = {"l": Seen(), "r": Seen()}
    pairs: Counter[tuple[int, int]] = Counter()
    for index, (step, line) in enumerate(zip(case["steps"], lines, strict=True)):
        assert "error" not in line, line
        for name, row in step.get("rows", []):
            seen[name].rows[row["i"]], seen[name].came[row["i"]] = row, index
        for item in line["late"]:
            seen[item["stream"]].late.add(item["row"]["i"])
        for row in line["rows"]:
            if row["li"] is None:
                seen["r"].padded[row["ri"]] += 1
            elif row["ri"] is None:
                seen["l"].padded[row["li"]] += 1
            else:
                pairs[row["li"], row["ri"]] += 1
                seen["l"].matched[row["li"]] += 1
                seen["r"].matched[row["ri"]] += 1
    return lines, seen, pairs


def horizons(case: Case, lines: list[Line]) -> list[float]:
    """The horizon after each step."""
    horizon, found = -float("inf"), []
    for step, line in zip(case["steps"], lines, strict=True):
        marks = line["watermarks"]
        if step.get("end"):
            horizon = float("inf")
        elif marks:
            assert set(marks) == {"l.t", "r.t"}
            assert marks["l.t"] == marks["r.t"] > horizon
            horizon = marks["l.t"]
        found.append(horizon)
    return found


def may_match(case: Case, row: Row) -> bool:
    return "l.k = r.k" not in case["drawn"]["on"] or row["k"] is not None


def are_partners(case: Case, left: Row, right: Row) -> bool:
    drawn = case["drawn"]
    if not drawn["lower"] <= right["t"] - left["t"] <= drawn["upper"]:
        return False
    return "l.k = r.k" not in drawn["on"] or (left["k"] is not None and left["k"] == right["k"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reopens", [False, True])
def test_every_row_is_in_one_place(kind: str, reopens: bool, seed: int) -> None:
    pads = {"l": kind in ("LEFT", "FULL"), "r": kind in ("RIGHT", "FULL")}
    drawn = cases(seed, kind=kind, reopens=reopens)
    for number, case in islice(drawn, at_effort(quick=2, full=CASES)):
        lines, seen, pairs = replay_and_track_rows(case)
        assert set(pairs.values()) <= {1}, (number, pairs)
        horizon = horizons(case, lines)[-1]
        for name, of in seen.items():
            kept = set()
            for i, row in of.rows.items():
                timeless = row["t"] is None
                places = [timeless, i in of.late, of.matched[i] > 0, of.padded[i] > 0]
                assert of.padded[i] <= int(pads[name]), (number, name, i)
                assert sum(places) <= 1, (number, name, i, places)
                hopeless = not timeless and not may_match(case, row)
                stays = not (timeless or i in of.late or hopeless) and row["t"] >= horizon
                if stays:
                    kept.add(i)
                    assert not of.padded[i], (number, name, i)
                elif pads[name]:  # it has left, and not without a word
                    assert sum(places) == 1, (number, name, i, places)
            if lines:
                assert lines[-1]["state"][name] == len(kept), (number, name)


def test_the_horizon_is_what_the_rule_says(seed: int) -> None:
    """By sources that move their watermarks by rows alone."""
    checked = 0
    for number, case in cases(seed):
        if any(set(stream) != {"columns", "time"} for stream in case["streams"].values()):
            continue
        lags = {name: stream["time"]["t"]["lag"] for name, stream in case["streams"].items()}
        if None in lags.values() or any("idle" in step for step in case["steps"]):
            continue
        lines, seen, _ = replay_and_track_rows(case)
        greatest = dict.fromkeys(lags, -float("inf"))
        before = -float("inf")
        for index, (step, horizon) in enumerate(zip(case["steps"], horizons(case, lines), strict=True)):
            for name, row in step.get("rows", []):
                if row["t"] is None:
                    continue
                is_late = row["t"] + case["drawn"]["back"] < before
                assert (row["i"] in seen[name].late) == is_late, (number, index, name, row)
                greatest[name] = max(greatest[name], row["t"])
            least = min(time - lags[name] for name, time in greatest.items())
            if not step.get("end"):
                assert horizon == least - case["drawn"]["back"], (number, index)
                before = least
                checked += least > -float("inf")
    assert checked > CASES // 4


def test_only_what_comes_below_the_least_watermark_may_miss_a_partner(seed: int) -> None:
    missed = 0
    for number, case in cases(seed):
        lines, seen, pairs = replay_and_track_rows(case)
        below = horizons(case, lines)
        left, right = (
            {i: row for i, row in of.rows.items() if i not in of.late and row["t"] is not None}
            for of in (seen["l"], seen["r"])
        )
        wanted = {(i, j) for i, a in left.items() for j, b in right.items() if are_partners(case, a, b)}
        assert set(pairs) <= wanted, number
        for i, j in wanted - set(pairs):
            came = {"l": seen["l"].came[i], "r": seen["r"].came[j]}
            last = max(came, key=lambda name: came[name])
            assert came["l"] != came["r"], (number, i, j)  # rows of one tick always meet
            assert came[last] > 0, (number, i, j)
            least = below[came[last] - 1] + case["drawn"]["back"]
            row = left[i] if last == "l" else right[j]
            assert row["t"] < least, (number, i, j)
            missed += 1
    assert missed, "no row was drawn that comes after its partner has left"


def test_no_result_is_below_the_output_watermark_before_it(seed: int) -> None:
    for number, case in cases(seed):
        lines, _, _ = replay_and_track_rows(case)
        before = -float("inf")
        for line, horizon in zip(lines, horizons(case, lines), strict=True):
            times = [row[name] for row in line["rows"] for name in ("lt", "rt") if row[name] is not None]
            assert min(times, default=float("inf")) >= before, (number, line)
            before = horizon


def test_order_within_a_tick_and_number_of_tasks_have_no_say(seed: int) -> None:
    for number, case in islice(cases(seed), at_effort(quick=3, full=CASES)):
        rng = random.Random(number)
        steps = [
            {**step, "rows": rng.sample(step["rows"], len(step["rows"]))} if "rows" in step else step
            for step in case["steps"]
        ]
        other = {**case, "steps": steps}
        for one, two in zip(
            replay_case(case), replay_case(other, partitions=5, hash_seed="borders"), strict=True
        ):
            assert row_multiset(one["rows"], False) == row_multiset(two["rows"], False), number
            assert (one["watermarks"], one["state"]) == (two["watermarks"], two["state"]), number
            assert sorted(map(str, one["late"])) == sorted(map(str, two["late"])), number
