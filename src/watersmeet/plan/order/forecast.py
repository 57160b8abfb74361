"""Forecast how far watermarks lag and how much state that makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch

from sqlglot import exp

from watersmeet.conditions import Bound, Horizon
from watersmeet.event_time import DAY_US, Side
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan, ArrangePlan, JoinPlan, NodePlan, WindowedPlan
from watersmeet.plan.model.sides import BranchPlan, SidePlan, joined_name
from watersmeet.plan.query_inputs import unit_of_type
from watersmeet.spec.model import WINDOW_END, WINDOW_START, Source, WatermarkRule, WindowKind
from watersmeet.types.sql_type import DATE, DOUBLE, UNKNOWN, SqlType

# What a row takes in state, by the types of its columns.

STRING_BYTES = 20
"""What a text, or any value without a fixed width, is assumed to take."""

SLOT_BYTES, ORDER_BYTES, TIME_BYTES, OFFSET_BYTES, CAME_BYTES, COUNT_BYTES = 8, 4, 8, 4, 8, 8
FURTHER_KEY_BYTES = 8
"""What it takes at most to find a row by a further key of an arrangement."""
_BITS = {
    "BOOLEAN": 1, "FLOAT": 32, "DOUBLE": 64, "DECIMAL": 128, "DATE": 32, "TIMESTAMP": 64, "TIMESTAMP_NTZ": 64,
}  # fmt: skip


@dataclass(frozen=True)
class RowBytes:
    """Bytes of a row in state. ``assumed``: columns whose width is not fixed, counted as `STRING_BYTES`;
    ``measured``: as its files have them."""

    bytes: float
    assumed: tuple[str, ...]
    measured: bool = False


def bytes_of(plan: SidePlan, orders: int, types: Mapping[str, SqlType]) -> RowBytes:
    """What a row takes in a run. ``orders``: of how many times; ``types``: of kept columns, as far as
    they are known."""
    total: float = SLOT_BYTES + ORDER_BYTES * orders
    if orders == 1:
        total += TIME_BYTES * (len(plan.event_times) - 1)
    total += len(plan.nullable) / 8
    assumed = []
    for name in plan.kept:
        if name in plan.event_times:
            total += TIME_BYTES
            continue
        width = _width(types.get(name, UNKNOWN))
        total += OFFSET_BYTES + STRING_BYTES if width is None else width
        if width is None:
            assumed.append(name)
    return RowBytes(total, tuple(assumed))


def _width(kind: SqlType) -> float | None:
    """Bytes of a value of the type; None: that is not fixed, or not known."""
    bits = kind.bits or _BITS.get(kind.name)
    return None if bits is None else bits / 8


def partial_bytes(node: AggregatePlan) -> RowBytes:
    """What a group's partial aggregates of one pane take in a run: slot, order, start, rows counted, the keys
    and what is kept of each call."""
    types = types_of_inputs(node.side)
    results = {column.name: column.type for column in node.results}
    widths: dict[str, float | None] = {column: _width(types.get(column, UNKNOWN)) for _, column in node.keys}
    for call in node.calls:
        kind = results.get(call.name)
        widths[call.text] = None if kind is None else _width(kind)
        if call.function in ("sum", "avg"):
            exact = kind != DOUBLE and (call.function == "sum" or kind is not None)
            widths[call.text] = (16 if exact else 8) + (8 if call.function == "avg" else 0)
        elif call.function in ("min_by", "max_by"):
            widths[f"{call.text} at"] = _width(types.get(call.columns[1], UNKNOWN))
    total: float = SLOT_BYTES + ORDER_BYTES + TIME_BYTES + COUNT_BYTES
    total += sum(OFFSET_BYTES + STRING_BYTES if width is None else width for width in widths.values())
    return RowBytes(total, tuple(name for name, width in widths.items() if width is None))


def types_of_inputs(plan: SidePlan) -> dict[str, SqlType]:
    """Per kept column of an input its type, as declared."""
    return {
        c.name if plan.feed is None else joined_name(i.alias, c.name): c.type
        for i in plan.inputs
        for c in i.columns
    }


# What a run of a query has measured, as far as EXPLAIN forecasts from it. The plan does not depend on it:
# a plan that changed with the data could not read its own state.


@dataclass(frozen=True)
class MeasuredSide:
    """One side of a node, as of a tick.

    ``retained``: rows, or partial aggregates of them; ``most``: the most after any tick; ``file_bytes``: what
    its files take, which may hold released rows, too; ``row_bytes``: of a row in them, None: there are none.
    ``paces``: per event-time column how many rows were kept, and how much event time (µs, or units of integer
    times) they cover: more than none. ``reaches``: per event-time column how far back from its watermark rows
    are kept; None: what releases them has no watermark yet.
    """

    retained: int
    most: int
    file_bytes: int
    row_bytes: float | None
    paces: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    reaches: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """An order of inner joins that the measured rates would have chosen, were they declared.

    ``aliases``: as they would be joined; ``rates``: rows per second to declare, per source; ``keeps`` and
    ``instead_of``: bytes, of it and of the plan's own order.
    """

    aliases: tuple[str, ...]
    rates: Mapping[str, float]
    keeps: float
    instead_of: float


@dataclass(frozen=True)
class MeasuredQuery:
    """Of one query. ``tick``: the last committed one; ``sides``: by their names in the plan; ``problem``: why
    nothing of it can be said; ``better``: other orders of joins."""

    tick: int = 0
    sides: Mapping[str, MeasuredSide] = field(default_factory=dict)
    problem: str | None = None
    better: tuple[Order, ...] = ()


# How far behind watermarks are at most, and how much state that makes: numbers, before anything runs, or
# by what a run has measured.
#
# What is assumed: event times follow the clock, no row comes before its time, every stream is read as it
# comes, none falls silent. Then W of an input is behind the clock by its lag (and allowed_lateness), a
# row that a bound ``evicted >= by - c`` releases stays for at most ``c`` and what W of ``by`` is behind,
# and the watermarks that leave a join are held back by the rows that it keeps. By the rule ``lateness =
# join`` both are what the watermark is behind that is furthest behind, and the join's reach.


@dataclass(frozen=True)
class WatermarkLag:
    """How far a watermark is behind the clock at most. ``at_most`` None: that cannot be said beforehand.

    ``held_by``: the bound by which the rows go that hold it back in its join; None: it passes as it came.
    """

    at_most: int | None
    held_by: Bound | None = None


@dataclass(frozen=True)
class SideForecast:
    """One side of a join.

    ``kept``: how long a row stays at most, None if that cannot be said; ``bound``: the one that releases it
    first, and ``behind``: how far W of its ``by`` is behind (of an ASOF join's right side without a bound,
    how far what still asks is). ``in_time``: that is in µs, not in the units of
    integer times. ``rate``: rows per second that are declared, of
    all its sources; None if some is not, or for the rows of a node beneath. ``panes``: of partial aggregates,
    which are kept instead of rows, how many panes there are at once at most.
    ``measured``: of a run; ``timed_by``: the event time that says when rows go.
    """

    side: SidePlan
    kept: int | None
    bound: Bound | None
    behind: int | None
    in_time: bool
    rate: float | None
    row: RowBytes
    timed_by: str | None = None
    measured: MeasuredSide | None = None
    panes: int | None = None

    def rows(self, rate: float) -> float | None:
        """How many are kept at most when ``rate`` rows come per second, for event times in µs."""
        return None if self.kept is None else rate * self.kept / 1_000_000

    @property
    def pace(self) -> tuple[int, int] | None:
        """Rows that were measured, and the event time that they cover."""
        if self.measured is None or self.timed_by is None:
            return None
        return self.measured.paces.get(self.timed_by)

    @property
    def rows_per_unit(self) -> float | None:
        """How many rows come per unit of event time (µs, or 1): as measured, else as declared."""
        if self.pace is not None:
            rows, span = self.pace
            return rows / span
        return None if self.rate is None or not self.in_time else self.rate / 1_000_000

    @property
    def expected(self) -> float | None:
        """How many are kept at most at that rate; None: that cannot be said."""
        rate = self.rows_per_unit
        return None if self.kept is None or rate is None else rate * self.kept


def flows(query: QueryPlan) -> list[dict[str, WatermarkLag]]:
    """Per node, the keys whose watermarks leave it, and how far they are behind."""
    by_node: list[dict[str, WatermarkLag]] = []
    for node in query.nodes:
        by_node.append(_flows(node, query, incoming(query, node, by_node)))
    return by_node


@singledispatch
def _flows(
    node: NodePlan, query: QueryPlan, behind_by_key: Mapping[str, WatermarkLag]
) -> dict[str, WatermarkLag]:
    """What leaves a node of the watermarks that come. One that keeps no rows lets them pass."""
    return {key: behind_by_key[key] for key in node.watermark_keys if key in behind_by_key}


@_flows.register
def _(node: JoinPlan, query: QueryPlan, behind_by_key: Mapping[str, WatermarkLag]) -> dict[str, WatermarkLag]:
    leaving = {
        key: _outgoing_lag(query, node, key, behind_by_key)
        for key in node.watermark_keys
        if key in behind_by_key
    }
    return {key: behind for key, behind in leaving.items() if behind is not None}


@_flows.register
def _(
    node: ArrangePlan, query: QueryPlan, behind_by_key: Mapping[str, WatermarkLag]
) -> dict[str, WatermarkLag]:
    leaving = {}
    for key in node.watermark_keys:
        if key in behind_by_key:
            held = _last_release(node, key, behind_by_key)
            if held is not None or query.options.watermark_rule is not WatermarkRule.LIMIT:
                leaving[key] = _delayed_watermark(behind_by_key[key].at_most, held)
    return leaving


@_flows.register
def _(
    node: WindowedPlan, query: QueryPlan, behind_by_key: Mapping[str, WatermarkLag]
) -> dict[str, WatermarkLag]:
    """A window's end is behind as the time is, its start by its length more; how long a session gets, nobody
    knows."""
    if node.time_key not in behind_by_key:
        return {}
    most = behind_by_key[node.time_key].at_most
    unknown = most is None or node.kind is WindowKind.SESSION
    start = None if unknown or most is None else most + node.size
    return {WINDOW_START: WatermarkLag(start), WINDOW_END: WatermarkLag(most)}


def incoming(
    query: QueryPlan, node: NodePlan, of_nodes: list[dict[str, WatermarkLag]]
) -> dict[str, WatermarkLag]:
    """The keys whose watermarks come to a node; ``of_nodes``: what leaves the nodes before it."""
    behind_by_key: dict[str, WatermarkLag] = {}
    for side in node.sides:
        if side.feed is not None:
            behind_by_key |= of_nodes[side.feed.node]
            continue
        if side.copy_of is not None:  # its watermarks are those of the input
            continue
        for place, column in enumerate(side.event_times):
            behind = _of_branches(query, side, place, column, of_nodes)
            if behind is not None:
                behind_by_key[side.watermark_key(column)] = behind
    return behind_by_key


def _of_branches(
    query: QueryPlan, side: SidePlan, place: int, column: str, of_nodes: list[dict[str, WatermarkLag]]
) -> WatermarkLag | None:
    """How far W of an input's event time is behind: as far as the branch that is furthest behind. None: some
    branch has no watermark there."""
    lags: list[int | None] = [lag_of(query, side, branch, place) for _, branch in side.sources]
    for _, feed in side.stages:
        told = of_nodes[feed.node].get(dict(feed.event_times)[column])
        if told is None:
            return None
        lags.append(told.at_most)
    finite = [lag for lag in lags if lag is not None]
    return WatermarkLag(max(finite) if len(finite) == len(lags) else None)


def lag_of(query: QueryPlan, side: SidePlan, branch: BranchPlan, place: int) -> int | None:
    """How far the watermark of a source's branch is behind; None: it moves by explicit advances."""
    lag = branch.lags[place]
    if lag is None:
        return None
    column = side.input.column(side.event_times[place])
    day = DAY_US if column is not None and column.type == DATE else 0  # its time is the day's first moment
    return lag + query.options.allowed_lateness + day


