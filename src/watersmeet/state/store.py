"""Where manifests, runs and marks live: a flat space of names over a directory or over memory.

Contract of every store: `write` and `create` are durable and all-or-nothing when they return (of `write`
within `together`, when that ends); nothing is ever overwritten; `create` fails when the name is there, also
against another process (the fence against two running drivers); `read` gives the bytes without copying where
it can. What is not to last is written without waiting for the disk: within the tick all of it is there, after
a power failure it may be gone or torn. Stores are picklable and hold no open files. Names are relative paths
with ``/``.
"""

from __future__ import annotations

import errno
import mmap
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from watersmeet.durable import make_folders, sync, sync_all
from watersmeet.errors import StateError
from watersmeet.state.damage import missing, not_written, written
from watersmeet.state.sections import object_of, section_of
from watersmeet.state.traffic import Meter

STAGED = ".tmp"
FOLDER_MODE, FILE_MODE = 0o700, 0o600
"""State holds rows of the sources: it is for its owner alone, whatever the umask."""
Data: TypeAlias = "pa.Buffer | bytes | Callable[[], bytes]"
"""What is stored, or what makes it."""
SMALL_BYTES = 64 << 10
"""Files of so many bytes are read as a whole: mapping one costs more. What was made of them stays for the
next tick (``opened``)."""


class Store(Protocol):
    """See the module's contract. ``is_remote``: each call costs a request's time, so that a tick lists
    nothing and deletes nothing itself. ``traffic``: what came and went since it was asked last, where that is
    counted."""

    is_remote: bool

    @property
    def traffic(self) -> Meter | None: ...

    def write(
        self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True, sections: Sequence[str] = ()
    ) -> None:
        """Store ``data`` under a name that nobody has used. ``lasting``: it is read after this tick, too;
        ``sections``: the names by which parts of it are going to be read, if it is not read as a whole."""

    def together(self) -> AbstractContextManager[None]:
        """What this process writes within need not be durable before the end: the disk is waited for once.
        Raises at the end: StateError, when it is not durable."""

    def create(self, name: str, data: bytes) -> bool:
        """Store ``data`` unless ``name`` exists; whether it was stored."""

    def read(self, name: str) -> pa.Buffer:
        """The stored bytes, of a section (`state.sections`) its own. Raises: StateError when there are
        none."""

    def read_all(self, names: Sequence[str]) -> list[pa.Buffer]:
        """The same of several names, in order. Raises: StateError when one is not there."""

    def has(self, name: str) -> bool:
        """Whether there is such a name, of a section its object's."""

    def names(self, folder: str) -> list[str]:
        """All names in ``folder``, sorted; none when there is no such folder."""

    def delete(self, name: str) -> None:
        """Remove a name; nothing happens when it is not there."""

    def delete_all(self, names: Sequence[str]) -> int:
        """Remove names: first the manifests among them (`state.commits` counts on it), one after the other
        as they come. Returns how many could not be removed."""

    def sweep(self) -> None:
        """Remove what writers that were killed left half written. Only whoever runs the job may call it: a
        task of a dead run that is still at it fails by that."""

    def check(self) -> None:
        """Try what commits rest on. Raises: StateError where the place cannot do it."""


