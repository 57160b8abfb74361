"""The order of values of any type, nested ones too; constructors and parts of ARRAYs and STRUCTs.

Within an ARRAY or STRUCT NULL is equal to NULL and less than all else, NaN is equal to itself and greater
than all other numbers, -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.batches import joined
from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.base import Raw, raw, where_known
from watersmeet.kernel.expressions.functions.numeric import numbers
from watersmeet.kernel.expressions.held import (
    Offsets,
    elements,
    fields,
    is_list,
    list_array,
    struct_array,
    validity,
)

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]

_LEAST = np.iinfo(np.int64).min


def truth(array: pa.Array) -> Mask:
    """Where it is TRUE."""
    return raw(array).astype(np.bool_)


def present(array: pa.Array) -> Mask:
    """Where it is not NULL."""
    mask: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def parents(offsets: Offsets) -> Codes:
    """Per element the place of its list."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def offsets_of(lengths: Raw) -> Offsets:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def ranges(starts: Raw, lengths: Raw) -> Codes:
    """start, start + 1, … for each, so many; one after the other."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


def both_known(*arrays: pa.Array) -> pa.Array | None:
    """Validity of what is NULL where one of them is."""
    not_null = where_known(*arrays)
    return None if not_null is None else pa.array(not_null)


# order


def order(left: pa.Array, right: pa.Array) -> npt.NDArray[np.int8]:
    """Per row -1, 0 or 1: less, equal, greater."""
    signs = _order_of_known(left, right)
    if left.null_count or right.null_count:
        a, b = present(left), present(right)
        signs = np.where(a & b, signs, _sign(a & ~b, b & ~a))
    return signs


def _order_of_known(left: pa.Array, right: pa.Array) -> npt.NDArray[np.int8]:
    if is_list(left.type):
        return _order_of_lists(left, right)
    if pa.types.is_struct(left.type):
        signs: npt.NDArray[np.int8] = np.zeros(len(left), dtype=np.int8)
        for a, b in zip(fields(left), fields(right), strict=True):
            signs = np.where(signs == 0, order(a, b), signs)
        return signs
    if pa.types.is_null(left.type):
        return np.zeros(len(left), dtype=np.int8)
    if pa.types.is_floating(left.type):
        x, y = _bits(raw(left)), _bits(raw(right))
        return _sign(x > y, x < y)
    if pa.types.is_string(left.type):
        left, right = left.view(pa.binary()), right.view(pa.binary())
    greater, less = (truth(pc.fill_null(op(left, right), False)) for op in (pc.greater, pc.less))
    return _sign(greater, less)


def _sign(greater: Mask, less: Mask) -> npt.NDArray[np.int8]:
    signs: npt.NDArray[np.int8] = greater.astype(np.int8) - less.astype(np.int8)
    return signs


def _order_of_lists(left: pa.Array, right: pa.Array) -> npt.NDArray[np.int8]:
    (offsets_a, a), (offsets_b, b) = elements(left), elements(right)
    lengths_a, lengths_b = np.diff(offsets_a), np.diff(offsets_b)
    shared = np.minimum(lengths_a, lengths_b)
    signs = _sign(lengths_a > lengths_b, lengths_a < lengths_b)
    if not shared.any():
        return signs
    places_a, places_b = ranges(offsets_a[:-1], shared), ranges(offsets_b[:-1], shared)
    inner = order(a.take(pa.array(places_a)), b.take(pa.array(places_b)))
    different = np.flatnonzero(inner)
    rows, first = np.unique(np.repeat(np.arange(len(left)), shared)[different], return_index=True)
    signs[rows] = inner[different[first]]
    return signs


def _bits(values: Raw) -> Codes:
    """Reals as integers in their order."""
    wide = values.astype(np.float64)
    wide = np.where(np.isnan(wide), np.nan, np.where(wide == 0, 0.0, wide))
    bits = wide.view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)


def codes(array: pa.Array) -> Codes:
    """Numbers in the order of the values: equal ones have equal numbers, NULL the least."""
    kind = array.type
    if is_list(kind):
        return _codes_of_lists(array)
    if pa.types.is_struct(kind):
        own_codes = present(array).astype(np.int64)
        for own_field in fields(array):
            own_codes = _ranked(own_codes, codes(own_field))
        return own_codes
    if pa.types.is_null(kind):
        return np.zeros(len(array), dtype=np.int64)
    if pa.types.is_floating(kind):
        own_codes = _bits(raw(array))
    elif pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind.bit_width < 64):
        own_codes = raw(array).astype(np.int64)
    elif pa.types.is_integer(kind) and not array.null_count:
        return raw(array)
    else:
        own = array.view(pa.binary()) if pa.types.is_string(kind) else array
        coded = own.dictionary_encode()
        ranks = pc.rank(coded.dictionary, tiebreaker="dense").to_numpy().astype(np.int64)
        if not len(ranks):
            return np.full(len(array), _LEAST)
        own_codes = ranks[raw(coded.indices)]
    return np.where(present(array), own_codes, _LEAST) if array.null_count else own_codes


def _codes_of_lists(array: pa.Array) -> Codes:
    offsets, values = elements(array)
    inner = _ranked(np.zeros(len(values), dtype=np.int64), codes(values)) + 1
    lengths = np.diff(offsets)
    list_codes = present(array).astype(np.int64)
    for place in range(int(lengths.max(initial=0))):
        _, back, counts = np.unique(list_codes, return_inverse=True, return_counts=True)
        if not ((counts[back] > 1) & (lengths > place)).any():
            break
        further = np.zeros(len(array), dtype=np.int64)
        longer = lengths > place
        further[longer] = inner[offsets[:-1][longer] + place]
        list_codes = _ranked(list_codes, further)
    return list_codes


def _ranked(first: Codes, then: Codes) -> Codes:
    """Dense numbers from 0 in the order of the pairs."""
    if not len(first):
        return first
    places = np.lexsort((then, first))
    a, b = first[places], then[places]
    new = np.concatenate([[False], (a[1:] != a[:-1]) | (b[1:] != b[:-1])])
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[places] = np.cumsum(new)
    return ranks


def codes_together(*arrays: pa.Array) -> list[Codes]:
    """`codes` that mean the same in all of them."""
    all_codes = codes(joined(arrays))
    ends = np.cumsum([len(array) for array in arrays])
    return [all_codes[end - len(array) : end] for array, end in zip(arrays, ends, strict=True)]


def compare_nested(left: pa.Array, right: pa.Array, op: str) -> pa.Array:
    """``=``, ``<``, … of ARRAYs or STRUCTs."""
    signs = order(left, right)
    truths = {
        "=": signs == 0,
        "<>": signs != 0,
        "<": signs < 0,
        "<=": signs <= 0,
        ">": signs > 0,
        ">=": signs >= 0,
    }
    return base.made(truths[op], pa.bool_(), left, right)


# constructors, parts, other types


def make_array(*values: pa.Array) -> pa.Array:
    """`array`."""
    count = len(values[0])
    index = (np.arange(count)[:, None] + count * np.arange(len(values))).reshape(-1)
    return list_array(np.arange(count + 1) * len(values), joined(values).take(pa.array(index)))


def make_struct(*values: pa.Array) -> pa.Array:
    """`struct`."""
    return struct_array(list(values), None, len(values[0]))


def field(struct: pa.Array, place: int) -> pa.Array:
    return fields(struct)[place]


def field_of_elements(lists: pa.Array, place: int) -> pa.Array:
    """The field of all structs in ARRAYs."""
    offsets, values = elements(lists)
    return list_array(offsets, fields(values)[place], validity(lists))


def widen_nested(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """All that is in it in wider types."""
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
    return numbers.widen(array, kind)


def normal_zeros(array: pa.Array) -> pa.Array:
    """-0.0 as 0.0, in nested values, too."""
    kind = array.type
    if pa.types.is_floating(kind):
        return base.made(raw(array) + kind.to_pandas_dtype()(0), kind, array)
    if is_list(kind):
        offsets, values = elements(array)
        return list_array(offsets, normal_zeros(values), validity(array))
    if pa.types.is_struct(kind):
        return struct_array(
            [normal_zeros(own_field) for own_field in fields(array)], validity(array), len(array)
        )
    return array