def _outgoing_lag(
    query: QueryPlan, join: JoinPlan, key: str, behind_by_key: Mapping[str, WatermarkLag]
) -> WatermarkLag | None:
    """The watermark of ``key`` as it leaves the join; None: none does."""
    came = behind_by_key[key].at_most
    if join.horizon is not None:
        own = _horizon_bound(join.horizon, key, behind_by_key)
        after = behind_by_key[own.by].at_most
        return WatermarkLag(None if after is None else after + own.c, own)
    bounds = [b for b in join.bounds if b.evicted == key and b.by in behind_by_key]
    held = _first_release(bounds, _delay_left_watermark(join, behind_by_key))
    if query.options.watermark_rule is WatermarkRule.LIMIT and join.asof is None:
        if held is None:
            return None
    elif not join.matchable:
        return WatermarkLag(came)
    return _delayed_watermark(came, held)


def _horizon_bound(horizon: Horizon, key: str, behind_by_key: Mapping[str, WatermarkLag]) -> Bound:
    """By what rows of ``key`` go and its watermark leaves: that of both sides which is furthest behind."""

    def behind(by: str) -> float:
        at_most = behind_by_key[by].at_most
        return math.inf if at_most is None else at_most

    return Bound(key, max(horizon.keys, key=behind), horizon.reach, "")


