"""A flat space of names over a directory or over memory, for manifests, runs and marks."""

from __future__ import annotations

import errno
import mmap
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from watersmeet.durable_files import make_folders, sync, sync_all
from watersmeet.errors import StateError
from watersmeet.state.stored_record import FrozenRecord, missing_error, translate_os_errors, write_error

# How much of a state came from its store and went there: counted where requests are made, by whoever
# makes them, and told by each task to the driver.


class Traffic(FrozenRecord):
    """Bytes and requests of a store.

    Attributes:
        fetched: bytes that came from the store.
        cached: bytes that a cache had.
        written: bytes that went to the store.
        requests: requests to the store; one that is retried counts once.
    """

    fetched: int = 0
    cached: int = 0
    written: int = 0
    requests: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            fetched=self.fetched + other.fetched,
            cached=self.cached + other.cached,
            written=self.written + other.written,
            requests=self.requests + other.requests,
        )


class Meter:
    """Counts for one store in one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sum = Traffic()

    def add(self, *, fetched: int = 0, cached: int = 0, written: int = 0, requests: int = 0) -> None:
        with self._lock:
            self._sum += Traffic(fetched=fetched, cached=cached, written=written, requests=requests)

    def take(self) -> Traffic:
        """Return the traffic since the last call and reset it."""
        with self._lock:
            taken, self._sum = self._sum, Traffic()
            return taken


class _Metered(Protocol):
    @property
    def traffic(self) -> Meter | None: ...


def take_traffic(store: _Metered) -> Traffic | None:
    """Return a store's traffic since the last call, or None if nothing measures it."""
    return None if store.traffic is None else store.traffic.take()


# Sections: runs that lie one behind the other in one object of the store, which one put has brought
# there.
#
# A section is a run as all others are. Its name says where it is: ``runs/q.a-7-0f3a.arrow@4096+1024`` are
# 1,024 bytes of ``runs/q.a-7-0f3a.arrow`` from 4,096 on. Who reads goes by the name of the section
# (`Store.read`), and so does a cache; what is there, is copied, or goes is the object (`object_of`), as a
# whole: it stays for as long as one of its sections is named.

ALIGNMENT = 64
"""Bytes, at multiples of which sections begin: Arrow's columns are in place for whoever maps the object."""

_NAME = re.compile(r"(runs/[^@]+)@(\d+)\+(\d+)")


class Section(NamedTuple):
    """``length`` bytes of an object from ``offset`` on."""

    object: str
    offset: int
    length: int

    @property
    def name(self) -> str:
        return f"{self.object}@{self.offset}+{self.length}"

    @property
    def end(self) -> int:
        return self.offset + self.length

    def of(self, content: pa.Buffer) -> pa.Buffer:
        """Return the section's bytes from the whole object; fewer if the object is shorter."""
        first = min(self.offset, content.size)
        return content.slice(first, min(self.length, content.size - first))


def section_of(name: str) -> Section | None:
    """Parse a section's name; return None if the name is that of an object.

    >>> section_of("runs/q.a-7-0f3a.arrow@4096+1024")
    Section(object='runs/q.a-7-0f3a.arrow', offset=4096, length=1024)
    >>> section_of("runs/q.a-7-0f3a.arrow") is None
    True
    """
    match = _NAME.fullmatch(name) if "@" in name else None
    return None if match is None else Section(match[1], int(match[2]), int(match[3]))


def object_of(name: str) -> str:
    """Return the object that contains the named content.

    That is the name itself, unless it names a section.
    """
    section = section_of(name)
    return name if section is None else section.object


def split_sections(name: str, content: pa.Buffer, sections: Iterable[str]) -> Iterator[tuple[str, pa.Buffer]]:
    """Yield the names under which an object is read later, with the content of each.

    They are the names of its sections or, if there are no sections, its own name.
    """
    parts = [section for section in map(section_of, sections) if section is not None]
    yield from ((part.name, part.of(content)) for part in parts)
    if not parts:
        yield name, content


