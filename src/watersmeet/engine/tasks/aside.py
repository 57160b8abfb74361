"""Rows that were judged and set aside: as they are kept, and which watermark they missed.

A file of late rows of a stage holds, per row, `ASIDE_COLUMNS`: the ``record`` (the columns that the query
keeps of it), the watermark key that it missed, that watermark (less allowed_lateness, at the start of the
tick) as text, and by how much. What Spark's ingest sets aside has the same columns.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from watersmeet.engine.messages.reports import PadFile
from watersmeet.event_time import Mask, Watermark, shown_time
from watersmeet.state.store import Store
from watersmeet.watermark.lateness import Missed

ASIDE_COLUMNS = ("record", "watermark_key", "watermark", "late_by")


def missed_columns(
    missed: Missed | None,
    name: str,
    late_below: Mapping[str, Watermark],
    integer: Mapping[str, bool],
    mask: Mask,
) -> list[pa.Array]:
    """Of the chosen rows of a batch: the last three of `ASIDE_COLUMNS`; NULLs for rows that were not late.

    Args:
        missed: of the batch; None: none was late.
        name: the input's.
        integer: per event time, whether it is one.
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
    """The batches (at least one) as one file."""
    name = f"aside/{reason}-{tick}-{uuid.uuid4().hex[:16]}.arrow"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    store.write(name, sink.getvalue())
    return PadFile(name=name, rows=sum(rejected.num_rows for rejected in batches))
