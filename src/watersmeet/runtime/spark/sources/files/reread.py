"""The files of a source that a job has read, read again in this process, and its unread files.

Each file has its position in Spark's log of the source. A file that was changed or deleted since is not
read: its former content is unknown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from watersmeet.errors import EngineError
from watersmeet.runtime.files.first_rows import FirstRows, read_file_rows
from watersmeet.runtime.files.inference import order_files
from watersmeet.runtime.files.listing import format_path, read_file_stat, to_local_path
from watersmeet.runtime.spark.checkpoint.spark_positions import SOURCES
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import path_of
from watersmeet.state import file_lists
from watersmeet.state.file_lists import FileRead
from watersmeet.state.store import Store


@dataclass
class RereadFiles:
    """Result of reading a source's files again.

    ``read``: path, place in the log, and rows of each file that was read, in the order that decides
    between records of a primary key. ``unread``: path and rows of the other files. ``missing``: a
    description of each file that cannot be read again, and its place in the log.
    """

    read: list[tuple[str, int, FirstRows]] = field(default_factory=list)
    unread: list[tuple[str, FirstRows]] = field(default_factory=list)
    missing: list[tuple[str, int]] = field(default_factory=list)


def reread_files(
    source: Source,
    store: Store,
    host: Mapping[str, Any],
    time_zone: str,
    needed: frozenset[str],
    tick_of: Callable[[int], int],
) -> RereadFiles:
    """Read all files of a source again.

    Args:
        host: the host of the newest manifest in the store.
        tick_of: returns the tick that read the files at a place in the log.
        needed: the columns that must be present.

    Raises:
        StateError: a list of files is damaged.
        EngineError: only Spark can read a file; the message names it.
    """
    again = RereadFiles()
    seen: set[str] = set()
    before: tuple[int, str] | None = None
    for order, file in sorted(
        ((_file_order(file, tick_of), file) for file in _read(source, store, host)), key=lambda own: own[0]
    ):
        path = to_local_path(file.path)
        is_unordered, before = order == before, order
        if path is None:
            again.missing.append((f"{unquote(file.path)} is on another file system", file.batch))
            continue
        if path in seen:
            continue
        seen.add(path)
        now = read_file_stat(path)
        if now != (file.size, file.changed_ns):
            what = "no longer exists" if now is None else "was changed after it was read"
            again.missing.append((f"{format_path(path)} {what}", file.batch))
        elif is_unordered and source.primary_key is not None:
            words = (
                "has the name and modification time of another file, so the order of their rows is unknown"
            )
            again.missing.append((f"{format_path(path)} {words}", file.batch))
        elif file.size:
            again.read.append(
                (format_path(path), file.batch, read_file_rows(source, path, time_zone, needed=needed))
            )
    options = {name.lower(): value for name, value in source.options.items()}
    try:
        there = order_files(source, path_of(source.options), options, hint=None)
    except EngineError:  # they cannot be listed here: then none is said not to be read yet
        there = []
    for listed in there:
        if listed.path not in seen:
            rows = read_file_rows(source, listed.path, time_zone, needed=needed)
            again.unread.append((format_path(listed.path), rows))
    return again


def _file_order(file: FileRead, tick_of: Callable[[int], int]) -> tuple[int, str]:
    return tick_of(file.batch), tick_order_text(file, file.time_ms)


def tick_order_text(file: FileRead, time_ms: int) -> str:
    """Return the text that orders the files of a tick, as `sources.frames` builds it.

    For records of a primary key, files count in the order of modification time, then name.

    Args:
        time_ms: the modification time of the file, in milliseconds.
    """
    path = to_local_path(file.path)
    return f"{time_ms * 1000!s:0>20} {os.path.basename(file.path if path is None else path)}"


def _read(source: Source, store: Store, host: Mapping[str, Any]) -> Iterator[FileRead]:
    """Yield the files of a source in the order in which they were read.

    Files that were later found changed appear once more.
    """
    names = list(host.get(SOURCES, ()))
    name = f"{source.connector} {source.name}"
    if name not in names:
        return
    number = names.index(name)
    for file in file_lists.read(store, file_lists.lists_of(host)):
        if file.source == number and file.batch >= 0:
            yield file