def _delayed_watermark(came: int | None, held: tuple[Bound, int | None] | None) -> WatermarkLag:
    """A watermark that came, behind rows that are ``held`` (see `_first_release`; None: by other times)."""
    if held is None:
        return WatermarkLag(None)
    bound, after = held
    if after is not None and came is not None and after <= came:
        return WatermarkLag(came)
    return WatermarkLag(None if after is None or came is None else after, bound)


def _delay_left_watermark(
    join: JoinPlan, behind_by_key: Mapping[str, WatermarkLag]
) -> Mapping[str, WatermarkLag]:
    """Of an ASOF join, with the watermark of its left time as far behind as left rows that wait hold it."""
    if join.asof is None:
        return behind_by_key
    band = join.bands[0]
    left, right = join.left.watermark_key(band.left.column), join.right.watermark_key(band.right.column)
    if left not in behind_by_key or right not in behind_by_key or band.upper is None:
        return behind_by_key
    parts = (behind_by_key[left].at_most, behind_by_key[right].at_most)
    if parts[0] is None or parts[1] is None:
        return {**behind_by_key, left: WatermarkLag(None)}
    return {**behind_by_key, left: WatermarkLag(max(parts[0], parts[1] + band.upper))}


def _first_release(
    bounds: list[Bound], behind_by_key: Mapping[str, WatermarkLag]
) -> tuple[Bound, int | None] | None:
    """The bound that releases a row first, and how long after the row's time (None: cannot be said)."""
    told = [(b, b.c + behind) for b in bounds if (behind := behind_by_key[b.by].at_most) is not None]
    if told:
        return min(told, key=lambda pair: pair[1])
    return (bounds[0], None) if bounds else None