def group_by_object(names: Iterable[str]) -> dict[str, list[Section | None]]:
    """Group names by object: per object the requested sections, in order; None: all of it."""
    asked: dict[str, list[Section | None]] = {}
    for name in dict.fromkeys(names):
        section = section_of(name)
        asked.setdefault(name if section is None else section.object, []).append(section)
    return asked


def group_adjacent(sections: Iterable[Section]) -> list[list[Section]]:
    """Group the sections of one object, in order, so that adjacent ones form one group."""
    parts: list[list[Section]] = []
    for section in sorted(sections, key=lambda section: section.offset):
        if parts and section.offset - parts[-1][-1].end < ALIGNMENT:
            parts[-1].append(section)
        else:
            parts.append([section])
    return parts


# Where manifests, runs and marks live: a flat space of names over a directory or over memory.
#
# Contract of every store: `write` and `create` are durable and all-or-nothing when they return (of
# `write` within `together`, when that ends); nothing is ever overwritten; `create` fails when the name is
# there, also against another process (the fence against two running drivers); `read` gives the bytes
# without copying where it can. What is not to last is written without waiting for the disk: within the
# tick all of it is there, after a power failure it may be gone or torn. Stores are picklable and hold no
# open files. Names are relative paths with ``/``.

STAGED_SUFFIX = ".tmp"
FOLDER_MODE, FILE_MODE = 0o700, 0o600
"""State holds rows of the sources: it is for its owner alone, whatever the umask."""
Data: TypeAlias = "pa.Buffer | bytes | Callable[[], bytes]"
"""What is stored, or what makes it."""
SMALL_BYTES = 64 << 10
"""Files of so many bytes are read as a whole: mapping one costs more. What was made of them stays for the
next tick (``opened``)."""


class Store(Protocol):
    """Flat space of names for manifests, runs and marks (contract: see the comment in this module).

    Attributes:
        is_remote: each call costs the time of a request, so ticks neither list nor delete names themselves.
        traffic: counts traffic since it was last read; None if nothing counts it.
    """

    is_remote: bool

    @property
    def traffic(self) -> Meter | None: ...

    def write(
        self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True, sections: Sequence[str] = ()
    ) -> None:
        """Store ``data`` under a name that has never been used.

        Args:
            lasting: True if the data is read after this tick, too.
            sections: names by which parts of the data are read, if it is not read as a whole.
        """

    def together(self) -> AbstractContextManager[None]:
        """Return a context in which writes need not be durable before its end.

        The process waits for the disk once, at the end.

        Raises:
            StateError: at the end, if the writes are not durable.
        """

    def create(self, name: str, data: bytes) -> bool:
        """Store ``data`` unless ``name`` exists; whether it was stored."""

    def read(self, name: str) -> pa.Buffer:
        """Read the stored bytes; for a section (`state.store`), only its own bytes.

        Raises:
            StateError: there are none.
        """

    def read_all(self, names: Sequence[str]) -> list[pa.Buffer]:
        """Read several names, in order.

        Raises:
            StateError: one of the names does not exist.
        """

    def has(self, name: str) -> bool:
        """Return True if the name exists; a section exists if its object does."""

    def names(self, folder: str) -> list[str]:
        """Return all names in ``folder``, sorted; an empty list if the folder does not exist."""

    def delete(self, name: str) -> None:
        """Remove a name; nothing happens when it is not there."""

    def delete_all(self, names: Sequence[str]) -> int:
        """Remove names, in order, but manifests first, one after the other (`state.commits` relies on it).

        Returns:
            The number of names that could not be removed.
        """

    def sweep(self) -> None:
        """Remove incomplete files of writers that were killed.

        Only the process that runs the job may call it: tasks of a dead run that are still writing fail.
        """

    def check(self) -> None:
        """Test the operations that commits rely on.

        Raises:
            StateError: the place does not support them.
        """


