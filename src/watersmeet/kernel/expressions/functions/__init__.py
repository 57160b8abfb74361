"""What tasks compute of Spark's functions: arrays in, an array out, each proven against Spark by a test.

NULL in any argument gives NULL unless a function says otherwise. Where Spark raises, `Fails` names the first
row. Division by zero, overflow, dates that there are none of: by Spark's conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction

import pyarrow as pa

from watersmeet.kernel.expressions.functions import (
    arrays,
    codes,
    from_texts,
    letters,
    logic,
    nested,
    patterns,
    texts,
)
from watersmeet.kernel.expressions.functions.numeric import decimals, numbers, reals, whole
from watersmeet.kernel.expressions.functions.temporal import dates, formats, intervals, times

_FAMILIES = (
    arrays,
    codes,
    dates,
    decimals,
    formats,
    from_texts,
    intervals,
    letters,
    logic,
    nested,
    numbers,
    patterns,
    reals,
    texts,
    times,
    whole,
)


def _of_all() -> dict[str, Callable[..., pa.Array]]:
    functions: dict[str, Callable[..., pa.Array]] = {}
    for family in _FAMILIES:
        for name, function in vars(family).items():
            if isfunction(function) and function.__module__ == family.__name__ and not name.startswith("_"):
                assert name not in functions, f"two functions are named {name}"
                functions[name] = function
    return functions


BY_NAME = _of_all()
"""By the name that a tree calls them by, see `kernel.expressions.evaluate.tree_of`."""
