"""Runs that are read: mapped into memory, found by time or by a key, and asked what is left of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.event_time import NEVER, Mask, Watermark, are_below
from watersmeet.kernel.batches import batches_in, one_batch, take_rows
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.names import ours
from watersmeet.state.checksums import check_content, is_verified, note_written, read_verified
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkKind, read_marks
from watersmeet.state.runs.layout import (
    ARRIVAL,
    SLOT,
    Run,
    RunLayout,
    StoredColumn,
    choose_columns,
    is_of_key,
    least_times,
    missing_columns,
    order_of_times,
    origins_in,
)
from watersmeet.state.store import SMALL_BYTES, LocalStore, MemoryStore, Store, fetch_files
from watersmeet.state.stored_record import damage_error

NO_ROWS: Rows = np.zeros(0, dtype=np.int64)

FIRST_SEARCH_ROWS = 16
"""Rows that a search for the first live one looks at first; then twice as many, and so on: about twice those
that it passes over, at most."""


def verify_run(store: Store, run: Run) -> None:
    """Read all of a run. Raises: StateError when it is missing, or not what was written."""
    check_content(store, run.name, store.read(run.name), run.checksum, f'run "{run.name}"')


def damaged_runs(store: Store, runs: Sequence[Run]) -> Iterator[StateError]:
    """Read all of several runs: what is wrong with them."""
    by_name = {run.name: run for run in runs}
    for name, data in fetch_files(store, {run.name: run.nbytes for run in runs}):
        try:
            if isinstance(data, StateError):
                raise data
            check_content(store, name, data, by_name[name].checksum, f'run "{name}"')
        except StateError as error:
            yield error


def schema_of(store: Store, run: Run) -> pa.Schema:
    """Return the columns of a run's file.

    Raises:
        StateError: the file is missing or is not what the manifest describes.
    """
    return _open_reader(run, store.read(run.name)).schema


def batches_of(store: Store, run: Run) -> Iterator[pa.RecordBatch]:
    """Yield all batches of a run's file.

    Raises:
        StateError: the file is missing or differs from what was written.
    """
    verify_run(store, run)
    yield from batches_in(_open_reader(run, store.read(run.name)))


def _open_reader(run: Run, data: pa.Buffer) -> pa.ipc.RecordBatchFileReader:
    """Open a run's data as an Arrow file.

    Raises:
        StateError: the data differs from the manifest's description.
    """
    try:
        return pa.ipc.open_file(pa.BufferReader(_check_size(run, data)))
    except (pa.ArrowException, OSError) as error:
        raise damage_error(f'run "{run.name}"', str(error)) from None


def _read_run(store: Store, run: Run, data: pa.Buffer | None = None) -> pa.Buffer:
    """Return a run's bytes, ``data`` if they were fetched before.

    Raises:
        StateError: they are not what was written.
    """

    def read() -> pa.Buffer:
        return _check_size(run, store.read(run.name) if data is None else data)

    return read_verified(store, run.name, read, run.checksum, f'run "{run.name}"')


def _check_size(run: Run, data: pa.Buffer) -> pa.Buffer:
    """Return the bytes of a run. Raises: StateError when they are not as many as were written."""
    if data.size != run.nbytes:
        raise damage_error(f'run "{run.name}"', f"{data.size} bytes where {run.nbytes} were written")
    return data


class OpenRun:
    """Run that is mapped into memory when its rows are first needed.

    In most ticks the manifest's description suffices for most runs. Mapping takes well under a millisecond,
    whatever the size. Every access to rows raises StateError if the file is missing or differs from the
    manifest's description.
    """

    def __init__(self, run: Run, layout: RunLayout, contents: Callable[[], pa.Buffer]) -> None:
        self.run = run
        self.layout = layout
        self._contents = contents
        self._arrays: dict[str, npt.NDArray[np.int64]] = {}

    @classmethod
    def open(cls, store: Store, run: Run, layout: RunLayout) -> OpenRun:
        """Open one run of the store; defer reading where that costs nothing more later."""
        return next(cls.open_all(store, [run], layout))

    @classmethod
    def open_all(cls, store: Store, runs: Sequence[Run], layout: RunLayout) -> Iterator[OpenRun]:
        """Open several runs in order; fetch what must be fetched at once and together."""
        if isinstance(store, MemoryStore | LocalStore):
            yield from (cls._open_or_reuse_run(store, run, layout) for run in runs)
        elif store.is_remote:
            contents = store.read_all([run.name for run in runs])
            for run, data in zip(runs, contents, strict=True):
                yield cls(run, layout, partial(_read_run, store, run, data))
        else:
            yield from (cls(run, layout, partial(_read_run, store, run)) for run in runs)

    @classmethod
    def written(
        cls,
        store: Store,
        run: Run,
        layout: RunLayout,
        batch: pa.RecordBatch,
        schema: pa.Schema,
        kept: pa.RecordBatch,
    ) -> None:
        """Keep open a small run that was written just now, for whoever in this process reads it.

        Args:
            batch: all columns of its file; ``schema``: with what they are made of.
            kept: the columns of the rows.
        """
        if isinstance(store, MemoryStore | LocalStore) and run.nbytes <= SMALL_BYTES:
            if isinstance(store, LocalStore):
                note_written(store, run.name, run.nbytes, run.checksum)
            store.opened[run.name] = opened = cls(run, layout, partial(_read_run, store, run))
            opened._batch, opened._schema = batch, schema
            if not layout.columns or [column.name for column in layout.columns] == kept.schema.names:
                opened._kept = kept

    @classmethod
    def _open_or_reuse_run(cls, store: MemoryStore | LocalStore, run: Run, layout: RunLayout) -> OpenRun:
        """Return the run as opened earlier if nothing about it has changed, else open it."""
        held: OpenRun | None = store.opened.get(run.name)
        if held is not None and not held._is_current(store):
            held = None
        if held is not None and held.layout is layout and held.run.offset == run.offset:
            return held
        fresh = cls(run, layout, partial(_read_run, store, run))
        if held is not None and held.run.checksum == run.checksum and held._is_read:
            fresh._batch, fresh._schema = held._batch, held._schema
        if isinstance(store, MemoryStore) or run.nbytes <= SMALL_BYTES:
            store.opened[run.name] = fresh
        return fresh

    @property
    def _is_read(self) -> bool:
        return "_batch" in self.__dict__

    def _is_current(self, store: Store) -> bool:
        """Return True if the data read so far, if any, equals the stored data."""
        return not self._is_read or is_verified(store, self.run.name, self.run.nbytes, self.run.checksum)

    @cached_property
    def _batch(self) -> pa.RecordBatch:
        run = self.run
        try:
            batch = one_batch(list(batches_in(_open_reader(run, self._contents()))))
        except (pa.ArrowException, OSError, IndexError) as error:
            raise damage_error(f'run "{run.name}"', str(error)) from None
        if batch.num_rows != run.rows:
            raise damage_error(f'run "{run.name}"', f"{batch.num_rows} rows where {run.rows} were written")
        return batch

    @cached_property
    def _schema(self) -> pa.Schema:
        """The schema of the file, with the origins of its columns."""
        return self._batch.schema

    @cached_property
    def sorted_rows(self) -> SortedRows:
        index = self.layout.index(self.run.index)
        return SortedRows(
            slots=self._numpy(SLOT),
            base=self.run.base,
            shift=self.run.shift,
            greatest=self.run.spans[index.name][1] if index else 0,
            batch=self._kept,
            index=index,
            spans=self.run.spans,
            by_value=self.layout.by_value,
        )

    def found_by(self, key: int) -> SortedRows:
        """Return all rows, arranged for look-ups by the hashes of a further key of the layout.

        ``key`` is that key's number.
        """
        names = self.layout.found_by[key]
        try:
            prefixes, places = self._numpy(names.prefixes), self._numpy(names.places)
        except KeyError:
            raise damage_error(f'run "{self.run.name}"', f"it has no column {names.prefixes}") from None
        rows = replace(self.sorted_rows, index=None, base=0, shift=0, greatest=0, by_value=False)
        return replace(rows, slots=prefixes, places=places, prefixed=True)

    @property
    def arrival(self) -> npt.NDArray[np.uint32] | None:
        """The column `ARRIVAL`, if the run has one."""
        if ARRIVAL not in self._batch.schema.names:
            return None
        arrival: npt.NDArray[np.uint32] = self._batch.column(ARRIVAL).to_numpy(zero_copy_only=True)
        return arrival

    @cached_property
    def _kept(self) -> pa.RecordBatch:
        """The kept columns, by the layout's names and in its order, then what belongs to the run itself."""
        schema, layout = self._schema, self.layout
        internal = (*layout.internal, ARRIVAL, *filter(is_of_key, schema.names))
        if not layout.columns:
            return self._batch.select([name for name in schema.names if name not in internal])
        try:
            names = choose_columns(schema, layout.columns, internal)
        except KeyError:
            missing = missing_columns(schema, layout.columns)
            raise damage_error(f'run "{self.run.name}"', f"it has no column for {missing[0].text}") from None
        arrays = [self._batch.column(own) for _, own in names]
        return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in names])

    def _numpy(self, name: str) -> npt.NDArray[np.int64]:
        array = self._arrays.get(name)
        if array is None:
            array = self._arrays[name] = self._batch.column(name).to_numpy(zero_copy_only=True)
        return array

    def below(self, column: str, limit: Watermark) -> int:
        """Count the rows with a time < ``limit``. Cost: O(log rows)."""
        least, greatest = self.run.spans[column]
        if limit <= least:
            return 0
        if limit > greatest:
            return self.run.rows
        order, times = self._numpy(order_of_times(column)), self._numpy(column)
        return bisect_left(range(self.run.rows), int(limit), key=lambda i: int(times[order[i]]))

    def between(self, column: str, low: Watermark, high: Watermark) -> Rows:
        """Return the rows with a time in [low, high), in order of ``column``, an ordering column.

        Cost: those rows.
        """
        first, end = self.below(column, low), self.below(column, high)
        return self.in_order(column, first, max(first, end))

    def in_order(self, column: str, first: int, end: int) -> Rows:
        """Return the rows at places [first, end) in the order of an ordering column."""
        return self._numpy(order_of_times(column))[first:end].astype(np.int64)

    def newly_released(self, old: Mapping[str, Watermark], new: Mapping[str, Watermark]) -> Rows:
        """Return rows that ``new`` limits release and ``old`` ones did not: int64[m], each once."""
        parts, spans = [], self.run.spans
        for number, column in enumerate(self.layout.releasing):
            if new.get(column, NEVER) <= spans[column][0]:
                continue
            first = self.below(column, old.get(column, NEVER))
            end = self.below(column, new.get(column, NEVER))
            if end <= first:
                continue
            rows = self._numpy(order_of_times(column))[first:end].astype(np.int64)
            for place, other in enumerate(self.layout.releasing):
                if place != number:
                    limit = (new if place < number else old).get(other, NEVER)
                    rows = rows[~are_below(self._numpy(other)[rows], limit)]
            parts.append(rows)
        return np.concatenate(parts) if parts else NO_ROWS

    def least(self, limits: Mapping[str, Watermark]) -> dict[str, int] | None:
        """Compute the least of each event time over the rows that ``limits`` do not release.

        Returns:
            None if no row is left. Cost: O(log rows) if no column or at most one column releases rows; up
            to O(rows) with several columns, or with other event times beside them.
        """
        releasing, spans = self.layout.releasing, self.run.spans
        if not any(limits.get(column, NEVER) > spans[column][0] for column in releasing):
            return {column: spans[column][0] for column in self.layout.event_times}
        firsts = {column: self.below(column, limits.get(column, NEVER)) for column in releasing}
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
        """Find the least ``column`` time of the live rows in [start, stop), and its place.

        Live rows are neither released by ``limits`` nor ``gone``. ``column`` is one of
        `RunLayout.ordering`.

        Args:
            gone: returns a mask for rows numbered from ``start`` on.
            cursor: the place that the call one tick ago returned. Cost: the places from there on that the
                search skips.

        Returns:
            The time, or None if there is no live row; and its place in the order of ``column``. No live
            row ever precedes that place.
        """
        order, look = self._numpy(order_of_times(column)), FIRST_SEARCH_ROWS
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
                    alive &= ~are_below(self._numpy(other)[rows], limits[other])
            if alive.any():
                first_place = int(alive.argmax())
                return int(self._numpy(column)[rows[first_place]]), int(places[first_place])
            first, look = first + look, look * 2
        return None, self.run.rows

    def _first_live(self, column: str, first: int, limits: Mapping[str, Watermark]) -> int | None:
        """Find the first time of ``column``, from place ``first``, that no other column releases.

        The search follows the order of ``column``. Cost: the number of rows that it skips.

        Returns:
            None if there is no such row.
        """
        order, look = self._numpy(order_of_times(column)), FIRST_SEARCH_ROWS
        while first < self.run.rows:
            rows = order[first : first + look]
            live = np.ones(len(rows), dtype=np.bool_)
            for other in self.layout.releasing:
                if other != column:
                    live &= ~are_below(self._numpy(other)[rows], limits.get(other, NEVER))
            if live.any():
                return int(self._numpy(column)[rows[live.argmax()]])
            first, look = first + look, look * 2
        return None

    def live(self, limits: Mapping[str, Watermark], start: int, stop: int) -> Mask:
        """Return a mask of the rows in [start, stop) that the limits do not release.

        bool[stop - start].
        """
        keep = np.ones(stop - start, dtype=np.bool_)
        for column in self.layout.releasing:
            keep &= ~are_below(self._numpy(column)[start:stop], limits.get(column, NEVER))
        return keep


