"""The share of a node that one task has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.engine.messages.reports import NodeReport
from watersmeet.engine.messages.work import NodeWork
from watersmeet.engine.tasks.feed import FeedWriter
from watersmeet.kernel.batches import size
from watersmeet.state.store import Store

CANDIDATES, IN_ALL = 2, 4
"""For each match that a task is to find at most, it may look at so many candidates of one run, or release so
many rows of it; and at so many, and rows, in all."""
ALONE_BYTES = 128 << 20
"""Of rows that leave a node that is run without Spark, wherever they go, to each that takes them; and of
those that it holds with their windows. Each of its shares has its part of this."""


class ManyMatches(Exception):
    """A task found more matches than it was to, or is about to do as much."""


@dataclass
class Spent:
    """What a share has done of what it may. ``seen``: candidates and rows; ``held``, ``left``: bytes."""

    seen: int = 0
    held: int = 0
    left: int = 0


@dataclass(frozen=True)
class Share:
    """What one task of a node is given: the node's work, and which share of how many is its own. It fills in
    its ``report``. ``paths``: what takes the rows of each path that leads through the node; ``paths_abroad``:
    likewise in other queries. ``most_matches``: after so many it gives up, or after as much work or memory
    (None: never); ``spent``: how far it is."""

    store: Store
    tick: int
    work: NodeWork
    report: NodeReport
    partition: int
    partitions: int
    paths: Sequence[FeedWriter] = ()
    paths_abroad: Mapping[int, Sequence[FeedWriter]] = field(default_factory=dict)
    most_matches: int | None = None
    spent: Spent = field(default_factory=Spent)

    @property
    def is_bounded(self) -> bool:
        """It gives up where there is much to do."""
        return self.most_matches is not None

    def matched(self, rows: int) -> None:
        """Count matches. Raises: ManyMatches."""
        self.report.matches += rows
        if self.most_matches is not None and self.report.matches > self.most_matches:
            raise ManyMatches

    def sees(self, rows: int) -> None:
        """Say how many candidates, or rows that are released, come next, before any is taken. Raises:
        ManyMatches: they are too many, or are with those before them."""
        self.spent.seen += rows
        most = self.most_matches
        if most is not None and (rows > most * CANDIDATES or self.spent.seen > most * IN_ALL):
            raise ManyMatches

    def holds(self, nbytes: int) -> None:
        """Say how many bytes rows that are put together next have, before they are. Raises: ManyMatches."""
        self.spent.held += nbytes
        if self.is_bounded and self.spent.held > ALONE_BYTES // self.partitions:
            raise ManyMatches

    def leaves(self, rows: pa.RecordBatch, takers: int = 1) -> None:
        """Count rows that leave, for each of so many that keep them until the tick is done. Raises:
        ManyMatches."""
        if not self.is_bounded:
            return
        self.spent.left += size(rows.columns) * takers
        if self.spent.left > ALONE_BYTES // self.partitions:
            raise ManyMatches
