"""Rule: from which event times on a query has all its results, when rows from before were not kept for it.

A pair is missing where a row came before the query asked for it as it does now: its partner was released by a
narrower interval, or was not compared with it by the condition as it is. By the bounds of a join such pairs
lie below a time of each side. A row of a padded side below it that has no match may have had a partner, and
nobody knows: it is neither padded nor put out by ANTI.

Two kinds of times, per event-time column of a side. ``below``: of every row, for partners of it may be gone;
``retained_below``: of rows that were there when the query changed, for they were compared with others that
were there by the old condition alone.

Joins above take what is missing beneath them for gone, and so on up to the query's results. Rows may be
missing in several ways, and each says less than all: of one that was to come with a partner which is gone,
one time of each; of a pair that was there, all times. So ways are kept apart (`Missing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch

from watersmeet.conditions import Bound
from watersmeet.event_time import NEVER, Side, Watermark, shift, shown_time
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan, JoinPlan, LookupPlan, NodePlan, PassPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.query_evolution import End, Wider
from watersmeet.spec.model import WINDOW_END, WINDOW_START, WindowKind

Times = dict[str, Watermark]
"""Per event-time column of a side, or per watermark key."""

Missing = Sequence[Times]
"""Ways in which rows are missing: in each, all of a row's times that are told, and not NULL, are less."""

OfSide = tuple[int, str]
"""A side: its node's number, and its name."""


@dataclass
class Completeness:
    """Event times from which on the results of a query are complete; see the module.

    Attributes:
        missing: Per node, the ways in which rows that leave it are missing, by watermark keys.
        complete_from: Per watermark key; a result is present if none of its times is less.
        problems: Reasons, for users, why correct pads cannot be distinguished from wrong ones, or missing
            rows from rows that are not missing. If there is one, the other attributes mean nothing.
    """

    below: dict[OfSide, Times] = field(default_factory=dict)
    retained_below: dict[OfSide, Times] = field(default_factory=dict)
    missing: dict[int, Missing] = field(default_factory=dict)
    complete_from: Times = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def completeness(
    query: QueryPlan,
    wider: Mapping[int, Wider],
    gone: Mapping[OfSide, Mapping[str, Watermark]],
    seen: Mapping[str, Watermark],
    missing: Mapping[int, Missing],
) -> Completeness:
    """Compute which rows are missing from a changed query that resumes with its state.

    Args:
        wider: What the joins accept now and did not accept before.
        gone: Per side and event-time column, the time below which rows were released.
        seen: Per key of an input, ``alias.column``, the largest time of its rows. A key without a
            value had no rows.
        missing: Per node, what was already missing because the query was changed before.
    """
    told = Completeness()
    for node in query.nodes:
        of_node = _NodeCompleteness(query, node, wider.get(node.number), gone, seen, told)
        ways = [*missing.get(node.number, ()), *of_node.leaving()]
        if not all(ways):
            told.problems.append("without an event time it is unknown which rows of a join are missing")
        told.missing[node.number] = _drop_redundant(ways)
    for key in query.root.watermark_keys:
        times = [way[key] for way in told.missing[query.root.number] if key in way]
        if times:
            told.complete_from[key] = max(times)
    return told


def _drop_redundant(ways: Iterable[Times]) -> Missing:
    """Drop ways in which nothing is missing, and ways that another way includes."""
    left: list[Times] = []
    for way in ways:
        if NEVER in way.values() or any(_is_implied_by(way, other) for other in left):
            continue
        left = [other for other in left if not _is_implied_by(other, way)]
        left.append(way)
    return left


def _is_implied_by(way: Times, other: Times) -> bool:
    """Return True if all rows of `way` are also rows of `other`, with the same time columns."""
    return way.keys() == other.keys() and all(time <= other[key] for key, time in way.items())


