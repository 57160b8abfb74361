"""What a power failure must not take: files and folders are on disk before anything relies on them.

A file is on disk when it was synced, *and* the folder that holds its name, *and* the folder that holds that
one's, and so on. A local (or mounted) file system.
"""

from __future__ import annotations

import os


def sync(path: str | os.PathLike[str]) -> None:
    """Put a file's content, or a folder's names, on disk. Whoever wrote it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
