"""Gathers what each step of a case does (`trace.record`), and why, from the engine itself.

Arrivals are taken from ingest as it judges them, what a join did from `trace.joins`, what stays
and all watermarks from the manifest that was committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any

import pyarrow as pa

from watersmeet.conditions import Bound
from watersmeet.event_time import MAX_TIME, NEVER, Side, Watermark, shift
from watersmeet.kernel.ordinals import to_canonical
from watersmeet.names import CASE_PARTITION
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.wording import node_name
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan, MatchPlan, NodePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.nodes.retention import horizon_limits, limits
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.input_watermarks import find_lateness
from watersmeet.runtime.coordinator.tick_phases import StartedTick
from watersmeet.runtime.operators.task import NodeTask
from watersmeet.runtime.replay import CaseOutput, CaseStep, parse_case_time
from watersmeet.runtime.tasks.ingest import ON_TIME, REASONS, Judgement, compute_flags
from watersmeet.spec.flags import FLAG_BENEATH, FLAG_CANDIDATE, FLAG_FILTERED
from watersmeet.spec.model import Branch, OnIdle, WatermarkRule
from watersmeet.state.manifest import NodeState, QueryState
from watersmeet.trace.joins import Joined, again, closed, retained_rows
from watersmeet.trace.record import (
    Arrived,
    JoinStep,
    Mark,
    Opened,
    Released,
    Row,
    TickTrace,
    Trace,
    WindowStep,
    row_text,
)

Watermarks = Mapping[str, Watermark]

Limit = tuple[Watermark, list[tuple[Bound, Watermark, Watermark]]]
"""Rows below it can match nothing any more; each bound on its key, W of what bounds it, and what follows."""


class Tracer:
    """Watches a case's job (`runtime.local.tick.TickObserver`); ``trace`` is there once the plan is."""

    def __init__(self) -> None:
        self.trace: Trace | None = None
        self._forget()

    def _forget(self) -> None:
        self._judged: dict[tuple[str, int], list[tuple[pa.RecordBatch, Judgement]]] = defaultdict(list)
        self._ran: dict[int, Joined] = {}
        self._closed: dict[int, list[Row]] = {}

    def opened(self, driver: TickDriver) -> None:
        """Record that the job was opened, for the first time or after a restart."""
        self._driver = driver
        self.trace = self._trace = self.trace or Trace(driver.plan)
        self._trace.entries.append(Opened(driver.tick))
        self._before = self._state()

    def began(self, tick: StartedTick) -> None:
        self._forget()
        self._late_below = tick.late_below[self._query.name]

    def judged(self, arrangement: str, branch: int, rows: pa.RecordBatch, judgement: Judgement) -> None:
        self._judged[arrangement, branch].append((rows, judgement))

    def ran(self, query: str, task: NodeTask) -> None:
        self._look(self._query.nodes[task.shape.number], task)

    @singledispatchmethod
    def _look(self, plan: NodePlan, task: NodeTask) -> None:
        """Record what a node's task did; ignore nodes that retain no rows."""

    @_look.register
    def _(self, plan: MatchPlan, task: NodeTask) -> None:
        self._ran[plan.number] = again(plan, task)

    @_look.register
    def _(self, plan: AggregatePlan, task: NodeTask) -> None:
        self._closed[plan.number] = closed(task)

    def committed(self, step: CaseStep, output: CaseOutput) -> None:
        """Record that the step is committed."""
        state, query = self._state(), self._query
        self._trace.entries.append(
            TickTrace(
                output,
                arrived=list(self._list_arrived_rows(step)),
                too_late=list(self._too_late(output)),
                inputs=list(self._inputs(state)),
                joins=[self._join(join, state) for join in query.every(MatchPlan)],
                windows=[self._window(node, state) for node in query.every(AggregatePlan)],
            )
        )
        self._before = state

    @property
    def _query(self) -> QueryPlan:
        return self._driver.plan.queries[0]

    def _state(self) -> QueryState:
        manifest = self._driver.manifest
        return QueryState() if manifest is None else manifest.queries[self._query.name]

    def _watermarks(self, state: QueryState, side: SidePlan) -> dict[str, Watermark]:
        """Return W of the keys of an input."""
        own = state.inputs[side.name].watermarks if side.name in state.inputs else {}
        return {side.watermark_key(column): own.get(column, NEVER) for column in side.event_times}

    # rows that came in

    def _list_arrived_rows(self, step: CaseStep) -> Iterator[Arrived]:
        changes = any(node.changes for node in self._query.nodes)
        for side in self._query.sides:
            for number, branch in side.ingested:
                stream = branch.source.name
                name = side.name if side.name == stream else f"{side.name} (stream {stream})"
                given = iter(step.rows.get(stream, ()))
                for rows, judgement in self._judged[f"{self._query.name}/{side.name}", number]:
                    for place, (row, diff) in zip(range(rows.num_rows), given, strict=False):
                        own = {column: value for column, value in row.items() if column != CASE_PARTITION}
                        why = self._fate(side, number, rows.slice(place, 1), int(judgement[place]))
                        text = f"{name} {row_text(own)}{f' diff {diff:+d}' if changes else ''}"
                        fate = REASONS.get(int(judgement[place]), "dropped" if why else "kept")
                        yield Arrived(side.name, row, fate, f"{text}: {why}" if why else text)

    def _too_late(self, output: CaseOutput) -> Iterator[str]:
        """Yield lines on rows of stages that were late for the inputs that they feed."""
        sides = {side.name: side for side in self._query.sides if side.stages}
        for alias, row in output.late:
            if alias in sides:
                times = {
                    column: None if row[column] is None else parse_case_time(row[column])
                    for column in sides[alias].event_times
                }
                late = self._late(sides[alias], times)
                if late is not None:
                    yield f"{alias} {row_text(row)}: {late}"

    def _fate(self, side: SidePlan, number: int, row: pa.RecordBatch, judged: int) -> str:
        """Say what became of a row that is not simply kept, and why."""
        if judged != ON_TIME:
            times = {column: to_canonical(row.column(column))[0].as_py() for column in side.event_times}
            null = (side.watermark_key(column) for column, time in times.items() if time is None)
            return {
                "late": self._late(side, times) or "",
                "null_time": f"dropped: {next(null, None)} is NULL",
                "ahead": "set aside: a time is further ahead of the clock than max_ahead",
            }.get(REASONS[judged], "")
        (flag,) = compute_flags(row, side.not_null)
        branch, joins = side.input.branches[number], list(self._query.every(MatchPlan))
        assert isinstance(branch, Branch)  # rows of stages do not arrive
        if flag == FLAG_CANDIDATE:
            return ""
        if flag == FLAG_BENEATH:
            return f"not of the stream: it fails {_plain(branch.beneath)}"
        if flag == FLAG_FILTERED:
            filters = [text for n in self._query.nodes for title, text in n.filters if title == side.title]
            above = [] if branch.above is None else [_plain(branch.above)]
            return f"dropped by a filter: {'; '.join([*above, *filters])}"
        then = "put out at once" if side.padded else "dropped"
        keys = [
            side.joined(text) if side.input.column(text) else text
            for join in joins
            for where in Side
            if join.side(where).name == side.name
            for key in join.keys
            if not key.null_safe and not row.column(key.column(where))[0].is_valid
            for text in (_plain(key.expr(where)),)
        ]
        if keys:
            return f"can match nothing, {then}: {', '.join(keys)} is NULL"
        asked = [text for join in joins for title, text in join.one_sided if title == side.title]
        why = f": not TRUE is {'; '.join(asked)}" if len(asked) > 1 else ""
        why = f": {asked[0]} is not TRUE" if len(asked) == 1 else why
        return f"can match nothing, {then}{why}"

    def _late(self, side: SidePlan, times: Mapping[str, int | None]) -> str | None:
        """Say by which time a row is late; None: by none."""
        for column, time in times.items():
            key = side.watermark_key(column)
            below = self._late_below.get(key, NEVER)
            if time is not None and time < below:
                least = self._least_on_time(key, below)
                return f"late, dropped: {key} = {self._trace.time(key, time)} < {least}"
        return None

    def _least_on_time(self, key: str, below: Watermark) -> str:
        trace, horizon, lateness = self._trace, self._trace.horizon(key), self._trace.lateness(key)
        before_by_key: dict[str, Watermark] = {}
        for side in self._query.sides:
            before_by_key |= self._watermarks(self._before, side)
        earlier = f"{trace.time(key, below)}, the least time on time as of an earlier run"
        if horizon is not None:
            by = min(horizon.keys, key=lambda own: before_by_key[own])
            before, late = before_by_key[by], trace.lateness(by)
            if shift(before, -horizon.reach - late) != below:
                return earlier
            return f"{trace.time(key, below)} = {trace.less(key, by, before, horizon.reach, late)}"
        before = before_by_key[key]
        if shift(before, -lateness) != below:
            return earlier
        if lateness:
            return f"{trace.time(key, below)} = {trace.less(key, key, before, 0, lateness)}"
        return f"W[{key}] = {trace.time(key, before)}"

    # watermarks of inputs

    def _inputs(self, state: QueryState) -> Iterator[Mark]:
        for side in self._query.sides:
            own, before = self._watermarks(state, side), self._watermarks(self._before, side)
            for place, column in enumerate(side.event_times):
                key = side.watermark_key(column)
                text = self._trace.rise(key, own[key], before[key])
                reason = self._reason(state, side, place, own[key]) if isinstance(own[key], int) else ""
                yield Mark(key, own[key], f"{text}: {reason}" if reason else text)

    def _reason(self, state: QueryState, side: SidePlan, place: int, value: Watermark) -> str:
        """Describe the newest times by which the watermark of an input advanced.

        The text is empty if only explicit advances move the watermark.
        """
        trace, column, branches = self._trace, side.event_times[place], state.inputs[side.name].branches
        key, late = side.watermark_key(column), self._query.options.allowed_lateness if side.stages else 0
        parts: list[tuple[str, str, Watermark, bool, int]] = []
        for number, branch in side.ingested:
            lag = branch.lags[place]
            if lag is None:
                continue
            for name, partition in branches[number].partitions.items():
                named = "/".join(filter(None, (branch.source.name, name)))
                parts.append((named, "", partition.greatest.get(column, NEVER), partition.idle, lag + late))
        for number, feed in side.stages:
            of = dict(feed.event_times)[column]
            named = f"{of} out of {node_name(self._query, self._query.nodes[feed.node])}"
            mark = branches[number].watermarks.get(column, NEVER)
            parts.append((named, of, mark, branches[number].idle, 0))
        if not parts:
            return ""
        texts = [
            f"{name} = {trace.time(of, newest)}{' (idle)' if idle else ''}"
            if of
            else f"{'' if len(parts) == 1 else f'{name}: '}newest time {trace.time(key, newest)}"
            f"{' (idle)' if idle else ''} - lag {trace.distance(key, lag)}"
            for name, of, newest, idle, lag in parts
        ]
        active = [shift(newest, -lag) for _, _, newest, idle, lag in parts if not idle]
        made = min(active) if active else max(shift(newest, -lag) for _, _, newest, _, lag in parts)
        which = (
            ("least" if len(active) == len(parts) else "of those not idle, least") if active else "highest"
        )
        why = texts[0] if len(texts) == 1 else f"{which} of {', '.join(texts)}"
        if made == value:
            return why
        follows = not active and any(branch.source.on_idle is OnIdle.FOLLOW for _, branch in side.sources)
        return f"{'idle, it follows the other streams' if follows else 'it does not go back'} ({why})"

    # joins

    def _join(self, join: MatchPlan, state: QueryState) -> JoinStep:
        ran, after = self._ran[join.number], state.nodes[join.number]
        fed: dict[str, Watermark] = {}
        own: dict[str, Watermark] = {}
        dropped: dict[Side, int] = {}
        for side, plan in zip(Side, join.sides, strict=False):
            if plan.feed is not None:
                emitted = state.nodes[plan.feed.node].emitted
                fed |= {key: emitted.get(key, NEVER) for key in plan.event_times}
                dropped[side] = self._ran[plan.feed.node].rows - len(ran.brought[side])
            else:
                own |= self._watermarks(state, plan)
        by_key = self._limits(join, after, own | fed)
        return JoinStep(
            join,
            ran.brought,
            dropped,
            ran.pairs,
            buffers={} if join.tables else {side: self._buffer(join, side, after) for side in Side},
            fed=[self._trace.rise(key, value, value) for key, value in fed.items()],
            limits=[self._limit_text(join, key, limit, fed) for key, limit in by_key.items()],
            released=ran.released,
            releases=[self._released_text(join, row, by_key, fed) for row in ran.released],
            outputs=list(self._outputs(join, after, own | fed, ran.least)),
            table_rows=(0 if after.table is None else after.table.rows) if join.tables else None,
        )

    def _buffer(self, join: MatchPlan, side: Side, state: NodeState) -> list[str]:
        task = self._driver.shapes[self._query.name][join.number].side(side)
        arrangement = state.arrangements[join.side(side).name]
        rows = retained_rows(join, side, task, arrangement, self._driver.store)
        return [f"{row_text(row)}{', matched' if matched else ''}" for row, matched in rows]

    def _limits(self, join: MatchPlan, state: NodeState, watermarks: Watermarks) -> dict[str, Limit]:
        """Return, per key, the time below which rows cannot match, and the bounds that set it."""
        lateness = {
            side.watermark_key(column): find_lateness(self._query, side)
            for side in join.sides
            for column in side.event_times
        }
        by_key: dict[str, Limit] = {}
        for plan in join.sides:
            stored = state.arrangements[plan.name].limits
            for column in plan.event_times:
                key = plan.watermark_key(column)
                parts = [
                    (bound, watermarks[bound.by], limits(alone, watermarks, lateness).get(key, NEVER))
                    for bound in join.bounds
                    if bound.evicted == key and not (join.asof is not None and plan is join.right)
                    for alone in (replace(join, bounds=(bound,)),)
                ]
                by_key[key] = stored.get(column, NEVER), parts
        horizon = join.horizon
        if horizon is None:
            return by_key
        by = min(horizon.keys, key=lambda key: watermarks[key])
        on_time = {key: shift(watermark, -lateness[key]) for key, watermark in watermarks.items()}
        return {
            key: (by_key[key][0], [(Bound(key, by, horizon.reach, ""), watermarks[by], limit)])
            for key, limit in horizon_limits(horizon, on_time).items()
        }

    def _limit_text(self, join: MatchPlan, key: str, limit: Limit, fed: Watermarks) -> str:
        """Format a limit, such as ``101 = W[d.t] 102 - 1``.

        Of several bounds, the greatest result counts.
        """
        trace, (value, every) = self._trace, limit
        if not every:
            if join.asof is not None and value > NEVER:
                return f"{key}: {trace.time(key, value)}, the least that may still be asked for"
            return f"{key}: no bound"
        parts = [part for part in every if part[2] > NEVER]
        if value == NEVER:
            by = [f"W[{bound.by}]" for bound, _, _ in every]
            return f"{key}: none yet, for {' and '.join(by)} {'has' if len(by) == 1 else 'have'} not begun"
        shown = trace.time(key, value)
        if all(part[2] < value for part in parts):
            return f"{key}: {shown}, kept from before"
        if len(parts) == 1:
            return f"{key}: {shown} = {self._part(fed, key, *parts[0])}"
        terms = ", ".join(f"{self._part(fed, key, *p)} = {trace.time(key, p[2])}" for p in parts)
        return f"{key}: {shown} = max({terms})"

    def _part(self, fed: Watermarks, key: str, bound: Bound, by: Watermark, limit: Watermark) -> str:
        lateness = 0 if bound.by in fed else self._query.options.allowed_lateness
        if isinstance(by, int) and shift(shift(by, -bound.c), -lateness) != limit:
            return f"W[{bound.by}] {self._trace.time(bound.by, by)} near the ends of time"
        return self._trace.less(key, bound.by, by, bound.c, lateness)

    def _released_text(
        self, join: MatchPlan, row: Released, by_key: Mapping[str, Limit], fed: Watermarks
    ) -> str:
        had = "had a match" if row.matched else "never matched"
        text = f"{join.side(row.side).title} {row_text(row.row)}"
        if row.superseded:
            return f"{text}: a later row will be taken instead; {had}"
        limit, parts = by_key[row.key]
        best = max(parts, key=lambda part: part[2], default=None)
        shown = self._trace.time(row.key, limit)
        if best is not None and best[2] == limit:
            shown += f" = {self._part(fed, row.key, *best)}"
        return f"{text}: {row.key} = {self._trace.time(row.key, row.time)} < limit {shown}; {had}"

    def _outputs(
        self, join: MatchPlan, state: NodeState, watermarks: Watermarks, least: Mapping[str, int]
    ) -> Iterator[Mark]:
        """Yield the output watermarks, whether each rose, and the minimum that determines each."""
        before = self._before.nodes[join.number].emitted if self._before.nodes else {}
        limit_by_key = {
            plan.watermark_key(column): limit
            for plan in join.sides
            for column, limit in state.arrangements[plan.name].limits.items()
        }
        bounded = {bound.evicted for bound in join.bounds}
        for key in join.watermark_keys:
            side = next(s for s in join.sides if key in map(s.watermark_key, s.event_times))
            value = state.emitted.get(key, NEVER)
            text = self._output_text(
                join,
                key,
                self._trace.rise(key, value, before.get(key, NEVER)),
                value,
                watermarks[key],
                find_lateness(self._query, side),
                least.get(key),
                limit_by_key.get(key, NEVER) if key in bounded else None,
            )
            yield Mark(key, value, text)

    def _output_text(
        self,
        join: MatchPlan,
        key: str,
        text: str,
        output: Watermark,
        watermark: Watermark,
        lateness: int,
        least: int | None,
        limit: Watermark | None,
    ) -> str:
        trace = self._trace
        if watermark == NEVER:
            return f"{text}, for W[{key}] has not begun"
        made = f"W[{key}] = {trace.time(key, watermark)}"
        if lateness and isinstance(watermark, int):
            made += f" - {trace.distance(key, lateness)} allowed lateness"
        value = shift(watermark, -lateness)
        by_limit = self._query.options.watermark_rule is WatermarkRule.LIMIT or trace.horizon(key) is not None
        if not by_limit or join.asof is not None:
            if least is None:
                why = f"{made}, and no row is kept"
            elif least == MAX_TIME:
                why = f"{made}, and rows are kept only whose {key} is NULL"
            else:
                why, value = f"min({made}, least kept {trace.time(key, least)})", min(value, least)
        elif limit is None:
            return f"{key}: none, for no bound limits it (rule limit)"
        else:
            why = f"min({made}, limit {'none yet' if limit == NEVER else trace.time(key, limit)})"
            value = min(value, limit)
        return f"{text}: stays, though {why} is less" if value < output else f"{text}: {why}"

    # windows

    def _window(self, node: AggregatePlan, state: QueryState) -> WindowStep:
        side, after, trace = node.side, state.nodes[node.number], self._trace
        before = self._before.nodes[node.number].emitted if self._before.nodes else {}
        if side.feed is not None:
            watermark = state.nodes[side.feed.node].emitted.get(node.time_key, NEVER)
        else:
            time_watermark = state.inputs[side.name].watermarks.get(node.time, NEVER)
            watermark = shift(time_watermark, -find_lateness(self._query, side))
        rose = [key for key in node.watermark_keys if after.emitted.get(key, NEVER) > before.get(key, NEVER)]
        return WindowStep(
            node,
            trace.time(node.time_key, watermark),
            self._closed[node.number],
            after.arrangements[side.name].retained,
            [f"{key} = {trace.time(key, after.emitted[key])}" for key in rose],
        )


def _plain(condition: Any) -> str:
    return text_of(condition).replace("`", "")
