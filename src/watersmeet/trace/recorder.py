"""Gathers what each step of a case does (`trace.record`), from the engine itself.

Arrivals are taken from ingest as it judges them, what a join did from `trace.joins`, what stays
and all watermarks from the manifest that was committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import singledispatchmethod

import pyarrow as pa

from watersmeet.conditions import Bound, Horizon
from watersmeet.engine.driver.driver import TickDriver
from watersmeet.engine.driver.late import lateness_of
from watersmeet.engine.driver.open_tick import BegunTick
from watersmeet.engine.nodes.task import NodeTask
from watersmeet.engine.replay import CaseOutput, CaseStep, canonical_time
from watersmeet.engine.tasks.flags import flags_of
from watersmeet.engine.tasks.ingest import ON_TIME, REASONS, Judgement
from watersmeet.event_time import NEVER, Side, Watermark, shift
from watersmeet.kernel.times import to_canonical
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.words import node_name
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan, MatchPlan, NodePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.nodes.retention import horizon_limits, limits
from watersmeet.spec.flags import FLAG_BENEATH, FLAG_CANDIDATE, FLAG_FILTERED
from watersmeet.state.manifest import QueryState
from watersmeet.trace.joins import Joined, again, closed, kept_rows
from watersmeet.trace.record import (
    Arrived,
    InputWatermark,
    JoinStep,
    Kept,
    Limit,
    Opened,
    OutputWatermark,
    Partition,
    Row,
    TickTrace,
    Trace,
    WindowStep,
)


def _behind(lag: int | None, query: QueryPlan, side: SidePlan) -> int | None:
    """How far a source's part in W of an input is behind its newest time."""
    late = query.options.allowed_lateness if side.stages else 0
    return None if lag is None else lag + late


