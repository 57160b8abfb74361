"""File sources whose files have other paths than when the job read them.

Spark knows files by their paths: at other paths it would read them again. Such a job is refused, unless its
user says that they are the same files (``--accept-moved``). Then each is looked for by its path below that of
the source and compared by its size, and the lists of the state and Spark's own get the new paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from watersmeet.errors import EngineError, SpecError, format_count, near_names, raise_all
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.restore.changed_queries import goes_on, path_before
from watersmeet.runtime.files.listing import (
    PATTERN,
    FileStat,
    encode_for_url,
    find_base_path,
    format_path,
    is_same_time,
    read_file_stat,
    to_local_path,
)
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.checkpoint.rebuild import rewrite_file_paths
from watersmeet.runtime.spark.checkpoint.spark_log import damaged_list_error
from watersmeet.runtime.spark.checkpoint.spark_positions import OFFSETS, load_offsets
from watersmeet.runtime.spark.sources.files.progress import last_read_step
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import local_path, path_of, warns_of_changes
from watersmeet.state import file_lists
from watersmeet.state.file_lists import FileRead
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store


@dataclass(frozen=True)
class MovedFiles:
    """The files of a source at their new paths.

    Attributes:
        before, now: Old and new directory or file of the source's path up to its first pattern, without a
            slash at the end.
        same: Files that exist with their old size.
        note: The comparison that was made.
    """

    source: Source
    before: str
    now: str
    same: Mapping[str, FileStat]
    note: str

    def to_new_path(self, file: FileRead) -> FileRead:
        """Return the file as it is known from now on; its place in the order of records stays."""
        path = self.path_of(file.path)
        stat = self.same.get(to_local_path(path) or "")
        changed_ns = file.changed_ns if stat is None or stat[0] != file.size else stat[1]
        return file._replace(path=path, changed_ns=changed_ns)

    def path_of(self, path: str) -> str:
        """Return the new path of a file, of a URL a URL; a path that is new stays, wherever that is."""
        local = to_local_path(path)
        is_new = local is not None and is_below(local, self.now)
        return path if is_new else self._replace_base(path, self.before, self.now)

    def to_old_path(self, file: FileRead) -> FileRead:
        """Return the file as an earlier run began a tick with it."""
        return file._replace(path=self._replace_base(file.path, self.now, self.before))

    def _replace_base(self, path: str, before: str, now: str) -> str:
        local = to_local_path(path)
        if local is None or not is_below(local, before):
            return path
        below = local.removeprefix(before)
        if path.startswith("/"):
            return now + below
        parts = path.split("/")  # of a URL, as Spark encodes it
        start, rest = parts[: -local.count("/")], parts[len(parts) - below.count("/") :]
        return "/".join([*start, *encode_for_url(now).split("/")[1:], *rest])


@dataclass(frozen=True)
class MovedSources:
    """All moved sources of a job, by their numbers in its state."""

    sources: Mapping[int, MovedFiles] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.sources)

    @property
    def notes(self) -> list[str]:
        return [moved.note for moved in self.sources.values()]

    def relocate(self, host: Mapping[str, Any], store: Store) -> dict[str, Any]:
        """Return the host of a manifest with the new paths; new lists are stored."""
        if not self or file_lists.KEY not in host:
            return dict(host)
        files = map(self._to_new_path, file_lists.read(store, file_lists.lists_of(host)))
        return {**host, file_lists.KEY: [one.model_dump() for one in file_lists.add(store, [], files)]}

    def _to_new_path(self, file: FileRead) -> FileRead:
        moved = self.sources.get(file.source)
        return file if moved is None else moved.to_new_path(file)

    def to_old_path(self, file: FileRead) -> FileRead:
        """Return the file as an earlier run began a tick with it."""
        moved = self.sources.get(file.source)
        return file if moved is None else moved.to_old_path(file)

    def move_log(self, checkpoint: Checkpoint, host: Mapping[str, Any]) -> str | None:
        """Write the new paths to Spark's lists of files; return what was done.

        Args:
            host: of the newest manifest.

        Raises:
            StateError: a list is damaged.
            EngineError: a file of a tick that was interrupted has another modification time.
        """
        spark = checkpoint.spark_files
        try:
            for number, moved in self.sources.items():
                for step in range(_find_last_step(host, number) + 1, spark.last_step(number) + 1):
                    for entry in spark.file_log(number, step):
                        _check_time(moved, str(entry["path"]), int(entry["timestamp"]))
            of_sources = {number: moved.path_of for number, moved in self.sources.items()}
            aside = rewrite_file_paths(checkpoint, of_sources)
        except ValueError as error:
            raise damaged_list_error(error) from None
        if aside is None:
            return None
        return f"Spark's lists of files have the new paths; the old checkpoint was moved to {aside}"

    def check_times(self, host: Mapping[str, Any], begun: Mapping[str, Any], store: Store) -> None:
        """Check the files of a tick that was interrupted, as `move_log` does.

        Args:
            host: of the newest manifest.
            begun: what the tick was begun with.
        """
        for file in file_lists.read(store, file_lists.lists_of(begun)):
            moved = self.sources.get(file.source)
            if moved is not None and file.batch > _find_last_step(host, file.source):
                _check_time(moved, file.path, file.time_ms)


def find_moved_sources(manifest: Manifest | None, plan: JobPlan, store: Store) -> MovedSources:
    """Return the sources of ``plan.moved`` whose files are at other paths than the state has.

    Raises:
        EngineError: another source's files are; files are missing or differ; it is not known which they are.
        StateError: a list of files is damaged.
    """
    if manifest is None:
        return MovedSources()
    by_name, stay = {source.name: source for source in plan.sources}, goes_on(manifest, plan)
    sources = {
        number: by_name[name]
        for number, name in enumerate(manifest.sources)
        if name in stay and by_name[name].traits.files and find_base_path(by_name[name]) is not None
    }
    elsewhere = _list_moved_files(
        sources, partial(file_lists.read, store, file_lists.lists_of(manifest.host))
    )
    refused = [number for number in elsewhere if sources[number].name not in plan.moved]
    flags = "".join(f" --accept-moved {quote(sources[number].name)}" for number in refused)
    raise_all([_is_moved(sources[number], elsewhere[number], flags) for number in refused])
    return MovedSources(
        {number: _locate_moved_files(sources[number], manifest, elsewhere[number]) for number in elsewhere}
    )


def unknown_move_errors(plan: JobPlan) -> list[SpecError]:
    """Return an error for each name in ``plan.moved`` that is not a source of local files."""
    local = [s.name for s in plan.sources if s.traits.files and find_base_path(s) is not None]
    return [
        SpecError(
            f'--accept-moved {name}: the job has no source "{name}" of local or mounted files',
            code="wrong-option",
            hint=near_names(name, local)
            or "files in object stores cannot be accepted under another URL: keep 'path'",
        )
        for name in sorted(plan.moved - set(local))
    ]


def _list_moved_files(
    sources: Mapping[int, Source], files: Callable[[], Iterable[FileRead]]
) -> dict[int, dict[str, int]]:
    """Return, per source of which no file is where its path points to, its files and their sizes."""
    bases = {number: find_base_path(source) for number, source in sources.items()}
    unsure, read = set(sources), set[int]()
    for file in files() if unsure else ():
        path, base = to_local_path(file.path), bases.get(file.source)
        if path is not None and base is not None:
            read.add(file.source)
            unsure -= {file.source} if is_below(path, base.rstrip("/")) else set()
        if not unsure:
            break
    moved = {number: dict[str, int]() for number in unsure & read}
    for file in files() if moved else ():
        path = to_local_path(file.path)
        if file.source in moved and path is not None:
            moved[file.source][path] = file.size
    return moved


def _is_moved(source: Source, sizes: Mapping[str, int], flags: str) -> EngineError:
    before, now = format_path(_common_folder(sizes)), format_path(find_base_path(source) or "")
    return EngineError(
        f"file source \"{source.name}\": the job read its files from {before}, but 'path' now points to"
        f" {now}",
        code="source-moved",
        hint=f"if the files were moved with the job, run with{flags}; otherwise set 'path' back, or run in"
        " the directory where the job ran",
    )


def _locate_moved_files(source: Source, manifest: Manifest, sizes: Mapping[str, int]) -> MovedFiles:
    """Find the files at their new paths. Raises: EngineError."""
    what, written = f'file source "{source.name}"', path_of(source.options)
    old = path_before(manifest, source)
    now, pattern = _split_at_pattern(local_path(written) or "")
    now = os.path.abspath(now).rstrip("/")
    fixed, old_pattern = _split_at_pattern(local_path(old) or "") if old is not None else ("", pattern)
    if pattern != old_pattern:
        raise EngineError(
            f'{what}: \'path\' was "{old}" and is now "{written}", which may be other files',
            code="source-moved",
            hint=f"change only the directory, and keep {old_pattern or 'a path without a pattern'}",
        )
    bases = [
        base for base in _list_possible_bases(fixed, _common_folder(sizes)) if _has_any(base, now, sizes)
    ]
    if len(bases) != 1:
        raise EngineError(
            f"{what}: the files that the job read in {format_path(_common_folder(sizes))} are not"
            f" {'below' if not bases else 'clearly the same as'} {format_path(now) or '/'}",
            code="source-moved",
            hint="copy the files, with the directories below 'path', to where 'path' points to",
        )
    return _compare_moved_files(source, bases[0], now, sizes)


def _compare_moved_files(source: Source, before: str, now: str, sizes: Mapping[str, int]) -> MovedFiles:
    same: dict[str, FileStat] = {}
    missing, other = list[str](), list[str]()
    for path, size in sizes.items():
        new = now + path.removeprefix(before)
        stat = read_file_stat(new)
        if size < 0:  # it was gone when it was read
            continue
        if stat is None:
            missing.append(new)
        elif stat[0] != size:
            other.append(new)
        else:
            same[new] = stat
    left = [(missing, "is missing"), (other, "has another size than when it was read")]
    texts = [
        f"{format_path(files[0])} {how}" + (f", and {len(files) - 1:,} more" if len(files) > 1 else "")
        for files, how in left
        if files
    ]
    if texts and not warns_of_changes(source.options):
        raise EngineError(
            f'file source "{source.name}": {"; ".join(texts)}',
            code="source-moved",
            hint="copy the files that the job read as they were; or set 'on_changed_file' = 'warn', which"
            " goes on without those that are missing, and counts those that changed",
        )
    note = (
        f'"{source.name}": {format_count(len(same), "file")} that the job read in '
        f"{format_path(before) or '/'}"
        f" {'is' if len(same) == 1 else 'are'} now in {format_path(now) or '/'}, with the same size"
    )
    return MovedFiles(source, before, now, same, "; ".join([note, *texts]))


def _find_last_step(host: Mapping[str, Any], number: int) -> int:
    return last_read_step(load_offsets(host), number) if OFFSETS in host else -1


def _check_time(moved: MovedFiles, path: str, time_ms: int) -> None:
    """Check that a file of an interrupted tick can be read as the same one."""
    new = to_local_path(moved.path_of(path))
    stat = None if new is None else moved.same.get(new) or read_file_stat(new)
    if stat is None or is_same_time(time_ms, stat[1]):
        return
    raise EngineError(
        f'file source "{moved.source.name}": the last run ended in the middle of a tick, and'
        f" {format_path(new or path)} of this tick has another modification time than when it was read",
        code="source-moved",
        hint="copy the files with their times (cp -a); or add --rebuild-spark-checkpoint, which plans the"
        " tick anew if no sink has rows of it",
    )


def is_below(path: str, base: str) -> bool:
    """Return True if a path is ``base``, which has no slash at its end, or below it."""
    return path == base or path.startswith(f"{base}/")


def _common_folder(paths: Iterable[str]) -> str:
    return os.path.commonpath([os.path.dirname(path) for path in paths])


def _split_at_pattern(path: str) -> tuple[str, str]:
    """Return a path up to its first pattern, and the rest."""
    parts = Path(path).parts
    first = next((number for number, part in enumerate(parts) if PATTERN & set(part)), len(parts))
    return os.path.join("", *parts[:first]), "/".join(parts[first:])


def _list_possible_bases(fixed: str, common: str) -> Iterator[str]:
    """Yield what a path as it was written may have stood for, without a slash at the end.

    Args:
        fixed: the path, up to its first pattern; empty: unknown.
        common: the directory that has all files.
    """
    if os.path.isabs(fixed):
        yield os.path.normpath(fixed).rstrip("/")
        return
    parts = Path(os.path.normpath(fixed)).parts
    tail = [part for part in parts if part not in ("..", ".")]
    every = [*Path(common).parents, Path(common)]
    if tail:
        every += [Path(common, tail[-1])]  # a file
    for base in every:
        if list(base.parts[len(base.parts) - len(tail) :]) == tail:
            yield str(base).rstrip("/")


def _has_any(before: str, now: str, sizes: Mapping[str, int]) -> bool:
    """Return True if a file that was read is at its new path."""
    return any(
        is_below(path, before) and read_file_stat(now + path.removeprefix(before)) is not None
        for path in sizes
    )
