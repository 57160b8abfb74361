"""The ids of an Iceberg table's columns, as its data files have them.

By its id a column is found in a file whatever it is called later. In a file without ids it is found by its
name: once a column was renamed, or dropped, and another one has its name, that one would get its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

_ID = b"PARQUET:field_id"

FieldIds = Mapping[str, Any]
"""Per column its id, and those of what it holds: ``[id, [[id, []], …]]``, as plain values that JSON knows."""


def ids_in(schema: pa.Schema) -> FieldIds:
    """Those of a schema of which every field has one."""
    return {field.name: _ids_of(field) for field in schema}


def with_ids(schema: pa.Schema, ids: FieldIds) -> pa.Schema:
    """The columns with their ids; one that ``ids`` does not know, or knows as something else (which no
    commit takes), is left as it is."""
    return pa.schema(
        [
            _numbered(field, ids[field.name]) if _is_known(field, ids.get(field.name)) else field
            for field in schema
        ]
    )


def _is_known(field: pa.Field, ids: list[Any] | None) -> bool:
    parts = list(_within(field.type))
    return (
        ids is not None
        and len(parts) == len(ids[1])
        and all(_is_known(part, own) for part, own in zip(parts, ids[1], strict=True))
    )


def _ids_of(field: pa.Field) -> list[Any]:
    return [int(field.metadata[_ID]), [_ids_of(inner) for inner in _within(field.type)]]


def _numbered(field: pa.Field, ids: list[Any]) -> pa.Field:
    number, inner = ids
    parts = [_numbered(part, own) for part, own in zip(_within(field.type), inner, strict=True)]
    return field.with_type(_made_of(field.type, parts)).with_metadata({_ID: str(number)})


def _within(kind: pa.DataType) -> Iterable[pa.Field]:
    if pa.types.is_map(kind):
        return kind.key_field, kind.item_field
    return [kind.field(place) for place in range(kind.num_fields)]


def _made_of(kind: pa.DataType, parts: list[pa.Field]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(parts)
    if pa.types.is_map(kind):
        return pa.map_(*parts)
    return pa.list_(*parts) if pa.types.is_list(kind) else kind
