"""Records of a tick until they are sent: staged rows with the columns ``key`` and ``value``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.sinks.base import Files, StagedPart
from watersmeet.sinks.staged_rows import RowsPart, Staged, batches_in

_COLUMNS = ("key", "value")
_SCHEMA = pa.schema([(name, pa.large_binary()) for name in _COLUMNS])


@dataclass(frozen=True)
class KafkaPart:
    """Stages the records of partitions: rows with the columns ``key``, if there are keys, and ``value``.

    Args:
        files, folder: as of `RowsPart`, which it tells the same as.
    """

    files: Files = field(repr=False)
    folder: str

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage all records of a partition, in order."""
        return RowsPart(self.files, self.folder).write(partition, _SCHEMA, map(_records, rows))


def records_in(files: Files, staged: Sequence[Staged], sink: str) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of all records of the files, in order.

    Raises:
        EngineError: a file has not the rows that it had.
    """
    for name, rows in staged:
        for batch in batches_in(files, name, rows, sink):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _records(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        batch.column(name).cast(pa.large_binary())
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, pa.large_binary())
        for name in _COLUMNS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
