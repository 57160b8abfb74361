"""Which declared types the columns of a Parquet file are read as, and a refusal of the others by name.

Refused is what Spark would certainly fail at, and what it would read as a number of a unit that nobody named:
times and dates as numbers, numbers as dates. Types that are not known here are left to Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import parquet

from watersmeet.engine.spark.sources.files.there import shown
from watersmeet.errors import EngineError
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.spec.options.lowered import is_true, lowered
from watersmeet.types.common import holds
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MOST_DIGITS,
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


def check_types(what: str, source: Source, file: str) -> None:
    """Compare the declared columns with those of ``file``; columns that it lacks are passed over.

    Two columns of one name, by letters of any case, are none that can be declared.

    Args:
        what: the source, for messages (``file source "a"``).

    Raises:
        EngineError: ``column-type``, with all columns that are not read as declared;
            ``wrong-columns``, where it has two of the same name.
        OSError, pa.ArrowInvalid: it is no whole Parquet file.
    """
    described = parquet.read_metadata(file).schema
    there = described.to_arrow_schema()
    twice = _twice(source, file, there.names)
    if twice is not None:
        raise EngineError(
            f"{what}: {shown(file)} has two columns named {twice}, which Spark does not tell apart",
            code="wrong-columns",
            hint="declare the columns that are meant, without that one; or write the file with other names",
        )
    wrong = list(
        _wrong(source, file, there, [described.column(n).physical_type for n in range(len(described))])
    )
    unread = [(name, has) for name, _, has, fit in wrong if fit is None]
    if unread:
        said = "; ".join(f"{name} is {has}" for name, has in unread)
        raise EngineError(
            f"{what}: {said} in {file}",
            code="column-type",
            hint="leave the column out, or write it in another type",
        )
    if wrong:
        said = "; ".join(f"{name} is declared {declared}, and is {has}" for name, declared, has, _ in wrong)
        raise EngineError(
            f"{what}: {said} in {file}",
            code="column-type",
            hint=f"declare {', '.join(f'{name} {fit}' for name, _, _, fit in wrong)}, and cast in a view",
        )


def _twice(source: Source, file: str, columns: Sequence[str]) -> str | None:
    """A declared column that the file has two of."""
    names = [name.lower() for name in columns]
    several = (c.name for c in source.columns if names.count(c.name.lower()) > 1)
    return next((name for name in several if not _is_in_path(source, name, file)), None)


def _is_in_path(source: Source, column: str, file: str) -> bool:
    """Whether the name of a directory beneath that of the source gives the column."""
    path = local_path(path_of(source.options))
    if not path or not os.path.isdir(path) or is_true(lowered(source.options), "recursivefilelookup"):
        return False
    root = os.path.abspath(path)
    return f"/{column.lower()}=" in os.path.dirname(file.removeprefix(root)).lower() + "/"


def _wrong(
    source: Source, file: str, schema: pa.Schema, stored: Sequence[str]
) -> Iterator[tuple[str, SqlType, str, SqlType | None]]:
    """(column, or a leaf of it, declared type, what the file has, a type that fits; None: there is none)."""
    columns = {column.name.lower(): column for column in source.columns}
    leaves: list[tuple[str, pa.DataType, SqlType | None]] = []
    for field in schema:
        column = columns.get(field.name.lower())
        if column is None or _is_in_path(source, column.name, file):
            leaves += _leaves(field.name, field.type, None)
        else:
            leaves += _leaves(column.name, field.type, column.type)
    if len(leaves) != len(stored):  # of a type that is not known here
        return
    for (name, kind, declared), physical in zip(leaves, stored, strict=True):
        if declared is None or reads(declared, kind, physical):
            continue
        fits, has = types_of(kind, physical), f"{kind} ({physical})"
        if pa.types.is_decimal(kind) and kind.precision > MOST_DIGITS:
            fits, has = (), f"{has}, of more digits than Spark's DECIMAL has ({MOST_DIGITS})"
        elif not fits:
            has = f"{has}, for which there is no type"
        yield name, declared, has, fits[0] if fits else None


def _leaves(
    name: str, kind: pa.DataType, declared: SqlType | None
) -> Iterator[tuple[str, pa.DataType, SqlType | None]]:
    """The leaves of a column of a file in their order, with the types as which they are declared; None: they
    are not, or as something of another shape."""
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaves(name, kind.storage_type, declared)
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
        yield from _leaves(f"{name}.{own}", own_kind, own_declared)


def reads(declared: SqlType, kind: pa.DataType, physical: str) -> bool:
    """Whether a column is read as ``declared``; True as well where that is not known."""
    fits = types_of(kind, physical)
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


def types_of(kind: pa.DataType, physical: str) -> tuple[SqlType, ...]:
    """The declared types, but for wider decimals, as which Spark reads a column; the first is the nearest.
    Empty: not known here.

    Args:
        kind: as Arrow has it.
        physical: Parquet's, such as ``INT96``.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        if physical == "INT96":
            return _TIMES
        return (BIGINT,) if kind.unit == "ns" else _TIMES if kind.tz else _TIMES[::-1]
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
