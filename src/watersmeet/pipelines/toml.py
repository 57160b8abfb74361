"""Read a pipeline from TOML, and write it; locate keys in the text."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import ValidationError

from watersmeet.errors import Location, SpecError, flat_enough, raise_all
from watersmeet.pipelines.connection_options import flat, is_file
from watersmeet.pipelines.durations import written
from watersmeet.pipelines.model import Description, Part, Source, StateStore, Target, Transform
from watersmeet.pipelines.problems import Key, Problem, as_written, errors_of, shape_problems
from watersmeet.pipelines.rules import Parts, problems

# Where the keys of a TOML text stand: line and column by the way to the value.
#
# `tomllib` says what is in a text, but not where. It reads the text first; what is here may count on that
# it is right, and only follows keys and brackets.

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_IN_A_VALUE = re.compile(
    rf"""
    \#[^\n]*
    | (?P<text>"{{3}}(?:[^"\\]|\\.|"(?!""))*"{{3,5}} | '{{3}}(?:[^']|'(?!''))*'{{3,5}})
    | (?P<key>{_KEY})[ \t]*=
    | (?P<open>[\[{{])
    | (?P<close>[\]}}])
    | (?P<comma>,)
    | (?P<value>{_PART}|[^\s,\]}}\#]+)
    """,
    re.VERBOSE | re.DOTALL,
)
"""In a text that is right, ``=`` follows keys alone."""
_TOKEN = re.compile(rf"(?P<header>\[\[?[ \t]*{_KEY}[ \t]*\]\]?)|{_IN_A_VALUE.pattern}", _IN_A_VALUE.flags)
_WRONG = re.compile(r"(.*?) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


class Places:
    """The places of a text that `tomllib` has read.

    >>> places = Places('name = "a"\\n[[sources]]\\nconnection.path = "x"', "a.toml")
    >>> str(places.of(("sources", 0, "connection", "path")))
    'a.toml, line 3, column 1'
    """

    def __init__(self, text: str, source_name: str | None) -> None:
        self._text, self._source = text, source_name
        self._offsets: dict[str, int] = {}
        self._counts: dict[Key, int] = {}
        self._read()

    def of(self, key: Key) -> Location:
        """Return the location of the key, or else of the nearest part that would contain it."""
        for length in range(len(key), 0, -1):
            for way in (key[:length], _number_only_transform(key[:length])):
                offset = self._offsets.get(_join_key_names(way))
                if offset is not None:
                    return self._location(offset)
        return self._location(0)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self._offsets)

    def _location(self, offset: int) -> Location:
        before = self._text[:offset]
        return Location(before.count("\n") + 1, offset - before.rfind("\n"), self._source)

    def _note(self, key: Key, offset: int) -> Key:
        self._offsets.setdefault(_join_key_names(key), offset)
        return key

    def _read(self) -> None:
        header: Key = ()
        key: Key | None = None  # of the value that comes next
        inside: list[tuple[Key, list[int]]] = []  # open tables, and open lists with the number of an item
        at = 0
        while token := (_TOKEN if key is None and not inside else _IN_A_VALUE).search(self._text, at):
            kind, at = token.lastgroup, token.end()
            if kind is None:  # a comment
                continue
            start = token.start()
            if kind == "header":
                header = self._header(token[kind], start)
            elif kind == "key":
                key = inside[-1][0] if inside else header
                for name in _names(token[kind]):
                    key = self._note((*key, name), start)
            elif kind == "comma":
                inside[-1][1][:] = [number + 1 for number in inside[-1][1]]
            elif kind == "close":
                inside.pop()
            else:
                if inside and inside[-1][1]:
                    key = self._note((*inside[-1][0], *inside[-1][1]), start)
                if kind == "open" and key is not None:
                    inside.append((key, [0] if token[kind] == "[" else []))
                key = None

    def _header(self, written: str, start: int) -> Key:
        key: Key = ()
        *outer, last = _names(written.strip("[] \t"))
        for name in outer:
            key = self._note((*key, name), start)
            if key in self._counts:  # of a list of tables, the one that was begun last
                key = (*key, self._counts[key] - 1)
        key = self._note((*key, last), start)
        if not written.startswith("[["):
            return key
        number = self._counts.get(key, 0)
        self._counts[key] = number + 1
        return self._note((*key, number), start)


def _names(written: str) -> Iterator[str]:
    """Yield the names of a dotted key."""
    table = tomllib.loads(f"{written} = 0")
    while isinstance(table, dict):
        ((name, table),) = table.items()
        yield name


def _join_key_names(key: Key) -> str:
    """Join a key's names with dots.

    Names with dots in them and dots between names are equal here, because options use both.
    """
    return ".".join(map(str, key))


def _number_only_transform(key: Key) -> Key:
    """Insert the index 0 into keys of a single transform, which the file may also write as a list."""
    return ("transform", 0, *key[1:]) if key[:1] == ("transform",) else key


def loads(text: str, source_name: str | None) -> Mapping[str, Any]:
    """Parse a TOML text.

    Raises:
        SpecError: the text is not TOML; the error has the location.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _WRONG.fullmatch(str(error))
        message, line, column = (str(error), None, None) if match is None else match.groups()
        if message.startswith("Illegal character '\\n'"):
            message = "a text has no closing quote in this line"
        at_end = (text.count("\n") + 1, len(text) - text.rfind("\n"))
        where = (int(line), int(column)) if line and column else at_end
        raise SpecError(
            f"TOML syntax: {message[:1].lower()}{message[1:]}",
            code="syntax",
            hint="check this line and the one before: quotes, brackets and = must be complete",
            location=Location(*where, source_name),
        ) from None
    except RecursionError:
        raise SpecError(
            "TOML syntax: it is nested too deeply", code="syntax", hint="use fewer levels"
        ) from None