class LocalStore:
    """A directory of the local (or a mounted, shared) file system.

    Reads are memory-mapped, except for small files. Directories have the mode 0700, files 0600. Names that
    begin with a dot belong to the file system (``.nfs…``).

    Attributes:
        opened: parsed contents of small files by name, for reuse. Readers check that the file is still the
            one that was read (`state.checksums.is_verified`).
        written_names: names that this process has written since the last garbage collection; None if other
            processes have the store, too.
    """

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
        staged = f"{path}.{uuid.uuid4().hex[:8]}{STAGED_SUFFIX}"
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
        with translate_os_errors(path):
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
        with translate_os_errors(self.root):
            sync_all([*paths, *dict.fromkeys(map(os.path.dirname, paths))])

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with translate_os_errors(path):
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
            raise missing_error(name, f" in {self.root}") from None

    def has(self, name: str) -> bool:
        return os.path.exists(self._path(object_of(name)))

    def names(self, folder: str) -> list[str]:
        try:
            entries = os.listdir(self._path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(
            [
                f"{folder}/{entry}"
                for entry in entries
                if not entry.endswith(STAGED_SUFFIX) and entry[0] != "."
            ]
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
        for file in Path(self.root).glob(f"*/*{STAGED_SUFFIX}"):
            try:
                file.unlink()
            except OSError:  # gone, or held open elsewhere: the next run tries again
                continue

    def check(self) -> None:
        path = os.path.join(self.root, ".probe")
        with translate_os_errors(path):
            make_private(self.root)
            staged = self._stage(path, b"")
        linked = f"{staged}.link"
        try:
            os.link(staged, linked)
            os.unlink(linked)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise write_error(linked, error.strerror or str(error)) from None
            raise StateError(
                f"the file system of {self.root} does not support hard links ({error.strerror}), which"
                " prevent two runs from committing the same tick",
                code="no-hard-links",
                hint="put the checkpoint on another file system: a local disk, or NFS",
            ) from None
        finally:
            os.unlink(staged)


def make_private(folder: str | os.PathLike[str]) -> None:
    """Create a directory and its missing parents, synced, with access for the owner only.

    An existing directory is also closed to others.
    """
    make_folders(folder, FOLDER_MODE)
    if os.stat(folder).st_mode & 0o777 != FOLDER_MODE:
        try:
            os.chmod(folder, FOLDER_MODE)
        except PermissionError:  # another user's: then it is as that one has it
            return


class MemoryStore:
    """A store inside of this process: for replayed cases and tests.

    Attributes:
        opened: parsed contents by name, for reuse.
        written_names: names written since the last garbage collection, as in `LocalStore`.

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
            raise missing_error(name)
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


AT_ONCE, AT_ONCE_BYTES = 64, 64 << 20
"""So many names are fetched together, of about so many bytes."""

_FILE_ERRORS = ("state-missing", "state-damaged")
"""Codes of what is wrong with a name; all else is of the store."""


def fetch_files(store: Store, sizes: Mapping[str, int]) -> Iterator[tuple[str, pa.Buffer | StateError]]:
    """Yield each name with its content, or with the error of reading it.

    If the store does not respond, the error is reported once for each group of names that are read
    together.

    Args:
        sizes: the approximate bytes of each file.
    """
    for names in _groups(sizes, AT_ONCE if store.is_remote else 1):
        try:
            yield from zip(names, store.read_all(names), strict=True)
        except StateError as error:
            if len(names) == 1 or error.code not in _FILE_ERRORS:
                yield names[0], error
                continue
            for name in names:  # which of them it is shows when each is read
                yield from fetch_files(store, {name: sizes[name]})


def _groups(sizes: Mapping[str, int], most: int) -> Iterator[list[str]]:
    names, nbytes = list[str](), 0
    for name, size in sizes.items():
        if names and (len(names) == most or nbytes >= AT_ONCE_BYTES):
            yield names
            names, nbytes = [], 0
        names.append(name)
        nbytes += size
    if names:
        yield names
