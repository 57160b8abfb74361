"""How much a node has to do in a tick: whether the driver does it itself, and if not, in how many tasks.

State is cut by each tick anew, so the number of tasks is free. What comes and what goes decides, not what is
kept: few rows are one task's, for each further one costs as much as thousands of rows; more are shared by the
cores; and where that would leave a task with more than it is to hold, or to lose when its machine goes, there
are more tasks than cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watersmeet.at_once import own_cores
from watersmeet.engine.driver.kinds.registry import driver_of
from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.engine.messages.work import NodeWork, SideWork
from watersmeet.engine.nodes.spread.hot import OF_A_ROW
from watersmeet.engine.tasks.share import ALONE_BYTES
from watersmeet.event_time import NEVER
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.spec.limits import SmallTicks, small_ticks_in
from watersmeet.state.manifest import LiveRun

SMALL_ROWS = 300_000
SMALL_BYTES = ALONE_BYTES // 2
"""Rows that come, with those of runs that are merged, for each thread of the driver's, and the bytes of runs.
How many bytes go out as they come shows when they do: twice as many may, or much would be in vain. As many
tasks as there are threads would save less than it takes Spark to start them; the more there are, the less so,
for threads wait for one another."""

OF_DRIVER = 2
"""The bytes of runs come to one part of so many of what a task may hold: the driver may do all of it as one
share, which is bounded as a task is, and holds rows of runs again as what it makes of them."""

MOST_THREADS = 4

MOST_MATCHES = 1_000_000
"""Where rows find more partners than these in all, it was much work after all, and is given to Spark."""

FETCHED_BYTES = 64 << 20
"""Of the runs that are kept, where the driver would have to fetch them: executors have most of theirs."""

WORTH_A_TASK = 50_000
"""Rows that take longer than a further task of Spark's."""
MOST_ROWS = 2_000_000
"""Of one task: some seconds."""
OF_MEMORY = 1 / 8
"""Rows of a tick that a task takes as they come have so much of what it may hold: some kinds of nodes put
them into another order, and make others of them."""
MOST_TASKS = 4_096


def small_rows_in(settings: Mapping[str, str], threads: int = 1) -> int:
    """`SMALL_ROWS` of so many threads, or where the settings of a run want tasks always, less than any number
    of rows."""
    return -1 if small_ticks_in(settings) is SmallTicks.SPARK else SMALL_ROWS * threads


def threads_of_driver(cores: int) -> int:
    """How many threads the driver may use, where Spark has so many cores on its machine."""
    return max(1, min(cores, own_cores(), MOST_THREADS))


def shares_of(rows: int, threads: int) -> int:
    """In how many shares the driver does what goes by so many rows, one in each thread."""
    return max(1, min(rows // WORTH_A_TASK, threads))


@dataclass(frozen=True)
class Amount:
    """Of a node in a tick: rows that come, are merged, or are released (about), and the bytes of their runs.

    ``pairs``: of keys that runs tell of, at most. ``memory``: bytes that a task may hold. ``few``: rows that
    come or are merged, and those that are released where these cost as much, where the node goes by these
    alone and their bytes are few. ``kept``: bytes of the runs that are there. ``of_join``: whose tasks are as
    many as the user says, if they do, also where there is little to do.
    """

    rows: int
    nbytes: int
    pairs: float
    memory: int
    few: int | None
    kept: int = 0
    of_join: bool = False

    def is_small(self, most_rows: int, *, fetched: bool = False) -> bool:
        """Whether what the node does goes by its new rows alone, and these are few. ``fetched``: runs would
        have to be fetched."""
        if self.few is None or self.few > most_rows or self.pairs > MOST_MATCHES:
            return False
        return not fetched or self.kept <= FETCHED_BYTES

    def shares(self, threads: int) -> int:
        """In how many shares the driver does it, if it is small."""
        return shares_of(self.few or 0, threads)

    def tasks(self, cores: int, pairs_of_a_row: float) -> int:
        """In how many tasks to run it.

        Args:
            pairs_of_a_row: about how many rows it finds, or puts out, for each.
        """
        rows = self.rows * (1 + pairs_of_a_row / OF_A_ROW)
        wanted = min(max(rows, self.rows + self.pairs / OF_A_ROW) / WORTH_A_TASK, cores)
        bounded = max(rows / MOST_ROWS, self.nbytes / (self.memory * OF_MEMORY))
        return _rounded(max(wanted, bounded), cores)


def _rounded(wanted: float, cores: int) -> int:
    """So many tasks, or somewhat more: few different numbers, for Spark makes a plan for each; above the
    cores such that all of them have as many."""
    tasks = 1
    while tasks < wanted and tasks < cores:
        tasks = min(2 * tasks, cores)
    while tasks < wanted and tasks < MOST_TASKS:
        tasks *= 2
    return tasks


def amount_of(node: NodePlan, shape: NodeShape, work: NodeWork) -> Amount:
    """What the tasks of a node are told to do, by what is said of the runs."""
    rows = nbytes = few = of_few = kept = 0
    for side in work.sides:
        merged = side.merged_away()
        runs = [*side.new_runs, *(live.run for live in side.contents)]
        runs += [live.run for live in side.runs if side.replaced or live.run.name in merged]
        few += sum(run.rows for run in runs) + sum(file.rows for file in side.pads)
        of_few += sum(run.nbytes for run in runs)
        for live in side.runs:
            kept += live.run.nbytes
            if not side.replaced and live.run.name not in merged:
                share = _released(side, live)
                rows += int(live.stored * share)
                nbytes += int(live.run.nbytes * share)
    kept += 0 if work.table is None else sum(run.nbytes for run in work.table.runs)
    driver = driver_of(node)
    if driver.releases_as_rows:
        few, of_few, rows, nbytes = few + rows, of_few + nbytes, 0, 0
    most_bytes = min(SMALL_BYTES, shape.memory // OF_DRIVER)
    goes_by_new = driver.goes_by_new_rows(shape) and of_few <= most_bytes
    return Amount(
        rows=rows + few,
        nbytes=nbytes + of_few,
        pairs=driver.told_pairs(work),
        memory=shape.memory,
        few=few if goes_by_new else None,
        kept=kept,
        of_join=driver.releases_as_rows,
    )


def _released(side: SideWork, live: LiveRun) -> float:
    """Which share of a run the tick's limits release, as if its times were spread evenly."""
    most = 0.0
    for column, limit in side.new_limits.items():
        low, high = live.run.spans.get(column, (0, 0))
        before = max(side.old_limits.get(column, NEVER), low)
        if limit > before:
            most = max(most, (min(limit, high + 1) - before) / (high + 1 - low))
    return min(most, 1.0)
