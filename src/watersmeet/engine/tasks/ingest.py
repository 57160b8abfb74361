"""The first half of a tick: judge rows, count them, and have those written that may match.

An `IngestWriter` takes the rows of one branch of one input, in batches as they come. Every row ends in
exactly one count: ``beneath`` (not part of the stream), ``null_time``, ``ahead``, ``late``, ``filtered``,
``unmatchable``, ``padded`` (a pad of its own tick), ``passed`` (put out in its tick by a node that keeps
none) or ``kept`` (in a run).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.messages.reports import IngestReport
from watersmeet.engine.messages.shapes import SideShape
from watersmeet.engine.messages.work import TickStart
from watersmeet.engine.tasks.aside import missed_columns
from watersmeet.engine.tasks.diffs import standing_for, times_each
from watersmeet.engine.tasks.flags import flags_of
from watersmeet.engine.tasks.nulls import null_time_error
from watersmeet.engine.tasks.write import SideWriter
from watersmeet.event_time import Mask, Times, below
from watersmeet.kernel.batches import numbers
from watersmeet.kernel.times import known_times
from watersmeet.names import DIFF, PARTITION
from watersmeet.spec.flags import FLAG_BENEATH, FLAG_CANDIDATE, FLAG_FILTERED
from watersmeet.state.runs.columns import null_column
from watersmeet.state.store import Store
from watersmeet.state.traffic import taken_of
from watersmeet.watermark.lateness import Missed

ON_TIME, LATE, NULL_TIME, AHEAD = 0, 1, 2, 3
REASONS = {LATE: "late", NULL_TIME: "null_time", AHEAD: "ahead"}

Judgement = npt.NDArray[np.int8]


class IngestWriter:
    """Rows of one branch of one input in one ingest task.

    Args:
        arrangement: ``query/alias``.
        branch: number of the branch within the input.
        task: number of the ingest task among those of the tick, in the order in which rows count as come.

    ``missed``: of the batch that was added last; None: none of its rows was late.
    """

    def __init__(self, start: TickStart, arrangement: str, branch: int, store: Store, task: int = 0) -> None:
        self._start, self._store = start, store
        self._side = start.sides[arrangement]
        self._late_below = start.late_below[arrangement]
        max_ahead = start.max_ahead[arrangement][branch]
        self._ahead_above = None if max_ahead is None else start.clock_us + max_ahead
        self._written = self._side.written
        self._writer = SideWriter(
            self._written or self._side,
            store,
            start.tick,
            start.flush_rows,
            start.flush_bytes,
            start.placing,
            (branch, task),
            start.indexes.get(arrangement),
            start.ordered,
            tasks=start.tasks,
        )
        self._integer = {
            column: pa.types.is_integer(self._side.schema.field(column).type)
            for column in self._side.layout.event_times
        }
        self.missed: Missed | None = None
        self._times_each: npt.NDArray[np.int64] | None = None
        self.report = IngestReport(arrangement=arrangement, branch=branch)

    def add(self, batch: pa.RecordBatch) -> Judgement:
        """Take a batch: the kept columns in native types, and as wanted `FLAG` (absent: all candidates),
        `PARTITION`, `DIFF`.

        Returns what became of each row: int8[n] of ON_TIME, LATE, NULL_TIME, AHEAD (rows beneath the ordering
        and filtered ones are ON_TIME here).

        Raises:
            EngineError: a row's event time is NULL, and that fails the job.
        """
        self.missed = None
        judgement = np.zeros(batch.num_rows, dtype=np.int8)
        if batch.num_rows == 0:
            return judgement
        flags = flags_of(batch, self._side.not_null)
        part = flags != FLAG_BENEATH
        self._times_each = times_each(batch)
        self._count("beneath", ~part)
        self._count("in", part)
        times, present_by_column = self._event_times(batch)
        judged = part
        if self._ahead_above is not None:
            for column, values in times.items():
                if self._integer[column]:
                    continue  # a number has no place on the clock
                ahead = _where(part, present_by_column[column]) & (values > self._ahead_above)
                judgement[ahead] = AHEAD
                if ahead.any():
                    furthest = max(int(values[ahead].max()), self.report.furthest.get(column, 0))
                    self.report.furthest[column] = furthest
            judged = part & (judgement != AHEAD)
        partitions = _per_partition(batch, part)
        for column, values in times.items():
            mask = _where(judged, present_by_column[column])
            self._observe(partitions, column, values, mask)
            late = mask & below(values, self._late_below[column])
            if late.any():
                judgement[late] = LATE
                self.missed = self.missed or Missed(batch.num_rows, self._integer)
                self.missed.note(column, late, values, self._late_below[column])
        if self.missed is not None:
            self.missed.count(self.report.late, self._times_each)
        for present in present_by_column.values():
            if present is not None:
                judgement[judged & ~present & (judgement != LATE)] = NULL_TIME
        if self._start.null_fails and (judgement == NULL_TIME).any():
            row = batch.slice(int(np.flatnonzero(judgement == NULL_TIME)[0]), 1)
            raise null_time_error(
                self._start.sources[self._side.arrangement][self.report.branch], row, present_by_column
            )
        if judgement.any():
            for code, reason in REASONS.items():
                self._count(reason, judgement == code)
        on_time = part & (judgement == ON_TIME)
        filtered = on_time & (flags == FLAG_FILTERED)
        self._count("filtered", filtered)
        candidate = on_time & (flags == FLAG_CANDIDATE)
        unmatchable = on_time & ~filtered & ~candidate
        if unmatchable.any():
            if self._side.padded:
                self._count("padded", unmatchable)
                self._writer.pad(self._columns(self._side, batch, times, unmatchable))
            else:
                self._count("unmatchable", unmatchable)
        if candidate.any():
            self._count("passed" if self._side.passes else "kept", candidate)
            if self._written is None:
                pass  # the same rows are written for another side
            elif self._side.layout.ties is None:
                self._writer.take(self._columns(self._written, batch, times, candidate))
            else:
                for name, rows in partitions:
                    own = _where(candidate, rows)
                    if own.any():
                        self._writer.take(self._columns(self._written, batch, times, own), name)
        return judgement

    def missed_columns(self, mask: Mask) -> list[pa.Array]:
        """Of the chosen rows of the last batch: the watermark key that each missed, that watermark (less
        allowed_lateness) as text, and by how much; NULLs for rows that were not late."""
        return missed_columns(self.missed, self._side.name, self._late_below, self._integer, mask)

    def finish(self) -> IngestReport:
        """Write what is held and return the report."""
        self.report.runs, self.report.pads = self._writer.finish()
        self.report.copies = self._writer.copies()
        self.report.traffic = taken_of(self._store)
        return self.report

    def _count(self, what: str, mask: Mask) -> None:
        rows = standing_for(mask, self._times_each)
        if rows:
            self.report.counts[what] = self.report.counts.get(what, 0) + rows

    def _event_times(self, batch: pa.RecordBatch) -> tuple[dict[str, Times], dict[str, Mask | None]]:
        """Per event-time column its values (any where NULL), and where there are some (None: everywhere)."""
        times: dict[str, Times] = {}
        present_by_column: dict[str, Mask | None] = {}
        for column in self._side.layout.event_times:
            values = known_times(batch.column(column))
            present_by_column[column] = None
            if values.null_count:
                present_by_column[column] = values.is_valid().to_numpy(zero_copy_only=False)
                values = pc.fill_null(values, 0)
            times[column] = values.to_numpy(zero_copy_only=True)
        return times, present_by_column

    def _observe(
        self, partitions: list[tuple[str, Mask | None]], column: str, values: Times, judged: Mask
    ) -> None:
        """The greatest times per source partition, over all rows that arrived, late ones too."""
        whole = bool(judged.all())
        for name, mask in partitions:
            greatest = self.report.greatest.setdefault(name, {})
            if mask is not None or not whole:
                chosen = values[judged if mask is None else judged & mask]
                if not len(chosen):
                    continue
                top = int(chosen.max())
            else:
                top = int(values.max())
            greatest[column] = max(greatest.get(column, top), top)

    def _columns(
        self, side: SideShape, batch: pa.RecordBatch, times: dict[str, Times], mask: Mask
    ) -> pa.RecordBatch:
        """The columns that ``side`` keeps of the chosen rows, as runs hold them (and `DIFF` where rows carry
        one)."""
        arrays = [numbers(times[name]) if name in times else batch.column(name) for name in side.schema.names]
        names = list(side.schema.names)
        for name in self._side.nullable:  # by rows of stages alone
            arrays.append(pa.array(np.zeros(batch.num_rows, dtype=np.bool_)))
            names.append(null_column(name))
        if self._side.changes:
            arrays.append(
                batch.column(DIFF)
                if DIFF in batch.schema.names
                else pa.array(np.ones(batch.num_rows, dtype=np.int64))
            )
            names.append(DIFF)
        chosen = pa.RecordBatch.from_arrays(arrays, names=names)
        return chosen if mask.all() else chosen.filter(pa.array(mask))


def _where(mask: Mask, present: Mask | None) -> Mask:
    return mask if present is None else mask & present


def _per_partition(batch: pa.RecordBatch, part: Mask) -> list[tuple[str, Mask | None]]:
    """(partition, its rows; None for all of the batch) of those that have rows; rows without one share ""."""
    everything = None if part.all() else part
    if PARTITION not in batch.schema.names:
        return [("", everything)] if part.any() else []
    if batch.column(PARTITION).null_count == batch.num_rows:
        return [("", everything)] if part.any() else []
    coded = pc.dictionary_encode(batch.column(PARTITION), null_encoding="encode")
    names = ["" if name is None else str(name) for name in coded.dictionary.to_pylist()]
    if len(names) == 1:
        return [(names[0], everything)] if part.any() else []
    codes = coded.indices.to_numpy(zero_copy_only=False)
    masks = [(name, part & (codes == code)) for code, name in enumerate(names)]
    return [(name, mask) for name, mask in masks if mask.any()]