class LocalStore:
    """A directory of the local (or a mounted, shared) file system; reads are memory-mapped, but for those of
    small files. Directories have the mode 0700, files 0600. Names that begin with a dot are the file system's
    (``.nfs…``), not ours. ``opened``: as of a `MemoryStore`, of small files alone; whoever looks there asks
    whether the file is still the one that was read (`state.checksums.is_verified`). ``written_names``: those
    that this process wrote since garbage was collected; None: other processes have the store, too."""

    is_remote = False
    traffic = None

    def __init__(self, root: str | Path) -> None:
        self.root = os.fspath(root)
        self.opened: dict[str, Any] = {}
        self.written_names: set[str] | None = set()
        self._waiting: list[str] | None = None

    def __getstate__(self) -> str:
        self.written_names = None
        return self.root

    def __setstate__(self, root: str) -> None:
        self.__init__(root)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r})"

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def _stage(self, path: str, data: pa.Buffer | bytes, *, lasting: bool = True) -> str:
        folder = os.path.dirname(path)
        if self.written_names is not None:
            self.written_names.add(path.removeprefix(self.root).lstrip("/"))
        staged = f"{path}.{uuid.uuid4().hex[:8]}{STAGED}"
        try:
            handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        except FileNotFoundError:
            make_private(folder)
            handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            if os.fstat(handle).st_mode & 0o777 != FILE_MODE:
                os.fchmod(handle, FILE_MODE)  # the mode above is less the umask
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            if lasting:
                os.fsync(handle)
        except OSError:
            with suppress(OSError):  # what failed is told; a later run sweeps
                os.unlink(staged)
            raise
        finally:
            os.close(handle)
        return staged

    def write(
        self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True, sections: Sequence[str] = ()
    ) -> None:
        path, waiting = self._path(name), self._waiting if lasting else None
        with written(path):
            os.rename(self._stage(path, data, lasting=lasting and waiting is None), path)
            if waiting is not None:
                waiting.append(path)
            elif lasting:
                sync(os.path.dirname(path))

    @contextmanager
    def together(self) -> Iterator[None]:
        if self._waiting is not None:  # within another such block, at whose end it is waited for
            yield
            return
        self._waiting = paths = list[str]()
        try:
            yield
        finally:
            self._waiting = None
        with written(self.root):
            sync_all([*paths, *dict.fromkeys(map(os.path.dirname, paths))])

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with written(path):
            staged = self._stage(path, data)
            try:
                os.link(staged, path)
            except FileExistsError:
                return False
            finally:
                os.unlink(staged)
            sync(os.path.dirname(path))
        return True

    def read(self, name: str) -> pa.Buffer:
        section = section_of(name)
        return self._whole(name) if section is None else section.of(self._whole(section.object))

    def read_all(self, names: Sequence[str]) -> list[pa.Buffer]:
        return [self.read(name) for name in names]

    def _whole(self, name: str) -> pa.Buffer:
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size <= SMALL_BYTES:
                    return pa.py_buffer(file.read())
                return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            raise missing(name, f" in {self.root}") from None

    def has(self, name: str) -> bool:
        return os.path.exists(self._path(object_of(name)))

    def names(self, folder: str) -> list[str]:
        try:
            entries = os.listdir(self._path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(
            [f"{folder}/{entry}" for entry in entries if not entry.endswith(STAGED) and entry[0] != "."]
        )

    def delete(self, name: str) -> None:
        self.opened.pop(name, None)
        try:
            os.unlink(self._path(name))
        except FileNotFoundError:
            return

    def delete_all(self, names: Sequence[str]) -> int:
        left = 0
        for name in names:
            try:
                self.delete(name)
            except OSError:
                left += 1
        return left

    def sweep(self) -> None:
        for file in Path(self.root).glob(f"*/*{STAGED}"):
            try:
                file.unlink()
            except OSError:  # gone, or held open elsewhere: the next run tries again
                continue

    def check(self) -> None:
        path = os.path.join(self.root, ".probe")
        with written(path):
            make_private(self.root)
            staged = self._stage(path, b"")
        linked = f"{staged}.link"
        try:
            os.link(staged, linked)
            os.unlink(linked)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise not_written(linked, error.strerror or str(error)) from None
            raise StateError(
                f"the file system of {self.root} does not support hard links ({error.strerror}), which"
                " prevent two runs from committing the same tick",
                code="no-hard-links",
                hint="put the checkpoint on another file system: a local disk, or NFS",
            ) from None
        finally:
            os.unlink(staged)


def make_private(folder: str | os.PathLike[str]) -> None:
    """Make a directory with all that is missing above it, for the owner's eyes alone, and synced; one that is
    there is closed to others as well."""
    make_folders(folder, FOLDER_MODE)
    if os.stat(folder).st_mode & 0o777 != FOLDER_MODE:
        try:
            os.chmod(folder, FOLDER_MODE)
        except PermissionError:  # another user's: then it is as that one has it
            return


class MemoryStore:
    """A store inside of this process: for replayed cases and tests.

    ``opened``: by name, what was made of the data as it is, to be used again. ``written_names``: as of a
    `LocalStore`.

    >>> from watersmeet import MemoryStore, local
    >>> text = '''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.t, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t + 1 AND x.t + 3'''
    >>> store = MemoryStore()
    >>> job = local.job(text, store=store)
    >>> job.push("a", {"t": 1, "k": "x"})
    >>> job.tick().table.num_rows
    0
    >>> again = local.job(text, store=store)
    >>> again.push("a", {"t": 2, "k": "x"})
    >>> again.tick().table.to_pylist()
    [{'t': 1, 'u': 2}]
    """

    is_remote = False
    traffic = None

    def __init__(self) -> None:
        self.contents: dict[str, Data] = {}
        """By name."""
        self.opened: dict[str, Any] = {}
        self.written_names = set[str]()

    def write(self, name: str, data: Data, *, lasting: bool = True, sections: Sequence[str] = ()) -> None:
        self.opened.pop(name, None)
        self.contents[name] = data
        self.written_names.add(name)

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def create(self, name: str, data: Data) -> bool:
        if name in self.contents:
            return False
        self.write(name, data)
        return True

    def read(self, name: str) -> pa.Buffer:
        section, whole = section_of(name), object_of(name)
        data = self.contents.get(whole)
        if data is None:
            raise missing(name)
        if not isinstance(data, pa.Buffer):
            data = self.contents[whole] = pa.py_buffer(data() if callable(data) else data)
        return data if section is None else section.of(data)

    def read_all(self, names: Sequence[str]) -> list[pa.Buffer]:
        return [self.read(name) for name in names]

    def has(self, name: str) -> bool:
        return object_of(name) in self.contents

    def names(self, folder: str) -> list[str]:
        within = f"{folder}/"
        names = [name for name in self.contents if name.startswith(within)]
        return sorted(name for name in names if name.rfind("/") == len(folder))

    def delete(self, name: str) -> None:
        self.opened.pop(name, None)
        self.contents.pop(name, None)

    def delete_all(self, names: Sequence[str]) -> int:
        for name in names:
            self.delete(name)
        return 0

    def sweep(self) -> None:
        return

    def check(self) -> None:
        return
