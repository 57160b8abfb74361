"""Arrays as functions take them apart and put them together: values, NULLs, rows that fail, wider types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.expressions.physical_types import (
    elements,
    fields,
    is_list,
    list_array,
    struct_array,
    validity,
)


class Fails(Exception):
    """Error of a function for one row.

    Args:
        row: position of the row.
        condition: Spark's name of the error condition.
    """

    def __init__(self, row: int, condition: str, what: str) -> None:
        super().__init__(row, condition, what)
        self.row, self.condition, self.what = row, condition, what


Raw = npt.NDArray[Any]
ArrowFunction = Callable[..., pa.Array]

IMPLEMENTATIONS: dict[str, ArrowFunction] = {}
"""By the name that trees call them by; stored digests contain these names."""
NAMES: dict[ArrowFunction, str] = {}


def arrow(name: str) -> Callable[[ArrowFunction], ArrowFunction]:
    """Register what a node ``("call", name, …)`` of a tree computes: arrays in, an array out.

    NULL in any argument gives NULL unless a function says otherwise. Where Spark raises, `Fails` names the
    first row.

    Args:
        name: stored plans and their digests contain it. It stays when the function is renamed.
    """

    def register(function: ArrowFunction) -> ArrowFunction:
        assert name not in IMPLEMENTATIONS, f"two functions are named {name}"
        IMPLEMENTATIONS[name], NAMES[function] = function, name
        return function

    return register


INT64 = pa.int64()


OVERFLOW = "ARITHMETIC_OVERFLOW"


def raw(array: pa.Array) -> Raw:
    """Return the values as NumPy, with False or 0 in place of NULL."""
    if array.null_count:
        array = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0)
    values: Raw = array.to_numpy(zero_copy_only=False)
    return values


def where_known(*arrays: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Return the mask of rows where no array is NULL; None means all rows."""
    not_null: npt.NDArray[np.bool_] | None = None
    for array in arrays:
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            not_null = valid if not_null is None else not_null & valid
    return not_null


def build_array(values: Raw, kind: pa.DataType, *arguments: pa.Array) -> pa.Array:
    not_null = where_known(*arguments)
    return pa.array(values, kind, mask=None if not_null is None else ~not_null)


def decimals(unscaled: Raw, kind: pa.DataType, *arguments: pa.Array) -> pa.Array:
    """Build DECIMALs from their unscaled digits, int64."""
    wide = np.empty((len(unscaled), 2), dtype=np.int64)
    wide[:, 0] = unscaled
    wide[:, 1] = unscaled >> 63
    validity = build_array(unscaled, INT64, *arguments).buffers()[0]
    return pa.Array.from_buffers(kind, len(unscaled), [validity, pa.py_buffer(wide)])


def extract_unscaled_digits(array: pa.Array) -> Raw:
    """Return the unscaled digits of DECIMALs of at most 18 digits: int64."""
    digits: Raw = np.frombuffer(array.buffers()[1], dtype=np.int64)[::2]
    digits = digits[array.offset : array.offset + len(array)]
    not_null = where_known(array)
    return digits if not_null is None else np.where(not_null, digits, 0)


def check(bad: npt.NDArray[np.bool_], condition: str, what: str, *arguments: pa.Array) -> None:
    not_null = where_known(*arguments)
    if not_null is not None:
        bad = bad & not_null
    if bad.any() and not forgiven(bad, condition):
        raise Fails(int(np.argmax(bad)), condition, what)


class _Forgiven:
    """Error conditions that give NULL, and the rows that met one of them.

    Attributes:
        conditions: names of the conditions; empty: all.
        bad: mask of the rows that would have failed.
    """

    def __init__(self, conditions: Sequence[str]) -> None:
        self.conditions = conditions
        self.bad: npt.NDArray[np.bool_] | None = None


_forgiving: ContextVar[_Forgiven | None] = ContextVar("_forgiving", default=None)


def forgiven(bad: npt.NDArray[np.bool_], condition: str) -> bool:
    """Return True if these rows become NULL for `or_null` instead of failing."""
    own = _forgiving.get()
    if own is None or (own.conditions and condition not in own.conditions):
        return False
    own.bad = bad if own.bad is None else own.bad | bad
    return True


def or_null(conditions: Sequence[str], function: Callable[..., pa.Array], *arguments: Any) -> pa.Array:
    """Call a function, with NULL for rows that fail with one of ``conditions``.

    An empty sequence of conditions means any condition.
    """
    own = _Forgiven(conditions)
    token = _forgiving.set(own)
    try:
        values = function(*arguments)
    finally:
        _forgiving.reset(token)
    return values if own.bad is None else pc.if_else(pa.array(own.bad), pa.scalar(None, values.type), values)


