"""Parquet files that tasks put into an object store, where readers do not look.

Every attempt of a task puts an object of a new name, whole, and says so to the driver, which makes one object
of those of a tick.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from watersmeet.sinks.dictionaries import encodings_of_own
from watersmeet.sinks.lake.lake_part import in_table, table_schema
from watersmeet.sinks.stored.place import put, stored_place, temporary_folder

_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 128 << 20
"""Of a row group, at most, about."""


@dataclass(frozen=True)
class StoredPart:
    """Stages rows as objects ``folder/name-….parquet``.

    Args:
        url, endpoint, region: see `stored_place`.
    """

    url: str
    endpoint: str
    region: str
    folder: str
    name: str

    def write(
        self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]
    ) -> dict[str, Any] | None:
        """Put all ``rows``: the object's ``name``, its ``rows``. None: there are no rows, and no object."""
        wanted = table_schema(schema, widened=False)
        name = f"{self.folder}/{self.name}-{partition:05d}-{uuid.uuid4().hex}.parquet"
        count = 0
        with temporary_folder() as folder:
            staged = folder / "part.parquet"
            groups = _groups(rows)
            first = next(groups, wanted.empty_table())
            with parquet.ParquetWriter(staged, wanted, **encodings_of_own(first, wanted)) as writer:
                for group in chain((first,), groups):
                    count += group.num_rows
                    writer.write_table(in_table(group, wanted))
            if count:
                put(stored_place(self.url, self.endpoint, self.region), name, staged)
        return {"name": name, "rows": count} if count else None


def _groups(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables that are large enough to be row groups."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in rows:
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, count, size = [], 0, 0
    if count:
        yield pa.Table.from_batches(held)
