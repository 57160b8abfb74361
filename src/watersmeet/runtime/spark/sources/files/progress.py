"""Track which files of a source were read, and detect changed ones.

Spark reads a file once, by its path, as it is at that moment, and never looks at it again. So a file is
looked at before the rows of its tick are read and after: one that was changed in between was read in part.
All that were read are listed now and then, at the start and at the end: one with another size or time of
change has rows that were never read. Both stop the job, or are counted and named (``on_changed_file``).

So it is with local and mounted paths. Files of other file systems are remembered, and of those of a tick it
is asked whether they are there before it is read.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from watersmeet.errors import EngineError
from watersmeet.runtime.files.listing import (
    MIXED,
    NESTED,
    SPECIAL,
    FileStat,
    find_unpartitioned_file,
    format_path,
    is_same_time,
    is_unnameable,
    list_hidden_files,
    list_source_files,
    read_file_stat,
    special_note,
    to_local_path,
)
from watersmeet.runtime.files.long_lines import check_lines
from watersmeet.runtime.files.parquet_types import (
    compare_columns_if_readable,
    nanosecond_columns,
)
from watersmeet.runtime.files.partitions import check_partitions
from watersmeet.runtime.spark.checkpoint.directory import Offsets
from watersmeet.runtime.spark.checkpoint.spark_log import SparkFiles, damaged_list_error
from watersmeet.runtime.spark.checkpoint.spark_positions import NOTHING_READ
from watersmeet.runtime.spark.sources.files.missing_files import FindMissing
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import (
    ON_MISSING_COLUMN,
    format_of,
    local_path,
    path_of,
    warns_of_changes,
)
from watersmeet.state import file_lists
from watersmeet.state.file_lists import GONE_ELSEWHERE, FileList, FileRead
from watersmeet.state.store import Store

CHANGED = "changed"
"""Where a manifest's ``host`` has, per source, how many files were not read as they are now."""

LISTING_INTERVAL_S = 5.0
MAX_LISTING_SHARE = 0.05
"""Of the time, at most so much goes into listing files that were read."""

MAX_NAMED_FILES = 5
"""So many files are named in a message."""

SEEN_CHANGED, SEEN_MISSING = -1, -2
"""As the step of a file that was read before, and was then found changed; and of one that was there when a
run started, and gone when all had been read."""

_CHANGE_TEXTS = {
    "changed": "changed after it was read",
    "torn": "changed while it was read",
    "gone": "deleted before it was read",
    "unread": "not read",
    "vanished": "deleted between the start of the run and the time to read it",
}

_HINTS = {
    "changed": "restore the file (content and modification time), or set 'on_changed_file' = 'warn',"
    " which counts and names such files. Its old rows are in the result, new ones are not",
    "torn": "run again when the file is complete; nothing of this tick was written. Write files"
    " elsewhere on the same file system, and move them here when they are complete",
    "gone": "restore the file and run again; or set 'on_changed_file' = 'warn', which counts and names"
    " such files, without their rows. Nothing of this tick was written",
    "unread": NESTED,
    "vanished": "restore the file if you need its rows, and run again. Write files elsewhere on the"
    " same file system, and move them here when they are complete",
}

_NO_FILE = (-1, -1)
"""In the place of size and time: it was gone, or it is of another file system, where neither is known."""


@dataclass
class ChangedFiles:
    """Files of a source whose current content is not in the result, each counted once.

    Attributes:
        names: the names of the first of them.
    """

    files: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        self.files += 1
        if len(self.names) < MAX_NAMED_FILES:
            self.names.append(format_path(path))

    def remove(self, path: str) -> None:
        self.files -= 1
        if format_path(path) in self.names:
            self.names.remove(format_path(path))


@dataclass
class BatchFiles:
    """Files of one batch, as they were before the batch was read.

    Attributes:
        begun: the files as known to an earlier run that began the batch, if they were moved since.
    """

    files: list[FileRead]
    lists: list[FileList]
    changed: dict[str, ChangedFiles]
    begun: Sequence[FileRead] | None = None

    @property
    def host(self) -> dict[str, Any]:
        """Fields of the batch's files in a manifest's ``host``."""
        return {
            file_lists.KEY: [entry.model_dump() for entry in self.lists],
            CHANGED: {name: {"files": c.files, "names": c.names} for name, c in self.changed.items()},
        }

    @property
    def digest(self) -> str:
        """Digest that identifies the batch's files.

        It excludes files of other batches that were found changed: when a run detects a change is not a
        property of the batch.
        """
        own = [file for file in self.begun or self.files if file.batch >= 0]
        return hashlib.blake2b(json.dumps(own).encode(), digest_size=16).hexdigest()


