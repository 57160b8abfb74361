"""Read the rows of a query's inputs again from their sources, and apply the engine's rules.

For each row, this yields the tick that read it and the outcome of ingest and watermarks.

Rows whose tick is not known exactly, and that would be late in the last possible one, are ``unsure``: their
outcome cannot be determined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import EngineError, StateError
from watersmeet.event_time import MIN_TIME, Mask, Times
from watersmeet.history.points import subject_of
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import batch_of, one_array, one_table
from watersmeet.names import DIFF, PARTITION
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.query_inputs import JoinInputs, refs
from watersmeet.runtime.local.input_rows import add_utc_zone
from watersmeet.runtime.values import to_table
from watersmeet.spec.flags import FLAG_BENEATH, FLAG_CANDIDATE, FLAG_FILTERED
from watersmeet.spec.model import Branch, Expr, Input, Insert, Join, JoinKind, Relation, Source
from watersmeet.types.json_values import rows_of
from watersmeet.whatif.ingest_rules import (
    BranchRows,
    IngestCounts,
    TickWatermarks,
    branch_rows,
    count_ingested,
)
from watersmeet.whatif.sample import ArrivedRows, Sample
from watersmeet.why.answer import Tick
from watersmeet.why.expressions import Conditions, columns_of, mentioned_columns, value_of
from watersmeet.why.ticks import TickHistory, plain_join_of

Numbers = npt.NDArray[np.int64]

UNREAD = -1
"""The position of rows that no tick has read."""

BENEATH, AHEAD, LATE, NULL_TIME, FILTERED, UNMATCHABLE, MAY_MATCH, NOT_YET = range(8)
"""What a row came to. `NOT_YET`: no tick that is known has read it."""


@dataclass(frozen=True)
class Portion:
    """Rows that arrived together, such as those of a file, in order.

    Attributes:
        rows: declared columns, `PARTITION`, `DIFF`.
        part, position: where in the source they are, as `TickResult.read` counts: a tick has read them
            if its progress is beyond the position.
        place: the position for people.
        left_out: records that were not read here, because they are broken or only Spark can parse
            them.
        offsets: the offset of each row in the part, for rows that have one.
    """

    rows: pa.Table
    part: str
    position: int
    place: str
    left_out: tuple[str, ...] = ()
    offsets: Numbers | None = None

    def place_of(self, row: int) -> str:
        """Return the place of one of the rows, for people."""
        if self.offsets is None:
            return self.place
        return f"{self.place} at offset {int(self.offsets[row]):,}"


@dataclass(frozen=True)
class Missing:
    """Rows that could not be read again.

    Attributes:
        words: description of the rows, for people.
        part: part of the source, as in `Portion`.
        position: position in the part, as in `Portion`; None if the rows may be anywhere.
        until: end of the range that starts at ``position``, exclusive; None for a single position.
        why: ``gone``: they no longer exist. ``compacted``: the table's keys removed them. ``before``: the job
            never read them, because it began at a later position. ``unordered``: they exist, but in no order.
    """

    words: str
    part: str = ""
    position: int | None = None
    until: int | None = None
    why: Literal["gone", "compacted", "before", "unordered"] = "gone"


@dataclass(frozen=True)
class Reread:
    """Parts of a source that could be read again, and those that could not."""

    source: Source
    portions: Sequence[Portion]
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True)
class LeftOut:
    """A record that was not read again.

    Attributes:
        slot: slot of the tick that read it, or of a later tick unless ``exact``; None if it is unknown.
        is_read: some tick has read the record, even if it is unknown which.
        certain: the record is broken, because its tick counted as many broken records as were left out here
            of the records that it read, and all of these were read again.
    """

    record: str
    place: str
    slot: int | None
    exact: bool
    is_read: bool
    certain: bool = False

    @property
    def is_unclear(self) -> bool:
        """True if a tick has read the record, and it may have been a row."""
        return self.is_read and not self.certain


@dataclass(frozen=True)
class SourceRows:
    """All rows of a source that were read again.

    Attributes:
        slot: slot of the tick that read each row if ``exact``, else of a later tick; the number of slots if
            no known tick read it.
        read: some tick has read the row.
        untold: some tick has read the row, and it may be any.
        later: the tick of the previous slot had certainly not read the row.
        portion: index in `Reread.portions` of each row's portion.
    """

    reread: Reread
    rows: pa.Table
    slot: Numbers
    exact: Mask
    read: Mask
    untold: Mask
    later: Mask
    portion: Numbers

    @classmethod
    def of(cls, reread: Reread, history: TickHistory) -> SourceRows:
        """Give each row its tick; there may be no rows."""
        name, portions, places = reread.source.name, reread.portions, []
        for own in portions:
            at, is_read = (name, own.part, own.position), own.position != UNREAD
            slot, is_exact = (history.slot_of(*at) if is_read else None) or (len(history), False)
            is_placed = slot < len(history)
            is_untold = is_read and not is_placed and not history.is_beyond(*at)
            is_later = is_placed and history.is_after_slot_before(*at, slot)
            places.append((slot, is_exact, is_read, is_untold, is_later))
        columns = np.array(places, dtype=np.int64).reshape(-1, 5)
        slots, *masks = np.repeat(columns, [own.rows.num_rows for own in portions], axis=0).T
        none = to_table(reread.source.columns, [], [])
        rows = pa.concat_tables([none, *(own.rows for own in portions)]).combine_chunks()
        exact, read, untold, later = (mask.astype(np.bool_) for mask in masks)
        numbers = np.repeat(np.arange(len(portions)), [own.rows.num_rows for own in portions])
        return cls(reread, rows, np.ascontiguousarray(slots), exact, read, untold, later, numbers)

    def place(self, row: int) -> str:
        """Return the place of a row, for people."""
        number = int(self.portion[row])
        first = int(np.searchsorted(self.portion, number))
        return self.reread.portions[number].place_of(row - first)


@dataclass(frozen=True)
class InputRows:
    """Rows of one branch of an input.

    Attributes:
        late_after: late thresholds, see `TickHistory`.
        released: slot in which each row that may match was released; ``never`` if it was not.
    """

    side: SidePlan
    of: SourceRows
    own: BranchRows
    kept: IngestCounts
    marks: TickWatermarks
    late_after: Mapping[str, Times]
    never: int

    @property
    def number(self) -> int:
        """The number of the branch."""
        return self.own.number

    @cached_property
    def came_to(self) -> Numbers:
        """Outcome of each row, by the order in which ingest judges."""
        own, flags = self.own, self.own.flags
        came = np.full(len(flags), UNMATCHABLE, dtype=np.int64)
        came[flags == FLAG_CANDIDATE] = MAY_MATCH
        came[flags == FLAG_FILTERED] = FILTERED
        came[own.null_time(self.kept.late)] = NULL_TIME
        came[self.kept.late] = LATE
        came[own.part & ~own.judged] = AHEAD
        came[flags == FLAG_BENEATH] = BENEATH
        came[self.of.slot >= self.never - 1] = NOT_YET
        return came

    @cached_property
    def unsure(self) -> Mask:
        """Mask of rows whose outcome depends on a tick that is unknown."""
        unsure: Mask = self.of.untold | ((self.came_to == LATE) & ~self.of.exact & ~self.was_late_before)
        if self.own.arrived.source.max_ahead_us is not None:
            unsure = unsure | (~self.of.exact & ~np.isin(self.came_to, (BENEATH, NOT_YET)))
        return unsure

    @cached_property
    def was_late_before(self) -> Mask:
        """Mask of rows that were late whichever tick read them: by a watermark before all of these."""
        late: Mask = np.zeros(len(self.of.slot), dtype=np.bool_)
        rows = np.flatnonzero(self.of.later)
        for column, times in self.own.times.items():
            present = self.own.present[column]
            below = self.late_after[self.side.watermark_key(column)][self.of.slot[rows] - 1]
            late[rows] |= (times[rows] < below) & (True if present is None else present[rows])
        return late

    @cached_property
    def released(self) -> Numbers:
        """Slot in which each row left the state; ``never`` if it has not."""
        released = np.full(len(self.of.slot), self.never, dtype=np.int64)
        released[self.kept.rows] = self.kept.released
        return released

    def late_key(self, row: int) -> tuple[str, int, int]:
        """Return by which event time a late row was late the most.

        Returns:
            The watermark key, the row's time, and the smallest time that was not late.
        """
        slot, marks = int(self.of.slot[row]), self.marks.late_below
        if not self.of.exact[row] and self.was_late_before[row]:
            slot, marks = slot - 1, self.late_after  # which tick read it is not known
        late_by = []
        for column, times in self.own.times.items():
            present = self.own.present[column]
            if present is None or present[row]:
                key = self.side.watermark_key(column)
                late_by.append((key, int(times[row]), int(marks[key][slot])))
        return max(late_by, key=lambda of: of[2] - of[1])


@dataclass(frozen=True)
class Spot:
    """A row: a branch of an input, and the row's number in it."""

    branch: InputRows
    row: int

    @property
    def came_to(self) -> int:
        return int(self.branch.came_to[self.row])

    @property
    def unsure(self) -> bool:
        return bool(self.branch.unsure[self.row])

    @property
    def slot(self) -> int:
        return int(self.branch.of.slot[self.row])

    @property
    def exact(self) -> bool:
        return bool(self.branch.of.exact[self.row])

    @property
    def released(self) -> int:
        return int(self.branch.released[self.row])

    @property
    def place(self) -> str:
        return self.branch.of.place(self.row)

    @property
    def values(self) -> dict[str, Any]:
        """Values of the row as in its source, as JSON values; those of TIMESTAMP in UTC, with a Z."""
        rows = self.branch.of.rows.slice(self.row, 1).drop_columns([PARTITION, DIFF])
        (row,) = rows_of(add_utc_zone(rows, self.branch.of.reread.source.columns))
        return dict(zip(rows.column_names, row, strict=True))


