"""Avro schemas as values. Source: the Avro specification, 1.12, "Schema Declaration", "Logical Types"."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    """
    Attributes:
        kind: one of `PRIMITIVES`, or record, enum, array, map, fixed, union.
        parts: of a union its branches; of an array or a map what it holds.
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
        """As people name it."""
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
    """A schema of its JSON text.

    Args:
        others: types that other schemas declare, by their full names; those of this one are added.

    Raises:
        BadSchema: it is none.
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
        return AvroType(tree) if tree in PRIMITIVES else _named(tree, space, names)
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
        return _declared("record" if kind == "error" else kind, tree, space, names)
    if kind in ("array", "map"):
        inner = tree.get("items" if kind == "array" else "values")
        return AvroType(kind, parts=(_type(inner, space, names),))
    plain = _type(kind, space, names)
    return _with_logical(plain, tree)


def _named(name: str, space: str, names: _Names) -> AvroType:
    for full in (name,) if "." in name or not space else (f"{space}.{name}", name):
        if full in names.open:
            raise BadSchema(f'the type "{full}" contains itself, which is not supported')
        if full in names.declared:
            return names.declared[full]
    raise BadSchema(f'there is no type "{name}"')


def _declared(kind: str, tree: dict[str, Any], space: str, names: _Names) -> AvroType:
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
    """One that is not valid does not count, as the specification has it."""
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
