"""EXPLAIN of a job that has run: what is kept now beside what is forecast, and what a run tells that the text
of a job does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from watersmeet.plan.explain.durations import rounded_up
from watersmeet.plan.explain.words import INDENT, number_of, size_of
from watersmeet.plan.order.forecast import SideForecast
from watersmeet.plan.order.measured import MeasuredQuery

_MUCH_LONGER = 2
"""A stretch of kept rows that is this many times the forecast is worth a word."""


def known_by(run: MeasuredQuery, sides: Iterable[SideForecast]) -> str:
    """What the forecasts are made from."""
    if run.problem is not None:
        return f"nothing is measured: {run.problem}"
    if not run.sides:
        return "nothing is measured"
    if all(side.pace is None for side in sides):
        return f"no rates are measured up to tick {run.tick}"
    return f"by what was measured up to tick {run.tick}"


def now_line(forecast: SideForecast) -> Iterator[str]:
    """What is kept of a side as of the last tick."""
    measured = forecast.measured
    if measured is not None:
        rows = "1 row" if measured.retained == 1 else f"{number_of(measured.retained)} rows"
        files = f"{size_of(measured.file_bytes)} in files"
        yield INDENT + f"retained now: {rows}, {files}; at most {number_of(measured.most)} so far"


def reach_advice(name: str, forecast: SideForecast) -> Iterator[str]:
    """Of a side whose rows stay far longer than its bound and the lags make them."""
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
