"""Bytes of the state compared with their checksums when a process first reads them.

What has a name in a store is never rewritten by a job, so bytes are compared once, and again where a local
file has another inode, size or time of change than when it was compared. Bytes that a `MemoryStore` holds
were in this process' memory all the time. Cost: a CRC-32 of what is new to the process.
"""

from __future__ import annotations

import os
import zlib

import pyarrow as pa

from watersmeet.state.damage import damaged
from watersmeet.state.sections import object_of
from watersmeet.state.store import LocalStore, MemoryStore, Store

Version = tuple[int, ...]

_MOST = 1 << 16
_versions: dict[tuple[str, str, int], Version] = {}
"""Of what was compared: by store, name and offset."""


def verify_once(store: Store, name: str, offset: int, data: pa.Buffer, checksum: int, what: str) -> None:
    """Compare bytes of a store with their checksum, unless this process has done so.

    Args:
        offset: where they begin among the bytes of ``name``.
        data: the bytes, as they were just read.
        what: the stored thing with its name, for messages.

    Raises:
        StateError: they are not what was written.
    """
    if isinstance(store, MemoryStore):
        return
    key, version = (repr(store), name, offset), _version(store, name)
    if _versions.get(key) == version:
        return
    if zlib.crc32(data) != checksum:
        raise damaged(what, "it is not what was written")
    if len(_versions) >= _MOST:
        _versions.clear()
    _versions[key] = version


def _version(store: Store, name: str) -> Version:
    if not isinstance(store, LocalStore):
        return ()
    try:
        stat = os.stat(os.path.join(store.root, object_of(name)))
    except OSError:  # what was read of it is there
        return ()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