MATCHED = ours("matched")
"""Whether a row has had a match, or how many it has."""

_ROWS, _BYTES = 1 << 16, 1 << 26
"""So many rows, or bytes of them, are looked at at a time, about."""


def retained_rows(
    store: Store,
    live: LiveRun,
    limits: Mapping[str, Watermark],
    columns: Sequence[StoredColumn] = (),
    matches: MarkKind | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the retained rows of one run, in its order.

    Args:
        limits: per event time, the limit below which rows are released, if the rows have that event
            time (partial aggregates are released by panes).
        columns: the wanted columns, by the names that the result has; a column that the run lacks is
            left out. Empty: all retained columns, with the run's names.
        matches: the marks that become the column `MATCHED`; None: no such column.

    Raises:
        StateError: the run is missing or damaged.
    """
    first = 0
    at_once = max(1, min(_ROWS, _BYTES * live.run.rows // max(live.run.nbytes, 1)))
    for batch in batches_of(store, live.run):
        names = _names(batch.schema, columns)
        for low in range(0, batch.num_rows, at_once):
            part = batch.slice(low, at_once)
            start, stop = first + low, first + low + part.num_rows
            keep = _retained_mask(part, limits, names)
            if "gone" in live.marks:
                keep &= ~read_marks(store, "gone", live.marks["gone"], start, stop)
            shown = {name: part.column(own) for name, own in names.items()}
            if matches is not None:
                shown[MATCHED] = pa.array(
                    read_marks(store, matches, live.marks.get(matches, ()), start, stop)
                )
            rows = np.flatnonzero(keep)
            if len(rows):
                yield take_rows(pa.RecordBatch.from_pydict(shown), rows)
        first += batch.num_rows


def _retained_mask(part: pa.RecordBatch, limits: Mapping[str, Watermark], names: Mapping[str, str]) -> Mask:
    keep = np.ones(part.num_rows, dtype=np.bool_)
    for name, limit in limits.items():
        own = names.get(name, name)
        if order_of_times(own) in part.schema.names:
            keep &= part.column(own).to_numpy(zero_copy_only=True) >= limit
    return keep


def _names(schema: pa.Schema, columns: Sequence[StoredColumn]) -> dict[str, str]:
    """Map each shown column name to the run's column name."""
    held = origins_in(schema)
    if not columns:
        return {name: name for names in held.values() for name in names}
    there = [(column.name, held[column.origin]) for column in columns if column.origin in held]
    return {name: name if name in own else own[0] for name, own in there}
