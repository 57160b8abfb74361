"""A tick between its begin and its commit. Each phase is a value that gives the next one:

    BegunTick ──reports of ingest──> RunningTick ──reports of every node──> ConcludedTick ──> the manifest

Nothing of a tick is state before `ConcludedTick.commit`: one that fails anywhere is begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from watersmeet.event_time import Watermark
from watersmeet.plan.identity.source_location import place_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import LookupPlan
from watersmeet.plan.query_inputs import limited_sources, sides_of
from watersmeet.runtime.coordinator.input_watermarks import FIRST_WORK, collect_branch_progress, decisions
from watersmeet.runtime.coordinator.ledger import CommittedState, Identity, Ledger, build_tick_identity
from watersmeet.runtime.coordinator.limits import check_broken, check_job_limits
from watersmeet.runtime.coordinator.load_shedding import LimitedSides, RetainedNode, job_decision_name
from watersmeet.runtime.coordinator.node_cost import MAX_INLINE_MATCHES, CostEstimate
from watersmeet.runtime.coordinator.operators.registry import find_driver
from watersmeet.runtime.coordinator.query_tick import QueryTick
from watersmeet.runtime.coordinator.results import (
    DRIVER,
    INGEST,
    QueryResult,
    RowsRead,
    TickResult,
    rows_read,
)
from watersmeet.runtime.coordinator.retained_runs import build_sharing
from watersmeet.runtime.coordinator.run_context import RunContext
from watersmeet.runtime.coordinator.shared_inputs import (
    RegressiveAdvance,
    add_shared_advances,
    find_regressive_advances,
)
from watersmeet.runtime.coordinator.table_reads import SnapshotRead
from watersmeet.runtime.messages.reports import IngestReport, NodeReport, PadFile
from watersmeet.runtime.messages.shapes import SideShape
from watersmeet.runtime.messages.work import PASSING, TickStart, write_work
from watersmeet.runtime.operators.task import InlineResult, NodeTask
from watersmeet.state.commits import Create
from watersmeet.state.manifest import Manifest, QueryState, TableCopy
from watersmeet.state.store import Traffic, take_traffic
from watersmeet.watermark import tracker


def shed_job(plan: JobPlan, queries: Mapping[str, QueryTick]) -> None:
    """Shed retained rows of a tick until the limits of sources and of the job are satisfied."""
    options = plan.queries[0].options
    sources = limited_sources(node for query in plan.queries for node in query.nodes)
    limited = sources or options.max_job_rows is not None or options.max_job_bytes is not None
    if not options.at_limit.sheds or not limited:
        return
    tick_number = next(iter(queries.values())).tick
    nodes = [
        (tick, node) for tick in queries.values() for node, own in enumerate(tick.nodes) if own.arrangements
    ]
    every = [(tick, _build_retained_node(tick, node, group)) for group, (tick, node) in enumerate(nodes)]
    for place, source in enumerate(sources):
        of = [(kept, sides_of(kept.node, source.name)) for _, kept in every]
        counted = LimitedSides([(kept, names) for kept, names in of if names], options.at_limit)
        if counted.of and source.max_rows is not None:
            counted.bring_rows_to(source.max_rows)
        if counted.of and source.max_bytes is not None:
            counted.bring_bytes_to(source.max_bytes, job_decision_name(tick_number, place))
    copies = [own.table for tick in queries.values() for own in tick.nodes if own.table is not None]
    of_job = LimitedSides([(kept, kept.names) for _, kept in every], options.at_limit)
    if every and options.max_job_rows is not None:
        of_job.bring_rows_to(options.max_job_rows, sum(copy.rows for copy in copies))
    if every and options.max_job_bytes is not None:
        besides = sum(run.nbytes for copy in copies for run in copy.runs)
        of_job.bring_bytes_to(options.max_job_bytes, job_decision_name(tick_number, None), besides)
    for tick, kept in every:
        shed = kept.mark_shed_rows(options.at_limit.value)
        if shed:
            number = kept.node.number
            update = {"arrangements": kept.arrangements, "asof": kept.asof(tick.nodes[number].asof, shed)}
            tick.nodes[number] = tick.nodes[number].model_copy(update=update)
            tick.accounted.add_shed_rows(kept.node, shed)


def _build_retained_node(tick: QueryTick, number: int, group: int) -> RetainedNode:
    """Build the `RetainedNode` of a settled node."""
    node, shape = tick.query.nodes[number], tick.shapes[number]
    arrangements = dict(tick.nodes[number].arrangements)
    return RetainedNode(node, shape, arrangements, tick.store, tick.tick, tick.keep_late, group)


@dataclass(frozen=True)
class StartedTick:
    """Tick whose rows are being read.

    Args:
        start: the input of the ingest tasks.
        inputs: the watermarks that the tick advances, per query and alias.
        late_below: the late threshold per query and watermark key; rows with lesser times are late.
    """

    run: RunContext
    ledger: Ledger
    before: CommittedState
    start: TickStart
    inputs: dict[str, dict[str, tracker.InputState]]
    late_below: dict[str, dict[str, Watermark]]

    def find_idling_sources(self, reports: Sequence[IngestReport]) -> frozenset[str]:
        """Return the sources of which `advance` would let a partition go idle, were none ``busy``."""
        return self.run.inputs.find_idling_sources(self.inputs, reports, self.start.clock_us)

    def forget_attempt(self) -> None:
        """Delete the files that record the start of this attempt.

        None of its rows are visible, or will be. Files of earlier attempts stay.
        """
        store, began = self.run.store, f"work/{self.start.tick}-{self.start.attempt}"
        own = [name for name in store.names("work") if name.startswith(began)]
        for name in sorted(own, key=lambda name: name.endswith(FIRST_WORK)):  # by the last one it is known
            store.delete(name)

    def advance(
        self,
        reports: Iterable[IngestReport],
        *,
        advances: Mapping[str, Mapping[str, int]] | None = None,
        idle: Mapping[str, Iterable[str]] | None = None,
        busy: Mapping[str, Iterable[str]] | None = None,
        by_key: Mapping[str, int] | None = None,
        end: bool = False,
        ends: Callable[[str], bool] | None = None,
    ) -> RunningTick:
        """Move the watermarks of the inputs by what the tick brought.

        Args:
            reports: of all ingest tasks.
            advances: explicit watermarks, per source name and source column.
            idle: partitions declared idle, per source name; none named: all of the source.
            busy: partitions known to have unread rows, per source name.
            by_key: explicit watermarks per ``alias.column``, of all sources of that input.
            end: end of input: every watermark becomes +∞.
            ends: of a bounded run, whether it has read all of a source.

        Raises:
            StateError: the manifest that the tick goes on from may not stay (see `state.commits`).
            EngineError: see `check_broken`.
        """
        self.ledger.check_newest(self.before)
        self.ledger.check()
        run, start, before = self.run, self.start, self.before
        ingest_reports = list(reports)
        read = rows_read(run.plan, ingest_reports)
        check_broken(run.plan, before.manifest, read, ingest_reports, ends)
        ingested = tuple(r.traffic for r in ingest_reports if r.traffic is not None)
        ingest_reports += [contents.report(start, run.store) for contents in before.contents]
        sharing = build_sharing(run.shapes, before.manifest, before.incomplete)

        @cache
        def readings() -> Mapping[str, SnapshotRead]:
            """Read each compared table once in this attempt, for all inputs."""
            settings = run.settings
            return run.snapshots.take(before.manifest, run.store, start, settings.placing, settings.digest)

        back: dict[str, tuple[RegressiveAdvance, ...]] = {}
        queries: dict[str, QueryTick] = {}
        for query in run.plan.queries:
            inputs, rules = self.inputs[query.name], run.inputs.rules[query.name]
            seen = collect_branch_progress(
                query, ingest_reports, advances or {}, idle or {}, busy or {}, by_key or {}
            )
            run.inputs.idleness.apply(query.name, seen)
            own = find_regressive_advances(query, inputs, rules, seen)
            back[query.name] = add_shared_advances(query, own, back)
            tracker.advance(inputs, rules, seen, start.clock_us)
            if end:
                tracker.end(inputs, rules)
            queries[query.name] = QueryTick(
                tick=start.tick,
                query=query,
                shapes=run.shapes[query.name],
                before=before.query(query.name),
                inputs=inputs,
                rules=rules,
                late_below=self.late_below[query.name],
                reports=ingest_reports,
                store=run.store,
                clock_us=start.clock_us,
                keep_late=run.settings.keep_late,
                readings=readings,
                tells_broken=run.tells_broken,
                sharing=sharing,
                most_gone=run.most_gone,
                others=queries,
                begins=query.name in before.begins,
            )
        return RunningTick(self, queries, read, back, ingested, end)


@dataclass(frozen=True)
class RunningTick:
    """Tick whose rows are read and whose watermarks have advanced; its nodes run in plan order.

    Input nodes run before the nodes that consume their rows.

    Args:
        queries: the nodes of each query, in the plan's order.
        read: the rows read from the sources.
        advances_back: explicit advances below their watermarks, per query.
        ingested: the store traffic of the ingest tasks.
        ended: True if the input has ended.
    """

    begun: StartedTick
    queries: Mapping[str, QueryTick]
    read: RowsRead
    advances_back: Mapping[str, tuple[RegressiveAdvance, ...]]
    ingested: tuple[Traffic, ...]
    ended: bool

    @property
    def start(self) -> TickStart:
        return self.begun.start

    def node_task(self, query: str, number: int) -> NodeTask:
        """Return a node's task, to run once per partition. Its input nodes must be settled.

        The method writes the record that a repeated tick uses. Tasks in other processes need
        `NodeTask.send`.
        """
        run, tick, start = self.begun.run, self.queries[query], self.start
        place = [planned.name for planned in run.plan.queries].index(query)
        node, shape, work = tick.query.nodes[number], run.shapes[query][number], tick.work(number)

        def load_table_copy(node: LookupPlan, table: SideShape) -> TableCopy | None:
            return run.tables.as_of(
                table.arrangement,
                (place, number),
                node,
                work,
                tick.table_before(number),
                start.clock_us,
                lambda reader: reader.read(table, run.store, work.tick, run.settings.placing),
            )

        work.table, work.tasks = (
            find_driver(node).table(node, shape, load_table_copy) or work.table,
            start.tasks,
        )
        name = f"{work.tick}-{start.attempt}-{place}-{number}.json"
        if name.endswith(FIRST_WORK):
            work.idle, work.settings = decisions(self.begun.inputs), run.settings.digest
        lasting = name.endswith(FIRST_WORK) or work.table is not None  # a repeated tick goes by it
        name = f"{'work/' if lasting else PASSING}{name}"
        if lasting or run.store.is_remote:
            write_work(run.store, name, work)
        return NodeTask(
            shape,
            run.store,
            name,
            work.tick,
            run.settings.placing,
            work=None if run.store.is_remote else work,  # read from the file, as tasks elsewhere do
        )

    def amount(self, query: str, number: int) -> CostEstimate:
        """Return how much a node has to do, whose task was asked for."""
        return self.queries[query].amount(number)

    def run_inline(
        self,
        query: str,
        number: int,
        task: NodeTask,
        then: Callable[[InlineResult], InlineResult | None] | None = None,
    ) -> InlineResult | None:
        """Run a node in this process, if it has little to do.

        Args:
            then: Processes the rows next; returns None if that is too much, too.

        Returns:
            The result; None if the work exceeds the limits of inline execution. Then no manifest names the
            files that it wrote.
        """
        settings, store = self.begun.run.settings, self.begun.run.store
        amount, fetched = self.amount(query, number), store.traffic is not None
        if amount.of_join and settings.tasks_asked:
            return None
        if not amount.is_small(settings.small_rows, fetched=fetched):
            return None
        with store.together():
            shares = 1 if fetched or self.start.ordered else amount.shares(settings.threads)
            alone = task.alone(MAX_INLINE_MATCHES, shares)
            return alone if alone is None or then is None else then(alone)

    def settle(
        self, query: str, number: int, reports: Iterable[NodeReport], *, rows_out: int | None = None
    ) -> None:
        """Take the reports of a node's tasks, one per partition (of one attempt each).

        ``rows_out``, of the last node: how many rows went to the sink; None: as many as left the tasks.

        Raises:
            EngineError: a limit was reached (see `limits`).
        """
        self.queries[query].settle(number, reports, rows_out)
        if all(tick.is_settled for tick in self.queries.values()):
            shed_job(self.begun.run.plan, self.queries)

    def aside(self, query: str) -> Mapping[str, Sequence[PadFile]]:
        """Return files of late rows of stages, and of rows that were shed, per alias; see `TickSettings`."""
        return self.queries[query].accounted.aside

    def broken(self, query: str) -> Mapping[str, Sequence[PadFile]]:
        """Return files of records of tables that do not parse, per source; see `TickSettings`."""
        return self.queries[query].accounted.broken

    def conclude(self, told: Mapping[str, str]) -> ConcludedTick:
        """Return the concluded tick. All nodes must be settled; nothing is stored yet.

        Args:
            told: facts that distinguish the tick from others with its number; see `build_tick_identity`.

        Raises:
            EngineError: a limit of the job is exceeded; or (a bug) an invariant is violated (see
                `invariants`).
        """
        run, start, before = self.begun.run, self.start, self.begun.before.manifest
        states: dict[str, QueryState] = {}
        results: dict[str, QueryResult] = {}
        holdings = run.inputs.holding(self.begun.inputs, start.clock_us)
        for name, query in self.queries.items():
            states[name], of_query = query.result()
            results[name] = replace(
                of_query,
                holding=holdings[name],
                idle=tuple(alias for alias, state in query.every_input.items() if state.idle),
                advances_back=self.advances_back[name],
                late_below=self.begun.late_below[name],
            )
        check_job_limits(run.plan, run.shapes, states)
        manifest = Manifest(
            tick=start.tick,
            clock_us=start.clock_us,
            **run.names_of_queries,
            sources=[source.name for source in run.plan.sources],
            places={source.name: place_of(source) for source in run.plan.sources},
            queries=states,
            finished=self.ended,
        )
        identity = build_tick_identity(run.plan, before, manifest, self.read.rows, told)
        manifest = manifest.model_copy(update={"identity": identity})
        result = TickResult(
            start.tick,
            start.clock_us,
            results,
            self.ended,
            self.read.rows,
            self.read.broken,
            self.read.far_ahead,
            self.read.rounded,
            held=run.inputs.ahead(self.begun.inputs),
            traffic=self._traffic(),
            state=manifest,
        )
        return ConcludedTick(self.begun, manifest, result)

    def _traffic(self) -> dict[str, tuple[Traffic, ...]]:
        """Return the traffic with the store, as `TickResult` has it."""
        own = take_traffic(self.begun.run.store)
        if own is None:
            return {}
        of_nodes = (told for query in self.queries.values() for told in query.traffic())
        return {INGEST: self.ingested, **dict(of_nodes), DRIVER: (own,)}


@dataclass(frozen=True)
class ConcludedTick:
    """A tick all nodes of which are settled.

    Args:
        manifest: the state after it, not stored yet.
        result: what there is to say of it.
    """

    begun: StartedTick
    manifest: Manifest
    result: TickResult

    @property
    def identity(self) -> Identity:
        """Return from what its rows were made; see `build_tick_identity`."""
        return self.manifest.identity

    def commit(
        self,
        host: Mapping[str, Any] | None = None,
        published: Collection[str] = (),
        create: Create | None = None,
    ) -> None:
        """Store the state after the tick; see `Ledger.commit`."""
        run, ledger = self.begun.run, self.begun.ledger
        ledger.check_newest(self.begun.before)
        ledger.commit(self.manifest, host or {}, published, create)
        run.inputs.idleness.committed(self.manifest.clock_us)
        run.tables.committed()
        run.snapshots.committed()
        ledger.collect_garbage()
