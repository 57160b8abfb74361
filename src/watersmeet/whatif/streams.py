"""The streams of a job, as far as settings are about them: event times, lags, and how a lag is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from watersmeet.plan.evaluated import mentioned_by
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.sides import BranchPlan, SidePlan
from watersmeet.spec.model import Source
from watersmeet.types.intervals import UNIT_US


@dataclass(frozen=True)
class Stream:
    """One source that is read as a stream. ``lag``: the greatest that one of its event times has; None: its
    watermarks are told. ``times``: its columns that are event times; an expression is none of them.
    ``units``: whether event times of it are on the clock (True), numbers (False), or both. ``needed``: the
    columns that the job takes."""

    source: Source
    lag: int | None
    times: tuple[str, ...]
    units: frozenset[bool]
    needed: frozenset[str]

    @property
    def in_time(self) -> bool:
        return True in self.units

    def written(self, lag: int, pipeline: bool = False) -> list[str]:
        """How a job says that lag, per event time."""
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


def streams_of(plan: JobPlan) -> dict[str, Stream]:
    """Per source that is read as a stream, in the plan's order."""
    return {source.name: _stream(plan, source) for source in plan.sources}


def _stream(plan: JobPlan, source: Source) -> Stream:
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
        needed |= mentioned_by(branch)
    return Stream(source, max(lags, default=None), tuple(times), frozenset(units), frozenset(needed))


def _read_by(plan: JobPlan, source: str) -> Iterator[tuple[SidePlan, BranchPlan]]:
    for query in plan.queries:
        for side in query.alone.sides:
            for _, branch in side.sources:
                if branch.source.name == source:
                    yield side, branch
