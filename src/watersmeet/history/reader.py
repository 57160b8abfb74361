"""A history as it is read: runs, and series of figures, of a job that runs or has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import StateError
from watersmeet.history import segments
from watersmeet.history import segments as run_files
from watersmeet.history.points import concat_points, empty
from watersmeet.history.segments import RunRecord
from watersmeet.state.store import Store

_ATTEMPTS = 5
_NONE = empty()


@dataclass(frozen=True)
class Series:
    """One figure of one subject, in order of time.

    Attributes:
        points: the ticks and clocks (µs) of the points, and ``last``, ``min``, ``max`` and ``total`` as in
            ``points``, which include NULLs.
    """

    points: pa.Table

    def __len__(self) -> int:
        return int(self.points.num_rows)

    @property
    def until_us(self) -> int:
        """Time at which the last of its ticks ended, in µs; 0 if there is none."""
        return _last_clock(self.points)

    def values(self, name: str = "last") -> list[int | None]:
        """Return a column of values: ``last``, ``min``, ``max`` or ``total``."""
        return self.points.column(name).to_pylist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class JobHistory:
    """History of a job.

    Attributes:
        points: all points, in order of the clock.
        problems: the parts of the history that cannot be read.
    """

    points: pa.Table
    runs: Sequence[RunRecord] = ()
    problems: Sequence[str] = field(default_factory=list)

    @cached_property
    def _ended(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """When each point's last tick ended, in order."""
        return self.points.column("last_us").to_numpy()  # type: ignore[no-any-return]

    @property
    def ticks(self) -> int:
        """Number of ticks; ticks that were rolled up together count as one."""
        return int(np.count_nonzero(np.diff(self._ended))) + min(1, len(self._ended))

    def since(self, clock_us: int) -> JobHistory:
        """Return the points of ticks that ended after `clock_us`, with all runs."""
        return self._from(int(np.searchsorted(self._ended, clock_us, side="right")))

    def recent(self, ticks: int) -> JobHistory:
        """Return the points of the last `ticks` ticks, with all runs."""
        point = len(self._ended)
        for _ in range(ticks):
            if not point:
                return self
            point = int(np.searchsorted(self._ended, self._ended[point - 1]))
        return self._from(point)

    def _from(self, point: int) -> JobHistory:
        return JobHistory(self.points.slice(point), self.runs, self.problems)

    def of_kind(self, kind: str) -> JobHistory:
        """Return the points of subjects of a kind (``input``, ``time``, …), with all runs."""
        subjects = pc.cast(self.points.column("subject"), pa.string())
        points = self.points.filter(pc.starts_with(subjects, f"{kind}/"))
        return JobHistory(points, self.runs, self.problems)

    @property
    def until_us(self) -> int:
        """Time at which the last known tick ended, in µs; 0 if there is none."""
        return _last_clock(self.points)

    def __bool__(self) -> bool:
        return self.points.num_rows > 0 or bool(self.runs)

    @cached_property
    def _by_figure(self) -> tuple[pa.Table, dict[tuple[str, str], tuple[int, int]]]:
        """Points sorted by figure and subject, then by time, and the range of each series.

        The ranges map (subject, figure) to the start and number of its points; figures are in the order in
        which they first occurred.
        """
        if not self.points.num_rows:
            return self.points, {}
        points = self.points.unify_dictionaries().combine_chunks()
        subjects, figures = (points.column(name).chunk(0) for name in ("subject", "figure"))
        keys = np.asarray(subjects.indices, dtype=np.int64) * len(figures.dictionary) + np.asarray(
            figures.indices
        )
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(starts, append=len(keys))
        first = np.argsort(order[starts])
        of_subject, of_figure = np.divmod(keys[starts[first]], len(figures.dictionary))
        names = (
            column.dictionary.take(pa.array(indices)).to_pylist()
            for column, indices in ((subjects, of_subject), (figures, of_figure))
        )
        places = zip(starts[first].tolist(), counts[first].tolist(), strict=True)
        return points.take(pa.array(order)), dict(zip(zip(*names, strict=True), places, strict=True))

    @cached_property
    def _by_subject(self) -> dict[str, list[str]]:
        figures: dict[str, list[str]] = {}
        for of, figure in self._by_figure[1]:
            figures.setdefault(of, []).append(figure)
        return figures

    def subjects(self, kind: str) -> list[str]:
        """Return the subjects of a kind (``input``, ``time``, …), in order of their first point."""
        return [of for of in self._by_subject if of.split("/", 1)[0] == kind]

    def figures(self, of: str) -> list[str]:
        """Return the figures of a subject, in order of their first point."""
        return self._by_subject.get(of, [])

    def series(self, of: str, figure: str) -> Series:
        """Return the series of a figure; it is empty if there is no such figure."""
        points, places = self._by_figure
        place = places.get((of, figure))
        return Series(_NONE if place is None else points.slice(*place))

    def told(self) -> list[tuple[int, int, str, str, str]]:
        """Return the recorded texts in order: tick, clock, subject, figure, text."""
        words = self.points.filter(
            pc.and_(pc.is_valid(self.points.column("text")), pc.is_null(self.points.column("last")))
        )
        names = ("first_tick", "first_us", "subject", "figure", "text")
        return list(zip(*(words.column(name).to_pylist() for name in names), strict=True))

    def keys(self, figure: str) -> dict[str, dict[str, int]]:
        """Return the most recently sampled values of a figure, per subject and text."""
        chosen = self.points.filter(
            pc.and_(
                pc.and_(pc.is_valid(self.points.column("text")), pc.is_valid(self.points.column("last"))),
                pc.equal(pc.cast(self.points.column("figure"), pa.string()), figure),
            )
        )
        last: dict[str, tuple[int, dict[str, int]]] = {}
        for of, text, at, value in zip(
            *(chosen.column(name).to_pylist() for name in ("subject", "text", "last_us", "last")), strict=True
        ):
            if of not in last or last[of][0] != at:
                last[of] = at, {}
            last[of][1][text] = value
        return {of: values for of, (_, values) in last.items()}


