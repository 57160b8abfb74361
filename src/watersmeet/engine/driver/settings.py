"""How the ticks of one run go: fixed when its driver is made. None of it changes a row."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.engine.driver.amount import SMALL_ROWS
from watersmeet.engine.tasks.write import FLUSH_BYTES, FLUSH_ROWS, Placing


@dataclass(frozen=True)
class TickSettings:
    """Settings of the ticks of one run.

    Args:
        digest: of how the run is set. A tick that an earlier run began is repeated by one with the same.
        change_queries: queries may have come, gone or changed since the state was stored.
        zoned: TIMESTAMP columns carry UTC; see `node_shapes`.
        keep_ticks: how many manifests stay, the newest among them.
        keep_late: late rows of stages, and rows that were shed, are wanted (`RunningTick.aside`).
        keep_broken: records of tables that do not parse are wanted (`RunningTick.broken`).
        tasks_asked: the user says in how many tasks a join is run, so the driver runs none itself.
        small_rows: how many rows a node may have to do for the driver to run it itself, and in how many
            ``threads``.
        flush_rows, flush_bytes: how much a task holds before it writes a run.
        placing: for tests, where in the hash space keys fall.
    """

    digest: str = ""
    change_queries: bool = False
    zoned: bool = True
    keep_ticks: int = 2
    keep_late: bool = False
    keep_broken: bool = False
    tasks_asked: bool = False
    small_rows: int = SMALL_ROWS
    threads: int = 1
    flush_rows: int = FLUSH_ROWS
    flush_bytes: int = FLUSH_BYTES
    placing: Placing | None = None
