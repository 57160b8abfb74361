"""The directory of a file sink: its owner, and errors of the file system."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from watersmeet.durable_files import sync
from watersmeet.errors import EngineError

# What a file system refuses, told of its place and as what it is.


@contextmanager
def translate_write_errors(place: str | os.PathLike[str], hint: str) -> Iterator[None]:
    """Translate OSErrors of writes at ``place`` within the block.

    Connection errors pass through: they are Spark's.

    Raises:
        EngineError: The block raised an OSError that is not a ConnectionError.
    """
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise EngineError(
            f"{os.fspath(place)} cannot be written: {why}",
            code="disk-full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "disk-not-writable",
            hint=hint,
        ) from None


# Whose a directory of parts is: one job's, and held by one run of it at a time.
#
# ``_owner`` holds the id of the job's state. It is created exclusively (of two jobs that start together
# one creates it), it is locked while a run goes on, and it is looked at again before each part is
# published. A directory that has an owner and no parts may change hands, under the lock alone. Where the
# file system knows no locks, it may not, and creating the file exclusively is what keeps two jobs apart.

OWNER = "_owner"

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class Ownership:
    """A directory that is held. Use `take`; give it back with `release`."""

    _held: ClassVar[dict[tuple[int, int], Ownership]] = {}
    """Of this process, by the identity of the file ``_owner``: several sinks of a job may share one."""

    def __init__(self, folder: Path, owner: str, handle: int) -> None:
        self._mark = folder / OWNER
        self._owner = owner
        self._handle = handle
        self._holders = 1

    @classmethod
    def take(cls, folder: Path, owner: str, sink: str, *, has_parts: Callable[[], bool]) -> Ownership:
        """Take ownership of ``folder`` for the job with this id.

        Args:
            sink: the sink's name, for messages.
            has_parts: returns whether there are published rows; their directory does not change its owner.
                Called under the lock.

        Raises:
            EngineError: the directory belongs to another job, or another run is writing there.
            OSError: the file system reports an error.
        """
        mark = folder / OWNER
        while True:
            try:
                handle = os.open(mark, os.O_RDWR)
            except FileNotFoundError:
                _create(mark, owner)
                continue
            shared = cls._held.get(_identity(handle))
            if shared is not None and shared._owner == owner:
                os.close(handle)
                shared._holders += 1
                return shared
            try:
                locked = _try_lock(handle)
                if not _is_at(handle, mark):  # it was removed in between
                    continue
                stored_owner = os.pread(handle, 1000, 0).decode(errors="replace").strip()
                if stored_owner != owner:
                    parts = has_parts()
                    if parts or (stored_owner and not locked):
                        raise foreign_directory_error(folder, sink, parts)
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, f"{owner}\n".encode(), 0)
                    os.fsync(handle)
                taken = cls(folder, owner, handle)
            except BlockingIOError:
                raise EngineError(
                    f'another run is writing to {folder} (sink "{sink}")',
                    code="sink-in-use",
                    hint="stop the other run, or give each job a directory of its own",
                ) from None
            else:
                cls._held[_identity(handle)] = taken
                handle = -1
                return taken
            finally:
                if handle >= 0:
                    os.close(handle)

    def check(self, sink: str) -> None:
        """Check that the directory still belongs to this job.

        Raises:
            EngineError: the directory no longer belongs to this job.
        """
        try:
            stored_owner = self._mark.read_text(errors="replace").strip()
        except FileNotFoundError:
            stored_owner = ""
        if stored_owner != self._owner:
            raise EngineError(
                f'{self._mark.parent} now belongs to another job (sink "{sink}"): nothing was published',
                code="sink-taken",
                hint=f"stop other jobs that write there, restore the directory and its file {OWNER}, and"
                " run again, which repeats the tick",
            )

    def release(self) -> None:
        """Release the lock when all users of this ownership have released it."""
        self._holders -= 1
        if self._holders == 0:
            self._held.pop(_identity(self._handle), None)
            os.close(self._handle)


def _create(mark: Path, owner: str) -> None:
    """Create the file with its content unless it is there."""
    staged = mark.with_name(f"{OWNER}-{uuid.uuid4().hex[:8]}")
    content = f"{owner}\n".encode()
    try:
        _write_new(staged, content)
        _link(staged, mark)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            _write_new(mark, content)
        except FileExistsError:
            return
    finally:
        staged.unlink(missing_ok=True)
    sync(mark.parent)


def _link(staged: Path, mark: Path) -> None:
    try:
        os.link(staged, mark)
    except FileNotFoundError:  # whoever was faster has removed it
        raise FileExistsError from None


def _write_new(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Lock the file; return False where the file system has no locks.

    Raises:
        BlockingIOError: another process has the lock.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def _identity(handle: int) -> tuple[int, int]:
    stat = os.fstat(handle)
    return stat.st_dev, stat.st_ino


def _is_at(handle: int, path: Path) -> bool:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return False
    return _identity(handle) == (stat.st_dev, stat.st_ino)


def foreign_directory_error(folder: Path | str, sink: str, has_parts: bool) -> EngineError:
    """Return the error for a directory that this job may not use."""
    if has_parts:
        return EngineError(
            f"{folder} contains rows of another job, or of this job with another checkpoint directory"
            f' (sink "{sink}"); nothing was written there',
            code="sink-of-another-run",
            hint="use an empty directory; or, to continue this job, run it with the checkpoint"
            " directory that it had before (--checkpoint DIR)",
        )
    return EngineError(
        f'{folder} belongs to another job, which has not written rows there yet (sink "{sink}")',
        code="sink-of-another-run",
        hint=f"use another directory; if no other job writes there, remove the file {OWNER} in it",
    )