@dataclass(frozen=True)
class Certainty:
    """Certain facts about the rows of a source.

    Attributes:
        whole: slots of ticks for which no record is missing and none was left out here.
        is_ordered: whether it is known which record of a key counted last.
        is_compacted: whether all missing records were compacted by the table's keys, and no record was
            left out.
    """

    whole: frozenset[int]
    is_ordered: bool
    is_compacted: bool


@dataclass(frozen=True)
class QueryRows:
    """A query with all rows of its inputs that were read again.

    Attributes:
        unseen: by alias, slots of the ticks that read rows which could not be read again; None for an unknown
            tick.
        shed: True if rows of the query were shed.
        certainty: by source.
        left_out: by source.
    """

    query: QueryPlan
    insert: Insert
    history: TickHistory
    inputs: Mapping[str, Sequence[InputRows]]
    unseen: Mapping[str, Sequence[int | None]]
    shed: bool
    certainty: Mapping[str, Certainty]
    left_out: Mapping[str, Sequence[LeftOut]]

    @classmethod
    def of(
        cls, query: QueryPlan, insert: Insert, history: TickHistory, reread: Mapping[str, Reread]
    ) -> QueryRows:
        """Judge the rows of a query that is planned over records (`record_queries`).

        Args:
            reread: all its sources.

        Raises:
            StateError: the history does not say which tick read what.
            EngineError: an expression is one that only Spark computes, or fails for a row.
        """
        is_read = any(portion.position != UNREAD for own in reread.values() for portion in own.portions)
        if is_read and not history.tells_reading:
            raise StateError(
                "the history does not record what each tick read: an older version wrote it",
                code="no-history",
                hint="continue the job with this version, which records it for new ticks",
            )
        left_out = {name: _left_out(query, own, history) for name, own in reread.items()}
        unseen: dict[str, list[int | None]] = {}
        for side in query.sides:
            names = [branch.source.name for _, branch in side.sources]
            unseen[side.name] = [
                slot for name in names for slot in _unseen(reread[name], history, left_out[name])
            ] or ([] if names else [None])
        subjects = [subject_of("input", query.name, side.name) for side in query.sides]
        return cls(
            query,
            insert,
            history,
            _inputs_of(query, {name: SourceRows.of(own, history) for name, own in reread.items()}, history),
            unseen,
            any("shed" in history.past.figures(subject) for subject in subjects),
            {name: _certainty(own, history, left_out[name]) for name, own in reread.items()},
            left_out,
        )

    def spot(self, alias: str, number: int) -> Spot:
        """Return a row by its number in an input, over all branches."""
        for branch in self.inputs[alias]:
            count = len(branch.came_to)
            if number < count:
                return Spot(branch, number)
            number -= count
        raise AssertionError("the row number is larger than the number of rows")

    def number_of(self, spot: Spot) -> int:
        """Return a row's number in its input."""
        branches = self.inputs[spot.branch.side.name]
        at = next(n for n, own in enumerate(branches) if own is spot.branch)
        return sum(len(own.came_to) for own in branches[:at]) + spot.row

    def tick(self, spot: Spot) -> Tick | None:
        """Return the tick that read the row."""
        if spot.slot >= len(self.history):
            return None
        return Tick(self.history.ticks[spot.slot], spot.exact)

    @property
    def join(self) -> JoinPlan | None:
        """The join whose times determine the fates; None for other queries."""
        join = plain_join_of(self.query)
        return join if len(self.inputs) == 2 else None

    @property
    def zone(self) -> str:
        return self.query.options.time_zone

    @cached_property
    def own_conditions(self) -> list[Expr]:
        """Conditions that a row must meet by itself, wherever they stand, as the query has them."""
        joins = joins_of(self.insert.query.relation)
        conditions = [self.insert.query.where, *(own for join in joins for own in (join.on, join.where))]
        every = [own.expr for own in Conditions.of(JoinInputs(()), conditions).conjuncts]
        return [expr for expr in every if len({alias for alias, _ in refs(expr)}) == 1]

    def branch(self, spot: Spot) -> Branch:
        """Return the branch that a row came by, as the query has it."""
        branch = spot.branch.side.input.branches[spot.branch.number]
        assert isinstance(branch, Branch)
        return branch

    def columns(self, spot: Spot, names: Sequence[str]) -> pa.Table:
        """Compute columns of a row as its input has them."""
        rows = spot.branch.of.rows.slice(spot.row, 1)
        return columns_of(spot.branch.side.input, self.branch(spot), names, rows, self.zone)

    def nulls(self, side: SidePlan, names: Sequence[str]) -> pa.Table:
        """Return a row of NULLs of columns as an input has them."""
        branch = self.inputs[side.name][0]
        rows, own = branch.of.rows.slice(0, 0), side.input.branches[branch.number]
        assert isinstance(own, Branch)
        empty = columns_of(side.input, own, names, rows, self.zone)
        return pa.table([pa.nulls(1, field.type) for field in empty.schema], names=empty.column_names)

    def lacks(self, aliases: Iterable[str], sources: Iterable[Source]) -> str | None:
        """Return why ticks cannot be replayed exactly with the rows of some inputs; None if they can be.

        Args:
            aliases: the inputs.
            sources: the sources as declared.
        """
        history, named = self.history, list(aliases)
        if any(history.follows_gap(slot) for slot in range(len(history))):
            return "the history does not have each tick"
        if any(self.unseen[alias] for alias in named):
            return "not all rows of its inputs can be read again"
        for own in (own for alias in named for own in self.inputs.get(alias, ())):
            if (own.unsure | (own.of.read & ~own.of.exact & (own.of.slot < len(history)))).any():
                return "of some rows it is not known when they were read"
        subjects = (subject_of("input", self.query.name, alias) for alias in named)
        if any(level for subject in subjects for level in history.levels(subject, "unknown")):
            return "the query was another one when rows came"
        if None in history.clocks() and goes_by_clock(sources):
            return "the history does not have the clock of each tick"
        if history.levels(subject_of("query", self.query.name), "total_rows_out")[0] is None:
            return "the query began later than the job"
        return None

    def were_there(self, one: Spot, other: Spot) -> bool | None:
        """Return True if the earlier of two rows was still retained when the later one arrived.

        Rows that match are always retained, unless rows are released that may still match.

        Returns:
            None if it is unknown.
        """
        if self.join is None or not self.join.hides_released:
            return True
        early, late = sorted((one, other), key=lambda own: own.slot)
        return early.released >= late.slot if early.exact and late.exact else None

    def find_linked_rows(self, alias: str, asked: Numbers, groups: Mapping[str, Numbers]) -> dict[str, Mask]:
        """Return the rows that may be joined with some rows of an input, by the equalities of the joins.

        The result may contain more rows than needed, and never fewer.

        Args:
            asked: numbers of the rows of the input ``alias``.
            groups: by input that changes, the group number of each record; the records of a group belong
                together.

        Returns:
            By input, a mask of the rows.
        """
        counts = {name: sum(len(own.came_to) for own in branches) for name, branches in self.inputs.items()}
        every: dict[str, Mask] = {name: np.ones(count, dtype=np.bool_) for name, count in counts.items()}
        if not self._is_local:
            return every
        masks = {alias: np.isin(np.arange(counts[alias]), asked)}
        links = [own for link in self._links for own in (link, link[::-1])]
        while len(masks) < len(counts):
            for (own, expr), (other, other_expr) in links:
                if own in masks and other not in masks:
                    mask = self._equal(own, expr, masks[own], other, other_expr)
                    if mask is not None:
                        masks[other] = mask
                        break
            else:  # nothing is known of another one
                masks |= {name: own for name, own in every.items() if name not in masks}
        return {
            name: mask if name not in groups else np.isin(groups[name], groups[name][mask])
            for name, mask in masks.items()
        }

    @property
    def _is_local(self) -> bool:
        """True if the output of a row depends only on rows that can be joined with it.

        This is false where rows leave by watermarks, which depend on other retained rows, and where a third
        row decides whether two rows are padded.
        """
        joins = joins_of(self.insert.query.relation)
        is_plain = len(joins) < 2 or all(join.kind is JoinKind.INNER for join in joins)
        return is_plain and not any(side.event_times for side in self.query.sides)

    @property
    def _links(self) -> list[tuple[tuple[str, Expr], tuple[str, Expr]]]:
        """Pairs of inputs with expressions over their columns that are equal where rows are joined."""
        query = self.insert.query
        joins = joins_of(query.relation)
        conditions = [join.on for join in joins]
        if all(join.kind is JoinKind.INNER for join in joins):
            conditions += [query.where, *(join.where for join in joins)]
        links = []
        for own in Conditions.of(JoinInputs(()), conditions).conjuncts:
            if isinstance(own.expr, exp.EQ | exp.NullSafeEQ):
                sides = own.expr.this, own.expr.expression
                aliases = [{alias for alias, _ in refs(side)} for side in sides]
                if [len(one) for one in aliases] == [1, 1] and aliases[0] != aliases[1]:
                    left, right = ((one.pop(), side) for one, side in zip(aliases, sides, strict=True))
                    links.append((left, right))
        return links

    def _equal(self, alias: str, expr: Expr, mask: Mask, other: str, other_expr: Expr) -> Mask | None:
        """Return the rows of the other input whose value occurs in some row of the mask.

        NULL equals NULL here, and stands for padded rows.

        Returns:
            A mask; None if it cannot be computed.
        """
        try:
            own, others = self._values(alias, expr), self._values(other, other_expr)
        except EngineError:
            return None
        if own.type != others.type:
            return None
        both = one_array(pa.chunked_array([own, others]))
        numbers = group_numbers(batch_of(pa.table({"key": both})), ["key"])
        chosen = np.append(numbers[: len(mask)][mask], numbers[len(mask)])
        equal: Mask = np.isin(numbers[len(mask) + 1 : -1], chosen)
        return equal

    def _values(self, alias: str, expr: Expr) -> pa.Array:
        """Compute an expression for all rows of an input, and behind them for NULLs."""
        side = next(side for side in self.query.sides if side.name == alias)
        names, tables = mentioned_columns([expr], alias), []
        for own in self.inputs[alias]:
            branch = side.input.branches[own.number]
            assert isinstance(branch, Branch)
            tables.append(columns_of(side.input, branch, names, own.of.rows, self.zone))
        rows = one_table([*tables, self.nulls(side, names)])
        return value_of(expr, JoinInputs((side.input,), time_zone=self.zone), rows)


