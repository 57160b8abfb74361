"""EXPLAIN: how much state a query is expected to keep, and which of it could be kept shorter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.conditions import ExactBand
from watersmeet.event_time import Side
from watersmeet.names import is_computed
from watersmeet.plan.explain.durations import distance, rounded_up
from watersmeet.plan.explain.measured import known_by, now_line, order_lines, reach_advice
from watersmeet.plan.explain.windows import pane_name
from watersmeet.plan.explain.words import INDENT, Sections, node_name, number_of, size_of
from watersmeet.plan.model.delta import ArrangePlan
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan, JoinPlan
from watersmeet.plan.order.forecast import (
    SideForecast,
    arranged_forecasts,
    side_forecasts,
    window_forecasts,
)
from watersmeet.plan.order.measured import MeasuredQuery
from watersmeet.plan.order.row_bytes import FURTHER_KEY_BYTES, STRING_BYTES
from watersmeet.spec.model import WindowKind

ASSUMED_RATE = 1000.0
_MANY_TIMES = 3
"""A lag that is this many times the interval is worth a word."""


@dataclass(frozen=True)
class _Of:
    """A side of a join, by its name in EXPLAIN."""

    name: str
    join: JoinPlan
    own: Side
    forecast: SideForecast

    def distance(self, value: int) -> str:
        return distance(value, self.forecast.in_time)


def state_sections(query: QueryPlan, measured: MeasuredQuery | None = None) -> Sections:
    """A forecast of rows and bytes, and advice; ``measured``: by a run."""
    run = MeasuredQuery() if measured is None else measured
    sides = [
        _Of(
            forecast.side.title
            if len(query.nodes) == 1
            else f"{node_name(query, join)}, {forecast.side.title}",
            join,
            own,
            forecast,
        )
        for join, both in side_forecasts(query, run.sides)
        for own, forecast in zip(Side, both, strict=True)
    ]
    windows = window_forecasts(query, run.sides)
    arranged = arranged_forecasts(query, run.sides)
    lines = [line for of in sides for line in _forecast(query, of)]
    lines += [line for node, forecasts in arranged for line in _of_arrangements(query, node, forecasts)]
    lines += [line for node, forecast in windows for line in _of_windows(query, node, forecast)]
    if not lines:
        return []
    kept = [of.forecast for of in sides if of.forecast.bound is not None]
    kept += [forecast for _, forecasts in arranged for forecast in forecasts if forecast.bound is not None]
    kept += [forecast for _, forecast in windows]
    every = [of.forecast for of in sides] + [forecast for _, forecasts in arranged for forecast in forecasts]
    every += [forecast for _, forecast in windows]
    lines += _total(every)
    lines += [f"assumed: {text}" for text in _assumptions(kept)]
    return [
        (f"State forecast ({known_by(run, every)})", lines),
        ("Could be retained for less time", [line for of in sides for line in _advice(of)]),
        ("Another order of the joins", list(order_lines(run))),
    ]


def shared_lines(query: QueryPlan) -> Iterator[str]:
    """Which inputs keep their rows together with others of the job."""
    for side in query.sides:
        own = f"{query.name}/{side.name}"
        others = [name for name in side.sharers if name != own]
        if others:
            told = [name.removeprefix(f"{query.name}/").replace("/", "'s ") for name in others]
            yield f"{side.title}: with {', '.join(told)}; each has its own retention and matches"


def _of_windows(query: QueryPlan, node: AggregatePlan, forecast: SideForecast) -> Iterator[str]:
    title = node.side.title
    name = title if len(query.nodes) == 1 else f"{node_name(query, node)}, {title}"
    if forecast.kept is None or forecast.behind is None:
        until = "its session closes" if node.kind is WindowKind.SESSION else "its windows close"
        until += "" if node.keeps_rows else f", one row per {pane_name(node)} and group"
        yield f"{name}: until {until}, {number_of(forecast.row.bytes)} bytes a row"
        yield from now_line(forecast)
        return
    kept, size, behind = (
        distance(value, forecast.in_time) for value in (forecast.kept, node.size, forecast.behind)
    )
    what = "a row" if forecast.panes is None else f"one row per {pane_name(node)} and group,"
    yield f"{name}: {what} for at most {kept} ({size} by its windows, {behind} delay of {node.time_key})"
    if forecast.panes is None:
        yield INDENT + _size(query, forecast)
    else:
        kind = "windows" if node.pane == node.size else "panes"
        row_size = f"{number_of(forecast.row.bytes)} bytes"
        yield (
            INDENT + f"{forecast.panes:,} {kind} at once at most, a row of {row_size} for each group in each"
        )
    yield from now_line(forecast)


def _of_arrangements(query: QueryPlan, node: ArrangePlan, forecasts: Sequence[SideForecast]) -> Iterator[str]:
    for forecast, arranged in zip(forecasts, node.arranged, strict=True):
        side, bound = forecast.side, forecast.bound
        name = f"{node_name(query, node)}, {side.title}"
        name += f" once more, by {arranged.key or 'no key'}" if side.copy_of is not None else ""
        row = f"{number_of(forecast.row.bytes)} bytes a row"
        if arranged.others:
            keys = " and ".join(other.key for other in arranged.others)
            row += f", at most {FURTHER_KEY_BYTES * len(arranged.others)} of them to be found by {keys}, too"
        if bound is None:
            yield f"{name}: until the row is deleted, {row}"
        elif forecast.kept is None or forecast.behind is None:
            yield f"{name}: as long as {bound.by} takes, {row}"
        else:
            kept, c, behind = (
                distance(value, forecast.in_time) for value in (forecast.kept, bound.c, forecast.behind)
            )
            yield f"{name}: a row for at most {kept} ({c} by its bound, {behind} delay of {bound.by})"
            yield INDENT + _size(query, forecast)
        yield from now_line(forecast)


def _forecast(query: QueryPlan, of: _Of) -> Iterator[str]:
    yield from _expected(query, of)
    yield from now_line(of.forecast)


def _expected(query: QueryPlan, of: _Of) -> Iterator[str]:
    forecast, bound = of.forecast, of.forecast.bound
    if all(i.is_table for i in forecast.side.inputs):
        yield f"{of.name}: until the row is deleted, {number_of(forecast.row.bytes)} bytes a row"
    elif bound is None and of.join.asof is not None and of.join.matchable:
        yield from _last_of_each_key(of)
    elif bound is None:
        yield f"{of.name}: no rows are retained"
    elif forecast.kept is None or forecast.behind is None:
        yield f"{of.name}: as long as {bound.by} takes, {number_of(forecast.row.bytes)} bytes a row"
    else:
        most = f"at most {of.distance(forecast.kept)}" if forecast.kept else "its tick alone"
        yield (
            f"{of.name}: a row for {most} ({of.distance(bound.c)} by {_by(of)},"
            f" {of.distance(forecast.behind)} {_lag_or_delay(of)} of {bound.by})"
        )
        yield INDENT + _size(query, forecast)


def _by(of: _Of) -> str:
    return "its bound" if of.join.horizon is None else "the reach of the join"


def _last_of_each_key(of: _Of) -> Iterator[str]:
    """Of rows that an ASOF join looks for, at any distance."""
    forecast = of.forecast
    one = "one row of each key" if of.join.keys else "one row"
    if forecast.behind is None:
        yield f"{of.name}: {one}, and as many as watermarks take, {number_of(forecast.row.bytes)} bytes a row"
        return
    yield f"{of.name}: {one}, and those of at most {of.distance(forecast.behind)}"
    if forecast.in_time or forecast.pace is not None:
        yield INDENT + f"{_rows(forecast, forecast.behind)}; and {one}"


def _lag_or_delay(of: _Of) -> str:
    """What makes the watermark that releases the side's rows stay behind: the lag alone, or more."""
    bound = of.forecast.bound
    lags = [
        lag
        for side in of.join.sides
        for _, branch in side.sources
        for column, lag in zip(side.event_times, branch.lags, strict=True)
        if bound is not None and side.watermark_key(column) == bound.by
    ]
    return "lag" if of.forecast.behind in lags else "delay"


