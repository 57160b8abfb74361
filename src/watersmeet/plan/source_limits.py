"""Sources that have limits of their own, and the sides that retain rows of them."""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import Source


def is_limited(source: Source) -> bool:
    """Return True if the source has a limit that sheds its rows or stops the job."""
    return source.max_rows is not None or source.max_bytes is not None


def limited_sources(nodes: Iterable[NodePlan]) -> list[Source]:
    """Return the sources with limits whose rows sides retain.

    Each source occurs once, in the order of first use.
    """
    sources = {
        branch.source.name: branch.source
        for node in nodes
        for side in node.sides
        for _, branch in side.sources
    }
    return [source for source in sources.values() if is_limited(source)]


def source_of(side: SidePlan) -> str | None:
    """Return the source whose rows a side retains unchanged.

    Returns:
        None for rows derived from sources, or for rows of another side.
    """
    return side.sources[0][1].source.name if side.sources else None


def sides_of(node: NodePlan, source: str) -> tuple[str, ...]:
    """Return the names of a node's sides that retain rows of a source, copies included."""
    own = {side.name for side in node.sides if source_of(side) == source}
    return tuple(side.name for side in node.sides if side.name in own or side.copy_of in own)
