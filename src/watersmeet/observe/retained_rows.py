"""What a job keeps of each of its inputs, in files, beside what it is forecast to keep at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from watersmeet.names import input_of
from watersmeet.observe.reports import ObservedTick, input_name
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.order.forecast import SideForecast, forecasts_of

DECLARED, MEASURED = "declared", "measured"


@dataclass(frozen=True)
class RetentionForecast:
    """What is kept of an input at most, as forecast."""

    rows: float
    file_bytes: float


@dataclass(frozen=True)
class RetainedState:
    """Of one input. ``file_bytes``: of its files, None: it has none of its own; files that several queries
    share count for each. ``most``: by the `DECLARED` rate of its sources, and by the `MEASURED` one, as far
    as these are known."""

    file_bytes: int | None
    most: dict[str, RetentionForecast]

    @property
    def forecast(self) -> RetentionForecast | None:
        """By the declared rate, where there is one: the measured one follows what comes."""
        return self.most.get(DECLARED) or self.most.get(MEASURED)


def collect_retained_state(plan: JobPlan, result: ObservedTick) -> dict[tuple[str, str], RetainedState]:
    """By query and input, as users know it; of all that the job keeps itself."""
    measured = result.measured()
    kept: dict[tuple[str, str], RetainedState] = {}
    for query in plan.queries:
        sides = measured.get(query.name, {})
        sizes: dict[tuple[str, str], int] = {}
        for name, side in sides.items():
            labels = _labels(query.name, name)
            sizes[labels] = sizes.get(labels, 0) + side.file_bytes
        forecasts = [of for _, sides_of in forecasts_of(query.alone, sides) for of in sides_of]
        most = _most(query.name, forecasts)
        kept |= {
            labels: RetainedState(sizes.get(labels), most.get(labels, {})) for labels in {**sizes, **most}
        }
    return kept


def _most(
    query: str, forecasts: Iterable[SideForecast]
) -> dict[tuple[str, str], dict[str, RetentionForecast]]:
    """Of all sides that keep rows as they come, an input's together; what cannot be said of one of them is
    not said of the input."""
    by_input: dict[tuple[str, str], dict[str, list[tuple[float | None, float]]]] = {}
    for forecast in forecasts:
        if forecast.panes is not None:
            continue
        of_input = by_input.setdefault(_labels(query, forecast.side.name), {DECLARED: [], MEASURED: []})
        declared = forecast.rate if forecast.in_time else None
        of_input[DECLARED].append((None if declared is None else forecast.rows(declared), forecast.row.bytes))
        of_input[MEASURED].append((None if forecast.pace is None else forecast.expected, forecast.row.bytes))
    told: dict[tuple[str, str], dict[str, RetentionForecast]] = {}
    for labels, of_input in by_input.items():
        told[labels] = {}
        for by, rows in of_input.items():
            told_rows = [(count, size) for count, size in rows if count is not None]
            if told_rows and len(told_rows) == len(rows):
                bytes_of_all = sum(count * size for count, size in told_rows)
                told[labels][by] = RetentionForecast(sum(count for count, _ in told_rows), bytes_of_all)
    return told


def _labels(query: str, side: str) -> tuple[str, str]:
    """The query, and the input as users know it; of a way of holding its rows the input's."""
    return query, input_name(input_of(side))
