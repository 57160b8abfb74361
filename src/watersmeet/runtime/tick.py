"""One tick, on any engine:

    begin ──> ingest ──> advance the watermarks ──> run the nodes ──> stage ──> publish ──> commit

An engine (`Backend`) reads rows, runs tasks and stages what they give; the driver decides between them. A
tick that fails anywhere has committed nothing and is begun again. What it staged is removed, if it fails
before the first sink publishes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.runtime.coordinator.commit import StagedParts, check_parts, commit_tick
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.coordinator.tick_phases import RunningTick, StartedTick
from watersmeet.runtime.messages.reports import IngestReport, NodeReport


@dataclass(frozen=True)
class TickInput:
    """Inputs of a tick other than rows.

    Args:
        clock_us: its one clock.
        told: what tells the tick from others of its number, by name; see `build_tick_identity`.
        advances, by_key, idle, end, ends: as `StartedTick.advance`.
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
class NodeResult:
    """The reports of a node's tasks, and how many rows went to the sink (None: as many as left the tasks)."""

    reports: Sequence[NodeReport]
    rows_out: int | None = None


class Backend(ABC):
    """Interface of an engine's operations in one tick."""

    @property
    @abstractmethod
    def task_count(self) -> int:
        """Return in about how many tasks the engine runs a node that has much to do."""

    @property
    @abstractmethod
    def ordered(self) -> bool:
        """Return True if rows leave in the order in which they came in."""

    @abstractmethod
    def ingest(self, tick: StartedTick) -> Sequence[IngestReport]:
        """Read the tick's rows; return the reports of the ingest tasks."""

    @abstractmethod
    def run(self, tick: RunningTick, query: QueryPlan, node: NodePlan) -> NodeResult:
        """Run a node's tasks; of a query's last node, stage their rows."""

    def together(self) -> AbstractContextManager[None]:
        """Return what ingest and nodes run within: what they write need not be durable before its end."""
        return nullcontext()

    @abstractmethod
    def stage(self, tick: RunningTick) -> StagedParts:
        """Stage the rows set aside; return all that is staged by now."""

    @abstractmethod
    def host(self, result: TickResult) -> Mapping[str, Any]:
        """Return what the manifest remembers for the engine; called once, before the first sink publishes."""

    def discard(self, tick: StartedTick) -> None:
        """Remove what was staged: the tick has failed, and nothing of it is published."""
        return

    def abandon(self, tick: StartedTick) -> None:
        """Take back the begin of a tick that has failed, if none of its rows can be visible."""
        return

    def before_publish(self) -> None:
        """Record that rows may become visible."""
        return

    def mark(self, phase: str) -> None:
        """Record that a phase of the tick is done."""
        return


def run_tick(driver: TickDriver, backend: Backend, given: TickInput) -> TickResult:
    """Run the next tick of a job to its commit."""
    begun = driver.begin(given.clock_us, tasks=backend.task_count, ordered=backend.ordered)
    try:
        try:
            backend.mark("begin")
            with backend.together():
                running = _advance_tick(begun, backend.ingest(begun), backend, given)
                for query in driver.plan.queries:
                    for node in query.nodes:
                        if not node.rests:
                            result = backend.run(running, query, node)
                            running.settle(query.name, node.number, result.reports, rows_out=result.rows_out)
            backend.mark("join and write")
            staged = backend.stage(running)
            concluded = running.conclude(given.told)
            host = backend.host(concluded.result)
            check_parts(concluded, staged)
        except BaseException:
            backend.discard(begun)
            raise
        backend.before_publish()
        commit_tick(concluded, staged, host, mark=backend.mark)
    except Exception:
        backend.abandon(begun)
        raise
    return concluded.result


def _advance_tick(
    begun: StartedTick, reports: Sequence[IngestReport], backend: Backend, given: TickInput
) -> RunningTick:
    if given.check is not None:
        given.check()
    backend.mark("ingest")
    going = begun.find_idling_sources(reports) if given.unread is not None and not given.end else None
    running = begun.advance(
        reports,
        advances=given.advances,
        by_key=given.by_key,
        idle=given.idle,
        busy=given.unread(going) if given.unread is not None and going else None,
        end=given.end,
        ends=given.ends,
    )
    backend.mark("advance")
    return running
