"""Lags that a sample's disorder asks for, and the streams they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.event_time import MIN_TIME, saturating_sub
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.sides import BranchPlan, SidePlan
from watersmeet.plan.planner import plan_job
from watersmeet.plan.query_inputs import mentioned_columns
from watersmeet.runtime.coordinator.input_watermarks import find_lateness
from watersmeet.spec.model import Job, Source
from watersmeet.types.intervals import UNIT_US
from watersmeet.whatif.ingest_rules import BranchRows, TickWatermarks, marks_of, rows_of_query
from watersmeet.whatif.sample import Numbers, Sample
from watersmeet.whatif.settings import Setting, apply_setting

# The streams of a job, as far as settings are about them: event times, lags, and how a lag is written.


@dataclass(frozen=True)
class EventStream:
    """Source that is read as a stream.

    Attributes:
        lag: the greatest lag of its event times; None: the source reports its watermarks.
        times: its columns that are event times, without expressions.
        units: whether its event times are on the clock (True), numbers (False), or both.
        needed: the columns that the job uses.
    """

    source: Source
    lag: int | None
    times: tuple[str, ...]
    units: frozenset[bool]
    needed: frozenset[str]

    @property
    def in_time(self) -> bool:
        return True in self.units

    def written(self, lag: int, pipeline: bool = False) -> list[str]:
        """Write a lag as a job declares it, once per event time."""
        if pipeline:
            return [f'lag = "{" ".join(_in_units(lag))}"' if self.in_time else f"lag = {lag}"]
        count, unit = _in_units(lag)
        length = f"INTERVAL '{count}' {unit.upper()}" if self.in_time else str(lag)
        if self.source.event_times:
            return [
                f"WATERMARK FOR {time.column} AS {time.column} - {length}" for time in self.source.event_times
            ]
        times = self.times or ("its event time",)
        return [f"IMPOSE_ORDER(TABLE {self.source.name}, DESCRIPTOR({time}), {length})" for time in times]


def _in_units(lag: int) -> tuple[str, str]:
    """Return how many of the greatest unit without a fraction, and the unit.

    >>> _in_units(90_000_000), _in_units(3_600_000_000)
    (('90', 'seconds'), ('1', 'hours'))
    """
    units = [(size, name) for name, size in UNIT_US.items() if name != "week"]
    size, name = max(unit for unit in units if lag % unit[0] == 0) if lag else (1_000_000, "second")
    return str(lag // size), f"{name}s"


def streams_of(plan: JobPlan) -> dict[str, EventStream]:
    """Return the sources that are read as streams, by name, in the plan's order."""
    return {source.name: _stream(plan, source) for source in plan.sources}


def _stream(plan: JobPlan, source: Source) -> EventStream:
    lags: list[int] = []
    times: dict[str, None] = {}
    units, needed = set(), set[str]()
    for side, branch in _read_by(plan, source.name):
        expressions = dict(branch.columns)
        types: Mapping[str, bool] = {c.name: c.type.is_integer for c in side.input.columns}
        for column, lag in zip(side.event_times, branch.lags, strict=True):
            if lag is not None:
                lags.append(lag)
            units.add(not types[column])
            if column in expressions and expressions[column].key == "column":
                times[expressions[column].name] = None
        needed |= mentioned_columns(branch)
    return EventStream(source, max(lags, default=None), tuple(times), frozenset(units), frozenset(needed))


def _read_by(plan: JobPlan, source: str) -> Iterator[tuple[SidePlan, BranchPlan]]:
    for query in plan.queries:
        for side in query.alone.sides:
            for _, branch in side.sources:
                if branch.source.name == source:
                    yield side, branch


# Which lags a sample's own disorder asks for: the least by which no more than a share of rows is late.

_S, _MS = 1_000_000, 1_000


@dataclass(frozen=True)
class Disorder:
    """Disorder of one branch, through which an input reads a source.

    Attributes:
        behind: by how much each row lags the newest time of the ticks before it, when it arrives; only
            values above 0, in ascending order.
        rows: number of all rows.
    """

    source: str
    behind: Numbers
    rows: int

    def least_lag(self, share: float) -> int:
        """Return the least lag with which at most `share` of the rows is late."""
        may_be_late = int(share * self.rows + 1e-9)
        if may_be_late >= len(self.behind):
            return 0
        return int(self.behind[len(self.behind) - 1 - may_be_late])


def disorder_of(job: Job, sample: Sample) -> list[Disorder]:
    """Compute the disorder of every branch by its own watermarks.

    Partitions that are idle by the job's timeouts do not count, nor do other branches of a union;
    allowed_lateness is subtracted.

    Raises:
        EngineError: only Spark computes an expression.
    """
    plan = plan_job(apply_setting(job, Setting(lags=dict.fromkeys(_sources(plan_job(job)), 0))))
    disorders = []
    for query in plan.queries:
        rows = rows_of_query(query, sample)
        marks = marks_of(query, rows, sample)
        lateness = {side.name: find_lateness(query, side) for side in query.sides}
        disorders += [_disorder(own, marks, lateness[own.side.name]) for own in rows if own.times]
    return disorders


def least_lags(disorders: Sequence[Disorder], share: float) -> dict[str, int]:
    """Return, per source, the least lag with which no input has a greater share of late rows."""
    lags: dict[str, int] = {}
    for disorder in disorders:
        lag = disorder.least_lag(share)
        lags[disorder.source] = max(lag, lags.get(disorder.source, lag))
    return lags


def round_lags(lags: Mapping[str, int], in_time: Mapping[str, bool]) -> dict[str, int]:
    """Round lags up as a person would write them: to whole seconds, or to ms below one second.

    >>> round_lags({"a": 2_340_000, "b": 700_100, "c": 7}, {"a": True, "b": True, "c": False})
    {'a': 3000000, 'b': 701000, 'c': 7}
    """
    return {name: _round_lag(lag) if in_time[name] else lag for name, lag in lags.items()}


def _round_lag(lag: int) -> int:
    unit = _S if lag > _S else _MS
    return -(-lag // unit) * unit


def _sources(plan: JobPlan) -> list[str]:
    return [source.name for source in plan.sources]


def _disorder(own: BranchRows, marks: TickWatermarks, lateness: int) -> Disorder:
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