def _last_release(
    node: ArrangePlan, key: str, behind_by_key: Mapping[str, WatermarkLag]
) -> tuple[Bound, int | None] | None:
    """As `_first_release`, where each of the other streams has to release the row."""
    held = [
        _first_release([b for b in other.bounds if b.evicted == key], behind_by_key)
        for retention in node.retentions
        if any(b.evicted == key for other in retention.others for b in other.bounds)
        for other in retention.others
    ]
    releases = [release for release in held if release is not None]
    if not releases or len(releases) < len(held):
        return None
    unknown = [release for release in releases if release[1] is None]
    return unknown[0] if unknown else max(releases, key=lambda release: release[1] or 0)


def side_forecasts(
    query: QueryPlan, measured: Mapping[str, MeasuredSide] | None = None
) -> list[tuple[JoinPlan, tuple[SideForecast, SideForecast]]]:
    """Both sides of every join. ``measured``: by the sides' names."""
    leaving, run = flows(query), measured or {}
    forecasts = []
    for node in query.every(JoinPlan):
        behind_by_key = incoming(query, node, leaving)
        left, right = (_apply_measurements(_side(node, side, behind_by_key), run) for side in Side)
        forecasts.append((node, (left, right)))
    return forecasts


def _apply_measurements(forecast: SideForecast, run: Mapping[str, MeasuredSide]) -> SideForecast:
    """The forecast by what was measured of the side."""
    measured_side = run.get(forecast.side.name)
    if measured_side is None:
        return forecast
    row = (
        forecast.row
        if measured_side.row_bytes is None
        else RowBytes(measured_side.row_bytes, (), measured=True)
    )
    return replace(forecast, measured=measured_side, row=row)


