"""Rows of JSON files in DuckDB. It reads numbers with a point as DOUBLEs: DECIMALs of more digits than these
hold are read by Arrow, to the last digit, and stand beside the other columns; so do ARRAYs and STRUCTs of
them, if what else is in these is read by both alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import json

from watersmeet.diff.database import AS_IT_IS, quoted, ran, text
from watersmeet.errors import EngineError
from watersmeet.names import ours

_OF_DOUBLES = 15
"""So many digits a DOUBLE holds, whichever they are."""


def json_rows(db: Any, table: str, files: Sequence[str], columns: Mapping[str, str], who: str) -> str:
    """A relation of the files' rows.

    Args:
        table: the name that it gets, if it is kept.
        columns: their types, as DuckDB calls them.
        who: whose files they are, for an error.

    Raises:
        EngineError: a DECIMAL of many digits is beside values that are not read here, or a file cannot be.
    """
    wide = _wide(db, columns, who)
    told = {name: "JSON" if name in wide else kind for name, kind in columns.items()}
    if not wide:
        return _read(files, told)
    part = ours("part")
    options = json.ParseOptions(pa.schema(list(wide.items())), unexpected_field_behavior="ignore")
    ran(db, "SET preserve_insertion_order = true")
    for number, file in enumerate(files):
        rows = db.sql(f"SELECT * FROM {_read([file], told)}").to_arrow_table()
        try:
            exact = json.read_json(file, parse_options=options) if rows.num_rows else None
        except pa.ArrowInvalid as error:
            raise EngineError(
                f"{who}: {file} cannot be read: {error}",
                code="file-unreadable",
                hint="the job wrote this file: restore it, or pass the rows with --output",
            ) from None
        for name, kind in wide.items():
            values = pa.nulls(0, kind) if exact is None else exact.column(name)
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        db.register(part, rows)
        into = f"INSERT INTO {table}" if number else f"CREATE OR REPLACE TABLE {table} AS"
        ran(db, f"{into} SELECT * FROM {part}")
        db.unregister(part)
    ran(db, "SET preserve_insertion_order = false")
    return table


def _read(files: Sequence[str], columns: Mapping[str, str]) -> str:
    names = "[" + ", ".join(map(text, files)) + "]"
    told = ", ".join(f"{text(name)}: {text(kind)}" for name, kind in columns.items())
    return f"read_json({names}, {AS_IT_IS}, format = 'newline_delimited', columns = {{{told}}})"


def _wide(db: Any, columns: Mapping[str, str], who: str) -> dict[str, pa.DataType]:
    """The columns with DECIMALs that a DOUBLE may not hold."""
    none = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in columns.items())
    wide = {}
    for field in db.sql(f"SELECT {none}").to_arrow_table().schema:
        if not _has_wide(field.type):
            continue
        if not _is_alike(field.type):
            raise EngineError(
                f'{who}: column "{field.name}" is {columns[field.name]}, '
                " which diff cannot read from JSON files",
                code="not-compared",
                hint="pass the rows as Parquet files with --output",
            )
        wide[field.name] = field.type
    return wide


def _is_alike(kind: pa.DataType) -> bool:
    """Whether Arrow reads what is in a value as DuckDB does: no times, no numbers that are texts (NaN)."""
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        return all(_is_alike(kind.field(n).type) for n in range(kind.num_fields))
    plain = (pa.types.is_decimal, pa.types.is_signed_integer, pa.types.is_string, pa.types.is_boolean)
    return any(is_one(kind) for is_one in plain)


def _has_wide(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision > _OF_DOUBLES)
    return any(_has_wide(kind.field(n).type) for n in range(kind.num_fields))
