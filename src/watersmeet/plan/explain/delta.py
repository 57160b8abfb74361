"""EXPLAIN of a delta join: its paths, what each look-up sees, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.event_time import Side
from watersmeet.names import shown
from watersmeet.plan.delta.counted import Counts
from watersmeet.plan.explain.durations import shifted
from watersmeet.plan.explain.joins import key_lines, residual_line
from watersmeet.plan.explain.words import Sections, number_of
from watersmeet.plan.model.delta import ArrangePlan, CountedKey, DeltaLookup, DeltaPlan, Retention
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.order.forecast import key_in_time


def arrangement_sections(node: ArrangePlan, query: QueryPlan) -> Sections:
    """What is kept of the inputs, how, and for how long; and the paths that look it up."""
    kept = [side for side in node.sides if side.copy_of is None]
    return [
        ("Paths (one per input that changes)", list(_paths(node, query))),
        (
            "Retention",
            [
                *(_retention(retention) for retention in node.retentions),
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
        ("Columns in state", [f"{side.title}: {', '.join(map(shown, side.kept))}" for side in kept]),
        ("Arrangements (input, key, time)", list(_arrangements(node, query))),
    ]


def _paths(node: ArrangePlan, query: QueryPlan) -> Iterator[str]:
    """``a -> b (before) -> c (after)`` per path: whose rows a look-up meets, as of when."""
    steps = [step for step in query.every(DeltaPlan) if step.arrangements == node.number]
    if not steps:  # an index is looked up by others
        return
    for number, name in enumerate(steps[0].path_names):
        lookups = [step.lookups[number] for step in steps]
        seen = [f"{lookup.join.right.title} ({_when(lookup)})" for lookup in lookups]
        yield " -> ".join([name, *seen])
    if query.uncounted is not None:
        yield "in the order of what is counted now: first what has fewest rows of a key (see Arrangements)"
    yield "after, before: as it is after the tick, or was before it; so one path puts each combination out"


def _when(lookup: DeltaLookup) -> str:
    return "after" if lookup.sees_tick else "before"


def _retention(retention: Retention) -> str:
    parts = []
    for other in retention.others:
        least = [f"{b.by} is above {shifted(b.evicted, b.c, key_in_time(other, b.by))}" for b in other.bounds]
        parts.append(" or ".join(least))
    return f"{retention.alias}: until the watermark of {' and that of '.join(parts)}; then dropped"


def _arrangements(node: ArrangePlan, query: QueryPlan) -> Iterator[str]:
    counts = Counts(query.counted)
    for side, arranged in zip(node.sides, node.arranged, strict=True):
        index = arranged.indexes[0].column if arranged.indexes else "none"
        timed = index in side.event_times or index == "none"
        told = f"{side.title}: key {arranged.key or 'none'}; {'time' if timed else 'sorted by'} {index}"
        yield told + _counted(counts.of(side.input.alias, arranged.keys))
        for other in arranged.others:
            counted = _counted(counts.of(side.input.alias, other.keys))
            yield f"{side.title}: found by {other.key}, too, in the same rows{counted}"


def _counted(key: CountedKey | None) -> str:
    if key is None:
        return ""
    of_key = f", {number_of(key.rows_per_key)} of a key" if key.keys else ""
    return f"; now {number_of(key.rows)} rows{of_key}"


def step_sections(node: DeltaPlan, query: QueryPlan) -> Sections:
    """By what each path finds its partners in this step."""
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
