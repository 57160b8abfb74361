"""How one value of a record is read: a tree of a schema and the types that are declared. Tasks get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watersmeet.types.sql_type import SqlType


@dataclass(frozen=True)
class Reading:
    """
    Attributes:
        kind: as the format calls it.
        to: the type of what comes out; None: the value is passed over.
        logical: what the bytes stand for, where that counts for ``to``.
        size: of what has as many bytes always.
        digits, scale: of a DECIMAL, as the schema has it.
        words: of an enum, by number.
        parts: of a record its fields in their order; of a union its branches; what an array or a map holds.
        places: per field of a record, which field of ``to`` it is; -1: none.
        defaults: of fields of ``to`` that the record has not: (place, value).
        name, number, presence, oneof: of a field of a Protobuf message; see `spec.records.protobuf`.
        repeated: the type of all its values together, if there may be several and they are wanted.
        numbers: of an enum of Protobuf: those of ``words``, in order.
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
