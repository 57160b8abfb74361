"""Where the keys of a TOML text stand: line and column by the way to the value.

`tomllib` says what is in a text, but not where. It reads the text first; what is here may count on that it is
right, and only follows keys and brackets.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from watersmeet.errors import Location, SpecError
from watersmeet.pipelines.problems import Key

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = (
    re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    re.compile(r"'''(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)
_PLAIN = re.compile(r"[^,\]}#\n]*")
_WRONG = re.compile(r"(.*?) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


class Places:
    """The places of a text that `tomllib` has read.

    >>> places = Places('name = "a"\\n[[sources]]\\nconnection.path = "x"', "a.toml")
    >>> str(places.of(("sources", 0, "connection", "path")))
    'a.toml, line 3, column 1'
    """

    def __init__(self, text: str, source_name: str | None) -> None:
        self._text, self._source, self._at = text, source_name, 0
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

    def _read(self) -> None:
        header: Key = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                header = self._header()
            else:
                self._pair(header)
            self._skip(_BLANK)

    def _header(self) -> Key:
        start = self._at
        several = self._text.startswith("[[", start)
        self._at += 1 + several
        names = self._names()
        self._at += 1 + several
        key: Key = ()
        for name in names[:-1]:
            key = (*key, name)
            self._offsets.setdefault(_joined(key), start)
            key = self._last(key)
        key = (*key, names[-1])
        if several:
            self._offsets.setdefault(_joined(key), start)
            number = self._counts.get(key, 0)
            self._counts[key] = number + 1
            key = (*key, number)
        self._offsets.setdefault(_joined(key), start)
        return key

    def _last(self, key: Key) -> Key:
        """Of a list of tables, the one that was begun last."""
        return (*key, self._counts[key] - 1) if key in self._counts else key

    def _pair(self, header: Key) -> None:
        start = self._at
        key: Key = header
        for name in self._names():
            key = (*key, name)
            self._offsets.setdefault(_joined(key), start)
        self._at += 1  # =
        self._value(key)

    def _names(self) -> list[str]:
        """A dotted key, and the blanks behind it."""
        names = []
        while True:
            self._skip(_SPACE)
            match = _BARE_KEY.match(self._text, self._at) or self._string()
            assert match is not None
            self._at = match.end()
            written = match.group()
            names.append(written if written[0] not in "\"'" else _plain(written))
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return names
            self._at += 1

    def _value(self, key: Key) -> None:
        self._skip(_BLANK)
        first = self._text[self._at]
        if first == "[":
            self._items(key)
        elif first == "{":
            self._inline(key)
        else:
            match = self._string() or _PLAIN.match(self._text, self._at)
            assert match is not None
            self._at = match.end()

    def _items(self, key: Key) -> None:
        self._at += 1
        number = 0
        self._skip(_BLANK)
        while self._text[self._at] != "]":
            self._offsets.setdefault(_joined((*key, number)), self._at)
            self._value((*key, number))
            number += 1
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_BLANK)
        self._at += 1

    def _inline(self, key: Key) -> None:
        self._at += 1
        self._skip(_BLANK)
        while self._text[self._at] != "}":
            self._pair(key)
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_BLANK)
        self._at += 1

    def _string(self) -> re.Match[str] | None:
        return next((m for pattern in _STRINGS if (m := pattern.match(self._text, self._at))), None)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        assert match is not None
        self._at = match.end()


def _joined(key: Key) -> str:
    """Names with dots in them, and dots between names, are the same here: options have them either way."""
    return ".".join(map(str, key))


def _numbered(key: Key) -> Key:
    """The one transform may stand in a list."""
    return ("transform", 0, *key[1:]) if key[:1] == ("transform",) else key


def _plain(written: str) -> str:
    (name,) = tomllib.loads(f"{written} = 0")
    return name


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
