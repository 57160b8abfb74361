"""Determine the versions of the rows of an input that changes.

For each version: the record that inserted it, the tick from which on it was present, and the record that
replaced or deleted it.

The replay of an input's records (`why.replay`) determines its contents. Records of one *group* affect each
other: the records of a primary key, or of rows that are equal in all columns that the query retains.

`Remains` is about a table with a primary key whose records cannot all be read again, because they were
compacted or have expired, or because their files were deleted. Two things are still certain:

* If no record of a tick is missing, its effect on a key is known. The effect lasts from that record to the
  next record of the key, if no record is missing of the ticks between them.
* If Kafka has compacted a topic, the last record of a key exists unless it was a delete. If the table has as
  many rows as there are keys whose last record inserts one, then it has exactly these rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import Mask
from watersmeet.history.points import subject_of
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import batch_of, one_table
from watersmeet.names import DIFF
from watersmeet.plan.model.sides import SidePlan
from watersmeet.runtime.local.evaluate import BranchEvaluator, evaluate_column
from watersmeet.spec.model import Branch, Input, Insert, OutputMode, Source
from watersmeet.spec.records.changes import computed_of_changes, get_change_column_name
from watersmeet.why.replay import Joined
from watersmeet.why.rows import MAY_MATCH, UNMATCHABLE, InputRows, Numbers, QueryRows


def changes(insert: Insert, mode: OutputMode) -> bool:
    """Return True if rows of a query's inputs change, or the query retracts output."""
    inputs = insert.query.inputs
    reads = any(source.changes and not own.as_of for own in inputs for source in own.sources)
    return reads or (mode is OutputMode.CHANGELOG and len(inputs) > 1)


def is_of_records(given: Input) -> bool:
    """Return True if an input's rows are exactly those of its sources' records."""
    branches = [own for own in given.branches if isinstance(own, Branch)]
    keyed = [own.source for own in branches if own.source.primary_key is not None]
    return (
        len(branches) == len(given.branches)
        and not given.as_of
        and not any(own.source.compared for own in branches)
        and (not keyed or len(branches) == 1)
    )


class Kind(Enum):
    """Kind of change of an input's rows."""

    ADDED = auto()
    """They only come."""
    EQUAL = auto()
    """A delete takes an equal row away."""
    KEYED = auto()
    """A record takes the place of its key's row, or takes it away."""


@dataclass(frozen=True)
class Span:
    """Span of ticks in which a row was present.

    Attributes:
        since: the slot of the tick that inserted the row.
        until: the slot of the tick that deleted the row; None: the row is still present.
    """

    since: int
    until: int | None

    def meets(self, other: Span) -> bool:
        """Return True if both were present after one tick."""
        return (self.until is None or other.since < self.until) and (
            other.until is None or self.since < other.until
        )


@dataclass(frozen=True)
class Records:
    """Records of one input, numbered over its branches.

    Attributes:
        group: the group of each record; see the module.
        numbers: the number of each record in a replay.
        slots: the tick of each record.
        diffs: the multiplicity of each record's row.
        whole: a number per record that is equal only for records that are equal in all columns of their
            source.
        taken: a mask of the records that affect the input's contents.
    """

    kind: Kind
    group: Numbers
    numbers: Numbers
    slots: Numbers
    diffs: Numbers
    whole: Numbers
    taken: Mask
    sequence: pa.ChunkedArray | None

    @property
    def counts(self) -> Mask:
        """Mask of records that insert or delete a row."""
        counts: Mask = self.taken & (self.diffs != 0)
        return counts

    def of_group(self, number: int) -> list[int]:
        """Return the records of a record's group, including itself, in the order they count."""
        same = np.flatnonzero((self.group == self.group[number]) & self.taken)
        return [int(one) for one in same[np.argsort(self.slots[same], kind="stable")]]

    def in_slot(self, number: int, slot: int) -> list[int]:
        """Return the records of a record's group that a tick read."""
        return [one for one in self.of_group(number) if self.slots[one] == slot]

    def has_sequence(self, number: int) -> bool:
        """Return True if a record has a sequence value."""
        return self.sequence is not None and bool(self.sequence[number].is_valid)

    def is_older(self, one: int, other: int) -> bool:
        """Return True if a record's sequence is below another's."""
        if self.sequence is None:
            return False
        values = (self.sequence[one], self.sequence[other])
        return all(value.is_valid for value in values) and bool(pc.less(*values).as_py())


