"""Format rows and keys for messages."""

from __future__ import annotations

import json

import pyarrow as pa

from watersmeet.kernel.event_times import to_native
from watersmeet.names import is_ours
from watersmeet.runtime.messages.shapes import SideShape
from watersmeet.state.runs.heavy_hitters import shown_time
from watersmeet.types.json_values import values_of

SAMPLES = 5
"""Of so many rows a task tells."""


def rows_as_json(schema: pa.Schema, rows: pa.RecordBatch) -> list[str]:
    """Format stored rows as JSON, one object per row, with the columns and types of ``schema``.

    Columns that a query computed, this query or another one, are left out.
    """
    declared = [field for field in schema if not is_ours(field.name)]
    columns = {f.name: values_of(to_native(rows.column(f.name), f.type)) for f in declared}
    return [
        json.dumps({name: values[row] for name, values in columns.items()}, ensure_ascii=False)
        for row in range(rows.num_rows)
    ]


def key_as_written(side: SideShape, key: str) -> str:
    """Format a key on one line as users write it.

    The function doubles quotes and escapes unprintable characters, because terminals and logs show the
    text.

    Args:
        key: see `state.runs.heavy_hitters.format_key`.
    """
    texts = {column.name: column.text for column in side.layout.columns}
    told = []
    for name, value in json.loads(key).items():
        if name in side.layout.event_times and value is not None:
            kind = side.schema.field(name).type
            if pa.types.is_temporal(kind):
                value = shown_time(to_native(pa.array([value], pa.int64()), kind))
        shown = _quote_text(value) if isinstance(value, str) else "NULL" if value is None else str(value)
        told.append(f"{texts.get(name, name) if is_ours(name) else name} = {shown}")
    return ", ".join(told)


def _quote_text(text: str) -> str:
    shown = "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text)
    return "'" + shown.replace("'", "''") + "'"
