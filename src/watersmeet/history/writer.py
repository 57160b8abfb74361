"""Writes a run's history: the points of its ticks now and then, and rolls up what is old.

Ticks are kept one by one in a segment that is written anew, with all of its ticks, every few seconds; a run
goes on with that of the run before, and a full one is followed by the next. Of each level the last
`MAX_SEGMENTS`
segments are kept. One more, and the oldest is rolled up, `FACTOR` of its points to one, into the newest of
the level above; above the last level it goes. So a history has a greatest size however long a job lives, and
the last ticks in full.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import StateError
from watersmeet.history import segments
from watersmeet.history.points import Figures, Points, concat_points, empty, roll_up
from watersmeet.history.segments import HistorySegment
from watersmeet.state.store import Store

FULL_TICKS, FULL_POINTS = 256, 50_000
"""A segment of about that many ticks, or points, is full."""
MAX_SEGMENTS = 16
FACTOR = 16
LEVELS = 4
"""Ticks themselves, and three levels of them rolled up: at a tick a second for 3 years."""
LOCAL_PAUSE_S, REMOTE_PAUSE_S = 5.0, 30.0
_RETRY_S = 1.0
"""What is due while something is being written is looked at again after this long."""


class HistoryWriter:
    """Writer of the growing history of one job.

    The one run that holds the job's checkpoint uses it, in one thread; another thread writes. No tick
    waits for a write.

    Args:
        say: receives one message if the history cannot be written.
        pause_s: minimum seconds between two writes; None: depends on whether the store is remote.
    """

    def __init__(self, store: Store, say: Callable[[str], None], pause_s: float | None = None) -> None:
        self._store = store
        self._say = say
        self._said = False
        self._pause_s = (REMOTE_PAUSE_S if store.is_remote else LOCAL_PAUSE_S) if pause_s is None else pause_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._writing: Future[None] | None = None
        self._points = Points()
        self._written = time.monotonic()
        self._lock = threading.Lock()
        self._due: threading.Timer | None = None
        # of the thread alone
        self._segment: HistorySegment | None = None
        self._table = empty()
        self._levels: dict[int, list[HistorySegment]] = defaultdict(list)

    def add(self, tick: int, clock_us: int, figures: Figures) -> None:
        """Add the figures of one more tick; write them if a write is due and none is in progress."""
        with self._lock:
            self._points.add(tick, clock_us, figures)
            self._write_if_due()

    def close(self) -> None:
        """Write what is left, and wait for it."""
        with self._lock:
            if self._due is not None:
                self._due.cancel()
            if len(self._points):
                self._write()
        self._thread.shutdown()

    def _write_if_due(self) -> None:
        """Write, or see to it that it is done when it is time: the next tick may come late."""
        wait_s = self._written + self._pause_s - time.monotonic()
        is_due = wait_s <= 0 or len(self._points) >= FULL_POINTS
        if is_due and (self._writing is None or self._writing.done()):
            self._write()
        elif self._due is None:
            self._due = threading.Timer(max(wait_s, _RETRY_S), self._write_later)
            self._due.daemon = True
            self._due.start()

    def _write_later(self) -> None:
        with self._lock:
            self._due = None
            if len(self._points):
                self._write_if_due()

    def _write(self) -> None:
        self._writing = self._thread.submit(
            self._run_reporting_failure, partial(self._write_points, self._points.table())
        )
        self._written, self._points = time.monotonic(), Points()

    def _run_reporting_failure(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # nobody asks how the thread's work ended
            if not self._said:
                self._said = True
                reason = error.message if isinstance(error, StateError) else error
                self._say(f"the history of the job cannot be written, the job goes on without it: {reason}")

    def _write_points(self, points: pa.Table) -> None:
        """Write the next version of the newest segment with these points added; runs in the thread."""
        before = self._segment or self._resume_segment()
        self._table = concat_points([self._table, points])
        self._segment = replace(before, version=before.version + 1)
        try:
            segments.write(self._store, self._segment, self._table)
        except Exception:
            if _is_full(self._table):  # what waits for room must not grow with the run
                self._segment, self._table = _new(self._segment.last + 1), empty()
            raise
        if before.version:
            self._store.delete(before.name)
        if _is_full(self._table):
            self._levels[0].append(self._segment)
            self._segment, self._table = _new(self._segment.last + 1), empty()
            self._roll()

    def _resume_segment(self) -> HistorySegment:
        """Take over what is there; the segment that goes on, if there is one that is not full."""
        kept, held = segments.select_segments(self._store.names(segments.FOLDER))
        self._levels.clear()
        for segment in kept:
            self._levels[segment.level].append(segment)
        self._store.delete_all(held)
        self._roll()
        newest = max(kept, key=lambda segment: segment.last, default=None)
        if newest is None:
            return _new(1)
        table = self._read(newest) if newest.level == 0 else None
        if table is None or _is_full(table):
            return _new(newest.last + 1)
        self._levels[0].remove(newest)
        self._table = table
        return newest

    def _roll(self) -> None:
        for level in range(LEVELS):
            while len(self._levels[level]) > MAX_SEGMENTS:
                oldest = self._levels[level].pop(0)
                if level + 1 < LEVELS:
                    self._lift(oldest)
                self._store.delete(oldest.name)

    def _lift(self, segment: HistorySegment) -> None:
        """Roll a segment up into the newest of the level above, or into a new one if that is full."""
        level = segment.level + 1
        table = self._read(segment)
        if table is None:
            return
        points, above = roll_up(table, FACTOR**level), self._levels[level]
        newest = above[-1] if above else None
        before = (
            None if newest is None or newest.last - newest.first + 1 >= FACTOR**level else self._read(newest)
        )
        if newest is None or before is None or before.num_rows >= FULL_POINTS:
            lifted = replace(_new(segment.first), level=level, last=segment.last, version=1)
            segments.write(self._store, lifted, points)
            above.append(lifted)
            return
        lifted = replace(newest, last=segment.last, version=newest.version + 1)
        segments.write(self._store, lifted, concat_points([before, points]))
        above[-1] = lifted
        self._store.delete(newest.name)

    def _read(self, segment: HistorySegment) -> pa.Table | None:
        """Read a segment's points; return None if it is damaged and its points are lost."""
        try:
            return segments.read_segment(self._store, segment)
        except StateError as error:
            if error.code not in ("state-damaged", "state-missing"):
                raise
            return None


def _new(number: int) -> HistorySegment:
    """Create an unwritten segment of ticks."""
    return HistorySegment(0, number, number, 0, uuid.uuid4().hex[:8])


def _is_full(table: pa.Table) -> bool:
    ticks: int = pc.count_distinct(table.column("last_us")).as_py()
    return table.num_rows >= FULL_POINTS or ticks >= FULL_TICKS
