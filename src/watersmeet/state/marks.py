"""Match marks: what becomes known of a run's rows after the run was written.

Per run and kind an array by row number: ``matched`` (bool, append mode: the row has had a match), ``count``
(int32, changelog mode: how many live matches it has), ``gone`` (bool: the row left before its time: deleted,
in changelog mode; matched, by a SEMI join; decided, or never to be asked for again, by an ASOF join),
``unknown`` (bool: nobody knows whether the row had a partner, for the query was another one when it came). A
row that no segment covers has 0.

Marks are stored in segments: one file per task and tick, in which each touched slice of a run is one range of
bytes. A newer segment hides the rows of older ones that it covers; nothing is rewritten in place, so an older
manifest stays whole. Where several tasks may mark one row, the driver unites what they say in a segment of
the whole run (`unite`).

Of a large slice few rows are marked in a tick, and what a mark costs goes by those: they are stored as a
list, which only adds to what is known: a bool mark, or by how much a count has changed. A list takes in those
that are no longer than it (so there are few, and a mark is written again only when its list has doubled), and
all of them become an array when they say more than `MAX_LISTED_SHARE` (of counts `MAX_LISTED_COUNTS_SHARE`)
of the slice.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.kernel.slots import sorted_unique
from watersmeet.state.checksums import check_content, is_verified, read_verified
from watersmeet.state.store import SMALL_BYTES, LocalStore, Store, fetch_files
from watersmeet.state.stored_record import FrozenRecord, damage_error

MarkKind = Literal["matched", "count", "gone", "unknown"]
MarkArray = npt.NDArray[Any]

_DTYPES: dict[MarkKind, type] = {
    "matched": np.bool_,
    "count": np.int32,
    "gone": np.bool_,
    "unknown": np.bool_,
}


class Segment(FrozenRecord):
    """Marks of rows [low, high) of a run, part of a stored array that starts at row ``first``.

    Args:
        listed: for a list, the number of marks that it was made of; it has absorbed all lists of its
            rows that were made of no more. A list has the numbers of the marked rows minus ``first``,
            uint32 ascending, and for counts also the increment of each, int32; other rows retain
            their marks. None: an array.
    """

    file: str
    offset: int
    nbytes: int
    checksum: int
    first: int
    low: int
    high: int
    listed: int | None = None

    def hides(self, older: Segment) -> bool:
        """Return True if an older segment adds nothing about this segment's rows."""
        return self.listed is None or (older.listed is not None and older.listed <= self.listed)


MAX_LISTED_SHARE = 1 / 64
"""The most of a slice's rows that are marked by lists: half of what an array of its bits takes."""

MAX_LISTED_COUNTS_SHARE = 1 / 4
"""The same for counts."""

UNPACKED_BYTES = 256
"""To unpack an array of so many bytes costs less than to look a few bits up."""

Marks = dict[MarkKind, tuple[Segment, ...]]


def overlay(old: Sequence[Segment], new: Iterable[Segment]) -> tuple[Segment, ...]:
    """Put ``new`` segments on top of ``old`` ones; drop or trim what they cover."""
    result = list(old)
    for segment in new:
        kept: list[Segment] = []
        for other in result:
            if other.high <= segment.low or other.low >= segment.high or not segment.hides(other):
                kept.append(other)
                continue
            if other.low < segment.low:
                kept.append(other.model_copy(update={"high": segment.low}))
            if other.high > segment.high:
                kept.append(other.model_copy(update={"low": segment.high}))
        result = [*kept, segment]
    return tuple(sorted(result, key=lambda s: (s.low, s.listed is not None)))


def overlap(segments: Sequence[Segment]) -> bool:
    """Return True if any two segments share a row."""
    ordered = sorted(segments, key=lambda segment: segment.low)
    return any(after.low < before.high for before, after in pairwise(ordered))


def unite(
    store: Store,
    tick: int,
    segments_by_run: Mapping[tuple[str, MarkKind], tuple[int, Sequence[Segment], Sequence[Segment]]],
) -> dict[str, Marks]:
    """Unite the marks of runs of which several tasks marked interleaved rows.

    Bool marks are set if they were set before or any task set them; counts are changed by all tasks. Each run
    gets one segment, all in one new file.

    Args:
        segments_by_run: Per run and kind, the number of rows, the segments so far, and those of the tasks.
    """
    writer = MarkWriter()
    for (run, kind), (rows, old, new) in segments_by_run.items():
        before = read_marks(store, kind, old, 0, rows)
        marks = before.copy()
        for segment in new:
            part = slice(segment.low, segment.high)
            own = read_marks(store, kind, overlay(old, (segment,)), segment.low, segment.high)
            if kind == "count":
                marks[part] += own - before[part]
            else:
                marks[part] |= own
        writer.add(run, kind, 0, marks)
    return writer.write(store, tick)


