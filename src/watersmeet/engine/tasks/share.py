"""The share of a node that one task has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from watersmeet.engine.messages.reports import NodeReport
from watersmeet.engine.messages.work import NodeWork
from watersmeet.engine.tasks.feed import FeedWriter
from watersmeet.state.store import Store

CANDIDATES = 2
"""For each match that a task is to find at most, it may look at so many candidates of one run, or release so
many rows of it."""


class ManyMatches(Exception):
    """A task found more matches than it was to, or is about to do as much."""


@dataclass(frozen=True)
class Share:
    """What one task of a node is given: the node's work, and which share of how many is its own. It fills in
    its ``report``. ``paths``: what takes the rows of each path that leads through the node; ``paths_abroad``:
    likewise in other queries. ``most_matches``: after so many it gives up (None: never)."""

    store: Store
    tick: int
    work: NodeWork
    report: NodeReport
    partition: int
    partitions: int
    paths: Sequence[FeedWriter] = ()
    paths_abroad: Mapping[int, Sequence[FeedWriter]] = field(default_factory=dict)
    most_matches: int | None = None

    def matched(self, rows: int) -> None:
        """Count matches. Raises: ManyMatches."""
        self.report.matches += rows
        if self.most_matches is not None and self.report.matches > self.most_matches:
            raise ManyMatches

    def sees(self, rows: int) -> None:
        """Say how many candidates, or rows that are released, come next, before any is taken. Raises:
        ManyMatches."""
        if self.most_matches is not None and rows > self.most_matches * CANDIDATES:
            raise ManyMatches
