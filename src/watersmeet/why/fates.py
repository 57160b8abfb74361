"""The fate of each row that is asked for, from what was judged and which rows met."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from watersmeet.engine.driver.late import lateness_of
from watersmeet.errors import EngineError, counted
from watersmeet.event_time import NEVER, Watermark, saturate, shown_time
from watersmeet.plan.evaluated import shown
from watersmeet.plan.explain.durations import distance
from watersmeet.plan.join_inputs import JoinInputs, refs, unit_of_type
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan, MatchPlan
from watersmeet.plan.model.sides import SidePlan, joined_name
from watersmeet.spec.model import Branch, Input, JoinKind
from watersmeet.types.sql_type import SqlType
from watersmeet.whatif.pairs import Pairs
from watersmeet.why.account import left_as
from watersmeet.why.answer import SHOWN, Fate, Met, Tick, Told, What, line_of
from watersmeet.why.chains import Chain
from watersmeet.why.changed.changing import Changing
from watersmeet.why.columns import beside, columns_of, inputs_of, mentioned
from watersmeet.why.conditions import Conditions
from watersmeet.why.inputs import key_plans_of
from watersmeet.why.judged import (
    AHEAD,
    BENEATH,
    FILTERED,
    LATE,
    MAY_MATCH,
    NOT_YET,
    NULL_TIME,
    UNMATCHABLE,
)
from watersmeet.why.near import nearest_to
from watersmeet.why.rows import QueryRows, Spot


class Fates:
    """Tells fates of rows of one input; ``pairs``: of all that met, by their numbers (left, right), of a join
    of two inputs; ``chain``: of a chain of joins; ``changing``: where rows go, too."""

    def __init__(
        self,
        rows: QueryRows,
        alias: str,
        pairs: Pairs | None,
        chain: Chain | None = None,
        changing: Changing | None = None,
    ) -> None:
        self.rows, self.alias, self.pairs, self.chain = rows, alias, pairs, chain
        self.changing = changing
        self.side = next(side for side in rows.query.sides if side.name == alias)
        join = rows.join
        self.is_left = join is not None and join.left.name == alias
        self.other = None
        if join is not None:
            self.other = join.right if self.is_left else join.left

    def fate(self, number: int) -> Fate:
        spot = self.rows.spot(self.alias, number)
        what, text, more = self._told(spot, number)
        return Fate(
            spot.values,
            spot.branch.own.source,
            spot.place,
            what,
            text,
            self.rows.tick(spot),
            **more,
        )

    def _told(self, spot: Spot, number: int) -> Told:
        came = spot.came_to
        if came == NOT_YET:
            if spot.branch.of.read[spot.row]:
                last = self.rows.history.ticks[-1]
                return (
                    "not_known",
                    f"the history, up to tick {last}, does not tell which tick has read it",
                    {},
                )
            return "not_read", "not read yet", {}
        if spot.unsure:
            return "not_known", self._unsure(spot), {}
        if self.changing is not None and self.changing.takes(came):
            return self.changing.told(
                spot, number, lambda: self._failed(spot, beneath=came == BENEATH), self._why_not
            )
        if came == MAY_MATCH:
            return self._of_candidate(spot, number)
        simple: dict[int, tuple[What, str]] = {
            BENEATH: ("beneath", "not part of the stream, because it does not pass"),
            FILTERED: ("filtered", "filtered by"),
        }
        if came in simple:
            what, words = simple[came]
            return what, f"{words} {self._failed(spot, beneath=came == BENEATH)}", {}
        if came == AHEAD:
            return "ahead", "further ahead of the tick's clock than max_ahead, and set aside", {}
        if came == LATE:
            return "late", self._late(spot), {}
        if came == NULL_TIME:
            missing = [c for c, p in spot.branch.own.present.items() if p is not None and not p[spot.row]]
            return "null_time", f"without an event time: {' and '.join(missing)} is NULL", {}
        assert came == UNMATCHABLE
        why = f"it can match nothing: {self._failed(spot, beneath=False)}"
        tick = self.rows.tick(spot)
        if self.side.padded and self.rows.join is None:  # its pad goes through further joins
            what, text, more = self._of_others(spot, number)
            return what, f"{text}; at its own join {why}", more
        if self.side.padded:
            text = f"{self._as_pad()} {tick}, at once, because {why}"
            return self._padded(spot, text, {"left": tick})
        return "unmatchable", f"dropped {tick}, at once, because {why}", {"left": tick}

    def _unsure(self, spot: Spot) -> str:
        tick = self.rows.tick(spot)
        if not self.side.event_times:
            return f"read {tick}; what became of it is not known, for the history does not have each tick"
        return f"read {tick}; whether it was late then is not known, for the history does not have each tick"

    # what ingest did

    def _late(self, spot: Spot) -> str:
        key, time, below = spot.branch.late_key(spot.row)
        integer = not unit_of_type(self._type(key)).is_time
        by = distance(below - time, not integer)
        lateness = lateness_of(self.rows.query, self.side)
        taken = f" less {distance(lateness, not integer)} of allowed lateness" if lateness else ""
        watermark = "the watermark"
        for join in self.rows.query.every(JoinPlan):
            if join.horizon is not None and key in join.horizon.keys:
                reach = distance(join.horizon.reach, not integer)
                watermark = f"the least watermark of {' and '.join(join.horizon.keys)} less {reach}"
        least = shown_time(below, integer)
        when = str(self.rows.tick(spot))
        if not spot.branch.of.exact[spot.row]:
            by, when = f"at least {by}", f"from tick {self.rows.history.ticks[spot.slot - 1] + 1} on"
        return (
            f"late by {by}: {key} is {shown_time(time, integer)}, and rows below {least} ({watermark}"
            f"{taken}) were late {when}"
        )

    def _type(self, key: str) -> SqlType:
        return next(
            column.type
            for side in self.rows.query.sides
            for column in side.input.columns
            if side.watermark_key(column.name) == key
        )

    def _failed(self, spot: Spot, *, beneath: bool) -> str:
        """Which of the conditions on a row alone is not TRUE."""
        given, branch = self.side.input, self.rows.branch(spot)
        one = spot.branch.of.rows.slice(spot.row, 1)
        condition = branch.beneath if beneath else branch.above
        texts = self._words(Conditions.of(inputs_of(branch.source, self.rows.zone), [condition]), one)
        if not beneath:
            own = [e for e in self.rows.own_conditions if {alias for alias, _ in refs(e)} == {self.alias}]
            table = columns_of(given, branch, mentioned(own, self.alias), one, self.rows.zone)
            texts += self._words(Conditions.of(JoinInputs((given,), time_zone=self.rows.zone), own), table)
            texts += [*self._null_keys(branch, one), *self._null_columns(branch, one)]
            if not all(join.matchable for join in self.rows.query.every(MatchPlan) if self._is_of(join)):
                texts.append("the condition of the join holds for no rows at all")
        return "; ".join(dict.fromkeys(texts)) or "a condition on it alone"

    def _is_of(self, join: MatchPlan) -> bool:
        return self.alias in (join.left.name, join.right.name)

    def _words(self, conditions: Conditions, row: pa.Table) -> list[str]:
        failing = conditions.failing(row)
        return [conditions.words(number, row) for number, mask in enumerate(failing) if mask[0]]

    def _null_keys(self, branch: Branch, row: pa.Table) -> list[str]:
        nulls = []
        for key, is_left in key_plans_of(self.rows.query, self.side):
            expr = key.left if is_left else key.right
            conditions = Conditions(self._without_alias, ())
            try:
                table = columns_of(
                    self._without_alias.input(""), branch, mentioned([expr], ""), row, self.rows.zone
                )
                if not key.null_safe and conditions.is_null(expr, table):
                    nulls.append(f"{shown(expr)} is NULL")
            except EngineError:
                continue
        return nulls

    def _null_columns(self, branch: Branch, row: pa.Table) -> list[str]:
        """Columns without which no row is met: those of bands, and of keys that are columns."""
        given = self.side.input
        names = [name for name in self.side.not_null if given.column(name) is not None]
        try:
            table = columns_of(given, branch, names, row, self.rows.zone)
        except EngineError:
            return []
        return [f"{name} is NULL" for name in names if table[joined_name(self.alias, name)].null_count]

    # what the join did

    def _of_others(self, spot: Spot, number: int) -> Told:
        """Of queries that are not one join of two inputs."""
        query, tick = self.rows.query, self.rows.tick(spot)
        if self.chain is not None:
            return self.chain.told(spot, number, self._why_not)
        root, is_alone = query.root, len(query.nodes) == 1 and query.where is None
        if is_alone and self.side.passes and not root.tables and not root.noun and not root.changes:
            return "put_out", f"on time {tick}, and emitted in it", {}
        reason = f"{not_told(query)}: plain joins are"
        return "on_time", f"on time {tick}; {reason}", {}

    def _of_candidate(self, spot: Spot, number: int) -> Told:
        tick = self.rows.tick(spot)
        if self.rows.join is None:
            return self._of_others(spot, number)
        if self.rows.shed:
            return "not_known", f"on time {tick}; rows of the query were shed, and maybe this one", {}
        sure, maybe = self._partners(spot, number)
        if sure:
            return self._joined(spot, sure)
        assert self.other is not None
        if maybe:
            other = maybe[0]
            words = f"on time {tick}; whether it met {self.other.name} {line_of(other.values)} is not known"
            return "not_known", f"{words}, for it is not when that one came", {}
        near = nearest_to(self.rows, self.other, spot, self._why_not)
        gone = self._gone(spot)
        if not self._sees_all(spot):
            left = left_as(self.rows, spot)
            words = f"none of the rows of {self.other.name} that can be read again met it"
            if left is None:
                return "not_known", f"on time {tick}; {words}, and not all can be", {"near": near}
            if left == "matched":
                words = f"joined with a row of {self.other.name} that cannot be read again"
                return "joined", f"{words}: no row that left {gone} was unmatched", {"left": gone}
        if gone is None:
            until = self._until(spot)
            return (
                "retained",
                f"retained since tick {tick and tick.number}, unmatched; {until}",
                {
                    "near": near,
                    "until": until,
                },
            )
        if self.side.padded:
            text = f"{self._as_pad()} {gone}, because it met no row: {self._why_gone(spot)}"
            return self._padded(spot, text, {"left": gone, "near": near})
        text = f"released {gone}, because it met no row: {self._why_gone(spot)}"
        return "released_unmatched", text, {"left": gone, "near": near}

    def _sees_all(self, spot: Spot) -> bool:
        """Whether all rows are at hand that can have met one: those that came after it had left cannot."""
        assert self.other is not None
        return all(slot is not None and slot > spot.released for slot in self.rows.unseen[self.other.name])

    def _as_pad(self) -> str:
        join = self.rows.join
        anti = join is not None and join.kind is JoinKind.ANTI
        return "emitted" if anti else "emitted unmatched, with NULLs,"

    def _partners(self, spot: Spot, number: int) -> tuple[list[Spot], list[Spot]]:
        """The rows that it met, by when it did, and those that it met if they were on time."""
        assert self.pairs is not None
        assert self.other is not None
        own, others = self.pairs.left, self.pairs.right
        if not self.is_left:
            own, others = others, own
        sure, maybe = [], []
        for other in others[own == number].tolist():
            partner = self.rows.spot(self.other.name, other)
            were_there = self.rows.were_there(spot, partner)
            if partner.unsure or (were_there is None and partner.came_to == MAY_MATCH):
                maybe.append(partner)
            elif partner.came_to == MAY_MATCH and were_there:
                sure.append(partner)
        join = self.rows.join
        if join is not None and join.kind is JoinKind.SEMI:
            sure = self._first_met(spot, sure)
        return sorted(sure, key=lambda partner: partner.slot), maybe

    def _first_met(self, spot: Spot, partners: list[Spot]) -> list[Spot]:
        """Of a SEMI join: a left row meets those that are there in the tick of its first match, and is gone
        then."""
        if self.is_left:
            first = min((max(spot.slot, own.slot) for own in partners), default=0)
            return [own for own in partners if max(spot.slot, own.slot) == first]
        assert self.pairs is not None
        assert self.other is not None
        left = Fates(self.rows, self.other.name, self.pairs)
        met = []
        for own in partners:
            number = left.number_of(own)
            firsts = left._partners(own, number)[0]
            if any(first.branch is spot.branch and first.row == spot.row for first in firsts):
                met.append(own)
        return met

    def number_of(self, spot: Spot) -> int:
        """A row's number in the input."""
        before = 0
        for branch in self.rows.inputs[self.alias]:
            if branch is spot.branch:
                break
            before += len(branch.came_to)
        return before + spot.row

    def _joined(self, spot: Spot, partners: list[Spot]) -> Told:
        join = self.rows.join
        assert join is not None
        assert self.other is not None
        met = [self._met(spot, partner) for partner in partners[:SHOWN]]
        more = {"met": met, "more_met": max(0, len(partners) - SHOWN)}
        first = met[0]
        who = f"{self.other.name} {line_of(first.row)}"
        if join.kind.hides_right and (join.kind is JoinKind.ANTI or not self.is_left):
            return "met", f"met {who} {first.tick}, so that {self._why_hidden()}", more
        if join.kind is JoinKind.SEMI:
            return "joined", f"emitted {first.tick}, when it met {who}", more
        left_out = [own for own in met if own.left_out is not None]
        text = f"joined with {who} {first.tick}"
        if len(partners) > 1:
            text += f" and {counted(len(partners) - 1, 'other row')}"
        if len(left_out) == len(met):
            text += f"; the joined row was left out by {first.left_out}"
        gone = self._gone(spot)
        if gone is None:
            until = self._until(spot)
            return "joined", f"{text}; {until}", more | {"until": until}
        return "joined", text, more | {"left": gone}

    def _why_hidden(self) -> str:
        if self.is_left:
            return "an ANTI join does not emit it"
        return (
            "that one is emitted"
            if self.rows.join and self.rows.join.kind is JoinKind.SEMI
            else ("that one is not emitted")
        )

    def _met(self, spot: Spot, partner: Spot) -> Met:
        later = max((spot, partner), key=lambda own: own.slot)
        exact = all(bool(own.branch.of.exact[own.row]) for own in (spot, partner) if own.slot == later.slot)
        tick = Tick(self.rows.history.ticks[later.slot], exact)
        return Met(partner.values, partner.place, tick, self._left_out(spot, partner))

    @cached_property
    def _without_alias(self) -> JoinInputs:
        """The rows that are asked for, as keys have their columns."""
        return JoinInputs((replace(self.side.input, alias=""),), time_zone=self.rows.zone)

    @cached_property
    def _of_result(self) -> JoinInputs:
        """What is put out, as WHERE has its columns."""
        inputs = (Input("", self.rows.query.root.columns, (), ()),)
        return JoinInputs(inputs, time_zone=self.rows.zone)

    def _left_out(self, spot: Spot, partner: Spot | None) -> str | None:
        """The condition of WHERE by which what was put out went no further; None: it went."""
        where = self.rows.query.where
        if where is None:
            return None
        assert self.other is not None
        tables = [self._all(self.side, spot), self._all(self.other, partner)]
        conditions = Conditions.of(self._of_result, [where])
        words = self._words(conditions, beside(*tables))
        return "; ".join(words) or None

    def _padded(self, spot: Spot, text: str, more: dict[str, Any]) -> Told:
        left_out = self._left_out(spot, None) if self.other is not None else None
        if left_out is not None:
            text += f"; the emitted row was left out by {left_out}"
        return "padded", text, more | {"left_out": left_out}

    def _all(self, side: SidePlan, spot: Spot | None) -> pa.Table:
        """What WHERE mentions of a side, of one row; NULLs where there is none."""
        where = self.rows.query.where
        assert where is not None
        of_where = {name for _, name in refs(where)}
        names = [c.name for c in side.input.columns if joined_name(side.name, c.name) in of_where]
        if spot is not None:
            return self.rows.columns(spot, names)
        branches = self.rows.inputs[side.name]
        empty = Spot(branches[0], 0)
        branch = side.input.branches[branches[0].number]
        assert isinstance(branch, Branch)
        none = columns_of(side.input, branch, names, empty.branch.of.rows.slice(0, 0), self.rows.zone)
        return pa.table([pa.nulls(1, field.type) for field in none.schema], names=none.column_names)

    # when it leaves

    def _gone(self, spot: Spot) -> Tick | None:
        history = self.rows.history
        if spot.released >= len(history):
            return None
        exact = not history.is_behind_gap(spot.released)
        if spot.released == spot.slot:
            exact = exact and bool(spot.branch.of.exact[spot.row])
        return Tick(history.ticks[spot.released], exact)

    def _why_gone(self, spot: Spot) -> str:
        if spot.released == self.rows.history.ended:
            return "the input ended"
        parts = self._bounds(spot, spot.released)
        passed = [(key, mark, past) for key, mark, past in parts if mark > past]
        if not passed:
            return "no row to come could meet it any more"
        key, mark, past = passed[0]
        integer = not unit_of_type(self._type(key)).is_time
        return f"the watermark of {key}, {shown_time(mark, integer)}, is above {shown_time(past, integer)}"

    def _until(self, spot: Spot) -> str:
        parts = self._bounds(spot, len(self.rows.history) - 1)
        texts = []
        for key, mark, past in parts:
            integer = not unit_of_type(self._type(key)).is_time
            texts.append(
                f"the watermark of {key} is above {shown_time(past, integer)} (it is {_mark(mark, integer)})"
            )
        return f"stays until {' or '.join(texts)}" if texts else "stays until the input ends"

    def _bounds(self, spot: Spot, slot: int) -> list[tuple[str, Watermark, int]]:
        """What lets go of a row: watermark keys, their watermarks after a tick, and what these have to be
        above."""
        join, query = self.rows.join, self.rows.query
        assert join is not None
        own = spot.branch.own
        passing = []
        for column in self.side.event_times:
            key, time = self.side.watermark_key(column), int(own.times[column][spot.row])
            if join.horizon is not None:
                bounds = [(by, join.horizon.reach) for by in join.horizon.keys]
            else:
                bounds = [(bound.by, bound.c) for bound in join.bounds if bound.evicted == key]
            for by, c in bounds:
                side = next(s for s in query.sides if by in map(s.watermark_key, s.event_times))
                mark = self.rows.history.mark(query.name, side.name, _column(side, by), "watermark")[slot]
                passing.append((by, mark, saturate(time + c + lateness_of(query, side))))
        return passing

    def _why_not(self, spot: Spot, near: Spot) -> list[str]:
        """What of the row itself kept it from meeting another."""
        other = Fates(self.rows, near.branch.side.name, self.pairs)
        if near.came_to == UNMATCHABLE and other.rows.join is None:
            return [f"it can match nothing: {other._failed(near, beneath=False)}"]
        if near.came_to != MAY_MATCH or near.unsure:
            return [other._told(near, 0)[1]]
        if self.rows.were_there(spot, near) is False:
            early = min((spot, near), key=lambda own: own.slot)
            teller = self if early is spot else other
            return [
                f"{early.branch.side.name} had been released {teller._gone(early)}, before the other came"
            ]
        return []


def _column(side: SidePlan, key: str) -> str:
    return next(column for column in side.event_times if side.watermark_key(column) == key)


def _mark(mark: Watermark, integer: bool) -> str:
    return "not begun" if mark == NEVER else shown_time(mark, integer)


def not_told(query: QueryPlan) -> str:
    """Of a query other than plain joins."""
    noun = query.root.noun or "the query"
    kind = f"a query of {len(query.nodes)} nodes" if len(query.nodes) > 1 else f"its {noun}"
    return f"what becomes of it in {kind} is not told"
