"""A history as it is read: runs, and series of figures, of a job that runs or has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import StateError
from watersmeet.history import runs as run_files
from watersmeet.history import segments
from watersmeet.history.points import empty, joined
from watersmeet.history.runs import Run
from watersmeet.state.store import Store

_ATTEMPTS = 5


@dataclass(frozen=True)
class Series:
    """One figure of one subject, in order of time: the points' ticks and clocks (µs), ``last``, ``least``,
    ``most`` and ``total`` as in `points`, NULLs among them."""

    points: pa.Table

    def __len__(self) -> int:
        return int(self.points.num_rows)

    @property
    def clock_us(self) -> npt.NDArray[np.int64]:
        """When the last tick of each point ended."""
        return np.asarray(self.points.column("last_us"), dtype=np.int64)

    def values(self, name: str = "last") -> list[int | None]:
        """``last``, ``least``, ``most`` or ``total``."""
        return self.points.column(name).to_pylist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Past:
    """``points``: all, in order of the clock; ``problems``: what of it cannot be read."""

    points: pa.Table
    runs: Sequence[Run] = ()
    problems: Sequence[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.points.num_rows > 0 or bool(self.runs)

    def subjects(self, kind: str) -> list[str]:
        """The subjects of a kind (``input``, ``time``, …), as they first came."""
        names = pc.unique(self.points.column("of")).to_pylist()
        return [name for name in names if name.split("/", 1)[0] == kind]

    def figures(self, of: str) -> list[str]:
        """The figures of a subject, as they first came."""
        of_subject = self.points.filter(pc.equal(self.points.column("of"), of))
        return pc.unique(of_subject.column("figure")).to_pylist()  # type: ignore[no-any-return]

    def series(self, of: str, figure: str) -> Series:
        """Empty when there is no such figure."""
        wanted = pc.and_(
            pc.equal(self.points.column("of"), of), pc.equal(self.points.column("figure"), figure)
        )
        return Series(self.points.filter(wanted))

    def told(self) -> list[tuple[int, int, str, str, str]]:
        """What was told in words, in order: tick, clock, subject, figure, text."""
        words = self.points.filter(pc.is_valid(self.points.column("text")))
        names = ("first_tick", "first_us", "of", "figure", "text")
        return list(zip(*(words.column(name).to_pylist() for name in names), strict=True))


def read(store: Store) -> Past:
    """The history in a store; empty when there is none. Of a job that runs it may be some seconds old.

    Raises:
        StateError: the store does not answer.
    """
    for attempt in range(_ATTEMPTS):
        names = store.names(segments.FOLDER)
        problems: list[str] = []
        tables = []
        moved = False
        for segment in segments.counting(names)[0]:
            try:
                tables.append(segments.read(store, segment))
            except StateError as error:
                if error.code not in ("state-missing", "state-damaged"):
                    raise
                moved |= error.code == "state-missing"
                problems.append(error.message)
        if not moved or attempt == _ATTEMPTS - 1:  # else the job went on meanwhile
            break
    points = joined(tables).sort_by([("last_us", "ascending")]) if tables else empty()
    return Past(points, run_files.read(store, names, problems), problems)
