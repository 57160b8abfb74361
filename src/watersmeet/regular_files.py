"""Check that paths are regular files.

Opening a FIFO, a socket or a device may block forever, and reading one may never end.
"""

from __future__ import annotations

import errno
import glob
import io
import os
import re
import stat
from collections.abc import Sequence

from watersmeet.errors import SpecError

_HIDDEN = (".", "_")
_TOKEN = re.compile(r"\\.|\[[^\]]+\]|.", re.DOTALL)
"""Of a pattern: an escaped character, a set of characters, or a character."""
MAX_ALTERNATIVES = 10_000
_MAX_BRACES = 100
_OWN = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""What this process has open: a pipe of a shell's ``<(…)``, whose writer is there."""


def special_kind(mode: int) -> str | None:
    """Return the kind of a special file by its mode from `os.stat`, such as "a FIFO"; None for others."""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def special_at(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of a special file at a path or behind its link; None for a file or directory."""
    try:
        return special_kind(os.stat(path).st_mode)
    except (OSError, ValueError):
        return None


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file as a whole.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    name, flags = os.fspath(path), os.O_RDONLY
    if not name.startswith(_OWN):
        special = special_at(name)
        if special is not None:
            raise OSError(errno.EINVAL, f"it is {special}, not a file", name)
        flags |= getattr(os, "O_NONBLOCK", 0)  # it may have become one since
    with open(name, "rb", opener=lambda path, _: os.open(path, flags)) as file:
        return file.read()


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Read a text file as a whole; lines end with ``\\n``, whatever they end with there.

    Raises:
        OSError: it cannot be read, or is no file.
        UnicodeDecodeError: it is no text of that encoding.
    """
    return io.TextIOWrapper(io.BytesIO(read_bytes(path)), encoding=encoding).read()


def matching_paths(path: str, *, recursive: bool = False) -> list[str]:
    """Return the path if it exists, or the paths that match it as a pattern, by name.

    Args:
        recursive: whether ``**`` matches any directories.

    Raises:
        SpecError: the pattern has too many alternatives.
    """
    if os.path.exists(path):
        return [path]
    patterns = (_as_glob(one) for one in alternatives(path))
    return sorted({own for pattern in patterns for own in glob.iglob(pattern, recursive=recursive)})


def alternatives(path: str) -> list[str]:
    """Return the patterns without ``{a,b}`` that one of Hadoop's stands for; braces that do not close stay.

    >>> alternatives("in/{2024,2025/{01,02}}/*.json")
    ['in/2024/*.json', 'in/2025/01/*.json', 'in/2025/02/*.json']
    """
    tokens = _TOKEN.findall(path)
    texts = _alternatives(tokens) if tokens.count("{") <= _MAX_BRACES else None
    if texts is None:
        raise SpecError(
            f"{path[:80]} expands to more than {MAX_ALTERNATIVES:,} paths or has more than"
            f" {_MAX_BRACES} braces",
            code="wrong-option",
            hint="use * and ? instead of {…}",
        )
    return texts


def _alternatives(tokens: Sequence[str]) -> list[str] | None:
    """Return the alternatives of a tokenized pattern; None if there are too many."""
    start = next((place for place, token in enumerate(tokens) if token == "{"), len(tokens))
    depth, heads, begun = 0, list[str](), start + 1
    for place in range(start, len(tokens)):
        depth += {"{": 1, "}": -1}.get(tokens[place], 0)
        if depth == 0 or (depth == 1 and tokens[place] == ","):
            inner = _alternatives(tokens[begun:place])
            if inner is None:
                return None
            heads += inner
            begun = place + 1
        if depth == 0:
            tails = _alternatives(tokens[begun:])
            if tails is None or len(heads) * len(tails) > MAX_ALTERNATIVES:
                return None
            before = "".join(tokens[:start])
            return [before + head + tail for head in heads for tail in tails]
    return ["".join(tokens)]


def _as_glob(pattern: str) -> str:
    """Return a pattern of Hadoop's, one without ``{a,b}``, as `glob` has it."""
    return "".join(
        glob.escape(token[1:]) if token[0] == "\\" and len(token) > 1 else token.replace("[^", "[!")
        for token in _TOKEN.findall(pattern)
    )


def named_files(path: str) -> list[str]:
    """Return the files that a command's option names, by name.

    Args:
        path: a file, a directory of files, or a pattern (``**`` for any directories). Below a
            directory, names that begin with ``_`` or ``.`` are left out.
    """
    roots = matching_paths(path, recursive=True)
    files: list[str] = []
    for root in roots:
        if not os.path.isdir(root):
            files.append(root)
            continue
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith(_HIDDEN))
            files += [os.path.join(folder, name) for name in sorted(names) if not name.startswith(_HIDDEN)]
    return [file for file in files if special_at(file) is None]
