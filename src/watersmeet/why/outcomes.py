"""Determine the fate of each requested row.

Ingest outcomes come from the engine's rules. In a join of two inputs, times and watermarks tell which rows a
row matched, and when it left; in other queries, a replay of the ticks does (`why.results`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import EngineError, format_count
from watersmeet.event_time import NEVER, Mask, Watermark, saturate, shown_time
from watersmeet.history.points import subject_of
from watersmeet.plan.explain.wording import distance
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan, MatchPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.query_inputs import JoinInputs, refs, unit_of_type, unquoted_text
from watersmeet.runtime.coordinator.input_watermarks import find_lateness
from watersmeet.spec.model import Branch, Job, Join, JoinKind
from watersmeet.why.answer import SHOWN, Answer, Fate, Met, Tick, Told, What, line_of
from watersmeet.why.expressions import Conditions, columns_of, inputs_of, mentioned_columns, value_of
from watersmeet.why.near_misses import failing_where, near_misses
from watersmeet.why.question import QuestionPlan, canonical, key_plans_of
from watersmeet.why.replay import NOBODY, Joined, Replay, aliases_of, is_chain
from watersmeet.why.results import Results
from watersmeet.why.rows import (
    AHEAD,
    BENEATH,
    FILTERED,
    LATE,
    MAY_MATCH,
    NOT_YET,
    NULL_TIME,
    UNMATCHABLE,
    QueryRows,
    Reread,
    Spot,
)
from watersmeet.why.tables import changes, is_of_records
from watersmeet.why.ticks import TickHistory


class Fates:
    """Determine the fates of rows of one input.

    Args:
        joined: matched rows by number, for a join of two inputs.
        results: results of a chain of joins, and of queries that report where their rows end up.
    """

    def __init__(
        self, rows: QueryRows, alias: str, joined: Joined | None = None, results: Results | None = None
    ) -> None:
        self.rows, self.alias, self.joined, self.results = rows, alias, joined, results
        self.side = next(side for side in rows.query.sides if side.name == alias)
        join = rows.join
        self.is_left = join is not None and join.left.name == alias
        self.other = None if join is None else join.right.name if self.is_left else join.left.name
        self.kind = None if join is None else join.kind

    def fate(self, number: int) -> Fate:
        spot = self.rows.spot(self.alias, number)
        what, text, more = self._outcome(spot, number)
        source, tick = spot.branch.own.source, self.rows.tick(spot)
        return Fate(spot.values, source, spot.place, what, text, tick, **more)

    def _outcome(self, spot: Spot, number: int) -> Told:
        came, tick = spot.came_to, self.rows.tick(spot)
        if came == NOT_YET:
            if not spot.branch.of.read[spot.row]:
                return "not_read", "not read yet", {}
            last = self.rows.history.ticks[-1]
            return "not_known", f"the history, up to tick {last}, does not tell which tick has read it", {}
        if spot.unsure:
            what = "whether it was late then" if self.side.event_times else "what became of it"
            text = f"read {tick}; {what} is not known, for the history does not have each tick"
            return "not_known", text, {}
        if self.results is not None and self.results.takes(came):
            return self.results.outcome(spot, number, lambda: self._failed_conditions(spot), self._why_not)
        if came == MAY_MATCH:
            return self._of_candidate(spot, number)
        if came == BENEATH:
            return (
                "beneath",
                f"not part of the stream, because it does not pass {self._failed_conditions(spot)}",
                {},
            )
        if came == FILTERED:
            return "filtered", f"filtered by {self._failed_conditions(spot)}", {}
        if came == AHEAD:
            return "ahead", "further ahead of the tick's clock than max_ahead, and set aside", {}
        if came == LATE:
            return "late", self._late(spot), {}
        if came == NULL_TIME:
            missing = [c for c, p in spot.branch.own.present.items() if p is not None and not p[spot.row]]
            return "null_time", f"without an event time: {' and '.join(missing)} is NULL", {}
        assert came == UNMATCHABLE
        why = f"it can match nothing: {self._failed_conditions(spot)}"
        if self.side.padded and self.rows.join is None:  # its pad goes through further joins
            what, text, more = self._of_others(spot, number)
            return what, f"{text}; at its own join {why}", more
        if self.side.padded:
            return self._pad_outcome(number, f"{self._as_pad} {tick}, at once, because {why}", {"left": tick})
        return "unmatchable", f"dropped {tick}, at once, because {why}", {"left": tick}

    # what ingest did

    def _late(self, spot: Spot) -> str:
        key, time, below = spot.branch.late_key(spot.row)
        integer = self._is_integer(key)
        by = distance(below - time, not integer)
        lateness = find_lateness(self.rows.query, self.side)
        taken = f" less {distance(lateness, not integer)} of allowed lateness" if lateness else ""
        watermark, when = "the watermark", str(self.rows.tick(spot))
        for join in self.rows.query.every(JoinPlan):
            if join.horizon is not None and key in join.horizon.keys:
                reach = distance(join.horizon.reach, not integer)
                watermark = f"the least watermark of {' and '.join(join.horizon.keys)} less {reach}"
        if not spot.exact:
            by, when = f"at least {by}", f"from tick {self.rows.history.ticks[spot.slot - 1] + 1} on"
        return (
            f"late by {by}: {key} is {shown_time(time, integer)}, and rows below {shown_time(below, integer)}"
            f" ({watermark}{taken}) were late {when}"
        )

    def _is_integer(self, key: str) -> bool:
        """Return whether the times of a watermark key are numbers."""
        return not any(
            unit_of_type(column.type).is_time
            for side in self.rows.query.sides
            for column in side.input.columns
            if side.watermark_key(column.name) == key
        )

    def _failed_conditions(self, spot: Spot) -> str:
        """Say which of the conditions on a row alone is not TRUE."""
        given, branch, zone = self.side.input, self.rows.branch(spot), self.rows.zone
        one, is_beneath = spot.branch.of.rows.slice(spot.row, 1), spot.came_to == BENEATH
        condition = branch.beneath if is_beneath else branch.above
        texts = Conditions.of(inputs_of(branch.source, zone), [condition]).failing_words(one)
        if not is_beneath:
            own = [e for e in self.rows.own_conditions if {alias for alias, _ in refs(e)} == {self.alias}]
            table = columns_of(given, branch, mentioned_columns(own, self.alias), one, zone)
            texts += Conditions.of(JoinInputs((given,), time_zone=zone), own).failing_words(table)
            texts += self._nulls(branch, one)
            joins = self.rows.query.every(MatchPlan)
            if not all(own.matchable for own in joins if self.alias in (own.left.name, own.right.name)):
                texts.append("the condition of the join holds for no rows at all")
        return "; ".join(dict.fromkeys(texts)) or "a condition on it alone"

    def _nulls(self, branch: Branch, row: pa.Table) -> list[str]:
        """List the NULL keys and columns that prevent the row from matching."""
        bare = replace(self.side.input, alias="")  # as keys have their columns
        keys = [
            key.left if is_left else key.right
            for key, is_left in key_plans_of(self.rows.query, self.side)
            if not key.null_safe
        ]
        keys += [exp.column(name) for name in self.side.not_null if bare.column(name) is not None]
        texts = []
        for key in keys:
            with suppress(EngineError):
                table = columns_of(bare, branch, mentioned_columns([key], ""), row, self.rows.zone)
                if not value_of(key, JoinInputs((bare,), time_zone=self.rows.zone), table)[0].is_valid:
                    texts.append(f"{unquoted_text(key)} is NULL")
        return texts

    # what the join did

    def _of_others(self, spot: Spot, number: int) -> Told:
        """Tell of queries that are not one join of two inputs."""
        query, tick = self.rows.query, self.rows.tick(spot)
        if self.results is not None:
            return self.results.outcome(spot, number, lambda: self._failed_conditions(spot), self._why_not)
        root, is_alone = query.root, len(query.nodes) == 1 and query.where is None
        if is_alone and self.side.passes and not root.tables and not root.noun and not root.changes:
            return "put_out", f"on time {tick}, and emitted in it", {}
        return "on_time", f"on time {tick}; {words_of_other(query)}: plain joins are", {}

    def _of_candidate(self, spot: Spot, number: int) -> Told:
        tick, relation = self.rows.tick(spot), self.rows.insert.query.relation
        if self.rows.join is None:
            return self._of_others(spot, number)
        if self.rows.shed:
            return "not_known", f"on time {tick}; rows of the query were shed, and maybe this one", {}
        sure, maybe = self._partners(spot, number)
        if sure:
            return self._met_some(spot, number, sure)
        assert self.other is not None
        assert isinstance(relation, Join)
        if maybe:
            words = f"on time {tick}; whether it met {self.other} {line_of(maybe[0].values)} is not known"
            return "not_known", f"{words}, for it is not when that one came", {}
        more: dict[str, Any] = {
            "near": near_misses(self.rows, relation, self.other, {self.alias: number}, spot, self._why_not)
        }
        gone = self._release_tick(spot)
        if not all(slot is not None and slot > spot.released for slot in self.rows.unseen[self.other]):
            left = self._departure(spot)
            words = f"none of the rows of {self.other} that can be read again met it"
            if left is None:
                return "not_known", f"on time {tick}; {words}, and not all can be", more
            if left == "matched":
                words = f"joined with a row of {self.other} that cannot be read again"
                return "joined", f"{words}: no row that left {gone} was unmatched", {"left": gone}
        if gone is None:
            until = self._until(spot)
            text = f"retained since tick {tick and tick.number}, unmatched; {until}"
            return "retained", text, more | {"until": until}
        more["left"] = gone
        if self.side.padded:
            text = f"{self._as_pad} {gone}, because it met no row: {self._release_reason(spot)}"
            return self._pad_outcome(number, text, more)
        text = f"released {gone}, because it met no row: {self._release_reason(spot)}"
        return "released_unmatched", text, more

    @property
    def _as_pad(self) -> str:
        return "emitted" if self.kind is JoinKind.ANTI else "emitted unmatched, with NULLs,"

    def _pad_outcome(self, number: int, text: str, more: dict[str, Any]) -> Told:
        left_out = self._left_out(number, NOBODY)
        if left_out is not None:
            text += f"; the emitted row was left out by {left_out}"
        return "padded", text, more | {"left_out": left_out}

    def _left_out(self, number: int, other: int) -> str | None:
        """Return the WHERE conditions that filtered out an emitted row; None if it passed."""
        if self.rows.query.where is None or self.other is None:
            return None
        return failing_where(self.rows, {self.alias: number, self.other: other})

    def _departure(self, spot: Spot) -> Literal["matched", "unmatched"] | None:
        """Return how a row left the join, whatever it matched.

        Rows of an input that leave in a tick are counted as matched or as unmatched. If one of these counts
        did not grow between the last tick in which the row is known to be present and the first in which it
        had left, the row belongs to the other count.

        Returns:
            None if the row has not left, or if this is unknown.
        """
        slot, history = spot.released, self.rows.history
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI):  # a row may leave before its time there
            return None
        if slot >= len(history) or (slot == spot.slot and not spot.exact):  # it may have left long before
            return None
        subject = subject_of("input", self.rows.query.name, self.alias)

        def grew(*places: str) -> bool:
            levels = [[0, *(level or 0 for level in history.levels(subject, place))] for place in places]
            return any(own[slot + 1] != own[slot] for own in levels)

        if grew("unknown"):  # of rows of a query that was changed it is not known whether they had met one
            return None
        if not grew("matched"):
            return "unmatched"
        return None if grew("padded", "released_unmatched") else "matched"

    def _partners(self, spot: Spot, number: int) -> tuple[list[Spot], list[Spot]]:
        """Return the rows that it met, by when it did, and those that it met if they were on time."""
        assert self.joined is not None
        assert self.other is not None
        sure, maybe = [], []
        for _, own in self.joined.with_row(self.alias, number):
            partner = self.rows.spot(self.other, own[self.other])
            were_there = self.rows.were_there(spot, partner)
            if partner.unsure or (were_there is None and partner.came_to == MAY_MATCH):
                maybe.append(partner)
            elif partner.came_to == MAY_MATCH and were_there:
                sure.append(partner)
        if self.kind is JoinKind.SEMI:
            sure = self._first_met(spot, sure)
        return sorted(sure, key=lambda partner: partner.slot), maybe

    def _first_met(self, spot: Spot, partners: list[Spot]) -> list[Spot]:
        """Return the partners that a row has in a SEMI join.

        A left row matches the rows present in the tick of its first match, and is released then.
        """
        if self.is_left:
            first = min((max(spot.slot, own.slot) for own in partners), default=0)
            return [own for own in partners if max(spot.slot, own.slot) == first]
        assert self.other is not None
        left = Fates(self.rows, self.other, self.joined)
        met = ((own, left._partners(own, self.rows.number_of(own))[0]) for own in partners)
        return [own for own, of in met if any(o.branch is spot.branch and o.row == spot.row for o in of)]

    def _met_some(self, spot: Spot, number: int, partners: list[Spot]) -> Told:
        met = []
        for own in partners[:SHOWN]:
            later = max(spot.slot, own.slot)
            is_exact = all(one.exact for one in (spot, own) if one.slot == later)
            tick = Tick(self.rows.history.ticks[later], is_exact)
            left_out = self._left_out(number, self.rows.number_of(own))
            met.append(Met(own.values, own.place, tick, left_out))
        more = {"met": met, "more_met": max(0, len(partners) - SHOWN)}
        first, who = met[0], f"{self.other} {line_of(met[0].row)}"
        if self.kind is JoinKind.ANTI and self.is_left:
            return "met", f"met {who} {first.tick}, so that an ANTI join does not emit it", more
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI) and not self.is_left:
            is_ = "is" if self.kind is JoinKind.SEMI else "is not"
            return "met", f"met {who} {first.tick}, so that that one {is_} emitted", more
        if self.kind is JoinKind.SEMI:
            return "joined", f"emitted {first.tick}, when it met {who}", more
        text = f"joined with {who} {first.tick}"
        if len(partners) > 1:
            text += f" and {format_count(len(partners) - 1, 'other row')}"
        if all(own.left_out is not None for own in met):
            text += f"; the joined row was left out by {first.left_out}"
        gone = self._release_tick(spot)
        if gone is None:
            until = self._until(spot)
            return "joined", f"{text}; {until}", more | {"until": until}
        return "joined", text, more | {"left": gone}

    # when it leaves

    def _release_tick(self, spot: Spot) -> Tick | None:
        history = self.rows.history
        if spot.released >= len(history):
            return None
        is_exact = not history.follows_gap(spot.released) and (spot.released != spot.slot or spot.exact)
        return Tick(history.ticks[spot.released], is_exact)

    def _release_reason(self, spot: Spot) -> str:
        if spot.released == self.rows.history.ended:
            return "the input ended"
        for key, mark, past in self._bounds(spot, spot.released):
            if mark > past:
                integer = self._is_integer(key)
                above = shown_time(past, integer)
                return f"the watermark of {key}, {shown_time(mark, integer)}, is above {above}"
        return "no row to come could meet it any more"

    def _until(self, spot: Spot) -> str:
        texts = []
        for key, mark, past in self._bounds(spot, len(self.rows.history) - 1):
            integer = self._is_integer(key)
            now = "not begun" if mark == NEVER else shown_time(mark, integer)
            texts.append(f"the watermark of {key} is above {shown_time(past, integer)} (it is {now})")
        return f"stays until {' or '.join(texts)}" if texts else "stays until the input ends"

    def _bounds(self, spot: Spot, slot: int) -> list[tuple[str, Watermark, int]]:
        """Return the watermarks that release a row.

        Returns:
            Watermark keys, their watermarks after a tick, and the value that each must exceed.
        """
        join, query = self.rows.join, self.rows.query
        assert join is not None
        sides = {
            side.watermark_key(column): (side, column) for side in query.sides for column in side.event_times
        }
        passing = []
        for column in self.side.event_times:
            key, time = self.side.watermark_key(column), int(spot.branch.own.times[column][spot.row])
            if join.horizon is not None:
                bounds = [(by, join.horizon.reach) for by in join.horizon.keys]
            else:
                bounds = [(bound.by, bound.c) for bound in join.bounds if bound.evicted == key]
            for by, c in bounds:
                side, of = sides[by]
                mark = self.rows.history.mark(query.name, side.name, of, "watermark")[slot]
                passing.append((by, mark, saturate(time + c + find_lateness(query, side))))
        return passing

    def _why_not(self, spot: Spot, near: Spot) -> list[str]:
        """Return reasons, other than the condition, why a row did not match another."""
        other = Fates(self.rows, near.branch.side.name, self.joined)
        if near.came_to == UNMATCHABLE and other.rows.join is None:
            return [f"it can match nothing: {other._failed_conditions(near)}"]
        if near.came_to != MAY_MATCH or near.unsure:
            return [other._outcome(near, self.rows.number_of(near))[1]]
        if self.rows.were_there(spot, near) is False:
            early = min((spot, near), key=lambda own: own.slot)
            gone = (self if early is spot else other)._release_tick(early)
            return [f"{early.branch.side.name} had been released {gone}, before the other came"]
        return []


def words_of_other(query: QueryPlan) -> str:
    """Build the note that the outcome of rows in a query other than plain joins is not reported."""
    noun = query.root.noun or "the query"
    kind = f"a query of {len(query.nodes)} nodes" if len(query.nodes) > 1 else f"its {noun}"
    return f"what becomes of it in {kind} is not told"


def answers(
    asked: QuestionPlan, job: Job, history: TickHistory, reread: Mapping[str, Reread]
) -> list[Answer]:
    """Answer a question, once per query.

    Args:
        history: of at least one tick.
        reread: of `QuestionPlan.sources`, all of them.

    Raises:
        StateError: the history does not say which tick read what.
        EngineError: an expression is one that only Spark computes, or fails for a row.
        SpecError: a value or a time is none of its column's type.
    """
    return [_answer(asked, query, job, history, reread) for query in asked.queries]


def _answer(
    asked: QuestionPlan, query: QueryPlan, job: Job, history: TickHistory, reread: Mapping[str, Reread]
) -> Answer:
    side, insert, most = asked.side(query), asked.inserts[query.name], asked.question.most
    rows = QueryRows.of(query, insert, history, reread)
    masks = [asked.meant(query, branch) for branch in rows.inputs[side.name]]
    meant: Mask = np.concatenate([np.zeros(0, dtype=np.bool_), *masks])
    numbers = np.flatnonzero(meant)
    joined = match_pairs(rows, job, side.name, meant) if len(numbers) and rows.join is not None else None
    results, names = None, sorted({branch.source.name for _, branch in side.sources})
    given = next(own for own in insert.query.inputs if own.alias == side.name)
    is_changing = changes(insert, query.options.mode) and is_of_records(given)
    is_lacking = any(reread[name].missing for name in names)
    if ((len(numbers) or is_lacking) and is_changing) or (len(numbers) and is_chain(query, insert)):
        is_hidden = side.name not in aliases_of(insert.query.relation)
        words = (
            "which rows a SEMI or ANTI join released by it is not known"
            if is_hidden
            else words_of_other(query)
        )
        results = Results(
            rows, job, side.name, numbers[:most], asked.declared, words, is_chain=not is_changing
        )
    fates = Fates(rows, side.name, joined, results)
    told = [fates.fate(int(number)) for number in numbers[:most]]
    records = [fate for name in names for fate in _of_left_out(asked, rows, name)]
    count = len(numbers) + len(records)
    notes = _notes(asked, rows, reread, count)
    if results is not None and results.note is not None:
        notes.append(results.note)
    told += records[: most - len(told)]
    ticks = history.ticks[0], history.ticks[-1]
    return Answer(query.name, side.name, ticks, told, count - len(told), tuple(notes))


def match_pairs(rows: QueryRows, job: Job, alias: str, meant: Mask) -> Joined:
    """Return the pairs of rows that the ON condition joins, of an inner join WHERE as well, as a batch."""
    may: dict[str, Mask] = {}
    for name, branches in rows.inputs.items():
        unsure = [own.unsure & np.isin(own.came_to, (LATE, NOT_YET)) for own in branches]
        came = [own.came_to == MAY_MATCH for own in branches]
        may[name] = np.concatenate(came) | np.concatenate(unsure)
    query = rows.insert.query
    relation = query.relation
    assert isinstance(relation, Join)
    if relation.kind is not JoinKind.SEMI:  # there what a row met goes by what others had met before
        may[alias] &= meant
    if relation.kind is not JoinKind.INNER:  # there WHERE is for rows that have met, or not
        inner = replace(relation, kind=JoinKind.INNER, where=None)
        query = replace(query, where=None, relation=inner)
    return Replay(rows.insert, job, rows.inputs, may).run_query(None, query)


def _of_left_out(asked: QuestionPlan, rows: QueryRows, source: str) -> list[Fate]:
    """Return the fates of a source's left-out records that mention all requested keys."""
    keys = [key.rpartition("=")[2] for key in asked.question.keys]
    fates = []
    for own in rows.left_out[source]:
        if keys and all(re.search(rf"(?<!\w){re.escape(key)}(?!\w)", own.record) for key in keys):
            tick = None if own.slot is None else Tick(rows.history.ticks[own.slot], own.exact)
            what: What = "broken" if own.certain else "not_known"
            text = "a record that was not read here: it is broken, or only Spark knows what it is"
            text = f"a broken record, dropped {tick}" if own.certain else text
            fates.append(Fate({"record": own.record}, source, own.place, what, text, tick))
    return fates


