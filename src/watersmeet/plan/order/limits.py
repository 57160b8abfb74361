"""What a plan is expected to keep, beside the limits that are set: numbers, by the forecasts of its sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.order.forecast import MeasuredQuery, MeasuredSide, SideForecast, forecasts_of
from watersmeet.plan.query_inputs import limited_sources


@dataclass(frozen=True)
class LimitForecast:
    """Limit and the maximum amount that state retains by the known rates.

    Attributes:
        limit: Name of the limit.
        most: Value of the limit: rows, or a size if ``in_bytes``.
        amount: Retained amount of all sides with known rates.
        unknown: Titles of the other sides.
        reached: Event time in µs until the limit is reached. None if it is never reached, or if times
            are integers.
        sheds: Rows are shed at the limit.
    """

    limit: str
    most: int
    in_bytes: bool
    amount: float
    unknown: tuple[str, ...]
    reached: float | None
    sheds: bool = False

    @property
    def holds(self) -> bool | None:
        """True if the limit holds, False if the known rates exceed it, None if unknown."""
        if self.amount > self.most:
            return False
        return None if self.unknown else True


def node_limits(
    query: QueryPlan, measured: Mapping[str, MeasuredSide] | None = None
) -> list[tuple[NodePlan, list[LimitForecast]]]:
    """Return the limits of each node that retains rows of streams, with their forecasts."""
    rows, nbytes, sheds = query.options.max_rows, query.options.max_bytes, query.options.at_limit.sheds
    if rows is None and nbytes is None:
        return []
    return [
        (
            node,
            [
                replace(own, sheds=sheds)
                for own in (*_rows("max_rows", rows, sides), *_bytes("max_bytes", nbytes, sides))
            ],
        )
        for node, sides in forecasts_of(query, measured)
    ]


def job_limits(plan: JobPlan, measured: Mapping[str, MeasuredQuery] | None = None) -> list[LimitForecast]:
    """Return the limits of sources and of the job, with their forecasts.

    Rows that several sides store in the same files count once.
    """
    options = plan.queries[0].options
    sources = limited_sources(node for query in plan.queries for node in query.nodes)
    if not sources and options.max_job_rows is None and options.max_job_bytes is None:
        return []
    by_files: dict[str, SideForecast] = {}
    for query in plan.queries:
        run = (measured or {}).get(query.name, MeasuredQuery()).sides
        for node, sides in forecasts_of(query.alone, run):
            sharers = {side.name: side.sharers for side in query.nodes[node.number].sides}
            for forecast in sides:
                if forecast.side.name not in sharers:
                    continue  # another query runs the join
                files = (sharers[forecast.side.name] or (f"{query.name}/{forecast.side.name}",))[0]
                before = by_files.get(files)
                if before is None or (before.expected or 0.0) < (forecast.expected or 0.0):
                    by_files[files] = forecast
    every = list(by_files.values())
    expected: list[LimitForecast] = []
    for source in sources:
        of_source = [side for side in every if source.name in (b.source.name for _, b in side.side.sources)]
        expected += _rows(f"'max_rows' of \"{source.name}\"", source.max_rows, of_source)
        expected += _bytes(f"'max_bytes' of \"{source.name}\"", source.max_bytes, of_source)
    expected += _rows("max_job_rows", options.max_job_rows, every)
    expected += _bytes("max_job_bytes", options.max_job_bytes, every)
    return [replace(own, sheds=options.at_limit.sheds) for own in expected]


def _rows(limit: str, most: int | None, sides: Iterable[SideForecast]) -> list[LimitForecast]:
    own = [side for side in sides if side.side.copy_of is None]
    return [] if most is None else [_expected_limit(limit, most, False, [(side, 1.0) for side in own])]


def _bytes(limit: str, most: int | None, sides: Iterable[SideForecast]) -> list[LimitForecast]:
    if most is None:
        return []
    return [_expected_limit(limit, most, True, [(side, float(side.row.bytes)) for side in sides])]


def _expected_limit(
    limit: str, most: int, in_bytes: bool, sides: Sequence[tuple[SideForecast, float]]
) -> LimitForecast:
    """Compare a limit with the forecast of sides.

    Args:
        sides: Each side with the amount that one of its rows counts.
    """
    paces = [
        (side.in_time, (side.rows_per_unit or 0.0) * weight, side.kept or 0)
        for side, weight in sides
        if side.expected is not None
    ]
    amount = sum(rate * kept for _, rate, kept in paces)
    reached = None
    if amount > most and all(in_time for in_time, _, _ in paces):
        reached = _time_to_limit([(rate, kept) for _, rate, kept in paces], most)
    unknown = tuple(dict.fromkeys(side.side.title for side, _ in sides if side.expected is None))
    return LimitForecast(limit, most, in_bytes, amount, unknown, reached)


def _time_to_limit(growing: Sequence[tuple[float, int]], most: float) -> float:
    """Compute the event time after which state retains more than ``most``.

    Each entry grows at its rate until its first rows are released, and then retains its size. Together
    they exceed ``most``.
    """
    full, passed = 0.0, 0.0
    for kept in sorted({kept for _, kept in growing}):
        rate = sum(own for own, until in growing if until >= kept)
        if full + rate * (kept - passed) > most:
            return passed + (most - full) / rate
        full, passed = full + rate * (kept - passed), float(kept)
    return passed
