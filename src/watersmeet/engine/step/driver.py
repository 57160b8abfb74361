"""The tick's driver: what one process decides between the tasks. Pure but for the store.

    begin ──> TickStart (to ingest tasks) ──reports──> advance
          ──> JoinTask ──reports──> settle, for every join of every query ──> conclude ──> commit

Nothing of a tick is state before `commit`; a tick that fails anywhere is simply begun again.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from watersmeet.engine.step.chain import QueryResult, QueryTick
from watersmeet.engine.step.idleness import FIRST_WORK, Idleness, decisions
from watersmeet.engine.step.join import JoinTask
from watersmeet.engine.step.opening import check_same_job, verify_files
from watersmeet.engine.step.shape import join_shapes, tracker_rules
from watersmeet.engine.step.tasks import IngestReport, JoinShape, TickStart
from watersmeet.engine.step.write import FLUSH_BYTES, FLUSH_ROWS, Placing
from watersmeet.errors import EngineError, StateError
from watersmeet.event_time import NEVER, Side, Watermark, shift
from watersmeet.plan.model import JobPlan, QueryPlan
from watersmeet.spec.model import NullTime
from watersmeet.state.manifest import Manifest, QueryState, collect_garbage, commit, load_newest
from watersmeet.state.store import Store
from watersmeet.watermark import tracker
from watersmeet.watermark.holding import Holding, holding, unheard


@dataclass(frozen=True)
class TickResult:
    tick: int
    clock_us: int
    queries: Mapping[str, QueryResult]
    finished: bool


@dataclass
class _OpenTick:
    start: TickStart
    inputs: dict[str, dict[str, tracker.InputState]] = field(default_factory=dict)
    queries: dict[str, QueryTick] = field(default_factory=dict)
    ended: bool = False
    manifest: Manifest | None = None


class TickDriver:
    """Drives the ticks of one job over one store. Not thread-safe; one per store at a time.

    Use `open`. ``manifest``: the last committed one, None before the first tick.
    """

    def __init__(
        self,
        plan: JobPlan,
        schemas: Mapping[str, pa.Schema],
        store: Store,
        manifest: Manifest | None,
        started_us: int | None,
    ) -> None:
        self.plan = plan
        self.store = store
        self.manifest = manifest
        self._previous: Manifest | None = None
        self.shapes: dict[str, tuple[JoinShape, ...]] = {
            query.name: join_shapes(query, schemas) for query in plan.queries
        }
        self._rules = {q.name: tracker_rules(q) for q in plan.queries}
        self._open: _OpenTick | None = None
        self._idleness = Idleness(started_us, (source.idle_timeout_us for source in plan.sources))
        self.flush_rows = FLUSH_ROWS
        self.flush_bytes = FLUSH_BYTES
        self.placing: Placing | None = None

    @classmethod
    def open(
        cls,
        plan: JobPlan,
        schemas: Mapping[str, pa.Schema],
        store: Store,
        *,
        started_us: int | None = None,
        verify: bool = True,
    ) -> TickDriver:
        """Load the newest state, if any, and check that it belongs to this plan and is whole.

        Args:
            schemas: per ``query/alias`` the kept columns in native Arrow types.
            started_us: the clock now: idle times start here (None: with the first tick).
            verify: also read every run and compare checksums.

        Raises:
            StateError: the state is of another query, other sources, or damaged.
        """
        store.sweep()
        manifest = load_newest(store)
        if manifest is not None:
            check_same_job(manifest, plan)
            if verify:
                verify_files(manifest, store)
        return cls(plan, schemas, store, manifest, started_us)

    def declare_partitions(self, partitions: Mapping[str, Sequence[str]]) -> None:
        """Partitions that a source (by name) is known to have, silent ones too: they hold its watermark."""
        for query in self.plan.queries:
            for side in query.sides:
                rules = self._rules[query.name][side.name]
                for number, branch in enumerate(side.branches):
                    if branch.source.name in partitions:
                        rules[number] = tracker.BranchRules(
                            rules[number].lags,
                            rules[number].idle_timeout_us,
                            rules[number].follow_when_idle,
                            tuple(partitions[branch.source.name]),
                        )

    @property
    def tick(self) -> int:
        """The number of the last committed tick; 0 before the first."""
        return self.manifest.tick if self.manifest else 0

    def retained(self) -> dict[str, dict[str, int]]:
        """Rows in the state as of the last tick, per query and alias."""
        found: dict[str, dict[str, int]] = {}
        for query in self.plan.queries:
            joins = self.manifest.queries[query.name].joins if self.manifest else []
            known = {name: a.retained for join in joins for name, a in join.arrangements.items()}
            found[query.name] = {side.name: known.get(side.name, 0) for side in query.sides}
        return found

    def begin(self, clock_us: int) -> TickStart:
        """Begin the next tick, again if it was begun and not committed. ``clock_us``: its one clock."""
        if self.manifest is not None and self.manifest.finished:
            raise StateError(
                "the job is finished: its input was ended and it takes no more rows",
                code="job-finished",
                hint="use a new checkpoint directory to run it again",
            )
        inputs = self._inputs(clock_us)
        late_below: dict[str, dict[str, Watermark]] = {}
        max_ahead: dict[str, tuple[int | None, ...]] = {}
        sources: dict[str, tuple[str, ...]] = {}
        indexes: dict[str, str | None] = {}
        sides = {}
        for query in self.plan.queries:
            below = self._late_below(query, inputs[query.name])
            states = self.manifest.queries[query.name].joins if self.manifest else []
            known = {name: state.index for join in states for name, state in join.arrangements.items()}
            for join in query.joins:
                for side in Side:
                    plan = join.side(side)
                    if plan.feed is not None:
                        continue
                    task = self.shapes[query.name][join.number].side(side)
                    sides[task.arrangement] = task
                    late_below[task.arrangement] = {
                        column: below.get(plan.watermark_key(column), NEVER) for column in plan.event_times
                    }
                    max_ahead[task.arrangement] = tuple(b.source.max_ahead_us for b in plan.branches)
                    sources[task.arrangement] = tuple(b.source.name for b in plan.branches)
                    indexes[task.arrangement] = known.get(plan.name)
        start = TickStart(
            tick=self.tick + 1,
            attempt=uuid.uuid4().hex,
            clock_us=clock_us,
            sides=sides,
            late_below=late_below,
            max_ahead=max_ahead,
            flush_rows=self.flush_rows,
            flush_bytes=self.flush_bytes,
            sources=sources,
            indexes=indexes,
            null_fails=self.plan.queries[0].options.null_time is NullTime.FAIL,
            placing=self.placing,
        )
        self._open = _OpenTick(start, inputs)
        return start

    def look(self, clock_us: int) -> None:
        """Say that the engine is looking at its sources, at this clock.

        Of the time between two looks no more than half of an idle timeout counts as silence: see
        `tracker.pause`. An engine that never says so is always looking.
        """
        self._idleness.look(clock_us)

    def repeat(self) -> None:
        """The next tick was begun by an earlier run, which may have put out a part of it: what that run
        decided about partitions (which there are, which are idle) counts, not the clock of this one."""
        self._idleness.repeat(self.store, self.tick + 1)

    def going_idle(self, start: TickStart, reports: Sequence[str]) -> frozenset[str]:
        """The sources of which `advance` would let a partition go idle, were none of them ``busy``."""
        if self._idleness.is_decided or not any(s.idle_timeout_us for s in self.plan.sources):
            return frozenset()
        tick = self._tick_of(start)
        parsed = [IngestReport.model_validate_json(report) for report in reports]
        found: set[str] = set()
        for query in self.plan.queries:
            seen = _seen(query, parsed, {}, {}, {})
            inputs, rules = tick.inputs[query.name], self._rules[query.name]
            branches = {(s.name, n): b.source.name for s in query.sides for n, b in enumerate(s.branches)}
            found |= {branches[key] for key in tracker.going_idle(inputs, rules, seen, start.clock_us)}
        return frozenset(found)

    def waiting(
        self, clock_us: int, unread: Mapping[str, Collection[str]]
    ) -> dict[str, dict[str, tuple[Holding, ...]]]:
        """Per query and alias the declared partitions that never had a row, and have none to be read."""
        inputs = self._inputs(clock_us)
        return {
            query.name: {
                alias: unheard(state, self._rules[query.name][alias], names, unread)
                for alias, state, names in _with_sources(query, inputs[query.name])
            }
            for query in self.plan.queries
        }

    def is_due(self, clock_us: int) -> bool:
        """Whether a tick without rows would move anything: a partition goes idle at this clock."""
        if self.manifest is not None and self.manifest.finished:
            return False
        for name, inputs in self._inputs(clock_us).items():
            before = deepcopy(inputs)
            tracker.advance(inputs, self._rules[name], {}, clock_us)
            if inputs != before:
                return True
        return False

    def _inputs(self, clock_us: int) -> dict[str, dict[str, tracker.InputState]]:
        """Copies of the committed watermark states, fresh ones where there are none."""
        started_us = self._idleness.started_us(clock_us)
        states: dict[str, dict[str, tracker.InputState]] = {}
        for query in self.plan.queries:
            known = self.manifest.queries[query.name].inputs if self.manifest else {}
            states[query.name] = {}
            for alias, rules in self._rules[query.name].items():
                states[query.name][alias] = (
                    deepcopy(known[alias]) if alias in known else tracker.fresh_input(rules, started_us)
                )
            self._idleness.settle(states[query.name], self._rules[query.name], clock_us)
        return states

    def advance(
        self,
        start: TickStart,
        reports: Iterable[str],
        *,
        advances: Mapping[str, Mapping[str, int]] | None = None,
        idle: Mapping[str, Iterable[str]] | None = None,
        busy: Mapping[str, Iterable[str]] | None = None,
        end: bool = False,
    ) -> None:
        """Move the watermarks of the inputs by what the tick brought.

        Args:
            reports: of all ingest tasks.
            advances: explicit watermarks, per source name and source column.
            idle: partitions declared idle, per source name; none named: all of the source.
            busy: partitions known to have unread rows, per source name.
            end: end of input: every watermark becomes +∞.
        """
        tick = self._tick_of(start)
        found = [IngestReport.model_validate_json(report) for report in reports]
        tick.ended = end
        for query in self.plan.queries:
            inputs, rules = tick.inputs[query.name], self._rules[query.name]
            seen = _seen(query, found, advances or {}, idle or {}, busy or {})
            self._idleness.apply(query.name, seen)
            tracker.advance(inputs, rules, seen, start.clock_us)
            if end:
                tracker.end(inputs, rules)
            tick.queries[query.name] = QueryTick(
                tick=start.tick,
                query=query,
                shapes=self.shapes[query.name],
                before=self.manifest.queries[query.name] if self.manifest else QueryState(),
                inputs=inputs,
                late_below=self._late_below(query, inputs),
                reports=found,
            )

    def _late_below(self, query: QueryPlan, inputs: Mapping[str, tracker.InputState]) -> dict[str, Watermark]:
        """Per key: rows below are late."""
        found = dict(self.manifest.queries[query.name].late_below) if self.manifest else {}
        for alias, state in inputs.items():
            for column, watermark in state.watermarks.items():
                below = shift(watermark, -query.options.allowed_lateness)
                found[f"{alias}.{column}"] = max(below, found.get(f"{alias}.{column}", NEVER))
        return found

    def join_task(self, query: str, number: int) -> JoinTask:
        """A join of the open tick, to be run once per partition; those beneath it are settled.

        Writes the tasks' work file.
        """
        tick = self._current()
        work = tick.queries[query].work(number)
        place = [each.name for each in self.plan.queries].index(query)
        name = f"work/{work.tick}-{tick.start.attempt}-{place}-{number}.json"
        if name.endswith(FIRST_WORK):
            work.idle = decisions(tick.inputs)
        self.store.write(name, work.model_dump_json().encode())
        return JoinTask(self.shapes[query][number], self.store, name, work.tick, self.placing)

    def settle(self, query: str, number: int, reports: Iterable[str]) -> None:
        """Take the control texts of a join's tasks, one per partition (of one attempt each).

        Raises:
            EngineError: a limit was reached (``max_rows``).
        """
        self._current().queries[query].settle(number, reports)

    def conclude(self) -> TickResult:
        """What the tick has come to, when all joins are settled; nothing is stored yet.

        Raises:
            EngineError: a promise of a watermark is broken (see `monotony`): a bug.
        """
        tick = self._current()
        states: dict[str, QueryState] = {}
        results: dict[str, QueryResult] = {}
        for name, query in tick.queries.items():
            states[name], result = query.result()
            results[name] = replace(
                result,
                holding={
                    alias: holding(state, self._rules[name][alias], names, tick.start.clock_us)
                    for alias, state, names in _with_sources(query.query, query.inputs)
                },
                idle=tuple(alias for alias, state in query.inputs.items() if state.idle),
            )
        tick.manifest = Manifest(
            tick=tick.start.tick,
            clock_us=tick.start.clock_us,
            fingerprints={query.name: query.fingerprint for query in self.plan.queries},
            sources=[source.name for source in self.plan.sources],
            queries=states,
            finished=tick.ended,
        )
        return TickResult(tick.start.tick, tick.start.clock_us, results, tick.ended)

    def commit(self, host: Mapping[str, Any] | None = None) -> None:
        """Create the manifest of the tick that was concluded, and delete what is no longer needed."""
        tick = self._current()
        assert tick.manifest is not None
        manifest = tick.manifest.model_copy(update={"host": dict(host or {})})
        commit(self.store, manifest)
        self._previous, self.manifest, self._open = self.manifest, manifest, None
        self._idleness.committed(manifest.clock_us)
        collect_garbage(self.store, [m for m in (self._previous, manifest) if m is not None])

    def _current(self) -> _OpenTick:
        if self._open is None:
            raise EngineError("no tick is open", code="no-open-tick")
        return self._open

    def _tick_of(self, start: TickStart) -> _OpenTick:
        tick = self._current()
        if tick.start.attempt != start.attempt:
            raise EngineError("the tick was begun anew: this attempt is stale", code="stale-attempt")
        return tick


def _seen(
    query: QueryPlan,
    reports: Sequence[IngestReport],
    advances: Mapping[str, Mapping[str, int]],
    idle: Mapping[str, Iterable[str]],
    busy: Mapping[str, Iterable[str]],
) -> dict[tuple[str, int], tracker.Seen]:
    """What the tick brought, per (alias, branch)."""
    found: dict[tuple[str, int], tracker.Seen] = {}
    for side in query.sides:
        for number, branch in enumerate(side.branches):
            source = branch.source.name
            explicit = advances.get(source, {})
            of_input = {
                column: explicit[expr.name]
                for column, expr in branch.columns
                if column in side.event_times and expr.key == "column" and expr.name in explicit
            }
            found[side.name, number] = tracker.Seen(
                advances=of_input,
                idle=tuple(idle[source]) if source in idle else None,
                busy=tuple(busy.get(source, ())),
            )
    for report in reports:
        name, _, alias = report.arrangement.rpartition("/")
        if name != query.name:
            continue
        greatest = found[alias, report.branch].greatest
        for partition, times in report.greatest.items():
            known = greatest.setdefault(partition, {})
            for column, time in times.items():
                known[column] = max(known.get(column, time), time)
    return found


def _with_sources(
    query: QueryPlan, inputs: Mapping[str, tracker.InputState]
) -> Iterator[tuple[str, tracker.InputState, list[str]]]:
    """Alias, its state, and the names of its branches' sources."""
    for side in query.sides:
        yield side.name, inputs[side.name], [branch.source.name for branch in side.branches]
