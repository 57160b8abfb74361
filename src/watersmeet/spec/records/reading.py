"""How one value of a record is read: a tree of a schema and the types that are declared. Tasks get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watersmeet.types.sql_type import SqlType


@dataclass(frozen=True)
class Reading:
    """Instructions for reading one value of a record.

    Attributes:
        kind: Name of the type in the format.
        to: Type of the result; None: the value is skipped.
        logical: Meaning of the bytes, where that counts for ``to``.
        size: Number of bytes of a value of fixed size.
        digits, scale: Of a DECIMAL, as the schema has them.
        words: Words of an enum, by number.
        parts: Fields of a record in their order; branches of a union; type of the elements of an array or
            a map.
        places: Per field of a record, the number of its field of ``to``; -1: none.
        defaults: (place, value) of the fields of ``to`` that the record does not have.
        name, number, presence, oneof: Of a field of a Protobuf message; see `spec.records.protobuf`.
        repeated: Type of all its values together, if there may be several and they are wanted.
        numbers: Numbers of the ``words`` of an enum of Protobuf, in order.
    """

    kind: str
    to: SqlType | None = None
    logical: str = ""
    size: int = 0
    digits: int = 0
    scale: int = 0
    words: tuple[str, ...] = ()
    parts: tuple[Reading, ...] = ()
    places: tuple[int, ...] = ()
    defaults: tuple[tuple[int, Any], ...] = ()
    name: str = ""
    number: int = 0
    presence: str = ""
    oneof: int = -1
    repeated: SqlType | None = None
    numbers: tuple[int, ...] = ()