def _notes(asked: QuestionPlan, rows: QueryRows, reread: Mapping[str, Reread], count: int) -> list[str]:
    notes: list[str] = []
    for name, own in reread.items():
        notes += dict.fromkeys(f'"{name}": {missing.words}' for missing in own.missing)
        unsure = [record for record in rows.left_out[name] if not record.certain]
        if unsure:
            notes.append(
                f'"{name}": {format_count(len(unsure), "record")} not read here: broken, or only Spark knows'
                " what"
                f" they are, such as {unsure[0].record} ({unsure[0].place})"
            )
    side, time = asked.side(rows.query), asked.question.time
    names = sorted({branch.source.name for _, branch in side.sources})
    if time is not None and any(reread[name].missing for name in names):
        notes += _late_since(time, rows, side)
    if not count:
        there = sum(portion.rows.num_rows for name in names for portion in reread[name].portions)
        notes.insert(0, f"no such row is among the {format_count(there, 'row')} of {', '.join(names)}")
        notes[1:1] = asked.unnamed_keys(rows.query)
    return notes


def _late_since(text: str, rows: QueryRows, side: SidePlan) -> list[str]:
    """Say in which ticks a row with that time was late, per event time of the input."""
    lines, history = [], rows.history
    for column in side.event_times:
        time = canonical(text, side, column, rows.zone)
        declared = side.input.column(column)
        shown = shown_time(time, declared is not None and declared.type.is_integer)
        late = [mark > time for mark in history.mark(rows.query.name, side.name, column, "late_below")]
        row = f"a row whose {side.name}.{column} is {shown}"
        if not any(late):
            lines.append(f"{row} was on time in all ticks up to tick {history.ticks[-1]}")
        elif late[0] and history.follows_gap(0):
            lines.append(f"{row} was late from tick {history.ticks[0]} on; before that it is not known")
        else:
            slot = late.index(True)
            before = ", or one before it" if history.follows_gap(slot) else ""
            lines.append(f"{row} was late from tick {history.ticks[slot]} on{before}")
    return lines
