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
    """What ingest needs to know of the tick. ``raise_late_thresholds``: per arrangement and event-time
    column;
    ``max_ahead``: per arrangement and branch, µs after the tick's clock (None: off); ``sources``: their
    names, likewise; ``indexes``: by what each arrangement's runs are sorted. ``null_fails``: a row without
    an event time fails the tick; ``ordered``: runs say in which order their rows came; ``tasks``: so many are
    about to take them, more or fewer perhaps."""

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
    """What a task needs of one side of its node: live runs, new runs, limits before and after, merges asked
    for. ``index``: by what new runs are sorted. ``replaced``: the new runs are all that the side holds now,
    and what it held before goes. Where other sides keep the same runs: ``shared_merges``, that leave what any
    of these ``others`` retains by its limits; ``taken_over``: what another merged in the last tick.
    ``contents``: in the first tick of a query, the runs in which another one keeps the side's rows; they come
    to it as if they were new. ``unknown_below``: see `Arrangement`."""

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
        """The work of whoever looks at `contents` alone."""
        return SideWork(runs=self.contents, new_runs=[], pads=[], old_limits={}, new_limits={})

    def list_merged_runs(self) -> set[str]:
        """The live runs in whose place merged ones come."""
        merged = {name for names in (*self.merges, *self.shared_merges) for name in names}
        of_others = {name for live in self.taken_over if live.merged_from for name in live.merged_from.runs}
        return merged | of_others


class AsofWork(StoredRecord):
    """What the tasks of an ASOF join are told besides; see `runtime.coordinator.operators.joins`.

    ``settled``: no later right row has a lesser time; ``settled_before``: the same a tick ago. Of the right
    rows below ``asked`` one per key is kept; ``asked_before``: the same a tick ago. ``least``: the least left
    time that may ask from the next tick on; ``waiting``: the least one that was retained a tick ago.
    ``shed``: up to it right rows were shed; see `AsofState`.
    """

    settled: Watermark = NEVER
    settled_before: Watermark = NEVER
    asked: Watermark = NEVER
    asked_before: Watermark = NEVER
    least: Watermark = NEVER
    waiting: int | None = None
    shed: Watermark = NEVER


class LookupView(StoredRecord):
    """What a look-up of a delta join sees of an arrangement: rows of live runs that are not below
    ``hidden_below``, which were released before the tick, and those that came in the tick."""

    runs: list[LiveRun]
    fresh: list[LiveRun]
    hidden_below: dict[str, Watermark]


class NodeWork(StoredRecord):
    """What the tasks of one node are told in one tick. ``fed_late_below``: where its rows are those of a
    stage, per event time of the input that takes them, below which time they are late there; ``keep_late``:
    late ones are wanted. ``fed_index``: by what runs that it writes for another node are sorted. ``table``:
    what the rows meet, as it is in this tick; ``seen``: the same, per path of a delta join; ``closed``: the
    paths that begin here and come to nothing. ``clock_us``: the tick's clock. ``keep_broken``: records of its
    table that are no rows are wanted. ``idle``, in the first of a tick: what the attempt decided, per query,
    alias and branch: all partitions, and which are idle.
    ``settings``, there too: how the run was set (a digest). ``tasks``: so many are about to take rows that it
    writes for another node."""

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
    """What a work file says, to be read only. Raises: StateError when it is missing or damaged."""
    return _parse_work(name, bytes(store.read(name)))


@lru_cache(maxsize=1)
def _parse_work(name: str, content: bytes) -> NodeWork:
    """Tasks of one node that run in one process have the same file."""
    return NodeWork.model_validate_json(verify_checksum(name, content))
