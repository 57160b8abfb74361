"""The errors of a state that is not what was written, or cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from watersmeet.errors import StateError

_RESTORE = "restore the state directory from a copy, or start over with an empty checkpoint directory"


def damage_error(what: str, problem: str, hint: str | None = None) -> StateError:
    """Build the error for a damaged stored object.

    Args:
        what: the stored object with its name.
        hint: what to do, if not to restore a copy.
    """
    return StateError(f"the {what} is damaged: {problem}", code="state-damaged", hint=hint or _RESTORE)


def missing_error(name: str, place: str = "") -> StateError:
    return StateError(f'"{name}" is missing from the state{place}', code="state-missing", hint=_RESTORE)


def write_error(path: str, problem: str) -> StateError:
    return StateError(
        f'"{path}" cannot be written: {problem}',
        code="state-not-written",
        hint="free some space, or check the permissions, and run again: the job resumes after its last tick",
    )


@contextmanager
def translate_os_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise OS errors of the file system as errors that ``path`` cannot be written.

    Raises:
        StateError: an OSError occurs in the block.
    """
    try:
        yield
    except OSError as error:
        raise write_error(os.fspath(path), error.strerror or str(error)) from None
