"""Which declared types Spark reads the columns of a Parquet file as, and a refusal of the others by name.

Only what Spark would certainly fail at is refused; types that are not known here are left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import parquet

from watersmeet.engine.spark.sources.files.there import shown
from watersmeet.errors import EngineError
from watersmeet.spec.model import Source
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

_INT32 = (INT, TINYINT, SMALLINT, BIGINT, DOUBLE, DATE)
_TIMES = (TIMESTAMP, TIMESTAMP_NTZ)


def check_types(what: str, source: Source, file: str) -> None:
    """Compare the declared columns with those of ``file``; columns that it lacks are passed over.

    Two columns of one name, by letters of any case, are none that can be declared.

    Args:
        what: the source, for messages (``file source "a"``).

    Raises:
        EngineError: ``column-type``, with all columns that Spark could not read as declared;
            ``wrong-columns``, where it has two of the same name.
        OSError, pa.ArrowInvalid: it is no whole Parquet file.
    """
    twice = _twice(source, file)
    if twice is not None:
        raise EngineError(
            f"{what}: {shown(file)} has two columns named {twice}, which Spark does not tell apart",
            code="wrong-columns",
            hint="declare the columns that are meant, without that one; or write the file with other names",
        )
    wrong = list(_wrong(source, file))
    long = [(name, has) for name, _, has, fit in wrong if fit is None]
    if long:
        said = "; ".join(f"{name} is {has}" for name, has in long)
        raise EngineError(
            f"{what}: {said} in {file}, of more digits than Spark's DECIMAL has ({MOST_DIGITS})",
            code="column-type",
            hint="leave the column out, or write the file with at most so many digits",
        )
    if wrong:
        said = "; ".join(f"{name} is declared {declared}, and is {has}" for name, declared, has, _ in wrong)
        raise EngineError(
            f"{what}: {said} in {file}",
            code="column-type",
            hint=f"declare {', '.join(f'{name} {fit}' for name, _, _, fit in wrong)}, and cast in a view",
        )


def _twice(source: Source, file: str) -> str | None:
    """A declared column that the file has two of."""
    names = [name.lower() for name in parquet.read_schema(file).names]
    several = (c.name for c in source.columns if names.count(c.name.lower()) > 1)
    return next((name for name in several if not _is_in_path(name, file)), None)


def _is_in_path(column: str, file: str) -> bool:
    """Whether a directory's name gives the column."""
    return f"/{column.lower()}=" in file.lower()


def _wrong(source: Source, file: str) -> Iterator[tuple[str, SqlType, str, SqlType | None]]:
    """(column, declared type, what the file has, a type that would fit; None: Spark has none)."""
    schema = parquet.read_metadata(file).schema
    leaves = {leaf.path: leaf for leaf in (schema.column(number) for number in range(len(schema)))}
    fields = {field.name.lower(): field for field in schema.to_arrow_schema()}
    for column in source.columns:
        field = fields.get(column.name.lower())
        if field is None or _is_in_path(column.name, file):
            continue
        leaf = leaves.get(field.name)
        if leaf is None:
            continue
        fits = types_of(field.type, leaf.physical_type)
        if fits and not reads(column.type, field.type, leaf.physical_type):
            long = pa.types.is_decimal(field.type) and field.type.precision > MOST_DIGITS
            has = f"{field.type} ({leaf.physical_type})"
            yield column.name, column.type, has, None if long else fits[0]


def reads(declared: SqlType, kind: pa.DataType, physical: str) -> bool:
    """Whether Spark reads a column as ``declared``; True as well where that is not known."""
    fits = types_of(kind, physical)
    if not fits or not (declared.is_decimal or declared in PLAIN) or declared in fits:
        return True
    if not declared.is_decimal:
        return pa.types.is_decimal(kind) and (declared == BINARY or physical in ("INT32", "INT64"))
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
        near = _TIMES if kind.tz else _TIMES[::-1]
        return (BIGINT,) if kind.unit == "ns" else (*near, BIGINT)
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
    pa.date32(): (DATE, TINYINT, SMALLINT, INT, BIGINT, DOUBLE, TIMESTAMP_NTZ),
}
