"""The columns of a run, an immutable Arrow file sorted by slot, and where merged rows came from.

Merge lineage is one Arrow file per merged run: per row the number of the run that it came from among those
merged, and its row number there, both uint32. Only the tick that merged needs it, for sides that share the
run without merging it themselves; they take the merged run over in the next tick.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.event_time import NEVER, Watermark
from watersmeet.kernel.batches import batches_in, one_batch
from watersmeet.measure import Measured
from watersmeet.names import ours
from watersmeet.state.checksums import check_content
from watersmeet.state.runs.heavy_hitters import HeavyKey
from watersmeet.state.store import Store
from watersmeet.state.stored_record import FrozenRecord

# Which kept columns a run has, and of what they are made: each says it in the metadata of its field.
#
# A query may change between runs of a job in what it keeps. So columns of stored rows are found by what
# they are made of: their names may be other ones then (those of computed columns are numbered), and there
# may be more.

_ORIGIN = b"watersmeet.origin"


@dataclass(frozen=True)
class StoredColumn:
    """A retained column.

    Attributes:
        origin: Digest of the column's derivation: columns of one origin have the same values.
        text: Description for users.
    """

    name: str
    origin: str
    text: str


def null_column(name: str) -> str:
    """Return the name of the stored column that is TRUE where event time ``name`` is NULL."""
    return ours(f"null:{name}")


@lru_cache(maxsize=1_000)
def with_origins(
    names: tuple[str, ...], types: tuple[pa.DataType, ...], columns: tuple[StoredColumn, ...]
) -> pa.Schema:
    """Build the schema of columns with these names and types and with their origins.

    A column without an origin gets none.
    """
    origins = {column.name: {_ORIGIN: column.origin.encode()} for column in columns}
    fields = zip(names, types, strict=True)
    return pa.schema([pa.field(name, kind, metadata=origins.get(name)) for name, kind in fields])


def origins_in(schema: pa.Schema) -> dict[str, list[str]]:
    """Map each origin to the columns of a run that have it."""
    names_by_origin: dict[str, list[str]] = {}
    for field in schema:
        if field.metadata is not None and _ORIGIN in field.metadata:
            names_by_origin.setdefault(field.metadata[_ORIGIN].decode(), []).append(field.name)
    return names_by_origin


def missing_columns(schema: pa.Schema, columns: Sequence[StoredColumn]) -> list[StoredColumn]:
    """Return the columns that a run lacks."""
    held = origins_in(schema)
    return [column for column in columns if column.origin not in held]


def choose_columns(
    schema: pa.Schema, columns: Sequence[StoredColumn], internal: Collection[str]
) -> list[tuple[str, str]]:
    """Pair the names of ``columns`` with a run's names for them.

    The pairs continue with the run's columns that are neither ``internal`` nor have an origin, under
    their own names.

    Raises:
        KeyError: the run lacks one of the columns.
    """
    held = origins_in(schema)
    pairs = []
    for column in columns:
        names = held[column.origin]
        pairs.append((column.name, column.name if column.name in names else names[0]))
    held_names = {*internal, *(name for names in held.values() for name in names)}
    return [*pairs, *((name, name) for name in schema.names if name not in held_names)]


# The columns that a run may have beside those that are kept (see `state.runs.layout`).

_PREFIXES, _PLACES = "prefixes:", "places:"


@cache
def order_of_times(column: str) -> str:
    """Return the name of the column with the positions of rows in event-time order."""
    return ours(f"order:{column}")


@cache
def least_times(column: str) -> str:
    """Return the name of the column with suffix minima of an event time.

    Each value is the least of that event time from a place on, in the order of another one.
    """
    return ours(f"least:{column}")


@dataclass(frozen=True)
class RunKey:
    """An additional key for finding rows of a run.

    Attributes:
        label: Digest of the derivation of its columns.
        columns: Retained columns of the key.
    """

    label: str
    columns: tuple[str, ...]

    @property
    def prefixes(self) -> str:
        """The upper bits of its hashes."""
        return ours(f"{_PREFIXES}{self.label}")

    @property
    def places(self) -> str:
        """Beside each of `prefixes` the place of its row."""
        return ours(f"{_PLACES}{self.label}")


def is_of_key(column: str) -> bool:
    """Return True if the column is the prefixes or places column of any `RunKey`."""
    return column.startswith((ours(_PREFIXES), ours(_PLACES)))


# A run: an immutable, memory-mapped Arrow file of rows of one arrangement, sorted by slot
# (`kernel.slots`).
#
# Columns of the file: ``#slot`` int64 ascending; per time column that releases rows, or in whose order
# they are looked at, `order_of_times` of it uint32, the row numbers in ascending order of that time; per
# further key by which rows are found `RunKey.prefixes` and `RunKey.places` (`kernel.match.probe`);
# when only one column releases and there are other event times, ``#least:<other>`` int64: in that order,
# the least ``other`` from here to the end; where the order in which rows came is wanted, `ARRIVAL`
# uint32, their places in it within the run. Then the kept columns, event times as int64 without NULLs,
# each with the digest of what it is made of (`state.runs.layout`) in its field's metadata; and, of rows
# that ASOF joins look for, ``#came`` int64: by which of equal times the one that came first is known, in
# a run that was not merged yet less ``Run.offset``.
#
# By what the rows are sorted within a hash is said by each run (``index``), and release does not depend
# on it.
#
# Releasing is not writing: a row is released when one of its times is below the arrangement's limit for
# that column: a range of ``#order``, which costs what goes. It stays on disk until the run is dropped or
# merged.

SLOT = ours("slot")
ARRIVAL = ours("arrival")


@dataclass(frozen=True)
class RunLayout:
    """The layout of an arrangement's runs.

    Args:
        indexes: the values that can sort the rows of a hash, the first one by default (empty: hashes
            only).
        event_times: all event-time columns.
        releasing: the event-time columns that release rows.
        watched: other columns in whose order code reads rows.
        by_value: there is no key, and slots are the ordinals of the index itself.
        ties: rows have `kernel.asof.CAME`; rows with equal hashes are in exact time order, and equal
            times are in arrival order, or in reverse.
        columns: the retained columns, in order; empty: all columns of a run.
        found_by: further keys that look-ups use without sorting rows by them; runs may have more.
        counts_keys: runs record the number of keys.
        key: the columns whose hashes sort the rows, if there is a key.
    """

    indexes: tuple[Measured, ...]
    event_times: tuple[str, ...]
    releasing: tuple[str, ...]
    by_value: bool = False
    ties: Literal["ascending", "descending"] | None = None
    watched: tuple[str, ...] = ()
    columns: tuple[StoredColumn, ...] = ()
    found_by: tuple[RunKey, ...] = ()
    counts_keys: bool = False
    key: tuple[str, ...] = ()

    @cached_property
    def ordering(self) -> tuple[str, ...]:
        """The columns by which rows are in order in `order_of_times` of it."""
        return (*self.releasing, *self.watched)

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """All values whose spans a run records: event times and indexes."""
        return (*dict.fromkeys([*map(Measured, self.event_times), *self.indexes]),)

    @cached_property
    def internal(self) -> tuple[str, ...]:
        """The columns of a run's file before those that are kept."""
        beside = [
            (order_of_times(c), *(least_times(other) for other in self.suffix_minima)) for c in self.ordering
        ]
        return (SLOT, *(name for names in beside for name in names))

    @cached_property
    def suffix_minima(self) -> tuple[str, ...]:
        if len(self.releasing) != 1:
            return ()
        return tuple(column for column in self.event_times if column not in self.ordering)

    def index(self, name: str | None) -> Measured | None:
        """Return the index with this name; the first one for None or for an earlier version's name."""
        measured = next((index for index in self.indexes if index.name == name), None)
        return measured or next(iter(self.indexes), None)


