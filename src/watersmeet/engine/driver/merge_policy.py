"""Which runs are merged in a tick: size-tiered.

`FAN_IN` groups of about one size become one group of the next, so that a row is rewritten O(log state) times;
groups are not grown beyond `GROUP_ROWS` rows or `GROUP_BYTES` (`engine.tasks.merge`), so that what is kept on
disk after its release is bounded by one group per end of the retained span.

Runs that hold deletes of a table's rows, and none of them, are merged with their like.

Merging partial aggregates combines those of one pane and group. There the number of groups of runs bounds how
often one is kept, so fewer are left unmerged (`COMBINING_FAN_IN`), and they grow as far as they have to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from watersmeet.engine.tasks import merge
from watersmeet.state.manifest import LiveRun

FAN_IN = 8
COMBINING_FAN_IN = 4
SMALL_ROWS = 4_096
"""Groups up to this size are of one tier: merging them costs next to nothing."""


def choose(runs: Sequence[LiveRun], *, combining: bool = False) -> list[list[str]]:
    """The merges that are due: lists of run names, oldest group first. Every run is in at most one."""
    fan_in = COMBINING_FAN_IN if combining else FAN_IN
    groups: dict[str, list[LiveRun]] = defaultdict(list)
    for live in runs:
        groups[live.run.group].append(live)
    tiers: dict[tuple[int, bool], list[str]] = defaultdict(list)
    sizes = {name: sum(live.stored for live in members) for name, members in groups.items()}
    held = {name: sum(_stored_bytes(live) for live in members) for name, members in groups.items()}
    for name, rows in sizes.items():
        stand_for_none = groups[name][0].run.stands_for == 0
        tiers[_tier(rows, fan_in), stand_for_none].append(name)
    merges = []
    for names in tiers.values():
        if len(names) < fan_in:
            continue
        merges += [
            [live.run.name for name in chosen for live in groups[name]]
            for chosen in ([names] if combining else _filled(names, sizes, held))
            if len(chosen) >= fan_in // 2
        ]
    return merges


def _filled(names: Sequence[str], sizes: Mapping[str, int], held: Mapping[str, int]) -> list[list[str]]:
    """The groups in order, cut so that each part holds at most `GROUP_ROWS` rows and `GROUP_BYTES`."""
    parts: list[list[str]] = [[]]
    rows = of_rows = 0
    for name in names:
        if parts[-1] and (rows + sizes[name] > merge.GROUP_ROWS or of_rows + held[name] > merge.GROUP_BYTES):
            parts.append([])
            rows = of_rows = 0
        parts[-1].append(name)
        rows += sizes[name]
        of_rows += held[name]
    return parts


def _stored_bytes(live: LiveRun) -> int:
    return live.run.nbytes * live.stored // max(live.run.rows, 1)


def _tier(rows: int, fan_in: int) -> int:
    tier, limit = 0, SMALL_ROWS
    while rows > limit:
        tier, limit = tier + 1, limit * fan_in
    return tier
