"""Parquet files that a node's tasks write themselves, straight from Arrow.

Why this exists beside Spark's writer: rows that leave the join as they are would go from Arrow in Python to
the JVM, become rows there, and then columns again. Spark still runs the tasks, and runs them again when they
fail.

A partition's file has one name whoever writes it, and takes it in one step when it is whole: of several
attempts of a task the last one counts, and all have the same rows.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyarrow import parquet

from watersmeet.sinks.dictionaries import LOOK_FROM, worth_a_dictionary
from watersmeet.sinks.on_disk import refusals_told

SAMPLE_BYTES = 32 << 20
"""Maximum bytes of rows to buffer before deciding which columns get a dictionary."""

HINT = "free some space there, or check the permissions, and run again: the tick is repeated"


def can_write(schema: pa.Schema) -> bool:
    """Whether Spark's own files would hold the same types: plain ones only."""
    return not any(pa.types.is_nested(field.type) or pa.types.is_null(field.type) for field in schema)


@dataclass(frozen=True)
class ParquetPart:
    """Stages the rows of partitions as files of the directory ``folder``."""

    folder: str

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> None:
        """Write all ``rows`` of a partition; no file when there are none."""
        writer: parquet.ParquetWriter | None = None
        staged = os.path.join(self.folder, f".{uuid.uuid4().hex}.tmp")
        first = _first(rows)
        try:
            for batch in chain(first, rows):
                with refusals_told(self.folder, HINT):
                    if writer is None:
                        coded = worth_a_dictionary(pa.Table.from_batches(first))
                        writer = parquet.ParquetWriter(
                            staged, schema, compression="snappy", use_dictionary=coded or False
                        )
                    writer.write_batch(batch)
        finally:
            if writer is not None:
                with refusals_told(self.folder, HINT):
                    writer.close()
        if writer is not None:
            with refusals_told(self.folder, HINT):
                os.replace(staged, os.path.join(self.folder, f"part-{partition:05d}.parquet"))


def _first(rows: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """As many as are enough to look at, or to hold: of wide rows these are few."""
    first: list[pa.RecordBatch] = []
    count = nbytes = 0
    while count < LOOK_FROM and nbytes < SAMPLE_BYTES and (batch := next(rows, None)) is not None:
        first.append(batch)
        count += batch.num_rows
        nbytes += batch.nbytes
    return first
