"""ARRAYs, MAPs and STRUCTs: their order, parts, elements, sets and sequences."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from watersmeet.errors import EngineError
from watersmeet.expressions import base
from watersmeet.expressions.base import ArrowFunction, Raw, arrow, build_array, raw, where_known
from watersmeet.expressions.physical_types import (
    Offsets,
    elements,
    fields,
    is_list,
    list_array,
    struct_array,
    validity,
)
from watersmeet.expressions.rules import Compiler, Restricted, Rule, arguments, computed, only, optional
from watersmeet.expressions.typed_tree import (
    TypedTree,
    UnsupportedExpression,
    call,
    compared_type,
    constant,
    constant_value,
    is_ordered,
    is_value,
    one_type,
    require,
    widen_value,
)
from watersmeet.kernel.batches import concat_arrays
from watersmeet.spec.model import Expr
from watersmeet.types.coercion import loses_digits
from watersmeet.types.sql_type import (
    BIGINT,
    BOOLEAN,
    DATE,
    INT,
    INTEGERS,
    STRING,
    VOID,
    Field,
    SqlType,
    array,
)
from watersmeet.types.sql_type import struct as struct_type

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]

_LEAST = np.iinfo(np.int64).min


def truth(array: pa.Array) -> Mask:
    """Return the mask of values that are TRUE."""
    return raw(array).astype(np.bool_)


def present(array: pa.Array) -> Mask:
    """Return the mask of values that are not NULL."""
    mask: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def parents(offsets: Offsets) -> Codes:
    """Return the index of the list of each element."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def offsets_of(lengths: Raw) -> Offsets:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def ranges(starts: Raw, lengths: Raw) -> Codes:
    """Concatenate the ranges start, start + 1, … of the given lengths."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


def both_known(*arrays: pa.Array) -> pa.Array | None:
    """Return the validity of a result that is NULL where any argument is NULL.

    None means that all rows are valid.
    """
    not_null = where_known(*arrays)
    return None if not_null is None else pa.array(not_null)


# order


def order(left: pa.Array, right: pa.Array) -> npt.NDArray[np.int8]:
    """Compare rows: -1 for less, 0 for equal, 1 for greater."""
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
    """Convert floating-point numbers to integers with the same order."""
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
            own_codes = _rank_pairs(own_codes, codes(own_field))
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
    inner = _rank_pairs(np.zeros(len(values), dtype=np.int64), codes(values)) + 1
    lengths = np.diff(offsets)
    list_codes = present(array).astype(np.int64)
    for place in range(int(lengths.max(initial=0))):
        _, back, counts = np.unique(list_codes, return_inverse=True, return_counts=True)
        if not ((counts[back] > 1) & (lengths > place)).any():
            break
        further = np.zeros(len(array), dtype=np.int64)
        longer = lengths > place
        further[longer] = inner[offsets[:-1][longer] + place]
        list_codes = _rank_pairs(list_codes, further)
    return list_codes


def _rank_pairs(first: Codes, then: Codes) -> Codes:
    """Rank the pairs from 0 without gaps."""
    if not len(first):
        return first
    places = np.lexsort((then, first))
    a, b = first[places], then[places]
    new = np.concatenate([[False], (a[1:] != a[:-1]) | (b[1:] != b[:-1])])
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[places] = np.cumsum(new)
    return ranks


def codes_together(*arrays: pa.Array) -> list[Codes]:
    """Compute `codes` that are comparable across all arrays."""
    all_codes = codes(concat_arrays(arrays))
    ends = np.cumsum([len(array) for array in arrays])
    return [all_codes[end - len(array) : end] for array, end in zip(arrays, ends, strict=True)]


def compare_nested(left: pa.Array, right: pa.Array, op: str) -> pa.Array:
    """Compare ARRAYs or STRUCTs with ``=``, ``<``, …."""
    signs = order(left, right)
    truths = {
        "=": signs == 0,
        "<>": signs != 0,
        "<": signs < 0,
        "<=": signs <= 0,
        ">": signs > 0,
        ">=": signs >= 0,
    }
    return base.build_array(truths[op], pa.bool_(), left, right)


# constructors, parts, other types


@arrow("make_array")
def make_array(*values: pa.Array) -> pa.Array:
    """Compute `array`."""
    count = len(values[0])
    index = (np.arange(count)[:, None] + count * np.arange(len(values))).reshape(-1)
    return list_array(np.arange(count + 1) * len(values), concat_arrays(values).take(pa.array(index)))


@arrow("make_struct")
def make_struct(*values: pa.Array) -> pa.Array:
    """Compute `struct`."""
    return struct_array(list(values), None, len(values[0]))


@arrow("field")
def field(struct: pa.Array, place: int) -> pa.Array:
    return fields(struct)[place]


@arrow("field_of_elements")
def field_of_elements(lists: pa.Array, place: int) -> pa.Array:
    """Return an ARRAY of one field of the STRUCTs in each ARRAY."""
    offsets, values = elements(lists)
    return list_array(offsets, fields(values)[place], validity(lists))


def normal_zeros(array: pa.Array) -> pa.Array:
    """Replace -0.0 by 0.0, also within nested values."""
    kind = array.type
    if pa.types.is_floating(kind):
        return base.build_array(raw(array) + kind.to_pandas_dtype()(0), kind, array)
    if is_list(kind):
        offsets, values = elements(array)
        return list_array(offsets, normal_zeros(values), validity(array))
    if pa.types.is_struct(kind):
        return struct_array(
            [normal_zeros(own_field) for own_field in fields(array)], validity(array), len(array)
        )
    return array


@arrow("list_size")
def list_size(lists: pa.Array) -> pa.Array:
    """Compute `size`; the size of NULL is NULL."""
    offsets, _ = elements(lists)
    return build_array(np.diff(offsets).astype(np.int32), pa.int32(), lists)


MOST_MADE = 1 << 27
"""Elements that a step makes of numbers alone: `sequence`, `array_repeat`, gaps of `array_insert`."""


# by place


@arrow("item")
def item(lists: pa.Array, index: pa.Array, kind: Literal["[]", "get", "element_at", "try"]) -> pa.Array:
    """Return the element at an index.

    ``[]`` and ``get`` count from 0; the others count from 1, or from -1 backward from the end.
    """
    offsets, values = elements(lists)
    lengths, place = np.diff(offsets), raw(index).astype(np.int64)
    if kind in ("element_at", "try"):
        what = "the index 0 is invalid: the first element has index 1"
        base.check(place == 0, "INVALID_INDEX_OF_ZERO", what, lists, index)
        place = np.where(place > 0, place - 1, np.maximum(place, -(2**32)) + lengths)
    outside = (place < 0) | (place >= lengths)
    if kind in ("[]", "element_at"):
        condition = "INVALID_ARRAY_INDEX" if kind == "[]" else "INVALID_ARRAY_INDEX_IN_ELEMENT_AT"
        base.check(outside, condition, "an index is out of bounds", lists, index)
    none = outside | ~present(lists) | ~present(index)
    return values.take(pa.array(np.where(none, 0, offsets[:-1] + np.where(none, 0, place)), mask=none))


@arrow("slice_of")
def slice_of(lists: pa.Array, start: pa.Array, length: pa.Array) -> pa.Array:
    """Compute `slice`."""
    offsets, values = elements(lists)
    lengths, first, count = np.diff(offsets), raw(start).astype(np.int64), raw(length).astype(np.int64)
    base.check(first == 0, "INVALID_PARAMETER_VALUE.START", "slice starts at 0", lists, start, length)
    base.check(
        count < 0, "INVALID_PARAMETER_VALUE.LENGTH", "a slice's length is negative", lists, start, length
    )
    first = np.where(first > 0, first - 1, first + lengths)
    valid = both_known(lists, start, length)
    none = (first < 0) | (first >= lengths) | (count < 0)
    if valid is not None:
        none |= ~truth(valid)
    taken = np.where(none, 0, np.minimum(count, lengths - first))
    places = ranges(offsets[:-1] + np.where(none, 0, first), taken)
    return list_array(offsets_of(taken), values.take(pa.array(places)), valid)


@arrow("put_together")
def concat_lists(*lists: pa.Array) -> pa.Array:
    """Compute `concat` of ARRAYs; the result is NULL if any ARRAY is NULL."""
    valid = both_known(*lists)
    parts = [elements(array) for array in lists]
    lengths = [np.diff(offsets) for offsets, _ in parts]
    if valid is not None:
        lengths = [np.where(truth(valid), length, 0) for length in lengths]
    starts = np.cumsum([0, *(len(values) for _, values in parts)])
    from_ = np.stack(
        [offsets[:-1] + start for (offsets, _), start in zip(parts, starts, strict=False)], axis=1
    )
    places = ranges(from_.reshape(-1), np.stack(lengths, axis=1).reshape(-1))
    taken = concat_arrays([values for _, values in parts]).take(pa.array(places))
    return list_array(offsets_of(np.sum(lengths, axis=0)), taken, valid)


@arrow("append_element")
def append_element(lists: pa.Array, value: pa.Array) -> pa.Array:
    return concat_lists(lists, make_array(value))


@arrow("prepend_element")
def prepend_element(lists: pa.Array, value: pa.Array) -> pa.Array:
    return concat_lists(make_array(value), lists)


@arrow("insert_element")
def insert_element(lists: pa.Array, place: pa.Array, value: pa.Array) -> pa.Array:
    """Compute `array_insert`; beyond the ends, NULLs fill the gap."""
    offsets, values = elements(lists)
    lengths, at = np.diff(offsets), raw(place).astype(np.int64)
    base.check(at == 0, "INVALID_INDEX_OF_ZERO", "the index 0 is invalid", lists, place)
    valid = both_known(lists, place)
    there = np.ones(len(lists), dtype=np.bool_) if valid is None else truth(valid)
    at = np.where(there & (at != 0), at, 1)
    own = np.where(there, lengths, 0)
    size = np.where(at > 0, np.maximum(own + 1, at), np.maximum(own + 1, -at))
    size = np.where(there, size, 0)
    _check_element_count(size)
    target = np.where(at > 0, at - 1, np.where(-at <= own + 1, own + 1 + at, 0))
    shift = np.where(at < 0, size - own - 1, 0)  # of the elements, where they come after NULLs
    new = offsets_of(size)
    index = np.full(int(new[-1]), -1)
    owner = parents(offsets)
    inner = np.arange(len(values)) - offsets[:-1][owner]
    moved = np.where(
        at[owner] > 0,
        inner + (inner >= target[owner]),
        np.where(-at[owner] <= own[owner] + 1, inner + (inner >= target[owner]), inner + 1 + shift[owner]),
    )
    keep = there[owner]
    index[new[:-1][owner[keep]] + moved[keep]] = np.flatnonzero(keep)
    rows = np.flatnonzero(there)
    index[new[:-1][rows] + target[rows]] = len(values) + rows
    taken = concat_arrays([values, value]).take(pa.array(index, mask=index < 0))
    return list_array(new, taken, valid)


@arrow("repeat_element")
def repeat_element(value: pa.Array, count: pa.Array) -> pa.Array:
    """Compute `array_repeat`: NULL for a NULL count, an empty ARRAY for a negative count."""
    lengths = np.where(present(count), np.maximum(raw(count).astype(np.int64), 0), 0)
    _check_element_count(lengths)
    rows = np.repeat(np.arange(len(value)), lengths)
    return list_array(offsets_of(lengths), value.take(pa.array(rows)), validity(count))


@arrow("reverse_list")
def reverse_list(lists: pa.Array) -> pa.Array:
    offsets, values = elements(lists)
    owner = parents(offsets)
    places = offsets[:-1][owner] + offsets[1:][owner] - 1 - np.arange(len(values))
    return list_array(offsets, values.take(pa.array(places)), validity(lists))


@arrow("flatten")
def flatten(lists: pa.Array) -> pa.Array:
    """Flatten ARRAYs of ARRAYs; the result is NULL if an inner ARRAY is NULL."""
    offsets, inner = elements(lists)
    inner_offsets, values = elements(inner)
    missing = any_in(offsets, ~present(inner))
    valid = present(lists) & ~missing
    lengths = np.where(valid, inner_offsets[offsets[1:]] - inner_offsets[offsets[:-1]], 0)
    if missing.any():
        values = values.take(pa.array(ranges(inner_offsets[offsets[:-1]], lengths)))
    return list_array(offsets_of(lengths), values, None if valid.all() else pa.array(valid))


@arrow("zipped")
def zip_lists(*lists: pa.Array) -> pa.Array:
    """Compute `arrays_zip`: STRUCTs of the elements at the same index.

    The result is as long as the longest ARRAY; missing elements are NULL.
    """
    valid = both_known(*lists)
    parts = [elements(array) for array in lists]
    lengths = np.max([np.diff(offsets) for offsets, _ in parts], axis=0)
    if valid is not None:
        lengths = np.where(truth(valid), lengths, 0)
    new = offsets_of(lengths)
    owner = parents(new)
    inner = np.arange(int(new[-1])) - new[:-1][owner]
    columns = []
    for offsets, values in parts:
        none = inner >= np.diff(offsets)[owner]
        columns.append(values.take(pa.array(np.where(none, 0, offsets[:-1][owner] + inner), mask=none)))
    return list_array(new, struct_array(columns, None, int(new[-1])), valid)


# by value


@arrow("has_element")
def has_element(lists: pa.Array, value: pa.Array) -> pa.Array:
    """Compute `array_contains`: NULL if there is no match but an element is NULL."""
    offsets, values = elements(lists)
    hits = any_in(offsets, _matches(offsets, values, value))
    unsure = any_in(offsets, ~present(values)) & ~hits
    none = unsure | ~present(lists) | ~present(value)
    return pa.array(hits, pa.bool_(), mask=none)


@arrow("place_of_element")
def place_of_element(lists: pa.Array, value: pa.Array) -> pa.Array:
    """Compute `array_position`: the index of the first match from 1, or 0 if there is none."""
    offsets, values = elements(lists)
    places = np.flatnonzero(_matches(offsets, values, value))
    rows, first = np.unique(parents(offsets)[places], return_index=True)
    place_numbers = np.zeros(len(lists), dtype=np.int64)
    place_numbers[rows] = places[first] - offsets[:-1][rows] + 1
    return build_array(place_numbers, pa.int64(), lists, value)


@arrow("without_element")
def without_element(lists: pa.Array, value: pa.Array) -> pa.Array:
    """Compute `array_remove`; NULL elements stay."""
    offsets, values = elements(lists)
    return _filter_elements(offsets, values, ~_matches(offsets, values, value), both_known(lists, value))


@arrow("compact")
def compact(lists: pa.Array) -> pa.Array:
    """Remove NULL elements."""
    offsets, values = elements(lists)
    return _filter_elements(offsets, values, present(values), validity(lists))


# MAPs: lists of structs of key and value


@arrow("map_keys")
def map_keys(maps: pa.Array) -> pa.Array:
    return field_of_elements(maps, 0)


@arrow("map_values")
def map_values(maps: pa.Array) -> pa.Array:
    return field_of_elements(maps, 1)


@arrow("has_key")
def has_key(maps: pa.Array, key: pa.Array) -> pa.Array:
    """Compute `map_contains_key`."""
    return pc.greater(place_of_element(map_keys(maps), key), 0)


@arrow("value_of")
def value_of(maps: pa.Array, key: pa.Array) -> pa.Array:
    """Return the value of a key in a MAP, or NULL if the key is missing."""
    place = place_of_element(map_keys(maps), key)
    index = pc.if_else(pc.equal(place, 0), pa.scalar(None, pa.int64()), place)
    return item(map_values(maps), index, "element_at")


# sets


@arrow("distinct")
def distinct(lists: pa.Array) -> pa.Array:
    """Compute `array_distinct`: the first of equal elements stays."""
    offsets, values = elements(lists)
    return normal_zeros(
        _filter_elements(offsets, values, is_first(parents(offsets), codes(values)), validity(lists))
    )


@arrow("union")
def union(left: pa.Array, right: pa.Array) -> pa.Array:
    return distinct(concat_lists(left, right))


@arrow("intersect")
def intersect(left: pa.Array, right: pa.Array) -> pa.Array:
    return _chosen_by(left, right, True)


@arrow("without")
def without(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compute `array_except`."""
    return _chosen_by(left, right, False)


