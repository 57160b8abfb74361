"""EXPLAIN of one join: how its rows meet, for how long they are kept, what is held of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from watersmeet.conditions import Bound
from watersmeet.event_time import Side
from watersmeet.names import shown
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.asof import nearest_lines, retention_line
from watersmeet.plan.explain.bands import band_lines
from watersmeet.plan.explain.durations import distance, shifted
from watersmeet.plan.explain.spread import spread_lines
from watersmeet.plan.explain.words import Sections, plain, qualified
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan, MatchPlan
from watersmeet.plan.order.forecast import key_in_time
from watersmeet.spec.model import JoinKind


def join_sections(join: JoinPlan, query: QueryPlan) -> Sections:
    """What there is to say of a join."""
    sides = (join.left, join.right)
    return [
        ("Keys", list(key_lines(join)) or [f"none: matches are looked up by {_looked_up_by(join)} alone"]),
        ("Nearest row", [] if join.asof is None else list(nearest_lines(join, join.asof))),
        ("Time bounds", list(_bounds(join))),
        ("Eviction bounds", [] if join.horizon is not None else list(_postpone_map(join))),
        ("Lateness (SET lateness = join)", list(horizon_lines(join, query.options.allowed_lateness))),
        ("Bands (they find matches, and release nothing)", list(band_lines(join))),
        ("Retention", [_retention(join, side, query.options.allowed_lateness) for side in Side]),
        ("Conditions on one input", [f"{name}: {text}" for name, text in (*join.one_sided, *join.filters)]),
        ("Checked on each candidate pair", list(_checked(join))),
        ("Columns in state", [f"{side.title}: {', '.join(map(shown, side.kept))}" for side in sides]),
        ("Arrangements (input, key, time)", [_arrangement(join, side) for side in Side]),
        ("Task partitions", list(spread_lines(query, join))),
    ]


def key_lines(join: MatchPlan) -> Iterator[str]:
    """The equalities, one per line."""
    for key in join.keys:
        left, right = (qualified(text_of(key.expr(side)), join.side(side)) for side in Side)
        yield f"{left} {'<=>' if key.null_safe else '='} {right}"


def _bounds(join: JoinPlan) -> Iterator[str]:
    texts = [f"{b.evicted} >= {shifted(b.by, -b.c, key_in_time(join, b.evicted))}" for b in join.bounds]
    width = max((len(text) for text in texts), default=0)
    for bound, text in zip(join.bounds, texts, strict=True):
        yield f"{text:<{width}}  from {bound.text}"


def _looked_up_by(join: JoinPlan) -> str:
    return " or ".join((["time"] if join.bands else []) + (["band"] if join.values.every else [])) or "time"


def _postpone_map(join: JoinPlan) -> Iterator[str]:
    for by in dict.fromkeys(bound.by for bound in join.bounds):
        entries = [
            f"{b.evicted}: {distance(b.c, key_in_time(join, b.evicted))}" for b in join.bounds if b.by == by
        ]
        yield f"{by} -> {{{', '.join(entries)}}}"


def horizon_lines(join: JoinPlan, lateness: int) -> Iterator[str]:
    """The rule of lateness by the join, with its figures."""
    if join.horizon is None:
        return
    (left, right), reach = join.horizon.keys, join.horizon.reach
    in_time = key_in_time(join, left)
    back = shifted("W", -(reach + lateness), in_time)
    yield f"W is the least watermark of {left} and {right}, the reach {distance(reach, in_time)}"
    if lateness:
        yield f"{back} is the horizon: W less the reach and allowed lateness {distance(lateness, in_time)}"
    else:
        yield f"{back} is the horizon: W less the reach"
    yield "a row below the horizon is late, and none is retained; it is the output watermark of both times"
    yield "a row below W meets rows that are still in state: its result may depend on the order of arrival"


def _retention(join: JoinPlan, side: Side, lateness: int) -> str:
    plan = join.side(side)
    if all(i.is_table for i in plan.inputs):
        return f"{plan.title}: until the row is deleted"
    if not join.matchable:
        pads = "emitted at once" if join.kind is JoinKind.ANTI else "emitted with NULLs at once"
        end = pads if plan.padded else "dropped"
        return f"{plan.title}: not at all, because nothing can match; {end}"
    if join.asof is not None:
        return retention_line(join, join.asof, side)
    end = "then emitted with NULLs if it never matched" if plan.padded else "then dropped"
    if side is Side.LEFT and join.kind is JoinKind.ANTI:
        end = "then emitted if it never matched"
    if side is Side.LEFT and join.kind is JoinKind.SEMI:
        end = "then dropped; or until its first match, when it is emitted"
    keys = {plan.watermark_key(column) for column in plan.event_times}
    if join.horizon is not None:
        (key,), in_time = keys, key_in_time(join, join.horizon.keys[0])
        least = shifted(key, join.horizon.reach + lateness, in_time)
        both = " and ".join(join.horizon.keys)
        return f"{plan.title}: until the least watermark of {both} is above {least}; {end}"
    bounds = [b for b in join.bounds if b.evicted in keys]
    return f"{plan.title}: until {' or '.join(_until(join, b) for b in bounds)}; {end}"


def _until(join: JoinPlan, bound: Bound) -> str:
    least = shifted(bound.evicted, bound.c, key_in_time(join, bound.by))
    return f"the watermark of {bound.by} is above {least}"


def _checked(join: JoinPlan) -> Iterator[str]:
    yield from join.recheck_texts
    yield from join.values.recheck_texts
    if join.residual is not None:
        yield residual_line(join)


def residual_line(join: MatchPlan) -> str:
    """The residual condition, and why Spark computes it, if it does."""
    assert join.residual is not None
    text = plain(text_of(join.residual))
    if join.residual_exact is not None:
        return text
    return f"{text}: computed by Spark over the candidate pairs ({'; '.join(join.residual_why)})"


def _arrangement(join: JoinPlan, side: Side) -> str:
    plan = join.side(side)
    keys: Iterable[str] = [qualified(text_of(key.expr(side)), plan) for key in join.keys]
    indexes = list(dict.fromkeys(plan.joined(index.column) for index in join.indexes(side)))
    text = f"{plan.title}: key {', '.join(keys) or 'none'}"
    if len(indexes) > 1:
        others = f"whichever of {', '.join(indexes[1:])}" if len(indexes) > 2 else indexes[1]
        return f"{text}; sorted by {indexes[0]}, or by {others} if it is measured to find fewer candidates"
    timed = not indexes or indexes[0] in {plan.watermark_key(column) for column in plan.event_times}
    return f"{text}; {'time' if timed else 'sorted by'} {indexes[0] if indexes else 'none'}"
