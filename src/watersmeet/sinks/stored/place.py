"""Objects of a file sink: put, got, moved, and looked at, by requests that are repeated."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import parquet

from watersmeet.errors import EngineError, StateError
from watersmeet.objects.requests import TIMEOUT_S, Place, asked
from watersmeet.objects.store import AT_ONCE
from watersmeet.sinks.on_disk import refusals_told

LARGEST = 5 << 30
"""Bytes that a store takes in one put, which alone can be made to depend on there being nothing yet."""

_IN_PARTS = 256 << 20
_SLOWEST = 4 << 20
"""Bytes a second that are waited for."""
_FOOTER = 64 << 10
"""Bytes at the end of a file that are read at once: most footers are shorter."""
_PREFIX, _OLD_S = "watersmeet-stored-", 86_400
_LENGTH = 8
"""Bytes at the very end: the footer's length, and four letters."""


def stored_place(url: str, endpoint: str, region: str) -> Place:
    """Where objects are. ``endpoint``: empty, or an S3 server's URL, which says whether without TLS."""
    given = {"endpoint": endpoint, "region": region}
    options = tuple((name, value) for name, value in given.items() if value)
    return Place(url, options, allow_http=urlsplit(endpoint).scheme == "http")


@contextmanager
def told_of(sink: str) -> Iterator[None]:
    """What a store refuses, told as the sink's. Raises: EngineError."""
    try:
        yield
    except StateError as error:
        hint = (error.hint or "").replace("state_store_", "the sink's ")
        raise EngineError(f'sink "{sink}": {error.message}', code=error.code, hint=hint) from None


def put(place: Place, name: str, file: Path) -> None:
    """Put a file; there is no other object of that name. Raises: StateError."""
    size = file.stat().st_size
    place = extend_timeout(place, min(size, _IN_PARTS))
    asked(
        place,
        f'take "{name}"',
        lambda client: client.put(name, file, use_multipart=size > _IN_PARTS) and None,
    )


def create(place: Place, name: str, file: Path) -> bool:
    """Put a file unless there is an object of that name: whether there was none. After an answer that was
    lost nobody can say: then it is False. Raises: StateError."""
    from obstore.exceptions import AlreadyExistsError

    def created(client: Any) -> bool:
        try:
            client.put(name, file, mode="create", use_multipart=False)
        except AlreadyExistsError:
            try:
                client.head(name)
            except FileNotFoundError:  # it was deleted since, or another put is under way (409)
                raise ConnectionError("an object was in the way, but no longer exists") from None
            return False
        return True

    return asked(extend_timeout(place, file.stat().st_size), f'take "{name}"', created)


def get_all(place: Place, names: Sequence[str], folder: Path) -> Iterator[Path]:
    """The objects as files in a folder, in order; each goes when the next is asked for. Raises: StateError,
    EngineError, FileNotFoundError."""
    files = [folder / f"{number}" for number in range(len(names))]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for file, _ in zip(files, threads.map(lambda n, f: _get(place, n, f), names, files), strict=True):
            yield file
            file.unlink()


def _get(place: Place, name: str, file: Path) -> None:
    def read(client: Any) -> None:
        with on_disk():
            out = file.open("wb")
        with out:
            for chunk in client.get(name).stream(min_chunk_size=8 << 20):
                with on_disk():
                    out.write(chunk)
                    out.flush()

    asked(place, f'give "{name}"', read)


def move(place: Place, name: str, to: str) -> None:
    """Copy an object and remove it; what was done of that by a call that was killed is no error. Raises:
    StateError."""
    try:
        size = asked(place, f'say how large "{name}" is', lambda client: int(client.head(name)["size"]))
        asked(extend_timeout(place, size), f'copy "{name}"', lambda client: client.copy(name, to))
    except FileNotFoundError:
        return
    remove(place, [name])


def remove(place: Place, names: Sequence[str], patience_s: float | None = None) -> None:
    """Remove objects; what is gone already is no error. Raises: StateError."""

    def delete(name: str) -> None:  # one by one: some servers fail a request for many if one is gone
        with suppress(FileNotFoundError):
            asked(place, f'delete "{name}"', lambda client: client.delete(name), patience_s=patience_s)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        for _ in threads.map(delete, names):
            pass


def exists(place: Place, name: str) -> bool:
    """Raises: StateError."""
    return asked(
        place,
        f'say whether there is "{name}"',
        lambda client: client.head(name) is not None,
        missing=False,
    )


def there(place: Place, folder: str | None = None) -> tuple[list[str], list[str]]:
    """Folders and objects in a folder, or at the top, by their own names. Raises: StateError."""

    def listed(client: Any) -> tuple[list[str], list[str]]:
        listing = client.list_with_delimiter(folder)
        objects = [str(entry["path"]) for entry in listing["objects"]]
        return [_last(path) for path in listing["common_prefixes"]], [_last(path) for path in objects]

    return asked(place, "list what it holds", listed)


def beneath(place: Place, folder: str) -> list[str]:
    """All objects of a folder and its folders. Raises: StateError."""
    return asked(
        place,
        f'list "{folder}"',
        lambda client: [str(entry["path"]) for batch in client.list(folder) for entry in batch],
    )


def footer_of(place: Place, name: str) -> parquet.FileMetaData | None:
    """The footer of a Parquet file; None where there is no such object, or no Parquet in it. Raises:
    StateError."""

    def read(client: Any) -> bytes:
        size = int(client.head(name)["size"])
        length = min(size, _FOOTER)
        if length <= _LENGTH:
            return b""
        tail = bytes(client.get_range(name, start=size - length, length=length))
        wanted = int.from_bytes(tail[-_LENGTH:-4], "little") + _LENGTH
        if length < wanted <= size:
            tail = bytes(client.get_range(name, start=size - wanted, length=wanted))
        return tail

    try:
        tail = asked(place, f'give "{name}"', read)
    except FileNotFoundError:
        return None
    try:
        return parquet.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError, ValueError):
        return None


def on_disk() -> AbstractContextManager[None]:
    """What this machine's disk refuses within, told as that. Raises: EngineError."""
    return refusals_told(
        tempfile.gettempdir(),
        "make room there, or let the variable TMPDIR name another directory, then run again: the tick is "
        "repeated",
    )


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder on this machine's disk for files on their way. What killed processes left there goes when it
    is a day old. Raises: EngineError for what the disk refuses within."""
    with on_disk():
        for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with suppress(OSError):
                if left.stat().st_mtime < time.time() - _OLD_S:
                    shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
            yield Path(folder)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def extend_timeout(place: Place, size: int) -> Place:
    """Return ``place`` with a timeout in which a slow network moves ``size`` bytes.

    There are few different timeouts, since each has a client of its own.
    """
    timeout = place.timeout_s
    while timeout * _SLOWEST < size and timeout < TIMEOUT_S * 64:
        timeout *= 4
    return replace(place, timeout_s=timeout, patience_s=max(place.patience_s, timeout * 2))