def _bytes_in(data: pa.Buffer, segment: Segment) -> pa.Buffer:
    """Return the bytes of a segment, of those of its file. Raises: StateError when they are not all there."""
    if data.size < segment.offset + segment.nbytes:
        raise damage_error(f'file of marks "{segment.file}"', f"it has {data.size} bytes only")
    return data.slice(segment.offset, segment.nbytes)


def _stored_marks(store: Store, segment: Segment) -> pa.Buffer:
    """Return the bytes of a segment. Raises: StateError when they are not what was written."""

    def read() -> pa.Buffer:
        data = store.read(segment.file)
        if isinstance(store, LocalStore) and data.size <= SMALL_BYTES:
            store.opened[segment.file] = data
        return _bytes_in(data, segment)

    held: pa.Buffer | None = store.opened.get(segment.file) if isinstance(store, LocalStore) else None
    if held is not None and is_verified(
        store, segment.file, segment.nbytes, segment.checksum, offset=segment.offset
    ):
        return _bytes_in(held, segment)
    what = f'file of marks "{segment.file}"'
    return read_verified(store, segment.file, read, segment.checksum, what, offset=segment.offset)


def damaged_marks(store: Store, segments: Iterable[Segment]) -> Iterator[StateError]:
    """Read these segments, and compare them with their checksums: what is wrong with them."""
    by_file: dict[str, list[Segment]] = {}
    for segment in segments:
        by_file.setdefault(segment.file, []).append(segment)
    sizes = {file: sum(segment.nbytes for segment in of) for file, of in by_file.items()}
    for file, data in fetch_files(store, sizes):
        try:
            if isinstance(data, StateError):
                raise data
            for segment in by_file[file]:
                what = f'file of marks "{file}"'
                check_content(store, file, _bytes_in(data, segment), segment.checksum, what)
        except StateError as error:
            yield error


