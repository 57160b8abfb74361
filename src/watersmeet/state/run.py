"""A run: an immutable, memory-mapped Arrow file of rows of one arrangement, sorted by slot (`kernel.slots`).

Columns of the file: ``#slot`` int64 ascending; per time column that releases rows, or in whose order they are
looked at, `order_of_times` of it uint32, the row numbers in ascending order of that time; per further key by
which rows are found `FoundBy.prefixes` and `FoundBy.places` (`kernel.match.prefixes`); when only one column
releases and there are other event times, ``#least:<other>`` int64: in that order, the least ``other`` from
here to the end; where the order in which rows came is wanted, `ARRIVAL` uint32, their places in it within the
run. Then the kept columns, event times as int64 without NULLs, each with the digest of what it is made of
(`state.columns`) in its field's metadata; and, of rows that ASOF joins look for, ``#came`` int64: by which of
equal times the one that came first is known, in a run that was not merged yet less ``Run.offset``.

By what the rows are sorted within a hash is said by each run (``index``), and release does not depend on it.

Releasing is not writing: a row is released when one of its times is below the arrangement's limit for that
column: a range of ``#order``, which costs what goes. It stays on disk until the run is dropped or merged.
"""

from __future__ import annotations

import re
import uuid
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.event_time import NEVER, Mask, Watermark, below
from watersmeet.kernel.asof import CAME
from watersmeet.kernel.batches import batches_in, one_batch
from watersmeet.kernel.hashing import hash_columns
from watersmeet.kernel.match.prefixes import sorted_prefixes
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.ordinals import ordinals_of
from watersmeet.kernel.pieces import Columns, reordered, whole
from watersmeet.kernel.slots import Slots, buckets_in, encode, order_of, shift_for
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.measure import Measured
from watersmeet.names import ours
from watersmeet.state.beside import FoundBy, is_of_key, least_times, order_of_times
from watersmeet.state.columns import StoredColumn, chosen, lacking, with_origins
from watersmeet.state.damage import damaged
from watersmeet.state.heavy import HeavyKey, heavy_keys_in
from watersmeet.state.record import FrozenRecord
from watersmeet.state.store import MemoryStore, Store

SLOT = ours("slot")
ARRIVAL = ours("arrival")

FIRST_LOOK = 16
"""Rows that a search for the first live one looks at first; then twice as many, and so on: about twice those
that it passes over, at most."""


class Run(FrozenRecord):
    """What a manifest says of a run. ``index``: the name of what its rows are sorted by (within a hash);
    ``spans``: least and greatest of each event time and of each index that it could have; ``base``,
    ``shift``: of its slots; ``low``, ``high``: least and greatest slot; ``tick``: when its rows (the newest
    of them) arrived; ``level``: how often its rows were merged; ``group``: runs of one merge share it.
    ``origin``: of rows that ASOF joins look for, as ingest wrote them: (branch, source partition, ingest
    task). ``stands_for``: how many rows of its side, where the run's are partial aggregates, or deletes that
    are remembered: none. ``keys``: how many different keys its rows have, and of each further key by which
    they are found, where that is counted (by 32 bits of hashes). ``heavy``: see `state.heavy`."""

    name: str
    rows: int
    nbytes: int
    checksum: int
    tick: int
    index: str | None
    base: int
    shift: int
    low: int
    high: int
    spans: dict[str, tuple[int, int]]
    group: str
    level: int = 0
    origin: tuple[int, str, int] | None = None
    offset: int = 0
    stands_for: int | None = None
    keys: tuple[int, ...] = ()
    heavy: tuple[HeavyKey, ...] = ()


