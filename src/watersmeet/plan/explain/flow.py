"""EXPLAIN: the way of each watermark from its input to the query's rows, and what holds it back."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.plan.durations import distance
from watersmeet.plan.explain.words import kind_name
from watersmeet.plan.forecast import Behind, flows, incoming, key_in_time
from watersmeet.plan.model import JoinPlan, QueryPlan, SidePlan
from watersmeet.plan.scope import unit_of_type
from watersmeet.spec.model import WatermarkRule


def flow_lines(query: QueryPlan) -> Iterator[str]:
    """One line per watermark key; how far behind the clock it is at most stands in parentheses."""
    leaving = flows(query)
    keys = [side.watermark_key(column) for side in query.sides for column in side.event_times]
    width = max(map(len, keys), default=0)
    for side in query.sides:
        for place, column in enumerate(side.event_times):
            key = side.watermark_key(column)
            steps = [_source(query, side, place, column)]
            for join in _way(query, side):
                came = incoming(query, join, leaving)
                if key not in came:
                    break
                steps.append(_through(query, join, key, came[key], leaving[join.number].get(key)))
            yield f"{f'{key}:':<{width + 1}} {' -> '.join(steps)}"


def _way(query: QueryPlan, side: SidePlan) -> Iterator[JoinPlan]:
    """The joins that rows of an input go through."""
    join = next(j for j in query.joins if side.name in (j.left.name, j.right.name))
    while True:
        yield join
        parent = query.parent(join.number)
        if parent is None:
            return
        join = parent[0]


def _source(query: QueryPlan, side: SidePlan, place: int, column: str) -> str:
    lags = {branch.lags[place] for branch in side.branches}
    found = side.input.column(column)
    assert found is not None
    in_time = unit_of_type(found.type).is_time
    if None in lags:
        return "moved by explicit advances"
    lag = distance(max(lag or 0 for lag in lags), in_time)
    late = query.options.allowed_lateness
    parts = [f"lag {lag}", f"allowed lateness {distance(late, in_time)}" if late else ""]
    parts.append("1 d of a DATE" if found.type == "DATE" else "")
    return " + ".join(filter(None, parts))


def _through(query: QueryPlan, join: JoinPlan, key: str, came: Behind, left: Behind | None) -> str:
    name = "join" if len(query.joins) == 1 else f"join {join.number + 1}"
    in_time = key_in_time(join, key)
    if left is None:
        hidden = join.kind.hides_right and key in map(join.right.watermark_key, join.right.event_times)
        why = (
            f"a {kind_name(join.kind)} puts out no row of it" if hidden else "no bound limits it (rule limit)"
        )
        return f"{name}: ends here, for {why}"
    if left.held_by is None:
        is_sought = join.asof is not None and key == join.right.watermark_key(join.bands[0].right_column)
        if is_sought and left.at_most is None and came.at_most is not None:
            return f"{name}: held back by the rows kept, as far as the oldest last row of a key"
        if left.at_most is None and came.at_most is not None:
            return f"{name}: held back by the rows kept, which go by other times: how far depends on them"
        return f"{name}: passes as it is"
    bound = left.held_by
    far = f" ({distance(left.at_most, in_time)})" if left.at_most is not None else ""
    limit = query.options.watermark_rule is WatermarkRule.LIMIT and join.asof is None
    how = "goes by its limit" if limit else "held back by the rows kept"
    most = "" if limit else "at most "
    if bound.c == 0:
        return f"{name}: {how}, {most}as far as {bound.by}{far}"
    word = "behind" if bound.c > 0 else "ahead of"
    return f"{name}: {how}, {most}{distance(abs(bound.c), in_time)} {word} {bound.by}{far}"
