"""Small files of ours that are read back and trusted: JSON text, sealed with a checksum.

    {"tick": 12, …}
    {"checksum": "<32 hexadecimal digits>"}

Two lines, each JSON. The checksum is over the file's name and the whole first line, so that neither a changed
digit nor another file under this name goes for what was written. It is no signature: it tells damage, not
forgery.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

from watersmeet.state.damage import damaged
from watersmeet.state.record import Record
from watersmeet.state.store import MemoryStore, Store

_SEAL = b'\n{"checksum": "%s"}\n'


def sealed(name: str, text: str | bytes) -> bytes:
    """What to store under ``name``. ``text``: JSON on one line."""
    content = text.encode() if isinstance(text, str) else text
    return content + _SEAL % _checksum(name, content)


def sealed_record(store: Store, name: str, record: Record) -> Any:
    """Return what to store of a record that nobody changes; a `MemoryStore` makes it when it is read."""
    encode = partial(_encoded, name, record)
    return encode if isinstance(store, MemoryStore) else encode()


def _encoded(name: str, record: Record) -> bytes:
    return sealed(name, record.model_dump_json())


def unsealed(name: str, data: bytes, *, what: str | None = None, hint: str | None = None) -> bytes:
    """The text that was stored under ``name``.

    Args:
        what: the file as messages call it; None: by its name.
        hint: what to do about damage; None: restore a copy.

    Raises:
        StateError: it is not, to the last byte, what was stored under this name.
    """
    content = data[:-_SEAL_BYTES] if len(data) > _SEAL_BYTES else b""
    if not content or data[-_SEAL_BYTES:] != _SEAL % _checksum(name, content):
        raise damaged(what or f'file "{name}"', _problem(data), hint)
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
