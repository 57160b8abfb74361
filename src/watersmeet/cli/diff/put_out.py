"""What the ticks of a query have put out, by running them once more in this process: over the rows that were
read again, with the watermarks and clocks that the history has (`why.replay`). So rows of a stream meet
what a changing table held in their ticks, until they were let go, and closed windows stay as they were.

It is told only where it follows from all that: where each tick is known, and all rows can be read again; and
where no delete was of what was not there, for whether such a delete counted goes by what else is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from watersmeet.errors import EngineError, PlanError, SeveralErrors
from watersmeet.plan.model.job import QueryPlan
from watersmeet.spec.model import Job, Lateness, Source
from watersmeet.why.replay import Replay, TickWise
from watersmeet.why.rows import QueryRows
from watersmeet.why.tables import Kind, Records, is_of_records, records_of


class NotKnown(Exception):
    """What was put out does not follow from what is known; the text says what is missing."""


def put_out(rows: QueryRows, job: Job, sources: Mapping[str, Source], kept: QueryPlan) -> pa.Table:
    """All that the query has put out, tick by tick, with its columns, and ``_diff`` where rows are taken
    back.

    Args:
        sources: as they are declared.
        kept: the query as the job runs it.

    Raises:
        NotKnown: it cannot be said.
    """
    query = rows.query
    lacking = rows.lacks([side.name for side in query.sides], sources.values())
    if lacking is not None:
        raise NotKnown(lacking)
    if rows.shed:
        raise NotKnown("rows of it were shed")
    if any(side.stages or not side.sources for side in query.sides) or not all(
        map(is_of_records, rows.insert.query.inputs)
    ):
        raise NotKnown("rows of its inputs are made by queries beneath")
    if any(node.left_to_spark for node in query.nodes):
        raise NotKnown("only Spark computes its conditions")
    if query.options.lateness is not Lateness.COLUMN:
        raise NotKnown("rows are late by joins")
    try:
        records = {
            side.name: records_of(
                side, rows.inputs[side.name], sources[rows.inputs[side.name][0].own.source], rows.zone
            )
            for side in query.sides
        }
        for alias, own in records.items():
            if own.kind is not Kind.EQUAL:
                continue
            if len(rows.inputs[alias]) > 1 and (own.diffs[own.taken] < 0).any():
                raise NotKnown(
                    f'rows of "{alias}" were deleted, which is made of several branches: whether all of them'
                    " were there is not looked at"
                )
            if _is_below_zero(own):
                raise NotKnown(
                    f'rows of "{alias}" were deleted more often than they had come, and whether these deletes'
                    " counted goes by what is kept"
                )
        masks = {alias: own.counts for alias, own in records.items()}
        numbers = {alias: own.numbers for alias, own in records.items()}
        replay = Replay(rows.insert, job, rows.inputs, masks, query.options.mode, numbers)
        ticks = TickWise.of(query, rows.history, sources.values())
        table = replay.run_outputs(ticks, kept)
    except (EngineError, PlanError, SeveralErrors) as error:
        raise NotKnown(f"its ticks cannot be run again: {error.message}") from None
    if table is None:
        raise NotKnown("its joins are run in another way by themselves")
    return table


def _is_below_zero(records: Records) -> bool:
    """Whether rows that are equal in all their columns were deleted, after some tick, more often than they
    had come."""
    at = np.flatnonzero(records.taken)
    whole, slots, diffs = (own[at] for own in (records.whole, records.slots, records.diffs))
    order = np.lexsort((-diffs, slots, whole))  # of a tick those first that come: it is summed
    sums = np.cumsum(diffs[order])
    begins = np.flatnonzero(np.diff(whole[order], prepend=-1))
    before = np.repeat(np.r_[0, sums][begins], np.diff(np.r_[begins, len(order)]))
    return bool((sums - before < 0).any())
