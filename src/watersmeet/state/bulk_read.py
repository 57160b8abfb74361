"""Many names read to be compared with what was written, some together where each costs a request's time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.state.store import Store

AT_ONCE, AT_ONCE_BYTES = 64, 64 << 20
"""So many names are fetched together, of about so many bytes."""

_FILE_ERRORS = ("state-missing", "state-damaged")
"""Codes of what is wrong with a name; all else is of the store."""


def fetch_files(store: Store, sizes: Mapping[str, int]) -> Iterator[tuple[str, pa.Buffer | StateError]]:
    """Yield each name with its content, or with the error of reading it.

    If the store does not respond, the error is reported once for each group of names that are read
    together.

    Args:
        sizes: the approximate bytes of each file.
    """
    for names in _groups(sizes, AT_ONCE if store.is_remote else 1):
        try:
            yield from zip(names, store.read_all(names), strict=True)
        except StateError as error:
            if len(names) == 1 or error.code not in _FILE_ERRORS:
                yield names[0], error
                continue
            for name in names:  # which of them it is shows when each is read
                yield from fetch_files(store, {name: sizes[name]})


def _groups(sizes: Mapping[str, int], most: int) -> Iterator[list[str]]:
    names, nbytes = list[str](), 0
    for name, size in sizes.items():
        if names and (len(names) == most or nbytes >= AT_ONCE_BYTES):
            yield names
            names, nbytes = [], 0
        names.append(name)
        nbytes += size
    if names:
        yield names
