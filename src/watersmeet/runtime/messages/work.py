"""What the driver tells tasks in a tick.

`TickStart` goes to ingest tasks. Lists of runs (`NodeWork`) travel to other processes in a file of the store,
not in closures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from watersmeet.event_time import NEVER, Side, Watermark
from watersmeet.runtime.messages.reports import PadFile
from watersmeet.runtime.messages.shapes import SideShape, side_number
from watersmeet.state.checksums import sealed_record, verify_checksum
from watersmeet.state.manifest import LiveRun, TableCopy
from watersmeet.state.runs.layout import Run
from watersmeet.state.store import Store
from watersmeet.state.stored_record import StoredRecord


@dataclass(frozen=True)
class TickStart:
    """Parameters of a tick for ingest.

    ``late_below``: late threshold per arrangement and event-time column. ``max_ahead``: per arrangement
    and branch, µs after the tick's clock (None: no limit). ``sources``: names of the sources, likewise.
    ``indexes``: index that sorts the runs of each arrangement. ``null_fails``: a row without an event
    time fails the tick. ``ordered``: runs store the arrival order of their rows. ``tasks``: approximate
    number of tasks that will read the runs.
    """

    tick: int
    attempt: str
    clock_us: int
    sides: Mapping[str, SideShape]
    late_below: Mapping[str, Mapping[str, Watermark]]
    max_ahead: Mapping[str, tuple[int | None, ...]]
    flush_rows: int
    flush_bytes: int
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    indexes: Mapping[str, str | None] = field(default_factory=dict)
    null_fails: bool = False
    ordered: bool = False
    tasks: int = 1
    placing: Annotated[
        Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]] | None, Field(exclude=True)
    ] = None
    """For tests: where in the hash space keys fall. Told to tasks of this process alone."""


SNAPSHOTS = "-snapshots.json"
"""How the file in ``work`` ends in which a tick says what it read of tables that are compared; all others
are of nodes."""


class SideWork(StoredRecord):
    """Work of a task for one side of its node: live runs, new runs, old and new limits, merges to do.

    ``index``: index that sorts new runs. ``replaced``: the new runs are the whole content of the side
    and replace its previous content. Where other sides share the runs: ``shared_merges``: merges that
    retain the rows that any of these ``others`` retains by its limits; ``taken_over``: runs that
    another side merged in the last tick. ``contents``: in the first tick of a query, the runs in which
    another query retains the side's rows; they count as new. ``unknown_below``: see `Arrangement`.
    """

    runs: list[LiveRun]
    new_runs: list[Run]
    pads: list[PadFile]
    old_limits: dict[str, Watermark]
    new_limits: dict[str, Watermark]
    merges: list[list[str]] = Field(default_factory=list)
    index: str | None = None
    replaced: bool = False
    shared_merges: list[list[str]] = Field(default_factory=list)
    others: list[dict[str, Watermark]] = Field(default_factory=list)
    taken_over: list[LiveRun] = Field(default_factory=list)
    contents: list[LiveRun] = Field(default_factory=list)
    unknown_below: dict[str, Watermark] = Field(default_factory=dict)

    def backfill_work(self) -> SideWork:
        """Return the work that covers only `contents`."""
        return SideWork(runs=self.contents, new_runs=[], pads=[], old_limits={}, new_limits={})

    def list_merged_runs(self) -> set[str]:
        """Return the names of the live runs that merged runs replace."""
        merged = {name for names in (*self.merges, *self.shared_merges) for name in names}
        of_others = {name for live in self.taken_over if live.merged_from for name in live.merged_from.runs}
        return merged | of_others


class AsofWork(StoredRecord):
    """Additional work of the tasks of an ASOF join; see `runtime.coordinator.operators.joins`.

    ``settled``: no later right row has a smaller time; ``settled_before``: its value in the previous
    tick. Of the right rows below ``asked``, one per key is retained; ``asked_before``: its value in the
    previous tick. ``least``: minimum left time that may look up right rows from the next tick on;
    ``waiting``: minimum left time retained in the previous tick. ``shed``: load shedding dropped right
    rows up to this time; see `AsofState`.
    """

    settled: Watermark = NEVER
    settled_before: Watermark = NEVER
    asked: Watermark = NEVER
    asked_before: Watermark = NEVER
    least: Watermark = NEVER
    waiting: int | None = None
    shed: Watermark = NEVER


class LookupView(StoredRecord):
    """Rows of an arrangement that a look-up of a delta join sees.

    These are the rows of live runs, except rows below ``hidden_below`` (released before the tick), and
    the rows of this tick.
    """

    runs: list[LiveRun]
    fresh: list[LiveRun]
    hidden_below: dict[str, Watermark]


class NodeWork(StoredRecord):
    """Work of the tasks of one node in one tick.

    ``fed_late_below``: for rows of a stage, the late threshold per event time of the input that reads
    them; ``keep_late``: late rows go to the side output. ``fed_index``: index that sorts the runs that
    the node writes for another node. ``table``: the table copy of this tick that rows are matched with;
    ``seen``: likewise per path of a delta join; ``closed``: paths that begin here and have no result.
    ``clock_us``: the tick's clock. ``keep_broken``: records of its table that are not rows go to the
    dead letter output. ``idle``: only in the first node of a tick, the attempt's decision per query,
    alias and branch: all partitions, and the idle ones. ``settings``: likewise, a digest of the run's
    settings. ``tasks``: approximate number of tasks that read the rows that it writes for another node.
    """

    tick: int
    sides: list[SideWork]
    fed_late_below: dict[str, Watermark] = Field(default_factory=dict)
    keep_late: bool = False
    keep_broken: bool = False
    fed_index: str | None = None
    asof: AsofWork | None = None
    table: TableCopy | None = None
    clock_us: int = 0
    seen: list[LookupView] = Field(default_factory=list)
    closed: list[int] = Field(default_factory=list)
    idle: dict[str, dict[str, list[dict[str, bool]]]] = Field(default_factory=dict)
    settings: str = ""
    tasks: int = 1

    def side(self, side: Side) -> SideWork:
        return self.sides[side_number(side)]


PASSING = "work/passing-"
"""How the names of work files begin that no attempt but this one reads."""


def write_work(store: Store, name: str, work: NodeWork) -> None:
    """Write a work file, for tasks of other processes or for whoever repeats the tick."""
    store.write(name, sealed_record(store, name, work), lasting=not name.startswith(PASSING))


def read_work(store: Store, name: str) -> NodeWork:
    """Read a work file; the result is read-only.

    Raises:
        StateError: the file is missing or damaged.
    """
    return _parse_work(name, bytes(store.read(name)))


@lru_cache(maxsize=1)
def _parse_work(name: str, content: bytes) -> NodeWork:
    """Parse a work file and cache the result for the tasks of the node in this process."""
    return NodeWork.model_validate_json(verify_checksum(name, content))