def goes_by_clock(sources: Iterable[Source]) -> bool:
    """Return True if the contents of some of the sources depend on the clock.

    Tables with keys with a sequence do, because deletes are remembered for a limited time.
    """
    keys = [source.primary_key for source in sources]
    return any(key is not None and key.sequence is not None for key in keys)


def joins_of(relation: Relation) -> list[Join]:
    """Return the joins of a relation, each after the joins that feed it."""
    if isinstance(relation, Input):
        return []
    return [*joins_of(relation.left), *joins_of(relation.right), relation]


def _inputs_of(
    query: QueryPlan, sources: Mapping[str, SourceRows], history: TickHistory
) -> dict[str, list[InputRows]]:
    """Judge the rows of all inputs of a query that are of sources, by alias."""
    marks, late_after, never = history.marks_of(query), history.late_after(query), len(history) + 1

    def more(of: Mapping[str, Times], last: int | None) -> dict[str, Times]:
        """Add a slot for rows that no tick has read; in it no row is late and none is released."""
        return {key: np.append(own, own[-1] if last is None else np.int64(last)) for key, own in of.items()}

    marks = TickWatermarks(more(marks.late_below, MIN_TIME), more(marks.limits, None), {})
    clocks = np.array([clock or 0 for clock in (*history.clocks(), 0)], dtype=np.int64)
    arrived = {
        name: ArrivedRows(own.reread.source, own.rows, own.slot, np.zeros(len(own.slot), dtype=np.int64))
        for name, own in sources.items()
    }
    sample = Sample(arrived, clocks, by_arrival=True, in_time=True)
    inputs: dict[str, list[InputRows]] = {}
    branches = [(side, *own) for side in query.sides for own in side.ingested]
    for side, number, branch in branches:
        own = branch_rows(query, side, number, branch, sample)
        kept, of = count_ingested(own, marks), sources[own.source]
        released = np.where(kept.released >= len(history), never, kept.released)
        if history.ended is not None:
            is_before = of.slot[kept.rows] <= history.ended
            released = np.where(is_before, np.minimum(released, history.ended), never)
        kept = replace(kept, released=released)
        inputs.setdefault(own.side.name, []).append(
            InputRows(own.side, of, own, kept, marks, late_after, never)
        )
    return inputs


