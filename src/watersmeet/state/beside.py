"""The names of the columns that a run may have beside those that are kept (see `state.run`)."""

from __future__ import annotations

from watersmeet.names import ours


def order_of_times(column: str) -> str:
    """The places of rows in the order of an event time."""
    return ours(f"order:{column}")


def least_times(column: str) -> str:
    """The least of an event time from a place on, in the order of another."""
    return ours(f"least:{column}")


def prefixes_of_key(key: int) -> str:
    """The upper bits of the hashes of a further key, by its number."""
    return ours(f"prefixes:{key}")


def places_of_key(key: int) -> str:
    """Beside each of `prefixes_of_key` the place of its row."""
    return ours(f"places:{key}")
