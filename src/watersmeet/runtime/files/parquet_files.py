"""Rows of Parquet files as Spark reads them, or a refusal.

Taken are top-level columns of types whose values the two read alike (`_supported_type`), and values that
they read
alike whatever wrote the file: no dates and times of a calendar that was changed, no decimals beyond their
digits. What is not known here is refused; nothing is guessed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from watersmeet.kernel.batches import cut_points, sizes
from watersmeet.runtime.files.file_split import BYTES, ROWS, FileSplit, UnsupportedFile, regroup_rows
from watersmeet.types.arrow import in_arrow
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    SqlType,
    decimal,
)

_READ_ROWS = 8192
"""Read at a time: what their values come to is not known before."""

_DAYS = (-141_427, 2_932_896)
"""From 1582-10-15 to the end of 9999. Before, what a date means depends on who wrote the file; Spark's reader
goes by that."""

_TIMES = (-2_208_988_800_000_000, 253_402_300_799_999_999)
"""Likewise in µs, from 1900."""

_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")

_SPARK, _SPARK_WRITER_KEY = b"org.apache.spark.version", "parquet-mr version "

_MAX_LONG_DIGITS = 18
"""Digits of decimals that Spark reads as whole numbers of 64 bits."""

_BUFFERS = (16 << 10, 1 << 20)
"""Bytes of a column that are held while it is read, at least and at most. Else its whole row group is."""

_PLAIN = {
    ("BOOLEAN", "NONE"): BOOLEAN,
    ("INT32", "NONE"): INT,
    ("INT64", "NONE"): BIGINT,
    ("FLOAT", "NONE"): FLOAT,
    ("DOUBLE", "NONE"): DOUBLE,
    ("BYTE_ARRAY", "STRING"): STRING,
    ("BYTE_ARRAY", "NONE"): BINARY,
    ("INT32", "DATE"): DATE,
    ("INT96", "NONE"): TIMESTAMP,
}
"""By physical and logical type."""

_SIGNED = {8: TINYINT, 16: SMALLINT, 32: INT, 64: BIGINT}


UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError)
"""What Arrow raises where it cannot read what a Parquet file says of itself."""


def measure_parquet_file(path: str) -> tuple[int, int]:
    """Return the number of rows and the uncompressed bytes that a file's metadata states.

    Rows need more memory if the file stores texts once per value (dictionary encoding).

    Raises:
        `UNREADABLE`: the metadata cannot be read.
    """
    described = parquet.read_metadata(path)
    nbytes = sum(described.row_group(number).total_byte_size for number in range(described.num_row_groups))
    return int(described.num_rows), int(nbytes)


@dataclass(frozen=True)
class ParquetRows:
    """Rules to read Parquet files."""

    def rows_of(self, part: FileSplit, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        """See `Reader`. Case of names does not count; a column that the file lacks is NULL."""
        return regroup_rows(part, _read_chunks(part, wanted))


def _read_chunks(part: FileSplit, columns: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
    # Opened once: what is read is of the file that was described, also if another takes its place.
    with pa.OSFile(part.path) as opened:
        described = parquet.read_metadata(opened)
        if any(key in (described.metadata or {}) for key in _LEGACY):
            raise UnsupportedFile(f"{part.path}: its dates and times are of Spark's older calendar")
        if not described.num_columns:
            raise UnsupportedFile(f"{part.path}: it has no columns")
        places = _find_columns(part.path, described.schema, columns)
        asked = {place for place in places.values() if place is not None}
        _check_chunks(opened.size(), described, asked | {0} if part.is_cut else asked)
        groups = [
            number
            for number in range(described.num_row_groups)
            if not part.is_cut or part.has(_first_page_offset(described, number))
        ]
        if groups:
            yield from _read_row_groups(part.path, opened, described, groups, places, columns)


def _read_row_groups(
    path: str,
    opened: pa.OSFile,
    described: Any,
    groups: list[int],
    places: Mapping[str, int | None],
    columns: Mapping[str, SqlType],
) -> Iterator[pa.RecordBatch]:
    own = {place: described.schema.column(place) for place in places.values() if place is not None}
    names = [leaf.path for leaf in own.values()]
    _check_counts(path, described, list(own))
    _check_int96(
        path, opened, described, groups, [x.path for x in own.values() if x.physical_type == "INT96"]
    )
    texts = [leaf.path for place, leaf in own.items() if _has_dictionary(described, groups, place, leaf)]
    file = _open_parquet(
        opened, described, groups, names, read_dictionary=texts, coerce_int96_timestamp_unit="us"
    )
    kinds = {name: in_arrow(type_, pa.timestamp("us", tz="UTC")) for name, type_ in columns.items()}
    rows = 0
    for group in groups:
        for batch in _read(file, group, names):
            rows += batch.num_rows
            for piece in _split_to_fit(batch):
                arrays = [
                    pa.nulls(piece.num_rows, kinds[name])
                    if place is None
                    else _to_spark_type(path, name, piece.column(own[place].path), kinds[name])
                    for name, place in places.items()
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
    if rows != sum(described.row_group(number).num_rows for number in groups):
        raise UnsupportedFile(f"{path}: it has other numbers of rows than it says")


def _open_parquet(opened: pa.OSFile, described: Any, groups: list[int], names: list[str], **more: Any) -> Any:
    """Open the file so that Arrow reads only as far as batches need, not whole row groups ahead."""
    largest = max(described.row_group(number).total_byte_size for number in groups)
    least, most = _BUFFERS
    buffer = 0 if largest <= BYTES else max(least, min(most, BYTES // max(len(names), 1)))
    return parquet.ParquetFile(
        opened,
        metadata=described,
        pre_buffer=False,
        buffer_size=buffer,
        page_checksum_verification=True,
        **more,
    )


def _check_chunks(nbytes: int, described: Any, places: set[int]) -> None:
    """Check the metadata of the columns' chunks without reading data.

    If it is damaged, or columns are encrypted, Arrow aborts the process when Python reads the metadata,
    but Arrow's own reader raises an error. That reader checks all chunks before it reads any byte.
    """
    names = [described.schema.column(place).path for place in places]
    if not names or not described.num_row_groups:
        return
    file = parquet.ParquetFile(
        pa.PythonFile(_UnreadableFile(nbytes), mode="r"),
        metadata=described,
        pre_buffer=True,
        memory_map=False,
    )
    groups = range(described.num_row_groups)
    with suppress(_UnexpectedRead):
        next(file.iter_batches(batch_size=1, row_groups=groups, columns=names, use_threads=False), None)


class _UnexpectedRead(Exception):
    """Somebody wants bytes of `_UnreadableFile`."""


class _UnreadableFile(io.RawIOBase):
    """File of a given size that raises an error when it is read."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes, self._at = nbytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._nbytes}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        raise _UnexpectedRead