@arrow("overlap")
def overlap(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compute `arrays_overlap`.

    Without a common element, the result is NULL if both ARRAYs have elements and one of them has a
    NULL.
    """
    (offsets_a, a), (offsets_b, b) = elements(left), elements(right)
    code_a, code_b = codes_together(a, b)
    hits = any_in(offsets_a, _is_in(parents(offsets_a), code_a, parents(offsets_b), code_b) & present(a))
    some = (np.diff(offsets_a) > 0) & (np.diff(offsets_b) > 0)
    unsure = (any_in(offsets_a, ~present(a)) | any_in(offsets_b, ~present(b))) & some & ~hits
    return pa.array(hits, pa.bool_(), mask=unsure | ~present(left) | ~present(right))


def _chosen_by(left: pa.Array, right: pa.Array, inside: bool) -> pa.Array:
    (offsets_a, a), (offsets_b, b) = elements(left), elements(right)
    code_a, code_b = codes_together(a, b)
    owner = parents(offsets_a)
    keep = _is_in(owner, code_a, parents(offsets_b), code_b) == inside
    kept = _filter_elements(offsets_a, a, keep & is_first(owner, code_a), both_known(left, right))
    return normal_zeros(kept)


def is_first(owner: Codes, code: Codes) -> Mask:
    first = np.zeros(len(code), dtype=np.bool_)
    places = np.lexsort((code, owner))
    if len(places):
        a, b = owner[places], code[places]
        first[places[np.concatenate([[True], (a[1:] != a[:-1]) | (b[1:] != b[:-1])])]] = True
    return first


def _is_in(owner: Codes, code: Codes, other_owner: Codes, other: Codes) -> Mask:
    """Return the mask of codes that the same owner has among the other codes."""
    owners, all_ = np.concatenate([owner, other_owner]), np.concatenate([code, other])
    of_other = np.arange(len(all_)) >= len(owner)
    places = np.lexsort((~of_other, all_, owners))  # the others first within equal ones
    is_in = np.zeros(len(all_), dtype=np.bool_)
    if len(places):
        a, b = owners[places], all_[places]
        group = np.cumsum(np.concatenate([[False], (a[1:] != a[:-1]) | (b[1:] != b[:-1])]))
        starts = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1])
        is_in[places] = of_other[places][starts[group]]
    return is_in[: len(owner)]


# order


@arrow("sorted_list")
def sorted_list(lists: pa.Array, descending: bool, nulls_last: bool) -> pa.Array:
    """Compute `sort_array` or `array_sort`; the sort is stable."""
    offsets, values = elements(lists)
    code = codes(values)
    code = ~code if descending else code
    null = ~present(values)
    places = np.lexsort((code, null if nulls_last else ~null, parents(offsets)))
    return list_array(offsets, values.take(pa.array(places)), validity(lists))


@arrow("extreme_of")
def extreme_of(lists: pa.Array, greatest: bool) -> pa.Array:
    """Compute `array_max` or `array_min`: ignore NULLs; return the first of equal elements."""
    offsets, values = elements(lists)
    there = np.flatnonzero(present(values))
    owner, code = parents(offsets)[there], codes(values)[there]
    places = np.lexsort((~code if greatest else code, owner))
    rows, first = np.unique(owner[places], return_index=True)
    index = np.full(len(lists), -1)
    index[rows] = there[places[first]]
    return values.take(pa.array(index, mask=index < 0))


# made of other things


@arrow("sequence")
def sequence(start: pa.Array, stop: pa.Array, step: pa.Array | None = None) -> pa.Array:
    """Build integers from ``start`` to ``stop``; the default ``step`` is 1 or -1."""
    arguments = [start, stop] if step is None else [start, stop, step]
    a, b = (raw(bound).astype(np.int64) for bound in (start, stop))
    by = np.where(a <= b, 1, -1) if step is None else raw(step).astype(np.int64)
    bad = ((by > 0) & (a > b)) | ((by < 0) & (a < b)) | ((by == 0) & (a != b))
    base.check(bad, "Illegal sequence boundaries", "a sequence would have no end", *arguments)
    valid = both_known(*arguments)
    distance: Raw = np.where(a <= b, b, a).astype(np.uint64) - np.where(a <= b, a, b).astype(np.uint64)
    stride: Raw = np.where(by == np.iinfo(np.int64).min, 2**63, np.abs(by).astype(np.uint64)).astype(
        np.uint64
    )
    steps = distance // np.maximum(stride, np.uint64(1))
    lengths = np.minimum(steps, np.uint64(2**40)).astype(np.int64) + 1
    lengths = np.where(bad, 0, lengths) if valid is None else np.where(truth(valid) & ~bad, lengths, 0)
    _check_element_count(lengths)
    offsets = offsets_of(lengths)
    owner = parents(offsets)
    with np.errstate(over="ignore"):
        terms = a[owner] + by[owner] * (np.arange(len(owner)) - offsets[:-1][owner])
    return list_array(offsets, pa.array(terms.astype(start.type.to_pandas_dtype()), start.type), valid)


@arrow("joined_elements")
def joined_elements(lists: pa.Array, separator: pa.Array, instead: pa.Array | None = None) -> pa.Array:
    """Compute `array_join`; NULLs are left out, or replaced by ``instead`` if given."""
    arguments = [lists, separator] if instead is None else [lists, separator, instead]
    if instead is None:
        lists = compact(lists)
    else:
        offsets, values = elements(lists)
        own = pc.coalesce(values, instead.take(pa.array(parents(offsets))))
        lists = compact(list_array(offsets, own, validity(lists)))
    texts = pc.binary_join(lists, separator)
    valid = both_known(*arguments)
    return texts if valid is None else pc.if_else(valid, texts, pa.nulls(len(texts), texts.type))


@arrow("split_text")
def split_text(text: pa.Array, separator: str, most: int) -> pa.Array:
    """Split a text at each separator into at most ``most`` parts; 0 means no limit."""
    return pc.split_pattern(text, separator, max_splits=most - 1 if most > 0 else None)


# parts


def any_in(offsets: Offsets, mask: Mask) -> Mask:
    """Return the mask of lists with at least one marked element."""
    counts = np.concatenate([[0], np.cumsum(mask)])
    has_any: Mask = counts[offsets[1:]] > counts[offsets[:-1]]
    return has_any


def _filter_elements(offsets: Offsets, values: pa.Array, keep: Mask, valid: pa.Array | None) -> pa.Array:
    if valid is not None:
        keep = keep & truth(valid)[parents(offsets)]
    counts = np.concatenate([[0], np.cumsum(keep)])
    return list_array(counts[offsets], values.filter(pa.array(keep)), valid)


def _matches(offsets: Offsets, values: pa.Array, value: pa.Array) -> Mask:
    """Return the mask of elements equal to the value of their row; NULL equals nothing."""
    wanted = value.take(pa.array(parents(offsets)))
    equal: Mask = (order(values, wanted) == 0) & present(values) & present(wanted)
    return equal


def _check_element_count(lengths: Raw) -> None:
    total = float(lengths.sum(dtype=np.float64))
    if total > MOST_MADE:
        raise EngineError(
            f"the ARRAYs of one step would have {total:,.0f} elements, more than the possible {MOST_MADE:,}",
            code="too-many-elements",
            hint="create smaller ARRAYs",
        )


def field_of(value: TypedTree, name: str) -> TypedTree:
    """Compile ``value.name``: a field of a STRUCT or of an ARRAY of STRUCTs, or a key of a MAP."""
    kind, element, entry = value.type, value.type.element, value.type.entry
    if entry is not None and entry[0] == STRING:
        return compile_lookup(value, TypedTree(("constant", name, STRING), STRING))
    of = kind if element is None else element
    require(of.is_struct, f"a field of {kind}")
    places = [n for n, own in enumerate(of.fields) if own.name.lower() == name.lower()]
    require(len(places) == 1, f"{kind} has {len(places)} fields {name}")
    type_ = of.fields[places[0]].type
    if element is None:
        return call(field, type_, value, options=places)
    return call(field_of_elements, array(type_), value, options=places)


def bracket(compiler: Compiler, node: exp.Bracket) -> TypedTree:
    """Compile ``a[i]``, ``m[k]``, ``s['f']``."""
    require(len(node.expressions) == 1, "this [] is not on the list")
    value, index = compiler.of(node.this), compiler.of(node.expressions[0])
    element = value.type.element
    if element is not None:
        return call(item, element, value, whole(index), options=["[]"])
    if value.type.entry is not None:
        return compile_lookup(value, index)
    return field_of(value, str(constant_value(index)))


def compile_lookup(maps: TypedTree, key: TypedTree) -> TypedTree:
    """Compile the lookup of a key in a MAP.

    A key of a wider type would need a MAP with wider keys, which is left to Spark.
    """
    entry = maps.type.entry
    assert entry is not None
    require(one_type([entry[0], key.type]) == entry[0], f"{key.type} as a key of {maps.type}")
    return call(value_of, entry[1], maps, widen_value(key, entry[0]))


def whole(value: TypedTree, most: SqlType = BIGINT) -> TypedTree:
    """Check that a value is an integer no wider than the type ``most``."""
    require(value.type in INTEGERS[: INTEGERS.index(most) + 1], f"{value.type} as a place")
    return value


def element(value: TypedTree) -> SqlType:
    """Return the type of an ARRAY's elements."""
    inner = value.type.element
    if inner is None or inner == VOID:
        raise UnsupportedExpression(f"{value.type} as an ARRAY")
    return inner


def entry(value: TypedTree) -> tuple[SqlType, SqlType]:
    inner = value.type.entry
    if inner is None:
        raise UnsupportedExpression(f"{value.type} as a MAP")
    return inner


def _struct(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
    named = []
    for place, node in enumerate(nodes, 1):
        aliased = isinstance(node, exp.Alias)
        value = compiler.of(node.this if aliased else node)
        name = node.alias if aliased else compiler.name_of(node)
        named.append((f"col{place}" if name is None else name, value))
    return struct(named)


def _named_struct(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
    values = compiler.all(nodes)
    if len(values) % 2:
        raise UnsupportedExpression("a name without a value")
    return struct(
        [(str(constant_value(name)), value) for name, value in zip(values[::2], values[1::2], strict=True)]
    )


def struct(named: Sequence[tuple[str, TypedTree]]) -> TypedTree:
    require(
        named and (not any(value.type == VOID or value.type.name == "INTERVAL" for _, value in named)),
        "a STRUCT of nothing, of NULL, or of intervals",
    )
    return call(make_struct, struct_type([Field(name, v.type) for name, v in named]), *(v for _, v in named))


def _array(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
    if not nodes:
        return constant([], array(VOID))
    elements = compiler.alike(compiler.all(nodes))
    require(elements[0].type == VOID or is_value(elements[0].type), f"an ARRAY of {elements[0].type}")
    return call(make_array, array(elements[0].type), *elements)


def _list(_: Compiler, value: TypedTree) -> TypedTree:
    """Check that a value is an ARRAY."""
    element(value)
    return value


def _size(_: Compiler, value: TypedTree) -> TypedTree:
    if value.type.element is None and value.type.entry is None:
        raise UnsupportedExpression(f"the size of {value.type}")
    return call(list_size, INT, value)


def _item(kind: str) -> Callable[[Compiler, TypedTree, TypedTree], TypedTree]:
    def make(_: Compiler, value: TypedTree, index: TypedTree) -> TypedTree:
        entry = value.type.entry
        if kind != "get" and entry is not None:
            require(
                compared_type(entry[0], index.type, by_function=True) == entry[0],
                f"{index.type} as a key of {value.type}",
            )
            return compile_lookup(value, index)
        return call(item, element(value), value, whole(index, INT), options=[kind])

    return make


def _with_element(
    function: ArrowFunction, type_: SqlType | None
) -> Callable[[Compiler, TypedTree, TypedTree], TypedTree]:
    """Build the rule of a function of an ARRAY and a value compared with its elements.

    Args:
        type_: the type of the result; None means the type of the ARRAY.
    """

    def make(_: Compiler, lists: TypedTree, value: TypedTree) -> TypedTree:
        kind = element(lists)
        if function == has_element and not loses_digits(kind, value.type):
            common = one_type([kind, value.type])
        else:
            common = compared_type(kind, value.type, by_function=True)
        require(is_ordered(common), f"{common} is compared")
        wide = widen_value(lists, array(common))
        require(function != without_element or value.type != VOID, "NULL is removed")
        return call(function, type_ or wide.type, wide, widen_value(value, common))

    return make


def _build_add_element_rule(function: ArrowFunction) -> Callable[[Compiler, TypedTree, TypedTree], TypedTree]:
    def make(_: Compiler, lists: TypedTree, value: TypedTree) -> TypedTree:
        common = compared_type(element(lists), value.type, by_function=True)
        return call(function, array(common), widen_value(lists, array(common)), widen_value(value, common))

    return make


def _insert(_: Compiler, lists: TypedTree, place: TypedTree, value: TypedTree) -> TypedTree:
    common = compared_type(element(lists), value.type, by_function=True)
    wide = widen_value(lists, array(common))
    return call(insert_element, wide.type, wide, whole(place, INT), widen_value(value, common))


def _of_two(
    function: ArrowFunction, type_: SqlType | None = None
) -> Callable[[Compiler, TypedTree, TypedTree], TypedTree]:
    def make(_: Compiler, left: TypedTree, right: TypedTree) -> TypedTree:
        common = compared_type(left.type, right.type, by_function=True)
        both = [widen_value(left, common), widen_value(right, common)]
        require(is_ordered(element(both[0])), f"{both[0].type} is compared")
        return call(function, type_ or both[0].type, *both)

    return make


def _distinct(_: Compiler, lists: TypedTree) -> TypedTree:
    require(is_ordered(element(lists)), f"{lists.type} is compared")
    return call(distinct, lists.type, lists)


def _sorted(name: str) -> Rule:
    def make(_: Compiler, lists: TypedTree, up: TypedTree | None = None) -> TypedTree:
        down = up is not None and constant_value(up) is False
        require(up is None or up.type == BOOLEAN, "an order that is not TRUE or FALSE")
        require(is_ordered(element(lists)), f"{lists.type} is ordered")
        return call(sorted_list, lists.type, lists, options=[down, down or name == "array_sort"])

    return optional(1, 2 if name == "sort_array" else 1, make)


def _extreme(greatest: bool) -> Callable[[Compiler, TypedTree], TypedTree]:
    def make(_: Compiler, lists: TypedTree) -> TypedTree:
        require(is_ordered(element(lists)), f"{lists.type} is ordered")
        return call(extreme_of, element(lists), lists, options=[greatest])

    return make


def _repeat(_: Compiler, value: TypedTree, count: TypedTree) -> TypedTree:
    require(is_value(value.type), f"an ARRAY of {value.type}")
    require(count.type == INT, f"{count.type} as a number of times")
    return call(repeat_element, array(value.type), value, count)


def _flatten(_: Compiler, lists: TypedTree) -> TypedTree:
    inner = element(lists)
    if inner.element is None:
        raise UnsupportedExpression(f"flatten of {lists.type}")
    return call(flatten, inner, lists)


def _sequence(_: Compiler, *values: TypedTree) -> TypedTree:
    if {value.type for value in values[:2]} == {DATE} and len(values) == 2:
        return call(sequence, array(DATE), *values)
    require(all(value.type in INTEGERS for value in values), "a sequence of what are not integers")
    common = one_type([value.type for value in values])
    return call(sequence, array(common), *(widen_value(value, common) for value in values))


def _zip(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
    values = compiler.all(nodes)
    require(values, "arrays_zip of nothing")
    names = [compiler.name_of(node) or str(n) for n, node in enumerate(nodes)]
    fields = [Field(name, element(value)) for name, value in zip(names, values, strict=True)]
    return call(zip_lists, array(struct_type(fields)), *values)


def _join(_: Compiler, *values: TypedTree) -> TypedTree:
    require(
        values[0].type == array(STRING) and all(e.type == STRING for e in values[1:]),
        "array_join of what are not texts",
    )
    return call(joined_elements, STRING, *values)


def separator_of(pattern: object) -> str:
    """Return the text that a regular expression stands for. Raises: UnsupportedExpression."""
    if not isinstance(pattern, str) or not re.fullmatch(r"(?:[^\\.\[\]{}()*+?^$|]|\\[^\w\s])+", pattern):
        raise UnsupportedExpression("a separator that is not a plain text")
    return re.sub(r"\\(.)", r"\1", pattern)


def _split(_: Compiler, text: TypedTree, pattern: TypedTree, limit: TypedTree | None = None) -> TypedTree:
    require(text.type == STRING and pattern.type == STRING, "split of what is not text")
    most = 0 if limit is None else constant_value(limit)
    if not isinstance(most, int):
        raise UnsupportedExpression("a limit that is not a number")
    separator = separator_of(constant_value(pattern))
    return call(split_text, array(STRING), text, options=[separator, max(most, 0)])


def _part(function: ArrowFunction, type_of: Callable[[SqlType, SqlType], SqlType]) -> Rule:
    return arguments(1, lambda _, maps: call(function, type_of(*entry(maps)), maps))


def _entries(_: Compiler, maps: TypedTree) -> TypedTree:
    key, value = entry(maps)
    return TypedTree(maps.tree, array(struct_type([Field("key", key), Field("value", value)])))


def _contains(_: Compiler, maps: TypedTree, key: TypedTree) -> TypedTree:
    own = entry(maps)[0]
    common = key.type if loses_digits(own, key.type) else one_type([own, key.type])
    require(common == own, f"{key.type} as a key of {maps.type}")
    return call(has_key, BOOLEAN, maps, widen_value(key, common))


_place = only(INTEGERS[: INTEGERS.index(INT) + 1], "{} as a place")

FUNCTIONS: dict[str, Rule | Restricted] = {
    "struct": _struct,
    "named_struct": _named_struct,
    "array": _array,
    "size": arguments(1, _size),
    "cardinality": arguments(1, _size),
    "array_size": computed(list_size, INT, _list),
    "element_at": arguments(2, _item("element_at")),
    "try_element_at": arguments(2, _item("try")),
    "get": arguments(2, _item("get")),
    "array_contains": arguments(2, _with_element(has_element, BOOLEAN)),
    "array_position": arguments(2, _with_element(place_of_element, BIGINT)),
    "array_remove": arguments(2, _with_element(without_element, None)),
    "array_append": arguments(2, _build_add_element_rule(append_element)),
    "array_prepend": arguments(2, _build_add_element_rule(prepend_element)),
    "array_insert": arguments(3, _insert),
    "array_compact": computed(compact, None, _list),
    "array_distinct": arguments(1, _distinct),
    "array_union": arguments(2, _of_two(union)),
    "array_intersect": arguments(2, _of_two(intersect)),
    "array_except": arguments(2, _of_two(without)),
    "arrays_overlap": arguments(2, _of_two(overlap, BOOLEAN)),
    "array_sort": _sorted("array_sort"),
    "sort_array": _sorted("sort_array"),
    "array_max": arguments(1, _extreme(True)),
    "array_min": arguments(1, _extreme(False)),
    "array_repeat": arguments(2, _repeat),
    "arrays_zip": _zip,
    "array_join": optional(2, 3, _join),
    "slice": computed(slice_of, None, _list, _place, _place),
    "flatten": arguments(1, _flatten),
    "sequence": optional(2, 3, _sequence),
    "split": optional(2, 3, _split),
    "map_contains_key": arguments(2, _contains),
    "map_entries": arguments(1, _entries),
    "map_keys": _part(map_keys, lambda key, _: array(key)),
    "map_values": _part(map_values, lambda _, value: array(value)),
}
