"""Ranks of rows by columns of plain types, without the embedded SQL engine: to be asked costs that engine
some milliseconds, whatever it is asked of, and most ticks have few rows.

They are what ``dense_rank`` says there: equal rows have equal ranks, and ranks go up as values do. NULL is
equal to NULL and comes last, NaN is equal to NaN and comes before it, and 0.0 is equal to -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ranks = npt.NDArray[np.int64]

_MAX_RANK = 1 << 62
"""Ranks of several columns are one number each as long as that is below."""


def plain_ranks(columns: Sequence[pa.Array]) -> Ranks | None:
    """Rank rows by the first column, then the next, and so on: int64[n], from 0 without gaps.

    ``columns`` must have at least one row.

    Returns:
        None if a column's type is not plain, such as a list or a map.
    """
    if not all(_is_plain(column.type) for column in columns):
        return None
    ranks, count = _ranks(columns[0])
    for column in columns[1:]:
        of_column, different = _ranks(column)
        if count * different >= _MAX_RANK:
            ranks, count = _close(ranks)
        ranks, count = ranks * different + of_column, count * different
    return _close(ranks)[0]


def _is_plain(kind: pa.DataType) -> bool:
    return _is_binary(kind) or _is_number(kind) or pa.types.is_boolean(kind)


def _is_binary(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_decimal128,
    )
    return any(test(kind) for test in tests)


def _is_number(kind: pa.DataType) -> bool:
    """Return True if values are NumPy numbers in memory, with their own order."""
    tests = (pa.types.is_integer, pa.types.is_float32, pa.types.is_float64)
    return any(test(kind) for test in tests) or _is_time(kind)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _ranks(column: pa.Array) -> tuple[Ranks, int]:
    """Ranks, and how many there are."""
    if _is_binary(column.type):
        return _of_binary(column)
    ranks, count = _of_numbers(column)
    if not column.null_count:
        return ranks, count
    # what stands for NULL may be a value that no other row has: that leaves a gap
    return np.where(column.is_null().to_numpy(zero_copy_only=False), count, ranks), count + 1


def _of_numbers(column: pa.Array) -> tuple[Ranks, int]:
    kind = column.type
    if _is_time(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if column.null_count:
        column = column.fill_null(0)
    values = column.to_numpy()
    if pa.types.is_floating(kind):
        values = values + values.dtype.type(0)  # one zero
    different, ranks = np.unique(values, return_inverse=True)
    return ranks, len(different)


def _of_binary(column: pa.Array) -> tuple[Ranks, int]:
    """Rank strings or binaries; each distinct value is compared once."""
    encoded = column.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    places = np.empty(len(order) + 1, dtype=np.int64)
    places[order] = np.arange(len(order))
    places[-1] = len(order)
    return places[encoded.indices.fill_null(len(order)).to_numpy()], len(order) + 1


def _close(ranks: Ranks) -> tuple[Ranks, int]:
    """Compute ranks without gaps from ranks with gaps; return them and their number."""
    different, closed = np.unique(ranks, return_inverse=True)
    return closed, len(different)
