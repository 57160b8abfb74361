"""Watermark states of a job's inputs between ticks, and the late threshold of a tick."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from watersmeet.event_time import NEVER, Watermark, shift
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.nodes.retention import horizon_limits
from watersmeet.runtime.coordinator.shapes import tracker_rules
from watersmeet.runtime.coordinator.shared_inputs import values_by_query
from watersmeet.runtime.messages.reports import IngestReport
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.runtime.messages.work import read_work
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store
from watersmeet.watermark import tracker
from watersmeet.watermark.holders import (
    SourceDrift,
    SourcePosition,
    WatermarkHolder,
    find_holders,
    find_sources_ahead,
    find_unheard_partitions,
)
from watersmeet.watermark.tracker import BranchRules, InputState

# Partitions that a tick saw or that are declared, beside those that were known.


def collect_branch_progress(
    query: QueryPlan,
    reports: Sequence[IngestReport],
    advances: Mapping[str, Mapping[str, int]],
    idle: Mapping[str, Iterable[str]],
    busy: Mapping[str, Iterable[str]],
    by_key: Mapping[str, int],
) -> dict[tuple[str, int], tracker.BranchProgress]:
    """Collect the progress of each branch in the tick, per (alias, branch).

    Args:
        advances: explicit advances, per source and column.
        by_key: explicit advances, per ``alias.column``.
    """
    seen: dict[tuple[str, int], tracker.BranchProgress] = {}
    for side in query.sides:
        for number, branch in side.sources:
            source = branch.source.name
            explicit = advances.get(source, {})
            of_input = {
                column: explicit[expr.name]
                for column, expr in branch.columns
                if column in side.event_times and expr.key == "column" and expr.name in explicit
            }
            for column in side.event_times:
                mark = by_key.get(f"{side.name}.{column}")
                if mark is not None:
                    of_input[column] = max(of_input.get(column, mark), mark)
            seen[side.name, number] = tracker.BranchProgress(
                advances=of_input,
                idle=tuple(idle[source]) if source in idle else None,
                busy=tuple(busy.get(source, ())),
            )
    for report in reports:
        name, _, alias = report.arrangement.rpartition("/")
        if name != query.name:
            continue
        greatest = seen[alias, report.branch].greatest
        for partition, times in report.greatest.items():
            greatest_times = greatest.setdefault(partition, {})
            for column, time in times.items():
                greatest_times[column] = max(greatest_times.get(column, time), time)
    return seen


def _list_input_states(
    query: QueryPlan, inputs: Mapping[str, tracker.InputState]
) -> Iterator[tuple[str, tracker.InputState, list[str]]]:
    """Yield each alias, its state, and the source names of its branches ("" for stages)."""
    for side in query.sides:
        names = dict.fromkeys(range(len(side.branches)), "")
        names |= {number: branch.source.name for number, branch in side.sources}
        yield side.name, inputs[side.name], list(names.values())


def find_idling_sources(
    query: QueryPlan,
    inputs: Mapping[str, tracker.InputState],
    rules: Mapping[str, Sequence[tracker.BranchRules]],
    reports: Sequence[IngestReport],
    clock_us: int,
) -> set[str]:
    """Find sources of a query with a partition that becomes idle by its timeout alone.

    The result ignores explicit idle and busy statements and explicit advances.
    """
    seen = collect_branch_progress(query, reports, {}, {}, {}, {})
    branches = {(s.name, n): b.source.name for s in query.sides for n, b in s.sources}
    return {branches[key] for key in tracker.branches_going_idle(inputs, rules, seen, clock_us)}


_Inputs = Mapping[str, Mapping[str, tracker.InputState]]
_Rules = Mapping[str, Mapping[str, Sequence[tracker.BranchRules]]]
"""Per query and alias."""


def find_silent_partitions(
    queries: Sequence[QueryPlan], inputs: _Inputs, rules: _Rules, unread: Mapping[str, Collection[str]]
) -> dict[str, dict[str, tuple[WatermarkHolder, ...]]]:
    """Find declared partitions that never had a row and have no unread rows.

    Returns:
        The partitions, per query and alias.
    """

    def of_query(query: QueryPlan) -> dict[str, tuple[WatermarkHolder, ...]]:
        return {
            alias: find_unheard_partitions(state, rules[query.name][alias], names, unread)
            for alias, state, names in _list_input_states(query, inputs[query.name])
        }

    return values_by_query(queries, of_query)


def find_watermark_holders(
    queries: Sequence[QueryPlan], inputs: _Inputs, rules: _Rules, clock_us: int
) -> dict[str, dict[str, tuple[WatermarkHolder, ...]]]:
    """Find the partitions that hold back the watermark, per query and alias."""

    def of_query(query: QueryPlan) -> dict[str, tuple[WatermarkHolder, ...]]:
        return {
            alias: find_holders(state, rules[query.name][alias], names, clock_us)
            for alias, state, names in _list_input_states(query, inputs[query.name])
        }

    return values_by_query(queries, of_query)


# What counts as silence: only time in which the engine looked at its sources, and once for each tick.
#
# A partition goes idle by the clocks of ticks (`watermark.tracker`). Time in which the job did not run, a
# long tick and a machine that slept are no silence, and a clock that is set back takes none away. What a
# tick decided goes into its first work file: an attempt that repeats it, with another clock of its own,
# decides the same.

Inputs = Mapping[str, tracker.InputState]
Rules = Mapping[str, Sequence[tracker.BranchRules]]
IdleDecisions = dict[str, dict[str, list[dict[str, bool]]]]
"""Per query, alias and branch: all partitions, and which of them are idle."""


FIRST_WORK = "-0-0.json"
"""How the name of the work file of a tick's first node ends: it says what was decided."""


