"""The one home for regrouping rows: several batches to one, tables to batches, chosen rows of batches.

A column of Arrow holds at most 2 GiB of text, bytes or elements behind offsets of 32 bits. Beyond that Arrow
splits a column that it is asked to combine, and who takes the first part only loses the rest. Here columns
that grow so large get offsets of 64 bits (``large_string`` and its like), and rows are counted before and
after; a difference stops the tick. `narrow_offsets` brings a column back to the type that is promised.

How many bytes rows have is read from offsets: no value is touched (`sizes`, `size`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError

Rows = npt.NDArray[np.int64]
Sizes = npt.NDArray[np.int64]

MAX_COLUMN_BYTES = 2**31 - 1
"""Of the values of one column behind offsets of 32 bits."""

DENSE = 4
"""Reading the offsets of so many rows in order costs less than looking up those of one row."""

_TAKE, _WITHIN = pc.get_function("array_take"), pc.TakeOptions()
"""As `pyarrow.Array.take`, whose way to the function costs more than a few rows do."""


def one_table(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables with the same columns; string offsets may differ in width."""
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate one or more batches with equal columns, in order.

    Wide columns get 64-bit offsets.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    arrays = [concat_arrays([batch.column(n) for batch in batches]) for n in range(first.num_columns)]
    whole = pa.RecordBatch.from_arrays(arrays, names=first.schema.names)
    same_rows("put batches together", sum(batch.num_rows for batch in batches), whole.num_rows)
    return whole


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Combine all values of a column into one array; a wide column gets 64-bit offsets."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    array = concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0).cast(column.type)
    same_rows("put a column's chunks together", len(column), len(array))
    return array


def concat_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate one or more arrays; a wide result gets 64-bit offsets."""
    if len(arrays) == 1:
        return arrays[0]
    kind = arrays[0].type
    total = sum(_size(array) for array in arrays) if _may_be_wide(kind) else 0
    if total > MAX_COLUMN_BYTES or any(
        array.type != kind for array in arrays[1:]
    ):  # some may be wide already
        kind = widen_offsets(kind)
        arrays = [array if array.type == kind else array.cast(kind) for array in arrays]
    return pa.concat_arrays(arrays)


def batch_of(table: pa.Table) -> pa.RecordBatch:
    """Convert a table to one batch of all its rows; wide columns get 64-bit offsets."""
    return pa.RecordBatch.from_arrays(
        [one_array(column) for column in table.columns], names=table.column_names
    )


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """Split a table into batches, in row order, one per chunk of its columns."""
    batches: list[pa.RecordBatch] = table.to_batches()
    same_rows("cut a table into batches", table.num_rows, sum(batch.num_rows for batch in batches))
    return batches


def batches_in(reader: Any) -> Iterator[pa.RecordBatch]:
    """Yield all batches of an open Arrow file."""
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


_WORDS: dict[int, npt.DTypeLike] = {
    kind.id: np.int32 if kind.bit_width == 32 else np.int64
    for kind in (pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us"))
}
"""Types whose values are words, by their ids: of these numpy takes a few rows faster."""

_NUMBERS = {np.dtype(np.int64): pa.int64(), np.dtype(np.uint32): pa.uint32()}


def numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return whole numbers as an array of Arrow, without a copy and without the checks of `pyarrow.array`."""
    kind = _NUMBERS.get(values.dtype)
    if kind is None or not values.flags.c_contiguous:
        return pa.array(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def take_values(column: pa.Array, rows: Rows, *, fits: bool = False) -> pa.Array:
    """Select values of a column in the given order; a result of many bytes gets 64-bit offsets.

    Args:
        fits: the caller has measured the values and knows that 32-bit offsets suffice.
    """
    kind = _WORDS.get(column.type.id)
    if kind is not None and len(column) and not column.null_count:
        values = np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]
        chosen = values[rows]
        return pa.Array.from_buffers(column.type, len(chosen), [None, pa.py_buffer(chosen)])
    return _TAKE.call([column if fits else _fitting(column, rows), numbers(rows)], options=_WITHIN)


