"""The ticks of a job after which its history has all figures, and their watermarks.

These are the ticks that the history has one by one, and the last one of each few that were rolled up. Other
ticks are gaps: rolled up, never recorded, or after the last recorded one. Of gaps, nothing is assumed but
that watermarks never decrease.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

import numpy as np

from watersmeet.event_time import ENDED, MIN_TIME, NEVER, Times, Watermark
from watersmeet.history.points import CLOCK, COUNT, DURATION, END, JOB, OFFSET, START, subject_of
from watersmeet.history.reader import JobHistory
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.runtime.coordinator.input_watermarks import compute_late_thresholds
from watersmeet.whatif.ingest_rules import TickWatermarks, clamp_time, release_limits


@dataclass(frozen=True)
class _Part:
    """Reading progress in a part of a source, per slot.

    Attributes:
        ends: minimum position that was read by the end of each slot's tick.
        befores: the position before the tick; None: unknown.
        went_on: slots and positions at which reading continued, whatever was read before.
        is_exact: whether an end is the exact position.
        is_known_to_end: whether the last end is exact.
    """

    ends: list[int]
    befores: list[int | None]
    went_on: list[tuple[int, int]]
    is_exact: list[bool]

    @property
    def is_known_to_end(self) -> bool:
        return bool(self.is_exact) and self.is_exact[-1]


@dataclass(frozen=True)
class TickHistory:
    """``ticks``: the numbers of those that are known, rising. Their places in it are called slots."""

    past: JobHistory
    ticks: tuple[int, ...]
    _levels: dict[tuple[str, str], list[int | None]] = field(default_factory=dict)
    _parts: dict[tuple[str, str], _Part] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ticks)

    def follows_gap(self, slot: int) -> bool:
        """Return True if unknown ticks precede the tick of a slot."""
        return self.ticks[slot] != (self.ticks[slot - 1] + 1 if slot else 1)

    def clocks(self) -> list[int | None]:
        """Return the clock of each tick, in µs; None: it was not recorded."""
        told = self._values(JOB, CLOCK)
        return [told.get(tick) for tick in self.ticks]

    @property
    def ended(self) -> int | None:
        """The slot of the tick that ended the input."""
        told = self._values(JOB, "finished")
        return next((slot for slot, tick in enumerate(self.ticks) if tick in told), None)

    def levels(self, of: str, figure: str) -> list[int | None]:
        """Return a level after every tick; where it was not recorded, that of the previous tick.

        None: there is no earlier level.
        """
        if (of, figure) not in self._levels:
            told, level = sorted(self._values(of, figure).items(), reverse=True), None
            filled: list[int | None] = []
            for tick in self.ticks:
                while told and told[-1][0] <= tick:
                    level = told.pop()[1]
                filled.append(level)
            self._levels[of, figure] = filled
        return self._levels[of, figure]

    def _values(self, of: str, figure: str, *, rolled_up: bool = True) -> dict[int, int | None]:
        """Return values by the last tick to which they apply.

        A rolled-up amount covers several ticks.
        """
        points = self.past.series(of, figure).points
        columns = (points.column(name).to_pylist() for name in ("first_tick", "last_tick", "last"))
        return {
            tick: value for first, tick, value in zip(*columns, strict=True) if rolled_up or first == tick
        }

    def slot_of(self, source: str, part: str, position: int) -> tuple[int, bool] | None:
        """Find the first slot by whose tick a position of a part was read.

        Returns:
            The slot, and whether that very tick is known to have read the position; None if no tick up to
            the last one read it.
        """
        own = self._part(source, part)
        since, until = 0, len(own.ends)
        for slot, began in own.went_on:
            since, until = (slot, len(own.ends)) if began <= position else (since, min(until, slot))
        slot = bisect_right(own.ends, position, since, max(since, until))
        if slot >= until:
            return None
        before = own.befores[slot]
        return slot, before is not None and before <= position

    def steps_of(self, source: str, part: str) -> list[int]:
        """Return ascending positions between which `slot_of` has one answer."""
        own = self._part(source, part)
        befores = (before for before in own.befores if before is not None)
        return sorted({*own.ends, *befores, *(began for _, began in own.went_on)})

    def is_after_slot_before(self, source: str, part: str, position: int, slot: int) -> bool:
        """Return True if the tick of the previous slot is known not to have read a position."""
        own = self._part(source, part)
        return slot > 0 and own.is_exact[slot - 1] and own.ends[slot - 1] <= position

    def spans_of(self, source: str, part: str) -> list[tuple[int, int] | None]:
        """Return, per slot, the positions of a part that its tick read.

        Each is the first position and the position after the last one; None: unknown.
        """
        own = self._part(source, part)
        return [
            None if before is None or not exact else (before, end)
            for before, end, exact in zip(own.befores, own.ends, own.is_exact, strict=True)
        ]

    def ends_of(self, source: str, part: str) -> list[int]:
        """Return, per slot, the minimum position to which a part was read."""
        return self._part(source, part).ends

    def began_at(self, source: str, part: str) -> int | None:
        """Return a position at or before the start of reading of a part; None: not recorded."""
        of, points = subject_of("source", source), self._began(source, part)
        if points:
            first, read = min(points), self.past.series(of, f"{OFFSET} {part}").points
            since = min(read.column("first_tick").to_pylist(), default=first[0])
            is_untold = any(began <= first[1] for began, _ in self._untold(source))
            is_first = first[0] <= since and self._is_known_before(first[0]) and not is_untold
            return min(least for _, _, _, least in points) if is_first else 0
        is_told = any(figure.startswith(f"{START} ") for figure in self.past.figures(of))
        return 0 if is_told else None  # one that came later is read from its beginning

    def _is_known_before(self, tick: int) -> bool:
        """Return True if the history covers all ticks before a tick."""
        points = self.past.series(JOB, DURATION).points
        spans = zip(*(points.column(name).to_pylist() for name in ("first_tick", "last_tick")), strict=True)
        return len({own for first, last in spans for own in range(first, min(last + 1, tick))}) == tick - 1

    def is_beyond(self, source: str, part: str, position: int) -> bool:
        """Return True if it is known that no tick read as far as a position."""
        own = self._part(source, part)
        return own.is_known_to_end and position >= own.ends[-1]

    def tells_of(self, source: str, part: str) -> bool:
        """Return True if the history records how far a part was read."""
        return len(self.past.series(subject_of("source", source), f"{OFFSET} {part}")) > 0

    def rows_in(self, source: str) -> list[int]:
        """Return the number of rows that each tick read of a source, broken records included."""
        told = self._values(subject_of("source", source), "rows_in", rolled_up=False)
        return [told.get(tick) or 0 for tick in self.ticks]

    def _part(self, source: str, part: str) -> _Part:
        if (source, part) not in self._parts:
            self._parts[source, part] = self._read(source, part)
        return self._parts[source, part]

    def _read(self, source: str, part: str) -> _Part:
        """Return the reading progress of a part.

        The history records it for ticks in which it changed, and rolled-up figures record it for their last
        tick.
        """
        points = self.past.series(subject_of("source", source), f"{OFFSET} {part}").points
        told = dict(zip(*(points.column(name).to_pylist() for name in ("last_tick", "last")), strict=True))
        covered = set(self.past.series(JOB, DURATION).points.column("last_tick").to_pylist())
        untold = self._untold(source)
        following = sorted(told.items(), reverse=True)
        beginning = sorted(self._began(source, part), key=lambda of: of[1], reverse=True)
        ends: list[int] = []
        befores: list[int | None] = []
        went_on: list[tuple[int, int]] = []
        is_exact: list[bool] = []
        at, end, is_known = 0, 0, bool(told)  # before the first tick nothing was read
        for slot, tick in enumerate(self.ticks):
            while following and following[-1][0] < tick:
                (at, end), is_known = following.pop(), True
            if self.follows_gap(slot) and tick - 1 not in covered:
                is_known = False  # what the gap hides may have told another one
            is_untold = False
            while untold and untold[-1][1] <= tick:
                is_untold, is_known = True, False
                untold.pop()
            while beginning and beginning[-1][1] <= tick:
                first, last, began, least = beginning.pop()
                went_on.append((slot, least))  # of several what stands behind the least was read anew
                if at < last:
                    end, is_known = began, first == tick
            befores.append(end if is_known else None)
            if tick in told:
                end, is_known = told[tick], True
            if is_untold:
                is_known = False
            ends.append(end)
            is_exact.append(is_known)
        return _Part(ends, befores, went_on, is_exact)

    def _untold(self, source: str) -> list[tuple[int, int]]:
        """Return the ticks in which a source had more parts than the history records, descending.

        Returns:
            The first and the last tick of each; they differ for rolled-up ticks, of which at least one was
            such.
        """
        points = self.past.series(subject_of("source", source), COUNT).points
        spans = zip(*(points.column(name).to_pylist() for name in ("first_tick", "last_tick")), strict=True)
        return sorted(spans, key=lambda span: span[1], reverse=True)

    def _began(self, source: str, part: str) -> list[tuple[int, int, int, int]]:
        """Return where reading began, or continued elsewhere than it had ended.

        Returns:
            Tuples of first tick, last tick, last position and least position.
        """
        points = self.past.series(subject_of("source", source), f"{START} {part}").points
        told = self.past.series(JOB, DURATION).points
        ended = dict(zip(*(told.column(name).to_pylist() for name in ("last_tick", "last_us")), strict=True))
        columns = ("first_tick", "last_tick", "last", "min", "last_us")
        return [
            (first, last, position, least)
            for first, last, position, least, us in zip(
                *(points.column(name).to_pylist() for name in columns), strict=True
            )
            if last <= self.ticks[-1] and (first < last or ended.get(last, us) == us)  # or it was taken back
        ]

    @property
    def tells_reading(self) -> bool:
        """True if the history records reading progress for any source."""
        return any(
            figure.startswith(f"{OFFSET} ")
            for source in self.past.subjects("source")
            for figure in self.past.figures(source)
        )

    def mark(self, query: str, alias: str, column: str, figure: str) -> list[Watermark]:
        """Return ``watermark`` or ``late_below`` of an event time, for every tick."""
        ended = self.ended
        return [
            NEVER
            if value is None
            else ENDED
            if value == END and ended is not None and slot >= ended
            else value
            for slot, value in enumerate(self.levels(subject_of("time", query, alias, column), figure))
        ]

    def late_after(self, query: QueryPlan) -> dict[str, Times]:
        """Return per key of the inputs, and per slot, below which times rows of later ticks are late."""
        watermarks = {
            side.watermark_key(column): self.mark(query.name, side.name, column, "watermark")
            for side in query.sides
            for column in side.event_times
        }
        by_slot = [
            compute_late_thresholds(query, {key: marks[slot] for key, marks in watermarks.items()})
            for slot in range(len(self))
        ]
        return {
            key: np.array([clamp_time(below[key]) for below in by_slot], dtype=np.int64) for key in watermarks
        }

    def marks_of(self, query: QueryPlan) -> TickWatermarks:
        """Return, per slot, the late thresholds and release limits of a query.

        Release limits are known for a query that is one join (`plain_join_of`).
        """
        keys = {
            side.watermark_key(column): (side.name, column)
            for side in query.sides
            for column in side.event_times
        }
        after = {key: self.mark(query.name, *of, "watermark") for key, of in keys.items()}
        limits = {key: np.full(len(self), MIN_TIME, dtype=np.int64) for key in keys}
        clocks = self.clocks()
        for slot in range(len(self) if plain_join_of(query) is not None else 0):
            marks = {key: own[slot] for key, own in after.items()}
            for key, limit in release_limits(query, marks, clocks[slot] or 0).items():
                limits[key][slot] = clamp_time(limit)
        late = {key: self.mark(query.name, *of, "late_below") for key, of in keys.items()}
        return TickWatermarks(
            {
                key: np.array([clamp_time(mark) for mark in marks], dtype=np.int64)
                for key, marks in late.items()
            },
            {key: np.maximum.accumulate(own) for key, own in limits.items()},
            {},
        )


def plain_join_of(query: QueryPlan) -> JoinPlan | None:
    """Return the two-input join that is a whole query and releases rows by times, or None."""
    joins = query.every(JoinPlan)
    if len(query.nodes) > 1 or not joins:
        return None
    (join,) = joins
    is_other = join.asof is not None or join.changes or any(side.feeds for side in join.sides)
    return None if is_other or join.left_to_spark else join


def tick_history(past: JobHistory, until: int | None = None) -> TickHistory:
    """Return the ticks of a history.

    Args:
        until: the last tick of the state; later ticks were rolled back.
    """
    points = past.series(JOB, DURATION).points
    firsts, lasts = (points.column(name).to_pylist() for name in ("first_tick", "last_tick"))
    ticks: list[int] = []
    for tick, last in zip(firsts, lasts, strict=True):
        if until is None or last <= until:
            del ticks[bisect_left(ticks, tick) :]  # the job may have gone back to a tick before
            ticks.append(last)
    return TickHistory(past, tuple(ticks))
