"""Records of a tick until they are sent: files beside the job's state, written by tasks.

Names say the tick, so that those of attempts that were killed are removed with what else ticks leave.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.sinks.base import Files, StagedPart

_FILE_BYTES, _FILE_ROWS = 32 << 20, 500_000
_COLUMNS = ("key", "value")
_SCHEMA = pa.schema([(name, pa.large_binary()) for name in _COLUMNS])


@dataclass(frozen=True)
class KafkaPart:
    """Stages the records of partitions: rows with the columns ``key``, if there are keys, and ``value``.

    Args:
        files: where to.
        folder: how names of the files begin.

    What it tells: ``files``, a list of [name, rows].
    """

    files: Files = field(repr=False)
    folder: str

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage all records of a partition, in order."""
        return {"files": [self._file(piece) for piece in _pieces(map(_records, rows))]}

    def _file(self, batches: Sequence[pa.RecordBatch]) -> list[object]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as writer:
            for batch in batches:
                writer.write_batch(batch)
        name = f"{self.folder}{uuid.uuid4().hex}.arrow"
        self.files.write(name, sink.getvalue(), lasting=False)
        return [name, sum(batch.num_rows for batch in batches)]


def records_in(files: Files, staged: Sequence[tuple[str, int]], sink: str) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of all records of the files, in order.

    Raises:
        EngineError: a file has not the rows that it had.
    """
    for name, rows in staged:
        there = 0
        for batch in pa.ipc.open_stream(files.read(name)):
            there += batch.num_rows
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        if there != rows:
            raise EngineError(
                f'of {rows:,} staged rows {there:,} are in {name} (sink "{sink}"); nothing was published',
                code="staged-rows-gone",
                hint="please report this; run again: the tick is repeated",
            )


def _records(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        batch.column(name).cast(pa.large_binary())
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, pa.large_binary())
        for name in _COLUMNS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.nbytes for b in held) >= _FILE_BYTES or sum(b.num_rows for b in held) >= _FILE_ROWS:
            yield held
            held = []
    if held:
        yield held
