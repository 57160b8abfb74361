"""The files of a table in local folders: which there are, and by what it is known whether one has changed."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable

from watersmeet.errors import EngineError, near_names
from watersmeet.regular_files import matching_paths, special_kind
from watersmeet.spec.model import Source

Entry = tuple[str, int, int]
"""Path, size, time of the last change (in whatever unit the file system has)."""


def list_local_files(source: Source, path: str) -> list[Entry]:
    """List all files below a local path, which may contain wildcards, in order.

    Hidden files (``.x``, ``_x``) do not belong to the table.

    Raises:
        EngineError: the path does not exist, or a directory cannot be listed.
    """
    roots = matching_paths(path)
    if not roots:
        raise missing_path_error(f'table "{source.name}"', path)
    try:
        return sorted(entry for root in roots for entry in walk_files(root))
    except OSError as error:
        raise unlistable_path_error(f'"{source.name}"', path, error) from None


def missing_path_error(what: str, path: str) -> EngineError:
    """Return the error for a path at which nothing is; the hint names what is beside it under a similar name.

    Args:
        what: the source, for messages.
    """
    folder, name = os.path.split(path.rstrip("/"))
    try:
        near = near_names(name, sorted(os.listdir(folder or "."))) or ""
    except OSError:
        near = ""
    if folder:
        near = near.replace(' "', f' "{os.path.join(folder, "")}')
    similar = f"{near} Or create" if near.startswith("did you mean") else "correct the path, or create"
    return EngineError(
        f'{what}: the path "{path}" does not exist',
        code="path-missing",
        hint=f"{similar} the directory, which may be empty",
    )


def unlistable_path_error(what: str, path: str, error: OSError) -> EngineError:
    """Build the error for a directory at or below ``path`` that cannot be listed.

    Args:
        what: the source, for messages.
    """
    where = os.fsencode(error.filename or path).decode("utf-8", "backslashreplace")
    return EngineError(
        f"{what}: {where} cannot be listed: {error.strerror}",
        code="path-not-readable",
        hint="remove the loop of symbolic links"
        if error.errno == errno.ELOOP
        else "give the job's user permission to read and list it, or use another path",
    )


def is_hidden(name: str) -> bool:
    """Return True if Spark's listings skip a file or directory of this name.

    ``_k=1`` is not hidden: it is a partition directory.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def walk_files(root: str, special: list[str] | None = None) -> Iterable[Entry]:
    """Yield all files below a directory, or the single file; skip hidden ones.

    Files that disappear during the walk are left out.

    Args:
        special: receives the paths of FIFOs, sockets and devices, which are left out.

    Raises:
        FileNotFoundError: ``root`` does not exist.
    """
    special = [] if special is None else special
    if not os.path.isdir(root):
        stat = os.stat(root)
        if special_kind(stat.st_mode) is None:
            yield root, stat.st_size, stat.st_mtime_ns
        else:
            special.append(root)
        return
    with os.scandir(root) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            try:
                if entry.is_dir():
                    yield from walk_files(entry.path, special)
                    continue
                stat = entry.stat()
            except (FileNotFoundError, NotADirectoryError):  # the next look sees what came for it
                continue
            if special_kind(stat.st_mode) is None:
                yield entry.path, stat.st_size, stat.st_mtime_ns
            else:
                special.append(entry.path)


def digest_listing(entries: Iterable[Entry]) -> str:
    """Compute a digest of a listing."""
    return hashlib.blake2b(repr(sorted(entries)).encode(), digest_size=16).hexdigest()
