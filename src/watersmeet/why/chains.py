"""The fates of rows of a chain of joins: with which rows each went through the joins, and where it stopped.

What comes out of a chain, and when, is known where all is there to run it again (`why.replayed`). Where it is
not, one thing is known still: rows of all inputs that meet each other come out, for whatever else there was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import EngineError, PlanError, SeveralErrors, counted
from watersmeet.plan.join_inputs import JoinInputs, refs
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import Branch, Input, Job, Join, JoinKind, Relation
from watersmeet.why.answer import Met, Near, Tick, What, line_of
from watersmeet.why.columns import beside, columns_of, mentioned
from watersmeet.why.conditions import Conditions
from watersmeet.why.judged import MAY_MATCH, UNMATCHABLE
from watersmeet.why.near import WhyNot, nearest
from watersmeet.why.replayed import (
    NOBODY,
    Joined,
    Replay,
    TickWise,
    aliases_of,
    joins_of,
    shape_of,
)
from watersmeet.why.reread import Numbers
from watersmeet.why.rows import QueryRows, Spot

SHOWN = 5
"""So many of the rows that it was joined to are listed."""

Told = tuple[What, str, dict[str, Any]]
Tuple = Mapping[str, int]
"""Per alias the number of a row, or `NOBODY`."""


class Chain:
    """Tells fates of rows of one input of a chain. ``numbers``: of those that are asked for."""

    def __init__(self, rows: QueryRows, job: Job, alias: str, numbers: Numbers) -> None:
        self.rows, self._job, self._alias, self._numbers = rows, job, alias, numbers
        self._relation = rows.insert.query.relation
        self._sides = {side.name: side for side in rows.query.sides}
        self.hides = alias not in aliases_of(self._relation)
        """Whether nothing that comes out can show the input's rows: of the right side of a SEMI or ANTI
        join."""

    def told(self, spot: Spot, number: int, why_not: WhyNot) -> Told:
        """Of a row that ingest took."""
        tick = f"on time {self.rows.tick(spot)}"
        if self.rows.shed:
            return "not_known", f"{tick}; rows of the query were shed, and maybe this one", {}
        if self.hides:
            return self._hidden(tick, number)
        if self._lacks is None:
            return self._exact(spot, number, why_not)
        full = [own for own in self._at_once.of(self._alias, number) if NOBODY not in own[1].values()]
        if full and not self._hides_some:
            return self._out([(None, own) for _, own in full])
        words = "no row of the output of which it is certain has it"
        return "not_known", f"{tick}; {words}, and what else became of it is not: {self._lacks}", {}

    # what is known

    @cached_property
    def _lacks(self) -> str | None:
        """What is not there that would have to be for the chain to be run again as it ran."""
        rows = self.rows
        lacking = rows.lacks(self._sides)
        if lacking is not None:
            return lacking
        try:
            (planned,) = self._replay.plan().queries
        except (PlanError, SeveralErrors):
            return "its joins cannot be run by themselves"
        if shape_of(planned) != shape_of(rows.query):
            return "its joins are run in another way by themselves"
        return None

    @cached_property
    def _replay(self) -> Replay:
        """Of all rows: when pads leave goes by what else is retained."""
        masks = {
            alias: [np.isin(own.came_to, (MAY_MATCH, UNMATCHABLE)) & ~own.unsure for own in branches]
            for alias, branches in self.rows.inputs.items()
        }
        return Replay(self.rows.insert, self._job, self.rows.inputs, masks)

    @cached_property
    def _ticks(self) -> TickWise:
        return TickWise.of(self.rows.query, self.rows.history)

    @cached_property
    def _out_of_ticks(self) -> tuple[Joined, dict[int, int]]:
        return self._replay.in_ticks(self._ticks, self._alias, self._numbers)

    @cached_property
    def _stages(self) -> list[tuple[Join, Joined]]:
        return self._replay.stages(self._ticks)

    @cached_property
    def _at_once(self) -> Joined:
        return self._replay.at_once()

    @property
    def _hides_some(self) -> bool:
        """An ANTI join lets rows go out by what is not there, a SEMI join by when."""
        return any(join.kind.hides_right for join in joins_of(self._relation))

    # what is told

    def _exact(self, spot: Spot, number: int, why_not: WhyNot) -> Told:
        out, gone = self._out_of_ticks
        left = None if number not in gone else Tick(self.rows.history.ticks[gone[number]])
        tuples = sorted(out.of(self._alias, number), key=lambda own: own[0])
        if tuples:
            what, text, more = self._out(tuples)
            if left is None:
                text += "; some of it is kept still"
            return what, text, more | {"left": left}
        reached = self._reached(number)
        text, more = self._stopped(spot, number, reached, why_not, left)
        if left is None:
            return "retained", f"{text}; kept so far, for rows to come may still meet it", more
        return "released_unmatched", text, more | {"left": left}

    @cached_property
    def _hiding(self) -> Join:
        """The join behind which nothing shows the input's rows."""
        return next(
            join
            for join in joins_of(self._relation)
            if self._alias in aliases_of(join.right) and self._alias not in aliases_of(join)
        )

    @cached_property
    def _meetings(self) -> Joined | None:
        """Of the join that hides the rows; None: these are not known."""
        if self._lacks is not None:
            return None
        try:
            return self._replay.meetings(self._ticks, self._hiding)
        except (EngineError, PlanError, SeveralErrors):
            return None

    def _hidden(self, tick: str, number: int) -> Told:
        """Of a row that a SEMI or ANTI join only looks at: the rows for which it was the first, or one of the
        first, that they met."""
        if self._meetings is None:
            return "on_time", f"{tick}; which rows a SEMI or ANTI join released by it is not known", {}
        left = aliases_of(self._hiding.left)
        names = " and ".join(left)
        firsts: dict[tuple[int, ...], int] = {}
        rows = [self._meetings.rows[alias].tolist() for alias in left]
        for slot, *who in zip(self._meetings.slots.tolist(), *rows, strict=True):
            firsts[tuple(who)] = min(slot, firsts.get(tuple(who), slot))
        met = sorted(self._meetings.of(self._alias, number), key=lambda own: own[0])
        if not met:
            return "on_time", f"{tick}; it has met no row of {names} so far", {}
        own = [
            (slot, {alias: row for alias, row in by_alias.items() if alias in left})
            for slot, by_alias in met
            if firsts[tuple(by_alias[alias] for alias in left)] == slot
        ]
        if not own:
            return "on_time", f"{tick}; each row of {names} that it could meet had met one before", {}
        told = [self._met(by_alias, slot) for slot, by_alias in own[:SHOWN]]
        words = _words(told[0]).removeprefix("joined with ")
        goes = "goes on" if self._hiding.kind is JoinKind.SEMI else "does not go on"
        text = f"met {words}{_and_others(own)}, so that what it met {goes}"
        return "met", text, {"met": told, "more_met": len(own) - len(told)}

    def _out(self, tuples: Sequence[tuple[int | None, Tuple]]) -> Told:
        """Of a row with which rows of the output were made. A slot of None: that in which the last of the
        joined rows came."""
        met = [self._met(own, slot) for slot, own in tuples[:SHOWN]]
        more = {"met": met, "more_met": len(tuples) - len(met)}
        first, rest = met[0], _and_others(tuples)
        if any(row is not None for own in met for row in own.row.values()):
            return "joined", f"{_words(first)}{rest}", more
        if self._hides_some:
            return "put_out", f"emitted {first.tick}{rest}", more | {"met": [], "more_met": 0}
        text = f"emitted unmatched, with NULLs, {first.tick}"
        return "padded", text, {"met": [], "more_met": 0}

    def _met(self, own: Tuple, slot: int | None) -> Met:
        spots = {alias: self._spot(alias, number) for alias, number in own.items()}
        there = [spot for spot in spots.values() if spot is not None]
        if slot is None:
            slot = max(spot.slot for spot in there)
            exact = all(bool(spot.branch.of.exact[spot.row]) for spot in there if spot.slot == slot)
        else:
            exact = True
        others = {alias: spot for alias, spot in spots.items() if alias != self._alias}
        return Met(
            {alias: None if spot is None else spot.values for alias, spot in others.items()},
            "; ".join(spot.place for spot in others.values() if spot is not None),
            Tick(self.rows.history.ticks[slot], exact),
        )

    def _spot(self, alias: str, number: int) -> Spot | None:
        return None if number == NOBODY else self.rows.spot(alias, number)

    def _reached(self, number: int) -> tuple[Join, list[tuple[int, dict[str, int]]]] | None:
        """The uppermost join that rows with it left, and these; None: none did, as far as can be told."""
        for join, joined in reversed(self._stages):
            tuples = sorted(joined.of(self._alias, number), key=lambda own: own[0])
            if tuples:
                return join, tuples
        return None

    def _stopped(
        self,
        spot: Spot,
        number: int,
        reached: tuple[Join, list[tuple[int, dict[str, int]]]] | None,
        why_not: WhyNot,
        left: Tick | None,
    ) -> tuple[str, dict[str, Any]]:
        """Where it stopped on its way, in words, and what it was joined with by then."""
        gone = "" if left is None else f"; released {left}"
        at, own, words = self._leaf, {self._alias: number}, ""
        more: dict[str, Any] = {}
        if reached is not None:
            at, tuples = reached
            own = tuples[0][1]
            met = [self._met(one, slot) for slot, one in tuples[:SHOWN]]
            more = {"reached": met, "more_met": len(tuples) - len(met)}
            words = f"{_words(met[0])}{_and_others(tuples)}"
        where = self._fails_where(own) if at is self._relation else None
        if where is not None:
            return f"{words}; left out by {where}{gone}", more
        above = self._above(at)
        if above is None or above.where is not None or not self._is_told(above):
            return f"{words}; no row of the output has it{gone}".removeprefix("; "), more
        other = above.right if above.left is at else above.left
        names = " and ".join(aliases_of(other))
        if above.kind is JoinKind.ANTI and other is above.right:
            did = "has not let it through so far" if left is None else "did not let it through: it met one"
            return f"{words}; an ANTI join with {names} {did}{gone}".removeprefix("; "), more
        text = f"{words}; that met no row of {names}" if words else f"it met no row of {names}"
        if left is not None:
            gone += ": no later row can match it"
        return f"{text}{gone}", more | {"near": self._near(above, other, own, why_not)}

    @property
    def _leaf(self) -> Relation:
        return next(own for own in self.rows.insert.query.inputs if own.alias == self._alias)

    def _above(self, relation: Relation) -> Join | None:
        return next(
            (join for join in joins_of(self._relation) if join.left is relation or join.right is relation),
            None,
        )

    def _is_told(self, join: Join) -> bool:
        """Whether what left the join is known."""
        return any(own is join for own, _ in self._stages)

    def _fails_where(self, own: Tuple) -> str | None:
        """The conditions of WHERE that a joined row does not meet."""
        where = self.rows.insert.query.where
        if where is None:
            return None
        sides = [self._sides[alias] for alias in own]
        inputs = JoinInputs(tuple(side.input for side in sides), time_zone=self.rows.zone)
        conditions = Conditions.of(inputs, [where])
        exprs = [conjunct.expr for conjunct in conditions.conjuncts]
        table = self._columns(own, exprs)
        failing = conditions.failing(table)
        return "; ".join(conditions.words(n, table) for n, mask in enumerate(failing) if mask[0]) or None

    def _columns(self, own: Tuple, exprs: Sequence[Any]) -> pa.Table:
        """What expressions mention, of the one joined row."""
        tables = [self._of_input(self._sides[a], number, mentioned(exprs, a)) for a, number in own.items()]
        table = tables[0]
        for more in tables[1:]:
            table = beside(table, more)
        return table

    def _of_input(self, side: SidePlan, number: int, names: Sequence[str]) -> pa.Table:
        spot = self._spot(side.name, number)
        if spot is not None:
            return self.rows.columns(spot, names)
        branch = side.input.branches[0]
        assert isinstance(branch, Branch)
        none = self.rows.inputs[side.name][0].of.rows.slice(0, 0)
        empty = columns_of(side.input, branch, names, none, self.rows.zone)
        return pa.table([pa.nulls(1, field.type) for field in empty.schema], names=empty.column_names)

    def _near(self, above: Join, other: Relation, own: Tuple, why_not: WhyNot) -> list[Near]:
        if not isinstance(other, Input):
            return []
        names = {*own, other.alias}
        conditions = [above.on]
        if all(join.kind is JoinKind.INNER for join in joins_of(self._relation)):
            where = Conditions.of(JoinInputs(()), [self.rows.insert.query.where]).conjuncts
            conditions += [c.expr for c in where if {alias for alias, _ in refs(c.expr)} <= names]
        spot = self._spot(self._alias, own[self._alias])
        assert spot is not None
        inputs = tuple(self._sides[alias].input for alias in own)
        try:
            return nearest(
                self.rows,
                self._sides[other.alias],
                spot,
                why_not,
                conditions,
                inputs,
                lambda exprs: self._columns(own, exprs),
            )
        except EngineError:  # what is near is said where it can be
            return []


def _and_others(tuples: Sequence[object]) -> str:
    more = len(tuples) - 1
    return f" and {counted(more, 'other joined row')}" if more else ""


def _words(met: Met) -> str:
    there = [f"{alias} {line_of(row)}" for alias, row in met.row.items() if row is not None]
    missing = [alias for alias, row in met.row.items() if row is None]
    nulls = f"with NULLs for {' and '.join(missing)}"
    if not there:
        return f"went on {nulls} {met.tick}" if missing else f"went on {met.tick}"
    text = f"joined with {' and '.join(there)} {met.tick}"
    return f"{text}, {nulls}" if missing else text
