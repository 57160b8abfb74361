"""Avro schemas, and how their records become the declared columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from watersmeet.spec.model import Column
from watersmeet.spec.records.reading import Reading
from watersmeet.types.sql_type import STRING, Field, SqlType, struct

# Avro schemas as values. Source: the Avro specification, 1.12, "Schema Declaration", "Logical Types".

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

TOO_DEEP = "there are too many types within types"
_DEEPEST = 128

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_BASES = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
}
"""Logical types by the types that they annotate; where they annotate another one they do not count."""


class BadSchema(ValueError):
    """The text is no Avro schema, or one that is not read here."""


@dataclass(frozen=True)
class AvroField:
    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True)
class AvroType:
    """A type of an Avro schema.

    Attributes:
        kind: One of `PRIMITIVES`, or record, enum, array, map, fixed, union.
        parts: The branches of a union; the type of the elements of an array or a map.
    """

    kind: str
    name: str = ""
    logical: str = ""
    size: int = 0
    digits: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    parts: tuple[AvroType, ...] = ()

    def __str__(self) -> str:
        """Format the type for a message."""
        if self.kind == "union":
            return f"[{', '.join(map(str, self.parts))}]"
        if self.logical == "decimal":
            return f"decimal({self.digits},{self.scale})"
        if self.parts:
            return f"{self.kind} of {self.parts[0]}"
        return self.logical or (f"{self.kind} {self.name}" if self.name else self.kind)


@dataclass
class _Names:
    declared: dict[str, AvroType] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    depth: int = 0


def parse_avro(text: str, others: Mapping[str, AvroType] | None = None) -> AvroType:
    """Parse a schema from its JSON text.

    Args:
        others: Types that other schemas declare, by their full names; the function adds those of this
            one.

    Raises:
        BadSchema: The text is not a schema.
    """
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise BadSchema(f"it is not JSON: {error}") from None
    except RecursionError:
        raise BadSchema(TOO_DEEP) from None
    names = _Names(dict(others or {}))
    parsed = _type(tree, "", names)
    if isinstance(others, dict):
        others.update(names.declared)
    return parsed


def _type(tree: Any, space: str, names: _Names) -> AvroType:
    if names.depth == _DEEPEST:
        raise BadSchema(TOO_DEEP)
    names.depth += 1
    try:
        return _read_type(tree, space, names)
    finally:
        names.depth -= 1


def _read_type(tree: Any, space: str, names: _Names) -> AvroType:
    if isinstance(tree, str):
        return AvroType(tree) if tree in PRIMITIVES else _resolve_named_type(tree, space, names)
    if isinstance(tree, list):
        if any(isinstance(item, list) for item in tree) or not tree:
            raise BadSchema("a union cannot contain a union")
        return AvroType("union", parts=tuple(_type(item, space, names) for item in tree))
    if not isinstance(tree, dict) or "type" not in tree:
        raise BadSchema(f"{json.dumps(tree)[:80]} is not a type")
    kind = tree["type"]
    if isinstance(kind, dict | list):
        return _type(kind, space, names)
    if kind in ("record", "error", "enum", "fixed"):
        return _parse_declared_type("record" if kind == "error" else kind, tree, space, names)
    if kind in ("array", "map"):
        inner = tree.get("items" if kind == "array" else "values")
        return AvroType(kind, parts=(_type(inner, space, names),))
    plain = _type(kind, space, names)
    return _with_logical(plain, tree)


def _resolve_named_type(name: str, space: str, names: _Names) -> AvroType:
    for full in (name,) if "." in name or not space else (f"{space}.{name}", name):
        if full in names.open:
            raise BadSchema(f'the type "{full}" contains itself, which is not supported')
        if full in names.declared:
            return names.declared[full]
    raise BadSchema(f'there is no type "{name}"')


def _parse_declared_type(kind: str, tree: dict[str, Any], space: str, names: _Names) -> AvroType:
    name = tree.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadSchema(f"{kind}: {json.dumps(name)} is not a name")
    inner = name.rpartition(".")[0] if "." in name else tree.get("namespace", space) or ""
    full = name if "." in name or not inner else f"{inner}.{name}"
    if full in names.open or full in names.declared:
        raise BadSchema(f'the type "{full}" is declared twice')
    names.open.add(full)
    if kind == "record":
        listed = tree.get("fields")
        if not isinstance(listed, list):
            raise BadSchema(f'record "{full}" has no fields')
        parsed = AvroType(kind, full, fields=tuple(_field(item, full, inner, names) for item in listed))
        repeated = [
            f.name for n, f in enumerate(parsed.fields) if f.name in {p.name for p in parsed.fields[:n]}
        ]
        if repeated:
            raise BadSchema(f'record "{full}" has two fields "{repeated[0]}"')
    elif kind == "enum":
        symbols = tree.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(item, str) for item in symbols):
            raise BadSchema(f'enum "{full}" has no symbols')
        parsed = AvroType(kind, full, symbols=tuple(symbols))
    else:
        size = tree.get("size")
        if type(size) is not int or size < 0:
            raise BadSchema(f'fixed "{full}" has no size')
        parsed = _with_logical(AvroType(kind, full, size=size), tree)
    names.open.discard(full)
    names.declared[full] = parsed
    return parsed


def _field(tree: Any, record: str, space: str, names: _Names) -> AvroField:
    if not isinstance(tree, dict) or not isinstance(tree.get("name"), str) or "type" not in tree:
        raise BadSchema(f'record "{record}": {json.dumps(tree)[:80]} is not a field')
    aliases = tree.get("aliases") or ()
    return AvroField(
        tree["name"],
        _type(tree["type"], space, names),
        tuple(str(item) for item in aliases),
        "default" in tree,
        tree.get("default"),
    )


def _with_logical(plain: AvroType, tree: dict[str, Any]) -> AvroType:
    """Add the logical type to a type; ignore an invalid one, as the specification requires."""
    logical = tree.get("logicalType")
    if plain.kind not in _BASES.get(str(logical), ()):
        return plain
    if logical == "decimal":
        digits, scale = tree.get("precision"), tree.get("scale", 0)
        if type(digits) is not int or type(scale) is not int or not 0 <= scale <= digits or digits < 1:
            return plain
        return AvroType(plain.kind, plain.name, "decimal", plain.size, digits, scale)
    if logical == "uuid" and plain.kind == "fixed" and plain.size != 16:
        return plain
    return AvroType(plain.kind, plain.name, str(logical), plain.size)


# How records of an Avro schema become the declared columns, or why they do not.
#
# A column takes what its type holds exactly: a field of another type is a problem, not a value. Fields
# are found by name. One that the record's schema has not has the default of the reader's schema, if there
# is one; else that is a problem, too. Source for defaults and aliases: the Avro specification, "Schema
# Resolution".

_PLAIN: Mapping[str, tuple[str, ...]] = {
    "boolean": ("BOOLEAN",),
    "int": ("INT", "BIGINT", "DOUBLE"),
    "long": ("BIGINT",),
    "float": ("FLOAT", "DOUBLE"),
    "double": ("DOUBLE",),
    "string": ("STRING", "BINARY"),
    "bytes": ("BINARY",),
    "fixed": ("BINARY",),
    "enum": ("STRING",),
}
_LOGICAL = {
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "timestamp-nanos": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
    "local-timestamp-nanos": "TIMESTAMP_NTZ",
    "uuid": "STRING",
}
_DIGITS = {"int": 10, "long": 19}
_EDGES = {"int": 2**31, "long": 2**63}
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""Of the years 1 to 9999, since 1970."""
DAY_US = 86_400_000_000


