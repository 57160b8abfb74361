"""Parquet files that tasks write, and which columns get a dictionary."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from watersmeet.sinks.directory import translate_write_errors

# Which columns of a Parquet file are written with a dictionary: those whose values come again and again.
#
# A dictionary of values that are nearly all different makes a file larger, and costs more to write than
# the values themselves; of few values it makes a quarter of them, whatever their type, and every reader
# reads it. Delta encoding would take less still for numbers and times, but readers that are in use refuse
# it: Flink's, and Iceberg's for Spark before 1.10. So it is for files that nobody else reads.

MIN_SAMPLED_ROWS = 4096
"""Rows, from which on it is worth to look at them."""
_SAMPLE_ROWS = 1024
"""So many of them, drawn at random, always the same ones: equal values may lie together, or at a distance."""
_FEW_TEXTS, _FEW_OTHERS = 1 / 4, 1 / 16
"""Of the rows: so many different values, at most, are worth a dictionary. Numbers and times are as short as
the numbers of a large dictionary, and compress well where they come in order."""
_SAID = 64
"""Values in the sample, from which on they say something of the column: in the first rows of an outer join
there may be none but NULLs."""


def dictionary_columns(rows: pa.Table | pa.RecordBatch) -> list[str]:
    """Return the columns of plain types that have few distinct values for their number of rows.

    Estimates from a sample. With so few rows that sampling costs more than it saves, returns the text
    columns. Cost: that of the sample, whatever the number of rows.

    >>> dictionary_columns(pa.table({"id": range(5000), "day": [n % 7 for n in range(5000)]}))
    ['day']
    """
    count = rows.num_rows
    if count < MIN_SAMPLED_ROWS:
        return [field.name for field in rows.schema if is_text(field.type)]
    drawn = np.random.default_rng(0).integers(0, count, _SAMPLE_ROWS)
    sample = rows.take(pa.array(np.sort(drawn)))
    return [
        field.name
        for field, column in zip(rows.schema, sample.columns, strict=True)
        if _is_plain(field.type) and _is_worth_it(column, count)
    ]


def dictionaries_of(rows: pa.Table) -> list[str] | bool:
    """Return the columns with few distinct values, in the format of a Parquet writer's option.

    Returns:
        The column names; True (all columns, including nested ones) if any column is nested; False if
        there are none.
    """
    if any(pa.types.is_nested(field.type) for field in rows.schema):
        return True
    return dictionary_columns(rows) or False


def encodings_of_own(rows: pa.Table, schema: pa.Schema) -> dict[str, Any]:
    """Return `ParquetWriter` arguments for a file that only this program reads.

    Numbers and times without a dictionary are delta encoded.

    Args:
        rows: Rows like those of the file.
        schema: Columns of the file.
    """
    coded = dictionary_columns(rows)
    differences = {f.name: "DELTA_BINARY_PACKED" for f in schema if f.name not in coded and _is_whole(f.type)}
    return {"use_dictionary": coded or False, "column_encoding": differences or None}


def _is_whole(kind: pa.DataType) -> bool:
    """Return True if Parquet stores the values as integers of 32 or 64 bits."""
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def _is_worth_it(sample: pa.ChunkedArray, count: int) -> bool:
    """Return True if a column's sample has few enough distinct values for a dictionary.

    NULLs are ignored: they cost the same either way. A column without enough values gives no estimate;
    a dictionary is then used for texts, as for few rows.

    Args:
        count: Number of rows from which the sample was drawn.
    """
    values = len(sample) - sample.null_count
    if values < _SAID:
        return is_text(sample.type)
    different = count * values / len(sample) * (_FEW_TEXTS if is_text(sample.type) else _FEW_OTHERS)
    # so many the sample has, about, if as many as are worth it are among all rows
    most = different * -math.expm1(-values / different)
    return bool(len(pc.unique(sample.drop_null())) <= most)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind))


# Parquet files that a node's tasks write themselves, straight from Arrow.
#
# Why this exists beside Spark's writer: rows that leave the join as they are would go from Arrow in
# Python to the JVM, become rows there, and then columns again. Spark still runs the tasks, and runs them
# again when they fail.
#
# A partition's file has one name whoever writes it, and takes it in one step when it is whole: of several
# attempts of a task the last one counts, and all have the same rows.

SAMPLE_BYTES = 32 << 20
"""Maximum bytes of rows to buffer before deciding which columns get a dictionary."""

HINT = "free some space there, or check the permissions, and run again: the tick is repeated"


def can_write(schema: pa.Schema) -> bool:
    """Return True if Spark's own files would have the same types: plain types only."""
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
                with translate_write_errors(self.folder, HINT):
                    if writer is None:
                        coded = dictionary_columns(pa.Table.from_batches(first))
                        writer = parquet.ParquetWriter(
                            staged, schema, compression="snappy", use_dictionary=coded or False
                        )
                    writer.write_batch(batch)
        finally:
            if writer is not None:
                with translate_write_errors(self.folder, HINT):
                    writer.close()
        if writer is not None:
            with translate_write_errors(self.folder, HINT):
                os.replace(staged, os.path.join(self.folder, f"part-{partition:05d}.parquet"))


def _first(rows: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Read enough batches to sample, within a memory limit; for wide rows these are few."""
    first: list[pa.RecordBatch] = []
    count = nbytes = 0
    while count < MIN_SAMPLED_ROWS and nbytes < SAMPLE_BYTES and (batch := next(rows, None)) is not None:
        first.append(batch)
        count += batch.num_rows
        nbytes += batch.nbytes
    return first
