"""The tick's driver: what one process decides between the tasks. Pure but for the store.

    restore ──> begin ──> BegunTick ──> RunningTick ──> ConcludedTick ──> commit        (`tick_phases`)

Between two ticks it answers what the next one would do: whether it is due, who is held, what is silent.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from watersmeet.errors import StateError
from watersmeet.runtime.coordinator.input_watermarks import (
    FIRST_WORK,
    ingest_fields,
    raise_late_thresholds,
)
from watersmeet.runtime.coordinator.ledger import CommittedState, Ledger
from watersmeet.runtime.coordinator.run_context import RunContext
from watersmeet.runtime.coordinator.tick_phases import StartedTick
from watersmeet.runtime.messages.work import TickStart, read_work
from watersmeet.spec.model import NullTime
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store
from watersmeet.watermark.holders import SourceDrift, WatermarkHolder


@dataclass(frozen=True)
class Restored:
    """State of a job that a run found in its store, checked against the job's plan.

    Args:
        context: data that all ticks of the run share.
        committed: the state from which the first tick resumes.
        said: messages about added, removed or changed queries.
    """

    context: RunContext
    committed: CommittedState
    said: tuple[str, ...] = ()

    @property
    def store(self) -> Store:
        return self.context.store

    @property
    def manifest(self) -> Manifest | None:
        """Return the newest one; None before the first tick."""
        return self.committed.manifest

    @property
    def tick(self) -> int:
        """Return the number of the last committed tick; 0 before the first."""
        return self.committed.tick

    def load_pending_settings(self) -> str | None:
        """Return the digest of the settings with which an earlier run began the next tick.

        The result is None if no node of that tick was run, so that it cannot have had any effect.
        """
        store = self.context.store
        names = store.names("work")
        first = [n for n in names if n.startswith(f"work/{self.tick + 1}-") and n.endswith(FIRST_WORK)]
        return read_work(store, first[-1]).settings if first else None

    def forget_begun(self) -> None:
        """Delete the decisions of an earlier run about the next tick.

        The caller ensures that the tick emitted nothing; this run has other settings.
        """
        for name in self.context.store.names("work"):
            self.context.store.delete(name)


def check_not_finished(manifest: Manifest | None) -> None:
    """Raise: StateError, if the job's input was ended."""
    if manifest is not None and manifest.finished:
        raise StateError(
            "the job is finished: its input has ended, so it accepts no more rows",
            code="job-finished",
            hint="to run it again, use a new checkpoint directory (--checkpoint DIR), or watersmeet reset",
        )


class TickDriver:
    """Driver of the ticks of one job over one store.

    Not thread-safe; use one per store at a time. ``ledger`` holds the committed state.

    Args:
        restored: the state that the store holds.
        owner: the id of the state; None for the stored id.
        repeats: True if an earlier run started the next tick and may have published a part of it. Then
            that run's decisions about partitions (which exist, which are idle) and about tables apply,
            and not this run's clock.
    """

    def __init__(self, restored: Restored, owner: str | None = None, *, repeats: bool = False) -> None:
        self.context = context = restored.context
        self.plan, self.store, self.shapes = context.plan, context.store, context.shapes
        self.settings, self.inputs, self.said = context.settings, context.inputs, restored.said
        stored_owner = "" if restored.manifest is None else restored.manifest.owner
        self.ledger = Ledger(
            context.store,
            restored.committed,
            context.shapes,
            stored_owner if owner is None else owner,
            context.settings.keep_ticks,
        )
        if repeats:
            following = restored.tick + 1
            context.inputs.idleness.repeat(context.store, following)
            context.tables.repeat(context.store, following)
            context.snapshots.repeat(context.store, following, context.settings.digest)

    @property
    def manifest(self) -> Manifest | None:
        """Return the last committed one; None before the first tick."""
        return self.ledger.newest.manifest

    @property
    def tick(self) -> int:
        """Return the number of the last committed tick; 0 before the first."""
        return self.ledger.newest.tick

    @property
    def is_finished(self) -> bool:
        """Return True if the job's input has ended, so that no tick may follow."""
        return self.manifest is not None and self.manifest.finished

    def retained(self) -> dict[str, dict[str, int]]:
        """Return the rows in the state as of the last tick, per query and alias."""
        retained: dict[str, dict[str, int]] = {}
        for query in self.plan.queries:
            nodes = self.ledger.newest.query(query.name).nodes
            rows_by_side = {name: a.retained for node in nodes for name, a in node.arrangements.items()}
            retained[query.name] = {side.name: rows_by_side.get(side.name, 0) for side in query.sides}
            for own, maker, there in query.shared_inputs:
                retained[query.name][own] = retained[maker][there]
        return retained

    def begin(self, clock_us: int, *, tasks: int = 1, ordered: bool = False) -> StartedTick:
        """Begin the next tick, again if it was begun and not committed.

        Args:
            clock_us: its one clock.
            tasks: in about how many tasks a node is run that has much to do.
            ordered: rows leave in the order in which they came in: each node is one task.
        """
        before = self.ledger.newest
        check_not_finished(before.manifest)
        inputs = self.inputs.at(before.manifest, clock_us)
        late = {
            query.name: raise_late_thresholds(query, inputs[query.name], before.query(query.name).late_below)
            for query in self.plan.queries
        }
        start = TickStart(
            tick=before.tick + 1,
            attempt=uuid.uuid4().hex,
            clock_us=clock_us,
            flush_rows=self.settings.flush_rows,
            flush_bytes=self.settings.flush_bytes,
            null_fails=self.plan.queries[0].options.on_null_time is NullTime.FAIL,
            ordered=ordered,
            tasks=tasks,
            placing=self.settings.placing,
            **ingest_fields(self.plan, self.shapes, before.manifest, late),
        )
        return StartedTick(self.context, self.ledger, before, start, inputs, late)

    def look(self, clock_us: int) -> None:
        """Say that the engine is looking at its sources, at this clock.

        Of the time between two looks no more than half of an idle timeout counts as silence: see
        `tracker.pause`. An engine that never says so is always looking.
        """
        self.inputs.idleness.look(clock_us)

    def waiting(
        self, clock_us: int, unread: Mapping[str, Collection[str]]
    ) -> dict[str, dict[str, tuple[WatermarkHolder, ...]]]:
        """Return, per query and alias, the declared partitions that never had a row and have none to read."""
        return self.inputs.waiting(self.manifest, clock_us, unread)

    def is_due(self, clock_us: int) -> bool:
        """Return True if a tick without rows would move a watermark: a partition goes idle at this clock."""
        return not self.is_finished and self.inputs.would_advance(self.manifest, clock_us)

    def is_table_read_due(self, clock_us: int) -> bool:
        """Return True if a tick at this clock would read a table that may have changed, to compare it."""
        return not self.is_finished and self.context.snapshots.is_due(self.manifest, clock_us)

    def held(self) -> dict[str, SourceDrift]:
        """Return the paused sources: those more than ``max_drift`` ahead of others."""
        return self.inputs.ahead_of(self.manifest)

    def close(self) -> None:
        """Let nothing of the last tick go on: called before another run may begin."""
        self.ledger.close()