class Misfit(ValueError):
    """Why records do not become the columns: one problem a line."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def fit_avro(written: AvroType, columns: Sequence[Column], reader: AvroType | None = None) -> Reading:
    """Return how to read records into ``columns``.

    Args:
        written: The schema with which the records were written.
        reader: The schema with the defaults of fields; None: fields have no defaults.

    Raises:
        Misfit: The records cannot be read into the columns.
    """
    if written.kind != "record":
        raise Misfit([f"the schema is {written}, not a record"])
    problems: list[str] = []
    target = struct([Field(column.name, column.type) for column in columns])
    try:
        reading = _read(written, reader, target, "", problems)
    except RecursionError:
        raise Misfit([TOO_DEEP]) from None
    if problems:
        raise Misfit(problems)
    return reading


def _read(
    written: AvroType, reader: AvroType | None, to: SqlType | None, path: str, problems: list[str]
) -> Reading:
    reading: Reading | None
    if written.kind == "union":
        reading = Reading(
            "union", to, parts=tuple(_read(b, _same(reader, b), to, path, problems) for b in written.parts)
        )
    elif written.kind == "null":
        reading = Reading("null", to)
    elif written.kind == "record":
        reading = _record(written, reader, to, path, problems)
    elif written.kind in ("array", "map"):
        reading = _build_repeated_reading(written, reader, to, path, problems)
    else:
        reading = _leaf(written, to)
    if reading is None:
        what = f'column "{path}"' if "." not in path else f'"{path}"'
        problems.append(f"{what} is declared {to}, but the schema has {written}")
        return Reading(written.kind)
    return reading


def _same(reader: AvroType | None, written: AvroType) -> AvroType | None:
    """Return the part of the reader's schema that reads a value of ``written``.

    The caller uses it only for defaults.
    """
    if reader is None or reader.kind != "union":
        return reader if reader is not None and reader.kind == written.kind else None
    kinds = [item for item in reader.parts if item.kind == written.kind]
    return next((item for item in kinds if item.name == written.name), kinds[0] if kinds else None)


def _leaf(written: AvroType, to: SqlType | None) -> Reading | None:
    """Return how to read a value, or None if ``to`` does not hold such values."""
    kind, size = written.kind, written.size
    if to is None:
        return Reading(kind, size=size, words=written.symbols)
    if written.logical == "decimal" and to.is_decimal:
        fits = to.scale >= written.scale and to.whole_digits >= written.digits - written.scale
        return Reading(kind, to, "decimal", size, written.digits, written.scale) if fits else None
    if _LOGICAL.get(written.logical) == to.name and not (kind == "string" or written.logical == "decimal"):
        return Reading(kind, to, written.logical, size)
    if to.name in _PLAIN[kind]:
        return Reading(kind, to, "", size, words=written.symbols)
    if to.is_decimal and kind in _DIGITS and to.whole_digits >= _DIGITS[kind]:
        return Reading(kind, to, "")
    return None


def _build_repeated_reading(
    written: AvroType, reader: AvroType | None, to: SqlType | None, path: str, problems: list[str]
) -> Reading | None:
    inner: SqlType | None = None
    if to is not None:
        if written.kind == "array":
            inner = to.element
        elif to.entry is not None and to.entry[0] == STRING:
            inner = to.entry[1]
        if inner is None:
            return None
    within = reader.parts[0] if reader is not None and reader.kind == written.kind else None
    return Reading(written.kind, to, parts=(_read(written.parts[0], within, inner, f"{path}[]", problems),))


def _record(
    written: AvroType, reader: AvroType | None, to: SqlType | None, path: str, problems: list[str]
) -> Reading | None:
    if to is None:
        return Reading(
            "record", parts=tuple(_read(f.type, None, None, path, problems) for f in written.fields)
        )
    if not to.is_struct:
        return None
    of_reader = {f.name: f for f in reader.fields} if reader is not None and reader.kind == "record" else {}
    place_of: dict[str, int] = {}
    within: dict[str, AvroField | None] = {}
    defaults: list[tuple[int, Any]] = []
    for place, wanted in enumerate(to.fields):
        told = of_reader.get(named_among(wanted.name, of_reader) or "")
        names = [f.name for f in written.fields if f.name not in place_of]
        source = named_among(wanted.name, names)
        if source is None and told is not None:
            source = next((alias for alias in (told.name, *told.aliases) if alias in names), None)
        whole = f"{path}.{wanted.name}" if path else wanted.name
        if source is not None:
            place_of[source], within[source] = place, told
        elif told is not None and told.has_default:
            try:
                defaults.append((place, default_of(told.type, told.default, wanted.type)))
            except ValueError:
                problems.append(f'the default of "{whole}" is not a valid {wanted.type}')
        else:
            what = f'column "{whole}"' if "." not in whole else f'"{whole}"'
            has = ", ".join(names) or "none"
            problems.append(f"{what} is not in the schema, which has {has}")
    parts, places = [], []
    for item in written.fields:
        place = place_of.get(item.name, -1)
        inner = to.fields[place].type if place >= 0 else None
        told = within.get(item.name)
        whole = f"{path}.{item.name}" if path else item.name
        parts.append(_read(item.type, None if told is None else told.type, inner, whole, problems))
        places.append(place)
    return Reading("record", to, parts=tuple(parts), places=tuple(places), defaults=tuple(defaults))


def named_among(name: str, names: Mapping[str, AvroField] | Sequence[str]) -> str | None:
    """Return the name as spelled in ``names``, or None.

    Ignore case if only one name differs by case alone.
    """
    if name in names:
        return name
    alike = [item for item in names if item.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def default_of(declared: AvroType, value: Any, to: SqlType) -> Any:
    """Convert a default of a schema to the value that Arrow accepts for ``to``.

    Raises:
        ValueError: The value is not a valid default.
    """
    if declared.kind == "union":  # of the first branch that has such values
        for branch in declared.parts:
            with suppress(ValueError):
                return default_of(branch, value, to)
        raise ValueError(value)
    if declared.kind == "null":
        if value is not None:
            raise ValueError(value)
        return None
    if declared.kind == "record" and to.is_struct and isinstance(value, dict):
        return {wanted.name: _default_within(declared, value, wanted) for wanted in to.fields}
    if declared.kind == "array" and to.element is not None and isinstance(value, list):
        return [default_of(declared.parts[0], item, to.element) for item in value]
    is_map = to.entry is not None and to.entry[0] == STRING
    if declared.kind == "map" and is_map and to.entry is not None and isinstance(value, dict):
        return [(key, default_of(declared.parts[0], item, to.entry[1])) for key, item in value.items()]
    reading = None if declared.kind in ("record", "array", "map") else _leaf(declared, to)
    if reading is None:
        raise ValueError(value)
    return _plain_default(reading, value, to)


def _default_within(record: AvroType, values: Mapping[str, Any], wanted: Field) -> Any:
    fields = {item.name: item for item in record.fields}
    name = named_among(wanted.name, fields)
    if name is None or (name not in values and not fields[name].has_default):
        raise ValueError(wanted.name)
    return default_of(fields[name].type, values.get(name, fields[name].default), wanted.type)


def _plain_default(reading: Reading, value: Any, to: SqlType) -> Any:
    kind, is_text = reading.kind, isinstance(value, str)
    if kind in ("bytes", "fixed") and is_text:
        raw = value.encode("latin-1")
        if kind == "fixed" and len(raw) != reading.size:
            raise ValueError(value)
        if reading.logical == "decimal":
            return _decimal_default(raw, reading)
        return str(UUID(bytes=raw)) if reading.logical == "uuid" else raw
    if kind in ("int", "long") and type(value) is int and -_EDGES[kind] <= value < _EDGES[kind]:
        return _whole_default(reading.logical, value, to)
    if kind in ("float", "double") and type(value) in (int, float):
        return float(value)
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "string" and is_text:
        return value.encode() if to.name == "BINARY" else value
    if kind == "enum" and value in reading.words:
        return value
    raise ValueError(value)


def _decimal_default(raw: bytes, reading: Reading) -> Decimal:
    whole = int.from_bytes(raw, "big", signed=True)
    if not raw or abs(whole) >= 10**reading.digits:
        raise ValueError(raw)
    return Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -reading.scale))


def _whole_default(logical: str, value: int, to: SqlType) -> int:
    """Convert a default to days for a DATE or to µs for a TIMESTAMP; return others unchanged.

    Raises:
        ValueError: The time is out of range.
    """
    if not to.is_time:
        return value
    if logical.endswith("millis"):
        value *= 1000
    elif logical.endswith("nanos"):
        value //= 1000
    if not FIRST_DAY <= (value if logical == "date" else value // DAY_US) <= LAST_DAY:
        raise ValueError(value)
    return value
