"""Which declared types the columns of a Parquet file are read as, and a refusal of the others by name.

Refused is what Spark would certainly fail at, and what it would read as a number of a unit that nobody named:
times and dates as numbers, numbers as dates. Types that are not known here are left to Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from watersmeet.errors import EngineError
from watersmeet.runtime.files.listing import format_path
from watersmeet.runtime.files.parquet_files import UNREADABLE
from watersmeet.runtime.files.partitions import partition_columns
from watersmeet.runtime.files.table_files import list_local_files
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.files import ON_MISSING_COLUMN, local_path, needs_all_columns, path_of
from watersmeet.types.coercion import holds
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_DECIMAL_DIGITS,
    PLAIN,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    SqlType,
    decimal,
)

_INT32 = (INT, TINYINT, SMALLINT, BIGINT, DOUBLE)
"""Of those that are too narrow each value is looked at: see `narrow`."""
_TIMES = (TIMESTAMP, TIMESTAMP_NTZ)


def nanosecond_columns(source: Source) -> frozenset[str]:
    """Return the declared times that Parquet files store in nanoseconds, in lower case.

    The oldest local file decides. Spark reads such times only as numbers.
    """
    local = local_path(path_of(source.options))
    if local is None or not any(column.type in _TIMES for column in source.columns):
        return frozenset()
    files = sorted(list_local_files(source, local), key=lambda entry: entry[2])
    times = {column.name.lower() for column in source.columns if column.type in _TIMES}
    with suppress(*UNREADABLE):
        units = _timestamp_units(parquet.read_metadata(files[0][0]).schema) if files else {}
        return frozenset(name for name, is_ns in units.items() if is_ns) & times
    return frozenset()


def _timestamp_units(described: Any) -> dict[str, bool]:
    """Return the timestamps of a file that are not within others, and whether they count nanoseconds."""
    stored = {leaf.path: leaf.physical_type for leaf in map(described.column, range(len(described)))}
    return {
        field.name.lower(): _is_ns(field.type) and stored.get(field.name) != "INT96"
        for field in described.to_arrow_schema()
        if pa.types.is_timestamp(field.type)
    }


def _is_ns(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def compare_columns(what: str, source: Source, file: str, nanos: Set[str] | None = None) -> list[str]:
    """Compare the declared columns with those of ``file``.

    Two columns of one name, by letters of any case, are none that can be declared.

    Args:
        what: the source, for messages (``file source "a"``).
        nanos: the times that are read as nanoseconds (`nanosecond_columns`), of which each file has to be;
            None: those of this file.

    Returns:
        The names of declared columns that neither the file has nor the directories above it.

    Raises:
        EngineError: ``column-type``, with all columns that are not read as declared;
            ``wrong-columns``, where it has two of the same name; ``column-missing``, where a file is to have
            all of them.
        OSError, pa.ArrowInvalid: it is no whole Parquet file.
    """
    described = parquet.read_metadata(file).schema
    there = described.to_arrow_schema()
    in_path = partition_columns(source, file)
    columns = {column.name.lower(): column for column in source.columns if column.name.lower() not in in_path}
    twice = _find_duplicate_name(columns, there.names)
    if twice is not None:
        raise EngineError(
            f"{what}: {format_path(file)} has two columns named {twice}, which differ in case at most, so"
            " Spark cannot read either",
            code="wrong-columns",
            hint="declare the columns that you need, without that one; or write the file with other names",
        )
    stored = [described.column(number).physical_type for number in range(len(described))]
    wrong = list(_find_mismatches(columns, there, stored))
    unread = [(name, has) for name, _, has, fit in wrong if fit is None]
    if unread:
        said = "; ".join(f"{name} is {has}" for name, has in unread)
        raise EngineError(
            f"{what}: {said} in {file}",
            code="column-type",
            hint="remove the column from the declaration, or write the files with another type",
        )
    if wrong:
        said = "; ".join(f"{name} is declared {declared}, but is {has}" for name, declared, has, _ in wrong)
        is_counted = any("[ns" in has and fit == BIGINT for _, _, has, fit in wrong)
        of_nanos = " (timestamp_micros(n DIV 1000) is the time of n nanoseconds)" if is_counted else ""
        raise EngineError(
            f"{what}: {said} in {file}",
            code="column-type",
            hint=f"declare {', '.join(f'{name} {fit}' for name, _, _, fit in wrong)}, and cast in a view"
            + of_nanos,
        )
    if nanos is not None:
        _compare_units(what, file, columns, _timestamp_units(described), nanos)
    names = {name.lower() for name in there.names}
    missing = [column.name for name, column in columns.items() if name not in names]
    if missing and needs_all_columns(source.options):
        raise EngineError(
            f"{what}: {format_path(file)} has no column {', '.join(missing)}",
            code="column-missing",
            hint=f"write the file with the column, or remove the file; or set '{ON_MISSING_COLUMN}' ="
            " 'null' to read NULL",
        )
    return missing


def _compare_units(
    what: str, file: str, columns: Mapping[str, Column], units: Mapping[str, bool], nanos: Set[str]
) -> None:
    """Refuse times of a file that are in nanoseconds, or not, unlike those of the oldest."""
    for name, is_ns in units.items():
        if name in columns and columns[name].type in _TIMES and is_ns != (name in nanos):
            unit = "in nanoseconds" if is_ns else "not in nanoseconds"
            raise EngineError(
                f"{what}: {columns[name].name} is {unit} in {format_path(file)}, unlike in the source's"
                " oldest file",
                code="column-type",
                hint="write all files with the same unit and run again; or read the files of each unit"
                " with a source of its own, and UNION ALL them",
            )


def compare_columns_if_readable(
    what: str, source: Source, file: str, nanos: Set[str] | None = None
) -> list[str]:
    """Do the same as `compare_columns`, but pass over what is no whole Parquet file: its reader says so."""
    with suppress(*UNREADABLE):
        return compare_columns(what, source, file, nanos)
    return []


def _find_duplicate_name(columns: Mapping[str, Column], names: Sequence[str]) -> str | None:
    """Return the first declared column that a file has two of."""
    counts = Counter(name.lower() for name in names)
    return next((column.name for name, column in columns.items() if counts[name] > 1), None)


def _find_mismatches(
    columns: Mapping[str, Column], schema: pa.Schema, stored: Sequence[str]
) -> Iterator[tuple[str, SqlType, str, SqlType | None]]:
    """Yield the columns, or leaves of columns, that cannot be read as declared.

    Args:
        columns: Columns by their names in lower case.
        stored: Physical types of the leaves of the schema.

    Yields:
        Name of the column or leaf, declared type, type in the file for messages, and a type that fits (None
        if there is none).
    """
    leaves: list[tuple[str, pa.DataType, SqlType | None]] = []
    for field in schema:
        column = columns.get(field.name.lower())
        leaves += _list_leaves(
            column.name if column else field.name, field.type, column.type if column else None
        )
    if len(leaves) != len(stored):  # of a type that is not known here
        return
    for (name, kind, declared), physical in zip(leaves, stored, strict=True):
        is_within = "." in name and _is_ns(kind) and physical != "INT96" and declared in _TIMES
        if declared is None or (is_read_as(declared, kind, physical) and not is_within):
            continue
        fits, has = list_readable_types(kind, physical), f"{kind} ({physical})"
        if _is_ns(kind) and "." not in name:
            fits = fits[-2:]  # which are read, by `nanosecond_columns`
        if pa.types.is_decimal(kind) and kind.precision > MAX_DECIMAL_DIGITS:
            fits, has = (), f"{has}, with more digits than DECIMAL allows ({MAX_DECIMAL_DIGITS})"
        elif not fits:
            has = f"{has}, which is not supported"
        yield name, declared, has, fits[0] if fits else None


def _list_leaves(
    name: str, kind: pa.DataType, declared: SqlType | None
) -> Iterator[tuple[str, pa.DataType, SqlType | None]]:
    """Yield the leaves of a file's column, in their order.

    Yields:
        Name of the leaf, type in the file, and declared type (None if the leaf is not declared, or is
        declared with another shape).
    """
    if isinstance(kind, pa.BaseExtensionType):
        yield from _list_leaves(name, kind.storage_type, declared)
        return
    if pa.types.is_struct(kind):
        within = [(field.name, field.type) for field in kind]
        types = {field.name.lower(): field.type for field in declared.fields} if declared else {}
        inner = [types.get(field_name.lower()) for field_name, _ in within]
    elif pa.types.is_map(kind):
        within = [("key", kind.key_type), ("value", kind.item_type)]
        inner = list(declared.parts) if declared and declared.name == "MAP" else [None, None]
    elif pa.types.is_nested(kind):
        within = [("element", kind.field(0).type)]
        inner = list(declared.parts) if declared and declared.name == "ARRAY" else [None]
    else:
        yield name, kind, None if declared is not None and declared.is_nested else declared
        return
    for (own, own_kind), own_declared in zip(within, inner, strict=True):
        yield from _list_leaves(f"{name}.{own}", own_kind, own_declared)


def is_read_as(declared: SqlType, kind: pa.DataType, physical: str) -> bool:
    """Return True if Spark reads a column as ``declared``, or if this is unknown."""
    fits = list_readable_types(kind, physical)
    if not (declared.is_decimal or declared in PLAIN) or declared in fits:
        return True
    if not fits:
        return not (pa.types.is_time(kind) or pa.types.is_duration(kind))
    if not declared.is_decimal:  # Spark reads digits of a decimal that is stored so, wherever its point is
        is_whole = pa.types.is_decimal(kind) and kind.scale == 0 and physical in ("INT32", "INT64")
        return is_whole and declared.is_integer and declared.bits >= int(physical[3:])
    if pa.types.is_decimal(kind):
        return holds(declared, decimal(kind.precision, kind.scale))
    if pa.types.is_signed_integer(kind):
        return declared.whole_digits >= (20 if physical == "INT64" else 10)
    return bool(kind == pa.uint64() and declared == decimal(20, 0))


def list_readable_types(kind: pa.DataType, physical: str) -> tuple[SqlType, ...]:
    """List the declared types as which Spark reads a column, nearest first.

    Wider decimals are not listed. The result is empty if the types are unknown here.

    Args:
        kind: the Arrow type.
        physical: the Parquet type, such as ``INT96``.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        if physical == "INT96":
            return _TIMES
        of_zone = _TIMES if kind.tz else _TIMES[::-1]
        return (BIGINT, *of_zone) if kind.unit == "ns" else of_zone
    if pa.types.is_decimal(kind):
        return (decimal(kind.precision, kind.scale),)
    if pa.types.is_fixed_size_binary(kind):
        return (BINARY,)
    return _TYPES.get(kind, ())


_TYPES: dict[pa.DataType, tuple[SqlType, ...]] = {
    pa.bool_(): (BOOLEAN,),
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), _INT32),
    pa.int64(): (BIGINT,),
    pa.uint32(): (BIGINT, DOUBLE),
    pa.uint64(): (decimal(20, 0),),
    pa.float32(): (FLOAT, DOUBLE),
    pa.float64(): (DOUBLE,),
    **dict.fromkeys((pa.string(), pa.large_string()), (STRING, BINARY)),
    **dict.fromkeys((pa.binary(), pa.large_binary()), (BINARY, STRING)),
    pa.date32(): (DATE, TIMESTAMP_NTZ),
}
