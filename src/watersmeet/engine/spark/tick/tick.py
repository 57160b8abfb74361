"""One tick on Spark: ingest job, advance, the jobs of nodes into their sinks, publish, commit.

Works on any frame of the scan's reports, streaming or not. A tick that fails anywhere has committed nothing
and is begun again; sinks have staged at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.engine.driver.amount import MOST_MATCHES
from watersmeet.engine.driver.driver import TickDriver
from watersmeet.engine.driver.results import TickResult
from watersmeet.engine.driver.settling.ending import end_tick
from watersmeet.engine.nodes.task import Alone, NodeTask
from watersmeet.engine.spark.configuration import context_settings
from watersmeet.engine.spark.text import sql_of
from watersmeet.engine.spark.tick.aggregate import results_of
from watersmeet.engine.spark.tick.conditions import ConditionFrame
from watersmeet.engine.spark.tick.described import Descriptions
from watersmeet.engine.spark.tick.ingest import ASIDE, BROKEN_REASON, REPORT
from watersmeet.engine.spark.tick.leaving import Leaving
from watersmeet.engine.spark.tick.nodes import FeedFrame, SinkFrame
from watersmeet.engine.spark.tick.places import Places
from watersmeet.engine.spark.tick.plain import plain_outputs
from watersmeet.engine.spark.tick.progress import progress_frame
from watersmeet.engine.spark.tick.reading.of_tick import Reading
from watersmeet.engine.spark.tick.side_output import Aside, side_frame
from watersmeet.engine.spark.tick.taken import Takings, check_taken
from watersmeet.engine.spark.tick.task_counts import TaskCounts
from watersmeet.engine.spark.tick.together import joint_of
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.words import node_name
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.sinks.base import (
    ArrowPart,
    CallsInTasks,
    NeedsSession,
    Sink,
    StagedPart,
    StagesInState,
    recorded_inserts,
)
from watersmeet.sinks.by_tasks import staged_by_tasks
from watersmeet.sinks.part_mark import Identity, Resumed
from watersmeet.spec.model import AtLimit
from watersmeet.spec.options.spark_settings import says_how
from watersmeet.state.manifest import PARTS, has_come_to

Unread = Callable[[Collection[str]], Mapping[str, Iterable[str]]]

UNKNOWN = "it is unknown whether it has some"

LATE_INSERT, BROKEN_INSERT, SHED_INSERT = "late-rows", "broken-records", "shed-rows"
"""Names of the parts of rows set aside; no query may be named so."""

SHED_REASONS = tuple(choice.value for choice in AtLimit if choice.sheds)
PROGRESS_INSERT = "tick-progress"
"""The same of the rows that say which ticks are complete."""


@dataclass
class Outputs:
    """Where the rows of a job go: a sink per query that is no index, and if asked for those for rows set
    aside, and for a row per tick that says that it is complete."""

    queries: Mapping[str, Sink]
    late: Sink | None = None
    broken: Sink | None = None
    progress: Sink | None = None
    shed: Sink | None = None

    @property
    def sinks(self) -> list[Sink]:
        sinks = [*self.queries.values(), self.late, self.broken, self.shed, self.progress]
        return list({id(sink): sink for sink in sinks if sink is not None}.values())

    def inserts_of(self, sink: Sink) -> Iterator[str]:
        """What goes to a sink."""
        yield from (name for name, sink_of_query in self.queries.items() if sink_of_query is sink)
        if self.late is sink:
            yield LATE_INSERT
        if self.broken is sink:
            yield BROKEN_INSERT
        if self.shed is sink:
            yield SHED_INSERT
        if self.progress is sink:
            yield PROGRESS_INSERT


@dataclass
class Timings:
    """Seconds that the parts of the last tick took."""

    parts: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def mark(self, part: str) -> None:
        now = time.perf_counter()
        self.parts[part] = self.parts.get(part, 0.0) + now - self._last
        self._last = now


class Ticks:
    """Runs the ticks of one job, one after the other.

    Args:
        partitions: in how many tasks a node is run; None: in as many as it needs in each tick.
        takings: asked what sinks took; to be closed when all ticks are done.
        described: what Spark's UI says of their jobs.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: JobPlan,
        driver: TickDriver,
        outputs: Outputs,
        partitions: int | None,
        takings: Takings,
        described: Descriptions,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._described = described
        self._outputs = outputs
        self._counts = TaskCounts(spark, partitions)
        self.driver = driver
        self.timings = Timings()
        self._takings = takings
        self._leaving = Leaving(driver, outputs.sinks)
        self._places = Places(spark)
        self._frames = {query.name: self._sink_frame(query) for query in plan.queries if not query.is_index}
        self._feeds = {
            (query.name, node.number): FeedFrame(
                spark, self._places, driver.shapes[query.name][node.number], driver.store
            )
            for query in plan.queries
            for node in (query.nodes if query.is_index else query.nodes[:-1])
            if not node.rests
        }
        self._conditions = {
            (query.name, node.number): frame
            for query in plan.queries
            for node in query.nodes
            if (frame := self._condition_frame(query, node)) is not None
        }
        driver.keep_late = outputs.late is not None or outputs.shed is not None
        driver.keep_broken = outputs.broken is not None
        driver.ordered, driver.tasks_are_asked = partitions == 1, partitions is not None

    def prepare(self, owner: str, *, pending: bool = False, set_aside: bool = False) -> list[str]:
        """Let every sink check what it can; see `Sink.prepare` and `Sink.resume`.

        Args:
            pending: the next tick was begun by an earlier run, and is repeated.
            set_aside: parts of later ticks are set aside, not refused.

        Returns:
            What was set aside, in words.
        """
        self.driver.owner = owner
        self._lend()
        for name, frame in self._frames.items():
            self._outputs.queries[name].prepare(frame.schema, owner)
        for sink in (self._outputs.late, self._outputs.broken, self._outputs.shed):
            if sink is not None:
                sink.prepare(side_frame(self._spark, self.driver.store, []).schema, owner)
        if self._outputs.progress is not None:
            self._outputs.progress.prepare(progress_frame(self._spark, self._plan, None).schema, owner)
        manifest = self.driver.manifest
        parts = {} if manifest is None else manifest.parts
        resumed = Resumed(
            self.driver.tick, pending, {name: (p.tick, p.identity) for name, p in parts.items()}, set_aside
        )
        return [
            said
            for sink in self._outputs.sinks
            for said in sink.resume(list(self._outputs.inserts_of(sink)), resumed)
        ]

    def may_be_out(self, owner: str, *, set_aside: bool) -> list[str]:
        """Sinks that have rows of the next tick, which an earlier run began, in words, functions that the job
        names no more among them; without those where these will be set aside. ``owner``: of the state."""
        self._lend()
        problems, called = [], set[str]()
        for sink in self._outputs.sinks:
            for insert in self._outputs.inserts_of(sink):
                if not sink.idempotent:
                    problems.append(f'"{insert}": {UNKNOWN}')
                elif set_aside and sink.sets_aside:
                    continue
                elif sink.has_part(insert, self.driver.tick + 1, owner):
                    problems.append(f'"{insert}" has rows of tick {self.driver.tick + 1}')
                    called |= {insert} if isinstance(sink, CallsInTasks) else set()
        store, following = self.driver.store, self.driver.tick + 1
        for name, insert in recorded_inserts(store, store.names(PARTS), following):
            if insert not in called:  # the job was renamed there, or has another sink by that name
                problems.append(f'"{insert}" has rows of tick {following} (function sink "{name}")')
        return problems

    def _lend(self) -> None:
        """Sinks that have no place of their own for staged rows get one; those that call out, tasks; those
        that ask Spark, the session."""
        for sink in self._outputs.sinks:
            if isinstance(sink, NeedsSession):
                sink.use(self._spark)
            if isinstance(sink, StagesInState):
                sink.stage_in(self.driver.store)
            if isinstance(sink, CallsInTasks):
                sink.call_in(self._numbered, partial(has_come_to, self.driver.store))

    def _numbered(self, part: ArrowPart, count: int) -> list[StagedPart]:
        """See `Numbered`."""
        return staged_by_tasks(self._spark.range(0, count, 1, count), part)

    def run(
        self,
        reading: Reading | None,
        clock_us: int,
        *,
        host: Mapping[str, Any],
        told: Mapping[str, str] | None = None,
        advances: Mapping[str, Mapping[str, int]] | None = None,
        idle: Mapping[str, Iterable[str]] | None = None,
        unread: Unread | None = None,
        check: Callable[[], None] | None = None,
        end: bool = False,
        ends: Callable[[str], bool] | None = None,
    ) -> TickResult:
        """One tick.

        Args:
            reading: how its rows are read; None: a tick without rows.
            host: what the manifest remembers for this engine.
            told: what tells the tick from others of its number, by name; see `identity_of`.
            advances, idle, end, ends: see `TickDriver.advance`.
            unread: of sources, the partitions that have unread rows. Asked in ticks alone in which a
                partition would go idle; one that has some does not.
            check: called when the rows were read, before any goes out; raises if they are not to be trusted.
        """
        self.timings = Timings()
        self._counts.begin()
        self.driver.tasks = self._counts.about
        with self._described.of(self.driver.tick + 1), self._leaving.attempt(clock_us) as start:
            self.timings.mark("begin")
            rows: list[Any] = []
            if reading is not None:
                self._described.part("ingest")
                rows = reading.told(self._spark, start)
            if check is not None:
                check()
            self.timings.mark("ingest")
            texts = [row[1] for row in rows if row[0] == REPORT]
            going = frozenset[str]() if unread is None or end else self.driver.going_idle(start, texts)
            busy = unread(going) if unread is not None and going else None
            self.driver.advance(start, texts, advances=advances, idle=idle, busy=busy, end=end, ends=ends)
            self.timings.mark("advance")
            aside = [Aside.from_json(row[1]) for row in rows if row[0] == ASIDE]
            published = self._write(start.tick, start.attempt, aside)
            progress = self._outputs.progress
            told_last = (
                None if progress is None else _Completion(self._spark, self._plan, progress, self._takings)
            )
            result = end_tick(
                self.driver,
                published,
                start.attempt,
                host=host,
                told=told or {},
                completion=told_last,
                joint=None if progress is not None else joint_of(self.driver.store, published),
                mark=self.timings.mark,
                leave=self._leaving.by_all,
            )
            self._counts.learn(result.queries)
            return replace(result, tasks=self._counts.used())

    def _write(self, tick: int, attempt: str, aside: list[Aside]) -> list[tuple[Sink, str]]:
        """Stage the rows of all queries and the rows set aside; which sinks have to publish what."""
        published: list[tuple[Sink, str]] = []
        try:
            for query in self._plan.queries:
                self._run_nodes(query, attempt)
            published += [(sink, name) for name, sink in self._outputs.queries.items()]
            self.timings.mark("join and write")
            aside = [*aside, *self._of_takers(aside), *self._of_nodes(), *self._broken_of_tables()]
            published += self._write_aside(tick, attempt, aside)
            self._described.part("publish")
        except BaseException:
            for sink in self._outputs.sinks:
                sink.discard(attempt)
            raise
        return published

    def _run_nodes(self, query: QueryPlan, attempt: str) -> None:
        """Run the nodes of a query, those beneath first; the last one stages its rows in the sink, if there
        is one."""
        for node in query.nodes:
            if (query.name, node.number) not in self._feeds:
                continue
            self._described.part(query.name, node_name(query, node))
            task, count = self._task(query.name, node.number)
            alone = self._alone(query.name, node.number, task)
            feed = self._feeds[query.name, node.number]
            reports = feed.run(task, count) if alone is None else alone.texts
            self.driver.settle(query.name, node.number, reports)
        if query.is_index:
            return
        last = query.root.number
        self._described.part(query.name, node_name(query, query.root))
        task, count = self._task(query.name, last)
        self._leaving.by(self._outputs.queries[query.name])
        reports, rows_out = self._frames[query.name].write(
            task, attempt, count, partial(self._alone, query.name, last, task)
        )
        self.driver.settle(query.name, last, reports, rows_out=rows_out)

    def _task(self, query: str, number: int) -> tuple[NodeTask, int]:
        """A node's task, with what Spark computes of its condition, and in how many partitions it is run."""
        task = self.driver.node_task(query, number)
        count = self._counts.of(query, number, self.driver.amount(query, number))
        condition = self._conditions.get((query, number))
        return task if condition is None else condition.answers(task, count), count

    def _alone(
        self, query: str, number: int, task: NodeTask, then: Callable[[Alone], Alone] | None = None
    ) -> Alone | None:
        """What `TickDriver.run_small` gives; if that is something, the node has no tasks. It is not asked for
        what is about to find too much, by the last tick."""
        if self._counts.foreseen(query, self.driver.amount(query, number)) > MOST_MATCHES:
            return None
        alone = self.driver.run_small(query, number, task, then)
        if alone is not None:
            self._counts.spared(query, number)
        return alone

    def _condition_frame(self, query: QueryPlan, node: NodePlan) -> ConditionFrame | None:
        shape = self.driver.shapes[query.name][node.number]
        asked = node.pair_condition
        if shape.elsewhere is None or asked is None:
            return None
        sql, text = sql_of(asked), text_of(asked).replace("`", "")
        return ConditionFrame(self._spark, self._places, shape, self.driver.store, sql, text)

    def _of_takers(self, aside: list[Aside]) -> list[Aside]:
        """The same rows, for queries whose inputs others read."""
        owners = [
            (f"{query.name}/{own}", f"{reader}/{there}")
            for query in self._plan.queries
            for own, reader, there in query.inputs_elsewhere
        ]
        return [file.of(owner) for owner, reader in owners for file in aside if file.owner == reader]

    def _of_nodes(self) -> list[Aside]:
        """Late rows of stages, and rows that joins have shed."""
        return [
            Aside(
                source=_source_of(query, alias) if file.reason else alias,
                owner=f"{query.name}/{_title_of(query, alias)}",
                reason=file.reason or "late",
                name=file.name,
                rows=file.rows,
            )
            for query in self._plan.queries
            for alias, files in self.driver.aside(query.name).items()
            for file in files
        ]

    def _broken_of_tables(self) -> list[Aside]:
        return [
            Aside(source=source, owner="", reason=BROKEN_REASON, name=file.name, rows=file.rows)
            for query in self._plan.queries
            for source, files in self.driver.broken(query.name).items()
            for file in files
        ]

    def _write_aside(self, tick: int, attempt: str, aside: list[Aside]) -> list[tuple[Sink, str]]:
        published = []
        sinks = {
            LATE_INSERT: self._outputs.late,
            BROKEN_INSERT: self._outputs.broken,
            SHED_INSERT: self._outputs.shed,
        }
        for insert, sink in sinks.items():
            files = [file for file in aside if _insert_of(file) == insert]
            if sink is not None and files:
                self._described.part(insert)
                self._leaving.by(sink)
                self._write_files(sink, insert, tick, attempt, files)
                published.append((sink, insert))
        if published:
            self.timings.mark("side outputs")
        return published

    def _write_files(self, sink: Sink, insert: str, tick: int, attempt: str, files: list[Aside]) -> None:
        frame, rows = side_frame(self._spark, self.driver.store, files), sum(file.rows for file in files)
        took = self._takings.of(
            sink, insert, tick, attempt, lambda: sink.write(frame, insert, tick, attempt), lambda: rows
        )
        check_taken(insert, took, rows)

    def _sink_frame(self, query: QueryPlan) -> SinkFrame:
        outputs = [(sql_of(output.expr), output.name) for output in query.outputs]
        where = None if query.where is None else sql_of(query.where)
        shape = self.driver.shapes[query.name][query.root.number]
        results = results_of(query.root, shape)
        as_they_are = where is None and results is None and not _writer_is_set(self._spark)
        plain = plain_outputs(query, shape) if as_they_are else None
        store = self.driver.store
        sink = self._outputs.queries[query.name]
        return SinkFrame(
            self._spark,
            self._places,
            shape,
            store,
            where,
            outputs,
            plain,
            query.options.time_zone,
            sink,
            self._takings,
            results,
            None if query.rows_of_key is None else sql_of(query.rows_of_key),
        )


