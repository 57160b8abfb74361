"""What tasks compute, as data, and of what type: constants, calls, the type of several values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.nested import array_of, element_of, entry_of, fields_of, is_nested, map_of, struct_of

Tree = tuple[Any, ...]


INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


PLAIN = (*INTEGERS, "FLOAT", "DOUBLE", "BOOLEAN", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


INTERVAL = "INTERVAL DAY TO SECOND"


INTERVAL_OF_MONTHS = "INTERVAL YEAR TO MONTH"


INTERVAL_FIELDS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


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


def computed(found: Exact) -> Exact:
    """The value of a call, which beside a DECIMAL is no literal, though it be known."""
    if found.tree[0] == "constant" and found.type in INTEGERS:
        return call("widen", found.type, found, options=[("type", found.type)])
    return found


def constant_value(found: Exact) -> Any:
    """The value of a constant. Raises: NotExact."""
    if found.tree[0] != "constant" or found.tree[1] is None:
        raise NotExact("an argument that has to be constant is not")
    return found.tree[1]


def is_decimal(type_: str) -> bool:
    return type_.startswith("DECIMAL")


def is_number(type_: str) -> bool:
    return type_ in (*INTEGERS, "FLOAT", "DOUBLE") or is_decimal(type_)


def is_interval(type_: str) -> bool:
    return type_.startswith("INTERVAL ")


def is_of_months(type_: str) -> bool:
    """An interval of years and months, and not of days and clock times."""
    return is_interval(type_) and interval_fields(type_)[1] in INTERVAL_FIELDS[:2]


def interval_fields(type_: str) -> tuple[str, str]:
    """The first and the last: ``INTERVAL DAY TO HOUR``, ``INTERVAL DAY``."""
    first, _, last = type_.removeprefix("INTERVAL ").partition(" TO ")
    return first, last or first


def interval_type(first: str, last: str) -> str:
    return f"INTERVAL {first}" if first == last else f"INTERVAL {first} TO {last}"


def common_interval(types: Sequence[str]) -> str:
    """The type that holds intervals of all types. Raises: NotExact, for months beside days."""
    if len({is_of_months(type_) for type_ in types}) > 1:
        raise NotExact("intervals of months and of days have no type in common")
    places = [INTERVAL_FIELDS.index(field) for type_ in types for field in interval_fields(type_)]
    return interval_type(INTERVAL_FIELDS[min(places)], INTERVAL_FIELDS[max(places)])


def decimal_parts(type_: str) -> tuple[int, int]:
    if type_ in _DIGITS:
        return _DIGITS[type_], 0
    found = _DECIMAL.fullmatch(type_)
    if found is None:
        raise NotExact(f"{type_} is not on the list")
    return int(found.group(1)), int(found.group(2))


def turned(function: str, value: Exact) -> Exact:
    """``-x`` and `abs`. Of DECIMALs beyond 34 digits Spark rounds them. Raises: NotExact."""
    if not is_number(value.type) or (is_decimal(value.type) and decimal_parts(value.type)[0] > 34):
        raise NotExact(f"{function.replace('_', ' ')} of {value.type}")
    return call(function, value.type, value)


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
    if is_nested(found.type) or is_nested(type_):
        return _widened_within(found, type_)
    if is_interval(found.type) and is_interval(type_) and is_of_months(found.type) == is_of_months(type_):
        return Exact(found.tree, type_)
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


def _widened_within(found: Exact, type_: str) -> Exact:
    """ARRAYs, MAPs and STRUCTs whose parts are in a wider type."""
    of, to = parts_of(found.type), parts_of(type_)
    if len(of) != len(to) or shape_of(found.type) != shape_of(type_):
        raise NotExact(f"{found.type} as {type_}")
    for own, wider in zip(of, to, strict=True):
        widened(Exact(("variable", ""), own), wider)
    if plain_names(found.type) == plain_names(type_):
        return Exact(found.tree, type_)
    return call("widen_nested", type_, found, options=[("type", type_)])


def parts_of(type_: str) -> tuple[str, ...]:
    """The types right beneath a nested one; of others none."""
    element, entry, fields = element_of(type_), entry_of(type_), fields_of(type_)
    if element is not None:
        return (element,)
    return entry or tuple(kind for _, kind in fields or ())


def shape_of(type_: str) -> object:
    """What two nested types have to have in common, besides their parts' own."""
    fields = fields_of(type_)
    return type_[:3] if fields is None else tuple(name.lower() for name, _ in fields)


def plain_names(type_: str) -> str:
    """A type without the names of fields."""
    fields = fields_of(type_)
    if fields is not None:
        return struct_of([(f"f{n}", plain_names(kind)) for n, (_, kind) in enumerate(fields)])
    element, entry = element_of(type_), entry_of(type_)
    if element is not None:
        return array_of(plain_names(element))
    return type_ if entry is None else map_of(plain_names(entry[0]), plain_names(entry[1]))


def is_value(type_: str) -> bool:
    """Whether columns and parts of columns may be of a type."""
    if is_nested(type_):
        parts = parts_of(type_)
        return bool(parts) and all(map(is_value, parts))
    return type_ in PLAIN or is_decimal(type_)


def is_ordered(type_: str) -> bool:
    """Whether Spark compares values of a type: no MAPs."""
    return entry_of(type_) is None and all(map(is_ordered, parts_of(type_)))


def has_reals(type_: str) -> bool:
    """Whether it is FLOAT or DOUBLE, or something in it is."""
    return type_ in ("FLOAT", "DOUBLE") or any(map(has_reals, parts_of(type_)))


def _common_within(types: Sequence[str]) -> str:
    if len({shape_of(type_) for type_ in types}) != 1 or len({len(parts_of(type_)) for type_ in types}) != 1:
        raise NotExact(f"{' and '.join(types)} are turned into one type by Spark alone")
    parts = [common_type(each) for each in zip(*map(parts_of, types), strict=True)]
    fields = fields_of(types[0])
    if fields is not None:
        return struct_of([(name, kind) for (name, _), kind in zip(fields, parts, strict=True)])
    return array_of(parts[0]) if len(parts) == 1 else map_of(parts[0], parts[1])


def common_type(types: Sequence[str]) -> str:
    """The type in which Spark compares or chooses between values. Raises: NotExact."""
    known = [type_ for type_ in dict.fromkeys(types) if type_ != "NULL"]
    if not known:
        return "NULL"
    if len(known) == 1:
        return known[0]
    if all(map(is_nested, known)):
        return _common_within(known)
    if all(map(is_interval, known)):
        return common_interval(known)
    if all(type_ in INTEGERS for type_ in known):
        return max(known, key=INTEGERS.index)
    if "DOUBLE" in known and all(is_number(type_) for type_ in known):
        return "DOUBLE"
    if "FLOAT" in known and all(is_number(type_) for type_ in known):  # which would lose digits of others
        return "DOUBLE"
    if all(type_ in INTEGERS or is_decimal(type_) for type_ in known):
        parts = [decimal_parts(type_) for type_ in known]
        scale = max(scale for _, scale in parts)
        return decimal_type(max(digits - own for digits, own in parts) + scale, scale)
    raise NotExact(f"{' and '.join(known)} are turned into one type by Spark alone")
