"""The fates of records of inputs that change, and of rows that met such: from when until when the row of a
record was there, by which record it was replaced or withdrawn, and what of the output was made of it, and
was taken back.

What a query put out in which tick, and what its inputs held, says the replay of its ticks (`why.replayed`).
Where that cannot be had, it is said to be not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from watersmeet.errors import EngineError, counted
from watersmeet.event_time import Mask
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import Input, Job, Join, JoinKind, Source
from watersmeet.why.answer import SHOWN, Met, Record, Tick, Told, What, line_of
from watersmeet.why.changed.held import Held, Result
from watersmeet.why.changed.remains import Remains
from watersmeet.why.changed.versions import Kind, Span, Versions
from watersmeet.why.judged import BENEATH, FILTERED, MAY_MATCH, UNMATCHABLE, InputRows
from watersmeet.why.near import WhyNot, nearest_to
from watersmeet.why.replayed import NOBODY, joins_of
from watersmeet.why.reread import Numbers
from watersmeet.why.rows import QueryRows, Spot

NOT_KNOWN: What = "not_known"


class Changing:
    """Tells fates of records of one input. ``numbers``: of those that are asked for; ``sources``: as they are
    declared; ``else_what``: what the query is, where what becomes of rows in it is not told."""

    def __init__(
        self,
        rows: QueryRows,
        job: Job,
        alias: str,
        numbers: Numbers,
        sources: Mapping[str, Source],
        else_what: str,
    ) -> None:
        self.rows, self._alias, self._else_what = rows, alias, else_what
        self._held = Held(rows, job, alias, numbers, sources)
        self._query = rows.insert.query
        self._sides = {side.name: side for side in rows.query.sides}

    @cached_property
    def _remains(self) -> Remains:
        records, (own, *_) = self._held.records[self._alias], self.rows.inputs[self._alias]
        return Remains(self.rows, records, self._alias, own.own.source, self._record)

    @property
    def _versions(self) -> Versions:
        assert self._held.versions is not None
        return self._held.versions

    @property
    def note(self) -> str | None:
        """What is known of rows that are asked for, and of which there is no record."""
        if self._held.records[self._alias].kind is not Kind.KEYED or self._remains.rows_there is None:
            return None
        last = self._tick(len(self.rows.history) - 1)
        return f"of all keys of which {self._alias} has a row after {_bare(last)} there are records here"

    def takes(self, came: int) -> bool:
        """Whether it tells of rows that came to that: all records of a table with a primary key, for they
        bear on its row whatever they come to."""
        if self._held.records[self._alias].kind is Kind.KEYED:
            return True
        return came in (MAY_MATCH, UNMATCHABLE)

    def told(self, spot: Spot, number: int, failed: Callable[[], str], why_not: WhyNot) -> Told:
        """Of a record that some tick read. ``failed``: says why it is filtered, or can match nothing."""
        tick = self.rows.tick(spot)
        records = self._held.records[self._alias]
        if not records.taken[number]:
            return "broken", f"a broken record, dropped {tick}: its key is NULL", {}
        if not records.diffs[number]:
            return "never_there", f"says that nothing comes and nothing goes ({tick})", {}
        if self.rows.shed:
            return NOT_KNOWN, f"on time {tick}; rows of the query were shed, and maybe this one", {}
        lacking = self._held.lacks
        if lacking is not None:
            left = self._remains.told(spot, number, failed, lacking)
            return left or (NOT_KNOWN, f"on time {tick}; what became of it is not known: {lacking}", {})
        if records.kind is Kind.ADDED:
            return self._of_added(spot, number, failed, why_not)
        if self._held.may_be_shared and self._held.differ(records, number):
            words = "rows that are equal but for columns that the query does not read went or came, too"
            return NOT_KNOWN, f"on time {tick}; what became of it is not known: {words}", {}
        if self._held.below_zero(records, number):
            words = "rows like it were deleted more often than they came: which deletes counted is not"
            return NOT_KNOWN, f"on time {tick}; what became of it is not known: {words}", {}
        if records.kind is Kind.KEYED:
            return self._of_key(spot, number, failed, why_not)
        if records.diffs[number] < 0:
            return self._of_equal_delete(number)
        return self._of_equal(spot, number, failed, why_not)

    # records of what changes

    def _of_key(self, spot: Spot, number: int, failed: Callable[[], str], why_not: WhyNot) -> Told:
        """Of a record of a primary key."""
        versions = self._versions
        records, slot = versions.records, int(versions.records.slots[number])
        tick, steps = self._tick(slot), versions.steps(number)
        if number not in steps.steps:
            return NOT_KNOWN, f"on time {tick}; which of its key's changes counted is not known", {}
        step, own = steps.steps[number], records.in_slot(number, slot)
        if step.older_than is not None:
            other = self._record(step.older_than)
            words = f"an older change than one that its key has had, {line_of(other.row)}"
            return "stale", f"dropped {tick}: {words}", {"by": other}
        later = steps.counted(own[own.index(number) + 1 :])
        if records.diffs[number] < 0:
            if step.took is None:
                return "delete_of_nothing", f"a delete of what was not there {tick}: not applied", {}
            other = self._record(step.took)
            took: dict[str, Any] = {}
            text = f"took {line_of(other.row)} away {tick}"
            before = steps.before(slot)
            if later:
                text += ", and another change of its key came after it"
            elif before is not None:
                words, took = self._taken_back(before, slot)
                text, took = f"{text}{words}", took | {"left": tick}
            return "delete", text, took | {"instead_of": other}
        if later:
            other = self._record(later[-1])
            words = "its key was deleted" if records.diffs[later[-1]] < 0 else f"{line_of(other.row)} came"
            return "never_there", f"there after no tick: {words} after it {tick}", {"by": other}
        more: dict[str, Any] = {}
        since = _bare(tick)
        before = steps.before(slot)
        if before is not None:
            more["instead_of"] = self._record(before)
            since += f", in the place of {line_of(more['instead_of'].row)}"
        span = versions.span(number)
        assert span is not None
        if span.until is None:
            return self._of_version(spot, number, span, ("there", f"since {since}"), more, failed, why_not)
        left = self._tick(span.until)
        more["left"] = left
        came = versions.came_in(number, span.until)
        by = came or steps.counted(versions.deletes_in(number, span.until))
        if by:
            more["by"] = self._record(by[-1])
        what: What = "replaced" if came else "withdrawn"
        words = f"{line_of(more['by'].row)} took its place" if came else "it was deleted"
        comma = "" if before is None else ","
        text = f"from {since}{comma} until {_bare(left)}, in which {words}"
        return self._of_version(spot, number, span, (what, text), more, failed, why_not)

    def _of_equal(self, spot: Spot, number: int, failed: Callable[[], str], why_not: WhyNot) -> Told:
        """Of a record that brings a row that a delete takes away by being equal."""
        versions = self._versions
        slot, span = int(versions.records.slots[number]), versions.span(number)
        tick = self._tick(slot)
        if span is None:
            return "never_there", f"there after no tick: as many equal rows went {tick}", {}
        last = len(self.rows.history) - 1 if span.until is None else span.until - 1
        first, now = versions.count(number, slot), versions.count(number, last)
        more: dict[str, Any] = {}
        what: What = "there"
        text = f"since {_bare(tick)}"
        if span.until is not None:
            what, left = "withdrawn", self._tick(span.until)
            deletes = versions.deletes_in(number, span.until)
            more = {"left": left} | ({"by": self._record(deletes[-1])} if deletes else {})
            text = f"from {_bare(tick)} until {_bare(left)}, in which it was deleted"
        if first != now:
            text += f" (one of {first} equal rows, of {now} after {_bare(self._tick(last))})"
        elif first > 1:
            text += f" (one of {first} equal rows)"
        return self._of_version(spot, number, span, (what, text), more, failed, why_not)

    def _of_version(
        self,
        spot: Spot,
        number: int,
        span: Span,
        there: tuple[What, str],
        more: dict[str, Any],
        failed: Callable[[], str],
        why_not: WhyNot,
    ) -> Told:
        """With what was made of the row meanwhile."""
        what, text = there
        if spot.came_to in (FILTERED, BENEATH):
            return "filtered", f"there {text}; filtered by {failed()}", more
        unmatchable = spot.came_to == UNMATCHABLE
        words, results = self._results(spot, number, span, failed if unmatchable else None, why_not)
        return what, f"there {text}; {words}", more | results

    def _of_equal_delete(self, number: int) -> Told:
        versions = self._versions
        records, slot = versions.records, int(versions.records.slots[number])
        tick, net = self._tick(slot), versions.net(number, slot)
        own = records.in_slot(number, slot)
        nothing = net - sum(int(records.diffs[one]) for one in own)
        deleted = -sum(int(records.diffs[one]) for one in own if records.diffs[one] < 0)
        if nothing == deleted:
            return "delete_of_nothing", f"a delete of what was not there {tick}: not applied", {}
        if nothing:
            words = f"{nothing} of the {deleted} deletes of equal rows {tick} were of what was not there"
            return "delete", f"{words}: not applied", {}
        if net >= 0:
            return "delete", f"took away what came {tick}, too", {}
        text = f"took away an equal row {tick}" if net == -1 else f"took away {-net} equal rows {tick}"
        brought = [o for o in records.of_group(number) if records.diffs[o] > 0 and records.slots[o] < slot]
        more: dict[str, Any] = {"left": tick}
        if brought:
            more["instead_of"] = self._record(brought[-1])
        left = versions.count(number, slot)
        if left:
            return "delete", f"{text}, and left {left}", more
        words, results = self._taken_back(number, slot)
        return "delete", f"{text}{words}", more | results

    # what was made of it

    def _of_added(self, spot: Spot, number: int, failed: Callable[[], str], why_not: WhyNot) -> Told:
        """Of a row of an input whose rows only come."""
        slot = int(self._held.records[self._alias].slots[number])
        if self._held.out is None:
            return "on_time", f"on time {self._tick(slot)}; {self._else_what}", {}
        unmatchable = spot.came_to == UNMATCHABLE
        words, more = self._results(spot, number, Span(slot, None), failed if unmatchable else None, why_not)
        gone = self._held.out[1].get(number)
        left = None if gone is None else self._tick(gone)
        more["left"] = left
        has = [any(row is not None for row in own.row.values()) for own in more.get("met", ())]
        if has and not isinstance(self._query.relation, Join):
            return "put_out", words, more
        if has:
            what: What = "joined" if any(has) else "put_out" if self._hides_some else "padded"
            return what, words if left is None else f"{words}; released {left}", more
        if left is None:
            return "retained", f"{words}; kept so far", more
        return ("unmatchable" if unmatchable else "released_unmatched"), f"{words}; released {left}", more

    @property
    def _hides_some(self) -> bool:
        return any(join.kind.hides_right for join in joins_of(self._query.relation))

    def _results(
        self,
        spot: Spot,
        number: int,
        span: Span,
        failed: Callable[[], str] | None,
        why_not: WhyNot,
    ) -> tuple[str, dict[str, Any]]:
        """What was made of a row while it was there, in words. ``failed``: of one that can match nothing."""
        if self._held.out is None:
            return self._else_what, {}
        results = [
            replace(own, span=Span(max(own.span.since, span.since), own.span.until))
            for own in self._held.results_of(number)
            if own.span.meets(span)
        ]
        why = "" if failed is None else f"; it can match nothing: {failed()}"
        if results:
            words, more = self._words(results)
            return f"{words}{why}", more
        if why:
            return f"nothing was emitted for it{why}", {}
        return self._nothing(spot, span, why_not)

    def _words(self, results: Sequence[Result]) -> tuple[str, dict[str, Any]]:
        full = [own for own in results if any(other != NOBODY for other in own.others.values())]
        first = next((own for own in full if own.span.until is None), (full or results)[0])
        ordered = [first, *(own for own in results if own is not first)]
        met = [self._met(own) for own in ordered[:SHOWN]]
        text = self._told_of(met[0])
        rest = len(results) - 1
        if rest:
            text += f"; {counted(rest, 'other row')} of the output"
        return text, {"met": met, "more_met": len(results) - len(met)}

    def _told_of(self, met: Met) -> str:
        there = [f"{alias} {line_of(row)}" for alias, row in met.row.items() if row is not None]
        missing = [alias for alias, row in met.row.items() if row is None]
        if there:
            text = f"joined with {' and '.join(there)} {met.tick}"
            text += f", with NULLs for {' and '.join(missing)}" if missing else ""
        elif missing and not self._hides_some:
            text = f"emitted unmatched, with NULLs, {met.tick}"
        else:
            text = f"emitted {met.tick}"
        return text if met.until is None else f"{text}, retracted {met.until}"

    def _met(self, own: Result) -> Met:
        spots = {
            alias: None if other == NOBODY else self.rows.spot(alias, other)
            for alias, other in own.others.items()
        }
        return Met(
            {alias: None if spot is None else spot.values for alias, spot in spots.items()},
            "; ".join(spot.place for spot in spots.values() if spot is not None),
            self._tick(own.span.since),
            None,
            None if own.span.until is None else self._tick(own.span.until),
        )

    def _taken_back(self, number: int, slot: int) -> tuple[str, dict[str, Any]]:
        """What of the output went with a row."""
        if self._held.out is None:
            return "", {}
        results = self._held.results_of(number)
        ended = [own for own in results if own.span.until == slot]
        if not ended:
            some = any(own.span.since < slot for own in results)
            return f", of which nothing was {'still in the output' if some else 'emitted'}", {}
        met = [self._met(own) for own in ended[:SHOWN]]
        return f", with {counted(len(ended), 'row')} of the output", {
            "met": met,
            "more_met": len(ended) - len(met),
        }

    def _nothing(self, spot: Spot, span: Span, why_not: WhyNot) -> tuple[str, dict[str, Any]]:
        relation = self._query.relation
        if not isinstance(relation, Join):
            return "nothing was emitted for it", {}
        two = isinstance(relation.left, Input) and isinstance(relation.right, Input)
        if not two:
            return "no row of the output has had it", {}
        other = next(side for alias, side in self._sides.items() if alias != self._alias)
        if relation.kind is JoinKind.ANTI:
            return f"an ANTI join with {other.name} did not let it through", {}
        met = f"it met no row of {other.name}"
        if self._query.where is not None or relation.where is not None:
            met = "no row of the output has had it"
        try:
            near = nearest_to(
                self.rows,
                other,
                spot,
                lambda one, own: self._why_not(other, span, one, own, why_not),
                lambda branch: self._brings(other.name, branch),
            )
        except EngineError:  # what is near is said where it can be
            near = []
        return met, {"near": near}

    def _why_not(self, other: SidePlan, span: Span, spot: Spot, near: Spot, why_not: WhyNot) -> list[str]:
        """What but the condition kept a row from meeting another."""
        records = self._held.records[other.name]
        number = self._number_of(near)
        if records.kind is Kind.ADDED:
            return why_not(spot, near) if near.came_to not in (MAY_MATCH, UNMATCHABLE) else []
        there = self._held.span(other.name, number)
        if there is None:
            return ["was there after no tick"]
        if span.meets(there):
            return []
        until = "" if there.until is None else f" until {_bare(self._tick(there.until))}"
        return [f"was there from {_bare(self._tick(there.since))} on{until}, and not at the same time"]

    def _brings(self, alias: str, branch: InputRows) -> Mask:
        """Which records of a branch bring rows."""
        records, first = self._held.records[alias], 0
        for own in self.rows.inputs[alias]:
            if own is branch:
                break
            first += len(own.came_to)
        mask: Mask = (records.diffs > 0)[first : first + len(branch.came_to)]
        return mask

    # words

    def _number_of(self, spot: Spot) -> int:
        before = 0
        for branch in self.rows.inputs[spot.branch.side.name]:
            if branch is spot.branch:
                break
            before += len(branch.came_to)
        return before + spot.row

    def _tick(self, slot: int) -> Tick:
        return Tick(self.rows.history.ticks[slot])

    def _record(self, number: int) -> Record:
        spot = self.rows.spot(self._alias, number)
        return Record(spot.values, spot.place)


def _bare(tick: Tick) -> str:
    return f"tick {tick.number}"
