"""Texts, and what becomes one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def length(text: pa.Array) -> pa.Array:
    """Characters."""
    return pc.utf8_length(text)


def byte_length(text: pa.Array) -> pa.Array:
    return pc.binary_length(text)


def concat(*texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*texts, "")


def reverse(text: pa.Array) -> pa.Array:
    return pc.utf8_reverse(text)


def left_of(text: pa.Array, count: int) -> pa.Array:
    return pc.utf8_slice_codeunits(text, 0, max(count, 0))


def piece(text: pa.Array, start: int, count: int | None) -> pa.Array:
    """`substring` from a place counted from 1."""
    return pc.utf8_slice_codeunits(text, start - 1, None if count is None else start - 1 + max(count, 0))


def is_like(text: pa.Array, pattern: str) -> pa.Array:
    """`LIKE` with a constant pattern without an escape."""
    return pc.match_like(text, pattern)


def whole_to_text(array: pa.Array) -> pa.Array:
    """Integers as text."""
    return array.cast(pa.string())


def boolean_to_text(array: pa.Array) -> pa.Array:
    return pc.if_else(array, "true", "false")