def read_marks(store: Store, kind: MarkKind, segments: Sequence[Segment], start: int, stop: int) -> MarkArray:
    """Read the marks of rows [start, stop) of a run into a fresh array."""
    marks: MarkArray = np.zeros(stop - start, dtype=_DTYPES[kind])
    for segment in segments:
        low, high = max(segment.low, start), min(segment.high, stop)
        if low >= high or segment.listed is not None:
            continue
        stored = _stored_marks(store, segment)
        if kind == "count":
            values: MarkArray = np.frombuffer(stored, dtype=np.int32)
            part = values[low - segment.first : high - segment.first]
        else:
            bits = np.frombuffer(stored, dtype=np.uint8)
            skip = (low - segment.first) // 8
            unpacked = np.unpackbits(bits[skip : (high - segment.first + 7) // 8])
            begin = low - segment.first - 8 * skip
            part = unpacked[begin : begin + high - low].astype(np.bool_)
        marks[low - start : high - start] = part
    for segment in segments:
        if segment.listed is not None:
            rows, changes = _read_segment(store, kind, segment, start, stop)
            if changes is None:
                marks[rows - start] = True
            else:
                marks[rows - start] += changes
    return marks


def marks_at(
    store: Store, kind: MarkKind, segments: Sequence[Segment], rows: npt.NDArray[np.int64]
) -> MarkArray:
    """Read the marks of the chosen rows of a run. Cost: these rows, per segment."""
    marks: MarkArray = np.zeros(len(rows), dtype=_DTYPES[kind])
    for segment in segments:
        own = ((rows >= segment.low) & (rows < segment.high)).nonzero()[0]
        if not len(own):
            continue
        stored, places = _stored_marks(store, segment), rows[own] - segment.first
        if segment.listed is not None:
            ascending, changes = _parts(kind, stored)
            own_places = places_among(places.astype(np.uint32), ascending)
            if changes is None:
                marks[own] |= own_places >= 0
            else:
                marks[own[own_places >= 0]] += changes[own_places[own_places >= 0]]
        elif kind == "count":
            marks[own] += np.frombuffer(stored, dtype=np.int32)[places]
        elif stored.size <= UNPACKED_BYTES:
            marks[own] |= np.unpackbits(np.frombuffer(stored, dtype=np.uint8))[places].view(np.bool_)
        else:
            bits = np.frombuffer(stored, dtype=np.uint8)[places // 8]
            marks[own] |= ((bits >> (7 - places % 8).astype(np.uint8)) & 1).astype(np.bool_)
    return marks


def _parts(kind: MarkKind, stored: pa.Buffer) -> tuple[npt.NDArray[np.uint32], MarkArray | None]:
    """Split a list into its positions, ascending, and, for counts, their increments."""
    words = np.frombuffer(stored, dtype=np.uint32)
    if kind != "count":
        return words, None
    return words[: len(words) // 2], words[len(words) // 2 :].view(np.int32)


def _read_segment(
    store: Store, kind: MarkKind, segment: Segment, start: int, stop: int
) -> tuple[npt.NDArray[np.int64], MarkArray | None]:
    """Return the rows of [start, stop) that a list marks and, for counts, their increments."""
    low, high = max(segment.low, start), min(segment.high, stop)
    if low >= high:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32) if kind == "count" else None
    places, changes = _parts(kind, _stored_marks(store, segment))
    first, end = np.searchsorted(places, np.array([low, high]) - segment.first)
    rows = places[first:end].astype(np.int64) + segment.first
    return rows, None if changes is None else changes[first:end]


def places_among(values: npt.NDArray[Any], ascending: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Find each value's position in a sorted array of unique values; -1 if absent.

    Cost: O(values · log array).
    """
    if not len(ascending):
        return np.full(len(values), -1)
    places = ascending.searchsorted(values)
    places[places == len(ascending)] = 0
    return np.where(ascending[places] == values, places, -1)


def sum_count_changes(
    rows: npt.NDArray[np.int64], changes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sum the changes of counts per row.

    Returns:
        The distinct rows, ascending, and the change of each.
    """
    distinct, of = np.unique(rows, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, of, changes)
    return distinct, total


class MarkWriter:
    """Collects the marks of one task and tick and writes them as one file."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, MarkKind, int, int, bytes, int | None]] = []

    def add(self, run: str, kind: MarkKind, start: int, marks: MarkArray) -> None:
        """Set the marks of rows [start, start + len(marks)) of ``run``."""
        if len(marks):
            blob = (marks.astype(np.int32) if kind == "count" else np.packbits(marks)).tobytes()
            self._parts.append((run, kind, start, start + len(marks), blob, None))

    def add_rows(
        self,
        store: Store,
        run: str,
        kind: MarkKind,
        segments: Sequence[Segment],
        start: int,
        stop: int,
        rows: npt.NDArray[np.int64],
        changes: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Mark more rows of [start, stop) of ``run``, or add to their counts.

        Args:
            segments: the marks known so far.
            rows: row numbers in the run, ascending, each once.
            changes: the increments of their counts; required if ``kind`` is ``count``, else None.
        """
        assert (kind == "count") == (changes is not None)
        if not len(rows):
            return
        lists = [s for s in segments if s.listed is not None and s.low < stop and s.high > start]
        weight, parts = len(rows), [(rows, changes)]
        for segment in sorted(lists, key=lambda s: s.listed or 0):
            assert segment.listed is not None
            if segment.listed > weight:
                break
            weight += segment.listed
            parts.append(_read_segment(store, kind, segment, start, stop))
        most = (MAX_LISTED_SHARE if changes is None else MAX_LISTED_COUNTS_SHARE) * (stop - start)
        if len(rows) + sum(s.listed or 0 for s in lists) > most:
            marks = read_marks(store, kind, segments, start, stop)
            if changes is None:
                marks[rows - start] = True
            else:
                marks[rows - start] += changes.astype(np.int32)
            self.add(run, kind, start, marks)
            return
        marked = np.concatenate([part for part, _ in parts])
        added = [np.asarray(counts, dtype=np.int64) for _, counts in parts if counts is not None]
        if len(parts) > 1 and added:
            marked, total = sum_count_changes(marked, np.concatenate(added))
            added = [total]
        elif len(parts) > 1:
            marked = sorted_unique(marked)
        blob = (marked - start).astype(np.uint32).tobytes() + b"".join(
            counts.astype(np.int32).tobytes() for counts in added
        )
        self._parts.append((run, kind, start, stop, blob, weight))

    def write(self, store: Store, tick: int) -> dict[str, Marks]:
        """Store what was added, if anything; the new segments per run and kind."""
        if not self._parts:
            return {}
        name = f"marks/{tick}-{uuid.uuid4().hex[:16]}"
        blobs: list[bytes] = []
        offset = 0
        marks_by_run: dict[str, Marks] = {}
        for run, kind, start, stop, blob, listed in self._parts:
            segment = Segment(
                file=name,
                offset=offset,
                nbytes=len(blob),
                checksum=zlib.crc32(blob),
                first=start,
                low=start,
                high=stop,
                listed=listed,
            )
            per_kind = marks_by_run.setdefault(run, {})
            per_kind[kind] = (*per_kind.get(kind, ()), segment)
            blobs.append(blob)
            offset += len(blob)
        store.write(name, pa.py_buffer(b"".join(blobs)))
        return marks_by_run
