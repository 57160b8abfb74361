"""Determine how the records of a source change its contents: by their own columns, and by their key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChangeColumn:
    """Column of a source's records that determines the change of their rows.

    Its values are among ``inserts`` or ``deletes``. If both are empty, its value is the multiplicity of a
    row; a negative one deletes.
    """

    column: str
    inserts: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()

    @property
    def is_diff(self) -> bool:
        """True if the column contains a number."""
        return not self.inserts


STREAM_WITH_CHANGES = "a stream cannot be joined with a changing table yet"
"""The refusal of a join that is not there; its hints say what is. Two streams that bound each other can."""

TOMBSTONES_US = 24 * 60 * 60 * 1_000_000
"""How long deletes are remembered, unless the source says otherwise."""


@dataclass(frozen=True)
class PrimaryKey:
    """Primary key of a table with at most one row per key.

    An upsert record replaces the row of its key; a delete record deletes that row, whatever its other columns
    contain.

    Attributes:
        columns: the columns of the key, which are not NULL.
        sequence: the column that orders the changes of a key; None: arrival order.
        tombstones_us: how long a delete is remembered, in µs by the clock of the ticks, so that an older
            change that arrives after it is recognized as older; None: not at all.
    """

    columns: tuple[str, ...]
    sequence: str | None = None
    tombstones_us: int | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that say which change it is."""
        return self.columns if self.sequence is None else (*self.columns, self.sequence)