class _NodeCompleteness:
    """Rows that are missing at one node and in its output.

    The rows missing from nodes below are already in `told`.
    """

    def __init__(
        self,
        query: QueryPlan,
        node: NodePlan,
        wider: Wider | None,
        gone: Mapping[OfSide, Mapping[str, Watermark]],
        seen: Mapping[str, Watermark],
        told: Completeness,
    ) -> None:
        self._query, self._node, self._wider, self._told = query, node, wider, told
        self._gone, self._greatest_times = gone, seen

    def leaving(self) -> Missing:
        brought = {side.name: self._brought(side) for side in self._node.sides}
        return _missing_after(self._node, self, brought)

    def refuse(self, why: str) -> Missing:
        """Record the reason why the missing rows are unknown, and return an empty result."""
        self._told.problems.append(why)
        return ()

    def _brought(self, side: SidePlan) -> Missing:
        """Return the rows missing from nodes below, by event times of a side."""
        ways: list[Times] = []
        for feed in side.feeds:
            keys = dict(feed.event_times) or {column: column for column in side.event_times}
            beneath = self._told.missing.get(feed.node, ()) if feed.query is None else ()
            ways += [{column: way[key] for column, key in keys.items() if key in way} for way in beneath]
        return ways

    def of_join(self, join: JoinPlan, brought: Mapping[str, Missing]) -> Missing:
        if self._accepts_more and any(
            self._greatest(side, column) is None for side in join.sides for column in side.event_times
        ):
            return self.refuse("the state does not record the times of joined rows in a UNION ALL")
        ways: list[Times] = []
        for own in Side:
            side, other = join.side(own), join.side(own.other)
            below: Times = {}
            for lost, told in self._without_partners(join, side, other, brought[other.name]):
                _raise_times(below, told)
                ways.append(_key_by_watermark(other, lost) | _key_by_watermark(side, told))
                ways += [_key_by_watermark(side, told)] if side.padded else []
            ways += [_key_by_watermark(other, lost) for lost in brought[other.name] if other.padded]
            if below:
                self._told.below[join.number, side.name] = below
        if self._accepts_more:
            ways += self._retained_times(join)
        leaves = {side.watermark_key(column) for side in join.leaving for column in side.event_times}
        return [{key: time for key, time in way.items() if key in leaves} for way in ways]

    @property
    def _accepts_more(self) -> bool:
        return self._wider is not None and self._wider.accepts_more

    def _without_partners(
        self, join: JoinPlan, side: SidePlan, other: SidePlan, brought: Missing
    ) -> Iterator[tuple[Times, Times]]:
        """Yield the absent rows of ``other`` and the times of ``side`` that may have matched them.

        Rows of ``other`` are absent because they were released or are missing from below. Rows of ``side``
        below these times may have had partners, as far as that is known.
        """
        of_other = self._gone.get((join.number, other.name), {})
        for column, limit in of_other.items():
            key = other.watermark_key(column)
            of_column = [b for b in join.bounds if b.evicted == key and self._is_wider(b)]
            if limit != NEVER and of_column:
                yield {column: limit}, self._partners(side, ((b, limit) for b in of_column), other)
        for lost in brought:
            keys = _key_by_watermark(other, lost)
            bounds = [b for b in join.bounds if b.evicted in keys and self._holds(join, b, other)]
            yield lost, self._partners(side, ((b, keys[b.evicted]) for b in bounds), other)

    def _is_wider(self, bound: Bound) -> bool:
        return self._wider is not None and (bound.evicted, bound.by) in self._wider.bounds

    def _holds(self, join: JoinPlan, bound: Bound, other: SidePlan) -> bool:
        """Return True if a bound holds for all rows of ``other``.

        If the bounded time may be NULL in a joined row, a bound that only follows from others does not
        hold.
        """
        if bound.evicted not in {other.watermark_key(column) for column in other.nullable}:
            return True
        bands = ((band.left.column, band.right.column) for band in join.bands)
        return {bound.evicted, bound.by} in [
            {side.watermark_key(column) for side, column in zip(join.sides, pair, strict=True)}
            for pair in bands
        ]

    def _partners(self, side: SidePlan, limited: Iterable[tuple[Bound, Watermark]], other: SidePlan) -> Times:
        """Return the times below which rows of ``side`` may have an absent partner.

        Every bound has to allow such a partner, so one bound is enough. The result uses the first column
        with a bound, and the smallest time among its bounds.
        """
        told: Times = {}
        for bound, limit in limited:
            column = next((c for c in side.event_times if side.watermark_key(c) == bound.by), None)
            if column is not None and (not told or column in told):
                time = shift(limit, bound.c + bound.slack)
                told[column] = min(time, told.get(column, time))
        if not told and side.padded:
            self._told.problems.append(
                f"rows of {other.title} were evicted, and without an event time of {side.title} it is"
                " unknown which of its rows matched them"
            )
        return told

    def _retained_times(self, join: JoinPlan) -> Iterator[Times]:
        """Yield the times of results whose rows only the old condition compared.

        These are pairs of two rows that were both in state, and rows without a match that may have had such
        a partner.
        """
        there = {
            side.watermark_key(column): shift(greatest, 1)
            for side in join.sides
            for column in side.event_times
            for greatest in [self._get_largest_time(side, column)]
            if greatest > NEVER or column not in side.nullable  # else it is NULL in all of them
        }
        for of_sides in self._retained_below(join):
            pair = dict(there)
            for side, times in zip(join.sides, of_sides, strict=True):
                keys = _key_by_watermark(side, times)
                below = {key: min(time, there.get(key, NEVER)) for key, time in keys.items()}
                _raise_times(self._told.retained_below.setdefault((join.number, side.name), {}), times)
                pair |= below
                if side.padded:
                    yield below
            yield pair

    def _retained_below(self, join: JoinPlan) -> Iterator[tuple[Times, Times]]:
        """Yield a pair of times, one per side, for each way in which the join accepts more.

        Rows with smaller times may have a partner that was in state with them and that only the old
        condition compared.
        """
        assert self._wider is not None
        if not self._wider.other and all(self._is_of_times(join, end) for end in self._wider.ends):
            for end in self._wider.ends:
                yield self._times_beyond(join, join.left, end), self._times_beyond(join, join.right, end)
            return
        left, right = (self._seen_times(join, join.side(own), join.side(own.other)) for own in Side)
        yield left, right

    def _seen_times(self, join: JoinPlan, side: SidePlan, other: SidePlan) -> Times:
        after = {
            other.watermark_key(c): shift(self._get_largest_time(other, c), 1) for c in other.event_times
        }
        bounds = [b for b in join.bounds if b.evicted in after and self._holds(join, b, other)]
        return self._partners(side, ((b, after[b.evicted]) for b in bounds), other)

    def _is_of_times(self, join: JoinPlan, end: End) -> bool:
        """Return True if the largest times seen bound the rows beyond an end that has moved."""
        columns = ((join.left, end.left), (join.right, end.right))
        return not join.rechecks and all(measured.column in side.event_times for side, measured in columns)

    def _times_beyond(self, join: JoinPlan, side: SidePlan, end: End) -> Times:
        """Return a column of ``side`` and a time that bounds rows with partners beyond the old end.

        Rows at or above this time have no partner, among the rows seen, between the old end and the new
        one.
        """
        is_left = side is join.left
        own, others = (end.left, end.right) if is_left else (end.right, end.left)
        greatest = self._get_largest_time(join.right if is_left else join.left, others.column)
        if is_left:  # partners: right in (left + old, left + new], or [left + new, left + old)
            return {own.column: shift(greatest, -end.old if end.upper else 1 - end.new)}
        return {own.column: shift(greatest, 1 + end.new if end.upper else end.old)}

    def _greatest(self, side: SidePlan, column: str) -> Watermark | None:
        """Return the largest time seen in a column.

        Returns:
            None if it is unknown, because other joins make the rows.
        """
        key = side.watermark_key(column)
        alias = next(i.alias for i in side.inputs if key.startswith(f"{i.alias}."))
        if any(own.stages for own in self._query.sides if own.name == alias):
            return None
        return self._greatest_times.get(key, NEVER)

    def _get_largest_time(self, side: SidePlan, column: str) -> Watermark:
        """Return the largest time seen in a column for which it is known."""
        greatest = self._greatest(side, column)
        assert greatest is not None
        return greatest


