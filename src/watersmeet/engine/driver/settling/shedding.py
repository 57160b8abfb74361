"""Shedding: what keeps more than it may lets rows go at the end of a tick (SET at_limit).

From the next tick on a shed row is matched with nothing; it is not padded when it would have been released,
nor put out by ANTI, and it is not retained. Which rows go, by which limit after the other: of a node, when it
has settled, of keys with more rows than ``max_rows_per_key`` the oldest, or all; then of all its rows the
oldest, all of one time together, or those of the heaviest keys, until ``max_rows`` and ``max_bytes`` hold.
When all nodes have settled, likewise of what the job keeps of each source with limits, then of all
(`shed_job`). It follows from the rows that are kept alone, or was decided by the first attempt at the tick
(`shed_decided`), and so a tick that is repeated sheds the same, by however many tasks it is run. What it
costs goes, for the oldest and for one key, by the rows that are shed, now and since limits last passed them;
for the heaviest keys by all rows that count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.engine.driver.settling import shed_cuts
from watersmeet.engine.driver.settling.shed_cuts import Cut, crowding
from watersmeet.engine.driver.settling.shed_decided import decided
from watersmeet.engine.driver.settling.shed_kept import NodeKept, Shed
from watersmeet.spec.model import AtLimit, Options
from watersmeet.state.manifest import LiveRun


@dataclass(frozen=True)
class Counted:
    """What a limit is of: of some nodes what some of their sides keep, by name."""

    of: Sequence[tuple[NodeKept, Collection[str]]]
    at_limit: AtLimit

    def bring_rows_to(self, most: int, besides: int = 0) -> None:
        """Shed rows until no more are left. Rows of copies count once.

        Args:
            besides: what counts, too, and cannot be shed.
        """
        kept = [(node, rows) for node, names in self.of for _, rows, copy in node.stored(names) if not copy]
        excess = min(sum(rows for _, rows in kept), sum(rows for _, rows in kept) + besides - most)
        if excess > 0:
            self._apply(self._cut(excess, [0 if copy else 1 for _, _, copy in self._stored()]))

    def bring_bytes_to(self, most: int, name: str, besides: int = 0) -> None:
        """Shed rows until these count no more bytes, each as much as those of its file do on average.

        Args:
            name: of the file with what was decided.
        """
        stored = self._stored()
        nbytes = sum(-(-live.run.nbytes * rows // live.run.rows) for live, rows, _ in stored)
        excess = min(nbytes, nbytes + besides - most)

        def decide() -> Cut | None:
            weights = [max(1, live.run.nbytes // live.run.rows) for live, _, _ in stored]
            return self._cut(excess, weights) if excess > 0 else None

        rows = [node.arrangements[side].stored for node, names in self.of for side in names]
        store = self.of[0][0].store
        cut = decided(store, name, f"{self.at_limit.value} {most}: {rows}", decide)
        if cut is not None:
            self._apply(cut)

    def _stored(self) -> list[tuple[LiveRun, int, bool]]:
        return [told for node, names in self.of for told in node.stored(names)]

    def _cut(self, excess: int, weights: Sequence[int]) -> Cut:
        """The rows to go. ``weights``: what one of each run counts, as `_stored`."""
        parts = [part for node, names in self.of for part in node.parts(names)]
        counting = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight]
        choose = shed_cuts.oldest if self.at_limit is AtLimit.SHED_OLDEST else shed_cuts.heaviest
        return choose([part for part, _ in counting], excess, [weight for _, weight in counting])

    def _apply(self, cut: Cut) -> None:
        for node, names in self.of:
            node.apply(cut, names)


def shed_of_node(
    kept: NodeKept, options: Options, crowded: Sequence[Collection[int]], name: str
) -> Mapping[str, Shed]:
    """Bring what a node keeps down to its limits. Per side that has shed rows, how many, and which.

    Args:
        crowded: per side, by its place, upper halves of hashes under which keys may have too many rows.
        name: of the file with what was decided by the bytes of files.
    """
    if not options.at_limit.sheds:
        return {}
    if options.max_rows_per_key is not None:
        _by_keys(kept, options.max_rows_per_key, crowded, by_age=options.at_limit is AtLimit.SHED_OLDEST)
    of_node = Counted([(kept, kept.names)], options.at_limit)
    if options.max_rows is not None:
        of_node.bring_rows_to(options.max_rows)
    if options.max_bytes is not None:
        of_node.bring_bytes_to(options.max_bytes, name)
    return kept.marked(options.at_limit.value)


def _by_keys(kept: NodeKept, most: int, crowded: Sequence[Collection[int]], *, by_age: bool) -> None:
    for name, buckets in zip(kept.names, crowded, strict=True):
        parts = kept.parts([name]) if buckets else []
        if parts:
            chosen = crowding(parts, np.array(sorted(buckets)), most, by_age=by_age)
            for part, rows in zip(parts, chosen, strict=True):
                part.add(rows)
