"""Lines of text files: those that begin in a part, in blocks that end where lines do.

Lines end in ``\\n`` or ``\\r\\n``. Spark's readers end them at a lone ``\\r``, too: files with such are
Spark's, as are those that are no UTF-8, and those with a NUL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.engine.tasks.files.part import BYTES, NotPlain, Part
from watersmeet.spec.options.files import COMPRESSED

BLOCK = 4 << 20
"""Bytes that are read at a time; a block is as long, or as one line that is longer."""

_MARK = b"\xef\xbb\xbf"
"""What UTF-8 may begin with."""

_BLANK = re.compile(rb"^(?!\r?$)[\0-\x09\x0b-\x20]+$", re.MULTILINE)
_NO_BLANK = re.compile(rb"[^\0-\x20]")
_BLANK_LINES = re.compile(rb"(?:[\0-\x09\x0b-\x20]*+\n)*+")


def said_of_lines(path: str) -> tuple[int, int]:
    """About how many lines a file has, and of how many bytes. Raises: OSError."""
    lines = nbytes = 0
    with pa.OSFile(path) as file:
        while block := file.read(BLOCK):
            lines += block.count(b"\n")
            nbytes += len(block)
    return lines + 1, nbytes


def blocks_of(part: Part) -> Iterator[bytes]:
    """The lines that begin in a part, each in one block; what UTF-8 may begin with is left out.

    Raises:
        NotPlain: they are for Spark to read.
        OSError: they cannot be read.
    """
    if os.path.splitext(part.path)[1].lower() in COMPRESSED:
        raise NotPlain(f"{part.path}: it is compressed")
    with pa.OSFile(part.path) as file:
        at = _first_line(file, part)
        held = b""
        while part.end is None or at < part.end:
            block = file.read(BLOCK if part.end is None else min(BLOCK, part.end - at))
            at += len(block)
            is_last = not block or (part.end is not None and at >= part.end)
            if is_last and block and not block.endswith(b"\n"):
                block += _rest_of_line(file, part)
            held += block
            if len(held) > BYTES + 2 * BLOCK:
                raise NotPlain(f"{part.path}: a line is longer than {BYTES:,} bytes")
            cut = len(held) if is_last else held.rfind(b"\n") + 1
            if cut:
                yield _checked(held[:cut], part.path)
            held = held[cut:]
            if len(held) > BYTES:
                raise NotPlain(f"{part.path}: a line is longer than {BYTES:,} bytes")
            if is_last:
                return


def is_blank(block: bytes) -> bool:
    """Whether there is nothing but blanks in it."""
    return _NO_BLANK.search(block) is None


def line_ends(block: bytes) -> npt.NDArray[np.int64]:
    """Where lines end: the places of ``\\n``, and the end of the block behind a last one without."""
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
    return ends if block.endswith(b"\n") else np.append(ends, len(block))


def lines_in(block: bytes) -> int:
    """How many lines of a block that has some are not empty."""
    ends = line_ends(block)
    lengths = np.diff(ends, prepend=-1) - 1
    if b"\r" in block:
        lengths -= np.frombuffer(block, dtype=np.uint8)[np.maximum(ends - 1, 0)] == ord("\r")
    return int((lengths > 0).sum())


def has_blank_lines(block: bytes) -> bool:
    """Whether there are lines of blanks alone, but empty ones: Spark passes over them, whatever they are."""
    return _BLANK.search(block) is not None


def behind_blank_lines(block: bytes) -> bytes:
    """A block without the empty lines and those of blanks that it begins with."""
    match = _BLANK_LINES.match(block)
    return block[match.end() :] if match is not None else block


def _first_line(file: pa.OSFile, part: Part) -> int:
    """Where the first line of a part begins; the file is there."""
    first = len(_MARK) if file.read(len(_MARK)) == _MARK else 0
    if part.start > first:
        file.seek(part.start - 1)
        first = part.start - 1 + len(_rest_of_line(file, part))
    file.seek(first)
    return first


def _rest_of_line(file: pa.OSFile, part: Part) -> bytes:
    """What follows up to the end of a line, with it; the file is somewhere behind it."""
    rest = b""
    while len(rest) <= BYTES:
        block: bytes = file.read(BLOCK)
        line, end, _ = block.partition(b"\n")
        rest += line + end
        if end or not block:
            return rest
    raise NotPlain(f"{part.path}: a line is longer than {BYTES:,} bytes")


def _checked(block: bytes, path: str) -> bytes:
    if b"\0" in block:
        raise NotPlain(f"{path}: it has NUL in it")
    if _MARK in block:  # which readers leave out where they begin, and where that is differs
        raise NotPlain(f"{path}: it has marks of byte order in it")
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        raise NotPlain(f"{path}: it has carriage returns that end no line")
    if not block.isascii() and not _is_utf8(block):
        raise NotPlain(f"{path}: it is not UTF-8")
    return block


def _is_utf8(block: bytes) -> bool:
    offsets = pa.py_buffer(np.array([0, len(block)], dtype=np.int32))
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(block)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
