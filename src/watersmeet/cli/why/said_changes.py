"""What records say of themselves: how often the row of each comes, or goes, and of which key it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.engine.local.evaluate import value_of
from watersmeet.event_time import Mask
from watersmeet.names import DIFF
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import diff_of
from watersmeet.spec.records.changes import columns_of_deletes
from watersmeet.why.reread import Numbers


def as_changes(source: Source, rows: pa.Table, zone: str) -> tuple[pa.Table, Mask]:
    """The rows with what their records say in `DIFF`, and of which it is said: others are broken. Of a table
    with a primary key those that go have nothing but what says which change it is, as in a run.

    Args:
        rows: of the declared columns and `DIFF`, as it is by the format alone.
        zone: the time zone in which columns are computed that records have not.

    Raises: EngineError, where only Spark computes them.
    """
    diffs: Numbers = rows.column(DIFF).to_numpy().astype(np.int64)
    says: Mask = np.ones(len(diffs), dtype=np.bool_)
    change, key = source.change_column, source.primary_key
    if change is not None:
        told: dict[Any, int | None] = {}
        values = value_of(source, change.column, rows, zone).to_pylist()
        for value in set(values):
            told[value] = diff_of(change, value)
        says &= np.array([told[value] is not None for value in values], dtype=np.bool_)
        diffs = np.array([told[value] or 0 for value in values], dtype=np.int64)
        rows = rows.set_column(rows.schema.get_field_index(DIFF), DIFF, pa.array(diffs))
    if key is None:
        return rows, says
    for name in key.columns:
        says &= ~_is_null(value_of(source, name, rows, zone))
    goes, of_deletes = diffs < 0, columns_of_deletes(source)
    if key.sequence is not None:
        says &= (diffs <= 0) | ~_is_null(value_of(source, key.sequence, rows, zone))
    if goes.any():
        for column in source.row_columns:
            if column.name not in of_deletes:
                at, values = rows.schema.get_field_index(column.name), rows.column(column.name)
                kept = pa.compute.if_else(pa.array(goes), pa.scalar(None, values.type), values)
                rows = rows.set_column(at, column.name, kept)
    return rows, says


def _is_null(values: pa.ChunkedArray) -> Mask:
    missing: Mask = values.is_null().to_numpy()
    return missing
