"""Groups of one row, told by hashes: what grouping makes of them, without grouping.

A row of whose hash there is no other one is a group of its own, and of one row each aggregate is plain text
over its columns (`AggregateColumn.alone`). Where most rows are such, only the others are grouped: looking for
them takes a twentieth of what grouping them would.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel.aggregate import AggregateColumn, grouped, key_sql, of_each, quoted
from watersmeet.kernel.batches import joined, one_array, take_rows
from watersmeet.kernel.slots import Slots, order_of

Rows = npt.NDArray[np.int64]

MOST_TOGETHER = 0.5
"""Of the rows: where more are not alone, all are grouped."""


def grouped_by_hash(
    rows: pa.RecordBatch,
    keys: Sequence[str],
    aggregates: Sequence[AggregateColumn],
    hashes: Slots,
    *,
    in_order: bool = True,
) -> pa.Table:
    """As `kernel.aggregate.grouped`, which see, but first the groups of one row, then others.

    Args:
        hashes: int64[n], equal for rows of equal keys; others may be equal, too.
        in_order: each of the two is in the order of their first rows. False: groups of one row are in that of
            their hashes, which is the one that runs have.
    """
    order = _order(hashes) if all(column.alone is not None for column in aggregates) else None
    if order is None:
        return grouped(pa.Table.from_batches([rows]), keys, aggregates, in_order=in_order)
    sorted_hashes = hashes[order]
    differ = np.ones(len(order) + 1, dtype=np.bool_)
    differ[1:-1] = sorted_hashes[1:] != sorted_hashes[:-1]
    is_alone = differ[1:] & differ[:-1]
    if np.count_nonzero(is_alone) < len(order) * (1 - MOST_TOGETHER):
        return grouped(pa.Table.from_batches([rows]), keys, aggregates, in_order=in_order)
    if in_order:
        by_row = np.empty(len(order), dtype=np.bool_)
        by_row[order] = is_alone
        order, is_alone = np.arange(len(order)), by_row
    if in_order and is_alone.all():
        return _alone(rows, keys, aggregates)
    made = _alone(take_rows(rows, order[is_alone]), keys, aggregates)
    if is_alone.all():
        return made
    others = pa.Table.from_batches([take_rows(rows, order[~is_alone])])
    return _together(made, grouped(others, keys, aggregates, in_order=in_order))


def _order(hashes: Slots) -> Rows | None:
    """The rows by hash; None where a look at neighbours shows that most are not alone: rows come by hash, of
    several runs."""
    if np.count_nonzero(hashes[1:] == hashes[:-1]) > len(hashes) * MOST_TOGETHER:
        return None
    return order_of(hashes)


def _alone(rows: pa.RecordBatch, keys: Sequence[str], aggregates: Sequence[AggregateColumn]) -> pa.Table:
    """Every row as a group. Columns that stay what they are do not go through DuckDB."""
    schema = rows.schema
    texts = {name: key_sql(name, schema.field(name).type) for name in keys}
    types = {name: schema.field(name).type for name in keys}
    for column in aggregates:
        assert column.alone is not None
        texts[column.name], types[column.name] = column.alone, column.type
    there = {quoted(field.name): field for field in schema}
    same = {
        name: there[text].name
        for name, text in texts.items()
        if text in there and there[text].type == types[name]
    }
    asked = {name: text for name, text in texts.items() if name not in same}
    columns = {name: rows.column(column) for name, column in same.items()}
    if asked:
        made = of_each(pa.Table.from_batches([rows]), asked, [types[name] for name in asked])
        columns |= {name: made.column(name) for name in asked}
    return pa.table({name: columns[name] for name in texts})


def _together(first: pa.Table, second: pa.Table) -> pa.Table:
    """The rows of both; wide columns of one may be narrow in the other."""
    pairs = zip(first.columns, second.columns, strict=True)
    return pa.table([joined([one_array(a), one_array(b)]) for a, b in pairs], names=first.column_names)