def _key_by_watermark(side: SidePlan, times: Mapping[str, Watermark]) -> Times:
    return {side.watermark_key(column): time for column, time in times.items()}


def _raise_times(times: Times, others: Times) -> None:
    for column, time in others.items():
        times[column] = max(time, times.get(column, NEVER))


@singledispatch
def _missing_after(node: NodePlan, at: _NodeCompleteness, brought: Mapping[str, Missing]) -> Missing:
    """Return the rows missing from the output of a node, by the keys that leave it.

    Args:
        brought: The missing rows of its sides.
    """
    missing = any(brought.values())
    return at.refuse(f"{node.noun or 'what is above it'} needs all rows of a join") if missing else ()


@_missing_after.register(PassPlan)
@_missing_after.register(LookupPlan)
def _pass_missing(node: NodePlan, at: _NodeCompleteness, brought: Mapping[str, Missing]) -> Missing:
    side = node.sides[0]
    return [_key_by_watermark(side, way) for way in brought[side.name]]


@_missing_after.register
def _(node: AggregatePlan, at: _NodeCompleteness, brought: Mapping[str, Missing]) -> Missing:
    ways = brought[node.side.name]
    if any(node.time not in way for way in ways):
        return at.refuse(
            "windows need all rows of a join, and their event time does not show which are missing"
        )
    # one that is missing may have brought those after it, within the gap, into a session of its own
    is_session = node.kind is WindowKind.SESSION
    starts = [shift(way[node.time], node.size if is_session else 0) for way in ways]
    return [{WINDOW_START: start, WINDOW_END: shift(start, node.size)} for start in starts]


@_missing_after.register
def _(node: JoinPlan, at: _NodeCompleteness, brought: Mapping[str, Missing]) -> Missing:
    if node.asof is None and not node.changes:
        return at.of_join(node, brought)
    return at.refuse("a join above another one needs all of its rows") if any(brought.values()) else ()


SHED = ", but for what shed rows would have met,"
"""What is to be said of results where rows are shed."""


def format_completeness(query: QueryPlan, told: Completeness) -> str:
    """Format the completeness of a query for users; the text begins with a semicolon.

    Returns:
        An empty text if the results are complete.
    """
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
    shed = SHED if query.options.at_limit.sheds else ""
    return f"; complete{shed} are its results with {from_when}{unknown if withheld else ''}"


def shown_times(query: QueryPlan, times: Mapping[str, Watermark]) -> dict[str, str]:
    """Format watermark keys and times for users."""
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
