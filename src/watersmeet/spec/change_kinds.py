"""How the records of a source change what it holds: by what they say of themselves, and by their key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChangeColumn:
    """A column of a source's records that says what becomes of their rows: one of ``inserts`` or of
    ``deletes``; where there are none of these, how often a row comes (below zero: goes)."""

    column: str
    inserts: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()

    @property
    def is_diff(self) -> bool:
        """It holds a number."""
        return not self.inserts


STREAM_WITH_CHANGES = "a stream cannot be joined with a changing table yet"
"""The refusal of a join that is not there; its hints say what is. Two streams that bound each other can."""

TOMBSTONES_US = 24 * 60 * 60 * 1_000_000
"""How long deletes are remembered, unless the source says otherwise."""


@dataclass(frozen=True)
class PrimaryKey:
    """Primary key of a table with at most one row per key.

    An upsert record replaces the row of its key; a delete record deletes that row, whatever its other
    columns contain.

    ``columns``: the columns of the key, which are not NULL. ``sequence``: the column that orders the
    changes of a key; None: arrival order. ``tombstones_us``: how long a delete is remembered, in µs
    by the clock of the ticks, so that an older change that arrives after it is recognized as older;
    None: not at all.
    """

    columns: tuple[str, ...]
    sequence: str | None = None
    tombstones_us: int | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that say which change it is."""
        return self.columns if self.sequence is None else (*self.columns, self.sequence)
