"""The watermark states of a job's inputs between two ticks: as they were committed, brought to a clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from watersmeet.engine.driver.inputs.aligned import sources_ahead, stay_awake
from watersmeet.engine.driver.inputs.idleness import Idleness
from watersmeet.engine.driver.inputs.partitions import going_idle, held_by, waiting_for
from watersmeet.engine.driver.shape import tracker_rules
from watersmeet.engine.messages.reports import IngestReport
from watersmeet.plan.model.job import JobPlan
from watersmeet.state.manifest import Manifest
from watersmeet.watermark import tracker
from watersmeet.watermark.alignment import Ahead
from watersmeet.watermark.holding import Holding

States = Mapping[str, Mapping[str, tracker.InputState]]
"""Per query and alias."""


class InputStates:
    """Of one driver. ``rules``: what makes the watermarks, per query, alias and branch.

    Args:
        started_us: the clock when the job was started; None: that of the first tick.
    """

    def __init__(self, plan: JobPlan, started_us: int | None) -> None:
        self._plan = plan
        self.rules = {query.name: tracker_rules(query) for query in plan.queries}
        self.idleness = Idleness(started_us, (source.idle_timeout_us for source in plan.sources))
        self._ended = set[str]()

    def have_ended(self, sources: Iterable[str]) -> None:
        """Record that sources (by name) have no more rows: nobody waits for them."""
        self._ended.update(sources)

    def declare_partitions(self, partitions: Mapping[str, Sequence[str]]) -> None:
        """Partitions that a source (by name) is known to have, silent ones too: they hold its watermark."""
        for query in self._plan.queries:
            for side in query.sides:
                rules = self.rules[query.name][side.name]
                for number, branch in side.sources:
                    if branch.source.name in partitions:
                        rules[number] = replace(rules[number], partitions=(*partitions[branch.source.name],))

    def at(self, manifest: Manifest | None, clock_us: int) -> dict[str, dict[str, tracker.InputState]]:
        """Copies of the committed states, fresh ones where there are none."""
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
        stay_awake(self._plan, states, self.ahead(states), clock_us)
        return states

    def ahead(self, states: States) -> dict[str, Ahead]:
        """The sources that are further ahead of others than ``max_drift``, by these states."""
        return sources_ahead(self._plan, states, self.rules, self._ended)

    def ahead_of(self, manifest: Manifest | None) -> dict[str, Ahead]:
        """The same by the committed ones."""
        if manifest is None or self._plan.queries[0].options.max_drift is None:
            return {}
        return self.ahead(self.at(manifest, manifest.clock_us))

    def would_move(self, manifest: Manifest | None, clock_us: int) -> bool:
        """Whether a tick without rows would move anything: a partition goes idle at this clock."""
        for name, states in self.at(manifest, clock_us).items():
            before = {alias: state.copy() for alias, state in states.items()}
            tracker.advance(states, self.rules[name], {}, clock_us)
            if states != before:
                return True
        return False

    def going_idle(self, states: States, reports: Sequence[IngestReport], clock_us: int) -> frozenset[str]:
        """The sources of which a tick with these reports of ingest tasks would let a partition go idle, when
        nobody says otherwise."""
        if self.idleness.is_decided or not any(source.idle_timeout_us for source in self._plan.sources):
            return frozenset()
        return frozenset().union(
            *(
                going_idle(query, states[query.name], self.rules[query.name], reports, clock_us)
                for query in self._plan.queries
            )
        )

    def waiting(
        self, manifest: Manifest | None, clock_us: int, unread: Mapping[str, Collection[str]]
    ) -> dict[str, dict[str, tuple[Holding, ...]]]:
        """Per query and alias the declared partitions that never had a row, and have none to be read."""
        return waiting_for(self._plan.queries, self.at(manifest, clock_us), self.rules, unread)

    def holding(self, states: States, clock_us: int) -> dict[str, dict[str, tuple[Holding, ...]]]:
        """Per query and alias the partitions that hold its watermark."""
        return held_by(self._plan.queries, states, self.rules, clock_us)
