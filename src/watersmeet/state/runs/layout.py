"""A run: an immutable, memory-mapped Arrow file of rows of one arrangement, sorted by slot (`kernel.slots`).

Columns of the file: ``#slot`` int64 ascending; per time column that releases rows, or in whose order they are
looked at, `order_of_times` of it uint32, the row numbers in ascending order of that time; per further key by
which rows are found `FoundBy.prefixes` and `FoundBy.places` (`kernel.match.prefixes`); when only one column
releases and there are other event times, ``#least:<other>`` int64: in that order, the least ``other`` from
here to the end; where the order in which rows came is wanted, `ARRIVAL` uint32, their places in it within the
run. Then the kept columns, event times as int64 without NULLs, each with the digest of what it is made of
(`state.runs.columns`) in its field's metadata; and, of rows that ASOF joins look for, ``#came`` int64: by
which of equal times the one that came first is known, in a run that was not merged yet less ``Run.offset``.

By what the rows are sorted within a hash is said by each run (``index``), and release does not depend on it.

Releasing is not writing: a row is released when one of its times is below the arrangement's limit for that
column: a range of ``#order``, which costs what goes. It stays on disk until the run is dropped or merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from watersmeet.measure import Measured
from watersmeet.names import ours
from watersmeet.state.runs.beside import FoundBy, least_times, order_of_times
from watersmeet.state.runs.columns import StoredColumn

SLOT = ours("slot")
ARRIVAL = ours("arrival")


@dataclass(frozen=True)
class RunLayout:
    """How runs of an arrangement are laid out.

    ``indexes``: what the rows of a hash can be sorted by, the one to begin with first (none: hashes only).
    ``event_times``: all event-time columns; ``releasing``: those of them by which rows are released;
    ``watched``: others in whose order rows are looked at. ``by_value``: there is no key, and slots are the
    ordinals of the index themselves. ``ties``: rows have `kernel.asof.CAME`, and with equal hashes they are
    in exact order of time, those with equal times in the order in which they came, or against it.
    ``columns``: those that are kept, in order; none: all that a run has. ``found_by``: further keys by which
    rows are found without being sorted by them; runs may have more. ``counts_keys``: it is counted how many
    keys there are. ``key``: the columns whose hashes sort the rows, where there is one.
    """

    indexes: tuple[Measured, ...]
    event_times: tuple[str, ...]
    releasing: tuple[str, ...]
    by_value: bool = False
    ties: Literal["ascending", "descending"] | None = None
    watched: tuple[str, ...] = ()
    columns: tuple[StoredColumn, ...] = ()
    found_by: tuple[FoundBy, ...] = ()
    counts_keys: bool = False
    key: tuple[str, ...] = ()

    @cached_property
    def ordering(self) -> tuple[str, ...]:
        """The columns by which rows are in order in `order_of_times` of it."""
        return (*self.releasing, *self.watched)

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """All that spans are told of: event times and indexes."""
        return (*dict.fromkeys([*map(Measured, self.event_times), *self.indexes]),)

    @cached_property
    def internal(self) -> tuple[str, ...]:
        """The columns of a run's file before those that are kept."""
        beside = [
            (order_of_times(c), *(least_times(other) for other in self.suffix_minima)) for c in self.ordering
        ]
        return (SLOT, *(name for names in beside for name in names))

    @cached_property
    def suffix_minima(self) -> tuple[str, ...]:
        if len(self.releasing) != 1:
            return ()
        return tuple(column for column in self.event_times if column not in self.ordering)

    def index(self, name: str | None) -> Measured | None:
        """The index of that name; the first one for None, or for a name of an earlier version's."""
        measured = next((index for index in self.indexes if index.name == name), None)
        return measured or next(iter(self.indexes), None)
