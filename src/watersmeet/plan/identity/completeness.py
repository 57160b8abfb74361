"""Rule: from which event times on a query has all its results, when rows from before were not kept for it.

A pair is missing where a row came before the query asked for it as it does now: its partner was released by a
narrower interval, or was not compared with it by the condition as it is. By the bounds of a join such pairs
lie below a time of each side. A row of a padded side below it that has no match may have had a partner, and
nobody knows: it is neither padded nor put out by ANTI.

Two kinds of times, per event-time column of a side. ``below``: of every row, for partners of it may be gone;
``retained_below``: of rows that were there when the query changed, for they were compared with others that
were there by the old condition alone.

Joins above take what is missing beneath them for gone, and so on up to the query's results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import singledispatch

from watersmeet.conditions import Bound
from watersmeet.event_time import NEVER, Side, Watermark, shift, shown_time
from watersmeet.plan.identity.described import End, Wider
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan, JoinPlan, LookupPlan, NodePlan, PassPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import WINDOW_END, WINDOW_START

Times = dict[str, Watermark]
"""Per event-time column of a side, or per watermark key."""

OfSide = tuple[int, str]
"""A side: its node's number, and its name."""


@dataclass
class Completeness:
    """See the module. ``complete_from``: per watermark key; a result of which no time is less is there.
    ``problems``: why pads cannot be told from lies, for people; then the rest says nothing."""

    below: dict[OfSide, Times] = field(default_factory=dict)
    retained_below: dict[OfSide, Times] = field(default_factory=dict)
    complete_from: Times = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def completeness(
    query: QueryPlan,
    wider: Mapping[int, Wider],
    gone: Mapping[OfSide, Mapping[str, Watermark]],
    seen: Mapping[str, Watermark],
) -> Completeness:
    """Of a query that goes on with its state.

    Args:
        wider: what its joins accept that they did not accept before.
        gone: per side and event-time column, rows with lesser times were released.
        seen: per key of an input, ``alias.column``, the greatest time that its rows had; none: it had none.
    """
    told = Completeness()
    missing: dict[int, Times] = {}
    for node in query.nodes:
        told_of = _OfNode(query, node, wider.get(node.number), gone, seen, missing, told)
        missing[node.number] = told_of.leaving()
    told.complete_from = {key: time for key, time in missing[query.root.number].items() if time > NEVER}
    return told


