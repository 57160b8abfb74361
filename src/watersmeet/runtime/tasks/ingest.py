"""Ingest: judge rows, count them, write those that may match and side outputs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask, Times, Watermark, are_below, shown_time
from watersmeet.kernel.batches import numbers
from watersmeet.kernel.ordinals import known_times
from watersmeet.names import DIFF, FLAG, PARTITION
from watersmeet.runtime.messages.reports import IngestReport, PadFile
from watersmeet.runtime.messages.shapes import SideShape
from watersmeet.runtime.messages.work import TickStart
from watersmeet.runtime.tasks.multiplicity import read_multiplicities, sum_multiplicities
from watersmeet.runtime.tasks.run_writer import SideWriter
from watersmeet.spec.flags import FLAG_BENEATH, FLAG_CANDIDATE, FLAG_FILTERED, FLAG_UNMATCHABLE
from watersmeet.state.runs.layout import null_column
from watersmeet.state.store import Store, take_traffic
from watersmeet.types.json_values import rows_of
from watersmeet.watermark.lateness import MissedWatermarks

# What each row of a batch is worth to its join: by the flag computed of it, and by NULLs.

Flags = npt.NDArray[np.int8]


def compute_flags(rows: pa.RecordBatch, not_null: Iterable[str]) -> Flags:
    """Compute int8[n] of the FLAG_ constants.

    Args:
        rows: with `FLAG`, int8 without NULLs; without the column, all rows are candidates.
        not_null: columns in which a NULL makes a candidate match nothing.
    """
    flags: Flags = np.full(rows.num_rows, FLAG_CANDIDATE, dtype=np.int8)
    if FLAG in rows.schema.names:
        flags = rows.column(FLAG).to_numpy(zero_copy_only=False)
    for name in not_null:
        column = rows.column(name)
        if column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            flags = np.where(missing & (flags == FLAG_CANDIDATE), np.int8(FLAG_UNMATCHABLE), flags)
    return flags


# A row without an event time, where that fails the job: what the error says.

LONGEST = 500
"""Characters of the row that are shown."""


def null_time_error(source: str, row: pa.RecordBatch, present: Mapping[str, Mask | None]) -> EngineError:
    """Build the error about a row without a valid event time.

    Args:
        row: one row in the form of ingest.
        present: for each event time the mask of values that are not NULL.
    """
    (values,) = rows_of(row)
    told = dict(zip(row.schema.names, values, strict=True))
    empty = [
        f"{column} ({'NULL' if told[column] is None else 'out of range'})"
        for column in present
        if known_times(row.column(column)).null_count
    ]
    shown = json.dumps({n: value for n, value in told.items() if not n.startswith("_")}, ensure_ascii=False)
    if len(shown) > LONGEST:
        shown = shown[:LONGEST] + " …"
    partition = told.get(PARTITION)
    where = f" (partition {partition})" if partition is not None else ""
    return EngineError(
        f'source "{source}"{where}: a row has no valid {" and no valid ".join(empty)}, '
        f"and on_null_time is 'fail'; the row: {shown}",
        code="null-time",
        hint="SET on_null_time = 'count' to drop and count such rows; SET late_output writes them to a sink",
    )


# Rows that were judged and set aside: as they are kept, and which watermark they missed.
#
# A file of late rows of a stage holds, per row, `SIDE_OUTPUT_COLUMNS`: the ``record`` (the columns that the
# query keeps of it), the watermark key that it missed, that watermark (less allowed_lateness, at the
# start of the tick) as text, and by how much. What Spark's ingest sets aside has the same columns.

SIDE_OUTPUT_COLUMNS = ("record", "watermark_key", "watermark", "late_by")


def missed_columns(
    missed: MissedWatermarks | None,
    name: str,
    late_below: Mapping[str, Watermark],
    integer: Mapping[str, bool],
    mask: Mask,
) -> list[pa.Array]:
    """Build the last three of `SIDE_OUTPUT_COLUMNS` for the chosen rows of a batch.

    Rows that are not late have NULLs.

    Args:
        missed: missed watermarks of the batch; None if no row is late.
        name: name of the input.
        integer: for each event time, True if it is an integer.
    """
    rows = int(mask.sum())
    if missed is None:
        return [pa.nulls(rows, kind) for kind in (pa.string(), pa.string(), pa.int64())]
    codes = missed.column[mask]
    late_by = pa.array(missed.late_by[mask], mask=codes < 0)
    taken = pa.array(codes, mask=codes < 0)
    keys = [f"{name}.{column}" for column in missed.columns]
    marks = [shown_time(late_below[c], integer[c]) for c in missed.columns]
    return [pa.array(texts, pa.string()).take(taken) for texts in (keys, marks)] + [late_by]


def write_aside(store: Store, reason: str, tick: int, batches: Sequence[pa.RecordBatch]) -> PadFile:
    """Write the batches (at least one) as one side output file."""
    name = f"aside/{reason}-{tick}-{uuid.uuid4().hex[:16]}.arrow"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    store.write(name, sink.getvalue())
    return PadFile(name=name, rows=sum(rejected.num_rows for rejected in batches))


# The first half of a tick: judge rows, count them, and have those written that may match.
#
# An `IngestWriter` takes the rows of one branch of one input, in batches as they come. Every row ends in
# exactly one count: ``beneath`` (not part of the stream), ``null_time``, ``ahead``, ``late``,
# ``filtered``, ``unmatchable``, ``padded`` (a pad of its own tick), ``passed`` (put out in its tick by a
# node that keeps none) or ``kept`` (in a run).

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
        self.missed: MissedWatermarks | None = None
        self._times_each: npt.NDArray[np.int64] | None = None
        self.report = IngestReport(arrangement=arrangement, branch=branch)

    def add(self, batch: pa.RecordBatch) -> Judgement:
        """Add a batch and return the outcome of each row.

        Args:
            batch: the stored columns in native types, and optionally `FLAG` (absent: all rows are
                candidates), `PARTITION` and `DIFF`.

        Returns:
            int8[n] of ON_TIME, LATE, NULL_TIME, AHEAD. Rows that a pushed-down condition excludes and
            filtered rows are ON_TIME here.

        Raises:
            EngineError: a row's event time is NULL, and this fails the job.
        """
        self.missed = None
        judgement = np.zeros(batch.num_rows, dtype=np.int8)
        if batch.num_rows == 0:
            return judgement
        flags = compute_flags(batch, self._side.not_null)
        part = flags != FLAG_BENEATH
        self._times_each = read_multiplicities(batch)
        self._count("beneath", ~part)
        self._count("in", part)
        times, present_by_column = self._event_times(batch)
        judged = part
        if self._ahead_above is not None:
            for column, values in times.items():
                if self._integer[column]:
                    continue  # a number has no place on the clock
                ahead = _mask_present(part, present_by_column[column]) & (values > self._ahead_above)
                judgement[ahead] = AHEAD
                if ahead.any():
                    furthest = max(int(values[ahead].max()), self.report.furthest.get(column, 0))
                    self.report.furthest[column] = furthest
            judged = part & (judgement != AHEAD)
        partitions = _split_by_partition(batch, part)
        for column, values in times.items():
            mask = _mask_present(judged, present_by_column[column])
            self._observe(partitions, column, values, mask)
            late = mask & are_below(values, self._late_below[column])
            if late.any():
                judgement[late] = LATE
                self.missed = self.missed or MissedWatermarks(batch.num_rows, self._integer)
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
                    own = _mask_present(candidate, rows)
                    if own.any():
                        self._writer.take(self._columns(self._written, batch, times, own), name)
        return judgement

    def missed_columns(self, mask: Mask) -> list[pa.Array]:
        """Build the columns that say which watermark each chosen row of the last batch missed.

        The columns are the watermark key, that watermark (minus allowed_lateness) as text, and the
        difference. Rows that are not late have NULLs.
        """
        return missed_columns(self.missed, self._side.name, self._late_below, self._integer, mask)

    def finish(self) -> IngestReport:
        """Write what is held and return the report."""
        self.report.runs, self.report.pads = self._writer.finish()
        self.report.copies = self._writer.copies()
        self.report.traffic = take_traffic(self._store)
        return self.report

    def _count(self, what: str, mask: Mask) -> None:
        rows = sum_multiplicities(mask, self._times_each)
        if rows:
            self.report.counts[what] = self.report.counts.get(what, 0) + rows

    def _event_times(self, batch: pa.RecordBatch) -> tuple[dict[str, Times], dict[str, Mask | None]]:
        """Return per event-time column its values, and the mask of those that are not NULL.

        Values at NULLs are arbitrary. The mask is None if there are no NULLs.
        """
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
        """Record the maximum times per source partition over all arrived rows, including late ones."""
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
        """Select the columns that ``side`` retains of the chosen rows, in the format of runs.

        If rows have `DIFF`, the result has it, too.
        """
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


def _mask_present(mask: Mask, present: Mask | None) -> Mask:
    return mask if present is None else mask & present


def _split_by_partition(batch: pa.RecordBatch, part: Mask) -> list[tuple[str, Mask | None]]:
    """Split the rows by source partition.

    Returns:
        Pairs (partition, mask of its rows; None for the whole batch) of the partitions that have rows.
        Rows without a partition have the name "".
    """
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
