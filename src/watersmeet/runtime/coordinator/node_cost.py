"""Estimate the work of a node in a tick: inline or in how many tasks, and its hot keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from watersmeet.event_time import ENDED, NEVER
from watersmeet.parallel import own_cores
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.order.forecast import MeasuredSide
from watersmeet.runtime.coordinator.operators.registry import find_driver
from watersmeet.runtime.coordinator.shared_inputs import home_of, node_of
from watersmeet.runtime.messages.reports import NodeReport, SplitKey
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.runtime.messages.work import NodeWork, SideWork
from watersmeet.runtime.operators.repartition import ROW_COST
from watersmeet.runtime.tasks.results import key_as_written
from watersmeet.runtime.tasks.side import INLINE_BYTES
from watersmeet.spec.job_options import SmallTicks, small_ticks_in
from watersmeet.state.manifest import Arrangement, LiveRun, Manifest, NodeState, QueryState

# How much a node has to do in a tick: whether the driver does it itself, and if not, in how many tasks.
#
# State is cut by each tick anew, so the number of tasks is free. What comes and what goes decides, not
# what is kept: few rows are one task's, for each further one costs as much as thousands of rows; more are
# shared by the cores; and where that would leave a task with more than it is to hold, or to lose when its
# machine goes, there are more tasks than cores.

SMALL_ROWS = 300_000
SMALL_BYTES = INLINE_BYTES // 2
"""Rows that come, with those of runs that are merged, for each thread of the driver's, and the bytes of runs.
How many bytes go out as they come shows when they do: twice as many may, or much would be in vain. As many
tasks as there are threads would save less than it takes Spark to start them; the more there are, the less so,
for threads wait for one another."""

DRIVER_MEMORY_DIVISOR = 2
"""The bytes of runs come to one part of so many of what a task may hold: the driver may do all of it as one
share, which is bounded as a task is, and holds rows of runs again as what it makes of them."""

MAX_THREADS = 4

MAX_INLINE_MATCHES = 1_000_000
"""Where rows find more partners than these in all, it was much work after all, and is given to Spark."""

FETCHED_BYTES = 64 << 20
"""Of the runs that are kept, where the driver would have to fetch them: executors have most of theirs."""

MIN_TASK_ROWS = 50_000
"""Rows that take longer than a further task of Spark's."""
MAX_TASK_ROWS = 2_000_000
"""Of one task: some seconds."""
INPUT_MEMORY_SHARE = 1 / 8
"""Rows of a tick that a task takes as they come have so much of what it may hold: some kinds of nodes put
them into another order, and make others of them."""
MAX_TASKS = 4_096


def inline_row_limit(settings: Mapping[str, str], threads: int = 1) -> int:
    """Return the maximum number of rows for inline execution: `SMALL_ROWS` per thread.

    Returns -1, less than any number of rows, if the settings require Spark tasks for all ticks.
    """
    return -1 if small_ticks_in(settings) is SmallTicks.SPARK else SMALL_ROWS * threads


def count_driver_threads(cores: int) -> int:
    """Return how many threads the driver may use if Spark has ``cores`` cores on its machine."""
    return max(1, min(cores, own_cores(), MAX_THREADS))


