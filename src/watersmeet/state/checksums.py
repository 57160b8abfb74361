"""Checksums of the state's bytes: compared when a process first reads them.

What has a name in a store is never rewritten by a job, so bytes are compared once, and again where a local
file has another inode, size or change time than when it was compared. What is fetched from a remote store is
compared each time, and its copy in the cache once, as long as that has the same checksum: that costs no
request, as an ETag would. A copy that is not what was written is dropped: the store may be mended.
Bytes that a `MemoryStore` holds were in this process' memory all the time.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.state.damage import damaged
from watersmeet.state.sections import object_of
from watersmeet.state.store import LocalStore, MemoryStore, Store

Version = tuple[int, ...] | bytes


class Copies(Protocol):
    """Copies of what a remote store has, on this machine."""

    def version(self, name: str) -> Version | None:
        """Return a value that changes when the copy is replaced; None: there is none."""

    def drop(self, name: str) -> None:
        """Delete the copy, if there is one."""


_MOST = 1 << 16
_versions: dict[tuple[str, str, int, int, int], Version] = {}
"""Of what was compared: by store, name, offset, length and checksum."""


def read_verified(
    store: Store, name: str, read: Callable[[], pa.Buffer], checksum: int, what: str, *, offset: int = 0
) -> pa.Buffer:
    """Read bytes of a store, and compare them with their checksum unless this process has done so.

    Args:
        read: gives the bytes.
        what: the stored thing with its name, for messages.
        offset: where they begin among the bytes of ``name``.

    Raises:
        StateError: they are not what was written.
    """
    if isinstance(store, MemoryStore):
        return read()
    version = _version(store, name)
    try:
        data = read()
    except StateError:  # of another size
        _drop_copy(store, name)
        raise
    if version != _version(store, name):  # it came, or was replaced, while it was read
        version = None
    if version is not None and _versions.get((repr(store), name, offset, data.size, checksum)) == version:
        return data
    check_content(store, name, data, checksum, what)
    if version is not None:
        _keep(store, name, offset, data.size, checksum, version)
    return data


def is_verified(store: Store, name: str, nbytes: int, checksum: int, *, offset: int = 0) -> bool:
    """Return True if this process has compared these bytes and the name still has what it had then."""
    if isinstance(store, MemoryStore):
        return True
    version = _versions.get((repr(store), name, offset, nbytes, checksum))
    return version is not None and version == _version(store, name)


def note_written(store: Store, name: str, nbytes: int, checksum: int) -> None:
    """Record that this process has just written these bytes, which are all that the name has."""
    if (version := _version(store, name)) is not None:
        _keep(store, name, 0, nbytes, checksum, version)


def _keep(store: Store, name: str, offset: int, nbytes: int, checksum: int, version: Version) -> None:
    if len(_versions) >= _MOST:
        _versions.clear()
    _versions[repr(store), name, offset, nbytes, checksum] = version


def check_content(store: Store, name: str, data: pa.Buffer, checksum: int, what: str) -> None:
    """Compare the bytes that were read under a name with their checksum.

    Raises:
        StateError: they are not what was written. A copy of them on this machine is dropped.
    """
    if zlib.crc32(data) == checksum:
        return
    _drop_copy(store, name)
    raise damaged(what, "it is not what was written")


def _copies(store: Store) -> Copies | None:
    copies: Copies | None = getattr(store, "cache", None)
    return copies


def _drop_copy(store: Store, name: str) -> None:
    if (copies := _copies(store)) is not None:
        copies.drop(name)


def _version(store: Store, name: str) -> Version | None:
    """Return a value that changes when what is stored under the name is replaced; None: nothing says so."""
    if not isinstance(store, LocalStore):
        copies = _copies(store)
        return None if copies is None else copies.version(name)
    try:
        stat = os.stat(os.path.join(store.root, object_of(name)))
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_ctime_ns  # the time of change may be set, this one may not