class Idleness:
    """Idle detection of one driver.

    Args:
        started_us: the clock when the job was started; None: the clock of the first tick.
        timeouts_us: the idle timeouts of all sources.
    """

    def __init__(self, started_us: int | None, timeouts_us: Iterable[int | None]) -> None:
        self._started_us = self._looked_us = self._own_from_us = started_us
        self._harmless_us = min((timeout_us // 2 for timeout_us in timeouts_us if timeout_us), default=None)
        self._pauses: list[int] = []
        self._decided: IdleDecisions | None = None
        self._woken = False

    def look(self, clock_us: int) -> None:
        """Record a poll of the sources by the engine, at this clock."""
        if self._looked_us is not None and self._harmless_us is not None:
            length_us = clock_us - self._looked_us
            if length_us > self._harmless_us or length_us < 0:
                self._pauses.append(length_us)
            if self._own_from_us is not None:
                self._own_from_us += min(0, length_us)
        self._looked_us = clock_us

    def repeat(self, store: Store, tick: int) -> None:
        """Load the idle decisions of an earlier run that started ``tick``; they apply to this run."""
        for name in store.names("work"):
            if name.startswith(f"work/{tick}-") and name.endswith(FIRST_WORK):
                self._decided = read_work(store, name).idle

    @property
    def is_decided(self) -> bool:
        return self._decided is not None

    def started_us(self, clock_us: int) -> int:
        return clock_us if self._started_us is None else self._started_us

    def settle(self, inputs: Inputs, rules: Rules, clock_us: int) -> None:
        """Adjust the committed state of a query in place for the pauses that this run measured."""
        if not self._woken:
            tracker.wake(inputs.values(), self.started_us(clock_us))
        for length_us in self._pauses:
            tracker.pause(inputs, rules, length_us)
        tracker.clamp_to_clock(inputs.values(), clock_us)

    def apply(self, query: str, seen: Mapping[tuple[str, int], tracker.BranchProgress]) -> None:
        """Add the idle decisions of an earlier attempt at the tick to ``seen``, if there was one."""
        if self._decided is not None:
            for (alias, number), branch_seen in seen.items():
                branch_seen.decided = self._decided[query][alias][number]

    def committed(self, clock_us: int) -> None:
        """Record a committed tick: its state includes the pauses, and no run repeats it.

        A tick with a clock before the start (a batch of a run that was killed) leaves states that
        must still be woken.
        """
        self._woken = self._woken or self._own_from_us is None or clock_us >= self._own_from_us
        self._decided = None
        if self._woken:
            self._pauses = []


def decisions(inputs: Mapping[str, Inputs]) -> IdleDecisions:
    """Return the idle decisions of a tick, per query, from the states after the tick."""
    return {
        query: {
            alias: [{name: p.idle for name, p in branch.partitions.items()} for branch in state.branches]
            for alias, state in states.items()
        }
        for query, states in inputs.items()
    }


# The sources of a job beside each other: which ones wait for others (`watermark.holders`).

InputsByQuery = Mapping[str, Mapping[str, InputState]]
RulesByQuery = Mapping[str, Mapping[str, Sequence[BranchRules]]]
"""Per query and alias."""


def find_paused_sources(
    plan: JobPlan, inputs: InputsByQuery, rules: RulesByQuery, used_up: Collection[str]
) -> dict[str, SourceDrift]:
    """Find the sources that must wait at these watermarks; see `find_sources_ahead`.

    Returns:
        The drift of each paused source; empty without ``max_drift``.
    """
    max_drift = plan.queries[0].options.max_drift if plan.queries else None
    if max_drift is None:
        return {}
    groups = [
        {branch.source.name for side in query.alone.sides for _, branch in side.sources}
        for query in plan.queries
    ]
    return find_sources_ahead(groups, _compute_standings(plan, inputs, rules), max_drift, used_up)


def _compute_standings(
    plan: JobPlan, inputs: InputsByQuery, rules: RulesByQuery
) -> dict[str, SourcePosition]:
    """Compute one position per source of the job for watermark alignment.

    With one position per query, two queries could each pause the source for which the other one waits.
    The function uses the position of the query that has read most of the source, at the event time with
    the least watermark there. Sources without a watermark of their own have no position.
    """
    standings: dict[str, SourcePosition] = {}
    for query in plan.queries:
        marks: dict[str, Watermark] = {}
        idle: dict[str, bool] = {}
        for side in query.sides:
            for number, branch in side.sources:
                name, state = branch.source.name, inputs[query.name][side.name].branches[number]
                lags = rules[query.name][side.name][number].lags
                own = [state.watermarks.get(column, NEVER) for column, lag in lags.items() if lag is not None]
                if own:
                    marks[name] = min(*own, marks.get(name, own[0]))
                    idle[name] = idle.get(name, True) and state.idle
        for name, mark in marks.items():
            other = standings.get(name, SourcePosition(mark, idle[name]))
            standings[name] = SourcePosition(max(mark, other.watermark), idle[name] and other.idle)
    return standings


def reset_idle_clocks(plan: JobPlan, inputs: InputsByQuery, held: Collection[str], clock_us: int) -> None:
    """Restart the idle time of paused sources, in place.

    A source that is not read cannot be called idle: its idle time starts when it is read again.

    Args:
        held: the names of the paused sources.
    """
    for query in plan.queries if held else ():
        for side in query.sides:
            for number, branch in side.sources:
                if branch.source.name in held:
                    for partition in inputs[query.name][side.name].branches[number].partitions.values():
                        if not partition.idle:
                            partition.active_at_us = clock_us


# The watermark states of a job's inputs between two ticks: as they were committed, brought to a clock.

States = Mapping[str, Mapping[str, tracker.InputState]]
"""Per query and alias."""


class InputStates:
    """Watermark states of the inputs of one driver.

    ``rules`` defines how watermarks are computed, per query, alias and branch.

    Args:
        started_us: the clock when the job was started; None: the clock of the first tick.
    """

    def __init__(self, plan: JobPlan, started_us: int | None) -> None:
        self._plan = plan
        self.rules = {query.name: tracker_rules(query) for query in plan.queries}
        self.idleness = Idleness(started_us, (source.idle_timeout_us for source in plan.sources))
        self._ended = set[str]()

    def mark_ended(self, sources: Iterable[str]) -> None:
        """Record that sources (by name) have no more rows: nobody waits for them."""
        self._ended.update(sources)

    def declare_partitions(self, partitions: Mapping[str, Sequence[str]]) -> None:
        """Declare the known partitions of sources, by name; silent ones also hold the watermark back."""
        for query in self._plan.queries:
            for side in query.sides:
                rules = self.rules[query.name][side.name]
                for number, branch in side.sources:
                    if branch.source.name in partitions:
                        rules[number] = replace(rules[number], partitions=(*partitions[branch.source.name],))

    def at(self, manifest: Manifest | None, clock_us: int) -> dict[str, dict[str, tracker.InputState]]:
        """Return copies of the committed input states by query and alias; new states for new inputs."""
        started_us = self.idleness.started_us(clock_us)
        states: dict[str, dict[str, tracker.InputState]] = {}
        for query in self._plan.queries:
            stored = manifest.queries[query.name].inputs if manifest else {}
            states[query.name] = {}
            for alias, rules in self.rules[query.name].items():
                states[query.name][alias] = (
                    stored[alias].copy() if alias in stored else tracker.fresh_input(rules, started_us)
                )
            self.idleness.settle(states[query.name], self.rules[query.name], clock_us)
        reset_idle_clocks(self._plan, states, self.ahead(states), clock_us)
        return states

    def ahead(self, states: States) -> dict[str, SourceDrift]:
        """Find the sources that are more than ``max_drift`` ahead of others in these states."""
        return find_paused_sources(self._plan, states, self.rules, self._ended)

    def ahead_of(self, manifest: Manifest | None) -> dict[str, SourceDrift]:
        """Find the sources that are more than ``max_drift`` ahead of others in the committed states."""
        if manifest is None or self._plan.queries[0].options.max_drift is None:
            return {}
        return self.ahead(self.at(manifest, manifest.clock_us))

    def would_advance(self, manifest: Manifest | None, clock_us: int) -> bool:
        """Return True if a tick without rows at this clock changes a state.

        It does when a partition becomes idle.
        """
        for name, states in self.at(manifest, clock_us).items():
            before = {alias: state.copy() for alias, state in states.items()}
            tracker.advance(states, self.rules[name], {}, clock_us)
            if states != before:
                return True
        return False

    def find_idling_sources(
        self, states: States, reports: Sequence[IngestReport], clock_us: int
    ) -> frozenset[str]:
        """Find sources with a partition that a tick with these ingest reports makes idle by timeout.

        The result ignores explicit idle and busy statements.

        Returns:
            The names of the sources; empty if the idleness of the tick is already decided.
        """
        if self.idleness.is_decided or not any(source.idle_timeout_us for source in self._plan.sources):
            return frozenset()
        return frozenset().union(
            *(
                find_idling_sources(query, states[query.name], self.rules[query.name], reports, clock_us)
                for query in self._plan.queries
            )
        )

    def waiting(
        self, manifest: Manifest | None, clock_us: int, unread: Mapping[str, Collection[str]]
    ) -> dict[str, dict[str, tuple[WatermarkHolder, ...]]]:
        """Find declared partitions that never had a row and have no unread rows.

        Returns:
            The partitions, per query and alias.
        """
        return find_silent_partitions(self._plan.queries, self.at(manifest, clock_us), self.rules, unread)

    def holding(self, states: States, clock_us: int) -> dict[str, dict[str, tuple[WatermarkHolder, ...]]]:
        """Find the partitions that hold back the watermark, per query and alias."""
        return find_watermark_holders(self._plan.queries, states, self.rules, clock_us)


# Below which times the rows of a tick are late, by the watermarks before it.


def find_lateness(query: QueryPlan, side: SidePlan) -> int:
    """Return the lateness still to subtract from an input's watermarks.

    It is 0 for inputs fed by stages: their watermarks already have it subtracted.
    """
    return 0 if side.feed is not None or side.stages else query.options.allowed_lateness


def compute_late_thresholds(query: QueryPlan, watermarks: Mapping[str, Watermark]) -> dict[str, Watermark]:
    """Return the late threshold of each watermark key: lesser times are late.

    Args:
        watermarks: watermarks by the same keys. A key without a watermark has no limit of its own.
    """
    below = {
        key: shift(watermarks[key], -find_lateness(query, side))
        for side in query.sides
        for key in map(side.watermark_key, side.event_times)
        if key in watermarks
    }
    for join in query.every(JoinPlan):
        if join.horizon is not None:
            below |= horizon_limits(join.horizon, below)
    return below


def raise_late_thresholds(
    query: QueryPlan, inputs: Mapping[str, InputState], before: Mapping[str, Watermark]
) -> dict[str, Watermark]:
    """Compute the late threshold per watermark key; no threshold is lower than in ``before``.

    Rows below the threshold are late once the inputs have these watermarks.
    """
    watermarks = {
        side.watermark_key(column): watermark
        for side in query.sides
        for column, watermark in inputs[side.name].watermarks.items()
    }
    below = compute_late_thresholds(query, watermarks)
    return {key: max(below.get(key, NEVER), before.get(key, NEVER)) for key in {**before, **below}}


def select_late_thresholds(side: SidePlan, late_below: Mapping[str, Watermark]) -> dict[str, Watermark]:
    """Select the late thresholds of one input, per event time."""
    return {column: late_below.get(side.watermark_key(column), NEVER) for column in side.event_times}


# What ingest is told of each input that takes rows of sources, at the start of a tick.


class IngestFields(TypedDict):
    """Per ``query/alias``; see `TickStart`."""

    sides: dict[str, SideShape]
    late_below: dict[str, Mapping[str, Watermark]]
    max_ahead: dict[str, tuple[int | None, ...]]
    sources: dict[str, tuple[str, ...]]
    indexes: dict[str, str | None]


def ingest_fields(
    plan: JobPlan,
    shapes: Mapping[str, Sequence[NodeShape]],
    manifest: Manifest | None,
    late_below: Mapping[str, Mapping[str, Watermark]],
) -> IngestFields:
    """Build the fields that ingest tasks need for a tick.

    Args:
        late_below: the late threshold, per query and watermark key; lesser times are late.
    """
    told = IngestFields(sides={}, late_below={}, max_ahead={}, sources={}, indexes={})
    for query in plan.queries:
        states = manifest.queries[query.name].nodes if manifest else []
        index_of = {name: state.index for node in states for name, state in node.arrangements.items()}
        for node in query.nodes:
            for side, task in zip(node.sides, shapes[query.name][node.number].sides, strict=True):
                if not side.ingested:
                    continue
                name, branches = task.arrangement, dict(side.ingested)
                read = [branches[n].source if n in branches else None for n in range(len(side.branches))]
                told["sides"][name] = task
                told["late_below"][name] = select_late_thresholds(side, late_below[query.name])
                told["max_ahead"][name] = tuple(
                    None if source is None else source.max_ahead_us for source in read
                )
                told["sources"][name] = tuple("" if source is None else source.name for source in read)
                told["indexes"][name] = index_of.get(side.name)
    return told
