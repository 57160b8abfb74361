"""Data files that tasks write into a table's place. Nobody sees them until a commit names them.

Every attempt of a task writes a file of a new name; what it says of it goes to the driver, which commits the
files of one attempt per task. Values are as tables have them: times in µs of UTC, or of no zone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from watersmeet.durable import sync
from watersmeet.sinks.dictionaries import worth_a_dictionary
from watersmeet.sinks.lake.field_ids import FieldIds, with_ids
from watersmeet.sinks.lake.statistics import check_times, statistics_of
from watersmeet.sinks.lake.storage import Storage, writing_told
from watersmeet.sinks.lake.texts import check_texts

_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 128 << 20
"""Of a row group, at most, about."""


@dataclass(frozen=True)
class LakePart:
    """Stages rows as files ``folder/name-….parquet``.

    Args:
        s3, endpoint, region: see `Storage`.
        widened: the table has no integers of less than 32 bits.
        ids: those of its columns, if it has any.
    """

    folder: str
    name: str
    s3: bool = False
    endpoint: str = ""
    region: str = ""
    widened: bool = False
    ids: FieldIds = field(default_factory=dict)

    def write(
        self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]
    ) -> dict[str, Any] | None:
        """Write all ``rows``; what the file is: ``path``, ``size`` in bytes, ``bytes`` in memory,
        ``rows``, ``stats``, ``ids`` of its columns, ``written_ms`` since 1970. None: there are no rows,
        and no file."""
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is None:
            return None
        path = f"{self.folder}/{self.name}-{partition:05d}-{uuid.uuid4().hex}.parquet"
        storage = Storage(self.s3, self.endpoint, self.region)
        wanted = with_ids(table_schema(schema, widened=self.widened), self.ids)
        groups = _groups(first, rows)
        looked_at = next(groups)
        coded = worth_a_dictionary(looked_at)
        held = 0
        with writing_told(self.folder, s3=self.s3), storage.connect().open_output_stream(path) as out:
            with parquet.ParquetWriter(
                out, wanted, compression="zstd", use_dictionary=coded or False
            ) as writer:
                for group in chain((looked_at,), groups):
                    held += group.nbytes
                    check_texts(group, self.folder)
                    writer.write_table(in_table(group, wanted))
            footer = writer.writer.metadata  # one asked for beforehand hides why a file cannot be written
            size = out.tell()
        if self.widened:
            check_times(footer, self.folder)
        if not self.s3:
            with writing_told(self.folder, s3=False):
                sync(path)
        return {
            "path": path,
            "size": size,
            "rows": footer.num_rows,
            "bytes": held,
            "stats": statistics_of(footer, wanted),
            "ids": {name: self.ids[name] for name in wanted.names if name in self.ids},
            "written_ms": time.time_ns() // 1_000_000,
        }


def _groups(first: pa.RecordBatch, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables that are large enough to be row groups."""
    held, count, size = [first], first.num_rows, first.nbytes
    for batch in rows:
        if count >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, count, size = [], 0, 0
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
    if held:
        yield pa.Table.from_batches(held)


def in_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows as columns of ``schema``, which has wider types of them, or another zone's name."""
    return pa.Table.from_arrays(
        [column.cast(f.type) for column, f in zip(rows.columns, schema, strict=True)], schema=schema
    )


def table_schema(schema: pa.Schema, *, widened: bool) -> pa.Schema:
    """The columns of a table that takes rows of ``schema``; all may be NULL."""
    return pa.schema([pa.field(field.name, table_type(field.type, widened=widened)) for field in schema])


def table_type(kind: pa.DataType, *, widened: bool) -> pa.DataType:
    """The type of a table's column for values of ``kind``."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz is not None else None)
    if widened and (pa.types.is_int8(kind) or pa.types.is_int16(kind)):
        return pa.int32()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, table_type(f.type, widened=widened)) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", table_type(kind.value_type, widened=widened)))
    if pa.types.is_map(kind):
        return pa.map_(
            table_type(kind.key_type, widened=widened), table_type(kind.item_type, widened=widened)
        )
    return kind