def records_of(side: SidePlan, branches: Sequence[InputRows], source: Source, zone: str) -> Records:
    """Return the records of an input.

    Args:
        source: the source of the first branch, as declared; other sources have no primary key.

    Raises:
        EngineError: a column cannot be computed (see `BranchEvaluator`).
    """
    slots = np.concatenate([own.of.slot for own in branches])
    diffs = np.concatenate([_diffs(own) for own in branches])
    count = len(slots)
    places = np.arange(count, dtype=np.int64)
    taken = np.concatenate([own.of.read & ~own.unsure & (own.of.slot < own.never - 1) for own in branches])
    if source.primary_key is not None:
        (own,) = branches
        key, rows = source.primary_key, one_table([own.of.rows])
        keys = pa.table({name: evaluate_column(source, name, rows, zone) for name in key.columns})
        columns = batch_of(keys)
        for name in key.columns:
            taken &= ~keys.column(name).is_null().to_numpy(zero_copy_only=False)
        sequence = None if key.sequence is None else evaluate_column(source, key.sequence, rows, zone)
        group = _first_of(group_numbers(columns, key.columns))
        return Records(Kind.KEYED, group, places, slots, diffs, places, taken, sequence)
    came = np.concatenate([own.came_to for own in branches])
    taken &= (came == MAY_MATCH) | (came == UNMATCHABLE)
    if not any(own.of.reread.source.changes for own in branches):
        return Records(Kind.ADDED, places, places, slots, diffs, places, taken, None)
    kept, whole = [], []
    for own in branches:
        evaluate = BranchEvaluator(side, side.branches[own.number], zone)  # type: ignore[arg-type]
        kept.append(pa.Table.from_batches([evaluate(own.of.rows).select(list(side.kept))]))
        names = [column.name for column in source.row_columns]
        if computed_of_changes(source):
            names += [
                one.column.name
                for one in source.computed
                if one.column.name != get_change_column_name(source)
            ]
        if len(branches) == 1:
            whole = [pa.table({name: evaluate_column(source, name, own.of.rows, zone) for name in names})]
    group = _first_of(group_numbers(batch_of(pa.concat_tables(kept)), side.kept)) if side.kept else places * 0
    every = group
    if whole:
        every = _first_of(group_numbers(batch_of(whole[0]), whole[0].column_names))
    return Records(Kind.EQUAL, group, group, slots, diffs, every, taken, None)


def _diffs(own: InputRows) -> Numbers:
    column = own.of.rows.column(DIFF).cast(pa.int64())
    diffs: Numbers = column.to_numpy()
    return diffs


def _first_of(numbers: Numbers) -> Numbers:
    """Return, per row, the position of the first row with its number."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return first[inverse].astype(np.int64)


NOTHING = -1
"""In place of a record's number."""


@dataclass(frozen=True)
class KeyChange:
    """Effect of a record of a primary key.

    Attributes:
        took: the record whose row it replaced or deleted; `NOTHING`; or None: unknown.
        until: the slot of the tick in which its row left; the slot of the record itself if the row was
            present after no tick; None: the row is present.
        by: the record that removed its row.
        older_than: the newer record because of which it was dropped.
        before: the record whose row a delete removed, among the rows present after the previous tick.
    """

    took: int | None = NOTHING
    until: int | None = None
    by: int | None = None
    older_than: int | None = None
    before: int | None = None


