"""Time zones as arrays: from an instant to the clock on the wall and back, by Java's rules.

An instant is µs since 1970-01-01 UTC, a wall-clock time µs since 1970-01-01 00:00 on that clock. Where clocks
go forward, a wall-clock time in the gap is moved by the gap's length; where they go back, the earlier of the
two instants is meant. Before the first known change the zone has its local mean time, to the second. After
the last one that is written down, rules go on for ever: the calendar repeats itself after 400 years.
"""

from __future__ import annotations

import struct
import zoneinfo
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

SECOND_US = 1_000_000
CYCLE_US = 146_097 * 86_400 * SECOND_US
"""400 years."""
FIRST_COMMON_S = int(datetime(1970, 1, 1, tzinfo=UTC).timestamp())
"""Since then the database keeps a zone apart for each place; of before, builds of it differ on purpose."""
LAST_COMMON_S = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())
"""From `FIRST_COMMON_S` to here, in seconds, Java's rules and Python's are the same in a run
(`time-zone-rules`)."""
_PROBE = timedelta(days=7)
_LAST_YEAR = 2_038


@dataclass(frozen=True)
class Zone:
    """UTC offsets of a time zone.

    Attributes:
        starts: Instants at which the offset changes, ascending.
        offsets: UTC offsets in µs before, between and after ``starts``: one more than those.
        repeats_from: From this instant on, instants behave like those a cycle earlier; None: never.
    """

    name: str
    starts: Times
    offsets: Times
    repeats_from: int | None = None

    @property
    def least(self) -> int:
        return int(self.offsets.min())

    @property
    def greatest(self) -> int:
        return int(self.offsets.max())

    def offset_at(self, instants: Times) -> Times:
        """Return the offsets in force at instants: int64[n]."""
        if not len(self.starts):
            return np.full(len(instants), self.offsets[0])
        return self.offsets[np.searchsorted(self.starts, self._fold_into_cycle(instants), side="right")]

    def to_wall(self, instants: Times) -> Times:
        """Convert instants to wall-clock times."""
        return instants + self.offset_at(instants)

    def to_instant(self, walls: Times) -> Times:
        """Convert wall-clock times to instants; see the module for gaps and overlaps."""
        if not len(self.starts):
            instants: Times = walls - self.offsets[0]
            return instants
        folded = self._fold_into_cycle(walls)
        # A change moves the clock from `start + before` to `start + after`: in a gap and in an overlap the
        # offset before the change counts, so it takes effect at the later of the two.
        latest = self.starts + np.maximum(self.offsets[:-1], self.offsets[1:])
        return walls - self.offsets[np.searchsorted(latest, folded, side="right")]

    def _fold_into_cycle(self, times: Times) -> Times:
        if self.repeats_from is None:
            return times
        over = times >= self.repeats_from
        if not over.any():
            return times
        beyond = np.where(over, times, self.repeats_from) - self.repeats_from
        return np.where(over, times - (beyond // CYCLE_US + 1) * CYCLE_US, times)


@lru_cache(maxsize=64)
def zone(name: str) -> Zone:
    """Build the zone for a name from `spec.time_zones.zone_named`."""
    if name == "UTC":
        return _fixed_zone(name, 0)
    if name[0] in "+-":
        sign = -1 if name[0] == "-" else 1
        hours, minutes = name[1:].split(":")
        return _fixed_zone(name, sign * (int(hours) * 60 + int(minutes)) * 60)
    starts, offsets = _written(_data(name))
    rules = zoneinfo.ZoneInfo(name)
    last = datetime.fromtimestamp(starts[-1], UTC) if starts else datetime(1900, 1, 1, tzinfo=UTC)
    begin = max(last + timedelta(seconds=1), datetime(1900, 1, 1, tzinfo=UTC))
    end = begin.replace(
        year=max(begin.year, _LAST_YEAR) + 401, day=min(begin.day, 28)
    )  # 29 February has none
    later = _find_offset_changes(rules, begin, end)
    for start, offset in later:
        starts.append(start)
        offsets.append(offset)
    repeats = None if not later else int((end - timedelta(days=366)).timestamp()) * SECOND_US
    return Zone(
        name,
        np.array(starts, dtype=np.int64) * SECOND_US,
        np.array(offsets, dtype=np.int64) * SECOND_US,
        repeats,
    )


def _fixed_zone(name: str, seconds: int) -> Zone:
    return Zone(name, np.zeros(0, dtype=np.int64), np.array([seconds * SECOND_US], dtype=np.int64))


def _find_offset_changes(rules: zoneinfo.ZoneInfo, begin: datetime, end: datetime) -> list[tuple[int, int]]:
    """Find the offset changes of a zone's rules in [begin, end).

    Returns:
        (instant, offset from then on) of each change, in seconds.
    """
    changes = []
    here, current = begin, _offset(rules, begin)
    while here < end:
        there = min(here + _PROBE, end)
        offset = _offset(rules, there)
        if offset != current:
            low, high = int(here.timestamp()), int(there.timestamp())
            changes.append((_change(rules, low, high, offset), offset))
            current = offset
        here = there
    return changes


def _change(rules: zoneinfo.ZoneInfo, low: int, high: int, offset: int) -> int:
    seconds = range(low, high + 1)
    return low + bisect_right(
        seconds, False, key=lambda second: _offset(rules, datetime.fromtimestamp(second, UTC)) == offset
    )


def _offset(rules: zoneinfo.ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(rules).utcoffset()
    assert offset is not None
    return offset.days * 86_400 + offset.seconds


def _data(name: str) -> bytes:
    for root in zoneinfo.TZPATH:
        path = Path(root) / name
        if path.is_file():
            return path.read_bytes()
    folder, _, file = name.rpartition("/")
    package = ".".join(["tzdata.zoneinfo", *folder.split("/")])
    return resources.files(package).joinpath(file).read_bytes()


def _written(data: bytes) -> tuple[list[int], list[int]]:
    """Read the offset changes of a TZif file of version 2 or later (RFC 8536).

    Returns:
        The instants of changes and the offsets (one more than changes), in seconds.
    """

    def header(at: int) -> tuple[int, int, int, int, int, int]:
        fields: tuple[int, int, int, int, int, int] = struct.unpack(">6l", data[at + 20 : at + 44])
        return fields

    utc, std, leap, times, kinds, chars = header(0)
    at = 44 + times * 5 + kinds * 6 + chars + leap * 8 + std + utc
    _, _, _, times, kinds, _ = header(at)
    at += 44
    instants = struct.unpack(f">{times}q", data[at : at + 8 * times])
    chosen = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">l", data[at + 6 * n : at + 6 * n + 4])[0] for n in range(kinds)]
    starts: list[int] = []
    kept_offsets = [offsets[0]]
    for instant, kind in zip(instants, chosen, strict=True):
        if offsets[kind] != kept_offsets[-1]:  # a change of the name alone is none
            starts.append(instant)
            kept_offsets.append(offsets[kind])
    return starts, kept_offsets
