"""Which keys of what is kept have the most rows, by what the runs tell (`state.runs.heavy`), and which of
them tasks shared: for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from watersmeet.engine.messages.reports import NodeReport, SplitKey
from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.engine.tasks.told import key_as_written
from watersmeet.state.manifest import LiveRun, NodeState

TOLD_SHARE = 0.05
"""Of what is kept: keys with less are not told of."""
TOLD_KEYS = 5


@dataclass(frozen=True)
class KeyShare:
    """A key, as its users write it, and about how many rows it has; ``share``: of all of its side."""

    key: str
    rows: int
    share: float

    def __str__(self) -> str:
        return f"{self.key} has about {self.rows} rows ({self.share:.0%})"


def rows_by_bucket(runs: Iterable[LiveRun]) -> dict[int, tuple[int, str]]:
    """Per upper half of a hash how many rows of the runs it has, about, and its key as JSON. Of released
    rows it is taken that the keys have as great a share as of all."""
    heavy: dict[int, tuple[int, str]] = {}
    for live in runs:
        for told in live.heavy:
            rows, key = heavy.get(told.bucket, (0, told.key))
            heavy[told.bucket] = rows + told.rows, key
    return heavy


def key_shares(side: SideShape, runs: Sequence[LiveRun]) -> tuple[KeyShare, ...]:
    """The heaviest keys of a side that keeps ``runs``, the heaviest first."""
    kept = sum(live.stored for live in runs)
    ordered = sorted(rows_by_bucket(runs).values(), key=lambda told: (-told[0], told[1]))
    return tuple(
        KeyShare(key_as_written(side, key), rows, rows / kept)
        for rows, key in ordered[:TOLD_KEYS]
        if rows and rows >= TOLD_SHARE * kept
    )


def shares_by_side(
    shapes: Sequence[NodeShape], nodes: Sequence[NodeState]
) -> Mapping[str, tuple[KeyShare, ...]]:
    """The heaviest keys of what the nodes of a query keep, per side that has some."""
    shares = {
        side.name: key_shares(side, node.arrangements[side.name].runs)
        for shape, node in zip(shapes, nodes, strict=True)
        for side in shape.sides
        if side.name in node.arrangements
    }
    return {name: told for name, told in shares.items() if told}


def split_by_side(reports: Iterable[NodeReport]) -> Mapping[str, tuple[SplitKey, ...]]:
    """The keys that all tasks shared in a tick, per side that tells of them, those with most work first."""
    keys: dict[str, list[SplitKey]] = {}
    for report in reports:
        for key in report.split:
            keys.setdefault(key.side, []).append(key)
    return {name: tuple(sorted(told, key=lambda key: -key.share)) for name, told in keys.items()}
