"""Evict rows at the end of a tick when a limit is exceeded (SET at_limit)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import NEVER, Mask, Watermark
from watersmeet.kernel.batches import cut_points, take_rows
from watersmeet.kernel.gather import row_sizes, rows_bound
from watersmeet.kernel.match.probe import Rows, expand
from watersmeet.kernel.ordinals import to_native
from watersmeet.kernel.slots import TIME_BITS, TIME_MASK, Slots, hash_columns
from watersmeet.names import is_ours
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.runtime.messages.reports import PadFile
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.runtime.tasks.ingest import SIDE_OUTPUT_COLUMNS, write_aside
from watersmeet.runtime.tasks.memory import max_output_bytes
from watersmeet.spec.model import AtLimit, Options
from watersmeet.state.checksums import add_checksum, verify_checksum
from watersmeet.state.manifest import PARTS, Arrangement, AsofState, LiveRun
from watersmeet.state.marks import MarkWriter, marks_at, overlay, places_among
from watersmeet.state.runs.layout import null_column
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.store import Store
from watersmeet.state.stored_record import FrozenRecord, StoredRecord

# A run of a side after a tick, asked which of its rows are kept, how old they are and what keys they
# have; and which of them are to be shed.

BUCKET_BITS = 64 - TIME_BITS
BUCKETS = 1 << BUCKET_BITS
"""How many upper halves of hashes there are, half of them below zero."""
CHUNK_ROWS = 1 << 16
"""Rows that are taken from a run at once, if they are not large."""


@dataclass
class RetainedRun:
    """A run of a side after the tick, and the rows to shed from it.

    Attributes:
        age: event time that determines the age of rows; None if rows are not shed by age.
        group: number of the run's node; nodes have no keys in common.
        is_copy: another side of the node stores the same rows.
        shed: rows to shed, ascending.
    """

    store: Store
    side: SideShape
    live: LiveRun
    kept: Arrangement
    run: OpenRun
    age: str | None
    group: int = 0
    is_copy: bool = False
    shed: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def stored(self) -> int:
        """Number of rows that remain after the shedding decided so far."""
        return self.live.stored - len(self.shed)

    def add(self, rows: Rows) -> None:
        """Add rows to shed; each of them must still be retained."""
        self.shed = np.sort(np.concatenate([self.shed, rows]))

    def times(self, rows: Rows) -> Rows:
        """Return the event times that determine the age of rows."""
        times: Rows = self.run.sorted_rows.times(self._age)[rows]
        return times

    def oldest(self, most: int) -> Rows:
        """Return the times of the ``most`` oldest rows, ascending; all if the run has fewer."""
        first, times, count = self._first, [], 0
        while first < self.live.run.rows and count < most:
            rows = self.run.in_order(self._age, first, first + max(most, 1024))
            first += len(rows)
            rows = rows[self._stay(rows)]
            times.append(self.times(rows))
            count += len(rows)
        return np.sort(np.concatenate(times))[:most] if times else np.zeros(0, dtype=np.int64)

    def select_until(self, time: int) -> Rows:
        """Select the remaining rows with a time of at most ``time``."""
        rows = self.run.in_order(self._age, self._first, self.run.below(self._age, time + 1))
        return rows[self._stay(rows)]

    def every(self) -> Rows:
        """Select all remaining rows."""
        rows = np.arange(self.live.run.rows)
        return rows[self._stay(rows)]

    def select_buckets(self, buckets: Slots) -> Rows:
        """Select the remaining rows whose key hashes have one of these upper halves.

        Buckets of other groups select nothing. Cost: the selected rows, and those that no longer remain.

        Args:
            buckets: the upper halves with the number of the group, without duplicates.
        """
        own = buckets - (self.group << BUCKET_BITS)
        buckets = own[(own >= -BUCKETS // 2) & (own < BUCKETS // 2)]
        slots, least = self.run.sorted_rows.slots, buckets << np.int64(TIME_BITS)
        first = np.searchsorted(slots, least, side="left")
        end = np.searchsorted(slots, least | TIME_MASK, side="right")
        rows = [rows[self._stay(rows)] for _, rows in expand(first, end)]
        return np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)

    def buckets(self, rows: Rows) -> Slots:
        """Return the upper halves of the rows' key hashes, combined with the number of the group."""
        return (self.run.sorted_rows.slots[rows] >> np.int64(TIME_BITS)) + np.int64(self.group << BUCKET_BITS)

    def hashes(self, rows: Rows) -> Slots:
        """Compute the full hashes of the rows' keys.

        The sort order of a run stores only the upper half of each hash.
        """
        names, batch = list(self.side.layout.key), self.run.sorted_rows.batch
        parts = [
            hash_columns([batch.column(name).take(pa.array(some)) for name in names], len(some))
            for some in self._split_into_chunks(rows, names)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def written(self, reason: str, tick: int) -> Iterator[PadFile]:
        """Write the shed rows, with their retained columns, to side output files; yield the files."""
        for taken in self._split_into_chunks(self.shed, self.side.schema.names):
            batch = take_rows(self.run.sorted_rows.batch, taken)
            told = [of for of in self.side.schema if not is_ours(of.name)]
            record = pa.StructArray.from_arrays(
                [self._native(batch, of) for of in told], names=[of.name for of in told]
            )
            nulls = [pa.nulls(len(record), kind) for kind in (pa.string(), pa.string(), pa.int64())]
            rows = pa.RecordBatch.from_arrays([record, *nulls], names=list(SIDE_OUTPUT_COLUMNS))
            file = write_aside(self.store, reason, tick, [rows])
            yield file.model_copy(update={"reason": reason})

    def _native(self, batch: pa.RecordBatch, of: pa.Field) -> pa.Array:
        """Convert a column to its original type; times of joined rows may be NULL."""
        array = to_native(batch.column(of.name), of.type)
        if of.name not in self.side.nullable:
            return array
        return pc.if_else(batch.column(null_column(of.name)), pa.scalar(None, of.type), array)

    @property
    def _age(self) -> str:
        assert self.age is not None
        return self.age

    @property
    def _first(self) -> int:
        """The place in the order of ages before which no row is retained."""
        passed = self.run.below(self._age, self.kept.limits.get(self._age, NEVER))
        return max(passed, self.live.cursors.get(self._age, 0))

    def _stay(self, rows: Rows) -> Mask:
        """Return a mask of the rows that are retained and not marked for shedding."""
        there: Mask = ~marks_at(self.store, "gone", self.live.marks.get("gone", ()), rows)
        for column in self.side.layout.releasing:
            there &= self.run.sorted_rows.times(column)[rows] >= self.kept.limits.get(column, NEVER)
        return there & (places_among(rows, self.shed) < 0)

    def _split_into_chunks(self, rows: Rows, names: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows in order, in chunks limited by the memory of a task.

        A chunk exceeds the limit only if a single row does.
        """
        batch, most = self.run.sorted_rows.batch, max_output_bytes(self.side.memory)
        for low in range(0, len(rows), CHUNK_ROWS):
            some = rows[low : low + CHUNK_ROWS]
            if rows_bound(batch, names, some) <= most:
                yield some
                continue
            for first, end in pairwise(cut_points(row_sizes(batch, names, some), most)):
                yield some[first:end]


# Which rows are shed: those up to a time, or those of some keys, so many that others are within a limit.
#
# Which they are follows from the rows and from what each counts: 1, or its share of its file's bytes. Of
# one time all go together, and all rows of a key whose place in the hash space is named: so it does not
# depend on who has written which row into which file.


class ShedRange(FrozenRecord):
    """Rows to shed, by time or by hash.

    Attributes:
        last: rows up to this time are shed; None: ``buckets`` decides.
        buckets: rows whose hashes have one of these upper halves are shed.
    """

    last: int | None = None
    buckets: tuple[int, ...] = ()

    def apply(self, parts: Sequence[RetainedRun]) -> None:
        """Mark the rows of this range for shedding. Cost: the rows of the range."""
        buckets = np.array(self.buckets, dtype=np.int64)
        for part in parts:
            if self.last is not None:
                part.add(part.select_until(self.last))
            elif len(buckets):
                part.add(part.select_buckets(buckets))


def choose_oldest_rows(parts: Sequence[RetainedRun], excess: int, weights: Sequence[int]) -> ShedRange:
    """Choose the oldest rows that together weigh at least ``excess``.

    Cost: per run, as many rows as that run alone needs to reach ``excess``.

    Args:
        weights: the weight of a row of each run, at least 1.
    """
    times = [part.oldest(-(-excess // weight)) for part, weight in zip(parts, weights, strict=True)]
    counting = np.repeat(np.array(weights, dtype=np.int64), [len(of_part) for of_part in times])
    together = np.concatenate(times)
    order = np.argsort(together, kind="stable")
    place = int(np.searchsorted(np.cumsum(counting[order]), excess))
    return ShedRange(last=int(together[order[min(place, len(order) - 1)]]))


def choose_heaviest_keys(parts: Sequence[RetainedRun], excess: int, weights: Sequence[int]) -> ShedRange:
    """Choose the keys whose rows weigh most, as many keys as ``excess`` needs.

    Of equally heavy keys, those with the lesser hash are first. Cost: all rows of the runs.

    Args:
        weights: the weight of a row of each run.
    """
    rows = [part.buckets(part.every()) for part in parts]
    counting = np.repeat(np.array(weights, dtype=np.int64), [len(of_part) for of_part in rows])
    heavy, of = np.unique(np.concatenate(rows), return_inverse=True)
    counts = np.zeros(len(heavy), dtype=np.int64)
    np.add.at(counts, of, counting)
    order = np.argsort(-counts, kind="stable")
    keys = int(np.searchsorted(np.cumsum(counts[order]), excess)) + 1
    return ShedRange(buckets=tuple(np.sort(heavy[order[:keys]]).tolist()))


def find_crowding_rows(
    parts: Sequence[RetainedRun], buckets: Slots, most: int, *, by_age: bool
) -> list[Rows]:
    """Find, per run of one side, the rows to shed from keys that have more than ``most`` rows.

    With ``by_age`` these are the oldest rows of such a key, always all rows of one time together;
    without it, all rows of the key. Cost: the rows with these hashes.

    Args:
        buckets: the upper halves of hashes of candidate keys, without duplicates. Keys are
            distinguished by their full hashes.
    """
    rows = [part.select_buckets(buckets) for part in parts]
    hashes = np.concatenate([part.hashes(own) for part, own in zip(parts, rows, strict=True)])
    ages = np.zeros(len(hashes), dtype=np.int64)
    if by_age:
        ages = np.concatenate([part.times(own) for part, own in zip(parts, rows, strict=True)])
    order = np.lexsort((ages, hashes))
    _, first, of, counts = np.unique(
        hashes[order], return_index=True, return_inverse=True, return_counts=True
    )
    last = ages[order][np.where(counts > most, first + counts - most - 1, first)]
    gone = np.zeros(len(hashes), dtype=np.bool_)
    gone[order] = (counts > most)[of] & (ages[order] <= last[of])
    ends = np.cumsum([len(own) for own in rows])[:-1]
    return [own[chosen] for own, chosen in zip(rows, np.split(gone, ends), strict=True)]


# What was decided in a tick by the bytes of files, for attempts that repeat it.
#
# How many bytes files have depends on how many tasks have written them; which rows are shed must not, for
# those of an earlier attempt may be in the side output by now. So the first attempt writes down what it
# has decided, before anything of the tick goes out, and all others go by that. That nothing is shed is
# written down as well: of two runs that are at the tick at once one would shed else, and put these rows
# out, and the other one commit without.


class _ShedDecision(StoredRecord):
    """A stored shedding decision.

    Attributes:
        basis: identifies the rows and the setting that the decision is based on.
        cut: the rows to shed; None: none.
    """

    basis: str
    cut: ShedRange | None


def node_decision_name(tick: int, query: int, node: int) -> str:
    """Return the file name of a node's shedding decision.

    Args:
        query: the number of the query in the job.
    """
    return f"{PARTS}/shed-{tick}-{query}-{node}.json"


def job_decision_name(tick: int, source: int | None) -> str:
    """Return the file name of a shedding decision for all queries together.

    Args:
        source: the number in the job of the source that has the limit; None for the limit of the job.
    """
    return f"{PARTS}/shed-{tick}-{'job' if source is None else f'source-{source}'}.json"


def decide_once(
    store: Store, name: str, basis: str, decide: Callable[[], ShedRange | None]
) -> ShedRange | None:
    """Return the shedding decision of the first attempt at the tick; store it if this is it.

    Args:
        name: the name of the decision's file.
        basis: identifies the input of the decision, equal in all attempts at the tick. A file with
            another basis is a leftover of an attempt that published nothing; it is replaced.

    Raises:
        StateError: the file is damaged.
    """
    now = _ShedDecision(basis=basis, cut=decide())
    content = add_checksum(name, now.model_dump_json())
    while not store.create(name, content):
        before = _ShedDecision.model_validate_json(verify_checksum(name, bytes(store.read(name))))
        if before.basis == basis:
            return before.cut
        store.delete(name)
    return now.cut


# What a node keeps at the end of a tick, and what becomes of that when some of its rows are shed.
#
# A shed row is marked as ``gone``, so no file is written anew for it. Of an ASOF join it is remembered up
# to which time right rows were shed: no left row takes one that came before for the nearest
# (`AsofState.shed`).


@dataclass(frozen=True)
class Shed:
    """Number of rows that a side has shed, and their side output files."""

    rows: int
    files: Sequence[PadFile]


@dataclass
class RetainedNode:
    """Retained rows of a node after a tick.

    Args:
        arrangements: the arrangements of its sides; `mark_shed_rows` replaces those that shed rows.
        told: True if the shed rows must be written to side output files.
        group: the node's number in the job.
    """

    node: NodePlan
    shape: NodeShape
    arrangements: dict[str, Arrangement]
    store: Store
    tick: int
    told: bool
    group: int = 0
    _parts: dict[str, list[RetainedRun]] = field(default_factory=dict)
    _upto: dict[str, int] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all sides."""
        return tuple(side.name for side in self.shape.sides)

    def parts(self, names: Collection[str]) -> list[RetainedRun]:
        """Return the retained runs of some sides, opened on first use."""
        return [part for side in self.shape.sides if side.name in names for part in self._of(side)]

    def _of(self, side: SideShape) -> list[RetainedRun]:
        if side.name not in self._parts:
            kept, place = self.arrangements[side.name], self.names.index(side.name)
            age = None if self.node.ages is None else self.node.ages[place]
            is_copy = self.node.sides[place].copy_of is not None
            opened = OpenRun.open_all(self.store, [live.run for live in kept.runs], side.layout)
            self._parts[side.name] = [
                RetainedRun(self.store, side, live, kept, run, age, self.group, is_copy)
                for live, run in zip(kept.runs, opened, strict=True)
            ]
        return self._parts[side.name]

    def stored(self, names: Collection[str]) -> list[tuple[LiveRun, int, bool]]:
        """List the runs of some sides with their remaining rows.

        Returns:
            Per run, in the order in which runs are opened: the run, the number of rows that remain after
                the
            shedding decided so far, and True if the side is a copy of another side.
        """
        told = []
        for place, side in enumerate(self.shape.sides):
            is_copy = self.node.sides[place].copy_of is not None
            if side.name not in names:
                continue
            if side.name in self._parts:
                told += [(part.live, part.stored, is_copy) for part in self._parts[side.name]]
            else:
                told += [(live, live.stored, is_copy) for live in self.arrangements[side.name].runs]
        return told

    def apply(self, cut: ShedRange, names: Collection[str]) -> None:
        """Mark the rows of a range for shedding on some sides."""
        cut.apply(self.parts(names))
        if cut.last is not None:
            for name in names:
                self._upto[name] = max(cut.last, self._upto.get(name, cut.last))

    def mark_shed_rows(self, reason: str) -> Mapping[str, Shed]:
        """Mark the shed rows in the arrangements of their sides.

        Returns:
            Per side that has shed rows: their number and their files. Copies are not reported.
        """
        shed: dict[str, Shed] = {}
        for side in self.shape.sides:
            parts = [part for part in self._parts.get(side.name, ()) if len(part.shed)]
            if not parts:
                continue
            kept = self.arrangements[side.name]
            runs = _remove_shed_rows(kept.runs, parts, self.store, self.tick)
            update = {"runs": runs, "retained": sum(live.retained for live in runs)}
            self.arrangements[side.name] = kept.model_copy(update=update)
            if not parts[0].is_copy:
                told = parts if self.told else []
                files = [file for part in told for file in part.written(reason, self.tick)]
                shed[side.name] = Shed(sum(len(part.shed) for part in parts), files)
        return shed

    def asof(self, state: AsofState | None, shed: Collection[str]) -> AsofState | None:
        """Return the state of an ASOF join after the sides ``shed`` have shed rows."""
        if state is None or self.shape.sides[1].name not in shed:
            return state
        upto: Watermark = self._upto.get(self.shape.sides[1].name, NEVER)
        return state.model_copy(update={"shed": max(state.shed, upto)})


def _remove_shed_rows(
    runs: Sequence[LiveRun], shed: Sequence[RetainedRun], store: Store, tick: int
) -> list[LiveRun]:
    """Return the runs of a side without the shed rows.

    Another side may share the files, but each side has its own marks.
    """
    marks, gone = MarkWriter(), dict[str, int]()
    for part in shed:
        run = part.live.run
        marks.add_rows(store, run.name, "gone", part.live.marks.get("gone", ()), 0, run.rows, part.shed)
        gone[run.name] = len(part.shed)
    added = marks.write(store, tick)
    left: list[LiveRun] = []
    for live in runs:
        if live.run.name in gone:
            before = live.marks.get("gone", ())
            marked = {**live.marks, "gone": overlay(before, added[live.run.name]["gone"])}
            update = {"released": live.released + gone[live.run.name], "marks": marked}
            live = live.model_copy(update=update)
        if live.released < live.run.rows:
            left.append(live)
    return left


# Shedding: what keeps more than it may lets rows go at the end of a tick (SET at_limit).
#
# From the next tick on a shed row is matched with nothing; it is not padded when it would have been
# released, nor put out by ANTI, and it is not retained. Which rows go, by which limit after the other: of
# a node, when it has settled, of keys with more rows than ``max_rows_per_key`` the oldest, or all; then
# of all its rows the oldest, all of one time together, or those of the heaviest keys, until ``max_rows``
# and ``max_bytes`` hold. When all nodes have settled, likewise of what the job keeps of each source with
# limits, then of all (`shed_job`). It follows from the rows that are kept alone, or was decided by the
# first attempt at the tick (`shed_decided`), and so a tick that is repeated sheds the same, by however
# many tasks it is run. What it costs goes, for the oldest and for one key, by the rows that are shed, now
# and since limits last passed them; for the heaviest keys by all rows that count.


@dataclass(frozen=True)
class LimitedSides:
    """Sides to which one limit applies: nodes, each with the names of the limited sides."""

    of: Sequence[tuple[RetainedNode, Collection[str]]]
    at_limit: AtLimit

    def bring_rows_to(self, most: int, besides: int = 0) -> None:
        """Shed rows until at most ``most`` are left; rows of copies count once.

        Args:
            besides: number of further rows that count and cannot be shed.
        """
        kept = [(node, rows) for node, names in self.of for _, rows, copy in node.stored(names) if not copy]
        excess = min(sum(rows for _, rows in kept), sum(rows for _, rows in kept) + besides - most)
        if excess > 0:
            self._apply(self._cut(excess, [0 if copy else 1 for _, _, copy in self._list_remaining_runs()]))

    def bring_bytes_to(self, most: int, name: str, besides: int = 0) -> None:
        """Shed rows until at most ``most`` bytes are left; a row counts its file's average bytes per row.

        Args:
            name: name of the file with the decision.
            besides: number of further bytes that count and cannot be shed.
        """
        stored = self._list_remaining_runs()
        nbytes = sum(-(-live.run.nbytes * rows // live.run.rows) for live, rows, _ in stored)
        excess = min(nbytes, nbytes + besides - most)

        def decide() -> ShedRange | None:
            weights = [max(1, live.run.nbytes // live.run.rows) for live, _, _ in stored]
            return self._cut(excess, weights) if excess > 0 else None

        rows = [node.arrangements[side].stored for node, names in self.of for side in names]
        store = self.of[0][0].store
        cut = decide_once(store, name, f"{self.at_limit.value} {most}: {rows}", decide)
        if cut is not None:
            self._apply(cut)

    def _list_remaining_runs(self) -> list[tuple[LiveRun, int, bool]]:
        return [told for node, names in self.of for told in node.stored(names)]

    def _cut(self, excess: int, weights: Sequence[int]) -> ShedRange:
        """Choose the rows to shed, by the policy of ``at_limit``.

        Args:
            excess: the weight to shed.
            weights: the weight of a row of each run, in the order of `_list_remaining_runs`; 0 excludes
                the run.
        """
        parts = [part for node, names in self.of for part in node.parts(names)]
        counting = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight]
        choose = choose_oldest_rows if self.at_limit is AtLimit.SHED_OLDEST else choose_heaviest_keys
        return choose([part for part, _ in counting], excess, [weight for _, weight in counting])

    def _apply(self, cut: ShedRange) -> None:
        for node, names in self.of:
            node.apply(cut, names)


def shed_node(
    kept: RetainedNode, options: Options, crowded: Sequence[Collection[int]], name: str
) -> Mapping[str, Shed]:
    """Shed retained rows of a node until its limits are satisfied.

    Args:
        crowded: per side, by position, the upper halves of hashes of keys that may have too many rows.
        name: the name of the file that stores the decision about bytes.

    Returns:
        Per side that has shed rows: their number and their files.
    """
    if not options.at_limit.sheds:
        return {}
    if options.max_rows_per_key is not None:
        _shed_by_keys(kept, options.max_rows_per_key, crowded, by_age=options.at_limit is AtLimit.SHED_OLDEST)
    of_node = LimitedSides([(kept, kept.names)], options.at_limit)
    if options.max_rows is not None:
        of_node.bring_rows_to(options.max_rows)
    if options.max_bytes is not None:
        of_node.bring_bytes_to(options.max_bytes, name)
    return kept.mark_shed_rows(options.at_limit.value)


def _shed_by_keys(kept: RetainedNode, most: int, crowded: Sequence[Collection[int]], *, by_age: bool) -> None:
    for name, buckets in zip(kept.names, crowded, strict=True):
        parts = kept.parts([name]) if buckets else []
        if parts:
            chosen = find_crowding_rows(parts, np.array(sorted(buckets)), most, by_age=by_age)
            for part, rows in zip(parts, chosen, strict=True):
                part.add(rows)
