"""Flush files and folders to disk before anything relies on them.

A file is on disk when it was synced, *and* the folder that holds its name, *and* the folder that holds that
one's, and so on. A local (or mounted) file system.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Collection

from watersmeet.parallel import parallel_map

MAX_THREADS = 8
"""File systems put on disk at once what several threads wait for."""


def sync(path: str | os.PathLike[str]) -> None:
    """Put a file's content, or a folder's names, on disk. Whoever wrote it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(paths: Collection[str | os.PathLike[str]]) -> None:
    """Put all of them on disk; it takes little longer than one. Raises: OSError of the first that failed."""
    parallel_map(sync, paths, MAX_THREADS)


def make_folders(path: str | os.PathLike[str], mode: int | None = None) -> None:
    """Make a folder with all above it; every name that is new is on disk when this returns.

    Args:
        mode: exactly that of those that are made; None: as the process's mask has it.
    """
    missing = []
    folder = os.path.abspath(path)
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for new_folder in reversed(missing):
        try:
            os.mkdir(new_folder, 0o777 if mode is None else mode)
            if mode is not None:
                os.chmod(new_folder, mode)  # mkdir's is less the mask
        except FileExistsError:  # another process was faster: it may not have come to syncing yet
            if not os.path.isdir(new_folder):
                raise
        sync(os.path.dirname(new_folder))


def check_folder(path: str | os.PathLike[str]) -> None:
    """Check that names can be made in a folder, or, where it is missing, in the one above it that is there.

    Raises:
        OSError: they cannot, or what is there is no folder.
    """
    folder = os.path.abspath(path)
    while not os.path.isdir(folder):
        if os.path.lexists(folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        folder = os.path.dirname(folder)
    os.rmdir(tempfile.mkdtemp(prefix="_writable-", dir=folder))
