"""Which files a job has read, for as long as it lives: lists in the store that only ever grow.

A tick that read files adds a list with these alone; when there are `FAN_IN` of a level, they become one of
the next. So a tick costs what it read, and a manifest names few lists however many files there were. A list
is named by a digest of its content: one that was damaged is known by its name, and the same files make the
same list, also in a tick that is repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from watersmeet.state.store import Store
from watersmeet.state.stored_record import FrozenRecord, damage_error

FAN_IN = 16
FOLDER = "files"
KEY = "files"
"""Where a manifest's ``host`` has its lists."""

GONE_ELSEWHERE = (-2, -2)
"""In the place of size and time of a file of another file system: it was gone before it was read."""


class FileRead(NamedTuple):
    """File as it was when the job read it.

    Attributes:
        source: the number of the source in the job.
        batch: the file's batch in Spark's log of the source.
        path: the path as Spark writes it (a URL).
        time_ms: the file's time in Spark's log, in ms.
        size: the size in bytes; -1 if it was not queried, -2 if the file was missing from another file
            system.
        changed_ns: the time of the last change in the file system, in ns; -1 and -2 as for ``size``.
    """

    source: int
    batch: int
    path: str
    time_ms: int
    size: int
    changed_ns: int


class FileList(FrozenRecord):
    """Stored list of files.

    Attributes:
        level: 0 for the list of one tick; otherwise the list combines `FAN_IN` lists of the next lower level.
    """

    name: str
    files: int
    level: int = 0


def lists_of(host: Mapping[str, Any]) -> list[FileList]:
    """Return the lists that a manifest's ``host`` names, oldest first."""
    return [FileList.model_validate(entry) for entry in host.get(KEY, ())]


def verify_file_list(store: Store, file_list: FileList) -> None:
    """Check that a list exists and has its original content.

    Raises:
        StateError: the list is missing, or its content differs.
    """
    _content(store, file_list)


def names_in(host: Mapping[str, Any]) -> Iterator[str]:
    """Return the stored names of the lists in a manifest's ``host``."""
    return (entry["name"] for entry in host.get(KEY, ()))


def add(store: Store, lists: Sequence[FileList], files: Iterable[FileRead]) -> list[FileList]:
    """Append ``files`` to the lists and store the new lists. Deterministic."""
    lines = [_line(file) for file in files]
    if not lines:
        return list(lists)
    all_lists = [*lists, _store_list(store, b"".join(lines), len(lines), 0)]
    while len(all_lists) >= FAN_IN and len({file_list.level for file_list in all_lists[-FAN_IN:]}) == 1:
        merged = all_lists[-FAN_IN:]
        content = b"".join(_content(store, file_list) for file_list in merged)
        all_lists[-FAN_IN:] = [
            _store_list(store, content, sum(file_list.files for file_list in merged), merged[0].level + 1)
        ]
    return all_lists


def read(store: Store, lists: Iterable[FileList]) -> Iterator[FileRead]:
    """Yield all files in the order in which they were read.

    Raises:
        StateError: a list is damaged.
    """
    for file_list in lists:
        for line in _content(store, file_list).splitlines():
            yield FileRead(*json.loads(line))


def _line(file: FileRead) -> bytes:
    return json.dumps(list(file)).encode() + b"\n"


def _store_list(store: Store, content: bytes, files: int, level: int) -> FileList:
    file_list = FileList(name=f"{FOLDER}/{_digest(content)}", files=files, level=level)
    if not store.create(file_list.name, content):  # by an attempt of this tick that did not get to its end
        _content(store, file_list)
    return file_list


def _content(store: Store, file_list: FileList) -> bytes:
    content = bytes(store.read(file_list.name))
    if file_list.name != f"{FOLDER}/{_digest(content)}":
        raise damage_error(f'list of files read "{file_list.name}"', "its content is not what was written")
    return content


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
