"""How many rows there are in files of text, from their bytes: lines of JSON, records of CSV."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt


def _open_deflated(file: Path, mode: str) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(_DeflatedReader(open(file, mode))))


OPENERS: dict[str, Any] = {
    ".csv": open,
    ".json": open,
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".deflate": _open_deflated,
}
"""By the end of a file's name, what opens it."""

_LINE_END, _QUOTE, _ESCAPE = b'\n"\\'
CHUNK_BYTES = 1 << 20
"""Bytes of a file to read at a time."""

Places = npt.NDArray[np.int64]


class _DeflatedReader(io.RawIOBase):
    """Reader of a zlib stream; Python has such classes for `gzip` and `bz2` only."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._inflating = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, wanted: Any) -> int:
        while not self._inflating.eof:
            packed = self._inflating.unconsumed_tail or self._packed.read(CHUNK_BYTES)
            inflated = self._inflating.decompress(packed, len(wanted))
            if inflated:
                wanted[: len(inflated)] = inflated
                return len(inflated)
            if not packed:
                raise EOFError(f"{self._packed.name} is truncated")
        return 0

    def close(self) -> None:
        self._packed.close()
        super().close()


def lines_in(file: Path) -> int:
    """Count the line ends in a file."""
    return _count_in_chunks(file, lambda piece: len(_where(piece, _LINE_END)))


def records_in(file: Path) -> int:
    """Count the CSV records that end in a file, including the header.

    Fields are quoted by ``"`` and escaped by ``\\``, as Spark writes them: a field that contains a quote
    or a line end is quoted, and within quotes a backslash precedes each quote and each backslash.
    """
    records = _Records()
    return _count_in_chunks(file, records.end_in)


class _Records:
    """Goes through a file in pieces."""

    def __init__(self) -> None:
        self._quoted = False
        self._held: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)

    def end_in(self, piece: npt.NDArray[np.uint8]) -> int:
        """Count the records that end in the next chunk."""
        if len(self._held):
            piece = np.concatenate([self._held, piece])
        self._held = piece[_without_escapes(piece) :]  # what these escape may be in the next one
        piece = piece[: len(piece) - len(self._held)]
        ends, quotes = _where(piece, _LINE_END), _quotes(piece)
        if not len(quotes):
            return 0 if self._quoted else len(ends)
        outside = (np.searchsorted(quotes, ends) % 2 == 1) == self._quoted
        self._quoted ^= len(quotes) % 2 == 1
        return int(np.count_nonzero(outside))


def _quotes(piece: npt.NDArray[np.uint8]) -> Places:
    """Find the quotes that begin or end a field: those after an even number of backslashes.

    A quote that begins a field has no backslash before it, but a separator of fields or lines.
    """
    quotes = _where(piece, _QUOTE)
    escaped = quotes[(quotes > 0) & (piece[quotes - 1] == _ESCAPE)]
    if not len(escaped):
        return quotes
    escapes = _where(piece, _ESCAPE)
    first = np.flatnonzero(np.diff(escapes, prepend=-2) != 1)  # of each run of backslashes
    runs = escapes[first]
    start = runs[np.searchsorted(runs, escaped) - 1]
    return quotes[~np.isin(quotes, escaped[(escaped - start) % 2 == 1])]


def _without_escapes(piece: npt.NDArray[np.uint8]) -> int:
    """Return the position where the trailing backslashes of a chunk begin."""
    end = len(piece)
    while end and piece[end - 1] == _ESCAPE:
        end -= 1
    return end


def _where(piece: npt.NDArray[np.uint8], byte: int) -> Places:
    return np.flatnonzero(piece == byte)


def _count_in_chunks(file: Path, count: Callable[[npt.NDArray[np.uint8]], int]) -> int:
    total = 0
    with OPENERS[file.suffix](file, "rb") as content:
        while (piece := _next(content)) is not None:
            total += count(piece)
    return total


def _next(content: IO[bytes]) -> npt.NDArray[np.uint8] | None:
    read = content.read(CHUNK_BYTES)
    return np.frombuffer(read, np.uint8) if read else None
