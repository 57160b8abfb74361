"""Settings and shared objects of all ticks of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.input_watermarks import InputStates
from watersmeet.runtime.coordinator.node_cost import SMALL_ROWS
from watersmeet.runtime.coordinator.table_reads import Snapshots, Tables
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.runtime.tasks.run_writer import FLUSH_BYTES, FLUSH_ROWS, PlaceHashes
from watersmeet.state.store import Store

# How the ticks of one run go: fixed when its driver is made. None of it changes a row.


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
    placing: PlaceHashes | None = None


# What all ticks of one run share: fixed when the run begins.


@dataclass(frozen=True)
class RunContext:
    """Data that all ticks of one run share.

    Args:
        shapes: the shapes of the nodes, per query.
        inputs: the watermarks of the inputs, between two ticks.
        tables: the tables with which rows join as of their tick.
        snapshots: the tables that are compared with their previous contents.
        names_of_queries: fields of a manifest that identify its queries.
        most_gone: maximum bytes of deleted rows in files, per ``query/side``.
        tells_broken: the arrangements that report records that do not parse.
    """

    plan: JobPlan
    store: Store
    settings: TickSettings
    shapes: Mapping[str, tuple[NodeShape, ...]]
    inputs: InputStates
    tables: Tables
    snapshots: Snapshots
    names_of_queries: Mapping[str, Any]
    most_gone: Mapping[str, int]
    tells_broken: frozenset[str]
