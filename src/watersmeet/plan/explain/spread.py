"""EXPLAIN: how the rows of a join are spread over tasks, and why so."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.event_time import Side
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.order.forecast import SideForecast, side_forecasts
from watersmeet.spec.model import JoinKind


def spread_lines(query: QueryPlan, join: JoinPlan) -> Iterator[str]:
    """The way it goes; where that is one task alone and a hint would help, the hint."""
    if join.broadcast is not None:
        yield from (_broadcast_changes if join.changes else _broadcast)(join, join.broadcast)
    elif join.keys:
        splits = not (join.changes or join.asof is not None or join.left_to_spark)
        yield "by ranges of the key's hash" + (", a hot key's rows over all tasks" if splits else "")
    elif join.asof is not None:
        yield "one task: without an equality key every row may be the nearest one of any other"
    elif join.by_value:
        sides = [(join.side(side), join.indexes(side)) for side in Side]
        chosen = len(sides[0][1]) > 1 or len(sides[1][1]) > 1
        what = " and ".join(plan.joined(indexes[0].column) for plan, indexes in sides)
        what = "what rows are sorted by" if chosen else what
        edges = (
            "equal rows are one task's, and each looks up what its own may match"
            if join.changes
            else "each task looks over its edges"
        )
        yield f"by ranges of {what}, for there is no equality key; {edges}"
    else:
        yield "one task: there is neither an equality key nor a time that both sides have to meet by"
        yield from _suggestion(query, join)


def _broadcast(join: JoinPlan, side: Side) -> Iterator[str]:
    whole, spread = join.side(side).title, join.side(side.other).title
    why = f"as {_hint(join, side)} asks"
    if side is Side.LEFT and join.kind is JoinKind.SEMI:
        yield (
            f"by equal parts of {whole}, {why}: each task looks its part up in all rows of {spread},"
            " for one task alone may say which match of a row is its first"
        )
        return
    keys = ", whatever their keys" if join.keys else ""
    yield (
        f"by equal parts of the rows of {spread}{keys}, {why}: each task reads all rows of {whole}, which are"
        " stored once"
    )
    if join.side(side).padded:
        yield f"each task tells which rows of {whole} it found matches of; one pads those that nobody did"


def _broadcast_changes(join: JoinPlan, side: Side) -> Iterator[str]:
    whole, spread = join.side(side).title, join.side(side.other).title
    if join.kind.hides_right:
        whole, spread = join.right.title, join.left.title
    keys = ", whatever their keys" if join.keys else ""
    yield (
        f"by what rows of {spread} hold{keys}, as {_hint(join, side)} asks: each task reads all rows of"
        f" {whole}, which are stored once"
    )
    counted = join.side(side)
    if not join.kind.hides_right and (counted.padded or counted.event_times):
        yield (
            f"how many matches a row of {whole} has one task counts, which reads all of the tick's changes of"
            f" {spread} for that"
        )


def _hint(join: JoinPlan, side: Side) -> str:
    """As it is written in the SELECT that has the join."""
    return f"/*+ BROADCAST({join.side(side).name.rsplit('.', 1)[-1]}) */"


def _suggestion(query: QueryPlan, join: JoinPlan) -> Iterator[str]:
    """Which side to broadcast: an input; of two the one that keeps less, as far as that can be said."""
    both = next(both for node, both in side_forecasts(query) if node is join)
    inputs = {side: forecast for side, forecast in zip(Side, both, strict=True) if forecast.side.feed is None}
    if not inputs:
        return
    rows = {side: _rows(forecast) for side, forecast in inputs.items()}
    counted = {side: count for side, count in rows.items() if count is not None}
    if len(inputs) == 2 and len(counted) < 2:
        yield (
            f"{' or '.join(_hint(join, side) for side in Side)}, whichever keeps fewer rows, would spread the"
            " other's over tasks"
        )
        return
    side = min(counted, key=lambda candidate: counted[candidate]) if len(counted) == 2 else next(iter(inputs))
    whole, spread = join.side(side).title, join.side(side.other).title
    count = f", {counted[side]:,.0f} by the forecast" if side in counted else ""
    yield f"{_hint(join, side)} would spread {spread} over tasks, each with all rows of {whole}{count}"


def _rows(forecast: SideForecast) -> float | None:
    """How many are kept at most, by declared rates."""
    return forecast.rows(forecast.rate) if forecast.rate is not None and forecast.in_time else None