def _size(query: QueryPlan, forecast: SideForecast) -> str:
    row_size = f"{number_of(forecast.row.bytes)} bytes"
    if forecast.side.feeds and forecast.pace is None:
        nodes = [query.nodes[feed.node] for feed in forecast.side.feeds]
        made = f"what {' and '.join(node_name(query, node) for node in nodes)} makes in that time"
        grouped = all(isinstance(node, AggregatePlan) for node in nodes)
        return f"{made}, which depends on its {'groups' if grouped else 'matches'}; {row_size} a row"
    if not forecast.in_time and forecast.pace is None:
        return f"{row_size} a row"
    return _rows(forecast, forecast.kept or 0)


def _rows(forecast: SideForecast, stretch: int) -> str:
    """How many rows of so much event time there are, and what they take."""
    measured_rate = forecast.rows_per_unit
    rate = ASSUMED_RATE / 1_000_000 if measured_rate is None else measured_rate
    rows = rate * stretch
    shown = (
        f"{number_of(round(rate * 1_000_000, 9))} rows/s"
        if forecast.in_time
        else f"{number_of(rate)} rows per unit"
    )
    if forecast.pace is not None:
        span = forecast.pace[1]
        over = rounded_up(span) if forecast.in_time else f"{span:,} units"
        declared = "" if forecast.rate is None else f"; declared: {number_of(forecast.rate)}"
        shown = f"{shown} (measured over {over}{declared})"
    size = f"{number_of(forecast.row.bytes)} bytes, {size_of(rows * forecast.row.bytes)}"
    return f"{'per' if measured_rate is None else 'at'} {shown}: {number_of(rows)} rows of {size}"


