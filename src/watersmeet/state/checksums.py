"""Checksums of stored bytes, and small files that carry their checksum."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.state.store import LocalStore, MemoryStore, Store, object_of
from watersmeet.state.stored_record import StoredRecord, damage_error

# Checksums of the state's bytes: compared when a process first reads them.
#
# What has a name in a store is never rewritten by a job, so bytes are compared once, and again where a
# local file has another inode, size or change time than when it was compared. What is fetched from a
# remote store is compared each time, and its copy in the cache once, as long as that has the same
# checksum: that costs no request, as an ETag would. A copy that is not what was written is dropped: the
# store may be mended. Bytes that a `MemoryStore` holds were in this process' memory all the time.

Version = tuple[int, ...] | bytes


class Copies(Protocol):
    """Copies of what a remote store has, on this machine."""

    def version(self, name: str) -> Version | None:
        """Return a value that changes when the copy is replaced; None: there is none."""

    def drop(self, name: str) -> None:
        """Delete the copy, if there is one."""


_MAX_VERSIONS = 1 << 16
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
    if len(_versions) >= _MAX_VERSIONS:
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
    raise damage_error(what, "it is not what was written")


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


# Small files of ours that are read back and trusted: JSON text, sealed with a checksum.
#
#     {"tick": 12, …}
#     {"checksum": "<32 hexadecimal digits>"}
#
# Two lines, each JSON. The checksum is over the file's name and the whole first line, so that neither a
# changed digit nor another file under this name goes for what was written. It is no signature: it tells
# damage, not forgery.

_SEAL = b'\n{"checksum": "%s"}\n'


def add_checksum(name: str, text: str | bytes) -> bytes:
    """Return the bytes to store under ``name``: the content with its checksum.

    Args:
        text: JSON on one line.
    """
    content = text.encode() if isinstance(text, str) else text
    return content + _SEAL % _checksum(name, content)


def sealed_record(store: Store, name: str, record: StoredRecord) -> Any:
    """Return what to store of a record that nobody changes; a `MemoryStore` makes it when it is read."""
    encode = partial(_encode_record, name, record)
    return encode if isinstance(store, MemoryStore) else encode()


def _encode_record(name: str, record: StoredRecord) -> bytes:
    return add_checksum(name, record.model_dump_json())


def verify_checksum(name: str, data: bytes, *, what: str | None = None, hint: str | None = None) -> bytes:
    """Verify the checksum of a stored file and return its content.

    Args:
        what: the file as messages name it; None: by its name.
        hint: what to do about damage; None: restore a copy.

    Raises:
        StateError: the data is not exactly what was stored under this name.
    """
    content = data[:-_SEAL_BYTES] if len(data) > _SEAL_BYTES else b""
    if not content or data[-_SEAL_BYTES:] != _SEAL % _checksum(name, content):
        raise damage_error(what or f'file "{name}"', _problem(data), hint)
    return content


def _problem(data: bytes) -> str:
    if not data:
        return "it is empty"
    if not data.endswith(b'"}\n') or _SEAL[:15] not in data:
        return f"its end, with the checksum, is missing ({len(data)} bytes are there)"
    return "its checksum is that of another content"


def _checksum(name: str, content: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest().encode()


_SEAL_BYTES = len(_SEAL % (b"0" * 32))