def _side(join: JoinPlan, side: Side, behind_by_key: Mapping[str, WatermarkLag]) -> SideForecast:
    plan = join.side(side)
    keys = {plan.watermark_key(column) for column in plan.event_times}
    bounds = [b for b in join.bounds if b.evicted in keys and b.by in behind_by_key]
    timed = [b for b in bounds if key_in_time(join, b.evicted)]
    behind_by_key = _delay_left_watermark(join, behind_by_key)
    if join.horizon is not None:
        timed = [_horizon_bound(join.horizon, key, behind_by_key) for key in keys if timed]
        bounds = [_horizon_bound(join.horizon, key, behind_by_key) for key in keys]
    held = _first_release(timed or bounds, behind_by_key)
    bound, after = held if held is not None else (None, None)
    if not join.matchable:
        bound, after = None, 0
    asking = join.left.watermark_key(join.bands[0].left.column) if join.asof is not None else None
    by = bound.by if bound is not None else asking
    in_time = bool(timed) or not bounds
    if asking is not None:
        in_time = key_in_time(join, asking)
    return SideForecast(
        side=plan,
        kept=None if after is None else max(after, 0),
        bound=bound,
        behind=None if by is None or by not in behind_by_key else behind_by_key[by].at_most,
        in_time=in_time,
        rate=None if plan.stages else _rate([branch.source for _, branch in plan.sources]),
        row=row_bytes(join, side),
        timed_by=_eviction_column(join, side, bound),
    )


def _eviction_column(join: JoinPlan, side: Side, bound: Bound | None) -> str | None:
    """The event time of the side by which its rows go."""
    plan = join.side(side)
    if bound is not None:
        return next(c for c in plan.event_times if plan.watermark_key(c) == bound.evicted)
    return join.bands[0].measured(side).column if join.asof is not None else None


