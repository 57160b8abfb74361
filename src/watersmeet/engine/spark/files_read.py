"""The files of a job's file sources: which were read, and whether they still are what they were.

Spark reads a file once, by its path, as it is at that moment, and never looks at it again. So a file is
looked at before the rows of its tick are read and after: one that was changed in between was read in part.
All that were read are listed now and then, at the start and at the end: one with another size or time of
change has rows that were never read. Both stop the job, or are counted and named (``on_changed_file``).

Local and mounted paths only; of other file systems files are remembered, not looked at.
"""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from watersmeet.engine.spark.checkpoint import Offsets
from watersmeet.engine.spark.spark_files import REBUILD, SparkFiles
from watersmeet.engine.step.table_files import beneath
from watersmeet.errors import EngineError, StateError
from watersmeet.spec.files import local_path, path_of, warns_of_changes
from watersmeet.spec.model import Source
from watersmeet.state import file_lists
from watersmeet.state.file_lists import FileList, FileRead
from watersmeet.state.store import Store

CHANGED = "changed"
"""Where a manifest's ``host`` has, per source, how many files were not read as they are now."""

LOOK_EVERY_S = 5.0
LOOK_SHARE = 0.05
"""Of the time, at most so much goes into listing files that were read."""

NAMED = 5
"""So many files are named in a message."""

SEEN_CHANGED = -1
"""As the step of a file that was read before, and was then found changed."""

Found = tuple[int, int]
"""Of a file: size, and the time of its last change in ns."""

_COMPANIONS = (
    "_SUCCESS",
    "_committed_",
    "_started_",
    "_temporary",
    "_spark_metadata",
    "_delta_log",
    "_metadata",
)

_WHAT = {
    "changed": "changed after it was read",
    "torn": "changed while it was read",
    "gone": "gone before it was read",
    "unread": "not read",
}

_HINTS = {
    "changed": "the rows that it had are in the result, those that came since are not: put new rows into new "
    "files. To go on, put the file back as it was (content and time), or say 'on_changed_file' = 'warn': "
    "such files are then counted and named",
    "torn": "nothing of this tick was put out. Write files elsewhere on the same file system and move them "
    "here when they are whole; when this one is, run again: it is then read as it is",
    "gone": "nothing of this tick was put out. Put the file back and run again, or say 'on_changed_file' = "
    "'warn': such files are then counted and named, and their rows are not in the result",
    "unread": "a directory's own files are read: for those in subdirectories say 'recursiveFileLookup' = "
    "'true', or 'false' when they are not meant",
}


@dataclass
class Changed:
    """Files of a source that are not in the result as they are now. ``names``: the first of them."""

    files: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        self.files += 1
        if len(self.names) < NAMED:
            self.names.append(path)


@dataclass
class BatchFiles:
    """The files of one batch, as they were before it was read."""

    files: list[FileRead]
    lists: list[FileList]
    changed: dict[str, Changed]