def take_rows(batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    """Select rows in the given order; see `take_values`."""
    if len(rows) == batch.num_rows == 1:
        return batch
    return pa.RecordBatch.from_arrays(
        [take_values(column, rows) for column in batch.columns], names=batch.schema.names
    )


def _fitting(column: pa.Array, rows: Rows) -> pa.Array:
    """Return the column, cast to 64-bit offsets if the chosen values exceed 32-bit offsets."""
    kind = column.type
    if not _may_be_wide(kind) or len(rows) * _size(column) <= MAX_COLUMN_BYTES or kind == widen_offsets(kind):
        return column
    if bound([column], rows) <= MAX_COLUMN_BYTES or int(sizes([column], rows).sum()) <= MAX_COLUMN_BYTES:
        return column
    return column.cast(widen_offsets(kind))


def narrow_offsets(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column back to its type ``kind`` with 32-bit offsets; keep other columns."""
    if column.type == kind or column.type != widen_offsets(kind):
        return column
    return column.cast(kind)


def narrowed_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert the columns to the types of ``schema``, which has the same names.

    See `narrow_offsets`.
    """
    if batch.schema.equals(schema):
        return batch
    arrays = [narrow_offsets(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def same_rows(what: str, before: int, after: int) -> None:
    """Check that a step that regroups rows returns as many rows as it read.

    Args:
        what: Name of the step, for the message.

    Raises:
        EngineError: The numbers differ.
    """
    if before != after:
        raise EngineError(
            f"{what}: the step read {before:,} rows but produced {after:,}; the tick was not committed",
            code="internal-rows",
            hint="this is a bug in watersmeet: please report it; nothing of the tick was published",
        )


# bytes


def size(columns: Sequence[pa.Array]) -> int:
    """Estimate the bytes of the columns' values. Cost: proportional to their number, not length."""
    total = 0
    for column in columns:
        width = _WIDTHS.get(column.type.id)
        total += _size(column) if width is None else len(column) * width
    return total


def sizes(columns: Sequence[pa.Array], rows: Rows) -> Sizes:
    """Estimate the bytes of each chosen row: int64[n].

    Cost: proportional to the number of chosen rows, not to their length.
    """
    row_bytes = np.full(len(rows), sum(_width(column.type) for column in columns), dtype=np.int64)
    for column in columns:
        if _may_be_wide(column.type):
            row_bytes += _lengths(column, rows)
    return row_bytes


def bound(columns: Sequence[pa.Array], rows: Rows) -> int:
    """Compute an approximate upper bound of the bytes of the chosen rows.

    It is cheaper than `sizes` and never less than their sum. Cost: a sequential read of the offsets of
    all rows, or, where all rows are many more than the chosen ones, the offsets of the chosen rows.
    """
    total = 0
    for column in columns:
        width = _WIDTHS.get(column.type.id)
        if width is not None:
            total += len(rows) * width
        elif not _may_be_wide(column.type):
            total += len(rows) * _width(column.type)
        elif len(column) <= DENSE * len(rows):
            total += len(rows) * _widest(column)
        else:
            total += int(_lengths(column, rows).sum())
    return total


def cut_points(of_rows: Sizes, most: int) -> list[int]:
    """Split rows of these sizes into parts of at most ``most`` bytes, or of one row.

    Returns:
        the borders of the parts, including 0 and the end.
    """
    total = int(of_rows.sum())
    if total <= most:
        return [0, len(of_rows)]
    sums = np.cumsum(of_rows)
    edges, done = [0], 0
    while edges[-1] < len(of_rows):
        start = edges[-1]
        stop = max(start + 1, int(np.searchsorted(sums, done + most, side="right")))
        edges.append(stop)
        done = int(sums[stop - 1])
    return edges


def widen_offsets(kind: pa.DataType) -> pa.DataType:
    """Return the type with 64-bit offsets at every level.

    A map's own offsets always have 32 bits.
    """
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_wide_field(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_wide_field(kind.value_field), kind.list_size)
    if pa.types.is_map(kind):
        return pa.map_(_wide_field(kind.key_field), _wide_field(kind.item_field), kind.keys_sorted)
    if pa.types.is_struct(kind):
        return pa.struct([_wide_field(kind.field(n)) for n in range(kind.num_fields)])
    return kind


def _wide_field(field: pa.Field) -> pa.Field:
    return field.with_type(widen_offsets(field.type))


def _may_be_wide(kind: pa.DataType) -> bool:
    """Return True if values of the type have variable length."""
    return kind.id in _AHEAD


def _size(column: pa.Array) -> int:
    if not _may_be_wide(column.type):
        return len(column) * _width(column.type)
    if column.type.id in _TEXTS:
        offsets = _bounds(column)
        return int(offsets[-1]) - int(offsets[0]) + len(column) * offsets.itemsize
    low, high = _bytes_before(column, np.array([0, len(column)], dtype=np.int64)).tolist()
    return int(high - low)


def _width(kind: pa.DataType) -> int:
    """Return the bytes per value of a fixed-width type; 0 for other types."""
    width = _WIDTHS.get(kind.id)
    if width is not None:
        return width
    if kind.id in _AHEAD or pa.types.is_null(kind):
        return 0
    if pa.types.is_dictionary(kind):
        return _width(kind.index_type)
    return -(-int(kind.bit_width) // 8)


_Ahead = Callable[[pa.Array, Rows], Sizes]


def _bytes_before(column: pa.Array, places: Rows) -> Sizes:
    """Compute the bytes of the values before each place, up to a constant.

    The column has a variable-length type.
    """
    ahead = _AHEAD.get(column.type.id)
    return places * np.int64(_width(column.type)) if ahead is None else ahead(column, places)


def _lengths(column: pa.Array, rows: Rows) -> Sizes:
    """Compute the bytes of each chosen value of a variable-length type: int64[n]."""
    if column.type.id in _TEXTS:
        offsets = _bounds(column)
        lengths: Sizes = offsets[1:][rows] - offsets[:-1][rows] + np.int64(offsets.itemsize)
        return lengths
    return _bytes_before(column, rows + 1) - _bytes_before(column, rows)


def _widest(column: pa.Array) -> int:
    """Return the bytes of the largest value of a variable-length type."""
    if column.type.id in _TEXTS:
        offsets = _bounds(column)
        return int((offsets[1:] - offsets[:-1]).max(initial=0)) + offsets.itemsize
    return int(np.diff(_bytes_before(column, np.arange(len(column) + 1))).max(initial=0))


def _of_texts(column: pa.Array, places: Rows) -> Sizes:
    before: Sizes = _bounds(column)[places] + places * np.int64(4)
    return before


def _of_large_texts(column: pa.Array, places: Rows) -> Sizes:
    before: Sizes = _bounds(column)[places] + places * np.int64(8)
    return before


def _bounds(column: pa.Array) -> npt.NDArray[Any]:
    """Return the offsets of strings, binaries, lists or maps."""
    buffer, width = column.buffers()[1], np.int64 if column.type.id in _OFFSETS_OF_64_BITS else np.int32
    if buffer is None or buffer.size == 0:
        return np.zeros(len(column) + 1, dtype=width)
    return np.frombuffer(buffer, dtype=width)[column.offset : column.offset + len(column) + 1]


def _of_lists(column: pa.Array, places: Rows) -> Sizes:
    return _bytes_before(column.values, _bounds(column)[places].astype(np.int64)) + places * np.int64(4)


def _of_maps(column: pa.Array, places: Rows) -> Sizes:
    inner = _bounds(column)[places].astype(np.int64)
    return _bytes_before(column.keys, inner) + _bytes_before(column.items, inner) + places * np.int64(4)


def _of_structs(column: pa.Array, places: Rows) -> Sizes:
    before = np.zeros(len(places), dtype=np.int64)
    for number in range(column.type.num_fields):
        before += _bytes_before(column.field(number), places)
    return before


def _of_fixed_lists(column: pa.Array, places: Rows) -> Sizes:
    return _bytes_before(column.values, (places + column.offset) * column.type.list_size)


_AHEAD: dict[int, _Ahead] = {
    pa.string().id: _of_texts,
    pa.binary().id: _of_texts,
    pa.large_string().id: _of_large_texts,
    pa.large_binary().id: _of_large_texts,
    pa.list_(pa.int8()).id: _of_lists,
    pa.large_list(pa.int8()).id: _of_lists,
    pa.map_(pa.int8(), pa.int8()).id: _of_maps,
    pa.struct([]).id: _of_structs,
    pa.list_(pa.int8(), 1).id: _of_fixed_lists,
}
"""By the id of a type whose values are of many lengths."""

_WIDTHS: dict[int, int] = {
    kind.id: -(-int(kind.bit_width) // 8)
    for kind in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.date32(), pa.timestamp("us")),
    )
}
"""By the id of a type of one width, those that are common: a look-up costs less than asking the type."""

_TEXTS = {kind.id for kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())}
_OFFSETS_OF_64_BITS = {kind.id for kind in (pa.large_string(), pa.large_binary(), pa.large_list(pa.int8()))}
