"""Replace values that an update omits.

Debezium writes a placeholder if the database's log does not contain a large value because the update did not
change it. The placeholder stands for the value of the key's previous row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import Mask
from watersmeet.kernel.batches import concat_arrays, take_values
from watersmeet.kernel.match.probe import Rows

_STATE, _NOBODY = -1, -2

Stored = Callable[[str, Rows], Sequence[tuple[Rows, pa.Array]]]
"""Of a column and of numbers of keys: values of the keys' rows before the tick, each part with the places
among these keys."""


@dataclass(frozen=True)
class TickRecords:
    """Records of a tick, sorted by key, in their order within each key.

    Attributes:
        batch: the records, in any order.
        order: int64[n], the positions of the sorted records in ``batch``.
        key: int64[n], the number of the key of each sorted record, ascending.
        first: the position of the first record of each key.
        deletes: a mask of the deletes.
    """

    batch: pa.RecordBatch
    order: Rows
    key: Rows
    first: Rows
    deletes: Mask


class KnownValues:
    """Values that replace placeholders in a tick's records.

    Args:
        columns: the columns that may contain placeholders, with the values that are placeholders.
        applies: bool[n], the records that count.
        alive: per key whether it has a row before the tick.

    Attributes:
        unknown: bool[n], records of rows with an unknown value; these records cannot count.
    """

    def __init__(
        self, records: TickRecords, columns: Mapping[str, Sequence[Any]], applies: Mask, alive: Mask
    ) -> None:
        self._records = records
        comes, goes = applies & ~records.deletes, applies & records.deletes
        left_out = {
            name: _is_one_of(records.batch.column(name), values)[records.order] & comes
            for name, values in columns.items()
        }
        left_out = {name: rows for name, rows in left_out.items() if rows.any()}
        self.unknown = np.zeros(len(records.order), dtype=np.bool_)
        for rows in left_out.values():
            self.unknown |= rows
        # A key has a row from the first record on that leaves nothing out.
        self.unknown &= _value_holders(records, comes & ~self.unknown, goes, alive) == _NOBODY
        self._holders = {
            name: np.where(
                rows,
                _value_holders(records, comes & ~rows & ~self.unknown, goes, alive),
                np.arange(len(rows)),
            )
            for name, rows in left_out.items()
        }

    def rows(self, places: Rows, batch: pa.RecordBatch, stored: Stored) -> pa.RecordBatch:
        """Return ``batch``, the rows of the records at these places, with the values that they leave out."""
        arrays = {name: batch.column(name) for name in batch.schema.names}
        for name, holders in self._holders.items():
            arrays[name] = self._column(name, places, holders[places], stored)
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def _column(self, name: str, places: Rows, holders: Rows, stored: Stored) -> pa.Array:
        records = self._records
        here = np.flatnonzero(holders >= 0)
        parts = [(here, take_values(records.batch.column(name), records.order[holders[here]]))]
        before = np.flatnonzero(holders == _STATE)
        parts += [(before[own], values) for own, values in stored(name, records.key[places[before]])]
        index = np.empty(len(places), dtype=np.int64)
        index[np.concatenate([own for own, _ in parts])] = np.arange(len(places))
        return take_values(concat_arrays([values for _, values in parts]), index)


def _value_holders(records: TickRecords, whole: Mask, deletes: Mask, alive: Mask) -> Rows:
    """Find per record the last record up to it that has the value.

    `_STATE` stands for the row before the tick, `_NOBODY` for none.
    """
    numbers = np.arange(len(records.order))
    last = np.maximum.accumulate(np.where(whole | deletes, numbers, -1))
    is_here = last >= records.first[records.key]
    before = np.where(alive[records.key], _STATE, _NOBODY)
    return np.where(is_here, np.where(deletes[last], _NOBODY, last), before)


def _is_one_of(column: pa.Array, values: Sequence[Any]) -> Mask:
    """Return a mask of the column's values that are among ``values``.

    Cost: for lists and maps, a comparison per value whose length is that of one of ``values``.
    """
    if not pa.types.is_nested(column.type):
        matches = pc.is_in(column, pa.array(values, column.type))
        return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=np.bool_)
    lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False))
    matches = np.zeros(len(column), dtype=np.bool_)
    for row in np.flatnonzero(np.isin(lengths, [len(value) for value in values])).tolist():
        matches[row] = column[row].as_py() in values
    return matches
