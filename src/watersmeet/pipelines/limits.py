"""Whether limits of a pipeline will hold, where the plan itself does not say it: of integer event times,
whose unit only a pipeline knows, and of keys that are declared to be hot."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.errors import counted
from watersmeet.pipelines.model import Description
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.order.forecast import SideForecast, side_forecasts

_US, _MS = 1_000_000, 1_000
"""In a second."""


def warnings_of(description: Description, plan: JobPlan) -> list[str]:
    """What a person should know before it runs."""
    warnings: list[str] = []
    for query in plan.queries:
        warnings += query.warnings
        warnings += _hot_keys(description, query)
        warnings += _of_integer_times(query)
    return warnings


def _hot_keys(description: Description, query: QueryPlan) -> Iterator[str]:
    most = query.options.max_rows_per_key
    rates = {
        source.name: source.hot_key_rows_per_second
        for source in description.sources
        if source.hot_key_rows_per_second is not None
    }
    for _, sides in side_forecasts(query):
        for side in sides:
            hot = [
                rates[branch.source.name] for _, branch in side.side.sources if branch.source.name in rates
            ]
            kept = _rows(side, sum(rate for rate in hot if rate is not None))
            if hot and kept is not None and most is not None and kept > most:
                yield (
                    f"max_rows_per_key = {most:,}: forecast by the declared hot key of {side.side.name}"
                    f" {counted(round(kept), 'row')}"
                )


def _of_integer_times(query: QueryPlan) -> Iterator[str]:
    most = query.options.max_rows
    for _, sides in side_forecasts(query):
        if most is None or any(side.in_time for side in sides):
            continue  # the plan's own warnings have those
        rows = [None if side.rate is None else _rows(side, side.rate) for side in sides]
        counts = [count for count in rows if count is not None]
        if sum(counts) > most:
            yield (
                f"max_rows = {most:,}: forecast by declared rates {counted(round(sum(counts)), 'row')},"
                " if integer times are milliseconds"
            )


def _rows(side: SideForecast, rate: float) -> float | None:
    """How many are kept at most at so many rows per second."""
    return None if side.kept is None else rate * side.kept / (_US if side.in_time else _MS)
