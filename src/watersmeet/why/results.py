"""The outcomes of rows, from a replay of their query's ticks (`why.replay`).

Of chains of joins: the rows that each row matched on its way through the joins, and where it stopped. Of
inputs that change: from when until when the row of a record existed, which record replaced or deleted it, and
which rows of the output were made of it and retracted.

Without everything that a replay of the ticks needs, less is known: of a chain, that matching rows of all
inputs leave it, whatever other rows exist; of a table with a primary key, the answer of `Remains`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from watersmeet.errors import EngineError, PlanError, SeveralErrors, format_count
from watersmeet.event_time import Mask
from watersmeet.spec.model import (
    Input,
    Job,
    Join,
    JoinKind,
    OutputMode,
    Query,
    Relation,
    Source,
    inputs_of,
)
from watersmeet.why.answer import SHOWN, Met, Near, Record, Tick, Told, What, line_of
from watersmeet.why.near_misses import JoinedRow, WhyNot, failing_where, near_misses
from watersmeet.why.replay import (
    KINDS,
    NOBODY,
    Joined,
    Replay,
    TickWise,
    aliases_of,
    shape_of,
    without_filters,
)
from watersmeet.why.rows import (
    BENEATH,
    FILTERED,
    MAY_MATCH,
    UNMATCHABLE,
    InputRows,
    Numbers,
    QueryRows,
    Spot,
    joins_of,
)
from watersmeet.why.tables import (
    NOTHING,
    KeyChange,
    Kind,
    Records,
    Remains,
    Span,
    Versions,
    is_of_records,
    records_of,
    spans_of,
)

NOT_KNOWN: What = "not_known"


@dataclass(frozen=True)
class Result:
    """Output row that was made with a row.

    ``others``: the rows of other inputs in it.
    """

    others: JoinedRow
    span: Span


class Results:
    """Builder of the fates of one input's rows.

    Args:
        numbers: numbers of the requested rows.
        sources: the sources as declared.
        is_chain: whether the query is a chain of joins over rows that are only inserted.
        else_what: description of the query where the outcome of rows in it is not reported.
    """

    def __init__(
        self,
        rows: QueryRows,
        job: Job,
        alias: str,
        numbers: Numbers,
        sources: Mapping[str, Source],
        else_what: str,
        *,
        is_chain: bool,
    ) -> None:
        self.rows, self._job, self._alias, self._numbers = rows, job, alias, numbers
        self._sources, self._else_what, self.is_chain = sources, else_what, is_chain
        self._query = rows.insert.query
        self._sides = {side.name: side for side in rows.query.sides}
        self._joins = joins_of(self._query.relation)
        self._hides_some = any(join.kind.hides_right for join in self._joins)
        self.hides = alias not in aliases_of(self._query.relation)
        """Whether nothing in the output shows the input's rows: of the right side of a SEMI or ANTI join."""

    @property
    def note(self) -> str | None:
        """Note on requested rows that have no record here; None if there is nothing to note."""
        if self.records[self._alias].kind is not Kind.KEYED or self._remains.rows_there is None:
            return None
        last = self._tick(len(self.rows.history) - 1)
        return f"of all keys of which {self._alias} has a row after {_bare(last)} there are records here"

    def takes(self, came: int) -> bool:
        """Return True if fates are reported for rows with this ingest outcome.

        For a table with a primary key this holds for all records, because each affects its key's row.
        """
        if self.records[self._alias].kind is Kind.KEYED:
            return True
        return came == MAY_MATCH or (came == UNMATCHABLE and not self.is_chain)

    def outcome(self, spot: Spot, number: int, failed: Callable[[], str], why_not: WhyNot) -> Told:
        """Tell of a record that some tick read. ``failed``: says why it is filtered, or can match nothing."""
        tick, records = self.rows.tick(spot), self.records[self._alias]
        unknown = f"on time {tick}; what became of it is not known"
        if not records.taken[number]:
            return "broken", f"a broken record, dropped {tick}: its key is NULL", {}
        if not records.diffs[number]:
            return "never_there", f"says that nothing comes and nothing goes ({tick})", {}
        if self.rows.shed:
            return NOT_KNOWN, f"on time {tick}; rows of the query were shed, and maybe this one", {}
        if self.is_chain and self.hides:
            return self._of_hidden(f"on time {tick}", number)
        if self.lacks is not None:
            told = self._of_complete(number) if self.is_chain else None
            change = self._remains.change(number)
            if change is not None:
                told = self._of_key(spot, number, change, failed, why_not)
            return told or (NOT_KNOWN, f"{unknown}: {self.lacks}", {})
        if records.kind is Kind.ADDED:
            return self._of_added(spot, number, failed, why_not)
        if self._may_be_shared and self._differ(records, number):
            words = "rows that are equal but for columns that the query does not read went or came, too"
            return NOT_KNOWN, f"{unknown}: {words}", {}
        if self._is_below_zero(records, number):
            words = "rows like it were deleted more often than they came: which deletes counted is not"
            return NOT_KNOWN, f"{unknown}: {words}", {}
        if records.kind is Kind.KEYED:
            assert self._versions is not None
            change = self._versions.change(number)
            if change is None:
                return NOT_KNOWN, f"on time {tick}; which of its key's changes counted is not known", {}
            return self._of_key(spot, number, change, failed, why_not)
        if records.diffs[number] < 0:
            return self._of_equal_delete(number)
        return self._of_equal(spot, number, failed, why_not)

    # what the ticks did

    @cached_property
    def lacks(self) -> str | None:
        """Reason why the ticks cannot be replayed; None if they can."""
        rows = self.rows
        lacking = rows.lacks(self._inputs, self._sources.values())
        if lacking is not None:
            return lacking
        try:
            if self.is_chain and shape_of(self._replay.plan().queries[0]) != shape_of(rows.query):
                return "its joins are run in another way by themselves"
            _ = self._versions, self._out
        except (EngineError, PlanError, SeveralErrors):
            return "its ticks cannot be run again"
        return None

    @property
    def _inputs(self) -> list[str]:
        """Inputs whose records are read: all inputs where the fates explain output."""
        return list(self._sides) if self._explains_output or self.is_chain else [self._alias]

    @cached_property
    def _explains_output(self) -> bool:
        """True if the outcome of rows in the query is reported: in joins, and in single inputs."""
        return (
            self._query.aggregation is None
            and all(join.kind in KINDS and not join.is_lookup for join in self._joins)
            and all(map(is_of_records, inputs_of(self._query.relation)))
            and all(side.sources and not side.stages for side in self._sides.values())
            and not any(node.left_to_spark for node in self.rows.query.nodes)
            and not self.hides
        )

    @cached_property
    def _ticks(self) -> TickWise:
        return TickWise.of(self.rows.query, self.rows.history, self._sources.values())

    @cached_property
    def records(self) -> dict[str, Records]:
        return {
            alias: records_of(
                self._sides[alias],
                self.rows.inputs[alias],
                self._sources[self.rows.inputs[alias][0].own.source],
                self.rows.zone,
            )
            for alias in self._inputs
        }

    @cached_property
    def _linked(self) -> dict[str, Mask]:
        """Masks of the rows that affect the outcome of the requested rows."""
        groups = {alias: own.group for alias, own in self.records.items()}
        if self.is_chain:  # its joins are run one by one, too, and which rows these join goes by less
            return {alias: np.ones(len(group), dtype=np.bool_) for alias, group in groups.items()}
        if self._explains_output:
            return self.rows.find_linked_rows(self._alias, self._numbers, groups)
        own = groups[self._alias]
        return {self._alias: np.isin(own, own[self._numbers])}

    @cached_property
    def _replay(self) -> Replay:
        return self._replay_of(self._linked)

    def _replay_of(self, linked: Mapping[str, Mask]) -> Replay:
        masks = {alias: self.records[alias].counts & mask for alias, mask in linked.items()}
        numbers = {alias: self.records[alias].numbers for alias in masks}
        mode = self.rows.query.options.mode
        return Replay(self.rows.insert, self._job, self.rows.inputs, masks, mode, numbers)

    @cached_property
    def _out(self) -> tuple[Joined, dict[int, int]] | None:
        """Emitted rows, and when rows of the input were released; None: not reported."""
        if not self._explains_output:
            return None
        asked = np.unique(self.records[self._alias].numbers[self._numbers])
        timed = asked if self.is_chain or self._sides[self._alias].event_times else asked[:0]
        return self._replay.with_release(self._ticks, self._alias, timed)

    @cached_property
    def _versions(self) -> Versions | None:
        """Versions of the rows of the requested input; None: its rows are only inserted."""
        if self.records[self._alias].kind is Kind.ADDED:
            return None
        return self._versions_of(self._alias, self._linked[self._alias])

    def _versions_of(self, alias: str, linked: Mask) -> Versions:
        """Replay the changes of one input, by itself and without its filters."""
        given = next(own for own in self._query.inputs if own.alias == alias)
        alone = Query(without_filters(given), None, (), "", mode=OutputMode.CHANGELOG)
        return Versions(
            self.records[alias], self._replay_of({alias: linked}).run_query(self._ticks, alone), alias
        )

    def _span(self, alias: str, number: int) -> Span | None:
        """Return when the row of a record of an input that changes was there."""
        group = self.records[alias].group
        who = (alias, int(group[number]))
        if who not in self._others:
            self._others[who] = self._versions_of(alias, group == group[number])
        return self._others[who].span(number)

    @cached_property
    def _others(self) -> dict[tuple[str, int], Versions]:
        """Versions of rows by input and group of records."""
        return {}

    @cached_property
    def _remains(self) -> Remains:
        records, (own, *_) = self.records[self._alias], self.rows.inputs[self._alias]
        return Remains(self.rows, records, self._alias, own.own.source)

    @property
    def _may_be_shared(self) -> bool:
        """True if another input may also retain these rows, with more of their columns."""
        own = {branch.source.name for _, branch in self._sides[self._alias].sources}
        others = [
            source.name
            for insert in self._job.inserts
            for query in insert.query.every
            for given in query.inputs
            for source in given.sources
        ]
        return any(others.count(name) > 1 for name in own)

    def _differ(self, records: Records, number: int) -> bool:
        """Return whether records of its group differ in columns of their source."""
        if records.kind is not Kind.EQUAL:
            return False
        return len({int(records.whole[one]) for one in records.of_group(number)}) > 1

    def _is_below_zero(self, records: Records, number: int) -> bool:
        """Return of rows that are not kept whether deletes of what is not there were applied as they came."""
        came = self.rows.spot(self._alias, number).came_to
        if records.kind is not Kind.EQUAL or (
            came != UNMATCHABLE and not self._sides[self._alias].event_times
        ):
            return False
        group = np.array(records.of_group(number), dtype=np.int64)
        slots, first = np.unique(records.slots[group], return_inverse=True)
        sums = np.zeros(len(slots), dtype=np.int64)
        np.add.at(sums, first, records.diffs[group])
        return bool((np.cumsum(sums) < 0).any())

    def _results_of(self, number: int) -> list[Result]:
        """Return what of the output has rows of its number."""
        assert self._out is not None
        by_others: dict[tuple[tuple[str, int], ...], list[tuple[int, int]]] = {}
        out, wanted = self._out[0], self.records[self._alias].numbers[number]
        for at in np.flatnonzero(out.rows[self._alias] == wanted).tolist():
            others = tuple((a, int(own[at])) for a, own in out.rows.items() if a != self._alias)
            by_others.setdefault(others, []).append((int(out.slots[at]), int(out.diffs[at])))
        results = [Result(dict(others), span) for others, own in by_others.items() for span in spans_of(own)]
        return sorted(results, key=lambda own: own.span.since)

    # records of what changes

    def _of_key(
        self,
        spot: Spot,
        number: int,
        change: KeyChange,
        failed: Callable[[], str],
        why_not: WhyNot,
    ) -> Told:
        """Tell of a record of a primary key."""
        slot, diffs = spot.slot, self.records[self._alias].diffs
        tick = str(self.rows.tick(spot))
        if change.older_than is not None:
            other = self._record(change.older_than)
            words = f"an older change than one that its key has had, {line_of(other.row)}"
            return "stale", f"dropped {tick}: {words}", {"by": other}
        took = None if change.took in (None, NOTHING) else self._record(change.took)
        more: dict[str, Any] = {} if took is None else {"instead_of": took}
        if diffs[number] < 0:
            if change.took is None:
                return "delete", f"deleted its key {tick}; what was there before is not known", {}
            if took is None:
                return "delete_of_nothing", f"a delete of what was not there {tick}: not applied", {}
            text = f"took {line_of(took.row)} away {tick}"
            if change.until is not None:
                text += ", and another change of its key came after it"
            elif change.before is not None:
                words, results = self._retraction(change.before, slot)
                text, more = f"{text}{words}", more | results | {"left": self._tick(slot)}
            return "delete", text, more
        by = None if change.by is None else self._record(change.by)
        since = f"tick {self.rows.history.ticks[slot]}{'' if spot.exact else ' or before'}"
        is_replaced = by is not None and diffs[change.by] > 0
        if change.until == slot:
            words = f"{line_of(by.row)} came" if is_replaced and by else "its key was deleted"
            return "never_there", f"there after no tick: {words} after it in {since}", {"by": by}
        if change.took is None:
            since += ", in the place of nothing, or of what is not known"
        elif took is not None:
            since += f", in the place of {line_of(took.row)}"
        if change.until is None:
            there: tuple[What, str] = "there", f"since {since}"
        else:
            left = self._tick(change.until)
            more |= {"left": left} | ({} if by is None else {"by": by})
            words = f"{line_of(by.row)} took its place" if is_replaced and by else "it was deleted"
            comma = "" if change.took == NOTHING else ","
            text = f"from {since}{comma} until {_bare(left)}, in which {words}"
            there = "replaced" if is_replaced else "withdrawn", text
        return self._of_version(spot, number, Span(slot, change.until), there, more, failed, why_not)

    def _of_equal(self, spot: Spot, number: int, failed: Callable[[], str], why_not: WhyNot) -> Told:
        """Tell of a record that brings a row that a delete takes away by being equal."""
        versions = self._versions
        assert versions is not None
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
        """Add what was made of the row meanwhile."""
        what, text = there
        if spot.came_to in (FILTERED, BENEATH):
            return "filtered", f"there {text}; filtered by {failed()}", more
        if self.lacks is not None:
            return what, f"there {text}; what was made of it is not known: {self.lacks}", more
        words, results = self._results(spot, number, span, failed, why_not)
        return what, f"there {text}; {words}", more | results

    def _of_equal_delete(self, number: int) -> Told:
        versions = self._versions
        assert versions is not None
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
        words, results = self._retraction(number, slot)
        return "delete", f"{text}{words}", more | results

    # what was made of it

    def _of_added(self, spot: Spot, number: int, failed: Callable[[], str], why_not: WhyNot) -> Told:
        """Tell of a row of an input whose rows only come."""
        slot = int(self.records[self._alias].slots[number])
        if self._out is None:
            return "on_time", f"on time {self._tick(slot)}; {self._else_what}", {}
        words, more = self._results(spot, number, Span(slot, None), failed, why_not)
        gone = self._out[1].get(number)
        left = more["left"] = None if gone is None else self._tick(gone)
        released = "" if left is None else f"; released {left}"
        has = [any(row is not None for row in own.row.values()) for own in more.get("met", ())]
        if has and not self._joins:
            return "put_out", words, more
        if has:
            what: What = "joined" if any(has) else "put_out" if self._hides_some else "padded"
            if self.is_chain:
                released = "; some of it is kept still" if left is None else ""
                more |= {} if any(has) else {"met": (), "more_met": 0}
            return what, f"{words}{released}", more
        if left is None:
            return "retained", f"{words}; kept so far, for rows to come may still meet it", more
        if self.is_chain and "near" in more:
            released += ": no later row can match it"
        what = "unmatchable" if spot.came_to == UNMATCHABLE and not self.is_chain else "released_unmatched"
        return what, f"{words}{released}", more

    def _of_complete(self, number: int) -> Told | None:
        """Describe a row of a chain that matched rows of all inputs; None if it did not.

        Such rows left the chain, whatever else is unknown.
        """
        joined = self._at_once.with_row(self._alias, number)
        complete = [own for _, own in joined if NOBODY not in own.values()]
        if self._hides_some or not complete:
            return None
        met = []
        for own in complete[:SHOWN]:
            spots = [self.rows.spot(alias, row) for alias, row in own.items()]
            slot = max(spot.slot for spot in spots)
            is_exact = all(spot.exact for spot in spots if spot.slot == slot)
            met.append(self._match(own, Tick(self.rows.history.ticks[slot], is_exact)))
        text = f"{self._words_of(met[0])}{_and_others(complete)}"
        return "joined", text, {"met": met, "more_met": len(complete) - len(met)}

    @cached_property
    def _at_once(self) -> Joined:
        return self._replay.run_query(None)

    def _results(
        self, spot: Spot, number: int, span: Span, failed: Callable[[], str], why_not: WhyNot
    ) -> tuple[str, dict[str, Any]]:
        """Say what was made of a row while it was there."""
        if self._out is None:
            return self._else_what, {}
        results = [
            replace(own, span=Span(max(own.span.since, span.since), own.span.until))
            for own in self._results_of(number)
            if own.span.meets(span)
        ]
        is_unmatchable = spot.came_to == UNMATCHABLE and not self.is_chain
        why = f"; it can match nothing: {failed()}" if is_unmatchable else ""
        if results:
            full = [own for own in results if any(other != NOBODY for other in own.others.values())]
            first = next((own for own in full if own.span.until is None), (full or results)[0])
            met = self._matches([first, *(own for own in results if own is not first)])
            more = len(results) - 1
            rest = f"; {format_count(more, 'other row')} of the output" if more else ""
            rest = _and_others(results) if self.is_chain else rest
            words = f"{self._words_of(met[0])}{rest}{why}"
            return words, {"met": met, "more_met": len(results) - len(met)}
        if why:
            return f"nothing was emitted for it{why}", {}
        return self._last_step(spot, number, span, why_not)

    def _matches(self, results: Sequence[Result]) -> list[Met]:
        return [
            self._match(
                own.others,
                self._tick(own.span.since),
                None if own.span.until is None else self._tick(own.span.until),
            )
            for own in results[:SHOWN]
        ]

    def _match(self, own: JoinedRow, tick: Tick, until: Tick | None = None) -> Met:
        spots = {
            alias: None if number == NOBODY else self.rows.spot(alias, number)
            for alias, number in own.items()
            if alias != self._alias
        }
        places = (spot.place for spot in spots.values() if spot is not None)
        values = {alias: None if spot is None else spot.values for alias, spot in spots.items()}
        return Met(values, "; ".join(places), tick, None, until)

    def _words_of(self, met: Met, *, is_out: bool = True) -> str:
        """Say of what leaves a join, or the query, with which rows it is joined."""
        there = [f"{alias} {line_of(row)}" for alias, row in met.row.items() if row is not None]
        missing = [alias for alias, row in met.row.items() if row is None]
        nulls = f"with NULLs for {' and '.join(missing)}"
        if there:
            text = f"joined with {' and '.join(there)} {met.tick}{f', {nulls}' if missing else ''}"
        elif not is_out:
            text = f"went on {nulls} {met.tick}" if missing else f"went on {met.tick}"
        elif missing and not self._hides_some:
            text = f"emitted unmatched, with NULLs, {met.tick}"
        else:
            text = f"emitted {met.tick}"
        return text if met.until is None else f"{text}, retracted {met.until}"

    def _retraction(self, number: int, slot: int) -> tuple[str, dict[str, Any]]:
        """Say what of the output went with a row."""
        if self._out is None:
            return "", {}
        results = self._results_of(number)
        ended = [own for own in results if own.span.until == slot]
        if not ended:
            some = any(own.span.since < slot for own in results)
            return f", of which nothing was {'still in the output' if some else 'emitted'}", {}
        met = self._matches(ended)
        return f", with {format_count(len(ended), 'row')} of the output", {
            "met": met,
            "more_met": len(ended) - len(met),
        }

    # chains of joins

    @cached_property
    def _stages(self) -> list[tuple[Join, Joined]]:
        """Output of each join, the topmost first; that of the topmost join is before WHERE.

        Joins whose own condition would retain rows without bound are left out.
        """
        stages = []
        for join in reversed(self._joins) if self.is_chain else ():
            try:
                stages.append((join, self._replay.run_query(self._ticks, Query(join, None, (), ""))))
            except (PlanError, SeveralErrors):
                continue
        return stages

    def _last_step(self, spot: Spot, number: int, span: Span, why_not: WhyNot) -> tuple[str, dict[str, Any]]:
        """Explain where a row stopped in the chain of joins, and what it was joined with so far."""
        at: Relation = next(own for own in self._query.inputs if own.alias == self._alias)
        own, words, more = {self._alias: number}, "", dict[str, Any]()
        for join, joined in self._stages:
            rows = joined.with_row(self._alias, number)
            if rows:
                at, own = join, rows[0][1]
                met = [self._match(one, self._tick(slot)) for slot, one in rows[:SHOWN]]
                more = {"reached": met, "more_met": len(rows) - len(met)}
                words = f"{self._words_of(met[0], is_out=False)}{_and_others(rows)}; "
                break
        where = failing_where(self.rows, own) if at is self._query.relation else None
        if where is not None:
            return f"{words}left out by {where}", more
        above = next((join for join in self._joins if at is join.left or at is join.right), None)
        if above is None:
            return (
                f"{words}{'no row of the output has had it' if words else 'nothing was emitted for it'}",
                more,
            )
        is_stage = any(join is above and join.where is None for join, _ in self._stages)
        if above is None or (not is_stage and (self.is_chain or len(self._joins) > 1)):
            return f"{words}no row of the output has had it", more
        other = above.right if above.left is at else above.left
        names = " and ".join(aliases_of(other))
        if above.kind is JoinKind.ANTI and other is above.right:
            did = "did not let it through: it met one"
            if self.is_chain and self._out is not None and number not in self._out[1]:
                did = "has not let it through so far"
            return f"{words}an ANTI join with {names} {did}", more
        if isinstance(other, Input):
            more["near"] = self._near(above, other.alias, own, spot, span, why_not)
        text = f"{words}that met no row of {names}" if words else f"it met no row of {names}"
        if not self.is_chain and (self._query.where is not None or above.where is not None):
            text = "no row of the output has had it"
        return text, {"near": []} | more

    def _near(
        self, join: Join, other: str, own: JoinedRow, spot: Spot, span: Span, why_not: WhyNot
    ) -> list[Near]:
        if self.is_chain:
            return near_misses(self.rows, join, other, own, spot, why_not)
        diffs = self.records[other].diffs

        def brings(branch: InputRows) -> Mask:
            first = self.rows.number_of(Spot(branch, 0))
            return diffs[first : first + len(branch.came_to)] > 0

        def reasons(one: Spot, near: Spot) -> list[str]:
            if self.records[other].kind is Kind.ADDED:
                return why_not(one, near) if near.came_to not in (MAY_MATCH, UNMATCHABLE) else []
            there = self._span(other, self.rows.number_of(near))
            if there is None:
                return ["was there after no tick"]
            until = "" if there.until is None else f" until {_bare(self._tick(there.until))}"
            words = f"was there from {_bare(self._tick(there.since))} on{until}, and not at the same time"
            return [] if span.meets(there) else [words]

        return near_misses(self.rows, join, other, own, spot, reasons, brings)

    def _of_hidden(self, tick: str, number: int) -> Told:
        """Describe a row that a SEMI or ANTI join only tests for existence.

        The answer has the rows of the other side for which it was the first match, or one of the first.
        """
        if self._meetings is None:
            return "on_time", f"{tick}; which rows a SEMI or ANTI join released by it is not known", {}
        left = aliases_of(self._hiding.left)
        names = " and ".join(left)
        firsts: dict[tuple[int, ...], int] = {}
        rows = [self._meetings.rows[alias].tolist() for alias in left]
        for slot, *who in zip(self._meetings.slots.tolist(), *rows, strict=True):
            firsts[tuple(who)] = min(slot, firsts.get(tuple(who), slot))
        met = self._meetings.with_row(self._alias, number)
        if not met:
            return "on_time", f"{tick}; it has met no row of {names} so far", {}
        own = [
            (slot, {alias: by_alias[alias] for alias in left})
            for slot, by_alias in met
            if firsts[tuple(by_alias[alias] for alias in left)] == slot
        ]
        if not own:
            return "on_time", f"{tick}; each row of {names} that it could meet had met one before", {}
        told = [self._match(by_alias, self._tick(slot)) for slot, by_alias in own[:SHOWN]]
        words = self._words_of(told[0]).removeprefix("joined with ")
        goes = "goes on" if self._hiding.kind is JoinKind.SEMI else "does not go on"
        text = f"met {words}{_and_others(own)}, so that what it met {goes}"
        return "met", text, {"met": told, "more_met": len(own) - len(told)}

    @property
    def _hiding(self) -> Join:
        """The join behind which nothing shows the input's rows."""
        return next(
            join
            for join in self._joins
            if self._alias in aliases_of(join.right) and self._alias not in aliases_of(join)
        )

    @cached_property
    def _meetings(self) -> Joined | None:
        """The rows of both sides of the join that hides the rows, where they met; None: that is not known."""
        if self.lacks is not None:
            return None
        try:
            inner = replace(self._hiding, kind=JoinKind.INNER, where=None)
            return self._replay.run_query(self._ticks, Query(inner, None, (), ""))
        except (EngineError, PlanError, SeveralErrors):
            return None

    # words

    def _tick(self, slot: int) -> Tick:
        return Tick(self.rows.history.ticks[slot])

    def _record(self, number: int) -> Record:
        spot = self.rows.spot(self._alias, number)
        return Record(spot.values, spot.place)


def _and_others(joined: Sequence[object]) -> str:
    more = len(joined) - 1
    return f" and {format_count(more, 'other joined row')}" if more else ""


def _bare(tick: Tick) -> str:
    return f"tick {tick.number}"
