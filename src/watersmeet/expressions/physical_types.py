"""The Arrow types that values of a Spark type are computed with, and how columns come in and go out.

TIMESTAMPs are int64 µs, DATEs int32 days, intervals int64 µs or int32 months; an ARRAY is a list, a MAP a
list of structs of key and value, the fields of a STRUCT are named by their place. Within them NULL lists have
no elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.kernel.batches import MAX_COLUMN_BYTES
from watersmeet.types.arrow import in_arrow
from watersmeet.types.sql_type import DATE, TIMESTAMP, TIMESTAMP_NTZ, VOID, SqlType

Offsets = npt.NDArray[np.int64]


def fits(kind: pa.DataType, type_: SqlType) -> bool:
    """Return True if the Arrow type is the one that trees expect for the Spark type."""
    if type_.element is not None:
        lists = bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
        return lists and fits(kind.value_type, type_.element)
    if type_.entry is not None:
        maps, (key, value) = bool(pa.types.is_map(kind)), type_.entry
        return maps and fits(kind.key_type, key) and fits(kind.item_type, value)
    if type_.fields:
        return bool(
            pa.types.is_struct(kind)
            and kind.num_fields == len(type_.fields)
            and all(fits(kind.field(n).type, inner_type) for n, inner_type in enumerate(type_.inner))
        )
    if type_ == TIMESTAMP:
        return bool(pa.types.is_timestamp(kind) and kind.unit == "us")
    return bool(kind == (in_arrow(type_) or get_physical_type(type_)))


def get_physical_type(type_: SqlType) -> pa.DataType:
    """Return the Arrow type in which values of a Spark type are computed."""
    if type_.element is not None:
        return pa.list_(get_physical_type(type_.element))
    if type_.entry is not None:
        return pa.list_(struct_kind([get_physical_type(entry_type) for entry_type in type_.entry]))
    if type_.fields:
        return struct_kind([get_physical_type(inner_type) for inner_type in type_.inner])
    if type_.is_interval:
        return pa.int32() if type_.is_of_months else pa.int64()
    return _COUNTED.get(type_) or in_arrow(type_)


def struct_kind(kinds: list[pa.DataType]) -> pa.DataType:
    """Build the Arrow STRUCT type of fields of these types, named by position."""
    return pa.struct([pa.field(str(n), kind) for n, kind in enumerate(kinds)])


_COUNTED = {
    VOID: pa.null(),
    DATE: pa.int32(),
    TIMESTAMP: pa.int64(),
    TIMESTAMP_NTZ: pa.int64(),
}


def convert_to_physical(array: pa.Array) -> pa.Array:
    """Convert a column to the form that functions accept."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
    if pa.types.is_date32(kind):
        return array.view(pa.int32())
    if pa.types.is_map(kind):
        offsets, entries = _split_offsets_and_values(array, lambda own: pa.StructArray.from_arrays(
            [own.keys, own.items], names=["0", "1"]))  # fmt: skip
        return list_array(
            offsets, convert_to_physical(entries), array.is_valid() if array.null_count else None
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets, values = elements(array)
        return list_array(
            offsets, convert_to_physical(values), array.is_valid() if array.null_count else None
        )
    if pa.types.is_struct(kind):
        return struct_array(
            [convert_to_physical(field) for field in fields(array)], validity(array), len(array)
        )
    return array


def native(array: pa.Array, type_: SqlType, zoned: bool) -> pa.Array:
    """Convert a result to the Arrow type of its Spark type; ``zoned``: TIMESTAMPs are in UTC."""
    element, entry = type_.element, type_.entry
    if element is not None or entry is not None:
        offsets, values = elements(array)
        if element is not None:
            return list_array(offsets, native(values, element, zoned), validity(array))
        assert entry is not None
        keys, items = (native(field, own, zoned) for field, own in zip(fields(values), entry, strict=True))
        mask = array.is_null() if array.null_count else None
        return pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), keys, items, mask=mask)
    if type_.is_struct:
        parts = [native(field, own, zoned) for field, own in zip(fields(array), type_.inner, strict=True)]
        mask = None if not array.null_count else array.is_null()
        return pa.StructArray.from_arrays(parts, names=[field.name for field in type_.fields], mask=mask)
    if type_ == TIMESTAMP:
        return array.view(pa.timestamp("us", "UTC" if zoned else None))
    if type_ == TIMESTAMP_NTZ:
        return array.view(pa.timestamp("us"))
    return array.view(pa.date32()) if type_ == DATE else array


# lists and structs taken apart and put together


def validity(array: pa.Array) -> pa.Array | None:
    """Return the mask of values that are not NULL; None means all values."""
    return array.is_valid() if array.null_count else None


def elements(array: pa.Array) -> tuple[Offsets, pa.Array]:
    """Return the offsets and the elements of lists.

    NULL lists have no elements. The first offset is 0, the last one the number of elements.
    """
    return _split_offsets_and_values(array, lambda own: own.values)


def _split_offsets_and_values(array: pa.Array, inner: Any) -> tuple[Offsets, pa.Array]:
    count = len(array)
    wide = pa.types.is_large_list(array.type)
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0 or count == 0:
        return np.zeros(count + 1, dtype=np.int64), inner(array).slice(0, 0)
    raw = np.frombuffer(buffer, dtype=np.int64 if wide else np.int32)[array.offset : array.offset + count + 1]
    offsets: Offsets = raw.astype(np.int64)
    start, stop = int(offsets[0]), int(offsets[-1])
    values = inner(array)
    values = values if start == 0 and stop == len(values) else values.slice(start, stop - start)
    offsets = offsets - start
    if array.null_count:
        lengths = np.diff(offsets)
        null = array.is_null().to_numpy(zero_copy_only=False)
        if lengths[null].any():
            values = values.filter(pa.array(np.repeat(~null, lengths)))
            offsets = np.concatenate([[0], np.cumsum(np.where(null, 0, lengths))])
    return offsets, values


def list_array(offsets: Offsets, values: pa.Array, valid: pa.Array | None = None) -> pa.Array:
    """Build an array of lists from offsets and elements.

    Args:
        valid: A list is NULL where this is False; None: no list is NULL.

    Raises:
        EngineError: The lists have more than `MAX_COLUMN_BYTES` elements.
    """
    if len(offsets) and offsets[-1] > MAX_COLUMN_BYTES:
        raise EngineError(
            f"the ARRAYs of one step have {int(offsets[-1]):,} elements, more than the possible"
            f" {MAX_COLUMN_BYTES:,}",
            code="too-many-elements",
            hint="create smaller ARRAYs, or process fewer rows per step",
        )
    mask = None if valid is None else pc.invert(valid)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, mask=mask)


def fields(array: pa.Array) -> list[pa.Array]:
    """Return the fields of structs in full length; the fields of a NULL struct are NULL."""
    return list(array.flatten())


def struct_array(parts: list[pa.Array], valid: pa.Array | None, count: int) -> pa.Array:
    """Build structs of these fields, NULL where ``valid`` is False."""
    if not parts:
        return pa.array([{}] * count, pa.struct([]))
    names = [str(n) for n in range(len(parts))]
    return pa.StructArray.from_arrays(parts, names=names, mask=None if valid is None else pc.invert(valid))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind))


def is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_struct(kind))
