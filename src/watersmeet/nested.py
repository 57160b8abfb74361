"""Types of ARRAYs, MAPs and STRUCTs as text: taken apart and put together.

One spelling: ``ARRAY<INT>``, ``MAP<STRING,INT>``, ``STRUCT<a:INT,`b c`:STRING>``, without blanks. Fields keep
the names that they were declared with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*:?\s*(.*?)(?:\s+NOT\s+NULL)?\s*", re.I | re.S)


def array_of(element: str) -> str:
    return f"ARRAY<{element}>"


def map_of(key: str, value: str) -> str:
    return f"MAP<{key},{value}>"


def struct_of(fields: Sequence[tuple[str, str]]) -> str:
    """Of (name, type)."""
    return f"STRUCT<{','.join(f'{_quoted(name)}:{kind}' for name, kind in fields)}>"


def is_nested(type_: str) -> bool:
    return type_.endswith(">")


@cache
def element_of(type_: str) -> str | None:
    """The type of an ARRAY's elements; None: it is no ARRAY."""
    parts = _parts(type_, "ARRAY")
    return None if parts is None or len(parts) != 1 else parts[0].strip()


@cache
def entry_of(type_: str) -> tuple[str, str] | None:
    """The types of a MAP's keys and values; None: it is no MAP."""
    parts = _parts(type_, "MAP")
    return None if parts is None or len(parts) != 2 else (parts[0].strip(), parts[1].strip())


@cache
def fields_of(type_: str) -> tuple[tuple[str, str], ...] | None:
    """(name, type) of a STRUCT's fields; None: it is no STRUCT.

    >>> fields_of("STRUCT<a: INT NOT NULL, `b,c`: ARRAY<STRING>>")
    (('a', 'INT'), ('b,c', 'ARRAY<STRING>'))
    """
    parts = _parts(type_, "STRUCT")
    if parts is None:
        return None
    found = []
    for part in parts:
        field = _FIELD.fullmatch(part)
        if field is None or not field[3]:
            return None
        found.append((field[2] if field[1] is None else field[1].replace("``", "`"), field[3]))
    return tuple(found)


def normal(type_: str, plain: Callable[[str], str]) -> str:
    """The one spelling of a type, however it is written. ``plain``: that of a type that is not nested."""
    type_ = type_.strip()
    element, entry, fields = element_of(type_), entry_of(type_), fields_of(type_)
    if element is not None:
        return array_of(normal(element, plain))
    if entry is not None:
        return map_of(normal(entry[0], plain), normal(entry[1], plain))
    if fields is not None:
        return struct_of([(name, normal(kind, plain)) for name, kind in fields])
    return plain(type_)


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _parts(type_: str, word: str) -> list[str] | None:
    """What stands between the outermost brackets, cut at its commas."""
    found = re.fullmatch(rf"\s*{word}\s*<(.*)>\s*", type_, re.I | re.S)
    if found is None:
        return None
    parts, depth, start, quoted = [], 0, 0, False
    for place, sign in enumerate(found[1]):
        if sign == "`":
            quoted = not quoted
        elif not quoted:
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(sign, 0)
            if sign == "," and depth == 0:
                parts.append(found[1][start:place])
                start = place + 1
    parts.append(found[1][start:])
    return parts
