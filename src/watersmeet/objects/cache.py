"""Cache contents of an object store in a local directory that several processes share.

A named object never changes, so a file is either complete or absent: it is written under another name and
renamed. Each file ends with a checksum of its name and content, which a process verifies when it first
reads the file; damaged and deleted files are fetched again. The cache is optional: its errors are no
errors of the job.

When the cache exceeds its size, the least recently read files are deleted. Each process counts the bytes
that it adds, and checks the directory after a sixteenth of the size.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

from watersmeet.objects.remote import RemotePlace
from watersmeet.state.manifest import FOLDERS, PARTS
from watersmeet.state.store import Meter, section_of

DEFAULT_BYTES = 1 << 30
MIN_BYTES = 1 << 20

_IMMUTABLE_PREFIXES = tuple(f"{folder}/" for folder in FOLDERS if folder != PARTS)
_SUFFIX = ".object"
_STAGED_SUFFIX = ".tmp"
_STALE_S = 3600.0
_TICK_PREFIX = "work/passing-"
_CHECKSUM_BYTES = 20
_MAX_VERIFIED = 10_000
verified_files: dict[str, tuple[int, bytes]] = {}
"""Inodes and checksums of the files that this process compared, by path. A file system gives the inode of a
deleted file to the next one."""


@dataclass
class Cache:
    """Local cache of objects of a store (see the module).

    Attributes:
        place: the store whose objects are cached.
        limit: maximum size in bytes.
        root: directory of the cache. None: a directory of this user among the machine's temporary files.
    """

    place: str
    limit: int = DEFAULT_BYTES
    root: str | None = None
    _added: int = field(default=-1, compare=False)

    def __getstate__(self) -> tuple[str, int, str | None]:
        return self.place, self.limit, self.root

    def __setstate__(self, state: tuple[str, int, str | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @property
    def folder(self) -> str:
        return self.root or os.path.join(tempfile.gettempdir(), f"watersmeet-cache-{os.getuid()}")

    def _path(self, name: str) -> str:
        digest = hashlib.blake2b(f"{self.place}\0{name}".encode(), digest_size=16).hexdigest()
        return os.path.join(self.folder, f"{digest}{_SUFFIX}")

    def read(self, name: str) -> pa.Buffer | None:
        """Return the content stored under ``name``, or None if it is missing or incomplete."""
        path = self._path(name)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            status = os.fstat(handle)
            if status.st_uid != os.getuid() or status.st_size < _CHECKSUM_BYTES:
                return None
            stored = pa.py_buffer(mmap.mmap(handle, 0, access=mmap.ACCESS_READ))
            content = stored.slice(0, stored.size - _CHECKSUM_BYTES)
            version = status.st_ino, stored.slice(content.size).to_pybytes()
            if verified_files.get(path) != version:
                if version[1] != checksum(path, content):
                    self.drop(name)
                    return None
                verified_files[path] = version
                while len(verified_files) > _MAX_VERIFIED:
                    verified_files.pop(next(iter(verified_files)), None)
            with suppress(OSError):
                os.utime(handle)
            return content
        except (OSError, ValueError):
            return None
        finally:
            os.close(handle)

    def version(self, name: str) -> bytes | None:
        """Return a value that changes when the cached file is replaced; None: there is none.

        It is the checksum at the file's end: its times say when it was read, and inodes are used again.
        """
        with suppress(OSError):
            handle = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW)
            try:
                return os.pread(handle, _CHECKSUM_BYTES, max(0, os.fstat(handle).st_size - _CHECKSUM_BYTES))
            finally:
                os.close(handle)
        return None

    def add(self, name: str, content: pa.Buffer) -> None:
        """Add the content stored under ``name`` to the cache, if there is room."""
        if content.size > self.limit // 2:
            return
        path = self._path(name)
        staged = f"{path}.{uuid.uuid4().hex[:8]}{_STAGED_SUFFIX}"
        try:
            if not self._is_private():
                return
            handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                for part in (content, pa.py_buffer(checksum(path, content))):
                    view = memoryview(part)
                    while view:
                        view = view[os.write(handle, view) :]
            finally:
                os.close(handle)
            os.rename(staged, path)
            verified_files.pop(path, None)
        except OSError:
            with suppress(OSError):
                os.unlink(staged)
            return
        self._count(content.size)

    def drop(self, name: str) -> None:
        path = self._path(name)
        with suppress(OSError):
            os.unlink(path)
        verified_files.pop(path, None)

    def drop_tick_files(self, names: Iterable[str]) -> None:
        """Delete those of ``names`` that nobody reads after their tick; others are evicted by age."""
        for name in names:
            if name.startswith(_TICK_PREFIX):
                self.drop(name)

    def _is_private(self) -> bool:
        """Create the directory if needed; return True if it is this user's and private.

        A private directory has mode 0700; the method sets it.

        Raises:
            OSError: the file system rejects the operation.
        """
        with suppress(FileExistsError):
            os.makedirs(self.folder, 0o700)
        status = os.lstat(self.folder)
        if not os.path.isdir(self.folder) or os.path.islink(self.folder) or status.st_uid != os.getuid():
            return False
        if status.st_mode & 0o777 != 0o700:
            os.chmod(self.folder, 0o700)
        return True

    def _count(self, nbytes: int) -> None:
        self._added = self._added + nbytes if self._added >= 0 else self.limit
        if self._added >= self.limit // 16:
            self._added = 0
            self.evict()

    def evict(self) -> None:
        """Delete the least recently read files until the cache is within its limit."""
        entries = []
        with suppress(OSError), os.scandir(self.folder) as scanned:
            for entry in scanned:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    entries.append((status.st_mtime, status.st_size, entry.path))
        if not entries:
            return
        newest, total = max(entries)[0], sum(size for _, size, _ in entries)
        for time, size, path in sorted(entries):
            stale = path.endswith(_STAGED_SUFFIX) and time < newest - _STALE_S
            if stale or (total > self.limit - self.limit // 16 and path.endswith(_SUFFIX)):
                with suppress(OSError):
                    os.unlink(path)
                total -= size


def is_cacheable(name: str) -> bool:
    """Return True if the name always has the same content.

    All other objects must be read as they are now: another machine may have deleted and recreated
    them.
    """
    return name.startswith(_IMMUTABLE_PREFIXES)


def checksum(path: str, content: pa.Buffer) -> bytes:
    """Return the trailer of a cached file: the CRC of its name and content, and its size."""
    return b"%08x%012x" % (zlib.crc32(content, zlib.crc32(os.path.basename(path).encode())), content.size)


Location = TypeVar("Location", bound=RemotePlace)


class CachedStore(ABC, Generic[Location]):
    """Common part of stores that any machine reaches: a location, a cache of what was read, and traffic.

    It may be pickled, and holds no connection.
    """

    is_remote = True

    def __init__(self, place: Location, cache: Cache | None = None) -> None:
        self.place = place
        self.cache = cache
        self.traffic = Meter()

    def __getstate__(self) -> tuple[Location, Cache | None]:
        return self.place, self.cache

    def __setstate__(self, state: tuple[Location, Cache | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place.url!r})"

    def read(self, name: str) -> pa.Buffer:
        return self.read_all([name])[0]

    @abstractmethod
    def read_all(self, names: Sequence[str]) -> list[pa.Buffer]:
        """Read several names, in order.

        Raises:
            StateError: one of the names does not exist.
        """

    @abstractmethod
    def _unwritten(self, name: str) -> pa.Buffer | None:
        """Return the content of an object that is not in the store yet; None: it is, or does not exist."""

    def _at_hand(self, name: str) -> pa.Buffer | None:
        """Return content that needs no fetch: it is not written yet, or in the cache.

        None: it must be fetched.
        """
        section = section_of(name)
        content = self._unwritten(name if section is None else section.object)
        if content is not None:
            return content if section is None else section.of(content)
        if self.cache is None or not is_cacheable(name):
            return None
        cached = self.cache.read(name)
        if cached is not None:
            self.traffic.add(cached=cached.size)
        return cached

    def _remember(self, name: str, content: pa.Buffer) -> None:
        if self.cache is not None and is_cacheable(name):
            self.cache.add(name, content)

    def sweep(self) -> None:
        return
