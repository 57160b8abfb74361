"""A query, the rows of its inputs that were read again, and which of its conditions are on one row alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from watersmeet.engine.local.given import zoned
from watersmeet.history.points import subject_of
from watersmeet.names import DIFF, PARTITION
from watersmeet.plan.join_inputs import JoinInputs, refs
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.spec.model import Branch, Expr, Insert
from watersmeet.types.json_values import rows_of
from watersmeet.why.answer import Tick
from watersmeet.why.columns import columns_of
from watersmeet.why.conditions import Conditions
from watersmeet.why.judged import InputRows
from watersmeet.why.recorded import Recorded, joined_of
from watersmeet.why.replayed import joins_of


@dataclass(frozen=True)
class Spot:
    """A row: of which branch of an input, and which of its rows."""

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
    def released(self) -> int:
        return int(self.branch.released[self.row])

    @property
    def place(self) -> str:
        return self.branch.of.place(self.row)

    @property
    def values(self) -> dict[str, Any]:
        """As its source has it, as JSON has values: those of TIMESTAMP in UTC, with a Z."""
        rows = self.branch.of.rows.slice(self.row, 1).drop_columns([PARTITION, DIFF])
        (row,) = rows_of(zoned(rows, self.branch.of.reread.source.columns))
        return dict(zip(rows.column_names, row, strict=True))


@dataclass(frozen=True)
class Certainty:
    """Of the rows of a source. ``whole``: the slots of ticks of which no record of it is missing, nor was
    left out here; ``is_ordered``: which of the records of a key counted last is known; ``is_compacted``: all
    that is missing was compacted, by the keys of the table, and no record was left out."""

    whole: frozenset[int]
    is_ordered: bool
    is_compacted: bool


@dataclass(frozen=True)
class QueryRows:
    """A query, and all rows of its inputs that were read again. ``unseen``: per alias the slots of
    the ticks that read rows which could not be; None: it may have been any; ``shed``: whether rows of the
    query were shed; ``certainty``: per source."""

    query: QueryPlan
    insert: Insert
    history: Recorded
    inputs: Mapping[str, Sequence[InputRows]]
    unseen: Mapping[str, Sequence[int | None]]
    shed: bool
    certainty: Mapping[str, Certainty]

    def spot(self, alias: str, number: int) -> Spot:
        """A row by its number in an input, over all branches."""
        for branch in self.inputs[alias]:
            count = len(branch.came_to)
            if number < count:
                return Spot(branch, number)
            number -= count
        raise AssertionError("the row number is larger than the number of rows")

    def tick(self, spot: Spot) -> Tick | None:
        """That read the row."""
        if spot.slot >= len(self.history):
            return None
        return Tick(self.history.ticks[spot.slot], bool(spot.branch.of.exact[spot.row]))

    @property
    def join(self) -> JoinPlan | None:
        """The join of which the fates are told; None: it is a query of which they are not."""
        join = joined_of(self.query)
        return join if len(self.inputs) == 2 else None

    @property
    def zone(self) -> str:
        return self.query.options.time_zone

    @cached_property
    def own_conditions(self) -> list[Expr]:
        """Conditions that a row must meet by itself, wherever they stand, as the query has them."""
        conditions = [self.insert.query.where]
        for join in joins_of(self.insert.query.relation):
            conditions += [join.on, join.where]
        every = [own.expr for own in Conditions.of(self._both, conditions).conjuncts]
        return [expr for expr in every if len({alias for alias, _ in refs(expr)}) == 1]

    @property
    def _both(self) -> JoinInputs:
        return JoinInputs(tuple(side.input for side in self.query.sides), time_zone=self.zone)

    def branch(self, spot: Spot) -> Branch:
        """The branch that a row came by, as the query has it."""
        branch = spot.branch.side.input.branches[spot.branch.number]
        assert isinstance(branch, Branch)
        return branch

    def columns(self, spot: Spot, names: Sequence[str]) -> pa.Table:
        """Columns of a row as its input has them."""
        rows = spot.branch.of.rows.slice(spot.row, 1)
        return columns_of(spot.branch.side.input, self.branch(spot), names, rows, self.zone)

    def lacks(self, aliases: Iterable[str]) -> str | None:
        """What is not there that would have to be for ticks to be run again, with the rows of these inputs,
        as they ran."""
        history = self.history
        if any(history.is_behind_gap(slot) for slot in range(len(history))):
            return "the history does not have each tick"
        named = list(aliases)
        if any(self.unseen[alias] for alias in named):
            return "not all rows of its inputs can be read again"
        for own in (own for alias in named for own in self.inputs.get(alias, ())):
            if (own.unsure | (own.of.read & ~own.of.exact & (own.of.slot < len(history)))).any():
                return "of some rows it is not known when they were read"
        for alias in named:
            if any(history.levels(subject_of("input", self.query.name, alias), "unknown")):
                return "the query was another one when rows came"
        return None

    def were_there(self, one: Spot, other: Spot) -> bool | None:
        """Whether the earlier of two rows was kept when the later one came; None: that is not known. Rows
        that meet a condition always were, but where rows are released although they may still meet it."""
        if self.join is None or not self.join.hides_released:
            return True
        early, late = sorted((one, other), key=lambda own: own.slot)
        if all(bool(own.branch.of.exact[own.row]) for own in (early, late)):
            return early.released >= late.slot
        return None