def _total(sides: Sequence[SideForecast]) -> Iterator[str]:
    """Of all inputs, when the rate of every one is declared or measured; of joined rows if it is measured."""
    rows = [side for side in sides if side.panes is None]
    counted = [side for side in rows if not side.side.feeds or side.expected is not None]
    row_counts = [side.expected for side in counted]
    if not any(not side.side.feeds for side in counted) or None in row_counts:
        return
    total = sum((rows or 0.0) * side.row.bytes for rows, side in zip(row_counts, counted, strict=True))
    besides = "" if len(counted) == len(rows) else ", and retained joined rows"
    besides += "" if len(rows) == len(sides) else ", and partial aggregates"
    yield f"together: {size_of(total)}{besides}"


def _assumptions(kept: Sequence[SideForecast]) -> Iterator[str]:
    if not kept:
        return
    yield "event times follow the clock, no row comes before its time, no stream falls silent"
    files = "files also hold released rows until they are merged"
    yield files if all(side.pace is not None for side in kept) else f"no row is filtered out; {files}"
    if any(side.panes is not None for side in kept):
        yield "partial aggregates of a group that come in different ticks are combined when files are merged"
    kept = [side for side in kept if side.panes is None]
    if any(side.rows_per_unit is None and not side.side.feeds and side.in_time for side in kept):
        yield "1,000 rows/s of a source that declares no 'rows_per_second'"
    if any(not side.in_time and side.pace is None for side in kept):
        yield "integer times have no rate: retained are the rows that arrive while they move by that much"
    assumed = [name for side in kept for name in side.row.assumed]
    long = list(dict.fromkeys("what is computed" if is_computed(name) else name for name in assumed))
    if long:
        yield f"{STRING_BYTES} bytes for a value whose type does not say how long it is: {', '.join(long)}"


def _advice(of: _Of) -> Iterator[str]:
    forecast, bound = of.forecast, of.forecast.bound
    yield from reach_advice(of.name, forecast)
    if bound is None or not forecast.kept or forecast.behind is None:
        return
    widths = [b.upper - b.lower for b in of.join.bands if b.upper is not None and b.lower is not None]
    if widths and forecast.behind > _MANY_TIMES * max(width := min(widths), 1):
        yield (
            f"{of.name}: {of.distance(forecast.behind)} of its {of.distance(forecast.kept)} are the"
            f" {_lag_or_delay(of)} of {bound.by}, far more than the interval of {of.distance(width)}:"
            f" {'a smaller lag' if not of.join.side(of.own.other).feeds else 'less of it'} would help most"
            f"{_share(forecast)}"
        )
    if of.join.bands and all(_is_open(band, of.own) for band in of.join.bands):
        band = of.join.bands[0]
        mine = forecast.side.watermark_key(band.measured(of.own).column)
        other = of.join.side(of.own.other).watermark_key(band.measured(of.own.other).column)
        yield (
            f"{of.name}: how much later than {mine} its partner's {other} may be is left open here;"
            f" with {other} <= {mine} + … rows could go before {bound.by} lets them"
        )


def _share(forecast: SideForecast) -> str:
    """How much of a side's bytes is because a watermark is behind, where a rate is measured."""
    if forecast.pace is None or forecast.expected is None or not forecast.kept or forecast.behind is None:
        return ""
    total = forecast.expected * forecast.row.bytes
    return f" ({size_of(total * min(1.0, forecast.behind / forecast.kept))} of {size_of(total)})"


def _is_open(band: ExactBand, own: Side) -> bool:
    """Whether the band never releases rows of that side."""
    return (band.upper if own is Side.LEFT else band.lower) is None
