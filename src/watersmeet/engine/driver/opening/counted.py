"""What the state of delta joins tells of their arrangements: rows, and rows of one key, per key. Nothing,
where another query kept some of them in the last tick."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.plan.delta.counted import Counts
from watersmeet.plan.model.delta import ArrangePlan, CountedKey
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.state.manifest import LiveRun, Manifest, NodeState


def counts_of(plan: JobPlan, manifest: Manifest) -> dict[str, Counts]:
    """Per query that has a delta join, and state of this very plan."""
    counts = {}
    for query in plan.queries:
        if manifest.fingerprints.get(query.name) != query.fingerprint or not query.every(ArrangePlan):
            continue
        nodes = manifest.queries[query.name].nodes
        if not any(node.kept_by or node.elsewhere for node in nodes):
            counts[query.name] = Counts(_counted(query, nodes))
    return counts


def _counted(query: QueryPlan, nodes: Sequence[NodeState]) -> tuple[CountedKey, ...]:
    keys = []
    for node in query.every(ArrangePlan):
        arrangements = nodes[node.number].arrangements
        for side, arranged in zip(node.sides, node.arranged, strict=True):
            runs = arrangements[side.name].runs if side.name in arrangements else []
            alias, rows = side.copy_of or side.name, sum(live.stored for live in runs)
            for number, columns in enumerate(arranged.every):
                keys.append(
                    CountedKey(alias, columns, rows, _rows_per_key(runs, number, len(arranged.every)))
                )
    return tuple(keys)


def _rows_per_key(runs: Sequence[LiveRun], key: int, keys: int) -> float:
    """Of each run how many of its rows have one key, in the mean over all rows. ``keys``: runs with another
    number of them were written for another query, by other keys."""
    rows = sum(live.run.rows for live in runs)
    if not rows or any(len(live.run.keys) != keys for live in runs):
        return float(rows)
    return sum(live.run.rows**2 / live.run.keys[key] for live in runs) / rows
