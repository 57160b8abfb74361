"""The tick's driver: what one process decides between the tasks. Pure but for the store.

    begin ──> TickStart (to ingest tasks) ──reports──> advance
          ──> NodeTask ──reports──> settle, for every node of every query ──> conclude ──> commit

Nothing of a tick is state before `commit`; a tick that fails anywhere is simply begun again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from watersmeet.engine.driver.amount import MOST_MATCHES, SMALL_ROWS, Amount
from watersmeet.engine.driver.broken import check_broken
from watersmeet.engine.driver.counts import rows_read, tellers_of_broken
from watersmeet.engine.driver.identity import Identity, identity_of
from watersmeet.engine.driver.inputs.advances import advances_back
from watersmeet.engine.driver.inputs.idleness import FIRST_WORK, decisions
from watersmeet.engine.driver.inputs.partitions import seen_in
from watersmeet.engine.driver.inputs.states import InputStates
from watersmeet.engine.driver.kinds.registry import driver_of
from watersmeet.engine.driver.late import late_below
from watersmeet.engine.driver.merge_policy import most_gone
from watersmeet.engine.driver.opening.as_kept import check_as_kept
from watersmeet.engine.driver.opening.changed_queries import known_by, with_changed
from watersmeet.engine.driver.opening.checks import check_columns, check_not_finished, check_same_job
from watersmeet.engine.driver.opening.contents import Contents
from watersmeet.engine.driver.opening.moved_on import again_if_moved_on
from watersmeet.engine.driver.query_tick import QueryTick
from watersmeet.engine.driver.results import DRIVER, INGEST, QueryResult, TickResult
from watersmeet.engine.driver.settling.inputs_elsewhere import with_advances_elsewhere
from watersmeet.engine.driver.settling.job_limits import check_job_limits
from watersmeet.engine.driver.settling.open_tick import OpenTick
from watersmeet.engine.driver.settling.shed_job import shed_of_job
from watersmeet.engine.driver.shape import job_shapes
from watersmeet.engine.driver.sharing import incomplete_runs, sharing_of
from watersmeet.engine.driver.snapshots import SnapshotReader, Snapshots
from watersmeet.engine.driver.starting import ingest_fields
from watersmeet.engine.driver.tables import TableReader, Tables
from watersmeet.engine.messages.reports import IngestReport, PadFile
from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.engine.messages.work import TickStart, read_work
from watersmeet.engine.nodes.task import Alone, NodeTask
from watersmeet.engine.tasks.share import ManyMatches
from watersmeet.engine.tasks.write import FLUSH_BYTES, FLUSH_ROWS, Placing
from watersmeet.errors import EngineError
from watersmeet.event_time import Watermark
from watersmeet.plan.identity.fingerprint import place_of
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import LookupPlan
from watersmeet.spec.model import NullTime
from watersmeet.state.commits import Commits, Create
from watersmeet.state.kept_ticks import KeptTicks
from watersmeet.state.manifest import KnownPart, Manifest, QueryState, TableCopy, load_newest
from watersmeet.state.sealed import sealed
from watersmeet.state.store import Store
from watersmeet.state.traffic import Traffic, taken_of
from watersmeet.state.whole import verify_files
from watersmeet.watermark import tracker
from watersmeet.watermark.alignment import Ahead
from watersmeet.watermark.holding import Holding


class TickDriver:
    """Drives the ticks of one job over one store. Not thread-safe; one per store at a time.

    Use `open`. ``manifest``: the last committed one, None before the first tick. ``kept``: which stay.
    ``commits``: to be asked before a run comes to a good end whether the last one may stay.
    ``keep_late``: late rows of stages are wanted, see `aside`; ``keep_broken``: records of tables that are no
    rows are, see `broken`. ``ordered``: rows leave in the order they came in (one task a node). ``tasks``: of
    a node, about. ``owner``: the id of the state. ``settings``: of the run. ``inputs``: their watermarks.
    """

    def __init__(
        self,
        plan: JobPlan,
        schemas: Mapping[str, pa.Schema],
        store: Store,
        manifest: Manifest | None,
        started_us: int | None,
        tables: Mapping[str, TableReader],
        snapshots: Mapping[str, SnapshotReader],
        *,
        zoned: bool = True,
    ) -> None:
        self.plan = plan
        self.store = store
        self.manifest = manifest
        self.commits, self.kept = Commits(store), KeptTicks(store)
        self.shapes: dict[str, tuple[NodeShape, ...]] = job_shapes(plan, schemas, zoned=zoned)
        self.inputs = InputStates(plan, started_us)
        self._most_gone = most_gone(plan)
        self._open: OpenTick | None = None
        self._tables, self._snapshots = Tables(tables), Snapshots(snapshots, plan, self.shapes)
        self.flush_rows, self.flush_bytes = FLUSH_ROWS, FLUSH_BYTES
        self.placing: Placing | None = None
        self.small_rows, self.threads, self.tasks = SMALL_ROWS, 1, 1
        self.keep_late = self.keep_broken = self.ordered = self.tasks_are_asked = False
        self._incomplete = frozenset[str]()
        self.said, self._contents, self._begin = list[str](), list[Contents](), frozenset[str]()
        self.owner = "" if manifest is None else manifest.owner
        self.settings, self._known = "", known_by(plan)

    @classmethod
    @again_if_moved_on
    def open(
        cls,
        plan: JobPlan,
        schemas: Mapping[str, pa.Schema],
        store: Store,
        *,
        started_us: int | None = None,
        verify: bool = True,
        tables: Mapping[str, TableReader] | None = None,
        snapshots: Mapping[str, SnapshotReader] | None = None,
        zoned: bool = True,
        change_queries: bool = False,
    ) -> TickDriver:
        """Load the newest state, if any, and check that it belongs to this plan and is whole.

        Args:
            schemas: per ``query/alias`` the kept columns in native Arrow types; see `node_shapes`.
            started_us: the clock now: idle times start here (None: with the first tick).
            verify: also read every run and compare checksums.
            tables: what reads the tables that rows meet as of their tick, per ``query/alias``.
            snapshots: what reads the tables that are compared, per source.
            zoned: see `node_shapes`.
            change_queries: queries may come, go and change (`opening.changed_queries`); ``said`` tells of it.

        Raises:
            StateError: the state is of another query, other sources, lacks columns, or is damaged.
        """
        store.check()
        store.sweep()
        manifest = load_newest(store)
        if manifest is not None:
            check_same_job(manifest, plan, may_change=change_queries)
            check_as_kept(plan, manifest)
            if verify:
                verify_files(manifest, store)
        driver = cls(plan, schemas, store, manifest, started_us, tables or {}, snapshots or {}, zoned=zoned)
        if manifest is not None:
            changed = with_changed(manifest, plan, driver.shapes, store, zoned=zoned)
            driver.said, driver._begin, driver._contents = changed.said, changed.begins, changed.contents
            manifest = driver.manifest = changed.manifest
            check_columns(manifest, driver.shapes, store)
            driver._incomplete = incomplete_runs(driver.shapes, manifest, store)
        return driver

    @property
    def tick(self) -> int:
        """The number of the last committed tick; 0 before the first."""
        return self.manifest.tick if self.manifest else 0

    def retained(self) -> dict[str, dict[str, int]]:
        """Rows in the state as of the last tick, per query and alias."""
        retained: dict[str, dict[str, int]] = {}
        for query in self.plan.queries:
            nodes = self.manifest.queries[query.name].nodes if self.manifest else []
            rows_by_side = {name: a.retained for node in nodes for name, a in node.arrangements.items()}
            retained[query.name] = {side.name: rows_by_side.get(side.name, 0) for side in query.sides}
            for own, maker, there in query.inputs_elsewhere:
                retained[query.name][own] = retained[maker][there]
        return retained

    def begin(self, clock_us: int) -> TickStart:
        """Begin the next tick, again if it was begun and not committed. ``clock_us``: its one clock."""
        check_not_finished(self.manifest)
        inputs = self.inputs.at(self.manifest, clock_us)
        late = {q.name: late_below(q, inputs[q.name], self._before(q).late_below) for q in self.plan.queries}
        start = TickStart(
            tick=self.tick + 1,
            attempt=uuid.uuid4().hex,
            clock_us=clock_us,
            flush_rows=self.flush_rows,
            flush_bytes=self.flush_bytes,
            null_fails=self.plan.queries[0].options.on_null_time is NullTime.FAIL,
            ordered=self.ordered,
            tasks=self.tasks,
            placing=self.placing,
            **ingest_fields(self.plan, self.shapes, self.manifest, late),
        )
        self._open = OpenTick(start, inputs, late)
        return start

    def look(self, clock_us: int) -> None:
        """Say that the engine is looking at its sources, at this clock.

        Of the time between two looks no more than half of an idle timeout counts as silence: see
        `tracker.pause`. An engine that never says so is always looking.
        """
        self.inputs.idleness.look(clock_us)

    def repeat(self) -> None:
        """The next tick was begun by an earlier run, which may have put out a part of it: what that run
        decided about partitions (which there are, which are idle) and about tables counts, not the clock of
        this one."""
        self.inputs.idleness.repeat(self.store, self.tick + 1)
        self._tables.repeat(self.store, self.tick + 1)
        self._snapshots.repeat(self.store, self.tick + 1, self.settings)

    def begun_with(self) -> str | None:
        """How the run was set that began the next tick (a digest); None when nothing can have come of it: no
        node of it was run."""
        names = self.store.names("work")
        first = [n for n in names if n.startswith(f"work/{self.tick + 1}-") and n.endswith(FIRST_WORK)]
        return read_work(self.store, first[-1]).settings if first else None

    def give_up(self, start: TickStart) -> None:
        """Nothing of this attempt at the next tick went out, or will: it does not count. Earlier ones do."""
        began = f"work/{start.tick}-{start.attempt}"
        own = [name for name in self.store.names("work") if name.startswith(began)]
        for name in sorted(own, key=lambda name: name.endswith(FIRST_WORK)):  # by the last one it is known
            self.store.delete(name)

    def forget(self) -> None:
        """The next tick was begun by an earlier run, and nothing of it went out: what that run decided does
        not count, for this one is set in another way."""
        for name in self.store.names("work"):
            self.store.delete(name)

    def going_idle(self, start: TickStart, reports: Sequence[str]) -> frozenset[str]:
        """The sources of which `advance` would let a partition go idle, were none of them ``busy``."""
        return self.inputs.going_idle(self._tick_of(start).inputs, reports, start.clock_us)

    def waiting(
        self, clock_us: int, unread: Mapping[str, Collection[str]]
    ) -> dict[str, dict[str, tuple[Holding, ...]]]:
        """Per query and alias the declared partitions that never had a row, and have none to be read."""
        return self.inputs.waiting(self.manifest, clock_us, unread)

    def is_due(self, clock_us: int) -> bool:
        """Whether a tick without rows would move anything: a partition goes idle at this clock."""
        is_over = self.manifest is not None and self.manifest.finished
        return not is_over and self.inputs.would_move(self.manifest, clock_us)

    def reads_tables(self, clock_us: int) -> bool:
        """Whether a tick at this clock would read a table that may have changed, to compare it."""
        is_over = self.manifest is not None and self.manifest.finished
        return not is_over and self._snapshots.is_due(self.manifest, clock_us)

    def held(self) -> dict[str, Ahead]:
        """The paused sources: those that are further ahead of others than ``max_drift``."""
        return self.inputs.ahead_of(self.manifest)

    def advance(
        self,
        start: TickStart,
        reports: Iterable[str],
        *,
        advances: Mapping[str, Mapping[str, int]] | None = None,
        idle: Mapping[str, Iterable[str]] | None = None,
        busy: Mapping[str, Iterable[str]] | None = None,
        by_key: Mapping[str, int] | None = None,
        end: bool = False,
        ends: Callable[[str], bool] | None = None,
    ) -> None:
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
        self.commits.check()
        tick = self._tick_of(start)
        ingest_reports = [IngestReport.model_validate_json(report) for report in reports]
        tick.read = rows_read(self.plan, ingest_reports)
        check_broken(self.plan, self.manifest, tick.read, ingest_reports, ends)
        tick.ingested = tuple(r.traffic for r in ingest_reports if r.traffic is not None)
        ingest_reports += [contents.report(start, self.store) for contents in self._contents]
        tick.ended = end
        sharing = sharing_of(self.shapes, self.manifest, self._incomplete)
        for query in self.plan.queries:
            inputs, rules = tick.inputs[query.name], self.inputs.rules[query.name]
            seen = seen_in(query, ingest_reports, advances or {}, idle or {}, busy or {}, by_key or {})
            self.inputs.idleness.apply(query.name, seen)
            back = advances_back(query, inputs, rules, seen)
            tick.advances_back[query.name] = with_advances_elsewhere(query, back, tick.advances_back)
            tracker.advance(inputs, rules, seen, start.clock_us)
            if end:
                tracker.end(inputs, rules)
            tick.queries[query.name] = QueryTick(
                tick=start.tick,
                query=query,
                shapes=self.shapes[query.name],
                before=self._before(query),
                inputs=inputs,
                rules=rules,
                late_below=tick.late_below[query.name],
                reports=ingest_reports,
                store=self.store,
                clock_us=start.clock_us,
                keep_late=self.keep_late,
                readings=lambda: self._snapshots.take(
                    self.manifest, self.store, start, self.placing, self.settings
                ),
                tells_broken=tellers_of_broken(self.plan, self.shapes) if self.keep_broken else frozenset(),
                sharing=sharing,
                most_gone=self._most_gone,
                others=tick.queries,
                begins=query.name in self._begin,
            )

    def _before(self, query: QueryPlan) -> QueryState:
        return self.manifest.queries[query.name] if self.manifest else QueryState()

    def node_task(self, query: str, number: int) -> NodeTask:
        """A node of the open tick, to be run once per partition; those beneath it are settled. Writes the
        tasks' work file."""
        tick = self._current()
        work = tick.queries[query].work(number)
        place = [planned.name for planned in self.plan.queries].index(query)
        node, shape = self.plan.queries[place].nodes[number], self.shapes[query][number]

        def met(node: LookupPlan, table: SideShape) -> TableCopy | None:
            return self._tables.as_of(
                table.arrangement,
                (place, number),
                node,
                work,
                tick.queries[query].table_before(number),
                tick.start.clock_us,
                lambda reader: reader.read(table, self.store, work.tick, self.placing),
            )

        work.table, work.tasks = driver_of(node).table(node, shape, met) or work.table, self.tasks
        name = f"{work.tick}-{tick.start.attempt}-{place}-{number}.json"
        if name.endswith(FIRST_WORK):
            work.idle, work.settings = decisions(tick.inputs), self.settings
        lasting = name.endswith(FIRST_WORK) or work.table is not None  # a repeated tick goes by it
        name = f"work/{'' if lasting else 'passing-'}{name}"
        self.store.write(name, sealed(name, work.model_dump_json()), lasting=lasting)
        return NodeTask(shape, self.store, name, work.tick, self.placing)

    def amount(self, query: str, number: int) -> Amount:
        """How much a node has to do, whose task was asked for."""
        return self._current().queries[query].amount(number)

    def run_small(
        self, query: str, number: int, task: NodeTask, then: Callable[[Alone], Alone] | None = None
    ) -> Alone | None:
        """Run a node in this process, if it has little to do. None: it has more; what it wrote is garbage.
        ``then``: what becomes of its rows next, and may be much, too: it raises `ManyMatches` then."""
        amount, fetched = self.amount(query, number), self.store.traffic is not None
        if amount.of_join and self.tasks_are_asked:
            return None
        if not amount.is_small(self.small_rows, fetched=fetched):
            return None
        try:
            with self.store.together():
                alone = task.alone(
                    MOST_MATCHES, 1 if fetched or self.ordered else amount.shares(self.threads)
                )
                return alone if then is None else then(alone)
        except ManyMatches:
            return None

    def settle(self, query: str, number: int, reports: Iterable[str], *, rows_out: int | None = None) -> None:
        """Take the control texts of a node's tasks, one per partition (of one attempt each).

        ``rows_out``, of the last node: how many rows went to the sink; None: as many as left the tasks.

        Raises:
            EngineError: a limit was reached (see `limits`).
        """
        queries = self._current().queries
        queries[query].settle(number, reports, rows_out)
        if all(tick.is_settled for tick in queries.values()):
            shed_of_job(self.plan, queries)

    def late_below(self, query: str) -> Mapping[str, Watermark]:
        """Per key of a query's inputs: rows of the open tick below are late."""
        return self._current().late_below[query]

    def aside(self, query: str) -> Mapping[str, Sequence[PadFile]]:
        """Files of the open tick's late rows of stages, per alias of their input, if `keep_late` is set."""
        return self._current().queries[query].accounted.aside

    def broken(self, query: str) -> Mapping[str, Sequence[PadFile]]:
        """Files of the open tick's records of tables that are no rows, per source; see `keep_broken`."""
        return self._current().queries[query].accounted.broken

    def conclude(self) -> TickResult:
        """What the tick has come to, when all nodes are settled; nothing is stored yet.

        Raises:
            EngineError: a limit of the job was reached; or (a bug) a promise is broken (see `monotony`).
        """
        tick = self._current()
        states: dict[str, QueryState] = {}
        results: dict[str, QueryResult] = {}
        holdings = self.inputs.holding(tick.inputs, tick.start.clock_us)
        for name, query in tick.queries.items():
            states[name], result = query.result()
            results[name] = replace(
                result,
                holding=holdings[name],
                idle=tuple(alias for alias, state in query.every_input.items() if state.idle),
                advances_back=tick.advances_back[name],
                late_below=tick.late_below[name],
            )
        check_job_limits(self.plan, self.shapes, states)
        tick.manifest = Manifest(
            tick=tick.start.tick,
            clock_us=tick.start.clock_us,
            **self._known,
            sources=[source.name for source in self.plan.sources],
            places={source.name: place_of(source) for source in self.plan.sources},
            queries=states,
            finished=tick.ended,
        )
        return TickResult(
            tick.start.tick,
            tick.start.clock_us,
            results,
            tick.ended,
            tick.read.rows,
            tick.read.broken,
            tick.read.far_ahead,
            tick.read.rounded,
            held=self.inputs.ahead(tick.inputs),
            traffic=self._traffic(tick),
            state=tick.manifest,
        )

    def _traffic(self, tick: OpenTick) -> dict[str, tuple[Traffic, ...]]:
        """See `TickResult`."""
        own = taken_of(self.store)
        if own is None:
            return {}
        of_nodes = (told for query in tick.queries.values() for told in query.traffic())
        return {INGEST: tick.ingested, **dict(of_nodes), DRIVER: (own,)}

    def identify(self, told: Mapping[str, str]) -> Identity:
        """From what the rows of the tick that was concluded were made; see `identity_of`."""
        tick = self._current()
        assert tick.manifest is not None
        tick.manifest.identity = identity_of(self.plan, self.manifest, tick.manifest, tick.read.rows, told)
        return tick.manifest.identity

    def commit(
        self,
        host: Mapping[str, Any] | None = None,
        published: Collection[str] = (),
        create: Create | None = None,
    ) -> None:
        """Create the manifest of the tick that was concluded, and delete what is no longer needed.
        ``published``: the inserts of which there is a part of this tick now. ``create``: as
        `state.commits.commit`."""
        tick = self._current()
        assert tick.manifest is not None
        part = KnownPart(tick=tick.start.tick, identity=tick.manifest.identity)
        parts = {} if self.manifest is None else self.manifest.parts
        of_inserts = {**parts, **dict.fromkeys(published, part)}
        follows = "" if self.manifest is None else self.manifest.writer
        now = {"host": dict(host or {}), "owner": self.owner, "follows": follows, "parts": of_inserts}
        manifest = self.commits.commit(tick.manifest.model_copy(update=now), create)
        if self._incomplete:  # what they were merged into is so, too
            self._incomplete |= incomplete_runs(self.shapes, manifest, self.store, self.manifest)
        self.manifest, self._open = manifest, None
        self._contents, self._begin = [], frozenset()
        self.inputs.idleness.committed(manifest.clock_us)
        self._tables.committed()
        self._snapshots.committed()
        self.kept.commit(manifest, self.commits.check)

    def close(self) -> None:
        """Nothing of the last tick goes on behind it: called before another run may begin."""
        self.commits.close()
        self.kept.close()

    def _current(self) -> OpenTick:
        if self._open is None:
            raise EngineError("no tick is open", code="no-open-tick")
        return self._open

    def _tick_of(self, start: TickStart) -> OpenTick:
        tick = self._current()
        if tick.start.attempt != start.attempt:
            raise EngineError("the tick was restarted: this attempt is stale", code="stale-attempt")
        return tick
