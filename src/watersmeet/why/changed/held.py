"""What the inputs of a query held after each tick, and what the query put out in it, where rows are taken
back: by the replay of its ticks (`why.replayed`), as far as all is there for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from watersmeet.errors import EngineError, PlanError, SeveralErrors
from watersmeet.event_time import Mask
from watersmeet.history.points import subject_of
from watersmeet.spec.model import Branch, Input, Insert, Job, OutputMode, Source, inputs_of
from watersmeet.why.changed.versions import Kind, Records, Span, Versions, records_of, spans_of
from watersmeet.why.judged import UNMATCHABLE
from watersmeet.why.reach import reached
from watersmeet.why.recorded import Recorded
from watersmeet.why.replayed import KINDS, Joined, Replay, TickWise, aliases_of, in_branches, joins_of
from watersmeet.why.reread import Numbers
from watersmeet.why.rows import QueryRows

Others = Mapping[str, int]
"""Per alias the number of a row, or `NOBODY`."""


def changes(insert: Insert, mode: OutputMode) -> bool:
    """Whether rows of a query's inputs change, or what it puts out is taken back."""
    inputs = insert.query.inputs
    reads = any(source.changes and not own.as_of for own in inputs for source in own.sources)
    return reads or (mode is OutputMode.CHANGELOG and len(inputs) > 1)


def is_of_records(given: Input) -> bool:
    """Whether the rows of an input are those of sources, as their records say."""
    branches = [own for own in given.branches if isinstance(own, Branch)]
    keyed = [own.source for own in branches if own.source.primary_key is not None]
    return (
        len(branches) == len(given.branches)
        and not given.as_of
        and not any(own.source.compared for own in branches)
        and (not keyed or len(branches) == 1)
    )


def goes_by_clock(sources: Iterable[Source]) -> bool:
    """Whether what some of them hold does: deletes of keys with a sequence are remembered for a while."""
    keys = [source.primary_key for source in sources if source.primary_key is not None]
    return any(key.sequence is not None for key in keys)


def clocks_of(history: Recorded) -> list[int] | None:
    """The clock of each tick; None: that of some is not known."""
    clocks = [clock for clock in history.clocks() if clock is not None]
    return clocks if len(clocks) == len(history) else None


@dataclass(frozen=True)
class Result:
    """What of the output was made with a row. ``others``: the rows of other inputs in it."""

    others: Others
    span: Span