def window_forecasts(
    query: QueryPlan, measured: Mapping[str, MeasuredSide] | None = None
) -> list[tuple[AggregatePlan, SideForecast]]:
    """The side of every aggregation. A row, or a pane's partial aggregates, is kept until its last window
    closes: for at most their size and what the watermark is behind; how long a session lasts, nobody
    knows."""
    leaving = flows(query)
    forecasts = []
    for node in query.every(AggregatePlan):
        behind = incoming(query, node, leaving)[node.time_key].at_most
        unknown = behind is None or node.kind is WindowKind.SESSION
        plan = node.side
        kept = None if unknown or behind is None else node.size + behind
        forecast = SideForecast(
            side=plan,
            kept=kept,
            bound=None,
            behind=behind,
            in_time=key_in_time(node, node.time_key),
            rate=None if plan.feeds else _rate([branch.source for _, branch in plan.sources]),
            row=bytes_of(plan, 1, types_of_inputs(plan)) if node.keeps_rows else partial_bytes(node),
            panes=None if node.keeps_rows or kept is None else -(-kept // node.pane),
            timed_by=node.time,
        )
        forecasts.append((node, _apply_measurements(forecast, measured or {})))
    return forecasts


def arranged_forecasts(
    query: QueryPlan, measured: Mapping[str, MeasuredSide] | None = None
) -> list[tuple[ArrangePlan, list[SideForecast]]]:
    """What delta joins keep, per side: of streams what no other stream can bring a partner for any more."""
    leaving, forecasts = flows(query), []
    for node in query.every(ArrangePlan):
        behind_by_key = incoming(query, node, leaving)
        sides = [_forecast_arrangement(node, place, behind_by_key) for place in range(len(node.sides))]
        forecasts.append((node, [_apply_measurements(forecast, measured or {}) for forecast in sides]))
    return forecasts


def _forecast_arrangement(
    node: ArrangePlan, place: int, behind_by_key: Mapping[str, WatermarkLag]
) -> SideForecast:
    side = node.sides[place]
    releases = [_last_release(node, side.watermark_key(column), behind_by_key) for column in side.event_times]
    held = [release for release in releases if release is not None]
    bound, after = min(held, key=lambda own: (own[1] is None, own[1] or 0), default=(None, None))
    row = bytes_of(side, len(side.event_times), types_of_inputs(side))
    return SideForecast(
        side=side,
        kept=None if after is None else max(after, 0),
        bound=bound,
        behind=None if bound is None else behind_by_key[bound.by].at_most,
        in_time=bound is None or key_in_time(node, bound.evicted),
        rate=None if side.stages else _rate([branch.source for _, branch in side.sources]),
        row=replace(row, bytes=row.bytes + FURTHER_KEY_BYTES * len(node.arranged[place].others)),
        timed_by=next(
            (c for c in side.event_times if bound and side.watermark_key(c) == bound.evicted), None
        ),
    )


def forecasts_of(
    query: QueryPlan, measured: Mapping[str, MeasuredSide] | None = None
) -> list[tuple[NodePlan, Sequence[SideForecast]]]:
    """Of all nodes that keep rows of streams, each with its sides."""
    return [
        *side_forecasts(query, measured),
        *arranged_forecasts(query, measured),
        *((node, [forecast]) for node, forecast in window_forecasts(query, measured)),
    ]


def key_in_time(node: NodePlan, key: str) -> bool:
    """Whether the times of a watermark key are TIMESTAMP or DATE, not integers."""
    return any(
        joined_name(i.alias, column.name) == key and unit_of_type(column.type).is_time
        for side in node.sides
        for i in side.inputs
        for column in i.columns
    )


def _rate(sources: list[Source]) -> float | None:
    rates = [source.rows_per_second for source in sources]
    return None if not rates or None in rates else sum(rate or 0.0 for rate in rates)


def state_bytes(query: QueryPlan, aliases: frozenset[str] | None = None) -> float | None:
    """Of all that the joins of these inputs keep (None: of all inputs), rows between joins too; None where
    something has no forecast. By declared rates.

    How many rows leave a join depends on the data. Assumed is that by an equality key each row of the slower
    side finds one of the other, and that without one all that is within the band's reach match.
    """
    total, rates = 0.0, dict[int, float]()
    for join, both in side_forecasts(query):
        own = [_rate_in(side, rates) for side in both]
        if own[0] is not None and own[1] is not None and both[0].in_time:
            rates[join.number] = _rate_out(join, own[0], own[1])
        if aliases is not None and not aliases.issuperset(i.alias for s in join.sides for i in s.inputs):
            continue
        for forecast, rate in zip(both, own, strict=True):
            if rate is None or forecast.kept is None or not forecast.in_time:
                return None
            total += (forecast.rows(rate) or 0.0) * forecast.row.bytes
    return total


def _rate_in(side: SideForecast, rate_of_node: Mapping[int, float]) -> float | None:
    """Rows per second of a side; None: not all that comes is declared. ``rate_of_node``: of joined rows."""
    declared = [branch.source.rows_per_second for _, branch in side.side.sources]
    rates = [*declared, *(rate_of_node.get(feed.node) for feed in side.side.feeds)]
    finite = [rate for rate in rates if rate is not None]
    return sum(finite) if rates and len(finite) == len(rates) else None


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
    size = bytes_of(plan, len(releasing if join.asof is None else plan.event_times), _types(join, side))
    is_sought = join.asof is not None and side is Side.RIGHT
    return replace(size, bytes=size.bytes + CAME_BYTES) if is_sought else size


def _types(join: JoinPlan, side: Side) -> dict[str, SqlType]:
    """Types of kept columns by name, as far as they are known: of inputs, and of keys that are one column."""
    types = types_of_inputs(join.side(side))
    for key in join.keys:
        expr = key.expr(side)
        if isinstance(expr, exp.Column) and expr.name in types:
            types.setdefault(key.column(side), types[expr.name])
    return types