class _OfNode:
    """What is missing at one node, and of what leaves it. ``missing``: of the nodes beneath."""

    def __init__(
        self,
        query: QueryPlan,
        node: NodePlan,
        wider: Wider | None,
        gone: Mapping[OfSide, Mapping[str, Watermark]],
        seen: Mapping[str, Watermark],
        missing: Mapping[int, Times],
        told: Completeness,
    ) -> None:
        self._query, self._node, self._wider, self._told = query, node, wider, told
        self._gone, self._greatest_times, self._missing = gone, seen, missing

    def leaving(self) -> Times:
        brought = {side.name: self._brought(side) for side in self._node.sides}
        return _leaving(self._node, self, brought)

    def refuse(self, why: str) -> Times:
        """Nothing can be said."""
        self._told.problems.append(why)
        return {}

    def _brought(self, side: SidePlan) -> Times:
        """Per event time of a side, below which rows beneath are missing."""
        times: Times = {}
        for feed in side.feeds:
            missing = {} if feed.query is not None else self._missing.get(feed.node, {})
            keys = dict(feed.event_times) or {column: column for column in side.event_times}
            for column, key in keys.items():
                if key in missing:
                    times[column] = max(missing[key], times.get(column, NEVER))
        return times

    def of_join(self, join: JoinPlan, brought: Mapping[str, Times]) -> Times:
        leaving: Times = {}
        if self._accepts_more and any(
            self._greatest(side, column) is None for side in join.sides for column in side.event_times
        ):
            self._told.problems.append(
                "nobody knows which times rows had that came from joins to a UNION ALL"
            )
            return {}
        for own in Side:
            side, other = join.side(own), join.side(own.other)
            below = dict(self._below(join, side, other, brought))
            retained = self._retained_below(join, side, other) if self._accepts_more else {}
            if below:
                self._told.below[join.number, side.name] = below
            if retained:
                self._told.retained_below[join.number, side.name] = retained
            for times in (
                brought[side.name],
                below,
                self._untold(side, retained),
                self._released(join, side),
            ):
                for column, time in times.items():
                    key = side.watermark_key(column)
                    leaving[key] = max(time, leaving.get(key, NEVER))
        return leaving

    @property
    def _accepts_more(self) -> bool:
        return self._wider is not None and self._wider.accepts_more

    def _below(
        self, join: JoinPlan, side: SidePlan, other: SidePlan, brought: Mapping[str, Times]
    ) -> Iterator[tuple[str, Watermark]]:
        """Per column of ``side`` below which partners may be gone, or be missing from beneath."""
        below: Times = {}
        of_other = self._gone.get((join.number, other.name), {})
        for column, limit in of_other.items():
            key = other.watermark_key(column)
            of_column = [b for b in join.bounds if b.evicted == key and self._is_wider(b)]
            if limit == NEVER or not of_column:
                continue
            self._note(below, side, ((b, limit) for b in of_column), other)
        missing = brought[other.name]
        if missing:
            keys = {other.watermark_key(column): time for column, time in missing.items()}
            self._note(below, side, ((b, keys[b.evicted]) for b in join.bounds if b.evicted in keys), other)
        yield from below.items()

    def _is_wider(self, bound: Bound) -> bool:
        return self._wider is not None and (bound.evicted, bound.by) in self._wider.bounds

    def _note(
        self, below: Times, side: SidePlan, limited: Iterator[tuple[Bound, Watermark]], other: SidePlan
    ) -> None:
        """Rows of ``side`` can only have a partner that is not there where each of these bounds lets them:
        one of them is enough to tell. It is that of the least time of the first column."""
        told: Times = {}
        for bound, limit in limited:
            column = next((c for c in side.event_times if side.watermark_key(c) == bound.by), None)
            if column is not None and (not told or column in told):
                time = shift(limit, bound.c + bound.slack)
                told[column] = min(time, told.get(column, time))
        for column, time in told.items():
            below[column] = max(time, below.get(column, NEVER))
        if not told and side.padded:
            self._told.problems.append(
                f"rows of {other.title} are gone, and no event time of {side.title} says which of its rows"
                " had a partner among them"
            )

    def _retained_below(self, join: JoinPlan, side: SidePlan, other: SidePlan) -> Times:
        """Per column of ``side``: rows of lesser times may have a partner that was there with them, and was
        only compared by the old condition."""
        assert self._wider is not None
        below: Times = {}
        if not self._wider.other and all(self._is_of_times(join, end) for end in self._wider.ends):
            for end in self._wider.ends:
                column, time = self._beyond(join, side, end)
                below[column] = max(time, below.get(column, NEVER))
            return below
        after = {other.watermark_key(c): shift(self._seen(other, c), 1) for c in other.event_times}
        self._note(below, side, ((b, after[b.evicted]) for b in join.bounds if b.evicted in after), other)
        return below

    def _is_of_times(self, join: JoinPlan, end: End) -> bool:
        """Whether the greatest times that were seen say who may lie beyond an end that has moved."""
        columns = ((join.left, end.left), (join.right, end.right))
        return not join.rechecks and all(measured.column in side.event_times for side, measured in columns)

    def _beyond(self, join: JoinPlan, side: SidePlan, end: End) -> tuple[str, Watermark]:
        """A column of ``side``, and a time: rows of no lesser ones have no partner between the old end and
        the new one among the rows that were seen."""
        is_left = side is join.left
        own, others = (end.left, end.right) if is_left else (end.right, end.left)
        greatest = self._seen(join.right if is_left else join.left, others.column)
        if is_left:  # partners: right in (left + old, left + new], or [left + new, left + old)
            return own.column, shift(greatest, -end.old if end.upper else 1 - end.new)
        return own.column, shift(greatest, 1 + end.new if end.upper else end.old)

    def _greatest(self, side: SidePlan, column: str) -> Watermark | None:
        """The greatest time that was seen; None: nobody knows, for other joins make the rows."""
        key = side.watermark_key(column)
        alias = next(i.alias for i in side.inputs if key.startswith(f"{i.alias}."))
        if any(own.stages for own in self._query.sides if own.name == alias):
            return None
        return self._greatest_times.get(key, NEVER)

    def _seen(self, side: SidePlan, column: str) -> Watermark:
        """The greatest time that was seen, where that is known."""
        greatest = self._greatest(side, column)
        assert greatest is not None
        return greatest

    def _untold(self, side: SidePlan, retained: Times) -> Times:
        """Below which results of two rows that were both there are missing."""
        if not self._accepts_more:
            return {}
        after = {column: shift(self._seen(side, column), 1) for column in side.event_times}
        return {column: min(time, retained.get(column, time)) for column, time in after.items()}

    def _released(self, join: JoinPlan, side: SidePlan) -> Times:
        """Below which results of rows that were released are missing."""
        of_side = self._gone.get((join.number, side.name), {})
        evicted = {b.evicted for b in join.bounds if self._is_wider(b)}
        return {
            column: limit
            for column, limit in of_side.items()
            if limit > NEVER and side.watermark_key(column) in evicted
        }