def bounds(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def narrow(wide: Raw, kind: pa.DataType, what: str, *arguments: pa.Array) -> pa.Array:
    least, greatest = bounds(kind)
    condition = OVERFLOW if kind.bit_width >= 32 else f"BINARY_{OVERFLOW}"
    check((wide < least) | (wide > greatest), condition, what, *arguments)
    return build_array(wide.astype(kind.to_pandas_dtype()), kind, *arguments)


@dataclass(frozen=True)
class Wrong:
    """Result of a function of `of_distinct` where Spark raises.

    Attributes:
        always: True if Spark raises in TRY_CAST, too.
    """

    condition: str
    what: str
    always: bool = False


MOST_TEXT = (1 << 31) - 2
"""Bytes in one array of texts: Arrow's limit."""


def fits_in_texts(total: int) -> None:
    """Check that a result fits in one array of texts.

    Args:
        total: size of the result in bytes.

    Raises:
        EngineError: the result has more bytes than one array of texts can have.
    """
    if total > MOST_TEXT:
        raise too_long(f"{total:,} bytes, more")


def too_long(what: str = "more bytes") -> EngineError:
    """Build the error for a result with more bytes than one array of texts can have."""
    return EngineError(
        f"the results of a function for one batch have {what} than 2 GiB",
        code="texts-too-long",
        hint="repeat, pad or concatenate shorter texts",
    )


def of_distinct(function: Callable[..., Any], kind: pa.DataType, *arrays: pa.Array) -> pa.Array:
    """Apply ``function`` to the values of ``arrays``, once for each distinct combination.

    NULL in any argument gives NULL. ``function`` gets Python values; a result of None is NULL, and a
    result of `Wrong` fails.
    """
    not_null = where_known(*arrays)
    count = len(arrays[0])
    codes = np.zeros(count, dtype=np.int64)
    columns: list[tuple[pa.Array, Raw]] = []
    size = 1
    for array in arrays:
        encoded = array.dictionary_encode()
        own = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        columns.append((encoded.dictionary, own))
        if size * max(len(encoded.dictionary), 1) >= 1 << 62:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            size = count
        codes = codes * len(encoded.dictionary) + own
        size *= max(len(encoded.dictionary), 1)
    chosen = codes if not_null is None else codes[not_null]
    _, first, place = np.unique(chosen, return_index=True, return_inverse=True)
    rows = first if not_null is None else np.flatnonzero(not_null)[first]
    given = [dictionary.take(pa.array(own[rows])).to_pylist() for dictionary, own in columns]
    outcomes = [function(*values) for values in zip(*given, strict=True)]
    index = np.full(count, -1, dtype=np.int64)
    index[slice(None) if not_null is None else not_null] = place
    wrong = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Wrong)]
    for problem in dict.fromkeys(outcomes[n] for n in wrong):
        rows_ = np.isin(index, [n for n in wrong if outcomes[n] == problem])
        if problem.always:
            raise Fails(int(np.argmax(rows_)), problem.condition, problem.what)
        check(rows_, problem.condition, problem.what, *arrays)
    made_of = pa.array([None if isinstance(outcome, Wrong) else outcome for outcome in outcomes], kind)
    if isinstance(made_of, pa.ChunkedArray):  # Arrow cuts what one array does not hold
        raise too_long()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        sizes = np.diff(np.frombuffer(made_of.buffers()[1], np.int32)[: len(outcomes) + 1]).astype(np.int64)
        fits_in_texts(int(sizes[place].sum()) if len(outcomes) else 0)
    return made_of.take(pa.array(index, mask=index < 0))


def by_value(name: str, kind: pa.DataType | None = None) -> Callable[[Callable[..., Any]], ArrowFunction]:
    """Register a function of Python values as `arrow` does; `of_distinct` applies it.

    Args:
        name: as in `arrow`.
        kind: the type of the result; None: that of the first argument.
    """

    def register(function: Callable[..., Any]) -> ArrowFunction:
        @arrow(name)
        @wraps(function)
        def apply(*arrays: pa.Array) -> pa.Array:
            return of_distinct(function, kind or arrays[0].type, *arrays)

        return apply

    return register


@arrow("widen")
def widen(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert an array to a type that has every value, or to the nearest DOUBLE."""
    if pa.types.is_integer(array.type) and pa.types.is_floating(kind):
        return build_array(raw(array).astype(kind.to_pandas_dtype()), kind, array)
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        # At most 15 digits: both are whole DOUBLEs, so that one division rounds as Java does.
        whole = np.frombuffer(array.buffers()[1], dtype=np.int64)[::2][
            array.offset : array.offset + len(array)
        ]
        not_null = where_known(array)
        whole = whole if not_null is None else np.where(not_null, whole, 0)
        return build_array(whole / 10.0**array.type.scale, kind, array)
    return array.cast(kind)


@arrow("widen_nested")
def widen_nested(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert all parts of nested values to wider types."""
    if array.type == kind:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if is_list(kind):
        offsets, values = elements(array)
        return list_array(offsets, widen_nested(values, kind.value_type), validity(array))
    if pa.types.is_struct(kind):
        parts: Sequence[pa.Array] = fields(array)
        own = [widen_nested(part, kind.field(n).type) for n, part in enumerate(parts)]
        return struct_array(own, validity(array), len(array))
    return widen(array, kind)