@dataclass(frozen=True)
class Versions:
    """Versions of the rows of an input.

    Attributes:
        held: the rows that were inserted and deleted, by the numbers of ``records``.
    """

    records: Records
    held: Joined
    alias: str

    @cached_property
    def _rows(self) -> Numbers:
        return self.held.rows[self.alias]

    def net(self, number: int, slot: int) -> int:
        """Return the net multiplicity of the record's rows in a tick; negative: they left."""
        at = (self._rows == self.records.numbers[number]) & (self.held.slots == slot)
        return int(self.held.diffs[at].sum())

    def count(self, number: int, slot: int) -> int:
        """Return the multiplicity of the record's rows after a tick."""
        at = (self._rows == self.records.numbers[number]) & (self.held.slots <= slot)
        return int(self.held.diffs[at].sum())

    def spans(self, number: int) -> list[Span]:
        """Return the spans in which rows equal to a record's row were present."""
        at = np.flatnonzero(self._rows == self.records.numbers[number])
        return spans_of(zip(self.held.slots[at].tolist(), self.held.diffs[at].tolist(), strict=True))

    def span(self, number: int) -> Span | None:
        """Return the span of the row that a record inserted, from its tick on.

        Returns:
            None if the row was present after no tick.
        """
        slot = int(self.records.slots[number])
        for own in self.spans(number):
            if own.since <= slot and (own.until is None or own.until > slot):
                return Span(slot, own.until)
        return None

    def deletes_in(self, number: int, slot: int) -> list[int]:
        """Return the records of a record's group that deleted rows in a tick."""
        return [one for one in self.records.in_slot(number, slot) if self.records.diffs[one] < 0]

    def came_in(self, number: int, slot: int) -> list[int]:
        """Return the records of a record's group whose rows a tick inserted and retained."""
        return [one for one in self.records.in_slot(number, slot) if self.net(one, slot) > 0]

    def change(self, number: int) -> KeyChange | None:
        """Return what a record of a primary key did; None: that is not known."""
        slot, steps = int(self.records.slots[number]), self.steps(number)
        if number not in steps.steps:
            return None
        step, own = steps.steps[number], self.records.in_slot(number, slot)
        if step.older_than is not None:
            return KeyChange(older_than=step.older_than)
        later = steps.without_stale(own[own.index(number) + 1 :])
        before = steps.before(slot)
        if self.records.diffs[number] < 0:
            took = NOTHING if step.took is None else step.took
            return KeyChange(took, slot if later else None, before=before)
        took = NOTHING if before is None else before
        if later:
            return KeyChange(took, slot, later[-1])
        span = self.span(number)
        assert span is not None
        if span.until is None:
            return KeyChange(took)
        by = self.came_in(number, span.until) or steps.without_stale(self.deletes_in(number, span.until))
        return KeyChange(took, span.until, by[-1] if by else None)

    def steps(self, number: int) -> KeySteps:
        """Return the effects of a key's records, one after the other.

        The steps end at the tick after which the observed rows differ from what these records imply: the
        job may have forgotten deletes by that time.
        """
        key = int(self.records.group[number])
        if key not in self._steps:
            self._steps[key] = self._steps_of(self.records.of_group(number))
        return self._steps[key]

    @cached_property
    def _steps(self) -> dict[int, KeySteps]:
        """Steps of the requested keys; a key may have any number of records."""
        return {}

    def _steps_of(self, group: Sequence[int]) -> KeySteps:
        steps: dict[int, KeyStep] = {}
        after: dict[int, int | None] = {}
        alive: int | None = None
        newest: int | None = None
        for one in group:
            if newest is not None and self.records.is_older(one, newest):
                steps[one] = KeyStep(None, newest)
            else:
                comes = self.records.diffs[one] > 0
                steps[one] = KeyStep(alive)
                alive = one if comes else None
                newest = one if newest is None or self.records.has_sequence(one) else newest
            after[int(self.records.slots[one])] = alive
        at = np.flatnonzero(np.isin(self._rows, group))
        events: dict[int, list[tuple[int, int]]] = {}
        for slot, row, diff in zip(
            *(own[at].tolist() for own in (self.held.slots, self._rows, self.held.diffs)), strict=True
        ):
            events.setdefault(slot, []).append((row, diff))
        held: Counter[int] = Counter()
        for slot in sorted({*after, *events}):
            for row, diff in events.get(slot, ()):
                held[row] += diff
                if not held[row]:
                    del held[row]
            if slot not in after or list(held) != ([] if after[slot] is None else [after[slot]]):
                steps = {one: own for one, own in steps.items() if self.records.slots[one] < slot}
                return KeySteps(steps, {own: of for own, of in after.items() if own < slot})
        return KeySteps(steps, after)


@dataclass(frozen=True)
class KeyStep:
    """Effect of a record of a primary key.

    Attributes:
        took: the record whose row was present before it and not after it.
        older_than: the newer record because of which it was dropped.
    """

    took: int | None
    older_than: int | None = None


@dataclass(frozen=True)
class KeySteps:
    """``steps``: per record; ``after``: per slot of such a record, whose row was there after the tick."""

    steps: Mapping[int, KeyStep]
    after: Mapping[int, int | None]

    def before(self, slot: int) -> int | None:
        """Return the record whose row was present before a tick."""
        slots = [own for own in self.after if own < slot]
        return self.after[max(slots)] if slots else None

    def without_stale(self, records: Sequence[int]) -> list[int]:
        """Drop the records that were dropped as stale."""
        return [one for one in records if one in self.steps and self.steps[one].older_than is None]


def spans_of(changes: Iterable[tuple[int, int]]) -> list[Span]:
    """Return the spans in which something was present, from its multiplicity changes per slot."""
    net: dict[int, int] = {}
    for slot, diff in changes:
        net[slot] = net.get(slot, 0) + diff
    spans: list[Span] = []
    count, since = 0, None
    for slot in sorted(net):
        count += net[slot]
        if count > 0 and since is None:
            since = slot
        elif count <= 0 and since is not None:
            spans.append(Span(since, slot))
            since = None
    if since is not None:
        spans.append(Span(since, None))
    return spans


