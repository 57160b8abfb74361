"""Rows of one side of a join, sorted so that they can be looked up: by hash and an index, or by value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from watersmeet.event_time import Times
from watersmeet.kernel.match.overflow import Spans
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.ordinals import Raw, Reals, ordinals_of, raw, reals
from watersmeet.kernel.pieces import Columns
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
    ``prefixed``: slots are no slots, but the upper bits of hashes alone (`kernel.match.prefixes`).
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
    _raw: dict[str, Raw] = field(default_factory=dict, repr=False)
    _ordinals: dict[Measured, Times] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.slots)

    def times(self, column: str) -> Times:
        """An event-time column as int64[n]."""
        return self.raw(column)

    def raw(self, column: str) -> Raw:
        """A column of a band as it lies in memory."""
        if column not in self._raw:
            self._raw[column] = raw(self.batch.column(column))
        return self._raw[column]

    def ordinals(self, measured: Measured, rows: Rows | None = None) -> Times:
        """What counts of the rows chosen (of all of them, kept for the next time). int64."""
        column = self.batch.column(measured.column)
        if rows is not None:
            return ordinals_of(column, measured.measure, rows)
        if measured not in self._ordinals:
            self._ordinals[measured] = ordinals_of(column, measured.measure)
        return self._ordinals[measured]

    def reals(self, measured: Measured, rows: Rows | None = None) -> Reals:
        """A column of numbers as doubles, of the rows chosen or of all."""
        values = self.raw(measured.column)
        kind = self.batch.schema.field(measured.column).type
        return reals(values if rows is None else values[rows], kind)

    def part(self, start: int, stop: int) -> SortedRows:
        """The rows in [start, stop), without a copy."""
        slots, spans = self.slots[start:stop], self.spans
        if self.by_value and self.index is not None and start < stop:
            spans = {**spans, self.index.name: (int(slots[0]), int(slots[-1]))}
        batch = self.batch.slice(start, stop - start)
        return SortedRows(
            slots, self.base, self.shift, self.greatest, batch, self.index, spans, self.by_value
        )

    def sorted_by(self, index: Measured) -> SortedRows:
        """The same rows to be looked up by another index. Cost: a sort of one column."""
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