def _last_clock(points: pa.Table) -> int:
    return pc.max(points.column("last_us")).as_py() or 0


class HistoryReader:
    """Reads a history again and again, of a job that runs: of segments that did not change, nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tables: dict[str, pa.Table] = {}
        self._records: run_files.Records = {}
        self._seen: tuple[list[str], JobHistory] | None = None
        self._old: tuple[list[str], pa.Table] = [], empty()

    def read(self) -> JobHistory:
        """Read the current history; return the same object while it has not changed.

        Raises:
            StateError: the store does not answer.
        """
        for attempt in range(_ATTEMPTS):
            names = self._store.names(segments.FOLDER)
            if self._seen is not None and self._seen[0] == names:
                return self._seen[1]
            problems: list[str] = []
            moved = self._fetch(names, problems)
            if not moved or attempt == _ATTEMPTS - 1:  # else the job went on meanwhile
                break
        past = JobHistory(
            self._points(), run_files.read_runs(self._store, names, problems, self._records), problems
        )
        self._seen = None if problems else (names, past)
        return past

    def _points(self) -> pa.Table:
        """Return all points in order of the clock; concatenate all segments but the newest once."""
        if not self._tables:
            return empty()
        *old, newest = self._tables
        if self._old[0] != old:
            self._old = old, _sort_points([self._tables[name] for name in old])
        return _sort_points([self._old[1], self._tables[newest]])

    def _fetch(self, names: Sequence[str], problems: list[str]) -> bool:
        """Read the segments that are new; whether one was gone."""
        tables, moved = {}, False
        for segment in segments.select_segments(names)[0]:
            try:
                there = self._tables.get(segment.name)
                tables[segment.name] = segments.read_segment(self._store, segment) if there is None else there
            except StateError as error:
                if error.code not in ("state-missing", "state-damaged"):
                    raise
                moved |= error.code == "state-missing"
                problems.append(error.message)
        self._tables = tables
        return moved


def _sort_points(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables of points in order of the clock; sort only if they are out of order."""
    points = concat_points([table for table in tables if table.num_rows])
    ended = points.column("last_us").to_numpy()
    return points if (ended[1:] >= ended[:-1]).all() else points.sort_by([("last_us", "ascending")])


def read(store: Store) -> JobHistory:
    """Read the history in a store; it is empty if there is none.

    The history of a running job may be some seconds old.

    Raises:
        StateError: the store does not answer.
    """
    return HistoryReader(store).read()