def _unseen(reread: Reread, history: TickHistory, left_out: Sequence[LeftOut]) -> list[int | None]:
    """Return the slots of ticks that may have read rows of a source that were not read again.

    Returns:
        A slot per such group of rows; None if any tick may have read them.
    """
    places = [
        None if own.position is None else history.slot_of(reread.source.name, own.part, own.position)
        for own in reread.missing
        if own.position != UNREAD
    ]
    places += [(own.slot, own.exact) for own in left_out if own.is_unclear and own.slot is not None]
    untold = [None for own in left_out if own.is_unclear and own.slot is None]
    return [*(None if own is None or not own[1] else own[0] for own in places), *untold]


def _left_out(query: QueryPlan, reread: Reread, history: TickHistory) -> list[LeftOut]:
    """Return the records of a source that were left out."""
    records: list[LeftOut] = []
    for own in reread.portions:
        is_read = own.position != UNREAD
        slot, exact = None, False
        if is_read and own.left_out:
            slot, exact = history.slot_of(reread.source.name, own.part, own.position) or (None, False)
        records += [LeftOut(record, own.place, slot, exact, is_read) for record in own.left_out]
    count, whole = Counter(own.slot for own in records), _whole(reread, history)
    broken = _counted_broken(query, reread.source, history)
    return [
        replace(own, certain=own.exact and own.slot in whole and broken[own.slot] == count[own.slot])
        for own in records
    ]


