"""A user's function, found by its name: ``package.module:name``."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Callable
from typing import Any

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.options.function import call_problem

_IMPORTING = os.path.dirname(importlib.__file__)
_LONGEST = 1_000
"""Characters of what an exception says."""

_PLACES = (
    "install its package where the job runs, on all machines; or name its folder in PYTHONPATH, or, on a"
    " cluster, the file with --conf spark.submit.pyFiles=…"
)


def load(written: str, sink: str) -> Callable[..., Any]:
    """The function; its module is imported.

    Args:
        written: as the option has it.
        sink: its name, for messages.

    Raises:
        SpecError: there is none, or it cannot be called with a part and its rows.
    """
    module_name, _, name = written.partition(":")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:  # whatever the module does when it is imported
        raise _problem(written, sink, f"its module cannot be imported: {in_words(error)}", _PLACES) from None
    function: Any = module
    for own in name.split("."):
        if not hasattr(function, own):
            there = [one for one in getattr(function, "__dict__", {}) if not one.startswith("_")]
            message = f'"{module_name}" ({getattr(module, "__file__", "built in")}) has no "{name}"'
            raise _problem(written, sink, message, near_names(own, there))
        function = getattr(function, own)
    _check(function, written, sink)
    return function  # type: ignore[no-any-return]


def _check(function: Any, written: str, sink: str) -> None:
    problem = call_problem(function, "a part and its rows")
    if problem is not None:
        raise _problem(written, sink, problem, "write it as def put(part, rows): …")


def _problem(written: str, sink: str, what: str, hint: str | None) -> SpecError:
    return SpecError(f'function sink "{sink}", {written}: {what}', code="no-function", hint=hint)


def in_words(error: BaseException) -> str:
    """An exception in one line, with the last frame of its traceback."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # its class is the user's, too
        said = "(it does not say what)"
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "…"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", _IMPORTING)) and frame.filename != __file__
    ]
    if not frames:
        return text
    last = frames[-1]
    return f"{text} ({last.filename}, line {last.lineno}, in {last.name})"
