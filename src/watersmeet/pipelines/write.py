"""A description → TOML, of which `pipelines.read` makes the same one. What is as it is anyway is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from watersmeet.pipelines.lengths import written
from watersmeet.pipelines.model import Description
from watersmeet.pipelines.values import is_file

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(description: Description) -> str:
    """The text."""
    asked = description.model_dump(exclude_defaults=True)
    sources, steps = asked.pop("sources"), asked.pop("transform")
    tables = {name: asked.pop(name) for name in ("target", "state_store", "settings") if name in asked}
    parts = ["\n".join(_pairs(asked))]
    parts += ["\n".join(_table("sources", source, "[[sources]]")) for source in sources]
    for step in steps:
        if "join" in step:
            step["join"] = {"kind": "stream_stream_join", **step["join"]}
        several = len(steps) > 1
        lines = "\n".join(_table("transform", step, "[[transform]]" if several else None))
        parts.append(lines.lstrip("\n"))
    parts += ["\n".join(_table(name, table)) for name, table in tables.items()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        yield f"{_key(name)} = {_value(value)}"


def _table(name: str, table: Mapping[str, Any], head: str | None = "") -> Iterator[str]:
    """With the tables within it. ``head`` None: only where it has more than these."""
    plain = {key: value for key, value in table.items() if not _is_table(value)}
    if head is not None or plain:
        yield head or f"[{name}]"
    yield from _pairs(plain)
    for key, inner in table.items():
        if _is_table(inner):
            if _has_more(inner):
                yield ""
            yield from _table(f"{name}.{_key(key)}", inner, "" if _has_more(inner) else None)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and not is_file(value)


def _has_more(table: Mapping[str, Any]) -> bool:
    return not table or any(not _is_table(value) for value in table.values())


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _long(value) if "\n" in value else _text(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pairs(value)) + " }"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, timedelta):
        return _value(written(value))
    return repr(value)


def _text(text: str) -> str:
    """In quotes, on one line; JSON's escapes are TOML's."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _long(text: str) -> str:
    """On several lines, if it can be read there as it is."""
    if (
        '"""' in text
        or text.endswith('"')
        or "\\" in text
        or any(c < " " and c != "\n" for c in text)
        or "\x7f" in text
    ):
        return _text(text)
    return f'"""\n{text}"""'
