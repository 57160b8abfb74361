"""What a sink that is a user's function may be told: which one. And what such a function has to be."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from watersmeet.errors import SpecError
from watersmeet.spec.model import Sink
from watersmeet.spec.options.model import STATED, SystemOptions

OfBatches = Callable[..., object]
"""A function of a tick's rows, and of its number; and of what is in `NAMED`, if it has such
parameters."""

NAMED = ("job", "insert")
"""What a function of batches may ask for by name: what identifies the job's state, of which it has the tick,
and the name of the INSERT."""

_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_WRITTEN = re.compile(f"{_NAME}:{_NAME}")


def _read_function(written: str) -> str:
    if not _WRITTEN.fullmatch(written.strip()):
        example = "'function' = 'package.module:name'"
        raise ValueError(f"write the module, a colon and the function's name: {example}")
    return written.strip()


class FunctionOptions(SystemOptions):
    """The options of a sink; whether there is such a function is not looked at."""

    function: Annotated[str, BeforeValidator(_read_function), STATED] = Field(
        examples=["package.module:name"]
    )


def sink_problems(sink: Sink) -> Iterator[SpecError]:
    """Yield what is wrong with the options of a function sink."""
    return FunctionOptions.problems(f'function sink "{sink.name}"', sink.options)


_IDLE = {
    "an async function": inspect.iscoroutinefunction,
    "a generator": inspect.isgeneratorfunction,
    "an async generator": inspect.isasyncgenfunction,
}
"""Kinds of functions that have done nothing when they return."""


def left_undone(given: Any) -> str | None:
    """Return the reason why a function's result shows that it did nothing; None: it does not."""
    if inspect.isawaitable(given) or inspect.isgenerator(given) or inspect.isasyncgen(given):
        if inspect.iscoroutine(given):
            given.close()  # or Python tells on standard error that nobody waited for it
        return f"it returned a {type(given).__name__}, which watersmeet does not await or read"
    kind = type(given)
    if kind.__module__.startswith("pyspark.") and kind.__name__.startswith(_WRITERS):
        return f"it returned a {kind.__name__}; call its .save(…) or another method that writes"
    return None


_WRITERS = ("DataFrameWriter", "MergeIntoWriter")
"""Spark's classes, of which one that was told to write has nothing more to give."""


def named_among(function: Any, names: Collection[str]) -> tuple[str, ...]:
    """Return the names that the function accepts as keyword arguments.

    The first two positional parameters do not count, because the engine passes them by position.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # nobody knows what it takes: of some that are not written in Python
        return ()
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    by_place = [
        name for name, p in parameters.items() if p.kind in (inspect.Parameter.POSITIONAL_ONLY, either)
    ]
    by_name = {name for name, p in parameters.items() if p.kind in (inspect.Parameter.KEYWORD_ONLY, either)}
    return tuple(name for name in names if name in by_name - {*by_place[:2]})


def call_problem(function: Any, given: str, named: Collection[str] = ()) -> str | None:
    """Return the reason why the engine cannot call a function; None if it finds none.

    The engine calls it with two arguments and those of ``named`` that it accepts, and its work must
    be finished when it returns.

    Args:
        given: The two arguments, as messages name them.
    """
    if not callable(function):
        return f"it is a {type(function).__name__}, not a function"
    called = (function, type(function).__call__)  # an object may be one by its class
    for kind, is_kind in _IDLE.items():
        if any(map(is_kind, called)):
            return f"it is {kind}, which does nothing when it is only called"
    try:
        inspect.signature(function).bind(None, None, **dict.fromkeys(named_among(function, named)))
    except TypeError as error:
        return f"it cannot be called with {given}: {error}"
    except ValueError:  # nobody knows what it takes: of some that are not written in Python
        return None
    return None
