"""Which declared types the records of a format can hold, as Spark reads them."""

from __future__ import annotations

from watersmeet import nested
from watersmeet.errors import SpecError
from watersmeet.spec.model import Source


def type_problems(source: Source, format_: str) -> list[SpecError]:
    """Columns that Spark cannot read from such records: it would say so after it has started (CSV), or fail
    in the first tick, by an error of its own casts (JSON)."""
    if format_ == "csv":
        return [
            _wrong(
                source, column.name, column.type, "CSV has no such values", "declare it as STRING, and parse"
            )
            for column in source.columns
            if nested.is_nested(column.type)
        ]
    if format_ == "json":
        return [
            _wrong(source, column.name, column.type, "keys in JSON are texts", "declare MAP<STRING, …>")
            for column in source.columns
            if _other_keys(column.type)
        ]
    return []


def _other_keys(type_: str) -> bool:
    """Is there a MAP in it whose keys are no texts?"""
    entry, element, fields = nested.entry_of(type_), nested.element_of(type_), nested.fields_of(type_)
    if entry is not None:
        return entry[0].upper() != "STRING" or _other_keys(entry[1])
    if element is not None:
        return _other_keys(element)
    return any(_other_keys(kind) for _, kind in fields or ())


def _wrong(source: Source, column: str, type_: str, why: str, hint: str) -> SpecError:
    return SpecError(
        f'"{source.name}": the column "{column}" cannot be read as {type_}: {why}',
        code="wrong-types",
        hint=hint,
    )