class Tracer:
    """Watches a case's job (`engine.local.job.Watcher`); ``trace`` is there once the plan is."""

    def __init__(self) -> None:
        self.trace: Trace | None = None
        self._forget()

    def _forget(self) -> None:
        self._judged: dict[tuple[str, int], list[tuple[pa.RecordBatch, Judgement]]] = defaultdict(list)
        self._ran: dict[int, Joined] = {}
        self._closed: dict[int, list[Row]] = {}

    def opened(self, driver: TickDriver) -> None:
        """The job was opened, for the first time or again."""
        self._driver = driver
        self.trace = self.trace or Trace(driver.plan)
        self.trace.entries.append(Opened(driver.tick))
        self._before = self._state()

    def began(self, tick: BegunTick) -> None:
        self._forget()
        self._late_below = tick.late_below[self._query.name]

    def judged(self, arrangement: str, branch: int, rows: pa.RecordBatch, judgement: Judgement) -> None:
        self._judged[arrangement, branch].append((rows, judgement))

    def ran(self, query: str, task: NodeTask) -> None:
        plan = self._query.nodes[task.shape.number]
        self._look(plan, task)

    @singledispatchmethod
    def _look(self, plan: NodePlan, task: NodeTask) -> None:
        """At what a node's task did: at nothing, where rows leave as they come."""

    @_look.register
    def _(self, plan: MatchPlan, task: NodeTask) -> None:
        self._ran[plan.number] = again(plan, task)

    @_look.register
    def _(self, plan: AggregatePlan, task: NodeTask) -> None:
        self._closed[plan.number] = closed(task)

    def committed(self, step: CaseStep, output: CaseOutput) -> None:
        """The step is done."""
        assert self.trace is not None
        state = self._state()
        query = self._query
        self.trace.entries.append(
            TickTrace(
                step=step,
                output=output,
                arrived=list(self._arrived(step)),
                inputs=list(self._inputs(state)),
                late_below=self._late_below,
                joins=[self._join(join, state) for join in query.every(MatchPlan)],
                too_late=list(self._too_late(output)),
                windows=[self._window(node, state) for node in query.every(AggregatePlan)],
            )
        )
        self._before = state

    def _state(self) -> QueryState:
        manifest = self._driver.manifest
        return QueryState() if manifest is None else manifest.queries[self._query.name]

    def _arrived(self, step: CaseStep) -> Iterator[Arrived]:
        assert self.trace is not None
        for side in self._query.sides:
            arrangement = f"{self._query.name}/{side.name}"
            for number, branch in side.ingested:
                given = iter(step.rows.get(branch.source.name, ()))
                for rows, judgement in self._judged[arrangement, number]:
                    for place, (row, diff) in zip(range(rows.num_rows), given, strict=False):
                        arrived = self._judgement(side, rows, place, int(judgement[place]))
                        yield replace(arrived, stream=branch.source.name, branch=number, row=row, diff=diff)

    def _too_late(self, output: CaseOutput) -> Iterator[Arrived]:
        """Rows of stages that were late for the inputs that they feed."""
        sides = {side.name: side for side in self._query.sides if side.stages}
        for alias, row in output.late:
            for column in sides[alias].event_times if alias in sides else ():
                key = sides[alias].watermark_key(column)
                below = self._late_below.get(key, NEVER)
                time = None if row[column] is None else canonical_time(row[column])
                if time is not None and time < below:
                    yield Arrived(alias, alias, 0, row, 1, "late", key, time, below)
                    break

    def _judgement(self, side: SidePlan, rows: pa.RecordBatch, place: int, judged: int) -> Arrived:
        arrived = Arrived("", side.name, 0, {}, 1, "kept")
        if judged != ON_TIME:
            fate = REASONS[judged]
            for column in side.event_times:
                time = to_canonical(rows.column(column))[place].as_py()
                below = self._late_below.get(side.watermark_key(column), NEVER)
                arrived = replace(arrived, fate=fate, key=side.watermark_key(column), time=time, below=below)
                if (time is None) if fate == "null_time" else time is not None and time < below:
                    break
            return arrived
        (flag,) = flags_of(rows.slice(place, 1), side.not_null)
        if flag == FLAG_CANDIDATE:
            return arrived
        if flag in (FLAG_BENEATH, FLAG_FILTERED):
            return replace(arrived, fate="beneath" if flag == FLAG_BENEATH else "filtered")
        keys = [
            side.joined(text) if side.input.column(text) else text
            for join in self._query.every(MatchPlan)
            for where in Side
            if join.side(where).name == side.name
            for key in join.keys
            if not key.null_safe and not rows.column(key.column(where))[place].is_valid
            for text in (text_of(key.expr(where)).replace("`", ""),)
        ]
        return replace(arrived, fate="padded" if side.padded else "unmatchable", null_keys=tuple(keys))

    def _inputs(self, state: QueryState) -> Iterator[InputWatermark]:
        assert self.trace is not None
        for side in self._query.sides:
            input_state = state.inputs[side.name]
            before = self._before.inputs.get(side.name)
            for place, column in enumerate(side.event_times):
                partitions = [
                    (
                        Partition(
                            "/".join(filter(None, (branch.source.name, name))),
                            partition.greatest.get(column, NEVER),
                            partition.idle,
                        ),
                        _behind(branch.lags[place], self._query, side),
                    )
                    for number, branch in side.ingested
                    for name, partition in input_state.branches[number].partitions.items()
                ]
                for number, feed in side.stages:
                    told, key = input_state.branches[number], dict(feed.event_times)[column]
                    mark = told.watermarks.get(column, NEVER)
                    name = node_name(self._query, self._query.nodes[feed.node])
                    partitions.append((Partition(name, mark, told.idle, of=key), 0))
                yield InputWatermark(
                    side.watermark_key(column),
                    input_state.watermarks.get(column, NEVER),
                    NEVER if before is None else before.watermarks.get(column, NEVER),
                    tuple(partitions),
                )

    def _join(self, join: MatchPlan, state: QueryState) -> JoinStep:
        ran = self._ran[join.number]
        fed: dict[str, Watermark] = {}
        own: dict[str, Watermark] = {}
        dropped: dict[Side, int] = {}
        for side, plan in zip(Side, join.sides, strict=False):
            if plan.feed is not None:
                emitted = state.nodes[plan.feed.node].emitted
                fed |= {key: emitted.get(key, NEVER) for key in plan.event_times}
                dropped[side] = self._ran[plan.feed.node].rows - len(ran.brought[side])
            else:
                watermarks = state.inputs[plan.name].watermarks
                own |= {plan.watermark_key(c): watermarks.get(c, NEVER) for c in plan.event_times}
        return JoinStep(
            join=join,
            brought=ran.brought,
            dropped=dropped,
            fed=fed,
            pairs=ran.pairs,
            limits=self._limits(join, state, own | fed),
            released=ran.released,
            buffers={
                side: self._buffer(join, side, state)
                for side in Side
                if not join.tables  # of a stream that meets one nothing is kept
            },
            outputs=self._outputs(join, state, own, fed, ran.least),
            table_rows=_table_rows(join, state),
        )

    def _window(self, node: AggregatePlan, state: QueryState) -> WindowStep:
        side, after = node.side, state.nodes[node.number]
        before = self._before.nodes[node.number].emitted if self._before.nodes else {}
        if side.feed is not None:
            watermark = state.nodes[side.feed.node].emitted.get(node.time_key, NEVER)
        else:
            time_watermark = state.inputs[side.name].watermarks.get(node.time, NEVER)
            watermark = shift(time_watermark, -lateness_of(self._query, side))
        return WindowStep(
            node=node,
            watermark=watermark,
            results=self._closed[node.number],
            kept=after.arrangements[side.name].retained,
            outputs={
                key: (after.emitted.get(key, NEVER), before.get(key, NEVER)) for key in node.watermark_keys
            },
        )

    def _limits(self, join: MatchPlan, state: QueryState, watermarks: Mapping[str, Watermark]) -> list[Limit]:
        lateness = self._lateness(join)
        if join.horizon is not None:
            return self._at_horizon(join, join.horizon, state, watermarks)
        own_limits = []
        for plan in join.sides:
            stored = state.nodes[join.number].arrangements[plan.name].limits
            for column in plan.event_times:
                key = plan.watermark_key(column)
                parts = [
                    (bound, watermarks[bound.by], limits(alone, watermarks, lateness).get(key, NEVER))
                    for bound in join.bounds
                    if bound.evicted == key and not (join.asof is not None and plan is join.right)
                    for alone in (replace(join, bounds=(bound,)),)
                ]
                own_limits.append(Limit(key, stored.get(column, NEVER), tuple(parts)))
        return own_limits

    def _at_horizon(
        self, join: MatchPlan, horizon: Horizon, state: QueryState, watermarks: Mapping[str, Watermark]
    ) -> list[Limit]:
        lateness = self._lateness(join)
        by = min(horizon.keys, key=lambda key: watermarks[key])
        on_time = {key: shift(watermark, -lateness[key]) for key, watermark in watermarks.items()}
        return [
            Limit(
                key,
                state.nodes[join.number].arrangements[side.name].limits.get(side.event_times[0], NEVER),
                ((Bound(key, by, horizon.reach, ""), watermarks[by], limit),),
            )
            for side, (key, limit) in zip(join.sides, horizon_limits(horizon, on_time).items(), strict=True)
        ]

    def _lateness(self, join: MatchPlan) -> dict[str, int]:
        """What is taken off watermarks that come in, per key."""
        return {
            side.watermark_key(column): lateness_of(self._query, side)
            for side in join.sides
            for column in side.event_times
        }

    @property
    def _query(self) -> QueryPlan:
        return self._driver.plan.queries[0]

    def _outputs(
        self,
        join: MatchPlan,
        state: QueryState,
        own: Mapping[str, Watermark],
        fed: Mapping[str, Watermark],
        least: Mapping[str, int],
    ) -> list[OutputWatermark]:
        after = state.nodes[join.number]
        before = self._before.nodes[join.number].emitted if self._before.nodes else {}
        lateness = self._lateness(join)
        stored = {
            plan.watermark_key(column): limit
            for plan in join.sides
            for column, limit in after.arrangements[plan.name].limits.items()
        }
        bounded = {bound.evicted for bound in join.bounds}
        return [
            OutputWatermark(
                key=key,
                value=after.emitted.get(key, NEVER),
                before=before.get(key, NEVER),
                watermark=own[key] if key in own else fed[key],
                lateness=lateness[key],
                least=least.get(key),
                limit=stored.get(key, NEVER) if key in bounded else None,
            )
            for key in join.watermark_keys
        ]

    def _buffer(self, join: MatchPlan, side: Side, state: QueryState) -> list[Kept]:
        task = self._driver.shapes[self._query.name][join.number].side(side)
        arrangement = state.nodes[join.number].arrangements[join.side(side).name]
        return kept_rows(join, side, task, arrangement, self._driver.store)


def _table_rows(join: MatchPlan, state: QueryState) -> int | None:
    if not join.tables:
        return None
    copy = state.nodes[join.number].table
    return 0 if copy is None else copy.rows
