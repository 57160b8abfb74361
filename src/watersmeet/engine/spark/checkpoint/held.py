"""The file ``lock`` of a checkpoint directory: held by one run at a time (flock), whose id is in it.

A local or mounted, shared file system: what is held is so on all machines that see the directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from pathlib import Path

from watersmeet.errors import EngineError, StateError
from watersmeet.state.store import FILE_MODE

LOCK = "lock"
"""The name of the file."""

_PAUSES_S = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.1, 0.15, 0.2, 0.3, None)
"""Whoever looks who holds the lock (`holder`) shares it for a moment, again and again."""


class Hold:
    """A lock that is held until `release`. ``run``: an id that no other has.

    Raises:
        OSError: the file cannot be made or written.
        EngineError: the file system does not lock files.
        StateError: another run holds it.
    """

    def __init__(self, root: Path) -> None:
        self.run = uuid.uuid4().hex
        self._handle = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            _lock(self._handle)
        except OSError as error:
            os.close(self._handle)
            if error.errno != errno.EWOULDBLOCK:
                raise EngineError(
                    f"the file system of {root} does not support file locks ({error.strerror}), which"
                    " prevent two runs of a job at a time",
                    code="checkpoint-not-lockable",
                    hint="put the checkpoint on another file system: a local disk, or NFS with locks",
                ) from None
            raise _in_use(root) from None
        try:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, self.run.encode(), 0)
        except OSError:
            os.close(self._handle)
            raise

    def release(self) -> None:
        os.close(self._handle)


def check_free(root: Path) -> None:
    """Raise: StateError, if a run holds the directory, and does not end within a second."""
    for pause_s in _PAUSES_S:
        if holder(root) is None:
            return
        if pause_s is not None:
            time.sleep(pause_s)
    raise _in_use(root)


def holder(root: Path) -> str | None:
    """The id of the run that holds the directory; None when none does. It need not be writable: what a
    snapshot or a read-only mount has of a state may be copied. Several may look at once."""
    try:
        handle = os.open(root / LOCK, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise
        return os.pread(handle, 100, 0).decode(errors="replace")
    else:
        return None
    finally:
        os.close(handle)


def _in_use(root: Path) -> StateError:
    return StateError(
        f"another run of the job uses the checkpoint directory {root}",
        code="checkpoint-locked",
        hint="stop it first (watersmeet stop), or use another directory: --checkpoint DIR",
    )


def _lock(handle: int) -> None:
    for pause_s in _PAUSES_S:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if pause_s is None or error.errno != errno.EWOULDBLOCK:
                raise
            time.sleep(pause_s)
        else:
            return
