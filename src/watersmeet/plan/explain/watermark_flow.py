"""EXPLAIN: the way of each watermark from its input to the query's rows, and what holds it back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch

from watersmeet.plan.explain.wording import distance, kind_name, node_name
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import ArrangePlan, JoinPlan, LookupPlan, NodePlan, WindowedPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.order.forecast import WatermarkLag, flows, incoming, key_in_time
from watersmeet.plan.query_inputs import unit_of_type
from watersmeet.spec.model import WatermarkRule, WindowKind
from watersmeet.types.sql_type import DATE


def flow_lines(query: QueryPlan) -> Iterator[str]:
    """Yield one line per watermark key, with its maximum delay to the clock in parentheses."""
    leaving = flows(query)
    keys = [side.watermark_key(column) for side in query.sides for column in side.event_times]
    width = max(map(len, keys), default=0)
    for side in query.sides:
        for place, column in enumerate(side.event_times):
            key = side.watermark_key(column)
            steps = [_watermark_origin(query, side, place, column), *_steps(query, side, key, leaving)]
            yield f"{f'{key}:':<{width + 1}} {' -> '.join(steps)}"


def _steps(
    query: QueryPlan, side: SidePlan, key: str, leaving: list[dict[str, WatermarkLag]]
) -> Iterator[str]:
    """Yield the changes of a watermark from node to node, as far as it keeps that key."""
    node = next(node for node in query.nodes if side in node.sides)
    while True:
        came = incoming(query, node, leaving)
        if key not in came:
            return
        yield from _node_steps(node, query, key, came[key], leaving[node.number].get(key))
        if key not in node.watermark_keys:
            return
        parent = query.parent(node.number)
        if parent is None:
            return
        node, taken, feed = parent
        if taken.feed is None:
            names = [taken.watermark_key(column) for column, own in feed.event_times if own == key]
            if key in leaving[feed.node]:
                yield f"{' and '.join(names)}" if names else f"ends here, for {taken.name} does not have it"
            return


@singledispatch
def _node_steps(
    node: NodePlan, query: QueryPlan, key: str, came: WatermarkLag, left: WatermarkLag | None
) -> Iterator[str]:
    """Yield how a node changes the watermark of ``key``; yield nothing if it only emits it."""
    return iter(())


@_node_steps.register
def _(
    node: LookupPlan, query: QueryPlan, key: str, came: WatermarkLag, left: WatermarkLag | None
) -> Iterator[str]:
    yield f"{node_name(query, node)}: passes through"


@_node_steps.register
def _(
    node: WindowedPlan, query: QueryPlan, key: str, came: WatermarkLag, left: WatermarkLag | None
) -> Iterator[str]:
    name = node_name(query, node)
    if key != node.time_key:
        yield f"{name}: ends here, for windows are over {node.time_key}"
        return
    if node.kind is WindowKind.SESSION:
        start = "held back by open sessions as window_start"
    else:
        start = f"{distance(node.size, key_in_time(node, key))} less as window_start"
    yield f"{name}: closes windows, goes on as window_end, {start}"


def _watermark_origin(query: QueryPlan, side: SidePlan, place: int, column: str) -> str:
    """Describe the origin of the watermark of an input.

    The origins are the lags of its sources and the outputs of its stages.
    """
    parts = [_source(query, side, place, column)] if side.sources else []
    parts += [
        f"{dict(feed.event_times)[column]} of {node_name(query, query.nodes[feed.node])}"
        for _, feed in side.stages
    ]
    return f"the least of {'; '.join(parts)}" if len(parts) > 1 else parts[0]


def _source(query: QueryPlan, side: SidePlan, place: int, column: str) -> str:
    lags = {branch.lags[place] for _, branch in side.sources}
    declared = side.input.column(column)
    assert declared is not None
    in_time = unit_of_type(declared.type).is_time
    if None in lags:
        return "moved by explicit advances"
    lag = distance(max(lag or 0 for lag in lags), in_time)
    late = query.options.allowed_lateness
    parts = [f"lag {lag}", f"allowed lateness {distance(late, in_time)}" if late else ""]
    parts.append("1 d of a DATE" if declared.type == DATE else "")
    return " + ".join(filter(None, parts))


@_node_steps.register
def _(
    node: JoinPlan, query: QueryPlan, key: str, came: WatermarkLag, left: WatermarkLag | None
) -> Iterator[str]:
    yield _explain_delay(query, node, key, came, left)


@_node_steps.register
def _(
    node: ArrangePlan, query: QueryPlan, key: str, came: WatermarkLag, left: WatermarkLag | None
) -> Iterator[str]:
    if left is None:
        yield f"{node_name(query, node)}: ends here, for no bound limits it (rule limit)"
        return
    is_limit = query.options.watermark_rule is WatermarkRule.LIMIT
    yield _delay_by_retention(query, node, key, came, left, is_limit=is_limit)


def _explain_delay(
    query: QueryPlan, join: JoinPlan, key: str, came: WatermarkLag, left: WatermarkLag | None
) -> str:
    name = node_name(query, join)
    if left is None:
        hidden = join.kind.hides_right and key in map(join.right.watermark_key, join.right.event_times)
        why = (
            f"a {kind_name(join.kind)} puts out no row of it" if hidden else "no bound limits it (rule limit)"
        )
        return f"{name}: ends here, for {why}"
    if join.horizon is not None:
        return f"{name}: follows the join's horizon{_horizon_words(join, left)}"
    if left.held_by is None:
        is_sought = join.asof is not None and key == join.right.watermark_key(join.bands[0].right.column)
        if is_sought and left.at_most is None and came.at_most is not None:
            return f"{name}: held back by retained rows, as far as the oldest last row of a key"
    is_limit = query.options.watermark_rule is WatermarkRule.LIMIT and join.asof is None
    return _delay_by_retention(query, join, key, came, left, is_limit=is_limit)


def _horizon_words(join: JoinPlan, left: WatermarkLag) -> str:
    assert join.horizon is not None
    in_time = key_in_time(join, join.horizon.keys[0])
    reach = f", {distance(join.horizon.reach, in_time)} behind the least watermark of its two sides"
    return reach + (f" ({distance(left.at_most, in_time)})" if left.at_most is not None else "")


def _delay_by_retention(
    query: QueryPlan, node: NodePlan, key: str, came: WatermarkLag, left: WatermarkLag, *, is_limit: bool
) -> str:
    """Describe a watermark that follows the rows that a node retains.

    Args:
        is_limit: The watermark follows only the limit of these rows.
    """
    name, in_time = node_name(query, node), key_in_time(node, key)
    if left.held_by is None:
        if left.at_most is None and came.at_most is not None:
            return f"{name}: held back by retained rows, which go by other times: how far depends on them"
        return f"{name}: passes through"
    bound = left.held_by
    far = f" ({distance(left.at_most, in_time)})" if left.at_most is not None else ""
    how = "follows its limit" if is_limit else "held back by retained rows"
    most = "" if is_limit else "at most "
    if bound.c == 0:
        return f"{name}: {how}, {most}as far as {bound.by}{far}"
    word = "behind" if bound.c > 0 else "ahead of"
    return f"{name}: {how}, {most}{distance(abs(bound.c), in_time)} {word} {bound.by}{far}"