@dataclass(frozen=True)
class _Completion:
    """The row that says that all sinks have theirs of a tick; see `settling.ending.Completion`."""

    spark: SparkSession
    plan: JobPlan
    sink: Sink
    takings: Takings

    def check(self, tick: int, identity: Identity) -> None:
        self.sink.check(PROGRESS_INSERT, tick, identity)

    def tell(self, result: TickResult, attempt: str, identity: Identity) -> list[str]:
        sink, insert, tick = self.sink, PROGRESS_INSERT, result.tick
        frame = progress_frame(self.spark, self.plan, result)
        try:
            took = self.takings.of(
                sink, insert, tick, attempt, lambda: sink.write(frame, insert, tick, attempt), lambda: 1
            )
            check_taken(insert, took, 1)
        except BaseException:
            sink.discard(attempt)
            raise
        return [insert] if sink.publish(insert, tick, attempt, identity) else []


def _insert_of(file: Aside) -> str:
    """Where its rows go."""
    return {BROKEN_REASON: BROKEN_INSERT, **dict.fromkeys(SHED_REASONS, SHED_INSERT)}.get(
        file.reason, LATE_INSERT
    )


def _source_of(query: QueryPlan, alias: str) -> str:
    """The name of an input's source; of a UNION ALL that of the input, of joined rows those of the inputs."""
    names = [branch.source.name for side in query.sides if side.name == alias for _, branch in side.sources]
    return names[0] if len(names) == 1 else _title_of(query, alias)


def _title_of(query: QueryPlan, alias: str) -> str:
    """An input's alias; of joined rows those of the inputs."""
    return next((side.title for node in query.nodes for side in node.sides if side.name == alias), alias)


def _writer_is_set(spark: SparkSession) -> bool:
    """Whether the user told Spark how to write files: then Spark writes them. What every session has from
    here is written by tasks in the same way."""
    return says_how(context_settings(spark.sparkContext), "spark.sql.parquet.", "spark.sql.files.")
