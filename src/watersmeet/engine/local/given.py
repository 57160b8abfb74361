"""What ticks of the in-process job are given: rows of cases as mappings, and tables that were pushed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.engine.local.evaluate import value_of
from watersmeet.engine.values import to_json, to_table
from watersmeet.errors import EngineError
from watersmeet.event_time import Mask
from watersmeet.kernel.batches import one_table
from watersmeet.names import CASE_PARTITION, DIFF, PARTITION, SHOWN_DIFF
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import diff_of
from watersmeet.spec.records.changes import columns_of_deletes, said_by
from watersmeet.spec.time_zones import UTC
from watersmeet.types.sql_type import TIMESTAMP

Row = Mapping[str, Any]
Change = tuple[Row, int]


@dataclass(frozen=True)
class Given:
    """Of one source in one tick: ``changes``, and behind them ``pushed``. ``table``: all of that."""

    source: Source
    changes: Sequence[Change]
    pushed: Sequence[pa.Table]
    table: pa.Table

    def late_changes(self, late: Mask) -> list[Row]:
        """Return the late ones of ``changes``, but for rows that come and go in the same tick."""
        return _left_over([self.changes[int(at)] for at in np.flatnonzero(late[: len(self.changes)])])

    def late_pushed(self, late: Mask) -> pa.Table | None:
        """Return the late rows of ``pushed``, or None if no row is late.

        They have all declared columns, and `SHOWN_DIFF` where rows may go.
        """
        own = late[len(self.changes) :]
        if not own.any():
            return None
        rows = one_table(self.pushed).filter(pa.array(own)).drop_columns([PARTITION])
        if not self.source.changes:
            return rows.drop_columns([DIFF])
        names = [SHOWN_DIFF if name == DIFF else name for name in rows.column_names]
        return rows.rename_columns(names)


def given_of(source: Source, changes: Sequence[Change], pushed: Sequence[pa.Table], zone: str = UTC) -> Given:
    """Build what a tick is given of a source; ``pushed`` may have more columns than ``source`` declares."""
    tables = list(pushed)
    if changes or not tables:
        tables.insert(0, to_table(source.columns, *_rows_and_diffs(source, changes, zone)))
    names = tables[0].column_names if changes else [column.name for column in source.columns]
    names = [*dict.fromkeys([*names, PARTITION, DIFF])]
    table = one_table([table.select(names) for table in tables])
    return Given(source, changes, pushed, table)


def changes_of(pushed: Sequence[pa.Table]) -> list[Change]:
    """Return pushed rows one by one, for tables that are held as rows."""
    changes: list[Change] = []
    for table in pushed:
        diffs = table.column(DIFF).to_pylist()
        changes += zip(table.drop_columns([PARTITION, DIFF]).to_pylist(), diffs, strict=True)
    return changes


def late_rows(tables: Mapping[str, pa.Table]) -> list[tuple[str, Row]]:
    """Return late rows that were pushed, as case files write them."""
    rows: list[tuple[str, Row]] = []
    for name, table in tables.items():
        diffs = [1] * table.num_rows
        if SHOWN_DIFF in table.column_names:
            diffs = table.column(SHOWN_DIFF).to_pylist()
            table = table.drop_columns([SHOWN_DIFF])
        written = [{key: to_json(value) for key, value in row.items()} for row in table.to_pylist()]
        rows += [(name, row) for row in _left_over(list(zip(written, diffs, strict=True)))]
    return rows


def zoned(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Give the TIMESTAMPs among the table's first columns their zone, UTC."""
    for place, column in enumerate(columns):
        if column.type == TIMESTAMP:
            instants = table.column(column.name).cast(pa.timestamp("us", "UTC"))
            table = table.set_column(place, column.name, instants)
    return table


def _rows_and_diffs(source: Source, changes: Sequence[Change], zone: str) -> tuple[list[Row], list[int]]:
    """Return the rows and their diffs; of a delete by a primary key only the columns of that key."""
    rows = [row for row, _ in changes]
    stated = _stated_values(source, rows, zone)
    diffs = [diff * _stated_diff(source, value) for value, (_, diff) in zip(stated, changes, strict=True)]
    if source.primary_key is not None:
        named = {*columns_of_deletes(source), CASE_PARTITION}
        rows = [
            row if diff > 0 else {name: value for name, value in row.items() if name in named}
            for row, diff in zip(rows, diffs, strict=True)
        ]
    return rows, diffs


def _stated_values(source: Source, rows: Sequence[Row], zone: str) -> Sequence[Any]:
    """Return what each row has in the column that says what becomes of it."""
    name = said_by(source) or ""
    if not any(own.column.name == name for own in source.computed):
        return [row.get(name) for row in rows]
    table = to_table(source.columns, rows, [1] * len(rows))
    values: list[Any] = value_of(source, name, table, zone).to_pylist()
    return values


def _stated_diff(source: Source, value: Any) -> int:
    """Return the diff that a row states by a value of its change column.

    Raises:
        EngineError: it is no known value.
    """
    change = source.change_column
    if change is None:
        return 1
    diff = diff_of(change, value)
    if diff is None:
        raise unknown_change(source, value)
    return diff


def unknown_change(source: Source, value: Any) -> EngineError:
    """Build the error for a row whose change column has no known value."""
    change = source.change_column
    assert change is not None
    hint = None
    if not change.is_diff:
        hint = f"use {', '.join(change.inserts)} for inserts and {', '.join(change.deletes)} for deletes"
    return EngineError(
        f'a row of "{source.name}" has {value!r} in "{change.column}", which is neither an insert nor a'
        " delete",
        code="bad-value",
        hint=hint,
    )


def _left_over(changes: Sequence[Change]) -> list[Row]:
    """Return the rows of late changes, but for those that come and go in the same tick."""
    if all(diff > 0 for _, diff in changes):
        return [row for row, _ in changes]
    keys = [_key(row) for row, _ in changes]
    sums = Counter[str]()
    for key, (_, diff) in zip(keys, changes, strict=True):
        sums[key] += diff
    return [row for key, (row, _) in zip(keys, changes, strict=True) if sums[key]]


def _key(row: Row) -> str:
    """Return a text that is the same for equal rows: a column left out is NULL, and -0.0 is 0.0."""
    values = {
        name: value + 0.0 if isinstance(value, float) else value
        for name, value in row.items()
        if name != CASE_PARTITION and value is not None
    }
    return repr(sorted(values.items()))
