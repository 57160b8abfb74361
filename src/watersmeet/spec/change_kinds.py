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
    """Of a table with at most one row per key: a record that comes takes the place of the key's row, and one
    that goes deletes it, whatever else it says.

    ``columns``: those of the key, which are not NULL. ``sequence``: a column by which the changes of a key
    are ordered; None: as they come. ``tombstones_us``: how long a delete is remembered by the clock of the
    ticks, so that an older change that comes after it is known for one; None: not at all.
    """

    columns: tuple[str, ...]
    sequence: str | None = None
    tombstones_us: int | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that say which change it is."""
        return self.columns if self.sequence is None else (*self.columns, self.sequence)
