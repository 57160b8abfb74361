"""Settings to try, and a job with one of them in place of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from watersmeet.errors import SpecError
from watersmeet.event_time import DAY_US
from watersmeet.spec.job_options import SHEDDING, SHEDDING_OF_JOB
from watersmeet.spec.model import (
    AtLimit,
    Branch,
    EventTime,
    Expr,
    Input,
    Job,
    Join,
    NullTime,
    Query,
    Relation,
    Source,
    StageBranch,
    with_inputs,
)
from watersmeet.types.intervals import interval_us

_OTHERS = ("max_output_rows_per_tick", "max_drift", "max_broken")


@dataclass(frozen=True)
class Setting:
    """Changes to a job for one trial.

    Attributes:
        lags: lag per source for all its event times, in their unit; other sources retain their own.
        scale: factor of all time distances in join conditions.
        idle: idle timeout of every source in µs; None: no timeout.
        keeps_idle: leave the sources' idle timeouts unchanged.
        title: why the setting is tried.
    """

    lags: Mapping[str, int] = field(default_factory=dict)
    scale: Fraction = Fraction(1)
    idle: int | None = None
    keeps_idle: bool = True
    title: str = ""


def apply_setting(job: Job, setting: Setting) -> Job:
    """Apply a setting to a job.

    Raises:
        SpecError: there is nothing to scale, or a scaled distance is not a whole unit.
    """

    def source(given: Source) -> Source:
        lag = setting.lags.get(given.name)
        times = given.event_times
        if lag is not None:
            times = tuple(EventTime(time.column, lag) for time in times)
        idle = given.idle_timeout_us if setting.keeps_idle else setting.idle
        return replace(given, event_times=times, idle_timeout_us=idle)

    def branch(given: Branch) -> Branch:
        lag = setting.lags.get(given.source.name)
        lags = given.lags if lag is None else tuple(lag for _ in given.lags)
        return replace(given, source=source(given.source), lags=lags)

    job = with_branches(job, branch)
    return job if setting.scale == 1 else _scale_intervals(job, setting.scale)


def without_limits(job: Job) -> Job:
    """Remove the limits that make a run stop, wait or shed.

    A trial measures how much a sample needs, so no limit applies.
    """
    options = replace(
        job.options,
        max_rows=None,
        max_bytes=None,
        max_rows_per_key=None,
        max_output_rows_per_tick=None,
        max_job_rows=None,
        max_job_bytes=None,
        max_drift=None,
        max_broken=None,
        at_limit=AtLimit.STOP,
        on_null_time=NullTime.COUNT,
    )
    job = replace(job, options=options)
    return with_branches(
        job, lambda own: replace(own, source=replace(own.source, max_rows=None, max_bytes=None))
    )


def limits_of(job: Job) -> list[str]:
    """Return the limits that `without_limits` removes from a job, by the names of their options."""
    options = job.options
    told = [name for name in (*SHEDDING, *SHEDDING_OF_JOB, *_OTHERS) if getattr(options, name) is not None]
    sources = {
        source.name: source
        for insert in job.inserts
        for query in insert.query.every
        for i in query.inputs
        for source in i.sources
    }
    for source in sources.values():
        own = [f"'{name}'" for name in ("max_rows", "max_bytes") if getattr(source, name) is not None]
        told += [f'{name} of "{source.name}"' for name in own]
    return told


def with_branches(job: Job, change: Callable[[Branch], Branch]) -> Job:
    """Apply `change` to every branch through which the job's inputs read sources."""
    return _with_queries(job, lambda query: _query(query, change))


def _with_queries(job: Job, change: Callable[[Query], Query]) -> Job:
    inserts = (replace(insert, query=change(insert.query)) for insert in job.inserts)
    return replace(job, inserts=tuple(inserts))


def _query(query: Query, change: Callable[[Branch], Branch]) -> Query:
    def input_of(given: Input) -> Input:
        branches = tuple(
            change(branch)
            if isinstance(branch, Branch)
            else replace(branch, stage=_query(branch.stage, change))
            for branch in given.branches
        )
        return replace(given, branches=branches)

    return replace(query, relation=with_inputs(query.relation, input_of))


def _scale_intervals(job: Job, scale: Fraction) -> Job:
    scaling = _Scaling(scale)
    job = _with_queries(job, scaling.query)
    if not scaling.scaled_any:
        raise SpecError(
            "--interval has no effect: the join conditions have no constant between event times",
            code="nothing-to-scale",
            hint="remove --interval, which scales constants as in b.t BETWEEN a.t AND a.t + INTERVAL"
            " '1' HOUR",
        )
    return job


@dataclass
class _Scaling:
    """``scaled_any``: some distance was there."""

    scale: Fraction
    scaled_any: bool = False

    def query(self, query: Query) -> Query:
        times = {(i.alias, column) for i in query.inputs for column in i.event_times}
        relation = self._relation(query.relation, times)
        where = None if query.where is None else self._condition(query.where, times)
        return replace(query, relation=relation, where=where)

    def _relation(self, relation: Relation, times: set[tuple[str, str]]) -> Relation:
        if isinstance(relation, Input):
            branches = tuple(
                replace(branch, stage=self.query(branch.stage)) if isinstance(branch, StageBranch) else branch
                for branch in relation.branches
            )
            return replace(relation, branches=branches)
        assert isinstance(relation, Join)
        return replace(
            relation,
            left=self._relation(relation.left, times),
            right=self._relation(relation.right, times),
            on=None if relation.on is None else self._condition(relation.on, times),
            where=None if relation.where is None else self._condition(relation.where, times),
            match=None if relation.match is None else self._condition(relation.match, times),
        )

    def _condition(self, condition: Expr, times: set[tuple[str, str]]) -> Expr:
        changed = condition.copy()
        for conjunct in list(_conjuncts(changed)):
            columns = {(column.table, column.name) for column in conjunct.find_all(exp.Column)}
            if columns <= times and len({alias for alias, _ in columns}) > 1:
                self._constants(conjunct)
        return changed

    def _constants(self, conjunct: Expr) -> None:
        for node in list(conjunct.find_all(exp.Interval)):
            length = interval_us(node)
            if length:
                node.replace(_interval(self._times(length)))
        for number in list(conjunct.find_all(exp.Literal)):
            inside = number.find_ancestor(exp.Interval, exp.Cast, exp.Mul, exp.IntDiv, exp.Mod)
            if inside is None and not number.is_string and number.name.isdigit() and int(number.name):
                number.replace(exp.Literal.number(str(self._times(int(number.name)))))

    def _times(self, length: int) -> int:
        self.scaled_any = True
        return round(length * self.scale)


def _interval(length_us: int) -> exp.Interval:
    if length_us % DAY_US == 0:  # a DATE and days are a DATE again
        return exp.Interval(this=exp.Literal.string(str(length_us // DAY_US)), unit=exp.Var(this="DAYS"))
    return exp.Interval(this=exp.Literal.string(str(length_us)), unit=exp.Var(this="MICROSECONDS"))


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, exp.And):
        yield from _conjuncts(condition.this)
        yield from _conjuncts(condition.expression)
    elif isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this)
    else:
        yield condition
