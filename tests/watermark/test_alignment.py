"""Which sources wait for others: laws of the decision, on random standings."""

from __future__ import annotations

import math
import random

import pytest

from watersmeet.event_time import ENDED, NEVER
from watersmeet.watermark.holders import SourceDrift, SourcePosition, find_sources_ahead

SKEW = 10


def standings(**marks: float) -> dict[str, SourcePosition]:
    return {name: SourcePosition(mark) for name, mark in marks.items()}


def test_who_is_further_ahead_than_that_waits():
    assert find_sources_ahead([("a", "b")], standings(a=10, b=0), SKEW) == {}
    assert find_sources_ahead([("a", "b")], standings(a=11, b=0), SKEW) == {"a": SourceDrift("b", 11)}


def test_nobody_waits_for_those_that_are_not_joined_with_it():
    of = standings(a=100, b=0, c=90)
    assert find_sources_ahead([("a", "c"), ("b",)], of, SKEW) == {}
    assert set(find_sources_ahead([("a", "c"), ("b", "c")], of, SKEW)) == {"c"}


def test_source_drift_is_the_greatest_over_all_queries():
    of = standings(a=100, b=50, c=20, d=NEVER)
    assert find_sources_ahead([("a", "b"), ("a", "c")], of, SKEW)["a"] == SourceDrift("c", 80)
    assert find_sources_ahead([("a", "c"), ("a", "d"), ("a", "b")], of, SKEW)["a"] == SourceDrift("d", None)


def test_nobody_waits_for_an_idle_one_or_one_that_is_used_up():
    of = standings(a=100, b=0, c=95)
    assert find_sources_ahead([("a", "b", "c")], of | {"b": SourcePosition(0, idle=True)}, SKEW) == {}
    assert find_sources_ahead([("a", "b", "c")], of, SKEW, used_up={"b"}) == {}
    assert find_sources_ahead([("a", "b")], of, SKEW, used_up={"a"}) == {}, "nor does that one"


def test_one_that_has_shown_nothing_is_waited_for_and_does_not_wait():
    assert find_sources_ahead([("a", "b", "c")], standings(a=0, b=NEVER, c=NEVER), SKEW) == {
        "a": SourceDrift("b", None)
    }
    assert find_sources_ahead([("a", "b")], standings(a=ENDED, b=0), SKEW) == {}


@pytest.mark.parametrize("run", range(4))
def test_somebody_always_goes_on(seed, run):
    """Each that waits is led, by the one that it waits for and so on, to one that may go on, is active and
    behind it; and whoever waits for none is within the skew of all active ones that it meets."""
    draw = random.Random(seed * 10 + run)
    waiting = 0
    for _ in range(2000):
        names = [f"s{n}" for n in range(draw.randint(1, 6))]
        marks = [NEVER, 0, 5, 9, 10, 11, 25, 40, 100]
        of = {name: SourcePosition(draw.choice(marks), draw.random() < 0.2) for name in names}
        groups = [draw.sample(names, draw.randint(1, len(names))) for _ in range(draw.randint(1, 4))]
        used_up = {name for name in names if draw.random() < 0.1}
        held = find_sources_ahead(groups, of, SKEW, used_up)
        waiting += len(held)
        active = {name for name in names if not of[name].idle and name not in used_up}
        for name in held:
            assert name in active
            follow = name
            while follow in held:
                behind = held[follow].behind
                assert behind in active
                assert of[behind].watermark < of[follow].watermark - SKEW
                follow = behind
        for group in groups:
            there = [of[name].watermark for name in group if name in active]
            for name in set(group) & active - set(held):
                assert (
                    of[name].watermark == NEVER or of[name].watermark - min(there, default=math.inf) <= SKEW
                )
    assert waiting > 500