class Held:
    """See the module. ``alias``: of the input that is asked for, ``numbers``: of its rows that are;
    ``sources``: as they are declared."""

    def __init__(
        self, rows: QueryRows, job: Job, alias: str, numbers: Numbers, sources: Mapping[str, Source]
    ) -> None:
        self.rows, self._job, self._alias, self._numbers = rows, job, alias, numbers
        self._sources, self._query = sources, rows.insert.query
        self._sides = {side.name: side for side in rows.query.sides}

    @cached_property
    def lacks(self) -> str | None:
        """What is not there that would have to be for the ticks to be run again."""
        lacking = self.rows.lacks(self._told_inputs)
        if lacking is not None:
            return lacking
        if self._clocks is None and goes_by_clock(self._sources.values()):
            return "the history does not have the clock of each tick"
        subject = subject_of("query", self.rows.query.name)
        if self.rows.history.levels(subject, "total_rows_out")[0] is None:
            return "the query began later than the job"
        try:
            _ = self.versions, self.out
        except (EngineError, PlanError, SeveralErrors):
            return "its ticks cannot be run again"
        return None

    @property
    def _told_inputs(self) -> list[str]:
        """The inputs whose records are looked at: all, where what is put out is told."""
        return list(self._sides) if self._is_told else [self._alias]

    @cached_property
    def _is_told(self) -> bool:
        """Whether what becomes of rows in the query is told: of joins, and of inputs alone."""
        query = self._query
        return (
            query.aggregation is None
            and all(join.kind in KINDS and not join.is_lookup for join in joins_of(query.relation))
            and all(map(is_of_records, inputs_of(query.relation)))
            and all(side.sources and not side.stages for side in self.rows.query.sides)
            and not any(node.left_to_spark for node in self.rows.query.nodes)
            and self._alias in aliases_of(query.relation)
        )

    @cached_property
    def _clocks(self) -> list[int] | None:
        return clocks_of(self.rows.history)

    @cached_property
    def records(self) -> dict[str, Records]:
        return {
            alias: records_of(
                self._sides[alias],
                self.rows.inputs[alias],
                self._sources[self.rows.inputs[alias][0].own.source],
                self.rows.zone,
            )
            for alias in self._told_inputs
        }

    @cached_property
    def _bearing(self) -> dict[str, Mask]:
        """Which rows bear on what becomes of those that are asked for."""
        groups = {alias: own.group for alias, own in self.records.items()}
        if self._is_told:
            return reached(self.rows, self._alias, self._numbers, groups)
        own = groups[self._alias]
        return {self._alias: np.isin(own, own[self._numbers])}

    def _replay(self, bearing: Mapping[str, Mask]) -> Replay:
        masks, numbers = {}, {}
        for alias, mask in bearing.items():
            records = self.records[alias]
            counts = records.taken & (records.diffs != 0) & mask
            masks[alias] = in_branches(counts, self.rows.inputs[alias])
            numbers[alias] = records.numbers
        inputs = {alias: self.rows.inputs[alias] for alias in masks}
        mode = self.rows.query.options.mode
        return Replay(self.rows.insert, self._job, inputs, masks, mode, numbers)

    @cached_property
    def _ticks(self) -> TickWise:
        clocks = self._clocks if goes_by_clock(self._sources.values()) else None
        return TickWise.of(self.rows.query, self.rows.history, clocks)

    @cached_property
    def versions(self) -> Versions | None:
        """Of the rows of the input that is asked for; None: they only come."""
        if self.records[self._alias].kind is Kind.ADDED:
            return None
        return self._versions(self._alias, self._bearing[self._alias])

    def span(self, alias: str, number: int) -> Span | None:
        """When the row of a record of an input that changes was there."""
        group = self.records[alias].group
        who = (alias, int(group[number]))
        if who not in self._others:
            self._others[who] = self._versions(alias, group == group[number])
        return self._others[who].span(number)

    @cached_property
    def _others(self) -> dict[tuple[str, int], Versions]:
        """Of inputs, and groups of their records."""
        return {}

    def _versions(self, alias: str, bearing: Mask) -> Versions:
        held = self._replay({alias: bearing}).held(self._ticks, [alias])
        return Versions(self.records[alias], held[alias], alias)

    @cached_property
    def out(self) -> tuple[Joined, dict[int, int]] | None:
        """What was put out, and when rows of the input were let go; None: that is not told."""
        if not self._is_told:
            return None
        asked = np.unique(self.records[self._alias].numbers[self._numbers])
        timed = asked if self._sides[self._alias].event_times else asked[:0]
        return self._replay(self._bearing).in_ticks(self._ticks, self._alias, timed)

    @property
    def may_be_shared(self) -> bool:
        """Whether another input may keep these rows, too, with more of their columns."""
        own = {branch.source.name for _, branch in self._sides[self._alias].sources}
        others = [
            source.name
            for insert in self._job.inserts
            for query in insert.query.every
            for given in query.inputs
            for source in given.sources
        ]
        return any(others.count(name) > 1 for name in own)

    def differ(self, records: Records, number: int) -> bool:
        """Whether records of its group differ in columns of their source."""
        if records.kind is not Kind.EQUAL:
            return False
        own = records.of_group(number)
        return len({int(records.whole[one]) for one in own}) > 1

    def below_zero(self, records: Records, number: int) -> bool:
        """Of rows that are not kept, whether deletes of what is not there were applied as they came."""
        side = self._sides[self._alias]
        came = self.rows.spot(self._alias, number).came_to
        if records.kind is not Kind.EQUAL or (came != UNMATCHABLE and not side.event_times):
            return False
        count = 0
        by_slot: dict[int, int] = {}
        for one in records.of_group(number):
            slot = int(records.slots[one])
            by_slot[slot] = by_slot.get(slot, 0) + int(records.diffs[one])
        for slot in sorted(by_slot):
            count += by_slot[slot]
            if count < 0:
                return True
        return False

    def results_of(self, number: int) -> list[Result]:
        """What of the output has rows of its number."""
        assert self.out is not None
        out, wanted = self.out[0], self.records[self._alias].numbers[number]
        by_others: dict[tuple[tuple[str, int], ...], list[tuple[int, int]]] = {}
        for at in np.flatnonzero(out.rows[self._alias] == wanted).tolist():
            others = tuple((a, int(own[at])) for a, own in out.rows.items() if a != self._alias)
            by_others.setdefault(others, []).append((int(out.slots[at]), int(out.diffs[at])))
        results = [Result(dict(others), span) for others, own in by_others.items() for span in spans_of(own)]
        return sorted(results, key=lambda own: own.span.since)
