"""How far behind watermarks are at most, and how much state that makes: numbers, before anything runs.

What is assumed: event times follow the clock, no row comes before its time, every stream is read as it comes,
none falls silent. Then W of an input is behind the clock by its lag (and allowed_lateness), a
row that a bound ``evicted >= by - c`` releases stays for at most ``c`` and what W of ``by`` is behind, and
the watermarks that leave a join are held back by the rows that it keeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.event_time import DAY_US, Side
from watersmeet.plan.model import Bound, JoinPlan, QueryPlan, SidePlan, joined_name
from watersmeet.plan.scope import INTEGER_BITS, unit_of_type
from watersmeet.spec.model import Source, WatermarkRule

STRING_BYTES = 20
"""What a text, or any value without a fixed width, is assumed to take."""

SLOT_BYTES, ORDER_BYTES, TIME_BYTES, OFFSET_BYTES = 8, 4, 8, 4
_BITS = {"BOOLEAN": 1, "FLOAT": 32, "REAL": 32, "DOUBLE": 64, "DATE": 32, **INTEGER_BITS}
_BITS |= {"DECIMAL": 128, "DEC": 128, "NUMERIC": 128}
_BITS |= dict.fromkeys(("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"), 64)


@dataclass(frozen=True)
class Behind:
    """How far a watermark is behind the clock at most. ``at_most`` None: that cannot be said beforehand.

    ``held_by``: the bound by which the rows go that hold it back in its join; None: it passes as it came.
    """

    at_most: int | None
    held_by: Bound | None = None


@dataclass(frozen=True)
class RowBytes:
    """Bytes of a row in state. ``assumed``: columns whose width is not fixed, counted as `STRING_BYTES`."""

    bytes: float
    assumed: tuple[str, ...]


@dataclass(frozen=True)
class SideForecast:
    """One side of a join.

    ``kept``: how long a row stays at most, None if that cannot be said; ``bound``: the one that releases it
    first, and ``behind``: how far W of its ``by`` is behind. ``in_time``: that is in µs, not in the units of
    integer times. ``rate``: rows per second that are declared, of
    all its sources; None if some is not, or for the rows of a join beneath.
    """

    side: SidePlan
    kept: int | None
    bound: Bound | None
    behind: int | None
    in_time: bool
    rate: float | None
    row: RowBytes

    def rows(self, rate: float) -> float | None:
        """How many are kept at most when ``rate`` rows come per second, for event times in µs."""
        return None if self.kept is None else rate * self.kept / 1_000_000


def flows(query: QueryPlan) -> list[dict[str, Behind]]:
    """Per join, the keys whose watermarks leave it, and how far they are behind."""
    found: list[dict[str, Behind]] = []
    for join in query.joins:
        known = incoming(query, join, found)
        out: dict[str, Behind] = {}
        for side in (Side.LEFT,) if join.kind.hides_right else Side:
            plan = join.side(side)
            for column in plan.event_times:
                key = plan.watermark_key(column)
                if key not in known:
                    continue
                leaving = _leaving(query, join, plan, key, known)
                if leaving is not None:
                    out[key] = leaving
        found.append(out)
    return found


def incoming(query: QueryPlan, join: JoinPlan, beneath: list[dict[str, Behind]]) -> dict[str, Behind]:
    """The keys whose watermarks come to a join; ``beneath``: what leaves the joins before it."""
    known: dict[str, Behind] = {}
    for side in Side:
        plan = join.side(side)
        if plan.feed is not None:
            known |= beneath[plan.feed.join]
            continue
        for place, column in enumerate(plan.event_times):
            lags = [branch.lags[place] for branch in plan.branches]
            greatest = None if None in lags else max(lag or 0 for lag in lags)
            late = query.options.allowed_lateness
            found = plan.input.column(column)
            if found is not None and found.type == "DATE":
                late += DAY_US  # its time is the day's first moment
            known[plan.watermark_key(column)] = Behind(None if greatest is None else greatest + late)
    return known


def _leaving(
    query: QueryPlan, join: JoinPlan, plan: SidePlan, key: str, known: Mapping[str, Behind]
) -> Behind | None:
    """The watermark of ``key`` as it leaves the join; None: none does."""
    came = known[key].at_most
    bounds = [b for b in join.bounds if b.evicted == key and b.by in known]
    held = _first_release(bounds, known)
    if query.options.watermark_rule is WatermarkRule.LIMIT:
        if held is None:
            return None
    elif not join.matchable:
        return Behind(came)
    elif held is None:
        return Behind(None)
    bound, after = held
    if after is not None and came is not None and after <= came:
        return Behind(came)
    return Behind(None if after is None or came is None else after, bound)


def _first_release(bounds: list[Bound], known: Mapping[str, Behind]) -> tuple[Bound, int | None] | None:
    """The bound that releases a row first, and how long after the row's time (None: cannot be said)."""
    told = [(b, b.c + behind) for b in bounds if (behind := known[b.by].at_most) is not None]
    if told:
        return min(told, key=lambda pair: pair[1])
    return (bounds[0], None) if bounds else None


