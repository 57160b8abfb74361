"""One tick, on any engine:

    begin ──> ingest ──> advance the watermarks ──> run the nodes ──> stage ──> publish ──> commit

An engine (`Backend`) reads rows, runs tasks and stages what they give; the driver decides between them. A
tick that fails anywhere has committed nothing and is begun again; sinks have staged at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from watersmeet.engine.driver.driver import TickDriver
from watersmeet.engine.driver.open_tick import BegunTick, RunningTick
from watersmeet.engine.driver.results import TickResult
from watersmeet.engine.driver.settling.ending import Staged, end_tick
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan


@dataclass(frozen=True)
class TickInput:
    """What a tick is told beside the rows that its engine reads.

    Args:
        clock_us: its one clock.
        told: what tells the tick from others of its number, by name; see `identity_of`.
        advances, by_key, idle, end, ends: as `BegunTick.advance`.
        unread: the partitions of these sources that have unread rows. Asked only in ticks in which a
            partition would go idle; one that has some does not.
        check: called when the rows were read, before any goes out; raises if they are not to be trusted.
    """

    clock_us: int
    told: Mapping[str, str] = field(default_factory=dict)
    advances: Mapping[str, Mapping[str, int]] | None = None
    by_key: Mapping[str, int] | None = None
    idle: Mapping[str, Iterable[str]] | None = None
    end: bool = False
    ends: Callable[[str], bool] | None = None
    unread: Callable[[Collection[str]], Mapping[str, Iterable[str]]] | None = None
    check: Callable[[], None] | None = None


@dataclass(frozen=True)
class Ran:
    """What became of a node's tasks: their control texts, and how many rows went to the sink (None: as many
    as left the tasks)."""

    reports: Sequence[str]
    rows_out: int | None = None


class Backend(Protocol):
    """What an engine does in one tick.

    ``tasks``: in about how many tasks it runs a node that has much to do; ``ordered``: rows leave in the
    order in which they came in.
    """

    @property
    def tasks(self) -> int: ...

    @property
    def ordered(self) -> bool: ...

    def ingest(self, tick: BegunTick) -> Sequence[str]:
        """Read the tick's rows; the reports of the ingest tasks."""

    def run(self, tick: RunningTick, query: QueryPlan, node: NodePlan) -> Ran:
        """Run a node's tasks; of a query's last node, stage their rows."""

    def stage(self, tick: RunningTick) -> Staged:
        """Stage the rows set aside; all that is staged by now."""

    def discard(self, tick: BegunTick) -> None:
        """Remove what was staged: the tick has failed, and nothing of it is published."""

    def give_up(self, tick: BegunTick) -> None:
        """Take back the begin of a tick that has failed, if nothing of it can be out."""

    def leave(self) -> None:
        """Be told that rows may be out from now on."""

    def host(self, result: TickResult) -> Mapping[str, Any]:
        """What the manifest remembers for the engine."""

    def mark(self, part: str) -> None:
        """Be told that a part of the tick is done."""


def run_tick(driver: TickDriver, backend: Backend, given: TickInput) -> TickResult:
    """Run the next tick of a job to its commit."""
    begun = driver.begin(given.clock_us, tasks=backend.tasks, ordered=backend.ordered)
    try:
        backend.mark("begin")
        running = _advanced(begun, backend.ingest(begun), backend, given)
        try:
            for query in driver.plan.queries:
                for node in query.nodes:
                    if not node.rests:
                        ran = backend.run(running, query, node)
                        running.settle(query.name, node.number, ran.reports, rows_out=ran.rows_out)
            backend.mark("join and write")
            staged = backend.stage(running)
        except BaseException:
            backend.discard(begun)
            raise
        concluded = running.conclude(given.told)
        host = backend.host(concluded.result)
        end_tick(concluded, staged, host, mark=backend.mark, leave=backend.leave)
    except Exception:
        backend.give_up(begun)
        raise
    return concluded.result


def _advanced(begun: BegunTick, reports: Sequence[str], backend: Backend, given: TickInput) -> RunningTick:
    if given.check is not None:
        given.check()
    backend.mark("ingest")
    busy = None
    if given.unread is not None and not given.end:
        going = begun.going_idle(reports)
        busy = given.unread(going) if going else None
    running = begun.advance(
        reports,
        advances=given.advances,
        by_key=given.by_key,
        idle=given.idle,
        busy=busy,
        end=given.end,
        ends=given.ends,
    )
    backend.mark("advance")
    return running
