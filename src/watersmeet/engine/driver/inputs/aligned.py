"""The sources of a job beside each other: which ones wait for others (`watermark.alignment`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from watersmeet.event_time import NEVER, Watermark
from watersmeet.plan.model.job import JobPlan
from watersmeet.watermark.alignment import Ahead, Standing, ahead
from watersmeet.watermark.tracker import BranchRules, InputState

Inputs = Mapping[str, Mapping[str, InputState]]
Rules = Mapping[str, Mapping[str, Sequence[BranchRules]]]
"""Per query and alias."""


def sources_ahead(plan: JobPlan, inputs: Inputs, rules: Rules, used_up: Collection[str]) -> dict[str, Ahead]:
    """The sources that wait, as of these watermarks; see `ahead`. None without ``max_drift``."""
    max_drift = plan.queries[0].options.max_drift if plan.queries else None
    if max_drift is None:
        return {}
    groups = [
        {branch.source.name for side in query.alone.sides for _, branch in side.sources}
        for query in plan.queries
    ]
    return ahead(groups, _standings(plan, inputs, rules), max_drift, used_up)


def _standings(plan: JobPlan, inputs: Inputs, rules: Rules) -> dict[str, Standing]:
    """A source has one standing in a job, or two queries could each hold what the other one waits for: that
    of the query that has seen the most of it, by the event time that is furthest behind there. Sources
    without a watermark of their own have none."""
    standings: dict[str, Standing] = {}
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
            other = standings.get(name, Standing(mark, idle[name]))
            standings[name] = Standing(max(mark, other.watermark), idle[name] and other.idle)
    return standings


def stay_awake(plan: JobPlan, inputs: Inputs, held: Collection[str], clock_us: int) -> None:
    """Of a source that is not read nobody can say that it is silent: its idle time begins when it is read
    again. In place."""
    for query in plan.queries if held else ():
        for side in query.sides:
            for number, branch in side.sources:
                if branch.source.name in held:
                    for partition in inputs[query.name][side.name].branches[number].partitions.values():
                        if not partition.idle:
                            partition.active_at_us = clock_us
