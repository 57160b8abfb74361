"""What a sink that is a user's function may be told: which one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.model import Sink
from watersmeet.spec.options.lowered import lowered

FUNCTION = "function"
OPTIONS = (FUNCTION,)

_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_WRITTEN = re.compile(f"{_NAME}:{_NAME}")
_EXAMPLE = f"'{FUNCTION}' = 'package.module:name'"


def sink_problems(sink: Sink) -> Iterator[SpecError]:
    """What is wrong with the options; whether there is such a function is not looked at."""
    what = f'function sink "{sink.name}"'
    for name in sink.options:
        if name.lower() not in OPTIONS:
            hint = near_names(name, OPTIONS)
            yield SpecError(f'{what} has no option "{name}"', code="unknown-option", hint=hint)
    written = function_of(sink.options)
    if not written:
        yield SpecError(f'{what} needs the option "{FUNCTION}"', code="missing-option", hint=_EXAMPLE)
    elif not _WRITTEN.fullmatch(written):
        yield SpecError(
            f"{what}: option '{FUNCTION}' is '{written}'",
            code="wrong-option",
            hint=f"a module, a colon, and the function's name: {_EXAMPLE}",
        )


def function_of(options: Mapping[str, str]) -> str:
    """``module:name``; empty where it is not said."""
    return lowered(options).get(FUNCTION, "").strip()