@singledispatch
def _leaving(node: NodePlan, at: _OfNode, brought: Mapping[str, Times]) -> Times:
    """Per key that leaves a node, below which rows are missing; ``brought``: the same of its sides."""
    missing = any(brought.values())
    return at.refuse(f"{node.noun or 'what is above it'} needs all rows of a join") if missing else {}


@_leaving.register(PassPlan)
@_leaving.register(LookupPlan)
def _as_they_came(node: NodePlan, at: _OfNode, brought: Mapping[str, Times]) -> Times:
    side = node.sides[0]
    return {side.watermark_key(column): time for column, time in brought[side.name].items()}


@_leaving.register
def _(node: AggregatePlan, at: _OfNode, brought: Mapping[str, Times]) -> Times:
    start = brought[node.side.name].get(node.time, NEVER)
    return {} if start == NEVER else {WINDOW_START: start, WINDOW_END: shift(start, node.size)}


@_leaving.register
def _(node: JoinPlan, at: _OfNode, brought: Mapping[str, Times]) -> Times:
    if node.asof is None and not node.changes:
        return at.of_join(node, brought)
    return at.refuse("a join above another one needs all of its rows") if any(brought.values()) else {}


def said_of(query: QueryPlan, told: Completeness) -> str:
    """What it means, for people; begins with a semicolon."""
    if not told.complete_from:
        return ""
    shown = shown_times(query, told.complete_from)
    from_when = " and ".join(f"{key} >= {time}" for key, time in shown.items())
    withheld = any(
        side.padded and (told.below.get(of_side) or told.retained_below.get(of_side))
        for node in query.nodes
        for side in node.sides
        for of_side in [(node.number, side.name)]
    )
    unknown = (
        "; rows before that without a match may have had a partner, and are counted as unknown instead of"
        " going out as if they had none"
    )
    return f"; complete are its results with {from_when}{unknown if withheld else ''}"


def shown_times(query: QueryPlan, times: Mapping[str, Watermark]) -> dict[str, str]:
    """Watermark keys and times, for people."""
    numbers = {
        f"{i.alias}.{column.name}"
        for side in query.sides
        for i in side.inputs
        for column in i.columns
        if column.type.is_integer
    }
    if all(f"{side.name}.{column}" in numbers for side in query.sides for column in side.event_times):
        numbers |= {WINDOW_START, WINDOW_END}
    return {key: shown_time(time, key in numbers) for key, time in times.items()}