@dataclass(frozen=True)
class RunLayout:
    """How runs of an arrangement are laid out.

    ``indexes``: what the rows of a hash can be sorted by, the one to begin with first (none: hashes only).
    ``event_times``: all event-time columns; ``releasing``: those of them by which rows are released;
    ``watched``: others in whose order rows are looked at. ``by_value``: there is no key, and slots are the
    ordinals of the index themselves. ``ties``: rows have `kernel.asof.CAME`, and with equal hashes they are
    in exact order of time, those with equal times in the order in which they came, or against it.
    ``columns``: those that are kept, in order; none: all that a run has. ``found_by``: further keys by which
    rows are found without being sorted by them; runs may have more. ``counts_keys``: it is counted how many
    keys there are. ``key``: the columns whose hashes sort the rows, where there is one.
    """

    indexes: tuple[Measured, ...]
    event_times: tuple[str, ...]
    releasing: tuple[str, ...]
    by_value: bool = False
    ties: Literal["ascending", "descending"] | None = None
    watched: tuple[str, ...] = ()
    columns: tuple[StoredColumn, ...] = ()
    found_by: tuple[FoundBy, ...] = ()
    counts_keys: bool = False
    key: tuple[str, ...] = ()

    @property
    def ordering(self) -> tuple[str, ...]:
        """The columns by which rows are in order in `order_of_times` of it."""
        return (*self.releasing, *self.watched)

    @property
    def internal(self) -> tuple[str, ...]:
        """The columns of a run's file before those that are kept."""
        beside = [
            (order_of_times(c), *(least_times(other) for other in self.suffix_minima)) for c in self.ordering
        ]
        return (SLOT, *(name for names in beside for name in names))

    @property
    def suffix_minima(self) -> tuple[str, ...]:
        if len(self.releasing) != 1:
            return ()
        return tuple(column for column in self.event_times if column not in self.ordering)

    def index(self, name: str | None) -> Measured | None:
        """The index of that name; the first one for None, or for a name of an earlier version's."""
        measured = next((index for index in self.indexes if index.name == name), None)
        return measured or next(iter(self.indexes), None)


def sort_rows(
    batch: Columns, hashes: Slots, layout: RunLayout, index: str | None = None
) -> tuple[SortedRows, Rows]:
    """``batch`` in slot order, and the positions that its rows had: int64[n].

    Args:
        hashes: int64[n], only the upper halves count.
        index: the name of what to sort by within a hash; None: the first of the layout's.
    """
    count, chosen = batch.num_rows, layout.index(index)
    measured = dict.fromkeys([*(Measured(column) for column in layout.event_times), *layout.indexes])
    spans = {}
    values = np.zeros(count, dtype=np.int64)
    for measured_column in measured:
        ordinals = ordinals_of(batch.column(measured_column.column), measured_column.measure)
        spans[measured_column.name] = (int(ordinals.min()), int(ordinals.max())) if count else (0, 0)
        if measured_column == chosen:
            values = ordinals
    base, greatest = (0, 0) if chosen is None else spans[chosen.name]
    if layout.by_value:
        shift, slots = 0, values
    else:
        shift = shift_for(base, greatest)
        slots = encode(hashes, values, base, shift)
    order = order_of(slots)
    if layout.ties is not None:
        came = batch.column(CAME).to_numpy(zero_copy_only=True)
        order = _with_ties(order, slots, values, came if layout.ties == "ascending" else -came)
    rows = SortedRows(
        slots[order],
        base,
        shift,
        greatest,
        reordered(batch, order),
        chosen,
        spans,
        layout.by_value,
    )
    return rows, order


def _with_ties(order: Rows, slots: Slots, times: Slots, came: npt.NDArray[np.int64]) -> Rows:
    """The order with rows of equal slots by time and ``came``. Cost: one sort of those rows."""
    slots_in_order = slots[order]
    same = slots_in_order[1:] == slots_in_order[:-1]
    if not same.any():
        return order
    places = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    rows = order[places]
    order[places] = rows[np.lexsort((came[rows], times[rows], slots[rows]))]
    return order


def _named(arrangement: str, tick: int) -> str:
    """A new name, by which people know the arrangement: names of users may be long, and hold anything."""
    letters = re.sub(r"[^A-Za-z0-9_.#]", "_", arrangement.replace("/", "."))[:80]
    return f"runs/{letters}-{tick}-{uuid.uuid4().hex[:16]}.arrow"


