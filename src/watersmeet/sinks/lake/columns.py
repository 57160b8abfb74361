"""Columns of rows and those of a table: what a new table gets, and whether one that is there takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.errors import SpecError, WatersmeetError
from watersmeet.sinks.lake.data_files import table_type
from watersmeet.spec.model import Column
from watersmeet.types.arrow import in_arrow
from watersmeet.types.sql_type import SqlType


@dataclass(frozen=True)
class TableField:
    """A column of a table that is there. ``required``: it takes no NULL."""

    name: str
    type: pa.DataType
    required: bool = False


def columns_wanted(
    columns: Sequence[Column], sink: str, *, widened: bool, forbidden: str
) -> tuple[pa.Schema, list[WatersmeetError]]:
    """Return a table's columns for these result columns, and the problems of unsupported ones.

    Args:
        sink: Description of the sink, for messages.
        widened: True if the table has no integers of less than 32 bits.
        forbidden: Characters that no name may contain.
    """
    fields, problems = [], list[WatersmeetError]()
    for column in columns:
        bad = sorted(
            {repr(c)[1:-1] for name in _names(column.name, column.type) for c in name if c in forbidden}
        )
        if bad or not all(_names(column.name, column.type)):
            problems.append(
                SpecError(
                    f'{sink}: "{column.name}" cannot be the name of a column there'
                    + (
                        f": it has {' '.join(f'“{c}”' for c in bad)}"
                        if bad
                        else ": it has a field with an empty name"
                    ),
                    code="column-name",
                    hint="rename it with AS",
                )
            )
        kind = _in_table(column.type)
        if kind is None:
            problems.append(
                SpecError(
                    f'{sink}: the table format does not support {column.type}, the type of "{column.name}"',
                    code="column-type",
                    hint="cast it, for example to STRING",
                )
            )
        else:
            fields.append(pa.field(column.name, table_type(kind, widened=widened)))
    return pa.schema(fields), problems


def misfits(wanted: pa.Schema, held: Sequence[TableField], sink: str, place: str) -> list[WatersmeetError]:
    """Return why a table does not accept rows of these columns.

    A column that only the table has is NULL in the rows.
    """
    return [
        SpecError(f"{sink}: {place} {said}", code="table-columns", hint=hint)
        for said, hint in _misfits(wanted, held)
    ]


def _misfits(wanted: pa.Schema, held: Sequence[TableField]) -> Iterator[tuple[str, str]]:
    there = {column.name: column for column in held}
    lowered = {column.name.lower(): column.name for column in held}
    for field in wanted:
        column = there.get(field.name)
        if column is None and field.name.lower() in lowered:
            near = lowered[field.name.lower()]
            yield f'has no column "{field.name}", but "{near}"', f'write it as it is there: … AS "{near}"'
        elif column is None:
            yield (
                f'has no column "{field.name}"',
                f"add it there, of type {field.type}, or leave it out of the query",
            )
        elif not same_type(column.type, field.type):
            yield (
                f'has {column.type} for "{field.name}", and the rows have {field.type}',
                "cast it in the query, or write to another table",
            )
    names = set(wanted.names)
    for column in held:
        if column.required:
            yield (
                f'takes no NULL for "{column.name}"'
                + ("" if column.name in names else ", which the rows do not have"),
                "rows of joins may have NULLs: let the column have them, or write to another table",
            )


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Return True if both types store the same values, whatever list elements are called."""
    one, other = table_type(one, widened=False), table_type(other, widened=False)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return [f.name for f in one] == [f.name for f in other] and all(
            same_type(a.type, b.type) for a, b in zip(one, other, strict=True)
        )
    if pa.types.is_list(one) and pa.types.is_list(other):
        return same_type(one.value_type, other.value_type)
    if pa.types.is_map(one) and pa.types.is_map(other):
        return same_type(one.key_type, other.key_type) and same_type(one.item_type, other.item_type)
    return bool(one == other)


def _names(name: str, kind: SqlType) -> list[str]:
    """Return the names of a column and of all fields in it."""
    return [name, *(field.name for inner in kind.every for field in inner.fields)]


def _in_table(kind: SqlType) -> pa.DataType | None:
    """Return the Arrow type of a table column, with TIMESTAMPs in UTC; None if there is none."""
    if kind.name == "TIMESTAMP":
        return pa.timestamp("us", "UTC")
    if not kind.is_nested:
        return in_arrow(kind)
    inner = [_in_table(inner_type) for inner_type in kind.inner]
    if None in inner:
        return None
    if kind.fields:
        return pa.struct([(f.name, of) for f, of in zip(kind.fields, inner, strict=True)])
    return pa.list_(inner[0]) if len(inner) == 1 else pa.map_(*inner)