class FileProgress:
    """Progress of file sources in one run of a job; see the module.

    Args:
        host: the host of the manifest that the run continues from.
        note: receives a message, once each, for problems that are counted and do not stop the job.
        gone: finds the files of other file systems that no longer exist.
        as_begun: maps a file of a batch that an earlier run began to what was known about it then.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        spark: SparkFiles,
        store: Store,
        host: Mapping[str, Any],
        note: Callable[[str], None],
        gone: FindMissing,
        as_begun: Callable[[FileRead], FileRead] = lambda file: file,
    ) -> None:
        self._spark = spark
        self._as_begun = as_begun
        self._gone = gone
        self._store = store
        self._note = note
        self._sources = {number: source for number, source in enumerate(sources) if source.traits.files}
        self._lock = threading.RLock()  # the stream's thread reads, another one looks
        self._lists = file_lists.lists_of(host)
        self._last = dict.fromkeys(self._sources, -1)
        self._known: dict[int, dict[str, FileStat]] = {number: {} for number in self._sources}
        self._counted: set[tuple[int, str]] = set()
        self._vanished: set[tuple[int, str]] = set()
        self._special: set[str] = set()
        self._missing: set[tuple[str, str]] = set()
        self._nanos = {
            number: nanosecond_columns(source)
            for number, source in self._sources.items()
            if format_of(source.options) == "parquet"
        }
        for entry in file_lists.read(store, self._lists):
            self._remember(entry)
        self.changed = load_changed_files(host)
        self._corrections: list[FileRead] = []
        self._waiting: dict[int, dict[str, FileStat]] = {}
        self._unread: dict[int, dict[str, FileStat]] = {}
        self._started_ns = time.time_ns()
        self._next_look = 0.0
        self._max_line_bytes: int | None = None

    def __bool__(self) -> bool:
        return bool(self._sources)

    def start(self, max_line_bytes: int | None = None) -> None:
        """Look before anything is read. Raises: EngineError as `look`.

        Args:
            max_line_bytes: of a line of text that can be read.
        """
        self._max_line_bytes = max_line_bytes
        self._waiting = self.look()
        for number, names in self._nanos.items():
            if names:
                own = ", ".join(c.name for c in self._sources[number].columns if c.name.lower() in names)
                self._note(
                    f'"{self._sources[number].name}": {own} has nanoseconds, truncated to microseconds'
                )
        for source in self._sources.values():
            if hidden := list_hidden_files(source):
                named = _format_paths(hidden)
                self._note(f'"{source.name}": skipped files whose names begin with _ or .: {named}')

    def compare_if_due(self) -> None:
        """Compare the files as `look` does, if the last comparison is long enough ago."""
        if self._sources and time.monotonic() >= self._next_look:
            self.look()

    def look(self) -> dict[int, dict[str, FileStat]]:
        """List what is there, and compare it with what was read.

        Returns:
            Per source the files that are still to be read.

        Raises:
            EngineError: a file was changed, or Spark passes over it.
        """
        before = time.monotonic()
        unread: dict[int, dict[str, FileStat]] = {number: {} for number in self._sources}
        for number, source in self._sources.items():
            stats, special = self._known[number], list[str]()
            for path, stat, passed_over in list_source_files(source, special):
                was = stats.get(path)
                if was == stat:
                    continue
                if was is None and passed_over is None:
                    unread[number][path] = stat
                elif was is None:
                    self._report("unread", number, path, stat, passed_over)
                else:
                    self._compare(number, path)
            self._note_special(source, special)
        now = time.monotonic()
        self._unread = unread
        self._next_look = now + max(LISTING_INTERVAL_S, (now - before) / MAX_LISTING_SHARE)
        return unread

    def _note_special(self, source: Source, paths: Sequence[str]) -> None:
        new = sorted(set(paths) - self._special)
        if new:
            self._special.update(new)
            self._note(special_note(f'"{source.name}"', new))

    def _note_missing(self, source: Source, path: str, columns: Sequence[str]) -> None:
        new = [name for name in columns if (source.name, name) not in self._missing]
        if new:
            self._missing.update((source.name, name) for name in new)
            self._note(
                f'"{source.name}": {format_path(path)} has no column {", ".join(new)}: it is NULL for this'
                f" file and others that lack it ('{ON_MISSING_COLUMN}' = 'fail' stops the job instead)"
            )

    def behind(self, batch: BatchFiles | None) -> dict[str, int]:
        """Count per source the files of the last listing that are neither read nor in ``batch``."""
        with self._lock:
            files = [] if batch is None else batch.files
            reading = {(file.source, to_local_path(file.path)) for file in files}
            return {
                self._sources[number].name: sum(
                    path not in self._known[number] and (number, path) not in reading for path in paths
                )
                for number, paths in self._unread.items()
            }

    def is_read(self, name: str, batch: BatchFiles | None) -> bool:
        """Return True if all files of a source are known to be read or in ``batch``.

        The answer is False for other file systems, and for a source without files, where this is unknown.
        """
        source = next((source for source in self._sources.values() if source.name == name), None)
        if source is None or local_path(path_of(source.options)) is None:
            return False
        return not self.behind(batch)[name]

    def _compare(self, number: int, path: str) -> None:
        """Compare a file again, because the stream may have read it after the listing."""
        with self._lock:
            stat = read_file_stat(path)
            if stat is not None and stat != self._known[number].get(path):
                self._report("changed", number, path, stat)

    def finish(self) -> None:
        """Check at the end of the input that all listed files were read.

        Raises:
            EngineError: as `look`.
        """
        unread = self.look()
        for number, source in self._sources.items():
            if any(name.lower() == "pathglobfilter" for name in source.options):
                continue
            for path, stat in self._waiting.get(number, {}).items():
                if path in self._known[number]:
                    continue
                now = unread[number].get(path)
                if now is None:
                    self._report("vanished", number, path, None)
                elif now == stat:
                    self._report("unread", number, path, stat)

    def build_final_batch(self) -> BatchFiles | None:
        """Build a batch of findings of `finish` that no later run would find again; None if none."""
        with self._lock:
            if not any(correction.batch == SEEN_MISSING for correction in self._corrections):
                return None
            return self._build_batch([])

    def of_batch(self, offsets: Offsets, *, again: bool) -> BatchFiles:
        """Record the files that a batch is about to read, with their current sizes and times.

        Args:
            again: Spark listed them for an earlier run; their sizes are listed only now.

        Raises:
            StateError: Spark's list of them is damaged.
            EngineError: a file is gone, or changed after Spark listed it, or Spark would read it twice or
                not
                at all.
        """
        with self._lock:
            files = []
            for number, source in self._sources.items():
                last = last_read_step(offsets, number)
                entries = [
                    (step, entry)
                    for step in range(self._last[number] + 1, last + 1)
                    for entry in self._log(number, step)
                ]
                elsewhere = [url for _, entry in entries if to_local_path(url := str(entry["path"])) is None]
                gone = self._gone(elsewhere) if elsewhere else frozenset[str]()
                read = [
                    self._inspect_file(number, source, step, entry, again, gone) for step, entry in entries
                ]
                plain = find_unpartitioned_file(
                    source,
                    (path for read_file in read if (path := to_local_path(read_file.path)) is not None),
                )
                if plain is not None:
                    raise EngineError(
                        f'file source "{source.name}": Spark would not read {format_path(plain)}',
                        code="file-unread",
                        hint=f"{MIXED}; nothing of this tick was written",
                    )
                files += read
            for file in filter(self._is_back, files):
                self.changed[self._sources[file.source].name].remove(to_local_path(file.path) or "")
            return self._build_batch(files, list(map(self._as_begun, files)) if again else None)

    def _build_batch(self, read: Sequence[FileRead], begun: Sequence[FileRead] | None = None) -> BatchFiles:
        files = [*self._corrections, *read]
        lists = file_lists.add(self._store, self._lists, files)
        return BatchFiles(files, lists, self.changed, begun)

    def _is_back(self, file: FileRead) -> bool:
        """Return True if a file that vanished is in the result after all, and stop counting it."""
        place = (file.source, to_local_path(file.path) or "")
        if file.batch < 0 or file.size < 0 or place not in self._vanished:
            return False
        self._vanished.discard(place)
        self._counted.discard(place)
        return True

    def check(self, batch: BatchFiles) -> None:
        """Check, after the rows were read, that the files did not change during the read.

        Raises:
            EngineError: a file changed or is gone.
        """
        with self._lock:
            for file in batch.files:
                path = to_local_path(file.path)
                if path is None or file.size < 0 or file.batch < 0:
                    continue
                stat = read_file_stat(path)
                if stat != (file.size, file.changed_ns):
                    self._report("gone" if stat is None else "torn", file.source, path, stat)

    def committed(self, batch: BatchFiles) -> None:
        """Record that the batch was committed as a tick."""
        with self._lock:
            self._lists = batch.lists
            self._corrections = [
                correction for correction in self._corrections if correction not in batch.files
            ]
            for file in batch.files:
                self._remember(file)

    def _remember(self, file: FileRead) -> None:
        path = to_local_path(file.path)
        if path is not None and file.batch == SEEN_MISSING:
            self._counted.add((file.source, path))
            self._vanished.add((file.source, path))
        elif path is not None:
            self._known[file.source][path] = (file.size, file.changed_ns)
            if file.batch == SEEN_CHANGED:
                self._counted.add((file.source, path))
            self._is_back(file)
        self._last[file.source] = max(self._last[file.source], file.batch)

    def _log(self, number: int, step: int) -> list[dict[str, Any]]:
        try:
            return self._spark.file_log(number, step)
        except ValueError as error:
            raise damaged_list_error(error) from None

    def _inspect_file(
        self,
        number: int,
        source: Source,
        step: int,
        entry: Mapping[str, Any],
        again: bool,
        gone: Collection[str],
    ) -> FileRead:
        url, time_ms = str(entry["path"]), int(entry["timestamp"])
        path = to_local_path(url)
        if path is None and url in gone:
            self._report("gone", number, unquote(url), None)
            return FileRead(number, step, url, time_ms, *GONE_ELSEWHERE)
        if path is None:
            return FileRead(number, step, url, time_ms, *_NO_FILE)
        if is_unnameable(path):
            raise EngineError(
                f'file source "{source.name}": Spark would read {format_path(path)} as a pattern, and rows'
                " twice",
                code="file-name",
                hint="rename it without [ ] { } * ? or backslash, and run again; nothing of this tick"
                " was written",
            )
        stat = read_file_stat(path)
        if stat is None:
            self._report("gone", number, path, None)
            return FileRead(number, step, url, time_ms, *_NO_FILE)
        if stat == SPECIAL:  # Spark reads nothing of it, as of any file without content
            self._note_special(source, [path])
            return FileRead(number, step, url, time_ms, *stat)
        listed_now = again and stat[1] < self._started_ns
        if not listed_now and not is_same_time(time_ms, stat[1]):
            self._report("torn", number, path, stat)
        what = f'file source "{source.name}"'
        check_partitions(what, source, path)
        if self._max_line_bytes is not None:
            check_lines(what, source, path, stat[0], self._max_line_bytes)
        if format_of(source.options) == "parquet":
            missing = compare_columns_if_readable(what, source, path, self._nanos[number])
            self._note_missing(source, path, missing)
        return FileRead(number, step, url, time_ms, *stat)

    def _report(
        self, what: str, number: int, path: str, stat: FileStat | None, hint: str | None = None
    ) -> None:
        """Stop the job for a file, or count it once and name it. As it is now it is known from then on."""
        source = self._sources[number]
        if not warns_of_changes(source.options):
            raise EngineError(
                f'file source "{source.name}": {format_path(path)} was {_CHANGE_TEXTS[what]}',
                code=f"file-{what}",
                hint=hint or _HINTS[what],
            )
        with self._lock:
            if what != "vanished":  # that one may come back, and be read
                self._known[number][path] = stat or _NO_FILE
            if (number, path) in self._counted:
                return
            self._counted.add((number, path))
            self.changed.setdefault(source.name, ChangedFiles()).add(path)
            self._note(f'"{source.name}": {format_path(path)} was {_CHANGE_TEXTS[what]}; it is counted')
            step = SEEN_MISSING if what == "vanished" else SEEN_CHANGED
            self._corrections.append(FileRead(number, step, path, 0, *(stat or _NO_FILE)))


def load_changed_files(host: Mapping[str, Any]) -> dict[str, ChangedFiles]:
    """Load per source the changed files that a manifest's ``host`` counts."""
    counted = host.get(CHANGED, {})
    return {name: ChangedFiles(changes["files"], list(changes["names"])) for name, changes in counted.items()}


def last_read_step(offsets: Offsets, source: int) -> int:
    """Return the last step of a file source that a batch reads; -1 if it has read nothing yet."""
    text = offsets.sources[source]
    return -1 if text == NOTHING_READ else int(json.loads(text)["logOffset"])


def _format_paths(paths: Sequence[str]) -> str:
    more = len(paths) - MAX_NAMED_FILES
    return ", ".join(map(format_path, paths[:MAX_NAMED_FILES])) + (f" and {more:,} more" if more > 0 else "")
