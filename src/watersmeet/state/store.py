"""Where manifests, runs and marks live: a flat space of names over a directory or over memory.

Contract of every store: `write` and `create` are durable and all-or-nothing when they return; nothing is ever
overwritten; `create` fails when the name is there, also against another process (the fence against two
running drivers); `read` gives the bytes without copying where it can. Stores are picklable and hold no open
files. Names are relative paths with ``/``.
"""

from __future__ import annotations

import mmap
import os
import time
import uuid
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from watersmeet.state.damage import missing, not_written

STAGED = ".tmp"
ABANDONED_AFTER_S = 3600
"""A staged file is its writer's for so long: another process may still be at it."""


class Store(Protocol):
    """See the module's contract."""

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """Store ``data`` under a name that nobody has used."""

    def create(self, name: str, data: bytes) -> bool:
        """Store ``data`` unless ``name`` exists; whether it was stored."""

    def read(self, name: str) -> pa.Buffer:
        """The stored bytes. Raises StateError when there are none."""

    def names(self, folder: str) -> list[str]:
        """All names in ``folder``, sorted; none when there is no such folder."""

    def delete(self, name: str) -> None:
        """Remove a name; nothing happens when it is not there."""

    def sweep(self) -> None:
        """Remove what writers that were killed left half written."""


class LocalStore:
    """A directory of the local (or a mounted, shared) file system; reads are memory-mapped."""

    def __init__(self, root: str | Path) -> None:
        self.root = os.fspath(root)

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r})"

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def _stage(self, path: str, data: pa.Buffer | bytes) -> str:
        folder = os.path.dirname(path)
        staged = f"{path}.{uuid.uuid4().hex[:8]}{STAGED}"
        try:
            handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        except OSError as error:
            os.unlink(staged)
            raise not_written(path, str(error)) from None
        finally:
            os.close(handle)
        return staged

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        path = self._path(name)
        os.rename(self._stage(path, data), path)
        _sync_folder(os.path.dirname(path))

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        staged = self._stage(path, data)
        try:
            os.link(staged, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(staged)
        _sync_folder(os.path.dirname(path))
        return True

    def read(self, name: str) -> pa.Buffer:
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    return pa.py_buffer(b"")
                return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            raise missing(name, f" in {self.root}") from None

    def names(self, folder: str) -> list[str]:
        try:
            entries = os.listdir(self._path(folder))
        except FileNotFoundError:
            return []
        return sorted(f"{folder}/{entry}" for entry in entries if not entry.endswith(STAGED))

    def delete(self, name: str) -> None:
        try:
            os.unlink(self._path(name))
        except FileNotFoundError:
            return

    def sweep(self) -> None:
        before = time.time() - ABANDONED_AFTER_S
        for file in Path(self.root).glob(f"*/*{STAGED}"):
            try:
                if file.stat().st_mtime < before:
                    file.unlink()
            except FileNotFoundError:
                continue


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class MemoryStore:
    """A store inside of this process: for replayed cases and tests."""

    def __init__(self) -> None:
        self._data: dict[str, pa.Buffer] = {}

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        self._data[name] = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)

    def create(self, name: str, data: bytes) -> bool:
        if name in self._data:
            return False
        self.write(name, data)
        return True

    def read(self, name: str) -> pa.Buffer:
        try:
            return self._data[name]
        except KeyError:
            raise missing(name) from None

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self._data if name.rpartition("/")[0] == folder)

    def delete(self, name: str) -> None:
        self._data.pop(name, None)

    def sweep(self) -> None:
        return
