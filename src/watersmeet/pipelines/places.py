"""Where the keys of a TOML text stand: line and column by the way to the value.

`tomllib` says what is in a text, but not where. It reads the text first; what is here may count on that it is
right, and only follows keys and brackets.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from watersmeet.errors import Location, SpecError
from watersmeet.pipelines.problems import Key

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
        """Of the key, or else of what it would stand in."""
        for length in range(len(key), 0, -1):
            for way in (key[:length], _numbered(key[:length])):
                offset = self._offsets.get(_joined(way))
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
        self._offsets.setdefault(_joined(key), offset)
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


def _joined(key: Key) -> str:
    """Names with dots in them, and dots between names, are the same here: options have them either way."""
    return ".".join(map(str, key))


def _numbered(key: Key) -> Key:
    """The one transform may stand in a list."""
    return ("transform", 0, *key[1:]) if key[:1] == ("transform",) else key


def loads(text: str, source_name: str | None) -> Mapping[str, Any]:
    """What is in a text. Raises: SpecError, with the place, where it is no TOML."""
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
