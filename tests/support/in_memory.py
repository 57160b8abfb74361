"""Temporary files of tests, in memory where there is room: to wait for a disk proves nothing there."""

from __future__ import annotations

import os
import tempfile

FOLDER = "/dev/shm"
ROOM = 4 * 2**30
"""Bytes; a run of all tests takes less than one GiB, its servers included."""


def folder_in_memory() -> str | None:
    """Return a folder in memory with room, from which programs can be started; None: there is none."""
    try:
        stat = os.statvfs(FOLDER)
    except OSError:
        return None
    is_fit = not stat.f_flag & os.ST_NOEXEC and stat.f_bavail * stat.f_frsize >= ROOM
    return FOLDER if is_fit and os.access(FOLDER, os.W_OK) else None


def keep_temporary_files_in_memory() -> None:
    """Let this process, and those that it starts, make temporary files in memory; a caller's TMPDIR stays."""
    folder = folder_in_memory()
    if folder is not None and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = folder
        tempfile.tempdir = None  # it may have looked already
