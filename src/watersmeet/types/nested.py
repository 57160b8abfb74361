"""ARRAYs, MAPs and STRUCTs, taken apart and put together by their texts, for what keeps types as texts."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import Field, SqlType, struct


def array_of(element: str) -> str:
    return f"ARRAY<{element}>"


def map_of(key: str, value: str) -> str:
    return f"MAP<{key}, {value}>"


def struct_of(fields: Sequence[tuple[str, str]]) -> str:
    """Of (name, type)."""
    return str(struct([Field(name, SqlType(kind)) for name, kind in fields]))


def is_nested(type_: str) -> bool:
    return type_.endswith(">")


def element_of(type_: str) -> str | None:
    """The type of an ARRAY's elements; None: it is no ARRAY."""
    found = sql_type(type_).element
    return None if found is None else str(found)


def entry_of(type_: str) -> tuple[str, str] | None:
    """The types of a MAP's keys and values; None: it is no MAP."""
    found = sql_type(type_).entry
    return None if found is None else (str(found[0]), str(found[1]))


def fields_of(type_: str) -> tuple[tuple[str, str], ...] | None:
    """(name, type) of a STRUCT's fields; None: it is no STRUCT.

    >>> fields_of("STRUCT<a: INT NOT NULL, `b,c`: ARRAY<STRING>>")
    (('a', 'INT'), ('b,c', 'ARRAY<STRING>'))
    """
    found = sql_type(type_)
    return tuple((each.name, str(each.type)) for each in found.fields) if found.name == "STRUCT" else None


def without_names(type_: SqlType) -> SqlType:
    """A type without the names of fields, which do not matter where values are compared."""
    if type_.fields:
        inner = enumerate(type_.inner)
        return struct([Field(f"f{place}", without_names(each)) for place, each in inner])
    return SqlType(type_.name, parts=tuple(map(without_names, type_.parts))) if type_.parts else type_
