"""Which types the records of a format can hold, as Spark reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.errors import SpecError
from watersmeet.spec.model import Column, Sink, Source
from watersmeet.types.sql_type import CALENDAR_INTERVAL, STRING, SqlType

_NOT_IN_CSV = ("ARRAY", "MAP", "STRUCT", "BINARY", "VARIANT", "VOID")


def type_problems(source: Source, format_: str) -> list[SpecError]:
    """Columns that Spark cannot read from such records: it would say so after it has started (CSV), or fail
    in the first tick, by an error of its own casts (JSON)."""
    if format_ == "csv":
        return [
            _wrong(
                source,
                column.name,
                column.type,
                "CSV cannot hold such values",
                "declare it as STRING and parse it in a view",
            )
            for column in source.columns
            if column.type.is_nested or column.type.is_void
        ]
    if format_ == "json":
        return [
            _wrong(source, column.name, column.type, "keys in JSON are text", "declare MAP<STRING, …>")
            for column in source.columns
            if _other_keys(column.type)
        ]
    return []


def check_written(sink: Sink, format_: str, columns: Iterable[Column]) -> None:
    """Raise for the first column that could not be read again as what it was.

    Raises:
        SpecError: Spark has no form for such values, or one that nobody reads (``[61 62]``, ``{a -> 1}``).
    """
    for column in columns:
        unheld = column.type == CALENDAR_INTERVAL and format_ in ("parquet", "json", "csv")
        if unheld or (format_ == "csv" and column.type.name in _NOT_IN_CSV):
            what = "CSV" if format_ == "csv" else format_.capitalize() if unheld else format_
            raise SpecError(
                f'{what} cannot hold column "{column.name}" of type {column.type} ("{sink.name}")',
                code="type-not-supported",
                hint="write it as an INTERVAL DAY TO SECOND or YEAR TO MONTH, or as text"
                if unheld
                else "write Parquet or JSON, or write the column as text: to_json(…)",
            )


def _other_keys(type_: SqlType) -> bool:
    """Is there a MAP in it whose keys are no texts?"""
    return (type_.entry is not None and type_.entry[0] != STRING) or any(map(_other_keys, type_.inner))


def _wrong(source: Source, column: str, type_: SqlType, why: str, hint: str) -> SpecError:
    return SpecError(
        f'"{source.name}": the column "{column}" cannot be read as {type_}: {why}',
        code="wrong-types",
        hint=hint,
    )
