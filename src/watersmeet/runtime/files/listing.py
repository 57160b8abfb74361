"""List the local files of a source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from unicodedata import category
from urllib.parse import quote, unquote, urlsplit

from watersmeet.errors import EngineError
from watersmeet.regular_files import matching_paths, special_at, special_kind
from watersmeet.runtime.files.partitions import folders_between, partition_folders
from watersmeet.runtime.files.table_files import is_hidden, unlistable_path_error, walk_files
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.state.file_lists import GONE_ELSEWHERE, FileRead

# The files that are at the path of a file source now, and which of them Spark's listing passes over.
#
# As Spark lists them: right in the directory, or in directories of partitions (``k=v``) and all beneath
# these, or all beneath it when the source says so; names that begin with ``_`` or ``.`` are not for
# readers. Above those of partitions there may be others, if all files share them.

FileStat = tuple[int, int]
"""Of a file: size, and the time of its last change in ns."""

SPECIAL: FileStat = (0, 0)
"""In the place of size and time of what is no file."""

PATTERN = frozenset("{}[]*?\\")
"""Characters by which Spark takes a path for a pattern."""

_ENCODED = frozenset(' "#%<>?[\\]^`{|}')
_CONTROLS = frozenset({"Cc", "Zs", "Zl", "Zp"})
"""Characters that Java encodes in a URI, and the categories of others."""

_COMPANIONS = (
    "_SUCCESS",
    "_committed_",
    "_started_",
    "_temporary",
    "_spark_metadata",
    "_delta_log",
    "_metadata",
)

NESTED = (
    "it is in a subdirectory: set 'recursiveFileLookup' = 'true' to read it, or 'false' to ignore"
    " subdirectories"
)
UNEVEN = (
    "Spark needs partition directories (k=v) directly below 'path' and without others between them:"
    " move them, or set 'recursiveFileLookup' = 'true', which takes no columns from directories, or"
    " 'false' to ignore subdirectories"
)
MIXED = (
    "Spark reads only partition directories (k=v) where there are any: move the file into one of them,"
    " or into a directory of its own"
)
_TOO_OLD = "its modification time is before 1970, and Spark skips such files: change it with `touch`"
_HIDDEN = "Spark skips files whose names begin with _ or .: rename it"
_NOT_UTF_8 = "its name is not valid UTF-8, so Java cannot open it: rename it"


class ListedFile(NamedTuple):
    """A file that is there. ``passed_over``: why Spark does not read it, and what to do; None: it does."""

    path: str
    stat: FileStat
    passed_over: str | None


def hadoop_path(path: str, *, stream: bool) -> str:
    """Return a path, or a pattern of paths, for Spark.

    A relative one is made absolute: the Java process may have another working directory. One file for a
    stream becomes a pattern that only it matches, for Spark takes a plain path for a directory.
    """
    local = local_path(path)
    if local is None:
        return path
    plain = os.path.abspath(local)
    if stream and os.path.exists(plain) and not os.path.isdir(plain):
        plain = f"{plain[:-1]}[{plain[-1]}]"
    return f"file:{plain}" if path.startswith("file:") else plain


def list_source_files(source: Source, special: list[str] | None = None) -> Iterator[ListedFile]:
    """Yield all files of a source except hidden ones; none if its path is not local.

    Args:
        special: receives the paths of FIFOs, sockets and devices, which are not files.

    Raises:
        EngineError: a directory cannot be listed.
    """
    nested_too, roots = _is_recursive(source), _list_roots(source)
    for root in roots:
        if is_hidden(os.path.basename(root)) and os.path.isfile(root):
            stat = read_file_stat(root)
            if stat is not None and roots == [os.path.abspath(local_path(path_of(source.options)) or "")]:
                yield ListedFile(root, stat, _HIDDEN)
            continue
        try:
            found_there = list(walk_files(root, special))
            above = _shared_folders(root, (path for path, _, _ in found_there)) if len(roots) == 1 else []
            for path, size, changed_ns in found_there:
                nested = None if nested_too else _nesting_hint(root, path, above)
                yield ListedFile(path, (size, changed_ns), _skip_reason(path, changed_ns, nested))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unlistable_path_error(f'file source "{source.name}"', root, error) from None


def find_unpartitioned_file(source: Source, paths: Iterable[str]) -> str | None:
    """Find a file outside partition directories among files of which others are inside some.

    When Spark reads such files together, it reads only the partitioned ones, without an error.

    Returns:
        The path, or None if there is no such file.
    """
    plain: str | None = None
    partitioned = False
    for path in paths:
        if partition_folders(source, path):
            partitioned = True
        else:
            plain = plain or path
    return plain if partitioned else None


def check_table(source: Source) -> None:
    """Check that Spark reads all files of a table.

    Raises:
        EngineError: Spark would skip a file.
    """
    there = list(list_source_files(source))
    if any(name.lower() == "pathglobfilter" for name in source.options):
        return
    odd = next(
        ((entry.path, entry.passed_over) for entry in there if entry.passed_over in (NESTED, UNEVEN)), None
    )
    plain = find_unpartitioned_file(source, (entry.path for entry in there))
    if odd is None and plain is not None:
        odd = (plain, MIXED)
    if odd is not None:
        raise EngineError(
            f'table "{source.name}": Spark skips {format_path(odd[0])}', code="file-unread", hint=odd[1]
        )


def list_hidden_files(source: Source) -> list[str]:
    """List files with content that Spark skips because of their names.

    Files that belong to others are not listed.
    """
    hidden = []
    for root in _list_roots(source):
        try:
            with os.scandir(root) as entries:
                hidden += [entry.path for entry in entries if _is_left_out(entry)]
        except OSError:  # a file, or it is gone
            continue
    return sorted(hidden)


def list_special_files(source: Source) -> list[str]:
    """Return the paths of FIFOs, sockets and devices where a source's files are."""
    special: list[str] = []
    for _ in list_source_files(source, special):
        pass
    return sorted(special)


