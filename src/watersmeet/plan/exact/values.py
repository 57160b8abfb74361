"""What tasks compute, as data, and of what type: constants, calls, the type of several values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Tree = tuple[Any, ...]


INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


PLAIN = (*INTEGERS, "FLOAT", "DOUBLE", "BOOLEAN", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


INTERVAL = "INTERVAL DAY TO SECOND"


_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20}


DAY_US = 86_400_000_000


class NotExact(Exception):
    """Tasks do not compute it; the text says why."""


@dataclass(frozen=True)
class Exact:
    """What tasks compute. ``type``: Spark's."""

    tree: Tree
    type: str


def call(function: str, type_: str, *arguments: Exact, options: Sequence[Any] = ()) -> Exact:
    return Exact(("call", function, tuple(each.tree for each in arguments), tuple(options)), type_)


def or_null(found: Exact, conditions: Sequence[str] = ()) -> Exact:
    """A call that is NULL for a row for which it would fail by one of ``conditions``; of none: by any."""
    return found if found.tree[0] != "call" else Exact(("or_null", found.tree, tuple(conditions)), found.type)


def constant(value: object, type_: str) -> Exact:
    return Exact(("constant", value, type_), type_)


def constant_value(found: Exact) -> Any:
    """The value of a constant. Raises: NotExact."""
    if found.tree[0] != "constant" or found.tree[1] is None:
        raise NotExact("an argument that has to be constant is not")
    return found.tree[1]


def is_decimal(type_: str) -> bool:
    return type_.startswith("DECIMAL")


def is_number(type_: str) -> bool:
    return type_ in (*INTEGERS, "FLOAT", "DOUBLE") or is_decimal(type_)


def decimal_parts(type_: str) -> tuple[int, int]:
    if type_ in _DIGITS:
        return _DIGITS[type_], 0
    found = _DECIMAL.fullmatch(type_)
    if found is None:
        raise NotExact(f"{type_} is not on the list")
    return int(found.group(1)), int(found.group(2))


def decimal_type(digits: int, scale: int) -> str:
    if digits > 38:
        raise NotExact("a DECIMAL of more than 38 digits is cut by rules of Spark's own")
    return f"DECIMAL({digits},{scale})"


def widened(found: Exact, type_: str) -> Exact:
    """A value in a wider type of its kind."""
    if found.type == type_:
        return found
    if found.type == "NULL":
        return constant(None, type_)
    if found.tree[0] == "constant" and found.type in INTEGERS and type_ in INTEGERS:
        return constant(found.tree[1], type_)
    digits = decimal_parts(found.type)[0] if is_decimal(found.type) else 0
    wider = {
        "DOUBLE": found.type in (*INTEGERS, "FLOAT") or 0 < digits <= 15,
        **dict.fromkeys(INTEGERS, found.type in INTEGERS),
    }
    to_decimal = is_decimal(type_) and (found.type in INTEGERS or digits > 0)
    if wider.get(type_, to_decimal):
        return call("widen", type_, found, options=[("type", type_)])
    raise NotExact(f"{found.type} as {type_}")


def common_type(types: Sequence[str]) -> str:
    """The type in which Spark compares or chooses between values. Raises: NotExact."""
    known = [type_ for type_ in dict.fromkeys(types) if type_ != "NULL"]
    if not known:
        return "NULL"
    if len(known) == 1:
        return known[0]
    if all(type_ in INTEGERS for type_ in known):
        return max(known, key=INTEGERS.index)
    if "DOUBLE" in known and all(is_number(type_) for type_ in known):
        return "DOUBLE"
    if all(type_ in (*INTEGERS, "FLOAT") for type_ in known):  # FLOAT would lose digits of an integer
        return "DOUBLE"
    if all(type_ in INTEGERS or is_decimal(type_) for type_ in known):
        parts = [decimal_parts(type_) for type_ in known]
        scale = max(scale for _, scale in parts)
        return decimal_type(max(digits - own for digits, own in parts) + scale, scale)
    raise NotExact(f"{' and '.join(known)} are turned into one type by Spark alone")
