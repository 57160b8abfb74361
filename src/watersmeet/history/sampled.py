"""What is looked at now and then, and not in every tick, for it costs more: partitions, what each side of a
join keeps in files and by forecast, and the keys that have most of its rows.

subject                                   figures
partition/QUERY/ALIAS/SOURCE/PARTITION    watermark of COLUMN; last_row_us (clock of its last row): levels
partitions/QUERY/ALIAS                    count, idle: levels
side/QUERY/SIDE                           retained, file_bytes, forecast_rows, forecast_bytes: levels;
                                          hot_keys: of each its rows

Of an input that has more than `MAX_SAMPLED_PARTITIONS` that are not idle those are kept that are furthest
behind.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from watersmeet.event_time import NEVER, Watermark, shift
from watersmeet.history.points import Figures, level_of, subject_of, words_of
from watersmeet.observe.reports import ObservedPartition, ObservedTick
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.order.forecast import forecasts_of

SAMPLE_US = 5_000_000
"""Between two looks, by the clock of ticks, at least."""
MAX_SAMPLED_PARTITIONS = 12

_Levels = dict[tuple[str, str], int | None]


class TickSampler:
    """At the ticks of a run of a plan."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._looked_us: int | None = None

    def is_due(self, result: ObservedTick) -> bool:
        return self._looked_us is None or abs(result.clock_us - self._looked_us) >= SAMPLE_US

    def figures(self, result: ObservedTick) -> Figures:
        """See the module."""
        self._looked_us = result.clock_us
        levels: _Levels = {}
        for query in self._plan.queries:
            if query.name in result.queries:
                levels |= dict(self._partitions(query, result))
        levels |= dict(self._sides(result))
        keys = {
            (subject_of("side", query, side), "hot_keys", words_of(heavy.key)): heavy.rows
            for query, of_query in result.queries.items()
            for side, told in of_query.heavy.items()
            for heavy in told
        }
        return Figures(levels=levels, keys=keys)

    def _partitions(
        self, query: QueryPlan, result: ObservedTick
    ) -> Iterator[tuple[tuple[str, str], int | None]]:
        """Yield partition counts, and the watermarks of the active partitions that lag most.

        The time of each of these partitions' last row is also included. Partitions of sources that another
        query reads are reported for that query.
        """
        read = result.partitions().get(query.name, {})
        for side in query.sides:
            named: list[tuple[tuple[str, str], ObservedPartition, dict[str, Watermark]]] = []
            branches: Sequence[Mapping[str, ObservedPartition]] = read.get(side.name, ())
            for number, branch in side.sources:
                lags = dict(zip(side.event_times, branch.lags, strict=True))
                for name, partition in branches[number].items() if number < len(branches) else ():
                    marks = {
                        column: NEVER if lag is None else shift(partition.greatest.get(column, NEVER), -lag)
                        for column, lag in lags.items()
                    }
                    named.append(((branch.source.name, name), partition, marks))
            if not named:
                continue
            active = [one for one in named if not one[1].idle]
            counts = subject_of("partitions", query.name, side.name)
            yield (counts, "count"), len(named)
            yield (counts, "idle"), len(named) - len(active)
            for names, partition, marks in heapq.nsmallest(
                MAX_SAMPLED_PARTITIONS, active, key=lambda one: min(one[2].values(), default=NEVER)
            ):
                of = subject_of("partition", query.name, side.name, *names)
                yield (of, "last_row_us"), partition.heard_at_us
                for column, mark in marks.items():
                    yield (of, f"watermark of {column}"), level_of(mark)

    def _sides(self, result: ObservedTick) -> Iterator[tuple[tuple[str, str], int | None]]:
        """Yield retained rows, file bytes and forecasts of each side.

        State that several queries share is reported for each. Partial aggregates have no row forecast,
        because more rows do not make them grow.
        """
        measured = result.measured()
        for query in self._plan.queries:
            sides = measured.get(query.name, {})
            for name, side in sides.items():
                of = subject_of("side", query.name, name)
                yield (of, "retained"), side.retained
                yield (of, "file_bytes"), side.file_bytes
            for _, forecasts in forecasts_of(query.alone, sides):
                for forecast in forecasts:
                    if forecast.panes is None and forecast.expected is not None:
                        of = subject_of("side", query.name, forecast.side.name)
                        yield (of, "forecast_rows"), round(forecast.expected)
                        yield (of, "forecast_bytes"), round(forecast.expected * forecast.row.bytes)
