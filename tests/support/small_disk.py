"""A file system of its own with little room, which can be filled and made read-only. Tests that ask for one
are skipped where none can be mounted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """16 MB in memory, beneath ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, leave: int = 0) -> None:
        """Take all room but ``leave`` bytes."""
        self.make_room()
        stat = os.statvfs(self.path)
        self._filler.write_bytes(bytes(max(0, stat.f_bavail * stat.f_frsize - leave)))

    def make_room(self) -> None:
        self._filler.unlink(missing_ok=True)

    def allow_writing(self, allowed: bool) -> None:
        """Raises: CalledProcessError while files are open for writing, when it is to be read-only."""
        how = "remount,rw" if allowed else "remount,ro"
        subprocess.run(["mount", "-o", how, self.path], check=True, capture_output=True)

    @property
    def _filler(self) -> Path:
        return self.path / ".filler"


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """One that is mounted at ``path``, which is made."""
    path.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", path], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", path], check=True)
