"""Arrays as functions take them apart and put them together: values, NULLs, what fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.fails import Fails

Raw = npt.NDArray[Any]


DAY_US = 86_400_000_000


INT64 = pa.int64()


OVERFLOW = "ARITHMETIC_OVERFLOW"


def raw(array: pa.Array) -> Raw:
    """Values, with something harmless where there is none."""
    if array.null_count:
        array = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0)
    found: Raw = array.to_numpy(zero_copy_only=False)
    return found


def where_known(*arrays: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Where none is NULL; None: everywhere."""
    found: npt.NDArray[np.bool_] | None = None
    for array in arrays:
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            found = valid if found is None else found & valid
    return found


def made(values: Raw, kind: pa.DataType, *arguments: pa.Array) -> pa.Array:
    known = where_known(*arguments)
    return pa.array(values, kind, mask=None if known is None else ~known)


def check(bad: npt.NDArray[np.bool_], condition: str, what: str, *arguments: pa.Array) -> None:
    known = where_known(*arguments)
    if known is not None:
        bad = bad & known
    if bad.any():
        raise Fails(int(np.argmax(bad)), condition, what)


def bounds(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def narrow(wide: Raw, kind: pa.DataType, what: str, *arguments: pa.Array) -> pa.Array:
    least, greatest = bounds(kind)
    condition = OVERFLOW if kind.bit_width >= 32 else f"BINARY_{OVERFLOW}"
    check((wide < least) | (wide > greatest), condition, what, *arguments)
    return made(wide.astype(kind.to_pandas_dtype()), kind, *arguments)
