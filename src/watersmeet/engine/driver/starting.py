"""What ingest is told of each input that takes rows of sources, at the start of a tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from watersmeet.engine.driver.late import late_columns
from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.event_time import Watermark
from watersmeet.plan.model.job import JobPlan
from watersmeet.state.manifest import Manifest


class IngestFields(TypedDict):
    """Per ``query/alias``; see `TickStart`."""

    sides: dict[str, SideShape]
    late_below: dict[str, Mapping[str, Watermark]]
    max_ahead: dict[str, tuple[int | None, ...]]
    sources: dict[str, tuple[str, ...]]
    indexes: dict[str, str | None]


def ingest_fields(
    plan: JobPlan,
    shapes: Mapping[str, Sequence[NodeShape]],
    manifest: Manifest | None,
    late_below: Mapping[str, Mapping[str, Watermark]],
) -> IngestFields:
    """``late_below``: per query and watermark key, lesser times are late."""
    told = IngestFields(sides={}, late_below={}, max_ahead={}, sources={}, indexes={})
    for query in plan.queries:
        states = manifest.queries[query.name].nodes if manifest else []
        index_of = {name: state.index for node in states for name, state in node.arrangements.items()}
        for node in query.nodes:
            for side, task in zip(node.sides, shapes[query.name][node.number].sides, strict=True):
                if not side.ingested:
                    continue
                name, branches = task.arrangement, dict(side.ingested)
                read = [branches[n].source if n in branches else None for n in range(len(side.branches))]
                told["sides"][name] = task
                told["late_below"][name] = late_columns(side, late_below[query.name])
                told["max_ahead"][name] = tuple(
                    None if source is None else source.max_ahead_us for source in read
                )
                told["sources"][name] = tuple("" if source is None else source.name for source in read)
                told["indexes"][name] = index_of.get(side.name)
    return told
