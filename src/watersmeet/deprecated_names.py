"""Earlier names of settings and options: they still count, with one notice that says the name of today.

Jobs, plans and messages know the names of today alone; digests of stored jobs know the earlier ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

SETTINGS = {
    "max_skew": "max_drift",
    "max_output_per_tick": "max_output_rows_per_tick",
    "null_time": "on_null_time",
    "set_aside_newer_parts": "replace_newer_files",
}
"""Earlier name -> name of today."""

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "kafka": {"wait": "max_wait"},
    "postgres": {"wait": "max_wait", "on_refused": "on_rejected"},
}
"""Connector -> earlier name -> name of today."""

VALUES: Mapping[str, Mapping[str, str]] = {"on_rejected": {"aside": "dead_letter"}}
"""Option -> earlier value -> value of today."""

_FIRST_NAMES = {now: old for names in (SETTINGS, *OPTIONS.values()) for old, now in names.items()}
_FIRST_VALUES = {name: {now: old for old, now in values.items()} for name, values in VALUES.items()}


class EarlierName(FutureWarning):
    """A setting, an option or a key is written by an earlier name."""


def warn_of_earlier_name(old: str, now: str) -> None:
    """Warn of an earlier name, which still counts."""
    warnings.warn(f"{old} is an earlier name: write {now}", EarlierName, stacklevel=3)


def options_of_today(options: Mapping[str, str], connector: str) -> dict[str, str]:
    """Return a connector's options by their names and values of today; warn of earlier ones.

    An earlier name beside that of today is left as it is: the connector has no such option.
    """
    names, written = OPTIONS.get(connector, {}), {name.lower() for name in options}
    today: dict[str, str] = {}
    for name, value in options.items():
        now = names.get(name.lower())
        if now is None or now in written:
            now = name
        else:
            warn_of_earlier_name(f"option '{name}'", f"'{now}'")
        new = VALUES.get(now.lower(), {}).get(value.strip().lower()) if names else None
        if new is not None:
            warn_of_earlier_name(f"'{now}' = '{value}'", f"'{now}' = '{new}'")
        today[now] = value if new is None else new
    return today


def flags_of_today(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the flags of today; warn of earlier ones.

    >>> flags_of_today(["run", "job.sql", "--max-rows=5"])
    ['run', 'job.sql', '--max-rows=5']
    """
    flags = {_flag_of(old): _flag_of(now) for old, now in SETTINGS.items()}
    today = []
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in flags:
            warn_of_earlier_name(flag, flags[flag])
        today.append(f"{flags.get(flag, flag)}{equals}{value}")
    return today


def _flag_of(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def first_name(name: str) -> str:
    """Return the name that a setting or an option had when digests of stored jobs were made."""
    return _FIRST_NAMES.get(name, name)


def first_value(name: str, value: str) -> str:
    """Return the value that an option had then; ``name``: that of today."""
    return _FIRST_VALUES.get(name, {}).get(value, value)


@contextmanager
def notices_to(say: Callable[[str], None]) -> Iterator[None]:
    """Pass each notice about a deprecated name to ``say``, once, within the context."""
    given: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, EarlierName):
            others(message, category, *place, **more)
        elif str(message) not in given:
            given.add(str(message))
            say(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", EarlierName)
        others, warnings.showwarning = warnings.showwarning, show
        yield


@contextmanager
def without_notices() -> Iterator[None]:
    """Ignore deprecated names within the context, without notices.

    The job is read once more later, and that reading reports them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EarlierName)
        yield
