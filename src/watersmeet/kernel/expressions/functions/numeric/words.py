"""DOUBLEs as fdlibm takes them apart: their upper words, their exponents, and polynomials in them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

_LOW = np.int64(0xFFFFFFFF)


def quiet(function: Callable[..., Doubles]) -> Callable[..., Doubles]:
    """Without numpy's warnings: results that are NaN or infinite are meant."""

    @wraps(function)
    def called(*arrays: Doubles) -> Doubles:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return called


def high(x: Doubles) -> Whole:
    """The upper word, with its sign."""
    return x.view(np.int64) >> 32


def cut(x: Doubles) -> Doubles:
    """Without the lower word."""
    return (x.view(np.int64) & ~_LOW).view(np.float64)


def of_high(high: Whole) -> Doubles:
    return (high << 32).view(np.float64)


def with_high(x: Doubles, high: Whole) -> Doubles:
    return ((x.view(np.int64) & _LOW) | (high << 32)).view(np.float64)


def scaled(x: Doubles, k: Whole) -> Doubles:
    """``k`` added to the exponent's bits."""
    return (x.view(np.int64) + (k << 52)).view(np.float64)


def polynomial(x: Doubles, of: tuple[float, ...]) -> Doubles:
    """The polynomial, by Horner's rule."""
    total: Doubles = np.full_like(x, of[-1])
    for coefficient in of[-2::-1]:
        total = coefficient + x * total
    return total
