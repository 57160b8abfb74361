"""Lines that Spark's Java process has no memory for: it ends at one, and again each time it is started.

A line is in Java's memory several times: as bytes in a buffer that grows, as text, as a broken record.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import BinaryIO

from watersmeet.errors import EngineError
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import COMPRESSED, format_of
from watersmeet.spec.options.values import lower_names

SHARE = 16
"""A line may be so large a part of Java's memory. One of a tenth ends it."""
MAX_BYTES = 1 << 29
"""Of a line in any memory: Java's texts hold 2 GiB in two bytes each, and buffers grow by doubling."""

_CHUNK = 64 << 10


def check_lines(what: str, source: Source, path: str, nbytes: int, most: int) -> None:
    """Refuse a local file with a line of more than ``most`` bytes, in which lines are records.

    Reads little: where lines are short, 64 KiB of each half of ``most`` bytes.

    Args:
        what: the source, for messages (``file source "a"``).
        nbytes: the size of the file.

    Raises: EngineError.
    """
    options = lower_names(source.options)
    spans_lines = options.get("multiline", "").strip().lower() == "true"
    if nbytes <= most or spans_lines or format_of(source.options) == "parquet":
        return
    if os.path.splitext(path)[1].lower() in COMPRESSED:
        return
    try:
        encoding = (options.get("encoding") or options.get("charset") or "utf-8").strip()
        if options.get("linesep") and "".encode(encoding):  # ends are not written with the file's mark
            return
        ends = [options["linesep"].encode(encoding)] if options.get("linesep") else [b"\n", b"\r"]
        with open(path, "rb") as file:
            start = find_long_line(file, nbytes, most, ends)
            if start is None:
                return
            end = _find_first_end(file, start + most, nbytes, ends) or nbytes
    except (LookupError, ValueError, OSError):
        return  # who reads it says so
    hint = (
        "check whether a line break is missing there, correct the file and run again; nothing of it"
        " was written"
    )
    if end - start <= MAX_BYTES:
        memory = (end - start) * (SHARE + 2) // (1 << 30) + 1  # Java has some less than it is given
        hint += (
            f"; or give Java more memory: --conf spark.driver.memory={memory}g (on a cluster"
            " spark.executor.memory)"
        )
    raise EngineError(
        f"{what}: the line of {path} at byte {start:,} has {end - start:,} bytes, but the memory of"
        f" Spark's Java process allows {most:,}",
        code="line-too-long",
        hint=hint,
    )


def find_long_line(file: BinaryIO, nbytes: int, most: int, ends: Sequence[bytes]) -> int | None:
    """Return where the first line of more than ``most`` bytes begins; None: there is none."""
    start = 0
    while nbytes - start > most:
        middle = start + most // 2
        end = _find_first_end(file, middle, start + most, ends)
        if end is None:
            end = _find_last_end(file, start, middle, ends)
        if end is None:
            return start
        start = end
    return None


def _find_first_end(file: BinaryIO, start: int, stop: int, ends: Sequence[bytes]) -> int | None:
    """Return the place behind the first end of a line that begins between; None: there is none."""
    longest = max(map(len, ends))
    for at in range(start, stop, _CHUNK):
        file.seek(at)
        chunk = file.read(min(_CHUNK, stop - at) + longest - 1)
        places = [(place, len(end)) for end in ends if (place := chunk.find(end)) >= 0]
        if places:
            place, length = min(places)
            return at + place + length
    return None


def _find_last_end(file: BinaryIO, start: int, stop: int, ends: Sequence[bytes]) -> int | None:
    """Return the place behind the last end of a line that begins between; None: there is none."""
    longest = max(map(len, ends))
    for at in range(stop, start, -_CHUNK):
        first = max(start, at - _CHUNK)
        file.seek(first)
        chunk = file.read(at - first + longest - 1)
        places = [(place + len(end)) for end in ends if (place := chunk.rfind(end)) >= 0]
        if places:
            return first + max(places)
    return None
