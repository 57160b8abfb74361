"""EXPLAIN of state: forecast, measured, limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.conditions import ExactBand
from watersmeet.event_time import Side
from watersmeet.names import is_computed
from watersmeet.plan.explain.groups import pane_name
from watersmeet.plan.explain.wording import (
    INDENT,
    Sections,
    distance,
    node_name,
    number_of,
    rounded_up,
    size_of,
    title_of,
)
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan, ArrangePlan, JoinPlan
from watersmeet.plan.order.forecast import (
    FURTHER_KEY_BYTES,
    STRING_BYTES,
    MeasuredQuery,
    MeasuredSide,
    SideForecast,
    arranged_forecasts,
    side_forecasts,
    window_forecasts,
)
from watersmeet.plan.order.limits import LimitForecast, job_limits, node_limits
from watersmeet.spec.model import WindowKind

# EXPLAIN: whether limits hold, where that can be forecast.


def limit_lines(query: QueryPlan, measured: Mapping[str, MeasuredSide] | None = None) -> Iterator[str]:
    """Yield one line per limit of each node of a query."""
    for node, limits in node_limits(query, measured):
        name = "" if len(query.nodes) == 1 else f"{node_name(query, node)}: "
        for expected in limits:
            yield name + _format_limit(expected)


def job_limit_lines(plan: JobPlan, measured: Mapping[str, MeasuredQuery] | None = None) -> Iterator[str]:
    """Yield one line per limit of the sources and of the whole job."""
    yield from map(_format_limit, job_limits(plan, measured))


def with_limit_warnings(plans: Sequence[QueryPlan]) -> tuple[QueryPlan, ...]:
    """Add a warning to the queries for each limit that does not hold by declared rates.

    The first query carries the warnings for the sources and for the job.
    """
    queries = []
    for query in plans:
        limits = [expected for _, of_node in node_limits(query.alone) for expected in of_node]
        limits += job_limits(JobPlan(tuple(plans))) if query is plans[0] else []
        warnings = [
            _format_limit(expected, " by declared rates") for expected in limits if expected.holds is False
        ]
        queries.append(replace(query, of_plan=(*query.of_plan, *warnings)) if warnings else query)
    return tuple(queries)


def _format_limit(expected: LimitForecast, known_by: str = "") -> str:
    def format_amount(value: float) -> str:
        return size_of(value) if expected.in_bytes else f"{number_of(value)} rows"

    most = size_of(expected.most) if expected.in_bytes else number_of(expected.most)
    line = f"{expected.limit} = {most}: "
    if expected.holds is None:
        return f"{line}no forecast, for nothing says how many rows of {' and '.join(expected.unknown)} come"
    besides = f" and the retained rows of {' and '.join(expected.unknown)}" if expected.unknown else ""
    line += f"forecast{known_by} {format_amount(expected.amount)}{besides}"
    if expected.holds:
        return f"{line}, it holds"
    after = "" if expected.reached is None else f" after about {rounded_up(round(expected.reached))}"
    return f"{line}: {'rows would be shed' if expected.sheds else 'the job would stop'}{after}"


# EXPLAIN of a job that has run: what is kept now beside what is forecast, and what a run tells that the
# text of a job does not.

_MUCH_LONGER = 2
"""A stretch of kept rows that is this many times the forecast is worth a word."""


def forecast_basis(run: MeasuredQuery, sides: Iterable[SideForecast]) -> str:
    """Describe the measurements that the forecasts are based on."""
    if run.problem is not None:
        return f"nothing is measured: {run.problem}"
    if not run.sides:
        return "nothing is measured"
    if all(side.pace is None for side in sides):
        return f"no rates are measured up to tick {run.tick}"
    return f"by what was measured up to tick {run.tick}"


def now_line(forecast: SideForecast) -> Iterator[str]:
    """Yield the rows and bytes that a side retains as of the last tick."""
    measured = forecast.measured
    if measured is not None:
        rows = "1 row" if measured.retained == 1 else f"{number_of(measured.retained)} rows"
        files = f"{size_of(measured.file_bytes)} in files"
        yield INDENT + f"retained now: {rows}, {files}; at most {number_of(measured.most)} so far"


def reach_advice(name: str, forecast: SideForecast) -> Iterator[str]:
    """Yield advice for a side that retains rows far longer than its bound and the lags explain."""
    measured, bound = forecast.measured, forecast.bound
    if measured is None or not measured.retained or bound is None or forecast.timed_by is None:
        return
    if forecast.timed_by not in measured.reaches:
        return
    reach = measured.reaches[forecast.timed_by]
    if reach is None:
        yield f"{name}: no row was released yet, for {bound.by} has no watermark so far"
        return
    least = 1_000_000 if forecast.in_time else 1
    if forecast.kept is not None and reach > _MUCH_LONGER * max(forecast.kept, least):
        back = rounded_up(reach) if forecast.in_time else f"{reach:,}"
        yield (
            f"{name}: rows are retained from {back} before their watermark, far longer than forecast:"
            f" the watermark of {bound.by} is that far behind; what holds it back?"
        )


def order_lines(run: MeasuredQuery) -> Iterator[str]:
    """Orders of joins that would keep less, and what it takes to have them."""
    for better in run.better:
        yield (
            f"{', '.join(better.aliases)}: by the measured rates that would keep about"
            f" {size_of(better.keeps)}, this order {size_of(better.instead_of)}"
        )
        rates = (f"{source} '{_plain(rate)}'" for source, rate in better.rates.items())
        yield INDENT + f"to have it, declare rows_per_second: {', '.join(rates)}"
    if run.better:
        yield "a plan never follows what was measured: another order needs an empty checkpoint directory"


def _plain(rate: float) -> str:
    return number_of(rate).replace(",", "")


# EXPLAIN: how much state a query is expected to keep, and which of it could be kept shorter.

ASSUMED_RATE = 1000.0
_MANY_TIMES = 3
"""A lag that is this many times the interval is worth a word."""


@dataclass(frozen=True)
class _ForecastSide:
    """A side of a join, by its name in EXPLAIN."""

    name: str
    join: JoinPlan
    own: Side
    forecast: SideForecast

    def distance(self, value: int) -> str:
        return distance(value, self.forecast.in_time)


def state_sections(query: QueryPlan, measured: MeasuredQuery | None = None) -> Sections:
    """Return a forecast of rows and bytes, with advice.

    Args:
        measured: Measurements of a run.
    """
    run = MeasuredQuery() if measured is None else measured
    sides = [
        _ForecastSide(
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
    lines += [line for node, forecasts in arranged for line in _arrangement_lines(query, node, forecasts)]
    lines += [line for node, forecast in windows for line in _window_lines(query, node, forecast)]
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
        (f"State forecast ({forecast_basis(run, every)})", lines),
        ("Could be retained for less time", [line for of in sides for line in _advice(of)]),
        ("Another order of the joins", list(order_lines(run))),
    ]


def shared_lines(query: QueryPlan) -> Iterator[str]:
    """Yield the inputs that store their rows together with other inputs of the job."""
    for side in query.sides:
        own = f"{query.name}/{side.name}"
        others = [name for name in side.sharers if name != own]
        if others:
            told = [name.removeprefix(f"{query.name}/").replace("/", "'s ") for name in others]
            yield f"{side.title}: with {', '.join(told)}; each has its own retention and matches"


def _window_lines(query: QueryPlan, node: AggregatePlan, forecast: SideForecast) -> Iterator[str]:
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


def _arrangement_lines(
    query: QueryPlan, node: ArrangePlan, forecasts: Sequence[SideForecast]
) -> Iterator[str]:
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


def _forecast(query: QueryPlan, of: _ForecastSide) -> Iterator[str]:
    yield from _forecast_lines(query, of)
    yield from now_line(of.forecast)


def _forecast_lines(query: QueryPlan, of: _ForecastSide) -> Iterator[str]:
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
            f"{of.name}: a row for {most} ({of.distance(bound.c)} by {_bound_name(of)},"
            f" {of.distance(forecast.behind)} {_lag_or_delay(of)} of {bound.by})"
        )
        yield INDENT + _size(query, forecast)


def _bound_name(of: _ForecastSide) -> str:
    return "its bound" if of.join.horizon is None else "the reach of the join"


def _last_of_each_key(of: _ForecastSide) -> Iterator[str]:
    """Yield the retention of rows that an ASOF join finds at any distance."""
    forecast = of.forecast
    one = "one row of each key" if of.join.keys else "one row"
    if forecast.behind is None:
        yield f"{of.name}: {one}, and as many as watermarks take, {number_of(forecast.row.bytes)} bytes a row"
        return
    yield f"{of.name}: {one}, and those of at most {of.distance(forecast.behind)}"
    if forecast.in_time or forecast.pace is not None:
        yield INDENT + f"{_rows(forecast, forecast.behind)}; and {one}"


def _lag_or_delay(of: _ForecastSide) -> str:
    """Return "lag" or "delay": what holds back the watermark that releases the rows of a side.

    It is "lag" if the declared lag alone explains the distance.
    """
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
    """Format the number of rows in a stretch of event time, and their size."""
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
    """Yield the total size of all inputs if every rate is declared or measured.

    Joined rows count only if they are measured.
    """
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


def _advice(of: _ForecastSide) -> Iterator[str]:
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
    """Return the part of a side's bytes that a slow watermark causes.

    Returns:
        An empty text if no rate is measured.
    """
    if forecast.pace is None or forecast.expected is None or not forecast.kept or forecast.behind is None:
        return ""
    total = forecast.expected * forecast.row.bytes
    return f" ({size_of(total * min(1.0, forecast.behind / forecast.kept))} of {size_of(total)})"


def _is_open(band: ExactBand, own: Side) -> bool:
    """Return True if the band never releases rows of that side."""
    return (band.upper if own is Side.LEFT else band.lower) is None


def reuse_lines(query: QueryPlan, queries: Sequence[QueryPlan]) -> Iterator[str]:
    """Yield what other queries make for this query, and what it makes for others."""
    for taken in query.taken:
        yield f"{_node_label(query, taken.number)}: {taken.query} makes and keeps them"
    makes: dict[int, list[str]] = {}
    for other in queries:
        for taken in other.taken:
            if taken.query == query.name:
                makes.setdefault(taken.node, []).append(other.name)
    for number in sorted(makes):
        yield f"{_node_label(query, number)}: for {', '.join(dict.fromkeys(makes[number]))}, too"
    yield from _shared_input_lines(query, queries)


def _shared_input_lines(query: QueryPlan, queries: Sequence[QueryPlan]) -> Iterator[str]:
    """Yield the inputs of delta joins that one query retains for several."""
    keeps: dict[str, list[str]] = {}
    for other in queries:
        for side in (side for node in other.nodes for side in node.sides):
            if side.kept_by is None or side.copy_of is not None:
                continue
            if other.name == query.name:
                yield f"{side.title}: {side.kept_by.query} keeps them, as {side.kept_by.alias}"
            elif side.kept_by.query == query.name:
                keeps.setdefault(side.kept_by.alias, []).append(f"{other.name}'s {side.title}")
    for alias, others in keeps.items():
        yield f"{alias}: for {', '.join(others)}, too"
    if query.is_index and not keeps:
        yield "no query of the job looks them up so far"


def _node_label(query: QueryPlan, number: int) -> str:
    node = query.nodes[number]
    return f"{node_name(query, node)} ({title_of(node)})"
