"""The versions of the rows of an input that changes: which record brought each, from which tick on it was
there, and by which record it was replaced or withdrawn.

What an input held says the replay of its records (`why.replayed`). Records of one *group* bear on each other:
those of a primary key, or of rows that are equal in all that the query keeps of them.
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

from watersmeet.engine.local.evaluate import BranchEvaluator, value_of
from watersmeet.event_time import Mask
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import batch_of, one_table
from watersmeet.names import DIFF
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import Source
from watersmeet.spec.records.changes import computed_of_changes, said_by
from watersmeet.why.judged import MAY_MATCH, UNMATCHABLE, InputRows
from watersmeet.why.replayed import Joined
from watersmeet.why.reread import Numbers


class Kind(Enum):
    """How the rows of an input change."""

    ADDED = auto()
    """They only come."""
    EQUAL = auto()
    """A delete takes an equal row away."""
    KEYED = auto()
    """A record takes the place of its key's row, or takes it away."""


@dataclass(frozen=True)
class Span:
    """``since``: the slot of the tick in which a row came; ``until``: that of the one in which it went, None:
    it is there."""

    since: int
    until: int | None

    def meets(self, other: Span) -> bool:
        """Whether both were there after one tick."""
        return (self.until is None or other.since < self.until) and (
            other.until is None or self.since < other.until
        )


@dataclass(frozen=True)
class Records:
    """The records of one input, numbered over its branches. ``group``: see the module; ``numbers``: by what
    each is known in a replay; ``slots``, ``diffs``: the tick of each, and how often its row comes;
    ``whole``: per record a number that those have alone that are equal in all columns of their source;
    ``taken``: which records bear on what the input holds."""

    kind: Kind
    group: Numbers
    numbers: Numbers
    slots: Numbers
    diffs: Numbers
    whole: Numbers
    taken: Mask
    sequence: pa.ChunkedArray | None

    def of_group(self, number: int) -> list[int]:
        """The records of a record's group, itself among them, in the order in which they count."""
        same = np.flatnonzero((self.group == self.group[number]) & self.taken)
        return [int(one) for one in same[np.argsort(self.slots[same], kind="stable")]]

    def in_slot(self, number: int, slot: int) -> list[int]:
        """Those of its group that a tick read."""
        return [one for one in self.of_group(number) if self.slots[one] == slot]

    def has_sequence(self, number: int) -> bool:
        """Whether a record says when it was."""
        return self.sequence is not None and bool(self.sequence[number].is_valid)

    def is_older(self, one: int, other: int) -> bool:
        """Whether a record's sequence is below another's."""
        if self.sequence is None:
            return False
        values = (self.sequence[one], self.sequence[other])
        return all(value.is_valid for value in values) and bool(pc.less(*values).as_py())


def records_of(side: SidePlan, branches: Sequence[InputRows], source: Source, zone: str) -> Records:
    """``source``: as it is declared, of the first branch; others have no primary key.

    Raises: EngineError, as `BranchEvaluator`.
    """
    slots = np.concatenate([own.of.slot for own in branches])
    diffs = np.concatenate([_diffs(own) for own in branches])
    count = len(slots)
    places = np.arange(count, dtype=np.int64)
    taken = np.concatenate([own.of.read & ~own.unsure & (own.of.slot < own.never - 1) for own in branches])
    if source.primary_key is not None:
        (own,) = branches
        key, rows = source.primary_key, one_table([own.of.rows])
        keys = pa.table({name: value_of(source, name, rows, zone) for name in key.columns})
        columns = batch_of(keys)
        for name in key.columns:
            taken &= ~keys.column(name).is_null().to_numpy(zero_copy_only=False)
        sequence = None if key.sequence is None else value_of(source, key.sequence, rows, zone)
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
            names += [one.column.name for one in source.computed if one.column.name != said_by(source)]
        if len(branches) == 1:
            whole = [pa.table({name: value_of(source, name, own.of.rows, zone) for name in names})]
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
    """Per row the place of the first one that has its number."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return first[inverse].astype(np.int64)


@dataclass(frozen=True)
class Versions:
    """The versions of the rows of an input. ``held``: what came into it and went, by the numbers of
    ``records``."""

    records: Records
    held: Joined
    alias: str

    @cached_property
    def _rows(self) -> Numbers:
        return self.held.rows[self.alias]

    def net(self, number: int, slot: int) -> int:
        """How often the rows that have its number came in a tick; below zero: went."""
        at = (self._rows == self.records.numbers[number]) & (self.held.slots == slot)
        return int(self.held.diffs[at].sum())

    def count(self, number: int, slot: int) -> int:
        """How often they were there after a tick."""
        at = (self._rows == self.records.numbers[number]) & (self.held.slots <= slot)
        return int(self.held.diffs[at].sum())

    def spans(self, number: int) -> list[Span]:
        """When rows that have a record's number were there."""
        at = np.flatnonzero(self._rows == self.records.numbers[number])
        return spans_of(zip(self.held.slots[at].tolist(), self.held.diffs[at].tolist(), strict=True))

    def span(self, number: int) -> Span | None:
        """That of the row that a record brought: from its tick on. None: it was there after no tick."""
        slot = int(self.records.slots[number])
        for own in self.spans(number):
            if own.since <= slot and (own.until is None or own.until > slot):
                return Span(slot, own.until)
        return None

    def deletes_in(self, number: int, slot: int) -> list[int]:
        """The records of its group that deleted rows in a tick."""
        return [one for one in self.records.in_slot(number, slot) if self.records.diffs[one] < 0]

    def came_in(self, number: int, slot: int) -> list[int]:
        """The records of its group whose rows came in a tick, and were there after it."""
        return [one for one in self.records.in_slot(number, slot) if self.net(one, slot) > 0]

    def steps(self, number: int) -> KeySteps:
        """What the records of a record's key did, one after the other, up to the tick after which something
        else was there than follows from these: deletes may have been forgotten by then."""
        key = int(self.records.group[number])
        if key not in self._steps:
            self._steps[key] = self._steps_of(self.records.of_group(number))
        return self._steps[key]

    @cached_property
    def _steps(self) -> dict[int, KeySteps]:
        """Of keys that were asked for: any number of records may be of one."""
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
    """What a record of a primary key did. ``took``: the record whose row was there before it, and was not any
    more after it; ``older_than``: the one that is newer than it, for which it was dropped."""

    took: int | None
    older_than: int | None = None


@dataclass(frozen=True)
class KeySteps:
    """``steps``: per record; ``after``: per slot of such a record, whose row was there after the tick."""

    steps: Mapping[int, KeyStep]
    after: Mapping[int, int | None]

    def before(self, slot: int) -> int | None:
        """The record whose row was there before a tick."""
        slots = [own for own in self.after if own < slot]
        return self.after[max(slots)] if slots else None

    def counted(self, records: Sequence[int]) -> list[int]:
        """Those of them that were not dropped."""
        return [one for one in records if one in self.steps and self.steps[one].older_than is None]


def spans_of(changes: Iterable[tuple[int, int]]) -> list[Span]:
    """When something was there that came and went in slots so often."""
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
