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
    """Bytes of a row in state.

    Attributes:
        assumed: columns without a fixed width, counted as `STRING_BYTES`.
        measured: True if the widths are those of the source's files.
    """

    bytes: float
    assumed: tuple[str, ...]
    measured: bool = False


def bytes_of(plan: SidePlan, orders: int, types: Mapping[str, SqlType]) -> RowBytes:
    """Estimate the bytes of a row in a run.

    Args:
        orders: Number of times that the run stores an order for.
        types: Known types of the retained columns.
    """
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
    """Return the bytes of a value of the type, or None if the width is variable or unknown."""
    bits = kind.bits or _BITS.get(kind.name)
    return None if bits is None else bits / 8


def partial_bytes(node: AggregatePlan) -> RowBytes:
    """Estimate the bytes of a group's partial aggregates of one pane in a run.

    They consist of slot, order, start, row count, keys, and the stored value of each call.
    """
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
    """Return the declared type of each retained column of an input."""
    return {
        c.name if plan.feed is None else joined_name(i.alias, c.name): c.type
        for i in plan.inputs
        for c in i.columns
    }


# What a run of a query has measured, as far as EXPLAIN forecasts from it. The plan does not depend on it:
# a plan that changed with the data could not read its own state.


@dataclass(frozen=True)
class MeasuredSide:
    """Measurements of one side of a node as of a tick.

    Attributes:
        retained: number of retained rows, or of partial aggregates.
        most: largest number of these after any tick.
        file_bytes: size of its files, which may contain released rows, too.
        row_bytes: average bytes of a row in the files; None if there are none.
        paces: per event-time column, the number of rows and the event time (µs, or units of integer times;
            above 0) that they cover.
        reaches: per event-time column, how far behind its watermark rows are retained; None if the times
            that release them have no watermark yet.
    """

    retained: int
    most: int
    file_bytes: int
    row_bytes: float | None
    paces: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    reaches: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """Order of inner joins that the measured rates would have chosen, had they been declared.

    Attributes:
        aliases: the inputs in join order.
        rates: rows per second to declare, per source.
        keeps: bytes of state with this order.
        instead_of: bytes of state with the plan's own order.
    """

    aliases: tuple[str, ...]
    rates: Mapping[str, float]
    keeps: float
    instead_of: float


@dataclass(frozen=True)
class MeasuredQuery:
    """Measurements of one query.

    Attributes:
        tick: Last committed tick.
        sides: Measured sides, by their names in the plan.
        problem: Reason why there are no measurements.
        better: Better orders of the joins.
    """

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
    """Maximum delay of a watermark behind the clock.

    Attributes:
        at_most: The delay; None if it is unknown in advance.
        held_by: Bound that evicts the rows that hold back the watermark in its join. None: the
            watermark passes unchanged.
    """

    at_most: int | None
    held_by: Bound | None = None