def special_note(what: str, paths: Sequence[str]) -> str:
    """Return the notice that what is no file is not read."""
    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    kind = special_at(paths[0]) or "no file"
    return (
        f"{what}: skipped {format_path(paths[0])}, which is {kind}{more}: FIFOs, sockets "
        "and devices are not read"
    )


def read_file_stat(path: str) -> FileStat | None:
    """Return the size and modification time of a file; None if it does not exist.

    For a FIFO, a socket or a device return `SPECIAL`, whatever its content.
    """
    try:
        info = os.stat(path)
    except OSError:
        return None
    if special_kind(info.st_mode) is not None:
        return SPECIAL
    return info.st_size, info.st_mtime_ns


def to_local_path(path: str) -> str | None:
    """Convert Spark's name of a file to a path of the operating system; None if it is not local.

    A plain path stays unchanged.
    """
    if path.startswith("/"):
        return path
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else None


def encode_for_url(text: str) -> str:
    """Return a path, or a part of one, as Spark has it in URLs."""
    return "".join(quote(c) if c in _ENCODED or category(c) in _CONTROLS else c for c in text)


def reader_path(file: FileRead) -> str | None:
    """Return the path under which Spark's readers open a file.

    Returns:
        The path; None if the file was deleted before its tick was read, which was already reported.
    """
    local = to_local_path(file.path)
    if local is not None:
        return f"file:{local}" if file.size >= 0 else None
    if (file.size, file.changed_ns) == GONE_ELSEWHERE:
        return None
    parts = urlsplit(file.path)
    return parts._replace(path=unquote(parts.path)).geturl()


def is_unnameable(path: str) -> bool:
    """Return True if Spark treats a file's path as a pattern or cannot name it at all."""
    return bool(PATTERN & set(path)) or not _is_utf_8(path)


def format_path(path: str) -> str:
    """Format a path for messages, whatever its bytes."""
    return path if _is_utf_8(path) else os.fsencode(path).decode("utf-8", "backslashreplace")


def find_base_path(source: Source) -> str | None:
    """Return the directory or file that contains all files of a source; None if it is not local."""
    local = local_path(path_of(source.options))
    if local is None:
        return None
    path = os.path.abspath(local)
    while not os.path.exists(path) and PATTERN & set(path):
        path = os.path.dirname(path)
    return path


def _list_roots(source: Source) -> list[str]:
    """List the directories and files that the source's path matches, as Spark resolves it."""
    local = local_path(path_of(source.options))
    if local is None:
        return []
    return matching_paths(os.path.abspath(local))


def _is_recursive(source: Source) -> bool:
    """Return True if the user configured which files of subdirectories to read."""
    return any(name.lower() == "recursivefilelookup" for name in source.options)


def _shared_folders(root: str, paths: Iterable[str]) -> list[str]:
    """Return the directories above the partition directories if all files have the same ones.

    Spark then starts below them. Otherwise the result is empty: Spark would fail.
    """
    shared: list[str] | None = None
    for path in paths:
        folders = folders_between(root, path)
        first = next((number for number, folder in enumerate(folders) if "=" in folder), None)
        if first is None or (shared is not None and folders[:first] != shared):
            return []
        shared = folders[:first]
    return shared or []


def _nesting_hint(root: str, path: str, above: Sequence[str]) -> str | None:
    """Return what to do about a file that is neither in the directory itself nor in a partition.

    Returns:
        The hint, or None for a file in a regular place.
    """
    folders = folders_between(root, path)[len(above) :]
    partitions = ["=" in folder for folder in folders]
    if not any(partitions):
        return NESTED if folders else None
    return None if partitions == sorted(partitions, reverse=True) else UNEVEN


def _skip_reason(path: str, changed_ns: int, nested: str | None) -> str | None:
    if nested is not None:
        return nested
    if changed_ns < 0:
        return _TOO_OLD
    return None if _is_utf_8(path) else _NOT_UTF_8


def _is_left_out(entry: os.DirEntry[str]) -> bool:
    try:
        return (
            is_hidden(entry.name)
            and not entry.name.startswith(_COMPANIONS)
            and not entry.name.endswith(".crc")
            and entry.is_file()
            and entry.stat().st_size > 0
        )
    except OSError:
        return False


def _is_utf_8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_same_time(time_ms: int, changed_ns: int) -> bool:
    """Return True if Hadoop's modification time matches that of the file.

    If Hadoop's time has only whole seconds, compare the seconds.
    """
    if time_ms % 1000 == 0 and changed_ns // 1_000_000_000 == time_ms // 1000:
        return True
    return abs(changed_ns // 1_000_000 - time_ms) <= 1
