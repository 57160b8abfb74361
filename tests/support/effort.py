"""How much a run of the tests does: the environment variable ``WATERSMEET_EFFORT``, and ``--slice``.

``quick`` (the default) proves each rule, connector and promise once, with some hundred random cases per
generator. ``full`` runs every test, with all random cases; tests that run at full effort only have the
marker ``full``. ``--slice K/N`` runs part K (from 0) of N of what ``full`` adds to ``quick``: the tests with
that marker, random tests, and all tests of a module that asks for the effort, or takes something from one of
the tests' modules that does.
"""

from __future__ import annotations

import os
import sys
from typing import TypeVar
from zlib import crc32

import pytest

T = TypeVar("T")

VARIABLE = "WATERSMEET_EFFORT"
EFFORT = os.environ.get(VARIABLE, "quick")


def at_effort(*, quick: T, full: T) -> T:
    """Return the one that is for this run's effort, such as a number of random cases."""
    return full if EFFORT == "full" else quick


def check_options(config: pytest.Config) -> None:
    """Raise `pytest.UsageError` if the effort or the slice is none."""
    if EFFORT not in ("quick", "full"):
        raise pytest.UsageError(f"{VARIABLE} is quick or full, not {EFFORT!r}")
    text = config.getoption("--slice")
    if text is None:
        return
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and int(number) < int(parts)):
        raise pytest.UsageError(f"--slice takes K/N, with K from 0 to N - 1, not {text!r}")
    if EFFORT != "full":
        raise pytest.UsageError(f"--slice needs {VARIABLE}=full")


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that this effort, or this slice, leaves out."""
    if EFFORT == "quick":
        chosen = [item for item in items if not item.get_closest_marker("full")]
    elif (text := config.getoption("--slice")) is not None:
        number, parts = map(int, text.split("/"))
        chosen = [item for item in items if _grows(item) and crc32(item.nodeid.encode()) % parts == number]
    else:
        return
    left_out = set(map(id, items)) - set(map(id, chosen))
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = chosen


def _grows(item: pytest.Item) -> bool:
    """Return True if full effort adds the test, or may let it do more. Random tests take the seed."""
    return (
        item.get_closest_marker("full") is not None
        or "seed" in getattr(item, "fixturenames", ())
        or _asks(getattr(item, "module", None))
    )


def _asks(module: object) -> bool:
    """Whether a module asks for the effort, or takes something from a module of the tests that does."""
    taken = {str(getattr(value, "__module__", "")) for value in vars(module).values()} if module else set()
    modules = [module, *(sys.modules.get(name) for name in taken if name.startswith("tests."))]
    return any(hasattr(one, name) for one in modules if one for name in ("at_effort", "EFFORT"))