class Remains:
    """Certain facts about a table with a primary key, some of whose records are missing."""

    def __init__(self, rows: QueryRows, records: Records, alias: str, source: str) -> None:
        self._rows, self._records, self._alias, self._source = rows, records, alias, source
        self._certainty = rows.certainty[source]

    @property
    def _can_tell(self) -> bool:
        """True if rows after the last tick can be derived from the records.

        With a sequence it is unknown which changes were older than missing ones.
        """
        is_keyed = self._records.kind is Kind.KEYED and self._records.sequence is None
        return is_keyed and self._certainty.is_ordered and not self._rows.shed

    def change(self, number: int) -> KeyChange | None:
        """Return the change that a record of some tick made; None if it is unknown."""
        if not self._can_tell:
            return None
        slots, slot = self._records.slots, int(self._records.slots[number])
        group = [one for one in self._records.of_group(number) if self._records.diffs[one]]
        at = group.index(number)
        before, after = group[:at], group[at + 1 :]
        is_same = bool(after) and slots[after[0]] == slot
        if self._records.diffs[number] < 0:
            is_known = self._is_whole(slot, slot) and not is_same
            return KeyChange(self._before(slot, before)) if is_known else None
        if is_same and self._exact[[number, after[0]]].all():
            return KeyChange(until=slot, by=after[0])
        took = self._before(slot, [one for one in before if slots[one] < slot])
        if not after:
            is_there = self._is_whole(slot, len(self._rows.history) - 1) or self._stays(number)
            return KeyChange(took) if is_there else None
        until = int(slots[after[0]])
        if is_same or not self._is_whole(slot, until):
            return None
        return KeyChange(took, until, [one for one in after if slots[one] == until][-1])

    def _before(self, slot: int, before: list[int]) -> int | None:
        """Return the record whose row the key had before the records of a tick.

        The result is `NOTHING` if there was no row, and None if it is unknown.
        """
        if before:
            last = before[-1]
            is_known = self._is_whole(int(self._records.slots[last]), slot)
            return (last if self._records.diffs[last] > 0 else NOTHING) if is_known else None
        from_begin = self._is_whole(0, slot) and not self._rows.history.follows_gap(0)
        return NOTHING if from_begin else None

    def _is_whole(self, first: int, last: int) -> bool:
        """Return True if the records of a range of slots include all changes by its ticks."""
        history, query = self._rows.history, self._rows.query
        began = history.levels(subject_of("query", query.name), "total_rows_out")[first] is not None
        unknown = history.levels(subject_of("input", query.name, self._alias), "unknown")[last]
        return (
            began
            and not unknown
            and all(slot in self._certainty.whole for slot in range(first, last + 1))
            and not any(history.follows_gap(slot) for slot in range(first + 1, last + 1))
            and not self._may_be_earlier[self._records.slots >= first].any()
        )

    @cached_property
    def _exact(self) -> Mask:
        exact: Mask = np.concatenate([own.of.exact for own in self._rows.inputs[self._alias]])
        return exact

    @cached_property
    def _may_be_earlier(self) -> Mask:
        """Mask of the records that were read, or may have been, and perhaps before the tick of their slot."""
        exact, count = self._exact, len(self._rows.history)
        untold = np.concatenate([own.of.untold for own in self._rows.inputs[self._alias]])
        earlier: Mask = untold | (~exact & (self._records.slots < count))
        return earlier

    def _stays(self, number: int) -> bool:
        """Return True if the row of a key's last record is present after the last tick."""
        return self.rows_there is not None and number in self.rows_there

    @cached_property
    def rows_there(self) -> frozenset[int] | None:
        """Records whose rows the table has after the last tick, except for keys with later records.

        None if it is unknown.
        """
        history, records = self._rows.history, self._records
        if not (self._can_tell and self._certainty.is_compacted):
            return None
        unsure = np.concatenate([own.unsure for own in self._rows.inputs[self._alias]])
        if (unsure & (records.slots < len(history))).any():
            return None
        subject = subject_of("input", self._rows.query.name, f"{self._alias}.{self._source}")
        count = history.levels(subject, "retained")[-1]
        taken = np.flatnonzero(records.taken & (records.diffs != 0))
        order = taken[np.lexsort((taken, records.slots[taken], records.group[taken]))]
        is_last = np.append(records.group[order][1:] != records.group[order][:-1], len(order) > 0)[
            : len(order)
        ]
        alive = order[is_last & (records.diffs[order] > 0)]
        later = np.unique(records.group[~records.taken & (records.slots >= len(history))])
        if count is None or count != len(alive) or not np.isin(later, records.group[alive]).all():
            return None
        return frozenset(alive[~np.isin(records.group[alive], later)].tolist())
