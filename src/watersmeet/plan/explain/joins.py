"""EXPLAIN of joins: bands, ASOF, delta joins, distribution over tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from watersmeet.conditions import AsofRule, Bound, ExactBand, RealBand
from watersmeet.event_time import Side
from watersmeet.measure import TEXT
from watersmeet.names import format_column_name
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.delta.paths import Counts
from watersmeet.plan.explain.wording import (
    Sections,
    distance,
    format_shift,
    number_of,
    plain,
    qualify_key,
)
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import (
    ArrangePlan,
    CountedKey,
    DeltaLookup,
    DeltaPlan,
    JoinPlan,
    MatchPlan,
    Retention,
)
from watersmeet.plan.model.sides import joined_name
from watersmeet.plan.order.forecast import SideForecast, key_in_time, side_forecasts
from watersmeet.plan.query_inputs import unit_of_type
from watersmeet.spec.model import JoinKind

# EXPLAIN: the bands of a join that are no time bounds, each end by what it bounds.


def band_lines(join: MatchPlan) -> Iterator[str]:
    """Yield one line per end of a band, with the way in which the condition is decided.

    The ends of a floating-point band are approximate.
    """
    lines: list[tuple[str, str]] = []
    for exact in join.values.exact:
        how = ", by the first bytes, decided as written" if exact.left.measure == TEXT else ""
        lines += [(end, f"from {' and '.join(exact.texts)}{how}") for end in _ends(join, exact)]
    for real in join.values.real:
        how = "" if real.comparison is not None else ", decided as written"
        lines += [(f"about {end}", f"from {real.text}{how}") for end in _ends(join, real)]
    width = max((len(end) for end, _ in lines), default=0)
    for end, origin in lines:
        yield f"{end:<{width}}  {origin}"


def _ends(join: MatchPlan, band: ExactBand | RealBand) -> Iterator[str]:
    left, right = (join.side(side).joined(band.measured(side).column) for side in Side)
    if band.lower is not None:
        yield f"{right} >= {_shift_bound(join, band, left, band.lower)}"
    if band.upper is not None:
        yield f"{left} >= {_shift_bound(join, band, right, -band.upper)}"


def _shift_bound(join: MatchPlan, band: ExactBand | RealBand, name: str, by: float) -> str:
    if isinstance(band, ExactBand) and band.left.measure.kind == "whole":
        return format_shift(name, int(by), _is_time(join, name))
    places = band.left.measure.places
    number = f"{Decimal(int(by)).scaleb(-places).normalize():f}" if isinstance(band, ExactBand) else f"{by:g}"
    return name if by == 0 else f"{name} {'-' if by < 0 else '+'} {number.lstrip('-')}"


def _is_time(join: MatchPlan, name: str) -> bool:
    return any(
        joined_name(i.alias, column.name) == name and unit_of_type(column.type).is_time
        for side in Side
        for i in join.side(side).inputs
        for column in i.columns
    )


# EXPLAIN of an ASOF join: which row is taken, when that is decided, and what is kept for it.


def nearest_lines(join: JoinPlan, asof: AsofRule) -> Iterator[str]:
    """Yield the lines that define the nearest row."""
    right = join.right.title
    _, column = _times(join)
    which = "latest" if asof.latest else "earliest"
    texts = " AND ".join(dict.fromkeys(join.bands[0].texts))
    of_key = " of the same key" if join.keys else ""
    yield f"the {which} row of {right} by {column}{of_key}, of those with {texts}"
    of_a_tick = "source partition, and place in it" if join.right.in_order else "in it by a hash of the row"
    yield f"of equal times the row that came first: by tick, {of_a_tick}"


def _times(join: JoinPlan) -> tuple[str, str]:
    band = join.bands[0]
    return join.left.watermark_key(band.left.column), join.right.watermark_key(band.right.column)


def _left_retention(join: JoinPlan, asof: AsofRule) -> str:
    left, right = _times(join)
    in_time, band = key_in_time(join, left), join.bands[0]
    assert band.upper is not None
    alone = "padded with NULLs" if join.kind.pads_left else "dropped"
    last = f"the watermark of {right} is above {format_shift(left, band.upper, in_time)}"
    if asof.latest:
        until = f"a row is there that no later one can be nearer than, or {last}"
    else:
        until = (
            f"the watermark of {right} is at its nearest row, or above "
            f"{format_shift(left, band.upper, in_time)}"
        )
    return f"{join.left.title}: until {until}; then emitted with its nearest row, or {alone} without one"


def _right_retention(join: JoinPlan, asof: AsofRule) -> str:
    left, right = _times(join)
    in_time, name = key_in_time(join, right), join.right.title
    asked = f"the least {left} that may still ask"
    oldest = None if asof.closed_lower is None else _format_offset(asked, asof.closed_lower, in_time)
    if not asof.latest:
        return f"{name}: until {right} is below {oldest}; then dropped"
    assert asof.closed_upper is not None
    newest = _format_offset(asked, asof.closed_upper, in_time)
    per_key = "of each key " if join.keys else ""
    limit = "" if oldest is None else f", as long as {right} is not below {oldest}"
    return f"{name}: {per_key}the last row below {newest}, and all newer ones{limit}"


def _format_offset(asked: str, by: int, in_time: bool) -> str:
    if by == 0:
        return asked
    return f"{distance(abs(by), in_time)} {'before' if by < 0 else 'after'} {asked}"


# EXPLAIN: how the rows of a join are spread over tasks, and why so.


def spread_lines(query: QueryPlan, join: JoinPlan) -> Iterator[str]:
    """Yield how a join is spread over tasks; for a single task, also a hint that would help."""
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
    """Return the BROADCAST hint as the user writes it in the SELECT that has the join."""
    return f"/*+ BROADCAST({join.side(side).name.rsplit('.', 1)[-1]}) */"


def _suggestion(query: QueryPlan, join: JoinPlan) -> Iterator[str]:
    """Yield the suggestion to broadcast one side of the join.

    The side has to be an input. Of two inputs it is the one that retains less, where that is known.
    """
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
    """Return the maximum number of retained rows by declared rates, or None if unknown."""
    return forecast.rows(forecast.rate) if forecast.rate is not None and forecast.in_time else None


# EXPLAIN of one join: how its rows meet, for how long they are kept, what is held of them.


def join_sections(join: JoinPlan, query: QueryPlan) -> Sections:
    """Return the sections of a join."""
    sides = (join.left, join.right)
    return [
        ("Keys", list(key_lines(join)) or [f"none: matches are looked up by {_looked_up_by(join)} alone"]),
        ("Nearest row", [] if join.asof is None else list(nearest_lines(join, join.asof))),
        ("Time bounds", list(_bounds(join))),
        ("Eviction bounds", [] if join.horizon is not None else list(_postpone_map(join))),
        ("Lateness (SET lateness = join)", list(horizon_lines(join, query.options.allowed_lateness))),
        ("Bands (they find matches, and release nothing)", list(band_lines(join))),
        ("Retention", [_side_retention(join, side, query.options.allowed_lateness) for side in Side]),
        ("Conditions on one input", [f"{name}: {text}" for name, text in (*join.one_sided, *join.filters)]),
        ("Checked on each candidate pair", list(_recheck_lines(join))),
        (
            "Columns in state",
            [f"{side.title}: {', '.join(map(format_column_name, side.kept))}" for side in sides],
        ),
        ("Arrangements (input, key, time)", [_arrangement(join, side) for side in Side]),
        ("Task partitions", list(spread_lines(query, join))),
    ]


def key_lines(join: MatchPlan) -> Iterator[str]:
    """Yield the equalities, one per line."""
    for key in join.keys:
        left, right = (qualify_key(text_of(key.expr(side)), join.side(side)) for side in Side)
        yield f"{left} {'<=>' if key.null_safe else '='} {right}"


def _bounds(join: JoinPlan) -> Iterator[str]:
    texts = [f"{b.evicted} >= {format_shift(b.by, -b.c, key_in_time(join, b.evicted))}" for b in join.bounds]
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
    """Yield the lines of the rule `lateness = join`, with its figures."""
    if join.horizon is None:
        return
    (left, right), reach = join.horizon.keys, join.horizon.reach
    in_time = key_in_time(join, left)
    back = format_shift("W", -(reach + lateness), in_time)
    yield f"W is the least watermark of {left} and {right}, the reach {distance(reach, in_time)}"
    if lateness:
        yield f"{back} is the horizon: W less the reach and allowed lateness {distance(lateness, in_time)}"
    else:
        yield f"{back} is the horizon: W less the reach"
    yield "a row below the horizon is late, and none is retained; it is the output watermark of both times"
    yield "a row below W meets rows that are still in state: its result may depend on the order of arrival"


def _side_retention(join: JoinPlan, side: Side, lateness: int) -> str:
    plan = join.side(side)
    if all(i.is_table for i in plan.inputs):
        return f"{plan.title}: until the row is deleted"
    if not join.matchable:
        pads = "emitted at once" if join.kind is JoinKind.ANTI else "emitted with NULLs at once"
        end = pads if plan.padded else "dropped"
        return f"{plan.title}: not at all, because nothing can match; {end}"
    if join.asof is not None:
        return _left_retention(join, join.asof) if side is Side.LEFT else _right_retention(join, join.asof)
    end = "then emitted with NULLs if it never matched" if plan.padded else "then dropped"
    if side is Side.LEFT and join.kind is JoinKind.ANTI:
        end = "then emitted if it never matched"
    if side is Side.LEFT and join.kind is JoinKind.SEMI:
        end = "then dropped; or until its first match, when it is emitted"
    keys = {plan.watermark_key(column) for column in plan.event_times}
    if join.horizon is not None:
        (key,), in_time = keys, key_in_time(join, join.horizon.keys[0])
        least = format_shift(key, join.horizon.reach + lateness, in_time)
        both = " and ".join(join.horizon.keys)
        return f"{plan.title}: until the least watermark of {both} is above {least}; {end}"
    bounds = [b for b in join.bounds if b.evicted in keys]
    return f"{plan.title}: until {' or '.join(_release_condition(join, b) for b in bounds)}; {end}"


def _release_condition(join: JoinPlan, bound: Bound) -> str:
    least = format_shift(bound.evicted, bound.c, key_in_time(join, bound.by))
    return f"the watermark of {bound.by} is above {least}"


def _recheck_lines(join: JoinPlan) -> Iterator[str]:
    yield from join.recheck_texts
    yield from join.values.recheck_texts
    if join.residual is not None:
        yield residual_line(join)


def residual_line(join: MatchPlan) -> str:
    """Return the residual condition and, if Spark computes it, the reason."""
    assert join.residual is not None
    text = plain(text_of(join.residual))
    if join.residual_exact is not None:
        return text
    return f"{text}: computed by Spark over the candidate pairs ({'; '.join(join.residual_why)})"


def _arrangement(join: JoinPlan, side: Side) -> str:
    plan = join.side(side)
    keys: Iterable[str] = [qualify_key(text_of(key.expr(side)), plan) for key in join.keys]
    indexes = list(dict.fromkeys(plan.joined(index.column) for index in join.indexes(side)))
    text = f"{plan.title}: key {', '.join(keys) or 'none'}"
    if len(indexes) > 1:
        others = f"whichever of {', '.join(indexes[1:])}" if len(indexes) > 2 else indexes[1]
        return f"{text}; sorted by {indexes[0]}, or by {others} if it is measured to find fewer candidates"
    timed = not indexes or indexes[0] in {plan.watermark_key(column) for column in plan.event_times}
    return f"{text}; {'time' if timed else 'sorted by'} {indexes[0] if indexes else 'none'}"


# EXPLAIN of a delta join: its paths, what each look-up sees, and what is kept.


def arrangement_sections(node: ArrangePlan, query: QueryPlan) -> Sections:
    """Return the sections of arrangements: their paths, the retained rows, how, and how long."""
    kept = [side for side in node.sides if side.copy_of is None]
    return [
        ("Paths (one per input that changes)", list(_paths(node, query))),
        (
            "Retention",
            [
                *(_delta_retention(retention) for retention in node.retentions),
                *(f"{side.title}: until the row is deleted" for side in kept if side.input.is_table),
            ],
        ),
        (
            "Results",
            ["of a stream's row are final when it is released: later changes of tables do not reach them"]
            if node.has_tables
            else [],
        ),
        ("Conditions on one input", [f"{name}: {text}" for name, text in node.filters]),
        (
            "Columns in state",
            [f"{side.title}: {', '.join(map(format_column_name, side.kept))}" for side in kept],
        ),
        ("Arrangements (input, key, time)", list(_arrangements(node, query))),
    ]


def _paths(node: ArrangePlan, query: QueryPlan) -> Iterator[str]:
    """Yield ``a -> b (before) -> c (after)`` per path.

    The line names the inputs that a path looks up, and as of when.
    """
    steps = [step for step in query.every(DeltaPlan) if step.arrangements == node.number]
    if not steps:  # an index is looked up by others
        return
    for number, name in enumerate(steps[0].path_names):
        lookups = [step.lookups[number] for step in steps]
        seen = [f"{lookup.join.right.title} ({_lookup_time(lookup)})" for lookup in lookups]
        yield " -> ".join([name, *seen])
    if query.uncounted is not None:
        yield "in the order of what is counted now: first what has fewest rows of a key (see Arrangements)"
    yield "after, before: as it is after the tick, or was before it; so one path puts each combination out"


def _lookup_time(lookup: DeltaLookup) -> str:
    return "after" if lookup.sees_tick else "before"


def _delta_retention(retention: Retention) -> str:
    parts = []
    for other in retention.others:
        least = [
            f"{b.by} is above {format_shift(b.evicted, b.c, key_in_time(other, b.by))}" for b in other.bounds
        ]
        parts.append(" or ".join(least))
    return f"{retention.alias}: until the watermark of {' and that of '.join(parts)}; then dropped"


def _arrangements(node: ArrangePlan, query: QueryPlan) -> Iterator[str]:
    counts = Counts(query.counted)
    for side, arranged in zip(node.sides, node.arranged, strict=True):
        index = arranged.indexes[0].column if arranged.indexes else "none"
        timed = index in side.event_times or index == "none"
        told = f"{side.title}: key {arranged.key or 'none'}; {'time' if timed else 'sorted by'} {index}"
        yield told + _format_cardinality(counts.of(side.input.alias, arranged.keys))
        for other in arranged.others:
            counted = _format_cardinality(counts.of(side.input.alias, other.keys))
            yield f"{side.title}: found by {other.key}, too, in the same rows{counted}"


def _format_cardinality(key: CountedKey | None) -> str:
    if key is None:
        return ""
    of_key = f", {number_of(key.rows_per_key)} of a key" if key.keys else ""
    return f"; now {number_of(key.rows)} rows{of_key}"


def step_sections(node: DeltaPlan, query: QueryPlan) -> Sections:
    """Return the lines that state how each path finds its matches in this step."""
    lines = []
    for name, lookup in zip(node.path_names, node.lookups, strict=True):
        texts = [*key_lines(lookup.join)]
        texts += [text for band in lookup.join.bands for text in band.texts]
        texts += [text for band in lookup.join.values.exact for text in band.texts]
        texts += [band.text for band in lookup.join.values.real]
        texts += list(lookup.join.recheck_texts)
        if lookup.join.residual is not None:
            texts.append(residual_line(lookup.join))
        asked = " and ".join(dict.fromkeys(texts)) or "no condition: every row"
        lines.append(f"{name}: {lookup.join.side(Side.RIGHT).title} by {asked}")
    return [("Look-ups (path: input by condition)", lines)]
