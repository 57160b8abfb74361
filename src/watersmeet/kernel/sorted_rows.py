"""Rows of one side of a join, sorted so that they can be looked up: by hash and an index, or by value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from watersmeet.event_time import Times
from watersmeet.kernel.gather import Columns, HasColumns
from watersmeet.kernel.match.overflow import Spans
from watersmeet.kernel.match.probe import Distances, Rows
from watersmeet.kernel.ordinals import Raw, Reals, ordinals_of, raw, reals
from watersmeet.kernel.slots import Slots, encode, order_of, shift_for
from watersmeet.measure import Measured


@dataclass
class SortedRows:
    """Rows of one side and the slots by which they are looked up.

    ``slots``: int64[n] ascending, encoded with ``base`` and ``shift``; ``greatest``: the greatest ordinal of
    ``index``, from which slots are made; None: slots hold hashes only (``base`` = ``shift`` = ``greatest`` =
    0). ``batch``: the rows' columns, in the order of slots unless ``places`` says where each slot's row is;
    event times are int64 without NULLs. ``spans``: of every event time and index (of the whole run, for a
    part of one). ``by_value``: slots are the ordinals themselves (``base``: the least of them, ``shift`` 0).
    ``prefixed``: slots are no slots, but the upper bits of hashes alone (`kernel.match.probe`).
    """

    slots: Slots
    base: int
    shift: int
    greatest: int
    batch: Columns
    index: Measured | None
    spans: Spans
    by_value: bool = False
    places: Rows | None = None
    prefixed: bool = False
    _columns: dict[str, pa.Array] = field(default_factory=dict, repr=False)
    _raw: dict[str, Raw] = field(default_factory=dict, repr=False)
    _ordinals: dict[str, Times] = field(default_factory=dict, repr=False)
    _around: dict[tuple[str, int | None, int | None, int], tuple[Times, Times]] = field(
        default_factory=dict, repr=False
    )

    def __len__(self) -> int:
        return len(self.slots)

    def column(self, name: str) -> pa.Array:
        """Return a column and cache it, since each access costs more than a few rows do."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self.batch.column(name)
        return column

    @property
    def columns(self) -> HasColumns:
        """The source to gather rows from: this object for one batch, else the chunked rows."""
        return self if isinstance(self.batch, pa.RecordBatch) else self.batch

    def times(self, column: str) -> Times:
        """Return an event-time column as int64[n]."""
        return self.raw(column)

    def raw(self, column: str) -> Raw:
        """Return a band's column as it lies in memory."""
        if column not in self._raw:
            self._raw[column] = raw(self.column(column))
        return self._raw[column]

    def ordinals(self, measured: Measured, rows: Rows | None = None) -> Times:
        """Compute the int64 ordinals of the chosen rows.

        ``rows`` None selects all rows and caches the result.
        """
        if rows is not None:
            return ordinals_of(self.column(measured.column), measured.measure, rows)
        values = self._ordinals.get(measured.name)
        if values is None:
            values = ordinals_of(self.column(measured.column), measured.measure)
            self._ordinals[measured.name] = values
        return values

    def around(
        self, measured: Measured, distances: Distances, rows: Rows | None = None
    ) -> tuple[Times, Times]:
        """Compute the least and greatest ordinal of each chosen row's partners, inclusive: int64.

        ``rows`` None selects all rows and caches the result.
        """
        if rows is not None:
            return distances.around(self.ordinals(measured, rows))
        key = measured.name, distances.lower, distances.upper, distances.slack
        ends = self._around.get(key)
        if ends is None:
            ends = self._around[key] = distances.around(self.ordinals(measured))
        return ends

    def reals(self, measured: Measured, rows: Rows | None = None) -> Reals:
        """Return a numeric column as doubles, for the chosen rows or for all."""
        values = self.raw(measured.column)
        kind = self.column(measured.column).type
        return reals(values if rows is None else values[rows], kind)

    def part(self, start: int, stop: int) -> SortedRows:
        """Return the rows in [start, stop) without a copy."""
        if start == 0 and stop == len(self) and self.places is None:
            return self
        slots, spans = self.slots[start:stop], self.spans
        if self.by_value and self.index is not None and start < stop:
            spans = {**spans, self.index.name: (int(slots[0]), int(slots[-1]))}
        batch = self.batch.slice(start, stop - start)
        return SortedRows(
            slots, self.base, self.shift, self.greatest, batch, self.index, spans, self.by_value
        )

    def sorted_by(self, index: Measured) -> SortedRows:
        """Return the rows arranged for look-ups by another index. Cost: a sort of one column."""
        if index == self.index:
            return self
        values = self.ordinals(index)
        base, greatest = self.spans[index.name]
        shift = 0 if self.by_value else shift_for(base, greatest)
        slots = values if self.by_value else encode(self.slots, values, base, shift)
        order = order_of(slots)
        return replace(
            self, slots=slots[order], base=base, shift=shift, greatest=greatest, index=index, places=order
        )
