"""Which runs are merged in a tick: size-tiered.

`FAN_IN` groups of about one size become one group of the next, so that a row is rewritten O(log state) times;
groups are not grown beyond `GROUP_ROWS` rows or `GROUP_BYTES` (`runtime.tasks.merge`), so that what is kept
on disk after its release is bounded by one group per end of the retained span.

Runs that hold deletes of a table's rows, and none of them, are merged with their like.

Rows that change go at any age, and not in the order in which they came. There the groups with most rows that
are gone are written anew when all together hold more than `MAX_RELEASED_SHARE` of them for each that is not.
So are, where rows are shed for the bytes of their files, those with most bytes of rows that are gone.

Merging partial aggregates combines those of one pane and group. There the number of groups of runs bounds how
often one is kept, so fewer are left unmerged (`COMBINING_FAN_IN`), and they grow as far as they have to.
Where nearly every row is a group of its own there is little to combine, and as many are left as of rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.query_inputs import limited_sources, sides_of
from watersmeet.runtime.tasks import merge
from watersmeet.state.manifest import LiveRun

FAN_IN = 8
COMBINING_FAN_IN = 4
SMALL_ROWS = 4_096
"""Groups up to this size are of one tier: merging them costs next to nothing."""
MIN_PARTIALS_PER_ROW = 0.8
"""Of so many partial aggregates for each row that they stand for, or more, hardly any are combined."""


MAX_RELEASED_SHARE = 0.2
"""Of changing rows: more rows that are gone, for each that is not, are not left in files."""
MAX_RELEASED_LEFT = 0.1
"""So many are left at most when some are cleared away."""


def compute_released_byte_limits(plan: JobPlan) -> dict[str, int]:
    """Compute the maximum bytes of released rows in files of a side, per ``query/side``.

    A side that is not in the result has no such limit. Where rows are shed by bytes, files exceed the
    byte limit of a join, a source or the job by at most the fraction `MAX_RELEASED_SHARE`; all sides
    under a limit get equal portions of that.
    """
    options = plan.queries[0].options
    if not options.at_limit.sheds:
        return {}
    every = [(query.name, node) for query in plan.queries for node in query.nodes if not node.rests]
    of_nodes = [[f"{query}/{side.name}" for side in node.sides] for query, node in every]
    limited = [(options.max_bytes, sides) for sides in of_nodes]
    limited.append((options.max_job_bytes, [side for sides in of_nodes for side in sides]))
    for source in limited_sources(node for _, node in every):
        own = [f"{query}/{name}" for query, node in every for name in sides_of(node, source.name)]
        limited.append((source.max_bytes, own))
    gone: dict[str, int] = {}
    for most, sides in limited:
        if most is not None:
            share = int(MAX_RELEASED_SHARE * most) // len(sides)
            gone |= {side: min(share, gone.get(side, share)) for side in sides}
    return gone


def choose_merges(
    runs: Sequence[LiveRun],
    *,
    combining: bool = False,
    read_once: bool = False,
    changing: bool = False,
    most_gone: int | None = None,
) -> list[list[str]]:
    """Choose the merges that are due.

    Args:
        combining: True if merging reduces the number of rows.
        read_once: True if retained rows are read when they are released and not in each tick, so that
            more runs cost nothing until then.
        changing: True if rows of any age can be released, so that runs of any age may contain released
            rows.
        most_gone: maximum bytes of released rows in files; None for no limit.

    Returns:
        Lists of run names, oldest group first. Each run is in at most one list.
    """
    if len(runs) < (COMBINING_FAN_IN if combining else FAN_IN) and not changing and most_gone is None:
        return []
    groups: dict[str, list[LiveRun]] = defaultdict(list)
    for live in runs:
        groups[live.run.group].append(live)
    tiers: dict[tuple[int, int, bool], list[str]] = defaultdict(list)
    sizes = {name: sum(live.stored for live in members) for name, members in groups.items()}
    held = {name: sum(_stored_bytes(live) for live in members) for name, members in groups.items()}
    for name, rows in sizes.items():
        # Partial rows may come to no row, too, in sum: those are like all others.
        stand_for_none = not combining and groups[name][0].run.stands_for == 0
        fan_in = (
            COMBINING_FAN_IN
            if combining and not (read_once and _is_hardly_combined(groups[name]))
            else FAN_IN
        )
        tiers[_tier(rows, fan_in), fan_in, stand_for_none].append(name)
    merges = []
    for (_, fan_in, _), names in tiers.items():
        if len(names) < fan_in:
            continue
        merges += [
            [live.run.name for name in chosen for live in groups[name]]
            for chosen in ([names] if combining else _split_by_size(names, sizes, held))
            if len(chosen) >= fan_in // 2
        ]
    if changing:
        merges += _choose_by_released_rows(groups, {name for merged in merges for name in merged})
    if most_gone is not None:
        merges += _choose_by_released_bytes(groups, {name for merged in merges for name in merged}, most_gone)
    return merges


def _choose_by_released_bytes(
    groups: Mapping[str, Sequence[LiveRun]], merged: set[str], most: int
) -> list[list[str]]:
    """Choose the groups to rewrite because released rows use too many of their bytes.

    Groups with the greatest fraction of released bytes are first, until at most half of ``most``
    remains. So each released byte costs a bounded number of rewritten bytes, in proportion to the
    retained bytes per byte of ``most``.
    """
    held = {name: sum(_stored_bytes(live) for live in members) for name, members in groups.items()}
    nbytes = {name: sum(live.run.nbytes for live in members) for name, members in groups.items()}
    gone = {
        name: nbytes[name] - held[name]
        for name, members in groups.items()
        if members[0].run.name not in merged
    }
    left, chosen = sum(gone.values()), set[str]()
    if left <= most:
        return []
    for name in sorted(gone, key=lambda name: -gone[name] / nbytes[name]):
        if left <= most // 2:
            break
        chosen.add(name)
        left -= gone[name]
    in_order = [name for name in groups if name in chosen]
    sizes = {name: sum(live.stored for live in groups[name]) for name in in_order}
    return [
        [live.run.name for name in part for live in groups[name]]
        for part in _split_by_size(in_order, sizes, held)
    ]


def _choose_by_released_rows(groups: Mapping[str, Sequence[LiveRun]], merged: set[str]) -> list[list[str]]:
    """Choose the groups to rewrite because many of their rows are released.

    Groups with the greatest fraction of released rows are first. A released row costs the writing of
    at most 1 / `MAX_RELEASED_LEFT` other rows, whatever the size of the state.
    """
    merges = []
    for stand_for_none in (False, True):
        own = {
            name: members
            for name, members in groups.items()
            if (members[0].run.stands_for == 0) == stand_for_none
        }
        there = sum(live.stored for members in own.values() for live in members)
        gone = {
            name: sum(live.released for live in members)
            for name, members in own.items()
            if members[0].run.name not in merged
        }
        left = sum(gone.values())
        if left <= max(MAX_RELEASED_SHARE * there, SMALL_ROWS):
            continue
        chosen = []
        for name in sorted(gone, key=lambda name: -gone[name] / sum(live.run.rows for live in own[name])):
            if left <= MAX_RELEASED_LEFT * there:
                break
            chosen.append(name)
            left -= gone[name]
        in_order = [name for name in own if name in set(chosen)]
        sizes = {name: sum(live.stored for live in own[name]) for name in in_order}
        held = {name: sum(_stored_bytes(live) for live in own[name]) for name in in_order}
        merges += [
            [live.run.name for name in part for live in own[name]]
            for part in _split_by_size(in_order, sizes, held)
        ]
    return merges


def _split_by_size(
    names: Sequence[str], sizes: Mapping[str, int], held: Mapping[str, int]
) -> list[list[str]]:
    """Split groups, in order, into parts of at most `GROUP_ROWS` and `GROUP_BYTES`."""
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


def _is_hardly_combined(group: Sequence[LiveRun]) -> bool:
    """Return True if hardly any partial aggregate of the group stands for several rows.

    Returns False for small groups.
    """
    rows = sum(live.run.rows for live in group)
    return rows > SMALL_ROWS and rows >= MIN_PARTIALS_PER_ROW * sum(
        live.run.stands_for or 0 for live in group
    )


def _tier(rows: int, fan_in: int) -> int:
    tier, limit = 0, SMALL_ROWS
    while rows > limit:
        tier, limit = tier + 1, limit * fan_in
    return tier
