"""The table of SQL types and Arrow's: as what columns of a type are handed over and stored."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.types.sql_type import SqlType

PLAIN_IN_ARROW: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
"""By the types' names. TIMESTAMPs are of UTC, and do not say so: Spark's do."""


def in_arrow(type_: SqlType, times: pa.DataType = PLAIN_IN_ARROW["TIMESTAMP"]) -> pa.DataType | None:
    """Return the Arrow type of a Spark type.

    Return None if the type, or a type inside it, has no Arrow form here: INTERVALs and unknown types.

    Args:
        times: The Arrow type of TIMESTAMPs.

    >>> from watersmeet.types.parser import sql_type
    >>> print(in_arrow(sql_type("MAP<STRING, DECIMAL(5,2)>")), in_arrow(sql_type("INTERVAL DAY")))
    map<string, decimal128(5, 2)> None
    """
    if type_.is_decimal:
        return pa.decimal128(type_.digits, type_.scale)
    if type_.name == "TIMESTAMP":
        return times
    if not type_.is_nested:
        return PLAIN_IN_ARROW.get(type_.name)
    inner = [in_arrow(inner_type, times) for inner_type in type_.inner]
    if None in inner:
        return None
    if type_.fields:
        return pa.struct([(field.name, kind) for field, kind in zip(type_.fields, inner, strict=True)])
    return pa.list_(inner[0]) if len(inner) == 1 else pa.map_(*inner)


def sql_name(kind: pa.DataType) -> str:
    """Return the name in SQL of an Arrow type, for messages.

    >>> sql_name(pa.int64()), sql_name(pa.decimal128(5, 2)), sql_name(pa.list_(pa.string()))
    ('BIGINT', 'DECIMAL(5,2)', 'ARRAY<STRING>')
    """
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name}: {sql_name(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"MAP<{sql_name(kind.key_type)}, {sql_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_name(kind.value_type)}>"
    return next((name for name, own in PLAIN_IN_ARROW.items() if own == kind), str(kind))


def has_longer(texts: pa.Array | pa.ChunkedArray, type_: SqlType) -> bool:
    """Return whether some texts are longer than their VARCHAR(n) or CHAR(n).

    >>> from watersmeet.types.parser import sql_type
    >>> [has_longer(pa.array(["äöü", None]), sql_type(f"VARCHAR({n})")) for n in (2, 3)]
    [True, False]
    """
    return bool(type_.length and pc.any(pc.greater(pc.utf8_length(texts), type_.length)).as_py())
