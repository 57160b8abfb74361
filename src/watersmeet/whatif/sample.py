"""A sample of a job's streams: rows in the order in which they arrived, and the ticks that took them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError, SpecError, WatersmeetError, raise_all
from watersmeet.event_time import MIN_TIME, Times
from watersmeet.kernel.ordinals import known_times
from watersmeet.names import DIFF, PARTITION
from watersmeet.spec.model import Source

Numbers = npt.NDArray[np.int64]

TICKS = 1_000
"""So many ticks, about, a sample is cut into if nobody says how."""


@dataclass(frozen=True)
class SampleSource:
    """Sample of one source.

    Attributes:
        rows: rows with all declared columns, in order of arrival if there is no ``arrival``.
        arrival: an additional column with the arrival time of each row.
        partition: an additional column with the partition of each row.
        first_time: the event time that orders rows without an arrival time.
    """

    source: Source
    rows: pa.Table
    first_time: str
    arrival: pa.ChunkedArray | None = None
    partition: pa.ChunkedArray | None = None


@dataclass(frozen=True)
class ArrivedRows:
    """Rows of one source in order of arrival, with `PARTITION` and `DIFF`.

    Attributes:
        ticks: tick that read each row; never decreases.
        clocks: arrival time of each row.
    """

    source: Source
    rows: pa.Table
    ticks: Numbers
    clocks: Times

    @property
    def count(self) -> int:
        return int(self.rows.num_rows)


@dataclass(frozen=True)
class Sample:
    """Sample of all sources, divided into ticks.

    Attributes:
        clocks: clock of every tick.
        by_arrival: clocks are values of arrival columns instead of event times.
        in_time: clocks are in µs; otherwise in plain units of integer times.
    """

    sources: Mapping[str, ArrivedRows]
    clocks: Times
    by_arrival: bool
    in_time: bool
    nulls: Mapping[str, int] = field(default_factory=dict)

    @property
    def ticks(self) -> int:
        return len(self.clocks)

    @property
    def rows(self) -> int:
        return sum(source.count for source in self.sources.values())

    def clock_us(self, tick: int) -> int:
        """Return the clock of a tick for an engine, in µs; 0 if rows do not arrive by times."""
        return int(self.clocks[tick]) if self.in_time else 0


def sample_of(
    given: Sequence[SampleSource],
    *,
    ticks: int = TICKS,
    rows_per_tick: int | None = None,
    tick_length: int | None = None,
    idle_us: Sequence[int] = (),
) -> Sample:
    """Order the rows of all sources by arrival and divide them into ticks.

    A row without an arrival time arrives at the newest event time that its source has had so far: the
    order within a source is that of its rows, and sources are interleaved by event times.

    Args:
        rows_per_tick: rows per tick over all sources; None: all rows divided by ``ticks``.
        tick_length: instead of that, the length of a tick on the clock, in its unit.
        idle_us: idle timeouts to try; before a silence of that length ends, there is a tick without
            rows, as in a run.

    Raises:
        SpecError: only some sources have arrival times, or their clocks have no common unit.
        EngineError: a source has no rows, or no row with a time.
    """
    _check_alike(given)
    by_arrival = any(source.arrival is not None for source in given)
    clocks, orders, nulls = {}, {}, {}
    problems: list[WatersmeetError] = []
    for source in given:
        name = source.source.name
        try:
            clocks[name], orders[name], nulls[name] = _clocks(source)
        except WatersmeetError as error:
            problems.append(error)
    raise_all(problems)
    of_ticks = _cut(list(clocks.values()), ticks, rows_per_tick, tick_length)
    of_source = dict(zip(clocks, of_ticks, strict=True))
    in_time = is_on_clock(given)
    tick_clocks = _tick_clocks(clocks, of_source)
    moved, tick_clocks = _with_silence(tick_clocks, min(idle_us, default=None) if in_time else None)
    return Sample(
        {
            source.source.name: ArrivedRows(
                source.source,
                _laid_out(source, orders[source.source.name]),
                moved[of_source[source.source.name]],
                clocks[source.source.name],
            )
            for source in given
        },
        tick_clocks,
        by_arrival,
        in_time,
        nulls,
    )


def is_on_clock(given: Sequence[SampleSource]) -> bool:
    """Return True if rows arrive by times, False if by plain numbers."""
    return all(map(_arrives_by_time, given))


def _check_alike(given: Sequence[SampleSource]) -> None:
    told = [source.source.name for source in given if source.arrival is not None]
    silent = [source.source.name for source in given if source.arrival is None]
    if told and silent:
        raise SpecError(
            f"--arrival is set for {_names(told)}, but not for {_names(silent)}",
            code="mixed-arrival",
            hint="set --arrival for all sources, or for none, which uses event times as arrival times",
        )
    units = {_arrives_by_time(source): source.source.name for source in given}
    if len(units) > 1:
        raise SpecError(
            f'arrival times of "{units[True]}" are times, but those of "{units[False]}" are numbers, so'
            " the order of rows is unknown",
            code="mixed-arrival",
            hint="set --arrival for all sources, with columns of the same type",
        )


def _names(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _arrives_by_time(given: SampleSource) -> bool:
    return not pa.types.is_integer(_clock_column(given).type)


def _clock_column(given: SampleSource) -> pa.ChunkedArray:
    return given.rows.column(given.first_time) if given.arrival is None else given.arrival


def _clocks(given: SampleSource) -> tuple[Times, Numbers | None, int]:
    """Return the arrival times of a source's rows.

    Returns:
        The times in order; the order of the rows (None: unchanged); the number of rows without a time.
    """
    name = given.source.name
    if not given.rows.num_rows:
        raise EngineError(f'the sample of "{name}" has no rows', code="empty-sample")
    column = _clock_column(given).combine_chunks()
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = known_times(column)
    missing = int(values.null_count)
    if given.arrival is not None:
        if missing:
            raise EngineError(
                f'{missing} rows of "{name}" have NULL in the column of --arrival',
                code="null-arrival",
                hint="remove these rows from the sample, or use another column",
            )
        clocks = values.to_numpy(zero_copy_only=True)
        if (clocks[1:] >= clocks[:-1]).all():
            return clocks, None, 0
        order = np.argsort(clocks, kind="stable")
        return clocks[order], order, 0
    if missing == len(values):
        raise EngineError(
            f'no row of the sample of "{name}" has an event time: "{given.first_time}" is NULL in all rows',
            code="no-event-times",
            hint="check that the column has the name and type of the job's event time",
        )
    times = pc.fill_null(values, MIN_TIME).to_numpy(zero_copy_only=False)
    clocks = np.maximum.accumulate(times)
    first = clocks[np.argmax(clocks > MIN_TIME)]
    return np.where(clocks > MIN_TIME, clocks, first), None, missing


def _cut(
    clocks: Sequence[Times], ticks: int, rows_per_tick: int | None, tick_length: int | None
) -> list[Numbers]:
    """Return the tick of each row, per source; tick numbers have no gaps."""
    together = np.concatenate(clocks)
    if tick_length is not None:
        numbers = (together - together.min()) // np.int64(tick_length)
        _, numbers = np.unique(numbers, return_inverse=True)
    else:
        size = rows_per_tick or max(1, -(-len(together) // ticks))
        rank = np.empty(len(together), dtype=np.int64)
        rank[np.argsort(together, kind="stable")] = np.arange(len(together), dtype=np.int64)
        numbers = rank // size
    borders = np.cumsum([len(own) for own in clocks])[:-1]
    return [part.astype(np.int64) for part in np.split(numbers, borders)]


def _tick_clocks(clocks: Mapping[str, Times], ticks: Mapping[str, Numbers]) -> Times:
    """Return the clock of each tick: the arrival of its last row."""
    count = 1 + max(int(own.max()) for own in ticks.values())
    latest = np.full(count, MIN_TIME, dtype=np.int64)
    for name, own in ticks.items():
        np.maximum.at(latest, own, clocks[name])
    return latest


def _with_silence(clocks: Times, idle_us: int | None) -> tuple[Numbers, Times]:
    """Insert ticks without rows where more than `idle_us` pass without a row.

    Returns:
        The new number of every old tick; the clocks of all ticks.
    """
    numbers = np.arange(len(clocks), dtype=np.int64)
    if idle_us is None:
        return numbers, clocks
    long = np.flatnonzero(np.diff(clocks) > idle_us) + 1
    moved = numbers + np.searchsorted(long, numbers, side="right")
    return moved, np.insert(clocks, long, clocks[long] - 1)


def _laid_out(given: SampleSource, order: Numbers | None) -> pa.Table:
    count = given.rows.num_rows
    partition = given.partition
    if partition is None:
        partition = pa.chunked_array([pa.repeat(pa.scalar(None, pa.string()), count)])
    rows = given.rows.append_column(PARTITION, partition)
    rows = rows.append_column(DIFF, pa.chunked_array([pa.array(np.ones(count, dtype=np.int64))]))
    return (rows if order is None else rows.take(pa.array(order))).combine_chunks()
