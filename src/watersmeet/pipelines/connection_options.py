"""Options of connections: nested tables made flat, and secrets that are elsewhere.

A dotted name in TOML is a table within a table: ``bootstrap.servers = "b"`` is
``{bootstrap: {servers: "b"}}``, and means the option ``bootstrap.servers``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from watersmeet.parser.text.external_values import Report, fill_references, has_reference, read_value
from watersmeet.pipelines.problems import Key, Problem
from watersmeet.spec.secrets import HIDDEN, public

FROM_FILE = "from_file"

_PARAMETER = re.compile(r"(?:passw\w*|secret\w*|token)=([^&;]*)", re.IGNORECASE)


def flat(given: Any) -> Any:
    """Flatten options to whole names.

    A value that is not a table, and a duplicate name, remain for pydantic and the rules to report.
    """
    if not isinstance(given, Mapping):
        return given
    options: dict[str, Any] = {}
    for name, value in _flat(given, ""):
        while name in options:  # said twice: `option_problems` tells it
            name += TWICE
        options[name] = value
    return options


TWICE = "\0"


def is_file(value: Any) -> bool:
    """Return True if the value has the form ``{ from_file = "…" }``."""
    return isinstance(value, Mapping) and set(value) == {FROM_FILE}


def _flat(given: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        whole = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and not is_file(value):
            yield from _flat(value, f"{whole}.")
        else:
            yield whole, value


def option_problems(
    key: Key, options: Mapping[str, Any], is_same: Callable[[str, str], bool]
) -> Iterator[Problem]:
    """Yield problems of duplicate names, invalid values, and secrets in plain text.

    Args:
        is_same: returns whether two names are names of one option.
    """
    before: list[str] = []
    for name, value in options.items():
        place = (*key, name.rstrip(TWICE))
        other = next((said for said in before if is_same(said, name)), None)
        before.append(name)
        if TWICE in name or other is not None:
            also = "" if other is None else f', also as "{other}"'
            yield Problem(place, f"is given twice{also}", "duplicate-option", "leave out one of them")
        elif is_file(value):
            if not isinstance(value[FROM_FILE], str) or not value[FROM_FILE].strip():
                yield Problem(
                    place, f"{FROM_FILE} is {value[FROM_FILE]!r}", "bad-value", "the path of a file"
                )
        elif not isinstance(value, str | int | float):
            yield Problem(
                place,
                f"is {value!r}",
                "bad-value",
                "a text, a number, true or false; of several names a text",
            )
        elif isinstance(value, str) and _is_secret(name, value):
            yield Problem(
                place,
                "has a password or another secret in it",
                "open-secret",
                f'write "${{{_upper(name)}}}" to read it from the environment, or {{ {FROM_FILE} = "…" }}',
            )


def _upper(name: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", name.upper())


def _is_secret(name: str, value: str) -> bool:
    """Return True if the option contains a secret in plain text."""
    if public(name, value) == HIDDEN:
        return not has_reference(value)
    if name.lower().rpartition(".")[2] not in ("url", "uri"):
        return False
    return secret_in_url(value)


def secret_in_url(url: str) -> bool:
    """Return True if a URL contains a password in plain text.

    >>> secret_in_url("postgresql://me:${PW}@db/x"), secret_in_url("postgresql://me@db/x")
    (False, False)
    >>> secret_in_url("postgresql://me:pw@db/x"), secret_in_url("jdbc:postgresql://db/x?password=pw")
    (True, True)
    """
    _, _, rest = url.partition("://")
    who = rest.partition("/")[0].rpartition("@")[0]
    _, colon, password = who.partition(":")
    written = [password] if colon else []
    return any(part and not has_reference(part) for part in [*written, *_PARAMETER.findall(url)])


class ReferenceResolver:
    """Texts with what is in the environment and in files; what is not there is a problem."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def text(self, key: Key, value: Any) -> str:
        """Return a value as an option's text, with references and files resolved."""
        if is_file(value):
            return read_value(value[FROM_FILE], self._report(key))
        if isinstance(value, bool):
            return str(value).lower()
        return fill_references(value, self._report(key)) if isinstance(value, str) else str(value)

    def options(self, key: Key, options: Mapping[str, Any]) -> dict[str, str]:
        return {name: self.text((*key, name), value) for name, value in options.items()}

    def _report(self, key: Key) -> Report:
        """Return a function that adds problems of a key."""
        return lambda message, code, hint: self.problems.append(Problem(key, message, code, hint))


def with_parameter(url: str, name: str, value: str) -> str:
    """Add a parameter to the URL unless it already has it.

    >>> with_parameter("postgresql://db/x", "pipeline", "a")
    'postgresql://db/x?pipeline=a'
    >>> with_parameter("postgresql://db/x?pipeline=b", "pipeline", "a")
    'postgresql://db/x?pipeline=b'
    """
    query = urlsplit(url).query
    if any(part.partition("=")[0] == name for part in query.split("&")):
        return url
    return f"{url}{'&' if query else '?'}{name}={value}"
