"""Rows as people are told of them: the samples of what was not applied."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa

from watersmeet.kernel.times import to_native
from watersmeet.names import is_ours

SAMPLES = 5
"""Of so many rows a task tells."""


def rows_as_json(schema: pa.Schema, rows: pa.RecordBatch) -> list[str]:
    """The columns of ``schema``, in whose types they are told, of stored rows: a JSON object per row. What
    was computed for a query, this one or another, is left out."""
    declared = [field for field in schema if not is_ours(field.name)]
    columns = {f.name: to_native(rows.column(f.name), f.type).to_pylist() for f in declared}
    return [
        json.dumps({name: _plain(values[row]) for name, values in columns.items()}, ensure_ascii=False)
        for row in range(rows.num_rows)
    ]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    return str(value)
