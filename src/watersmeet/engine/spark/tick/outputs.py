"""Where the rows of a job go: its sinks, and what is asked of them before the first tick of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from watersmeet.sinks.base import (
    ArrowPart,
    CallsInTasks,
    NeedsSession,
    Schema,
    Sink,
    StagedPart,
    StagesInState,
    recorded_inserts,
)
from watersmeet.sinks.by_tasks import staged_by_tasks
from watersmeet.sinks.part_mark import Resumed
from watersmeet.state.manifest import PARTS, Manifest, has_come_to
from watersmeet.state.store import Store

UNKNOWN = "it is unknown whether it has some"

LATE_INSERT, BROKEN_INSERT, SHED_INSERT = "late-rows", "broken-records", "shed-rows"
"""Names of the parts of rows set aside; no query may be named so."""

PROGRESS_INSERT = "tick-progress"
"""The same of the rows that say which ticks are complete."""


@dataclass(frozen=True)
class Outputs:
    """Where the rows of a job go: a sink per query that is no index, and if asked for those for rows set
    aside, and for a row per tick that says that it is complete."""

    queries: Mapping[str, Sink]
    late: Sink | None = None
    broken: Sink | None = None
    progress: Sink | None = None
    shed: Sink | None = None

    @property
    def by_insert(self) -> dict[str, Sink]:
        """Return all sinks, by the name of what goes there."""
        aside = {
            LATE_INSERT: self.late,
            BROKEN_INSERT: self.broken,
            SHED_INSERT: self.shed,
            PROGRESS_INSERT: self.progress,
        }
        return {**self.queries, **{insert: sink for insert, sink in aside.items() if sink is not None}}

    @property
    def sinks(self) -> list[Sink]:
        """Return each sink once: several INSERTs may go to one."""
        return list({id(sink): sink for sink in self.by_insert.values()}.values())

    def inserts_of(self, sink: Sink) -> list[str]:
        """Return the names of what goes to a sink."""
        return [insert for insert, own in self.by_insert.items() if own is sink]

    def lend(self, spark: SparkSession, store: Store) -> None:
        """Give sinks that have no place of their own for staged rows one; those that call out, tasks; those
        that ask Spark, the session."""

        def numbered(part: ArrowPart, count: int) -> list[StagedPart]:
            """Stage numbered parts in tasks; see `Numbered`."""
            return staged_by_tasks(spark.range(0, count, 1, count), part)

        for sink in self.sinks:
            if isinstance(sink, NeedsSession):
                sink.use(spark)
            if isinstance(sink, StagesInState):
                sink.stage_in(store)
            if isinstance(sink, CallsInTasks):
                sink.call_in(numbered, partial(has_come_to, store))

    def prepare(
        self,
        schemas: Mapping[str, Schema],
        manifest: Manifest | None,
        owner: str,
        *,
        pending: bool,
        set_aside: bool,
    ) -> list[str]:
        """Let every sink check what it can; see `Sink.prepare` and `Sink.resume`.

        Args:
            schemas: of the rows that go there, per insert.
            manifest: the newest one.
            owner: of the state.
            pending: the next tick was begun by an earlier run, and is repeated.
            set_aside: parts of later ticks are set aside, not refused.

        Returns:
            What was set aside, in words.
        """
        for insert, sink in self.by_insert.items():
            sink.prepare(schemas[insert], owner)
        parts = {} if manifest is None else manifest.parts
        last_parts = {name: (part.tick, part.identity) for name, part in parts.items()}
        tick = 0 if manifest is None else manifest.tick
        resumed = Resumed(tick, pending, last_parts, set_aside)
        return [said for sink in self.sinks for said in sink.resume(self.inserts_of(sink), resumed)]

    def may_be_out(self, store: Store, tick: int, owner: str, *, set_aside: bool) -> list[str]:
        """Return, in words, the sinks that have rows of a tick which an earlier run began, functions that the
        job names no more among them; without those where these will be set aside. ``owner``: of the state."""
        return list(self._may_be_out(store, tick, owner, set_aside))

    def _may_be_out(self, store: Store, tick: int, owner: str, set_aside: bool) -> Iterator[str]:
        called = set[str]()
        for sink in self.sinks:
            for insert in self.inserts_of(sink):
                if not sink.idempotent:
                    yield f'"{insert}": {UNKNOWN}'
                elif set_aside and sink.sets_aside:
                    continue
                elif sink.has_part(insert, tick, owner):
                    yield f'"{insert}" has rows of tick {tick}'
                    called |= {insert} if isinstance(sink, CallsInTasks) else set()
        for name, insert in recorded_inserts(store, store.names(PARTS), tick):
            if insert not in called:  # the job was renamed there, or has another sink by that name
                yield f'"{insert}" has rows of tick {tick} (function sink "{name}")'