def _check_counts(path: str, described: Any, places: list[int]) -> None:
    """Check that all row counts in the metadata agree.

    Arrow trusts these counts: if one is too small, it omits the other rows.
    """
    groups = [described.row_group(number) for number in range(described.num_row_groups)]
    same = described.num_rows == sum(group.num_rows for group in groups) and all(
        group.column(place).num_values == group.num_rows for group in groups for place in places
    )
    if not same:
        raise UnsupportedFile(f"{path}: it says of its rows that they are of different numbers")


def _check_int96(path: str, opened: pa.OSFile, described: Any, groups: list[int], names: list[str]) -> None:
    """Check that INT96 timestamps are those that Spark writes and are in bounds.

    INT96 has a day number and nanoseconds, which may be negative or exceed a day. Arrow treats both as
    unsigned, takes day 0 for 1970, and wraps large values modulo 2^64, so a wrong value becomes a
    plausible time. Therefore only files that Spark wrote are supported: their nanoseconds stay within
    the day, and their seconds, which never overflow, are checked.
    """
    if not names:
        return
    if not (described.created_by or "").startswith(_SPARK_WRITER_KEY) or _SPARK not in (
        described.metadata or {}
    ):
        raise UnsupportedFile(f"{path}: {names[0]} is of INT96 that Spark did not write")
    file = _open_parquet(opened, described, groups, names, coerce_int96_timestamp_unit="s")
    least, most = (time // 1_000_000 for time in _TIMES)
    for batch in file.iter_batches(batch_size=ROWS, row_groups=groups, columns=names, use_threads=False):
        for column in batch.columns:
            seconds = column.view(pa.int64())
            ends = pc.min_max(seconds).as_py()
            if ends["min"] is None:
                continue
            in_bounds = least <= ends["min"] and ends["max"] <= most
            if not in_bounds or pc.any(pc.equal(seconds, 0)).as_py():
                raise UnsupportedFile(f"{path}: {names[0]} has times that readers take for different ones")


def _find_columns(path: str, schema: Any, columns: Mapping[str, SqlType]) -> dict[str, int | None]:
    """Find the position of each column in the file; None if the file lacks it."""
    tops: dict[str, list[int]] = {}
    for number in range(len(schema)):
        tops.setdefault(schema.column(number).path.split(".")[0].lower(), []).append(number)
    places: dict[str, int | None] = {}
    for name, type_ in columns.items():
        own = tops.get(name.lower(), [])
        if "." in name or len(own) > 1:
            raise UnsupportedFile(f"{path}: {name} is nested, or there are several of it")
        places[name] = own[0] if own else None
        for leaf in map(schema.column, own):
            if leaf.max_repetition_level or leaf.max_definition_level > 1 or "." in leaf.path:
                raise UnsupportedFile(f"{path}: {name} is nested")
            kind = _supported_type(leaf)
            if kind != type_:
                raise UnsupportedFile(
                    f"{path}: {name} is declared {type_}, and is {kind or leaf.logical_type}"
                )
    return places


def _supported_type(leaf: Any) -> SqlType | None:
    """Return the only declared type as which a column can be read, or None if there is none."""
    logical = leaf.logical_type
    kind_of = _WITH_MORE.get(logical.type)
    return _PLAIN.get((leaf.physical_type, logical.type)) if kind_of is None else kind_of(leaf)


def _whole_number(leaf: Any) -> SqlType | None:
    said = json.loads(leaf.logical_type.to_json())
    width = int(said["bitWidth"])
    fits = leaf.physical_type == f"INT{max(width, 32)}"
    return _SIGNED.get(width) if said["isSigned"] and fits else None


def _time(leaf: Any) -> SqlType | None:
    said = json.loads(leaf.logical_type.to_json())
    is_taken = said["isAdjustedToUTC"] and said["timeUnit"] in ("milliseconds", "microseconds")
    return TIMESTAMP if is_taken else None


def _decimal(leaf: Any) -> SqlType | None:
    """Return the DECIMAL type of a column, or None if it is unsupported.

    It is unsupported where Spark fails (BYTE_ARRAY) or misplaces bits (9 to 15 bytes).
    """
    if leaf.precision <= _MAX_LONG_DIGITS and (
        leaf.physical_type == "BYTE_ARRAY"
        or (leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" and 8 < leaf.length < 16)
    ):
        return None
    return decimal(leaf.precision, leaf.scale)


_WITH_MORE: Mapping[str, Callable[[Any], SqlType | None]] = {
    "INT": _whole_number,
    "TIMESTAMP": _time,
    "DECIMAL": _decimal,
}
"""Logical types that say more than their name."""


def _first_page_offset(described: Any, group: int) -> int:
    return int(described.row_group(group).column(0).data_page_offset)


def _has_dictionary(described: Any, groups: list[int], place: int, leaf: Any) -> bool:
    """Return True if a text column is dictionary-encoded.

    Its values may then need far more bytes than the file has.
    """
    if leaf.physical_type != "BYTE_ARRAY":
        return False
    return any(described.row_group(group).column(place).has_dictionary_page for group in groups)


def _read(file: Any, group: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    described = file.metadata.row_group(group)
    if not names:
        if described.num_rows:
            yield pa.RecordBatch.from_struct_array(pa.nulls(described.num_rows, pa.struct([])))
        return
    row_bytes = max(described.total_byte_size, 1) / max(described.num_rows, 1)
    most = max(1, min(_READ_ROWS, int(BYTES / row_bytes)))
    yield from file.iter_batches(batch_size=most, row_groups=[group], columns=names, use_threads=False)


def _split_to_fit(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into batches of about `BYTES`, measured without dictionaries."""
    of_dictionaries = [column for column in batch.columns if pa.types.is_dictionary(column.type)]
    if not of_dictionaries:
        yield batch
        return
    lengths = [_value_lengths(column.dictionary) for column in of_dictionaries]
    if batch.num_rows * sum(int(of_column.max()) for of_column in lengths) <= BYTES:
        yield batch  # whichever values the rows have
        return
    row_bytes = np.zeros(batch.num_rows, dtype=np.int64)
    for column, of_column in zip(of_dictionaries, lengths, strict=True):
        row_bytes += of_column[column.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    edges = cut_points(row_bytes, BYTES)
    for start, stop in pairwise(edges):
        yield batch.slice(start, stop - start)


def _value_lengths(dictionary: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of each value of the dictionary, int64[n]; one 0 if it has no values."""
    places = np.arange(len(dictionary), dtype=np.int64)
    return sizes([dictionary], places) if len(places) else np.zeros(1, dtype=np.int64)


def _to_spark_type(path: str, name: str, column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type != kind:
        column = column.cast(kind)
    limits, values = _value_limits(kind), column
    if limits is not None:
        if not pa.types.is_decimal(kind):
            values = column.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        ends = pc.min_max(values).as_py()
        if ends["min"] is not None and not (limits[0] <= ends["min"] and ends["max"] <= limits[1]):
            raise UnsupportedFile(f"{path}: {name} has values that readers take for different ones")
    return column


def _value_limits(kind: pa.DataType) -> tuple[Any, Any] | None:
    """Return the minimum and maximum supported value, or None if all values are supported."""
    if pa.types.is_date32(kind):
        return _DAYS
    if pa.types.is_timestamp(kind):
        return _TIMES
    if pa.types.is_decimal(kind):
        most = Decimal((0, (9,) * kind.precision, -kind.scale))
        return most.copy_negate(), most
    return None
