"""Numbers and bytes of records as values of declared types; what a type does not hold marks the record."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pyarrow as pa

from watersmeet.runtime.records.cursor import Bytes, BytesCursor, Ints
from watersmeet.spec.records.avro import DAY_US, FIRST_DAY, LAST_DAY
from watersmeet.types.arrow import in_arrow
from watersmeet.types.sql_type import SqlType

OUT_OF_RANGE = "a number is too large"
NO_DAY = "a time is outside of the years 1 to 9999"


def to_arrow_type(type_: SqlType) -> pa.DataType:
    """Return the Arrow type in which Spark sends and accepts values of a type."""
    if type_.name == "TIMESTAMP":
        return pa.timestamp("us", "UTC")
    if type_.fields:
        return pa.struct([(field.name, to_arrow_type(field.type)) for field in type_.fields])
    if type_.element is not None:
        return pa.list_(to_arrow_type(type_.element))
    if type_.entry is not None:
        return pa.map_(*(to_arrow_type(part) for part in type_.entry))
    plain = in_arrow(type_)
    assert plain is not None, type_
    return plain


def convert_integers(cursor: BytesCursor, at: Ints, numbers: Ints, to: SqlType, logical: str) -> pa.Array:
    """Convert whole numbers to the type of a column."""
    if to.name == "INT":
        return pa.array(_check_range(cursor, at, numbers, -(2**31), 2**31 - 1, OUT_OF_RANGE).astype(np.int32))
    if to.name == "DOUBLE":
        return pa.array(numbers.astype(np.float64))
    if to.is_decimal:
        return pa.array(numbers).cast(pa.decimal128(38, 0)).cast(to_arrow_type(to))
    if to.name == "DATE":
        days = _check_range(cursor, at, numbers, FIRST_DAY, LAST_DAY, NO_DAY)
        return pa.array(days.astype(np.int32)).cast(pa.date32())
    if to.is_time:
        return _convert_times(cursor, at, numbers, to, logical)
    return pa.array(numbers)


def _convert_times(cursor: BytesCursor, at: Ints, numbers: Ints, to: SqlType, logical: str) -> pa.Array:
    unit = logical.rpartition("-")[2]
    least, most = FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1
    if unit == "millis":
        numbers = _check_range(cursor, at, numbers, least // 1000, most // 1000, NO_DAY) * 1000
    elif unit == "nanos":
        numbers = numbers // 1000
    return pa.array(_check_range(cursor, at, numbers, least, most, NO_DAY)).cast(to_arrow_type(to))


def _check_range(cursor: BytesCursor, at: Ints, numbers: Ints, least: int, most: int, why: str) -> Ints:
    wrong = (numbers < least) | (numbers > most)
    if not wrong.any():
        return numbers
    cursor.fail(at[wrong], why)
    return np.where(wrong, 0, numbers)


def read_decimal(
    cursor: BytesCursor, at: Ints, start: Ints, sizes: Ints, digits: int, scale: int, to: SqlType
) -> pa.Array:
    """Read a DECIMAL from bytes in two's complement, most significant byte first."""
    data, sizes = cursor.data.data, np.where(cursor.is_good(at), sizes, 0)
    cursor.fail(at[cursor.is_good(at) & (sizes == 0)], "a decimal has no bytes")
    spans = zip(start.tolist(), sizes.tolist(), strict=True)
    numbers = [int.from_bytes(data[first : first + size], "big", signed=True) for first, size in spans]
    wrong = np.array([abs(number) >= 10**digits for number in numbers], np.bool_)
    cursor.fail(at[wrong], OUT_OF_RANGE)
    unscaled = pa.array(np.where(wrong, 0, np.array(numbers, object)), pa.decimal128(38, 0))
    array = pa.Array.from_buffers(pa.decimal128(38, scale), len(at), unscaled.buffers())
    return array.cast(to_arrow_type(to))


def format_uuids(raw: Bytes) -> pa.Array:
    """Format UUIDs of 16 bytes each as text."""
    return pa.array([str(UUID(bytes=row.tobytes())) for row in raw], pa.string())