def side_forecasts(query: QueryPlan) -> list[tuple[SideForecast, SideForecast]]:
    """Both sides of every join."""
    leaving = flows(query)
    found = []
    for join in query.joins:
        known = incoming(query, join, leaving)
        left, right = (_side(join, side, known) for side in Side)
        found.append((left, right))
    return found


def _side(join: JoinPlan, side: Side, known: Mapping[str, Behind]) -> SideForecast:
    plan = join.side(side)
    keys = {plan.watermark_key(column) for column in plan.event_times}
    bounds = [b for b in join.bounds if b.evicted in keys and b.by in known]
    timed = [b for b in bounds if key_in_time(join, b.evicted)]
    held = _first_release(timed or bounds, known)
    bound, after = held if held is not None else (None, None)
    if not join.matchable:
        bound, after = None, 0
    return SideForecast(
        side=plan,
        kept=None if after is None else max(after, 0),
        bound=bound,
        behind=None if bound is None else known[bound.by].at_most,
        in_time=bool(timed) or not bounds,
        rate=_rate([branch.source for branch in plan.branches]),
        row=row_bytes(join, side),
    )


def key_in_time(join: JoinPlan, key: str) -> bool:
    """Whether the times of a watermark key are TIMESTAMP or DATE, not integers."""
    return any(
        joined_name(i.alias, column.name) == key and unit_of_type(column.type).is_time
        for side in (join.left, join.right)
        for i in side.inputs
        for column in i.columns
    )


def _rate(sources: list[Source]) -> float | None:
    rates = [source.rows_per_second for source in sources]
    return None if not rates or None in rates else sum(rate or 0.0 for rate in rates)


def state_bytes(query: QueryPlan) -> float | None:
    """Of all that the query keeps, rows between joins too; None where something has no forecast.

    How many rows leave a join depends on the data. Assumed is that by an equality key each row of the slower
    side finds one of the other, and that without one all that is within the band's reach match.
    """
    total, rates = 0.0, list[float]()
    for join, both in zip(query.joins, side_forecasts(query), strict=True):
        own: list[float] = []
        for each in both:
            rate = each.rate if each.side.feed is None else rates[each.side.feed.join]
            if rate is None or each.kept is None or not each.in_time:
                return None
            own.append(rate)
            total += (each.rows(rate) or 0.0) * each.row.bytes
        rates.append(_rate_out(join, own[0], own[1]))
    return total


def _rate_out(join: JoinPlan, left: float, right: float) -> float:
    if join.kind.hides_right:
        return left
    if join.keys:
        inner = min(left, right)
    else:
        widths = [b.upper - b.lower for b in join.bands if b.upper is not None and b.lower is not None]
        inner = left * right * min(widths, default=0) / 1_000_000
    outer = (left if join.kind.pads_left else 0.0, right if join.kind.pads_right else 0.0)
    return max(inner, *outer)


def row_bytes(join: JoinPlan, side: Side) -> RowBytes:
    """What a row of the side takes in a run: its slot, an order per time that releases, the kept columns."""
    plan = join.side(side)
    releasing = {b.evicted for b in join.bounds} & {plan.watermark_key(c) for c in plan.event_times}
    total: float = SLOT_BYTES + ORDER_BYTES * len(releasing)
    if len(releasing) == 1:
        total += TIME_BYTES * (len(plan.event_times) - 1)
    total += len(plan.nullable) / 8
    assumed = []
    types = _types(join, side)
    for name in plan.kept:
        if name in plan.event_times:
            total += TIME_BYTES
            continue
        bits = _BITS.get(re.split(r"[(<\s]", types.get(name, ""), maxsplit=1)[0])
        total += OFFSET_BYTES + STRING_BYTES if bits is None else bits / 8
        if bits is None:
            assumed.append(name)
    return RowBytes(total, tuple(assumed))


def _types(join: JoinPlan, side: Side) -> dict[str, str]:
    """Types of kept columns by name, as far as they are known: of inputs, and of keys that are one column."""
    plan = join.side(side)
    types = {
        c.name if plan.feed is None else joined_name(i.alias, c.name): c.type
        for i in plan.inputs
        for c in i.columns
    }
    for key in join.keys:
        expr = key.expr(side)
        if isinstance(expr, exp.Column) and expr.name in types:
            types.setdefault(key.column(side), types[expr.name])
    return types
