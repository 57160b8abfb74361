"""A user's function, found by its name: ``package.module:name``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from watersmeet.errors import SpecError, failure_text, near_names
from watersmeet.spec.options.function import call_problem

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
        what = f"its module cannot be imported: {failure_text(error)}"
        raise _problem(written, sink, what, _PLACES) from None
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
