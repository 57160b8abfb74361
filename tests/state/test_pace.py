"""How many rows come per unit of event time, by hand and for streams of a known rate."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from watersmeet.event_time import DAY_US, ENDED, MAX_TIME, NEVER
from watersmeet.state.manifest import Arrangement, Pace

SECOND, HOUR = 1_000_000, 3_600_000_000


def paced(*ticks: tuple[int, list[tuple[int, int]], float | int], timed: bool = True) -> Pace:
    """(rows, their spans, the watermark after them) of every tick."""
    pace = Pace()
    for rows, spans, mark in ticks:
        pace = pace.moved(rows, spans, mark, timed=timed)
    return pace


def test_of_one_tick_its_rows_say_how_much_time_they_cover():
    assert paced((500, [(0, 90), (40, 100)], 95)).measured == (500, 100)
    assert paced((1, [(7, 7)], 7)).measured == (1, 0)
    assert paced((0, [], NEVER)).measured == (0, 0)


def test_later_ticks_cover_what_the_watermark_moves():
    first = (100, [(0, 100)], 90)
    assert paced(first, (10, [(95, 110)], 100)).measured == (110, 110)
    assert paced(first, (10, [(95, 110)], 100), (0, [], 300)).measured == (110, 310)
    assert paced(first, (5, [(91, 92)], 90), (0, [], 90)).measured == (105, 100), "it stands still"


def test_rows_before_there_is_a_watermark_count_once():
    """A partition that was declared is silent at first."""
    found = paced((10, [(50, 60)], NEVER), (10, [(0, 55)], NEVER), (0, [], NEVER), (10, [(60, 90)], 20))
    assert found.measured == (30, 90)
    assert paced((10, [(50, 60)], NEVER), (0, [], 20), (3, [(60, 61)], 25)).measured == (13, 15)


def test_rows_whose_time_may_be_missing_count_by_the_watermark_alone():
    assert paced((10, [], 5)).measured == (0, 0)
    assert paced((10, [], 5), (7, [], 12)).measured == (7, 7)


def test_the_end_of_input_is_no_time():
    before = paced((100, [(0, 100)], 90))
    assert before.moved(3, [(99, 99)], ENDED, timed=True) == before


def test_of_days_the_last_two_count():
    hourly = [(0, [(0, 0)], 0)] + [(100 if n < 100 else 7, [], n * HOUR) for n in range(1, 200)]
    rows, span = paced(*hourly).measured
    assert rows * HOUR / span == 7
    assert DAY_US <= span < 2 * DAY_US
    rows, span = paced(*hourly, timed=False).measured
    assert (rows, span) == (99 * 100 + 100 * 7, 199 * HOUR), "numbers have no days"


def test_a_backlog_longer_than_a_day_counts_until_another_day_has_passed():
    backlog = (1000, [(0, 10 * DAY_US)], 10 * DAY_US)
    assert paced(backlog).measured == (1000, 10 * DAY_US)
    half = [(1, [], 10 * DAY_US + n * HOUR) for n in range(1, 13)]
    assert paced(backlog, *half).measured == (1012, 10 * DAY_US + 12 * HOUR)
    day = [(1, [], 10 * DAY_US + n * HOUR) for n in range(1, 25)]
    assert paced(backlog, *day).measured == (24, DAY_US)


def test_a_backlog_of_days_before_the_first_watermark_counts_once():
    backlog = [(10, [(n * DAY_US, (n + 1) * DAY_US)], NEVER) for n in range(3)]
    assert paced(*backlog, (10, [(3 * DAY_US, 4 * DAY_US)], DAY_US)).measured == (40, 4 * DAY_US)


def test_the_ends_of_time():
    assert paced((5, [(-MAX_TIME, MAX_TIME)], -MAX_TIME), (5, [], MAX_TIME), timed=False).measured == (
        10,
        4 * MAX_TIME,
    )


@pytest.mark.parametrize("lag", [0, 40])
def test_the_rate_does_not_depend_on_how_ticks_are_cut(seed, lag):
    """A row each 3 units, a little out of order; read as it comes, or as a backlog and then as it comes."""
    draw = random.Random(seed)
    for _ in range(30):
        times = sorted(range(0, 30_000, 3), key=lambda time: time + draw.randrange(lag + 1))
        cuts = sorted({0, len(times), *draw.choices(range(len(times)), k=draw.choice([0, 1, 5, 60]))})
        pace, top = Pace(), 0
        for start, stop in pairwise(cuts):
            own = times[start:stop]
            top = max(top, *own)
            spans = [(min(part), max(part)) for part in (own[::2], own[1::2]) if part]
            pace = pace.moved(len(own), spans, top - lag, timed=False)
        rows, span = pace.measured
        assert rows == len(times)
        assert span / rows == pytest.approx(3, rel=0.02)


def test_a_state_of_before_has_none():
    assert Arrangement.model_validate_json('{"retained": 3}').paces == {}


def test_it_is_read_as_it_was_written():
    found = Arrangement(paces={"t": paced((3, [(1, 5)], 4)), "u": Pace()}, most=3)
    assert Arrangement.model_validate_json(found.model_dump_json()) == found
