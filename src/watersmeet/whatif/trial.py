"""Settings tried on a sample: what each would cost and lose, query by query, input by input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError, PlanError, WatersmeetError, raise_all
from watersmeet.event_time import Mask
from watersmeet.names import DIFF, PARTITION
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import LookupPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.input_rows import add_utc_zone
from watersmeet.spec.model import Job
from watersmeet.state.manifest import QueryState
from watersmeet.state.store import MemoryStore
from watersmeet.whatif.ingest_rules import (
    BranchRows,
    IngestCounts,
    count_ingested,
    is_direct,
    marks_of,
    retained,
    rows_of_query,
)
from watersmeet.whatif.pairs import Pairs, joins_two, pairs_of
from watersmeet.whatif.sample import ArrivedRows, Numbers, Sample
from watersmeet.whatif.settings import Setting, apply_setting


@dataclass
class Played:
    """Counts of one query.

    Attributes:
        counts: rows since the start, per alias and outcome (`runtime.tasks.ingest`).
        retained: retained rows per alias, after every tick.
        kept: all rows that the query's nodes retain after every tick, with joined and grouped rows.
        matches: matches since the start.
        state_bytes: size of the query's files after every tick.
    """

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    retained: dict[str, list[int]] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    matches: int = 0
    state_bytes: list[int] = field(default_factory=list)


def replay_sample(plan: JobPlan, sample: Sample, partitions: int = 1) -> dict[str, Played]:
    """Run the sample through the engine and return its counts per query.

    The input does not end with the sample.

    Raises:
        EngineError: only Spark computes part of a query, or a tick fails.
    """
    told = {query.name: Played() for query in plan.queries}
    parts = {name: _by_tick(arrived, sample.ticks) for name, arrived in sample.sources.items()}
    with closing(
        LocalJob(plan, MemoryStore(), partitions=partitions, clock_us=sample.clock_us(0), given=True)
    ) as job:
        for tick in range(sample.ticks):
            for name, of_ticks in parts.items():
                for partition, rows in _by_partition(of_ticks[tick]):
                    job.push(name, rows, partition=partition)
            result = job.tick(clock_us=sample.clock_us(tick)).result
            manifest = job.driver.manifest
            assert manifest is not None  # a tick was committed
            for query in plan.queries:
                own, of_query = told[query.name], result.queries[query.name]
                own.kept.append(_count_retained_rows(query, manifest.queries[query.name]))
                own.counts = {alias: dict(counts) for alias, counts in of_query.account.items()}
                own.matches += of_query.matches
                own.state_bytes.append(of_query.state_bytes)
                for alias, rows_kept in of_query.state.items():
                    own.retained.setdefault(alias, []).append(rows_kept)
    return told


def _count_retained_rows(query: QueryPlan, state: QueryState) -> int:
    """Count the rows that a query retains.

    Rows of an input that are retained in several arrangements count once; rows that another query
    retains do not count.
    """
    return sum(
        of_node.arrangements[side.name].retained
        for node, of_node in zip(query.nodes, state.nodes, strict=True)
        for side in node.sides
        if side.copy_of is None and side.kept_by is None and side.name in of_node.arrangements
    )


def _by_tick(arrived: ArrivedRows, ticks: int) -> list[pa.Table]:
    rows = add_utc_zone(arrived.rows.drop_columns([DIFF]), arrived.source.columns)
    borders = np.searchsorted(arrived.ticks, np.arange(ticks + 1))
    return [rows.slice(first, end - first) for first, end in pairwise(borders)]


def _by_partition(rows: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    if not rows.num_rows:
        return
    coded = pc.dictionary_encode(rows.column(PARTITION).combine_chunks(), null_encoding="encode")
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    plain = rows.drop_columns([PARTITION])
    names: Mapping[int, str | None] = dict(enumerate(coded.dictionary.to_pylist()))
    if len(names) == 1:
        yield names[0], plain
        return
    for code, name in names.items():
        yield name, plain.filter(pc.equal(coded.indices, code))


Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class OfInput:
    """Trial figures of one input of a query.

    Attributes:
        rows: rows that are part of its stream.
        late, null_time: those of them that are late, or have no time.
        most, average: rows retained after a tick.
        row_bytes: size of a retained row, as Arrow columns.
        mean_delay, most_delay: from a row's arrival to its release, in units of the clock, over rows
            that the sample releases; None: there are none, or it is unknown.
    """

    rows: int
    late: int
    null_time: int
    most: int
    average: float
    row_bytes: float
    mean_delay: float | None = None
    most_delay: int | None = None

    @property
    def late_share(self) -> float:
        return self.late / self.rows if self.rows else 0.0


@dataclass(frozen=True)
class OfQuery:
    """Trial figures of one query.

    Attributes:
        most, average: rows that it retains after a tick, over all inputs.
        most_bytes, average_bytes: size of these rows.
        matches: pairs of its join over the whole sample as a batch; None: not computed.
        lost: matches that are lost; None: not computed.
    """

    inputs: Mapping[str, OfInput]
    most: int
    average: float
    most_bytes: float
    average_bytes: float
    matches: int | None = None
    lost: int | None = None


@dataclass(frozen=True)
class TrialOutcome:
    """Result of one setting, per query.

    ``lags``: the lags of all event times of all sources under the setting.
    """

    setting: Setting
    lags: Mapping[str, int]
    queries: Mapping[str, OfQuery]


@dataclass
class Trials:
    """Trials of a job over a sample.

    ``notes``: what was not computed, and why; each reason appears once.
    """

    job: Job
    sample: Sample
    with_matches: bool = True
    notes: list[str] = field(default_factory=list)
    _rows: dict[tuple[str, Fraction], list[BranchRows]] = field(default_factory=dict)
    _pairs: dict[tuple[str, Fraction], Pairs | None] = field(default_factory=dict)

    def run(self, setting: Setting) -> TrialOutcome:
        """Try the job with a setting.

        Raises:
            WatersmeetError: The job cannot be planned with the setting, or an expression fails.
        """
        job = apply_setting(self.job, setting)
        plan = plan_job(job)
        replays: dict[str, Played] = {}
        if is_played(plan):
            replays = replay_sample(plan, self.sample)
        queries = {
            query.name: self._try_query(query, job, setting, replays.get(query.name))
            for query in plan.queries
        }
        return TrialOutcome(setting, lags_of(plan), queries)

    def _try_query(self, query: QueryPlan, job: Job, setting: Setting, replay: Played | None) -> OfQuery:
        if replay is not None:
            return self._summarize_replay(query, replay)
        rows = self.rows(query, setting.scale)
        marks = marks_of(query, rows, self.sample)
        kept = [count_ingested(own, marks) for own in rows]
        inputs = {side.name: self._of_input(side.name, rows, kept) for side in query.sides}
        total, size = self._sum_rows(rows, kept)
        matches = lost = None
        pairs = self._matches(query, job, setting.scale, rows)
        if pairs is not None:
            left, right = (side.name for side in query.root.sides)
            matches = len(pairs)
            lost = pairs.lost(
                *(self._mask_by_number(rows, [of.late for of in kept], own) for own in (left, right))
            )
        return OfQuery(
            inputs,
            most=int(total.max()),
            average=float(total.mean()),
            most_bytes=float(size.max()),
            average_bytes=float(size.mean()),
            matches=matches,
            lost=lost,
        )

    def _sum_rows(self, rows: Sequence[BranchRows], kept: Sequence[IngestCounts]) -> tuple[Numbers, Reals]:
        """Sum the retained rows, and their bytes, of all inputs after every tick."""
        total, size = np.zeros(self.sample.ticks, np.int64), np.zeros(self.sample.ticks)
        for own, of in zip(rows, kept, strict=True):
            own_rows = retained(of, own.arrived.ticks, self.sample.ticks)
            total, size = total + own_rows, size + own_rows * own.row_bytes
        return total, size

    def rows(self, query: QueryPlan, scale: Fraction) -> list[BranchRows]:
        """Return the query's rows, which all settings with the same scale share."""
        rows = self._rows.get((query.name, scale))
        if rows is None:
            rows = self._rows[query.name, scale] = rows_of_query(query, self.sample)
        return rows

    def _of_input(self, alias: str, rows: Sequence[BranchRows], kept: Sequence[IngestCounts]) -> OfInput:
        own = [(of, what) for of, what in zip(rows, kept, strict=True) if of.side.name == alias]
        count = self.sample.ticks
        total = sum((retained(what, of.arrived.ticks, count) for of, what in own), np.zeros(count, np.int64))
        delays = []
        for of, what in own:
            gone = what.released < count
            came = of.arrived.clocks[what.rows[gone]]
            delays.append(self.sample.clocks[what.released[gone]] - came)
        delay = np.concatenate(delays)
        return OfInput(
            rows=sum(int(of.part.sum()) for of, _ in own),
            late=sum(int(what.late.sum()) for _, what in own),
            null_time=sum(what.null_time for _, what in own),
            most=int(total.max()),
            average=float(total.mean()),
            row_bytes=max(of.row_bytes for of, _ in own),
            mean_delay=float(delay.mean()) if len(delay) else None,
            most_delay=int(delay.max()) if len(delay) else None,
        )

    def _summarize_replay(self, query: QueryPlan, replay: Played) -> OfQuery:
        self._note(
            f'"{query.name}" was played through the engine, tick by tick; matches that are lost, and how long'
            " rows wait, are not worked out for such a query, and bytes are those of its files"
        )
        inputs = {}
        for side in query.sides:
            counts = replay.counts.get(side.name, {})
            kept = np.asarray(replay.retained.get(side.name, [0]))
            inputs[side.name] = OfInput(
                rows=counts.get("in", 0),
                late=counts.get("late", 0),
                null_time=counts.get("null_time", 0),
                most=int(kept.max()),
                average=float(kept.mean()),
                row_bytes=0.0,
            )
        together, size = np.asarray(replay.kept), np.asarray(replay.state_bytes)
        return OfQuery(
            inputs, int(together.max()), float(together.mean()), float(size.max()), float(size.mean())
        )

    def _matches(
        self, query: QueryPlan, job: Job, scale: Fraction, rows: Sequence[BranchRows]
    ) -> Pairs | None:
        if not self.with_matches or len(query.sides) < 2:
            return None
        key = (query.name, scale)
        if key not in self._pairs:
            self._pairs[key] = self._found_pairs(query, job, rows)
        return self._pairs[key]

    def _found_pairs(self, query: QueryPlan, job: Job, rows: Sequence[BranchRows]) -> Pairs | None:
        if not joins_two(query):
            self._note(f'"{query.name}": lost matches are worked out for joins of two inputs alone')
            return None
        insert = next(insert for insert in job.inserts if insert.name == query.name)
        try:
            pairs = pairs_of(insert, job, self.sample)
        except EngineError as error:
            if error.code not in ("too-many-matches", "not-computed"):
                raise
            self._note(f'"{query.name}": lost matches are not worked out: {error.message}')
            return None
        left, right = (side.name for side in query.root.sides)
        ahead = [own.part & ~own.judged for own in rows]
        return pairs.without(*(self._mask_by_number(rows, ahead, alias) for alias in (left, right)))

    def _mask_by_number(self, rows: Sequence[BranchRows], masks: Sequence[Mask], alias: str) -> Mask:
        """Combine masks of an alias into one that is indexed by row numbers over all sources."""
        first, starts = 0, {}
        for name, arrived in self.sample.sources.items():
            starts[name] = first
            first += arrived.count
        together = np.zeros(first, dtype=np.bool_)
        for own, mask in zip(rows, masks, strict=True):
            if own.side.name == alias:
                start = starts[own.source]
                together[start : start + len(mask)] |= mask
        return together

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def lags_of(plan: JobPlan) -> dict[str, int]:
    """Return the greatest lag of every source that has one."""
    lags: dict[str, int] = {}
    for query in plan.queries:
        for side in query.sides:
            for _, branch in side.sources:
                for lag in branch.lags:
                    if lag is not None:
                        lags[branch.source.name] = max(lag, lags.get(branch.source.name, lag))
    return lags


