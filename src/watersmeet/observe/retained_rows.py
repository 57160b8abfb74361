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
    """Forecast of the maximum that is retained of an input."""

    rows: float
    file_bytes: float


@dataclass(frozen=True)
class RetainedState:
    """Retained state of one input.

    Attributes:
        file_bytes: size of its files; None if it has no files of its own. Files that several queries
            share count for each.
        most: forecasts by the `DECLARED` rate of its sources and by the `MEASURED` one, as far as these
            rates are known.
    """

    file_bytes: int | None
    most: dict[str, RetentionForecast]

    @property
    def forecast(self) -> RetentionForecast | None:
        """Forecast by the declared rate, or without one by the measured rate.

        The declared rate has precedence because the measured one follows the input.
        """
        return self.most.get(DECLARED) or self.most.get(MEASURED)


def collect_retained_state(plan: JobPlan, result: ObservedTick) -> dict[tuple[str, str], RetainedState]:
    """Return the retained state by query and input name, for all state that the job owns."""
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
    """Return the forecasts per input, summed over its sides that retain raw rows.

    An input has no forecast if one of its sides has none.
    """
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
    """Return the query and the input name that users know; for an arrangement, its input's."""
    return query, input_name(input_of(side))
