"""Frames of Arrow tables, for sinks without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tests.support.columns import column


class ArrowFrame:
    """What a sink asks of a frame. Each batch is a partition; each task runs twice, and of it the second
    attempt's rows arrive."""

    def __init__(self, rows: pa.Table, types: list[str], partitions: int = 2, names: Any = None) -> None:
        self._rows, self._partitions = rows, partitions
        self.schema = [column(name, kind) for name, kind in zip(rows.schema.names, types, strict=True)]

    def mapInArrow(self, task: Any, schema: str) -> ArrowFrame:
        self._task, self._name = pickle.loads(pickle.dumps(task)), schema.split()[0]
        return self

    def collect(self) -> list[tuple[str]]:
        rows = []
        for batches in self._parts():
            list(self._task(iter(batches)))
            for batch in self._task(iter(batches)):
                rows += [(text,) for text in batch.column(self._name).to_pylist()]
        return rows

    def _parts(self) -> Iterator[list[pa.RecordBatch]]:
        size = -(-self._rows.num_rows // self._partitions) or 1
        for low in range(0, self._rows.num_rows, size):
            yield self._rows.slice(low, size).to_batches()