def _whole(reread: Reread, history: TickHistory) -> set[int]:
    """Return the slots of ticks from whose rows of a source none is missing."""
    name, slots = reread.source.name, set(range(len(history)))
    for own in reread.missing:
        if own.position == UNREAD:
            continue
        if own.position is None:
            return set()
        first = history.slot_of(name, own.part, own.position)
        if first is None and history.is_beyond(name, own.part, own.position):
            continue
        if first is None:
            return set()
        least, is_exact = first
        if not is_exact and least and not history.is_after_slot_before(name, own.part, own.position, least):
            return set()
        last = None if own.until is None else history.slot_of(name, own.part, own.until - 1)
        most = least if own.until is None else len(history) - 1 if last is None else last[0]
        slots -= set(range(least, most + 1))
    return slots


def _certainty(reread: Reread, history: TickHistory, left_out: Sequence[LeftOut]) -> Certainty:
    unclear = [own for own in left_out if own.is_unclear]
    whole = _whole(reread, history) - {own.slot for own in unclear}
    reasons = {own.why for own in reread.missing}
    return Certainty(
        frozenset(whole if all(own.exact for own in unclear) else ()),
        "unordered" not in reasons,
        reasons - {"before"} == {"compacted"} and not left_out,
    )


def _counted_broken(query: QueryPlan, source: Source, history: TickHistory) -> list[int]:
    """Return per slot how many broken records the input counted that is of that source alone."""
    for side in query.sides:
        if [branch.source.name for _, branch in side.sources] == [source.name]:
            alias = side.name if source.primary_key is None else f"{side.name}.{source.name}"
            levels = history.levels(subject_of("input", query.name, alias), "broken")
            return [after - before for before, after in pairwise([0, *(level or 0 for level in levels)])]
    return [-1] * len(history)