@dataclass(frozen=True)
class SideForecast:
    """Forecast of one side of a join.

    Attributes:
        kept: Maximum time that a row stays in state; None if unknown.
        bound: Bound that releases a row first.
        behind: Delay of the watermark W of the bound's ``by``. For the right side of an ASOF join
            without a bound, the delay of the left rows that still wait.
        in_time: Times are in µs, not in the units of integer times.
        rate: Declared rows per second of all its sources. None if one is not declared, or for the rows
            of a node below.
        panes: Maximum number of panes at once, if state retains partial aggregates instead of rows.
        measured: Measurements of a run.
        timed_by: Event time that decides when rows are released.
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
        """Return the maximum number of retained rows at ``rate`` rows per second, for times in µs."""
        return None if self.kept is None else rate * self.kept / 1_000_000

    @property
    def pace(self) -> tuple[int, int] | None:
        """Rows that were measured, and the event time that they cover."""
        if self.measured is None or self.timed_by is None:
            return None
        return self.measured.paces.get(self.timed_by)

    @property
    def rows_per_unit(self) -> float | None:
        """Rows per unit of event time (µs, or 1): the measured rate, otherwise the declared one."""
        if self.pace is not None:
            rows, span = self.pace
            return rows / span
        return None if self.rate is None or not self.in_time else self.rate / 1_000_000

    @property
    def expected(self) -> float | None:
        """Maximum number of retained rows at that rate; None if unknown."""
        rate = self.rows_per_unit
        return None if self.kept is None or rate is None else rate * self.kept


def flows(query: QueryPlan) -> list[dict[str, WatermarkLag]]:
    """Return, per node, the delays of the watermarks that leave it, by watermark key."""
    by_node: list[dict[str, WatermarkLag]] = []
    for node in query.nodes:
        by_node.append(_flows(node, query, incoming(query, node, by_node)))
    return by_node


@singledispatch
def _flows(
    node: NodePlan, query: QueryPlan, behind_by_key: Mapping[str, WatermarkLag]
) -> dict[str, WatermarkLag]:
    """Return the watermarks that leave a node; a node that retains no rows passes them through."""
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
    """Return the watermarks of windows: the end follows the time, the start by its length more.

    The length of a session is unknown.
    """
    if node.time_key not in behind_by_key:
        return {}
    most = behind_by_key[node.time_key].at_most
    unknown = most is None or node.kind is WindowKind.SESSION
    start = None if unknown or most is None else most + node.size
    return {WINDOW_START: WatermarkLag(start), WINDOW_END: WatermarkLag(most)}


def incoming(
    query: QueryPlan, node: NodePlan, of_nodes: list[dict[str, WatermarkLag]]
) -> dict[str, WatermarkLag]:
    """Return the watermarks that reach a node, by key.

    Args:
        of_nodes: Watermarks that leave the nodes before it.
    """
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
    """Return the delay of the watermark of an input's event time: that of its slowest branch.

    Returns:
        None if some branch has no watermark there.
    """
    lags: list[int | None] = [lag_of(query, side, branch, place) for _, branch in side.sources]
    for _, feed in side.stages:
        told = of_nodes[feed.node].get(dict(feed.event_times)[column])
        if told is None:
            return None
        lags.append(told.at_most)
    finite = [lag for lag in lags if lag is not None]
    return WatermarkLag(max(finite) if len(finite) == len(lags) else None)


def lag_of(query: QueryPlan, side: SidePlan, branch: BranchPlan, place: int) -> int | None:
    """Return the delay of the watermark of a source's branch.

    Returns:
        None if the watermark moves by explicit advances.
    """
    lag = branch.lags[place]
    if lag is None:
        return None
    column = side.input.column(side.event_times[place])
    day = DAY_US if column is not None and column.type == DATE else 0  # its time is the day's first moment
    return lag + query.options.allowed_lateness + day


def _outgoing_lag(
    query: QueryPlan, join: JoinPlan, key: str, behind_by_key: Mapping[str, WatermarkLag]
) -> WatermarkLag | None:
    """Return the watermark of ``key`` as it leaves the join, or None if none leaves."""
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
    """Return the bound that releases rows of ``key`` and moves its watermark.

    It follows the slower watermark of the two sides.
    """

    def get_max_delay(by: str) -> float:
        at_most = behind_by_key[by].at_most
        return math.inf if at_most is None else at_most

    return Bound(key, max(horizon.keys, key=get_max_delay), horizon.reach, "")


def _delayed_watermark(came: int | None, held: tuple[Bound, int | None] | None) -> WatermarkLag:
    """Return an incoming watermark delayed by the rows that a node retains.

    Args:
        held: See `_first_release`. None: other times release the rows.
    """
    if held is None:
        return WatermarkLag(None)
    bound, after = held
    if after is not None and came is not None and after <= came:
        return WatermarkLag(came)
    return WatermarkLag(None if after is None or came is None else after, bound)


def _delay_left_watermark(
    join: JoinPlan, behind_by_key: Mapping[str, WatermarkLag]
) -> Mapping[str, WatermarkLag]:
    """Return the delays with the left time of an ASOF join delayed by its waiting left rows.

    For any other join, return the delays unchanged.
    """
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
    """Return the bound that releases a row first, and the delay after the row's time.

    The delay is None if it is unknown.
    """
    told = [(b, b.c + behind) for b in bounds if (behind := behind_by_key[b.by].at_most) is not None]
    if told:
        return min(told, key=lambda pair: pair[1])
    return (bounds[0], None) if bounds else None


def _last_release(
    node: ArrangePlan, key: str, behind_by_key: Mapping[str, WatermarkLag]
) -> tuple[Bound, int | None] | None:
    """Return the bound that releases a row last, as all other streams have to release it.

    The result has the form of `_first_release`: the bound and the delay after the row's time, None if
    unknown.
    """
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
    """Forecast both sides of every join.

    Args:
        measured: Measured sides, by name.
    """
    leaving, run = flows(query), measured or {}
    forecasts = []
    for node in query.every(JoinPlan):
        behind_by_key = incoming(query, node, leaving)
        left, right = (_apply_measurements(_side(node, side, behind_by_key), run) for side in Side)
        forecasts.append((node, (left, right)))
    return forecasts


def _apply_measurements(forecast: SideForecast, run: Mapping[str, MeasuredSide]) -> SideForecast:
    """Replace parts of the forecast with measurements of the side."""
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
    """Return the event time that evicts rows of the side, or None."""
    plan = join.side(side)
    if bound is not None:
        return next(c for c in plan.event_times if plan.watermark_key(c) == bound.evicted)
    return join.bands[0].measured(side).column if join.asof is not None else None


def window_forecasts(
    query: QueryPlan, measured: Mapping[str, MeasuredSide] | None = None
) -> list[tuple[AggregatePlan, SideForecast]]:
    """Forecast the side of every aggregation.

    A row, or the partial aggregates of a pane, stays until its last window closes: at most the window
    size plus the watermark's delay. The length of a session is unknown.
    """
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
    """Forecast, per side, the rows that delta joins retain.

    A row of a stream stays until no other stream can bring a partner.
    """
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
    """Forecast all nodes that retain rows of streams, each with its sides."""
    return [
        *side_forecasts(query, measured),
        *arranged_forecasts(query, measured),
        *((node, [forecast]) for node, forecast in window_forecasts(query, measured)),
    ]


def key_in_time(node: NodePlan, key: str) -> bool:
    """Return True if the times of a watermark key are TIMESTAMP or DATE, not integers."""
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
    """Estimate the bytes that joins of these inputs retain, by declared rates.

    The estimate includes rows between joins. The number of rows that leave a join depends on the data.
    The estimate assumes that with an equality key each row of the slower side finds one row of the
    other, and that without one all rows within reach of the band match.

    Args:
        aliases: Inputs of the joins; None for all inputs.

    Returns:
        None if a part has no forecast.
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
    """Return the rows per second of a side, or None if some of its inputs declare no rate.

    Args:
        rate_of_node: Rates of joined rows, by node.
    """
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
    """Estimate the bytes of a row of the side in a run.

    They consist of its slot, an order per time that releases rows, and the retained columns.
    """
    plan = join.side(side)
    releasing = {b.evicted for b in join.bounds} & {plan.watermark_key(c) for c in plan.event_times}
    size = bytes_of(plan, len(releasing if join.asof is None else plan.event_times), _types(join, side))
    is_sought = join.asof is not None and side is Side.RIGHT
    return replace(size, bytes=size.bytes + CAME_BYTES) if is_sought else size


def _types(join: JoinPlan, side: Side) -> dict[str, SqlType]:
    """Return the known types of retained columns by name.

    Known are the columns of inputs, and keys that are one column.
    """
    types = types_of_inputs(join.side(side))
    for key in join.keys:
        expr = key.expr(side)
        if isinstance(expr, exp.Column) and expr.name in types:
            types.setdefault(key.column(side), types[expr.name])
    return types