def is_played(plan: JobPlan) -> bool:
    """Return True if the engine has to run the sample, because times do not determine a query."""
    return not all(is_direct(query) for query in plan.queries)


def check_tried(plan: JobPlan) -> None:
    """Check that a job can be tried.

    Raises:
        PlanError: a query reads tables or changes, which lags and intervals do not affect.
        SeveralErrors: several queries do.
    """
    problems: list[WatersmeetError] = []
    for query in plan.queries:
        reason = _skip_reason(query)
        if reason is not None:
            problems.append(
                PlanError(
                    f'query "{query.name}": {reason}, but what-if supports only streams',
                    code="not-tried",
                    hint="use a job with only the queries over streams",
                )
            )
    raise_all(problems)


def _skip_reason(query: QueryPlan) -> str | None:
    reasons: Sequence[tuple[Callable[[], bool], str]] = (
        (lambda: query.is_index, "it is an index of a table"),
        (lambda: bool(query.every(LookupPlan)), "it looks up a table"),
        (lambda: any(i.is_table for side in query.sides for i in side.inputs), "it reads a table"),
        (lambda: any(node.changes for node in query.nodes), "rows of its inputs come and go"),
        (lambda: not any(side.event_times for side in query.sides), "it has no event times"),
    )
    return next((words for holds, words in reasons if holds()), None)