def count_thread_partitions(rows: int, threads: int) -> int:
    """Return the number of partitions, one per thread, for inline execution over ``rows`` rows."""
    return max(1, min(rows // MIN_TASK_ROWS, threads))


@dataclass(frozen=True)
class CostEstimate:
    """Cost estimate of a node in a tick.

    Args:
        rows: rows that arrive, are merged, or are released (estimated).
        nbytes: bytes of the runs of these rows.
        pairs: upper bound of the pairs of heavy keys that the runs report.
        memory: bytes that a task may use.
        few: rows that arrive or are merged, plus the released rows where they cost as much; None if the
            cost depends on more than these rows, or if their bytes are many.
        kept: bytes of the stored runs.
        of_join: True for a join: the user's setting for its number of tasks applies, even if there is
            little work.
    """

    rows: int
    nbytes: int
    pairs: float
    memory: int
    few: int | None
    kept: int = 0
    of_join: bool = False

    def is_small(self, most_rows: int, *, fetched: bool = False) -> bool:
        """Return True if the cost depends only on the new rows, and these are few.

        Args:
            most_rows: the row limit.
            fetched: True if the driver would have to fetch the runs; then their bytes are limited, too.
        """
        if self.few is None or self.few > most_rows or self.pairs > MAX_INLINE_MATCHES:
            return False
        return not fetched or self.kept <= FETCHED_BYTES

    def shares(self, threads: int) -> int:
        """Return the number of partitions for inline execution in the driver, if the cost is small."""
        return count_thread_partitions(self.few or 0, threads)

    def tasks(self, cores: int, pairs_of_a_row: float) -> int:
        """Return the number of tasks for the node.

        Args:
            pairs_of_a_row: estimated number of rows that each row finds or emits.
        """
        rows = self.rows * (1 + pairs_of_a_row / ROW_COST)
        wanted = min(max(rows, self.rows + self.pairs / ROW_COST) / MIN_TASK_ROWS, cores)
        bounded = max(rows / MAX_TASK_ROWS, self.nbytes / (self.memory * INPUT_MEMORY_SHARE))
        return _round_task_count(max(wanted, bounded), cores)


def _round_task_count(wanted: float, cores: int) -> int:
    """Round the wanted number of tasks up to one of a few values.

    Few values, because Spark makes a plan for each distinct number. Above the number of cores, the
    result is a multiple of it, so that each core runs equally many tasks. The result does not grow
    further once it is at least `MAX_TASKS`.
    """
    tasks = 1
    while tasks < wanted and tasks < cores:
        tasks = min(2 * tasks, cores)
    while tasks < wanted and tasks < MAX_TASKS:
        tasks *= 2
    return tasks


def estimate_cost(node: NodePlan, shape: NodeShape, work: NodeWork) -> CostEstimate:
    """Estimate the cost of a node's work in a tick from the metadata of its runs."""
    rows = nbytes = few = of_few = kept = 0
    for side in work.sides:
        merged = side.list_merged_runs()
        runs = [*side.new_runs, *(live.run for live in side.contents)]
        runs += [live.run for live in side.runs if side.replaced or live.run.name in merged]
        few += sum(run.rows for run in runs) + sum(file.rows for file in side.pads)
        of_few += sum(run.nbytes for run in runs)
        for live in side.runs:
            kept += live.run.nbytes
            if not side.replaced and live.run.name not in merged:
                share = _estimate_released_fraction(side, live)
                rows += int(live.stored * share)
                nbytes += int(live.run.nbytes * share)
    kept += 0 if work.table is None else sum(run.nbytes for run in work.table.runs)
    driver = find_driver(node)
    if driver.releases_as_rows:
        few, of_few, rows, nbytes = few + rows, of_few + nbytes, 0, 0
    most_bytes = min(SMALL_BYTES, shape.memory // DRIVER_MEMORY_DIVISOR)
    goes_by_new = driver.costs_by_new_rows(shape) and of_few <= most_bytes
    return CostEstimate(
        rows=rows + few,
        nbytes=nbytes + of_few,
        pairs=driver.estimate_heavy_pairs(work),
        memory=shape.memory,
        few=few if goes_by_new else None,
        kept=kept,
        of_join=driver.releases_as_rows,
    )


def _estimate_released_fraction(side: SideWork, live: LiveRun) -> float:
    """Estimate the fraction of a run that the tick's limits release, for evenly spread times."""
    most = 0.0
    for column, limit in side.new_limits.items():
        low, high = live.run.spans.get(column, (0, 0))
        before = max(side.old_limits.get(column, NEVER), low)
        if limit > before:
            most = max(most, (min(limit, high + 1) - before) / (high + 1 - low))
    return min(most, 1.0)


# Which keys of what is kept have the most rows, by what the runs tell (`state.runs.heavy_hitters`), and
# which of
# them tasks shared: for people.

MIN_REPORTED_SHARE = 0.05
"""Of what is kept: keys with less are not told of."""
MAX_REPORTED_KEYS = 5


@dataclass(frozen=True)
class KeyShare:
    """A key, as its users write it, and about how many rows it has; ``share``: of all of its side."""

    key: str
    rows: int
    share: float

    def __str__(self) -> str:
        return f"{self.key} has about {self.rows} rows ({self.share:.0%})"


def rows_by_bucket(runs: Iterable[LiveRun]) -> dict[int, tuple[int, str]]:
    """Estimate the rows of the runs per upper half of a hash; return them with the key as JSON.

    The estimate assumes that released rows have each key in the same proportion as all rows.
    """
    heavy: dict[int, tuple[int, str]] = {}
    for live in runs:
        for told in live.heavy:
            rows, key = heavy.get(told.bucket, (0, told.key))
            heavy[told.bucket] = rows + told.rows, key
    return heavy


def key_shares(side: SideShape, runs: Sequence[LiveRun]) -> tuple[KeyShare, ...]:
    """Return the heaviest keys of a side that retains ``runs``, the heaviest first."""
    kept = sum(live.stored for live in runs)
    ordered = sorted(rows_by_bucket(runs).values(), key=lambda told: (-told[0], told[1]))
    return tuple(
        KeyShare(key_as_written(side, key), rows, rows / kept)
        for rows, key in ordered[:MAX_REPORTED_KEYS]
        if rows and rows >= MIN_REPORTED_SHARE * kept
    )


def heavy_keys_by_side(
    shapes: Sequence[NodeShape], nodes: Sequence[NodeState]
) -> Mapping[str, tuple[KeyShare, ...]]:
    """Return the heaviest keys of the retained rows of a query, per side that has any."""
    shares = {
        side.name: key_shares(side, node.arrangements[side.name].runs)
        for shape, node in zip(shapes, nodes, strict=True)
        for side in shape.sides
        if side.name in node.arrangements
    }
    return {name: told for name, told in shares.items() if told}


def split_keys_by_side(reports: Iterable[NodeReport]) -> Mapping[str, tuple[SplitKey, ...]]:
    """Return the keys that all tasks shared in a tick, per side, those with the most work first."""
    keys: dict[str, list[SplitKey]] = {}
    for report in reports:
        for key in report.split:
            keys.setdefault(key.side, []).append(key)
    return {name: tuple(sorted(told, key=lambda key: -key.share)) for name, told in keys.items()}


def measured_sides(manifest: Manifest, state: QueryState) -> dict[str, MeasuredSide]:
    """Measure the sides of all nodes of a query in the manifest.

    This includes reused nodes, whose rows another query retains; nodes with a table copy are left out.
    """
    return {
        name: _measure_side(arrangement)
        for node in (_find_stored_node(manifest, node) for node in state.nodes)
        for name, arrangement in node.arrangements.items()
        if node.table is None
    }


def _find_stored_node(manifest: Manifest, node: NodeState) -> NodeState:
    return node if node.elsewhere is None else node_of(manifest, home_of(manifest, node.elsewhere))


def _measure_side(arrangement: Arrangement) -> MeasuredSide:
    rows = sum(live.run.rows for live in arrangement.runs)
    file_bytes = sum(live.run.nbytes for live in arrangement.runs)
    reaches: dict[str, int | None] = {}
    for column, pace in arrangement.paces.items():
        limit = arrangement.limits.get(column, NEVER)
        if isinstance(pace.mark, int) and limit < ENDED:
            reaches[column] = pace.mark - limit if isinstance(limit, int) else None
    return MeasuredSide(
        retained=arrangement.stored,
        most=arrangement.most,
        file_bytes=file_bytes,
        row_bytes=file_bytes / rows if rows else None,
        paces={column: pace.measured for column, pace in arrangement.paces.items() if pace.measured[1] > 0},
        reaches=reaches,
    )
