"""Which lags a sample's own disorder asks for: the least by which no more than a share of rows is late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.engine.driver.late import lateness_of
from watersmeet.event_time import MIN_TIME, saturating_sub
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.spec.model import Job
from watersmeet.whatif.judged import BranchRows, Marks, marks_of, rows_of_query
from watersmeet.whatif.sample import Numbers, Sample
from watersmeet.whatif.setting import Setting, applied

_S, _MS = 1_000_000, 1_000


@dataclass(frozen=True)
class Disorder:
    """Of one way of a source into an input: by how much each row was behind, when it came, the newest time of
    the ticks before; above 0 alone, in rising order. ``rows``: all that there are."""

    source: str
    behind: Numbers
    rows: int

    def least_lag(self, share: float) -> int:
        """The least lag with which no more than that share of the rows is late."""
        may_be_late = int(share * self.rows + 1e-9)
        if may_be_late >= len(self.behind):
            return 0
        return int(self.behind[len(self.behind) - 1 - may_be_late])


def disorder_of(job: Job, sample: Sample) -> list[Disorder]:
    """Of every way of a source into an input, by its own watermarks: those of partitions that are idle by the
    job's timeouts do not count, other branches of a union do not either, and allowed_lateness is taken off.

    Raises:
        EngineError: an expression is one that only Spark computes.
    """
    plan = plan_job(applied(job, Setting(lags=dict.fromkeys(_sources(plan_job(job)), 0))))
    disorders = []
    for query in plan.queries:
        rows = rows_of_query(query, sample)
        marks = marks_of(query, rows, sample)
        lateness = {side.name: lateness_of(query, side) for side in query.sides}
        disorders += [_disorder(own, marks, lateness[own.side.name]) for own in rows if own.times]
    return disorders


def least_lags(disorders: Sequence[Disorder], share: float) -> dict[str, int]:
    """Per source, so that no input that reads it has a greater share of late rows."""
    lags: dict[str, int] = {}
    for disorder in disorders:
        lag = disorder.least_lag(share)
        lags[disorder.source] = max(lag, lags.get(disorder.source, lag))
    return lags


def rounded(lags: Mapping[str, int], in_time: Mapping[str, bool]) -> dict[str, int]:
    """The lags as a person would write them, none of them less: whole seconds, or ms below one.

    >>> rounded({"a": 2_340_000, "b": 700_100, "c": 7}, {"a": True, "b": True, "c": False})
    {'a': 3000000, 'b': 701000, 'c': 7}
    """
    return {name: _rounded(lag) if in_time[name] else lag for name, lag in lags.items()}


def _rounded(lag: int) -> int:
    unit = _S if lag > _S else _MS
    return -(-lag // unit) * unit


def _sources(plan: JobPlan) -> list[str]:
    return [source.name for source in plan.sources]


def _disorder(own: BranchRows, marks: Marks, lateness: int) -> Disorder:
    ticks = own.arrived.ticks
    behind = np.zeros(len(ticks), dtype=np.int64)
    for column, values in own.times.items():
        newest = marks.before[own.side.name, own.number, column][ticks]
        is_there = own.judged & (newest > MIN_TIME)
        present = own.present[column]
        if present is not None:
            is_there &= present
        own_behind = saturating_sub(newest, values)
        behind = np.where(is_there, np.maximum(behind, own_behind), behind)
    behind = behind - np.int64(lateness)
    return Disorder(own.source, np.sort(behind[behind > 0]), int(own.part.sum()))
