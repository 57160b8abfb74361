"""Compute the matches of a batch join over a sample, as pairs of row numbers.

A setting loses a match if one of the two rows is late under it. A row that is on time matches every row on
time that the condition pairs it with, whatever the lag, because released rows can match nothing that is still
to arrive (see the semantics).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask
from watersmeet.names import DIFF, PARTITION, ours
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.input_rows import add_utc_zone
from watersmeet.spec.model import (
    Branch,
    Column,
    Input,
    Insert,
    Job,
    Join,
    JoinKind,
    Options,
    OutputColumn,
    Relation,
    Sink,
    StageBranch,
    with_inputs,
)
from watersmeet.state.store import MemoryStore
from watersmeet.types.sql_type import BIGINT
from watersmeet.whatif.sample import Numbers, Sample

ROW = ours("whatif_row")
"""The column that numbers rows."""
_BATCH_PAIRS = 500_000
MAX_BATCH_PAIRS = 20_000_000
"""A batch join of more pairs is not looked at: they are held in memory."""


@dataclass(frozen=True)
class Pairs:
    """``left``, ``right``: of each match the rows, numbered over all sources in the sample's order."""

    left: Numbers
    right: Numbers

    def lost(self, late_left: Mask, late_right: Mask) -> int:
        """Count the matches that have a late row; the masks are indexed by row numbers."""
        return int((late_left[self.left] | late_right[self.right]).sum())

    def without(self, left: Mask, right: Mask) -> Pairs:
        """Return the pairs without rows of these masks."""
        stays = ~(left[self.left] | right[self.right])
        return self if stays.all() else Pairs(self.left[stays], self.right[stays])

    def __len__(self) -> int:
        return len(self.left)


def joins_two(query: QueryPlan) -> bool:
    """Return True if the query's matches are pairs of rows of two inputs.

    Each of the rows must be one row of a source.
    """
    node = query.root
    for side in query.sides:
        names = [branch.source.name for _, branch in side.sources]
        if side.stages or len(set(names)) < len(names):
            return False
    alone = len(query.nodes) == 1 and len(node.sides) == 2
    return alone and node.keeps_by_times and not node.left_to_spark


def pairs_of(insert: Insert, job: Job, sample: Sample) -> Pairs:
    """Compute all matches of a query's two-input join over the sample that satisfy its WHERE.

    Raises:
        EngineError: there are more than `MAX_BATCH_PAIRS`, or a condition fails.
    """
    plan = _batch_plan(insert, job)
    tables: list[pa.Table] = []
    with closing(LocalJob(plan, MemoryStore(), given=True)) as engine:
        for part in range(parts := max(1, sample.rows // _BATCH_PAIRS)):
            _push(engine, plan, sample, part, parts)
            table = engine.tick(clock_us=0).tables[insert.name]
            tables.append(table)
            if sum(rows.num_rows for rows in tables) > MAX_BATCH_PAIRS:
                raise EngineError(
                    f'the batch join of the sample of "{insert.name}" has more than {MAX_BATCH_PAIRS:,} rows',
                    code="too-many-matches",
                    hint="use a smaller sample",
                )
    left, right = (column.to_numpy() for column in pa.concat_tables(tables).columns)
    return Pairs(left, right)


def _batch_plan(insert: Insert, job: Job) -> JobPlan:
    """Plan an inner join of two inputs that returns pairs of row numbers.

    The numbers are in `ROW`, an additional column of each source. No row is late and none is released.
    """
    relation = insert.query.relation
    assert isinstance(relation, Join)
    left, right = (_alias(side) for side in (relation.left, relation.right))
    query = replace(
        insert.query,
        relation=with_inputs(
            replace(relation, kind=JoinKind.INNER), lambda own: number_rows(own, apart=False)
        ),
        outputs=(_output("l", left), _output("r", right)),
    )
    own = replace(insert, sink=Sink("pairs", "memory"), query=query)
    options = Options(time_zone=job.options.time_zone)
    return plan_job(replace(job, inserts=(own,), options=options, run={}, sinks=(), explains=()))


def apart_name(alias: str, branch: int) -> str:
    """Return the name of a branch's source when each branch has a source of its own."""
    return f"{alias}#{branch}"


def _push(engine: LocalJob, plan: JobPlan, sample: Sample, part: int, parts: int) -> None:
    first_number = 0
    read = {source.name: source for source in plan.sources}
    for name, arrived in sample.sources.items():
        if name in read:
            first, end = arrived.count * part // parts, arrived.count * (part + 1) // parts
            numbers = np.arange(first_number + first, first_number + end, dtype=np.int64)
            rows = arrived.rows.slice(first, end - first).drop_columns([DIFF, PARTITION])
            rows = rows.append_column(ROW, pa.array(numbers))
            if len(numbers):
                engine.push(name, add_utc_zone(rows, read[name].columns))
        first_number += arrived.count


def _alias(relation: Relation) -> str:
    assert isinstance(relation, Input)
    return relation.alias


def number_rows(given: Input, *, apart: bool) -> Input:
    """Add row numbers to an input, and stop its watermarks from advancing."""
    number = Column(ROW, BIGINT)

    def branch(place: int, own: Branch | StageBranch) -> Branch | StageBranch:
        assert isinstance(own, Branch)
        times = tuple(replace(time, lag=None) for time in own.source.event_times)
        source = replace(
            own.source,
            name=apart_name(given.alias, place) if apart else own.source.name,
            columns=(*own.source.columns, number),
            max_ahead_us=None,
            event_times=times,
        )
        columns = (*own.columns, exp.column(ROW))
        return replace(own, source=source, columns=columns, lags=tuple(None for _ in own.lags))

    branches = tuple(branch(place, own) for place, own in enumerate(given.branches))
    return replace(given, columns=(*given.columns, number), branches=branches)


def _output(name: str, alias: str) -> OutputColumn:
    return OutputColumn(name, exp.column(ROW, table=alias), f"{alias}.{ROW}")
