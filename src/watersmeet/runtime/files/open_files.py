"""Open local files of text, which may be compressed."""

from __future__ import annotations

import bz2
import gzip
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.spec.options.files import COMPRESSED

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
BROKEN_ARCHIVE = (OSError, EOFError, zlib.error)
"""What reading a file by these raises; an OSError without words of the operating system is of the content."""

FORMATS: Mapping[str, str] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
"""Formats of files that a user names, by the ends of their names."""

MAX_HEADER_FILES = 1000
"""Files whose beginnings are read: the oldest and the newest, half and half."""


def suffix_of(file: str) -> str:
    """Return the end of a file's name from its last point, in lower case."""
    return os.path.splitext(file)[1].lower()


def format_by_name(file: str) -> str | None:
    """Return the format that the end of a file's name says; None if it says none."""
    return FORMATS.get(suffix_of(file))


def can_open(file: str) -> bool:
    """Return True unless a file's name says a compression that only Spark can read."""
    return suffix_of(file) not in COMPRESSED - _OPENERS.keys()


def open_bytes(file: str) -> Any:
    """Open a file for its bytes, uncompressed."""
    return _OPENERS.get(suffix_of(file), open)(file, "rb")


def open_text(
    file: str, options: Mapping[str, str], *, errors: str = "strict", newline: str | None = ""
) -> Any:
    """Open a file as text in the encoding that options name, without UTF-8's byte order mark.

    Args:
        options: options of the source, with names in lower case.

    Raises:
        LookupError: the encoding is unknown here.
    """
    encoding = encoding_in(options)
    if encoding.lower() in ("utf-8", "utf8"):
        encoding = "utf-8-sig"
    return _OPENERS.get(suffix_of(file), open)(file, "rt", encoding=encoding, errors=errors, newline=newline)


def encoding_in(options: Mapping[str, str]) -> str:
    """Return the encoding that options name, or UTF-8."""
    return (options.get("encoding") or options.get("charset") or "utf-8").strip()


def choose_oldest_and_newest(files: Sequence[Any], limit: int) -> Sequence[Any]:
    """Return the first and the last of files in the order of their age, at most ``limit`` of them."""
    return files if len(files) <= limit else [*files[: limit // 2], *files[-limit // 2 :]]
