"""Which kept columns a run has, and of what they are made: each says it in the metadata of its field.

A query may change between runs of a job in what it keeps. So columns of stored rows are found by what they
are made of: their names may be other ones then (those of computed columns are numbered), and there may be
more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from watersmeet.names import ours

_ORIGIN = b"watersmeet.origin"


@dataclass(frozen=True)
class StoredColumn:
    """A kept column. ``origin``: a digest of what it is made of: columns of one origin hold the same values;
    ``text``: what it is, for people."""

    name: str
    origin: str
    text: str


def null_column(name: str) -> str:
    """The stored column that is TRUE where the event time ``name`` is NULL."""
    return ours(f"null:{name}")


@lru_cache(maxsize=1_000)
def with_origins(
    names: tuple[str, ...], types: tuple[pa.DataType, ...], columns: tuple[StoredColumn, ...]
) -> pa.Schema:
    """The schema of columns of these names and types, with the origins of those that have one."""
    origins = {column.name: {_ORIGIN: column.origin.encode()} for column in columns}
    fields = zip(names, types, strict=True)
    return pa.schema([pa.field(name, kind, metadata=origins.get(name)) for name, kind in fields])


def origins_in(schema: pa.Schema) -> dict[str, list[str]]:
    """Per origin the columns of a run that are of it."""
    names_by_origin: dict[str, list[str]] = {}
    for field in schema:
        if field.metadata is not None and _ORIGIN in field.metadata:
            names_by_origin.setdefault(field.metadata[_ORIGIN].decode(), []).append(field.name)
    return names_by_origin


def lacking(schema: pa.Schema, columns: Sequence[StoredColumn]) -> list[StoredColumn]:
    """Those of the columns that a run has not."""
    held = origins_in(schema)
    return [column for column in columns if column.origin not in held]


def chosen(
    schema: pa.Schema, columns: Sequence[StoredColumn], internal: Collection[str]
) -> list[tuple[str, str]]:
    """(name, the run's name for it) of these columns, all of them there, then of those of the run that are
    neither ``internal`` nor of any origin. Raises: KeyError when one of them is not there."""
    held = origins_in(schema)
    pairs = []
    for column in columns:
        names = held[column.origin]
        pairs.append((column.name, column.name if column.name in names else names[0]))
    held_names = {*internal, *(name for names in held.values() for name in names)}
    return [*pairs, *((name, name) for name in schema.names if name not in held_names)]