def write_run(
    store: Store,
    arrangement: str,
    rows: SortedRows,
    layout: RunLayout,
    *,
    tick: int,
    made_in: int | None = None,
    level: int = 0,
    group: str | None = None,
    origin: tuple[int, str, int] | None = None,
    stands_for: int | None = None,
    arrival: Rows | None = None,
    lasting: bool = True,
) -> Run:
    """Write sorted rows (at least one) as a new run. Cost: one sort per releasing column and further key.

    Args:
        tick: of the newest of its rows; ``made_in``: of its name, if a later one writes it (`state.behind`).
        arrival: per row its place in the order in which they came; asked for in the tick in which they do.
        lasting: it becomes part of the state; else it brings rows within this tick.
    """
    arrays: list[pa.Array] = [pa.array(rows.slots)]
    names = [SLOT]
    for column in layout.ordering:
        order = order_of(rows.times(column))
        arrays.append(pa.array(order.astype(np.uint32)))
        names.append(order_of_times(column))
        for other in layout.suffix_minima:
            least = np.minimum.accumulate(rows.times(other)[order][::-1])[::-1]
            arrays.append(pa.array(np.ascontiguousarray(least)))
            names.append(least_times(other))
    if arrival is not None:
        arrays.append(pa.array(arrival.astype(np.uint32)))
        names.append(ARRIVAL)
    kept = whole(rows.batch)
    keys = [buckets_in(rows.slots)] if layout.counts_keys else []
    for key in layout.found_by:
        by_hash = sorted_prefixes(hash_columns([kept.column(column) for column in key.columns], len(rows)))
        keys.append(by_hash.keys)
        arrays += [pa.array(by_hash.prefixes), pa.array(by_hash.places)]
        names += [key.prefixes, key.places]
    arrays += kept.columns
    names += kept.schema.names
    plain = pa.RecordBatch.from_arrays(arrays, names=names)
    batch = pa.RecordBatch.from_arrays(arrays, schema=with_origins(plain.schema, layout.columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    name = _named(arrangement, tick if made_in is None else made_in)
    store.write(name, data, lasting=lasting)
    return Run(
        name=name,
        rows=len(rows),
        nbytes=data.size,
        checksum=zlib.crc32(data),
        tick=tick,
        index=None if rows.index is None else rows.index.name,
        base=rows.base,
        shift=rows.shift,
        low=int(rows.slots[0]),
        high=int(rows.slots[-1]),
        spans=dict(rows.spans),
        group=group or name,
        level=level,
        origin=origin,
        stands_for=stands_for,
        keys=tuple(keys),
        heavy=heavy_keys_in(rows.slots, kept, layout.key),
    )


def verify_run(store: Store, run: Run) -> None:
    """Read all of a run. Raises: StateError when it is missing, or not what was written."""
    data = store.read(run.name)
    if data.size != run.nbytes or zlib.crc32(data) != run.checksum:
        raise damaged(f'run "{run.name}"', "it is not what was written")


def schema_of(store: Store, run: Run) -> pa.Schema:
    """The columns of a run's file. Raises: StateError when it is missing or not what the manifest says."""
    return _opened(store, run).schema


def batches_of(store: Store, run: Run) -> Iterator[pa.RecordBatch]:
    """All that a run's file holds. Raises: StateError when it is missing or not what was written."""
    verify_run(store, run)
    yield from batches_in(_opened(store, run))


def _opened(store: Store, run: Run) -> pa.ipc.RecordBatchFileReader:
    """Raises: StateError when it is missing or not what the manifest says."""
    data = store.read(run.name)
    if data.size != run.nbytes:
        raise damaged(f'run "{run.name}"', f"{data.size} bytes where {run.nbytes} were written")
    try:
        return pa.ipc.open_file(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise damaged(f'run "{run.name}"', str(error)) from None


class OpenRun:
    """A run mapped into memory. Opening costs well under a millisecond, whatever the size."""

    def __init__(self, run: Run, batch: pa.RecordBatch, layout: RunLayout) -> None:
        self.run = run
        self.layout = layout
        self._batch = batch

    @classmethod
    def open(cls, store: Store, run: Run, layout: RunLayout) -> OpenRun:
        """Map the run. Raises StateError when it is missing or not what the manifest says."""
        held = store.opened if isinstance(store, MemoryStore) else {}
        cached = held.get(run.name)
        if cached is not None and cached.layout is layout and cached.run == run:
            opened: OpenRun = cached
            return opened
        try:
            batch = one_batch(list(batches_in(_opened(store, run))))
        except (pa.ArrowException, OSError, IndexError) as error:
            raise damaged(f'run "{run.name}"', str(error)) from None
        if batch.num_rows != run.rows:
            raise damaged(f'run "{run.name}"', f"{batch.num_rows} rows where {run.rows} were written")
        held[run.name] = fresh = cls(run, batch, layout)
        return fresh

    @cached_property
    def sorted_rows(self) -> SortedRows:
        index = self.layout.index(self.run.index)
        return SortedRows(
            slots=self._numpy(SLOT),
            base=self.run.base,
            shift=self.run.shift,
            greatest=self.run.spans[index.name][1] if index else 0,
            batch=self._kept(),
            index=index,
            spans=self.run.spans,
            by_value=self.layout.by_value,
        )

    def found_by(self, key: int) -> SortedRows:
        """All rows, to be looked up by the hashes of a further key of the layout, by its number."""
        names = self.layout.found_by[key]
        try:
            prefixes, places = self._numpy(names.prefixes), self._numpy(names.places)
        except KeyError:
            raise damaged(f'run "{self.run.name}"', f"it has no column {names.prefixes}") from None
        rows = replace(self.sorted_rows, index=None, base=0, shift=0, greatest=0, by_value=False)
        return replace(rows, slots=prefixes, places=places, prefixed=True)

    @property
    def arrival(self) -> npt.NDArray[np.uint32] | None:
        """The column `ARRIVAL`, if the run has one."""
        if ARRIVAL not in self._batch.schema.names:
            return None
        arrival: npt.NDArray[np.uint32] = self._batch.column(ARRIVAL).to_numpy(zero_copy_only=True)
        return arrival

    def _kept(self) -> pa.RecordBatch:
        """The kept columns, by the layout's names and in its order, then what belongs to the run itself."""
        schema, layout = self._batch.schema, self.layout
        internal = (*layout.internal, ARRIVAL, *filter(is_of_key, schema.names))
        if not layout.columns:
            return self._batch.select([name for name in schema.names if name not in internal])
        try:
            names = chosen(schema, layout.columns, internal)
        except KeyError:
            missing = lacking(schema, layout.columns)
            raise damaged(f'run "{self.run.name}"', f"it has no column for {missing[0].text}") from None
        arrays = [self._batch.column(own) for _, own in names]
        return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in names])

    def _numpy(self, name: str) -> npt.NDArray[np.int64]:
        array: npt.NDArray[np.int64] = self._batch.column(name).to_numpy(zero_copy_only=True)
        return array

    def below(self, column: str, limit: Watermark) -> int:
        """How many rows have a time < ``limit``. Cost: O(log rows)."""
        least, greatest = self.run.spans[column]
        if limit <= least:
            return 0
        if limit > greatest:
            return self.run.rows
        order, times = self._numpy(order_of_times(column)), self._numpy(column)
        return bisect_left(range(self.run.rows), int(limit), key=lambda i: int(times[order[i]]))

    def between(self, column: str, low: Watermark, high: Watermark) -> Rows:
        """Rows with a time in [low, high), in order of it, by a column that orders them. Cost: those rows."""
        first, end = self.below(column, low), self.below(column, high)
        return self.in_order(column, first, max(first, end))

    def in_order(self, column: str, first: int, end: int) -> Rows:
        """Rows at the places [first, end) in the order of a column that orders them."""
        return self._numpy(order_of_times(column))[first:end].astype(np.int64)

    def newly_released(self, old: Mapping[str, Watermark], new: Mapping[str, Watermark]) -> Rows:
        """Rows released by ``new`` limits that ``old`` ones had not released: int64[m], each once."""
        parts = []
        for number, column in enumerate(self.layout.releasing):
            first = self.below(column, old.get(column, NEVER))
            end = self.below(column, new.get(column, NEVER))
            if end <= first:
                continue
            rows = self._numpy(order_of_times(column))[first:end].astype(np.int64)
            for place, other in enumerate(self.layout.releasing):
                if place != number:
                    limit = (new if place < number else old).get(other, NEVER)
                    rows = rows[~below(self._numpy(other)[rows], limit)]
            parts.append(rows)
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def least(self, limits: Mapping[str, Watermark]) -> dict[str, int] | None:
        """The least of each event time over the rows that ``limits`` do not release; None when none is left.

        Cost: O(log rows) when nothing is released or at most one column releases; with several, and with
        other columns beside them, up to O(rows).
        """
        releasing = self.layout.releasing
        firsts = {column: self.below(column, limits.get(column, NEVER)) for column in releasing}
        if not any(firsts.values()):
            return {column: self.run.spans[column][0] for column in self.layout.event_times}
        if any(first == self.run.rows for first in firsts.values()):
            return None
        if len(releasing) == 1:
            (column,) = releasing
            first = firsts[column]
            order = self._numpy(order_of_times(column))
            least = {column: int(self._numpy(column)[order[first]])}
            for other in self.layout.suffix_minima:
                least[other] = int(self._numpy(least_times(other))[first])
            return least
        if len(releasing) == len(self.layout.event_times):
            times = {column: self._first_live(column, first, limits) for column, first in firsts.items()}
            return {c: time for c, time in times.items() if time is not None} or None
        live = self.live(limits, 0, self.run.rows)
        if not live.any():
            return None
        return {column: int(self._numpy(column)[live].min()) for column in self.layout.event_times}

    def first_alive(
        self,
        column: str,
        limits: Mapping[str, Watermark],
        start: int,
        stop: int,
        gone: Callable[[Rows], Mask],
        cursor: int = 0,
    ) -> tuple[int | None, int]:
        """The least time of ``column`` over the rows of [start, stop) that are neither released by ``limits``
        nor ``gone``, None when there are none; and where it stands in the order of ``column``, which is one
        of `RunLayout.ordering`: before that place there is no such row, now or ever after.

        Args:
            gone: asked of rows by number from ``start`` on.
            cursor: what was found so a tick ago. Cost: the places from there on that are passed over.
        """
        order, look = self._numpy(order_of_times(column)), FIRST_LOOK
        first = cursor
        if column in self.layout.releasing:
            first = max(first, self.below(column, limits.get(column, NEVER)))
        while first < self.run.rows:
            places = np.arange(first, min(first + look, self.run.rows))
            rows = order[places].astype(np.int64)
            own = (rows >= start) & (rows < stop)
            places, rows = places[own], rows[own]
            alive = ~gone(rows - start)
            for other in self.layout.releasing:
                if other != column and limits.get(other, NEVER) > NEVER:
                    alive &= ~below(self._numpy(other)[rows], limits[other])
            if alive.any():
                first_place = int(alive.argmax())
                return int(self._numpy(column)[rows[first_place]]), int(places[first_place])
            first, look = first + look, look * 2
        return None, self.run.rows

    def _first_live(self, column: str, first: int, limits: Mapping[str, Watermark]) -> int | None:
        """In the order of ``column``, from place ``first`` on, the first time of a row that no other column
        releases; None when there is none. Cost: how many rows it passes over."""
        order, look = self._numpy(order_of_times(column)), FIRST_LOOK
        while first < self.run.rows:
            rows = order[first : first + look]
            live = np.ones(len(rows), dtype=np.bool_)
            for other in self.layout.releasing:
                if other != column:
                    live &= ~below(self._numpy(other)[rows], limits.get(other, NEVER))
            if live.any():
                return int(self._numpy(column)[rows[live.argmax()]])
            first, look = first + look, look * 2
        return None

    def live(self, limits: Mapping[str, Watermark], start: int, stop: int) -> Mask:
        """Which rows of [start, stop) the limits do not release: bool[stop - start]."""
        keep = np.ones(stop - start, dtype=np.bool_)
        for column in self.layout.releasing:
            keep &= ~below(self._numpy(column)[start:stop], limits.get(column, NEVER))
        return keep


def whole_run_released(run: Run, releasing: Sequence[str], limits: Mapping[str, Watermark]) -> bool:
    """Whether every row of the run is below the limit of one column: the run can be dropped unread."""
    return any(run.spans[column][1] < limits.get(column, NEVER) for column in releasing)