# TOML → a description: its shape, its rules; all that is wrong is told at once, with file, line and key.

Whole = TypeVar("Whole", bound=Description)
One = TypeVar("One", bound=Part)


def read(text: str, source_name: str | None, kind: type[Whole]) -> tuple[Whole, Places]:
    """Parse a description, and return it with the locations of its keys.

    Raises:
        SpecError, SeveralErrors: the description is wrong.
    """
    given = dict(loads(text, source_name))
    with flat_enough():
        places = Places(text, source_name)
    try:
        whole = kind.model_validate(given)
        wrong = problems(Parts.of(whole))
    except ValidationError as error:
        shapes = shape_problems(error, kind)
        parts = _parts(given, shapes)
        wrong = [*as_written(shapes, len(parts.transform)), *problems(parts)]
        raise_all(errors_of(dict.fromkeys(wrong), places.of))
        raise
    raise_all(errors_of(wrong, places.of))
    return whole, places


def _parts(given: Mapping[str, Any], shapes: Sequence[Problem]) -> Parts:
    """Return the parts as far as they have the right shape; omit unknown keys."""
    unknown = {problem.key for problem in shapes if problem.code == "unknown-key"}
    meant = _without(given, (), unknown)
    transform = meant.get("transform", ())
    steps = transform if isinstance(transform, list) else [transform] if transform else []
    store, settings = meant.get("state_store"), meant.get("settings", {})
    checkpoint = meant.get("checkpoint")
    sources = meant.get("sources", ())
    missing = [None]  # of which enough was said
    return Parts(
        [_part(Source, source) for source in sources] if isinstance(sources, list) else missing,
        [_part(Transform, step) for step in steps] or missing,
        _part(Target, meant.get("target")),
        None if store is None else _part(StateStore, store),
        checkpoint if isinstance(checkpoint, str) else None,
        flat(settings) if isinstance(settings, Mapping) else {},
    )


def _part(kind: type[One], given: Any) -> One | None:
    try:
        return kind.model_validate(given)
    except ValidationError:
        return None


def _without(given: Any, key: Key, unknown: set[Key]) -> Any:
    """Remove these keys from a value; number the only transform as in a list."""
    if key == ("transform",) and isinstance(given, Mapping):
        return _without(given, ("transform", 0), unknown)
    if isinstance(given, Mapping):
        return {
            name: _without(value, (*key, name), unknown)
            for name, value in given.items()
            if (*key, name) not in unknown
        }
    if isinstance(given, list):
        return [_without(value, (*key, number), unknown) for number, value in enumerate(given)]
    return given


# A description → TOML, of which `pipelines.toml` makes the same one. What is as it is anyway is left out.

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(description: Description) -> str:
    """Write a description as TOML."""
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
    """Yield the lines of a table and of the tables within it.

    Args:
        head: None: write the head only if the table has more than nested tables.
    """
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
    """Write a text in quotes on one line; JSON's escapes are valid in TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _long(text: str) -> str:
    """Write a text on several lines if no character in it needs an escape."""
    if (
        '"""' in text
        or text.endswith('"')
        or "\\" in text
        or any(c < " " and c != "\n" for c in text)
        or "\x7f" in text
    ):
        return _text(text)
    return f'"""\n{text}"""'
