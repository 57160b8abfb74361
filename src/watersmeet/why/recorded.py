"""The ticks of a job that its history knows one by one, and what their watermarks were.

Other ticks are gaps: rolled up by now, never written down, or after the last that was. Of those nothing is
taken for known but that watermarks never go back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

import numpy as np

from watersmeet.event_time import ENDED, MAX_TIME, MIN_TIME, NEVER, Watermark
from watersmeet.history.figures import JOB, READ
from watersmeet.history.past import Past
from watersmeet.history.points import END, subject_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.whatif.judged import Marks, release_limits


@dataclass(frozen=True)
class Recorded:
    """``ticks``: the numbers of those that are known, rising. Their places in it are called slots."""

    past: Past
    ticks: tuple[int, ...]
    _levels: dict[tuple[str, str], list[int | None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ticks)

    def is_behind_gap(self, slot: int) -> bool:
        """Whether there were ticks before it that are not known."""
        return self.ticks[slot] != (self.ticks[slot - 1] + 1 if slot else 1)

    def clocks(self) -> list[int | None]:
        """The clock of each, in µs; None: it was not written down."""
        told = self._told(JOB, "clock")
        return [told.get(tick) for tick in self.ticks]

    @property
    def ended(self) -> int | None:
        """The slot of the tick that ended the input."""
        told = self._told(JOB, "finished")
        return next((slot for slot, tick in enumerate(self.ticks) if tick in told), None)

    def levels(self, of: str, figure: str) -> list[int | None]:
        """A level after every tick; where it was not told, that of the tick before. None: none by then."""
        if (of, figure) not in self._levels:
            told, level = self._told(of, figure), None
            filled: list[int | None] = []
            for tick in self.ticks:
                level = told.get(tick, level)
                filled.append(level)
            self._levels[of, figure] = filled
        return self._levels[of, figure]

    def _told(self, of: str, figure: str) -> dict[int, int | None]:
        points = self.past.series(of, figure).points
        columns = (points.column(name).to_pylist() for name in ("first_tick", "last_tick", "last"))
        return {tick: value for tick, until, value in zip(*columns, strict=True) if tick == until}

    def slot_of(self, source: str, part: str, position: int) -> tuple[int, bool] | None:
        """The first tick by which what stands there had been read, and whether it was that tick itself that
        read it, as far as is known. None: none had by the last one."""
        ends, befores = self._read(source, part)[:2]
        slot = bisect_right(ends, position)
        if slot == len(ends):
            return None
        before = befores[slot]
        return slot, before is not None and before <= position

    def is_told_to_end(self, source: str, part: str) -> bool:
        """Whether it is known how far a part was read by the last tick: what is beyond, none has read."""
        return self._read(source, part)[2]

    def _read(self, source: str, part: str) -> tuple[list[int], list[int | None], bool]:
        """How far a part was read after every tick at least; how far before it, None where that is not
        known; and whether that is known of the last one. It is told of ticks in which it changed, and
        rolled-up figures tell it of their last tick."""
        points = self.past.series(subject_of("source", source), f"{READ} {part}").points
        told = dict(zip(*(points.column(name).to_pylist() for name in ("last_tick", "last")), strict=True))
        covered = set(self.past.series(JOB, "seconds").points.column("last_tick").to_pylist())
        following = sorted(told.items(), reverse=True)
        ends: list[int] = []
        befores: list[int | None] = []
        end, is_known = 0, False
        for slot, tick in enumerate(self.ticks):
            while following and following[-1][0] < tick:
                end, is_known = following.pop()[1], True
            if self.is_behind_gap(slot) and tick - 1 not in covered:
                is_known = False  # what the gap hides may have told another one
            befores.append(end if is_known else 0 if tick == 1 else None)
            if tick in told:
                end, is_known = told[tick], True
            ends.append(end)
        return ends, befores, is_known

    @property
    def tells_reading(self) -> bool:
        """Whether it says of any source how far it was read."""
        return any(
            figure.startswith(f"{READ} ")
            for source in self.past.subjects("source")
            for figure in self.past.figures(source)
        )

    def mark(self, query: str, alias: str, column: str, figure: str) -> list[Watermark]:
        """``watermark`` or ``late_below`` of an event time, of every tick."""
        ended = self.ended
        return [
            NEVER
            if value is None
            else ENDED
            if value == END and ended is not None and slot >= ended
            else value
            for slot, value in enumerate(self.levels(subject_of("time", query, alias, column), figure))
        ]

    def marks_of(self, query: QueryPlan) -> Marks:
        """Of one query, per slot: below which times rows of the tick were late, and below which rows were
        released in it, of a query that is one join (`joined_of`)."""
        keys = {
            side.watermark_key(column): (side.name, column)
            for side in query.sides
            for column in side.event_times
        }
        after = {key: self.mark(query.name, *of, "watermark") for key, of in keys.items()}
        limits = {key: np.full(len(self), MIN_TIME, dtype=np.int64) for key in keys}
        clocks = self.clocks()
        for slot in range(len(self) if joined_of(query) is not None else 0):
            marks = {key: own[slot] for key, own in after.items()}
            for key, limit in release_limits(query, marks, clocks[slot] or 0).items():
                limits[key][slot] = _time(limit)
        late = {key: self.mark(query.name, *of, "late_below") for key, of in keys.items()}
        return Marks(
            {key: np.array([_time(mark) for mark in marks], dtype=np.int64) for key, marks in late.items()},
            {key: np.maximum.accumulate(own) for key, own in limits.items()},
            {},
        )


def joined_of(query: QueryPlan) -> JoinPlan | None:
    """The join of two inputs that is all of a query, and releases rows by their times; None: it is none."""
    joins = query.every(JoinPlan)
    if len(query.nodes) > 1 or not joins:
        return None
    (join,) = joins
    is_other = join.asof is not None or join.changes or any(side.feeds for side in join.sides)
    return None if is_other or join.left_to_spark else join


def recorded(past: Past, until: int | None = None) -> Recorded:
    """The ticks of a history. ``until``: the last tick of the state: later ones were taken back."""
    points = past.series(JOB, "seconds").points
    firsts, lasts = (points.column(name).to_pylist() for name in ("first_tick", "last_tick"))
    ticks: list[int] = []
    for tick, last in zip(firsts, lasts, strict=True):
        if tick == last and (until is None or tick <= until):
            del ticks[bisect_left(ticks, tick) :]  # the job may have gone back to a tick before
            ticks.append(tick)
    return Recorded(past, tuple(ticks))


def _time(mark: Watermark) -> int:
    return int(min(max(mark, MIN_TIME), MAX_TIME))
