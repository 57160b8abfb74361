"""EXPLAIN of tables that are compared with what they held before: how often, by what, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.plan.explain.durations import duration
from watersmeet.plan.explain.upserts import computed_lines
from watersmeet.plan.explain.words import Sections
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import SnapshotPlan
from watersmeet.spec.model import Source


def compared_lines(source: Source) -> Iterator[str]:
    """How a source changes that is compared."""
    every_us = source.traits.refresh_us if source.refresh_us is None else source.refresh_us
    how_often = f"every {duration(every_us)}" if every_us else "in every tick"
    yield f"changes: what it held before is compared with what it holds, looked at {how_often}"
    if source.primary_key is None:
        yield "by whole rows, each as often as it is there"
        return
    yield f"primary key: {', '.join(source.primary_key.columns)}; one row of a key, others are broken"
    yield from computed_lines(source)


def snapshot_sections(node: SnapshotPlan, _: QueryPlan) -> Sections:
    """What there is to say of it."""
    name, key = node.side.title, node.primary_key
    columns = ", ".join(node.side.kept)
    by = "a row's hash" if key is None else "the key's hash"
    return [
        ("Retention", [f"{name}: all its rows ({columns}), as they were read last"]),
        ("Task partitions", [f"by ranges of {by}"]),
    ]