class FilesRead:
    """Of one run of a job; see the module.

    Args:
        host: of the manifest that the run goes on from.
        note: told, once each, what is counted and does not stop the job.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        spark: SparkFiles,
        store: Store,
        host: Mapping[str, Any],
        note: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._store = store
        self._note = note
        self._sources = {
            number: source for number, source in enumerate(sources) if source.connector == "file"
        }
        self._lists = file_lists.lists_of(host)
        self._last = dict.fromkeys(self._sources, -1)
        self._known: dict[int, dict[str, Found]] = {number: {} for number in self._sources}
        for each in file_lists.read(store, self._lists):
            self._remember(each)
        self.changed = {name: Changed(**found) for name, found in host.get(CHANGED, {}).items()}
        self._corrections: list[FileRead] = []
        self._torn: set[tuple[int, str]] = set()
        self._waiting: dict[int, dict[str, Found]] = {}
        self._started_ns = time.time_ns()
        self._next_look = 0.0

    def __bool__(self) -> bool:
        return bool(self._sources)

    def start(self) -> None:
        """Look before anything is read. Raises: EngineError as `look`."""
        self.look()
        for number, source in self._sources.items():
            listed = dict(_listed(source))
            self._waiting[number] = {k: v for k, v in listed.items() if k not in self._known[number]}
            hidden = _hidden(source)
            if hidden:
                self._note(
                    f'"{source.name}": files whose names begin with _ or . are not read: {_named(hidden)}'
                )

    def look_if_due(self) -> None:
        """As `look`, when the last one is long enough ago."""
        if self._sources and time.monotonic() >= self._next_look:
            self.look()

    def look(self) -> None:
        """List what is there, and compare it with what was read.

        Raises:
            EngineError: a file was changed, or lies where Spark does not read it.
        """
        before = time.monotonic()
        for number, source in self._sources.items():
            known = self._known[number]
            nested_too = _looks_beneath(source)
            for path, found in _listed(source):
                was = known.get(path)
                if was is None:
                    if not nested_too and _is_nested(source, path):
                        self._report("unread", number, path, found)
                elif was != found:
                    self._report("changed", number, path, found)
        now = time.monotonic()
        self._next_look = now + max(LOOK_EVERY_S, (now - before) / LOOK_SHARE)

    def finish(self) -> None:
        """When all that was there is read: whether it was. Raises: EngineError as `look`."""
        self.look()
        for number, source in self._sources.items():
            waiting = self._waiting.get(number, {})
            if waiting and "pathglobfilter" not in _lowered(source):
                listed = dict(_listed(source))
                for path, found in waiting.items():
                    if path not in self._known[number] and listed.get(path) == found:
                        self._report("unread", number, path, found)

    def of_batch(self, offsets: Offsets, *, again: bool) -> BatchFiles:
        """The files that a batch is about to read, recorded as they are.

        Args:
            again: Spark listed them for an earlier run; only now it lists their sizes anew.

        Raises:
            StateError: Spark's list of them is damaged.
            EngineError: one is gone, or was changed since Spark listed it.
        """
        files = list(self._corrections)
        for number, source in self._sources.items():
            last = step_of(offsets, number)
            for step in range(self._last[number] + 1, last + 1):
                files += [
                    self._looked_at(number, source, step, entry, again) for entry in self._log(number, step)
                ]
        lists = file_lists.add(self._store, self._lists, files)
        return BatchFiles(files, lists, self.changed)

    def check(self, batch: BatchFiles) -> None:
        """After the rows were read: whether the files are what they were before. Raises: EngineError."""
        for each in batch.files:
            path = local_of(each.path)
            if path is None or each.size < 0:
                continue
            found = _stat(path)
            if each.batch != SEEN_CHANGED and found != (each.size, each.changed_ns):
                self._report("gone" if found is None else "torn", each.source, path, found)

    def committed(self, batch: BatchFiles) -> None:
        """The batch is a tick now."""
        self._lists = batch.lists
        self._corrections = [each for each in self._corrections if each not in batch.files]
        for each in batch.files:
            self._remember(each)

    def _remember(self, file: FileRead) -> None:
        path = local_of(file.path)
        if path is not None:
            self._known[file.source][path] = (file.size, file.changed_ns)
        self._last[file.source] = max(self._last[file.source], file.batch)

    def _log(self, number: int, step: int) -> list[dict[str, Any]]:
        try:
            return self._spark.file_log(number, step)
        except ValueError as error:
            raise StateError(
                f"Spark's list of files read is damaged: {error}",
                code="spark-checkpoint-damaged",
                hint=REBUILD,
            ) from None

    def _looked_at(
        self, number: int, source: Source, step: int, entry: Mapping[str, Any], again: bool
    ) -> FileRead:
        url, time_ms = str(entry["path"]), int(entry["timestamp"])
        path = local_of(url)
        if path is None:
            return FileRead(number, step, url, time_ms, -1, -1)
        found = _stat(path)
        if found is None:
            self._report("gone", number, path, None)
            return FileRead(number, step, url, time_ms, -1, -1)
        listed_now = again and found[1] < self._started_ns
        if not listed_now and not _same_time(time_ms, found[1]):
            self._report("torn", number, path, found)
        return FileRead(number, step, url, time_ms, *found)

    def _report(self, what: str, number: int, path: str, found: Found | None) -> None:
        source = self._sources[number]
        if not warns_of_changes(source.options):
            raise EngineError(
                f'file source "{source.name}": {path} was {_WHAT[what]}',
                code=f"file-{what}",
                hint=_HINTS[what],
            )
        if (number, path) not in self._torn:  # or it would be counted for what it was counted for before
            self.changed.setdefault(source.name, Changed()).add(path)
            self._note(f'"{source.name}": {path} was {_WHAT[what]}; it is counted')
        self._torn.discard((number, path))
        if what == "torn":
            self._torn.add((number, path))
        if found is not None and what in ("changed", "unread"):
            self._known[number][path] = found
            self._corrections.append(FileRead(number, SEEN_CHANGED, path, 0, *found))


def step_of(offsets: Offsets, source: int) -> int:
    """The last step of a file source that a batch reads; -1 when it has read nothing yet."""
    text = offsets.sources[source]
    return -1 if text == "-" else int(json.loads(text)["logOffset"])


def local_of(path: str) -> str | None:
    """What Spark, or a correction, calls a file, as the operating system has it; None: it has not."""
    if path.startswith("/"):
        return path
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else None


def _roots(source: Source) -> list[str]:
    """The directories and files that the source's path stands for, as Spark has them."""
    local = local_path(path_of(source.options))
    if local is None:
        return []
    path = os.path.abspath(local)
    return [path] if os.path.exists(path) else sorted(glob.glob(path))


def _listed(source: Source) -> Iterator[tuple[str, Found]]:
    """All files of the source but hidden ones."""
    for root in _roots(source):
        for path, size, changed_ns in beneath(root):
            yield path, (size, changed_ns)


def _looks_beneath(source: Source) -> bool:
    """Whether the user has said which files of subdirectories are meant."""
    return "recursivefilelookup" in _lowered(source)


def _is_nested(source: Source, path: str) -> bool:
    """Whether Spark passes a file over: not right in the directory, nor in one of partitions."""
    for root in _roots(source):
        if path != root and path.startswith(root + os.sep):
            folders = os.path.dirname(os.path.relpath(path, root))
            return bool(folders) and not all("=" in each for each in folders.split(os.sep))
    return False


def _hidden(source: Source) -> list[str]:
    """Files with content that Spark passes over by their names, but for those that go with others."""
    found = []
    for root in _roots(source):
        if os.path.isdir(root):
            with os.scandir(root) as entries:
                found += [
                    entry.path
                    for entry in entries
                    if entry.name.startswith(("_", "."))
                    and not entry.name.startswith(_COMPANIONS)
                    and not entry.name.endswith(".crc")
                    and entry.is_file()
                    and entry.stat().st_size
                ]
    return sorted(found)


def _stat(path: str) -> Found | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _same_time(time_ms: int, changed_ns: int) -> bool:
    """Whether Hadoop's time of change is that of the file; where it has seconds alone, of the second."""
    if time_ms % 1000 == 0 and changed_ns // 1_000_000_000 == time_ms // 1000:
        return True
    return abs(changed_ns // 1_000_000 - time_ms) <= 1


def _lowered(source: Source) -> set[str]:
    return {name.lower() for name in source.options}


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - NAMED
    return ", ".join(paths[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