# What a manifest says of a run: enough to pass it over unread.


class Run(FrozenRecord):
    """A manifest's record of a run.

    Args:
        index: the name of the value that sorts its rows (within a hash).
        spans: least and greatest of each event time and of each index that it could have.
        base: the base of its slots.
        shift: the shift of its slots.
        low: the least slot.
        high: the greatest slot.
        tick: the tick in which its rows (the newest of them) arrived.
        level: the number of merges of its rows.
        group: an id that the runs of one merge share.
        origin: for rows that ASOF joins look up, as ingest wrote them: (branch, source partition,
            ingest task).
        stands_for: the number of rows of its side that the run represents, if it stores partial
            aggregates; 0 if it stores remembered deletes.
        keys: the number of distinct keys of its rows, and that of each further look-up key, if counted
            (by 32 bits of hashes).
        heavy: see `state.runs.heavy_hitters`.
    """

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


def whole_run_released(run: Run, releasing: Sequence[str], limits: Mapping[str, Watermark]) -> bool:
    """Return True if every row of the run is below the limit of one column.

    Such a run can be dropped without reading it.
    """
    return any(run.spans[column][1] < limits.get(column, NEVER) for column in releasing)


FOLDER = "merged"
_NUMBER, _ROW = "number", "row"

Numbers = npt.NDArray[np.int64]


class MergedFrom(FrozenRecord):
    """``runs``: the names of all runs that were merged, in order; ``file``: of which each row comes."""

    runs: tuple[str, ...]
    file: str
    checksum: int


def write_places(
    store: Store, tick: int, runs: tuple[str, ...], numbers: Numbers, rows: Numbers
) -> MergedFrom:
    """Store of which of the ``runs`` each row comes, and its row number there."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array(numbers.astype(np.uint32)), pa.array(rows.astype(np.uint32))], names=[_NUMBER, _ROW]
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    name = f"{FOLDER}/{tick}-{uuid.uuid4().hex[:16]}.arrow"
    store.write(name, data)
    return MergedFrom(runs=runs, file=name, checksum=zlib.crc32(data))


def verify_lineage_file(store: Store, merged: MergedFrom) -> pa.Buffer:
    """Read the lineage file and verify its checksum.

    Raises:
        StateError: the file is missing or damaged.
    """
    data = store.read(merged.file)
    check_content(store, merged.file, data, merged.checksum, f'file "{merged.file}"')
    return data


def read_places(store: Store, merged: MergedFrom, start: int, stop: int) -> tuple[Numbers, Numbers]:
    """Return (numbers of runs, row numbers) of the rows [start, stop).

    Raises:
        StateError: the file is damaged.
    """
    data = verify_lineage_file(store, merged)
    batch = one_batch(list(batches_in(pa.ipc.open_file(pa.BufferReader(data)))))
    numbers, rows = (
        batch.column(name).slice(start, stop - start).to_numpy(zero_copy_only=True).astype(np.int64)
        for name in (_NUMBER, _ROW)
    )
    return numbers, rows
