"""The columns that a run may have beside those that are kept (see `state.runs.layout`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from watersmeet.names import ours

_PREFIXES, _PLACES = "prefixes:", "places:"


@cache
def order_of_times(column: str) -> str:
    """The places of rows in the order of an event time."""
    return ours(f"order:{column}")


@cache
def least_times(column: str) -> str:
    """The least of an event time from a place on, in the order of another."""
    return ours(f"least:{column}")


@dataclass(frozen=True)
class FoundBy:
    """A further key by which rows are found. ``label``: a digest of what its columns are; ``columns``:
    kept ones."""

    label: str
    columns: tuple[str, ...]

    @property
    def prefixes(self) -> str:
        """The upper bits of its hashes."""
        return ours(f"{_PREFIXES}{self.label}")

    @property
    def places(self) -> str:
        """Beside each of `prefixes` the place of its row."""
        return ours(f"{_PLACES}{self.label}")


def is_of_key(column: str) -> bool:
    """It is one of these two, of whatever key."""
    return column.startswith((ours(_PREFIXES), ours(_PLACES)))
