"""A history that goes along when the state is copied."""

from __future__ import annotations

from watersmeet.errors import StateError
from watersmeet.history.segments import FOLDER
from watersmeet.state.store import Store


def copy_history(source: Store, target: Store) -> int:
    """Copy all files of a history; how many. One that the job has replaced meanwhile is left out.

    Raises:
        StateError: a store does not answer, or cannot be written.
    """
    copied = 0
    for name in source.names(FOLDER):
        try:
            data = source.read(name)
        except StateError as error:
            if error.code != "state-missing":
                raise
            continue
        target.write(name, data)
        copied += 1
    return copied
