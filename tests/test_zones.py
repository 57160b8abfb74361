"""Time zones as arrays against the standard library's, and against Java's rules of gaps and overlaps."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from watersmeet.time_texts import converter_of
from watersmeet.zones import zone

NAMES = ["America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Casablanca", "Europe/Dublin"]
EPOCH = datetime(1970, 1, 1)


def us(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize("name", NAMES)
def test_offsets_are_those_of_the_library(name: str, seed: int) -> None:
    rng = random.Random(seed)
    near = [int(start) // 1_000_000 + d for start in zone(name).starts for d in (-1, 0, 1)]
    least, most = -62_100_000_000, 253_300_000_000
    near = [second for second in near if least < second < most]
    seconds = near + [rng.randint(least, most) for _ in range(5000)]
    own = zone(name).offset_at(np.array(seconds) * 1_000_000) // 1_000_000
    rules = ZoneInfo(name)
    moments = [datetime.fromtimestamp(second, UTC).astimezone(rules) for second in seconds]
    assert own.tolist() == [round(each.utcoffset().total_seconds()) for each in moments]


@pytest.mark.parametrize(
    ("name", "wall", "instant"),
    [
        ("America/New_York", "2024-03-10 01:59:59.999999", "2024-03-10 06:59:59.999999"),
        ("America/New_York", "2024-03-10 02:00:00", "2024-03-10 07:00:00"),  # missing: 03:00
        ("America/New_York", "2024-03-10 02:59:59", "2024-03-10 07:59:59"),
        ("America/New_York", "2024-03-10 03:00:00", "2024-03-10 07:00:00"),
        ("America/New_York", "2024-11-03 00:59:59", "2024-11-03 04:59:59"),
        ("America/New_York", "2024-11-03 01:00:00", "2024-11-03 05:00:00"),  # twice: the earlier
        ("America/New_York", "2024-11-03 01:59:59", "2024-11-03 05:59:59"),
        ("America/New_York", "2024-11-03 02:00:00", "2024-11-03 07:00:00"),
        ("America/New_York", "9999-07-01 00:00:00", "9999-07-01 04:00:00"),
        ("America/New_York", "0001-01-01 00:00:00", "0001-01-01 04:56:02"),
        ("Australia/Lord_Howe", "2024-10-06 02:15:00", "2024-10-05 15:45:00"),  # a gap of half an hour
        ("+05:30", "2024-01-01 00:00:00", "2023-12-31 18:30:00"),
        ("UTC", "2024-01-01 00:00:00", "2024-01-01 00:00:00"),
    ],
)
def test_gaps_and_overlaps(name: str, wall: str, instant: str) -> None:
    assert zone(name).to_instant(np.array([us(wall)])).tolist() == [us(instant)]


def test_the_first_instants_have_local_mean_time() -> None:
    own, first = zone("America/New_York"), np.array([-(2**63), -(2**63) + 1, -(2**62)])
    assert set(own.offset_at(first).tolist()) == {-17_762_000_000}


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name: str, seed: int) -> None:
    rng = random.Random(seed)
    instants = np.array([rng.randint(-(2**55), 2**57) for _ in range(5000)])
    back = zone(name).to_instant(zone(name).to_wall(instants))
    other = back != instants  # the later one of two
    assert (instants - back)[other].max(initial=1) <= 2 * 3_600_000_000
    assert (instants - back)[other].min(initial=1) > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_time_of_any_year_alone_is_as_among_others(name: str, seed: int) -> None:
    rng, day = random.Random(seed), 86_400_000_000
    walls = np.array([rng.randint(-(2**63) + day, 2**63 - day) for _ in range(200)])
    assert list(map(converter_of(name), walls.tolist())) == zone(name).to_instant(walls).tolist()


@pytest.mark.parametrize("name", ["Australia/Brisbane", "Asia/Almaty"])
def test_a_zone_that_last_changed_on_29_february_is_read(name: str) -> None:
    instant = datetime(2024, 3, 1, tzinfo=UTC)
    offset = zone(name).offset_at(np.array([int(instant.timestamp()) * 1_000_000]))[0]
    assert timedelta(microseconds=int(offset)) == instant.astimezone(ZoneInfo(name)).utcoffset()
