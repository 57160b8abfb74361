"""ARRAYs: elements by place and by value, what is in them in another order, sets, sequences.

Which elements are equal, and in which order they are: see `kernel.expressions.functions.nested`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.kernel.batches import joined
from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.base import Raw, made, raw
from watersmeet.kernel.expressions.functions.nested import (
    Codes,
    Mask,
    both_known,
    codes,
    codes_together,
    field_of_elements,
    make_array,
    normal_zeros,
    offsets_of,
    order,
    parents,
    present,
    ranges,
    truth,
)
from watersmeet.kernel.expressions.held import (
    Offsets,
    elements,
    list_array,
    struct_array,
    validity,
)


def list_size(lists: pa.Array) -> pa.Array:
    """`size`: NULL of NULL."""
    offsets, _ = elements(lists)
    return made(np.diff(offsets).astype(np.int32), pa.int32(), lists)


MOST_MADE = 1 << 27
"""Elements that a step makes of numbers alone: `sequence`, `array_repeat`, gaps of `array_insert`."""


# by place


def item(lists: pa.Array, index: pa.Array, kind: Literal["[]", "get", "element_at", "try"]) -> pa.Array:
    """The element at a place: from 0 on for ``[]`` and ``get``, else from 1 on, or from -1 back."""
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


def slice_of(lists: pa.Array, start: pa.Array, length: pa.Array) -> pa.Array:
    """`slice`."""
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


def put_together(*lists: pa.Array) -> pa.Array:
    """`concat` of ARRAYs: NULL if one is."""
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
    taken = joined([values for _, values in parts]).take(pa.array(places))
    return list_array(offsets_of(np.sum(lengths, axis=0)), taken, valid)


def append_element(lists: pa.Array, value: pa.Array) -> pa.Array:
    return put_together(lists, make_array(value))


def prepend_element(lists: pa.Array, value: pa.Array) -> pa.Array:
    return put_together(make_array(value), lists)


def insert_element(lists: pa.Array, place: pa.Array, value: pa.Array) -> pa.Array:
    """`array_insert`: beyond the ends NULLs fill the gap."""
    offsets, values = elements(lists)
    lengths, at = np.diff(offsets), raw(place).astype(np.int64)
    base.check(at == 0, "INVALID_INDEX_OF_ZERO", "the index 0 is invalid", lists, place)
    valid = both_known(lists, place)
    there = np.ones(len(lists), dtype=np.bool_) if valid is None else truth(valid)
    at = np.where(there & (at != 0), at, 1)
    own = np.where(there, lengths, 0)
    size = np.where(at > 0, np.maximum(own + 1, at), np.maximum(own + 1, -at))
    size = np.where(there, size, 0)
    _bounded(size)
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
    taken = joined([values, value]).take(pa.array(index, mask=index < 0))
    return list_array(new, taken, valid)


def repeat_element(value: pa.Array, count: pa.Array) -> pa.Array:
    """`array_repeat`: NULL for a NULL count, no element for a negative one."""
    lengths = np.where(present(count), np.maximum(raw(count).astype(np.int64), 0), 0)
    _bounded(lengths)
    rows = np.repeat(np.arange(len(value)), lengths)
    return list_array(offsets_of(lengths), value.take(pa.array(rows)), validity(count))


def reverse_list(lists: pa.Array) -> pa.Array:
    offsets, values = elements(lists)
    owner = parents(offsets)
    places = offsets[:-1][owner] + offsets[1:][owner] - 1 - np.arange(len(values))
    return list_array(offsets, values.take(pa.array(places)), validity(lists))


def flatten(lists: pa.Array) -> pa.Array:
    """NULL if one of the inner ARRAYs is."""
    offsets, inner = elements(lists)
    inner_offsets, values = elements(inner)
    missing = any_in(offsets, ~present(inner))
    valid = present(lists) & ~missing
    lengths = np.where(valid, inner_offsets[offsets[1:]] - inner_offsets[offsets[:-1]], 0)
    if missing.any():
        values = values.take(pa.array(ranges(inner_offsets[offsets[:-1]], lengths)))
    return list_array(offsets_of(lengths), values, None if valid.all() else pa.array(valid))


def zipped(*lists: pa.Array) -> pa.Array:
    """`arrays_zip`: structs, as many as the longest has elements, of what each has at a place."""
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


def has_element(lists: pa.Array, value: pa.Array) -> pa.Array:
    """`array_contains`: NULL if it is not found beside NULLs."""
    offsets, values = elements(lists)
    hits = any_in(offsets, _matches(offsets, values, value))
    unsure = any_in(offsets, ~present(values)) & ~hits
    none = unsure | ~present(lists) | ~present(value)
    return pa.array(hits, pa.bool_(), mask=none)


def place_of_element(lists: pa.Array, value: pa.Array) -> pa.Array:
    """`array_position`: of the first one from 1 on, 0 if there is none."""
    offsets, values = elements(lists)
    places = np.flatnonzero(_matches(offsets, values, value))
    rows, first = np.unique(parents(offsets)[places], return_index=True)
    place_numbers = np.zeros(len(lists), dtype=np.int64)
    place_numbers[rows] = places[first] - offsets[:-1][rows] + 1
    return made(place_numbers, pa.int64(), lists, value)


def without_element(lists: pa.Array, value: pa.Array) -> pa.Array:
    """`array_remove`: NULLs stay."""
    offsets, values = elements(lists)
    return _kept(offsets, values, ~_matches(offsets, values, value), both_known(lists, value))


def compact(lists: pa.Array) -> pa.Array:
    """Without NULLs."""
    offsets, values = elements(lists)
    return _kept(offsets, values, present(values), validity(lists))


# MAPs: lists of structs of key and value


def map_keys(maps: pa.Array) -> pa.Array:
    return field_of_elements(maps, 0)


def map_values(maps: pa.Array) -> pa.Array:
    return field_of_elements(maps, 1)


def has_key(maps: pa.Array, key: pa.Array) -> pa.Array:
    """`map_contains_key`."""
    return pc.greater(place_of_element(map_keys(maps), key), 0)


def value_of(maps: pa.Array, key: pa.Array) -> pa.Array:
    """Of a key, NULL if there is none."""
    place = place_of_element(map_keys(maps), key)
    index = pc.if_else(pc.equal(place, 0), pa.scalar(None, pa.int64()), place)
    return item(map_values(maps), index, "element_at")


# sets


def distinct(lists: pa.Array) -> pa.Array:
    """`array_distinct`: the first of equal ones."""
    offsets, values = elements(lists)
    return normal_zeros(_kept(offsets, values, is_first(parents(offsets), codes(values)), validity(lists)))


def union(left: pa.Array, right: pa.Array) -> pa.Array:
    return distinct(put_together(left, right))


def intersect(left: pa.Array, right: pa.Array) -> pa.Array:
    return _chosen_by(left, right, True)


def without(left: pa.Array, right: pa.Array) -> pa.Array:
    """`array_except`."""
    return _chosen_by(left, right, False)


def overlap(left: pa.Array, right: pa.Array) -> pa.Array:
    """`arrays_overlap`: without a common element NULL if both have some and one of them a NULL."""
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
    kept = _kept(offsets_a, a, keep & is_first(owner, code_a), both_known(left, right))
    return normal_zeros(kept)


def is_first(owner: Codes, code: Codes) -> Mask:
    first = np.zeros(len(code), dtype=np.bool_)
    places = np.lexsort((code, owner))
    if len(places):
        a, b = owner[places], code[places]
        first[places[np.concatenate([[True], (a[1:] != a[:-1]) | (b[1:] != b[:-1])])]] = True
    return first


def _is_in(owner: Codes, code: Codes, other_owner: Codes, other: Codes) -> Mask:
    """Whether the same owner has the same code among the others."""
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


def sorted_list(lists: pa.Array, descending: bool, nulls_last: bool) -> pa.Array:
    """`sort_array`, `array_sort`; equal ones in the order that they had."""
    offsets, values = elements(lists)
    code = codes(values)
    code = ~code if descending else code
    null = ~present(values)
    places = np.lexsort((code, null if nulls_last else ~null, parents(offsets)))
    return list_array(offsets, values.take(pa.array(places)), validity(lists))


def extreme_of(lists: pa.Array, greatest: bool) -> pa.Array:
    """`array_max`, `array_min`: NULLs are passed over; the first of equal ones."""
    offsets, values = elements(lists)
    there = np.flatnonzero(present(values))
    owner, code = parents(offsets)[there], codes(values)[there]
    places = np.lexsort((~code if greatest else code, owner))
    rows, first = np.unique(owner[places], return_index=True)
    index = np.full(len(lists), -1)
    index[rows] = there[places[first]]
    return values.take(pa.array(index, mask=index < 0))


# made of other things


def sequence(start: pa.Array, stop: pa.Array, step: pa.Array | None = None) -> pa.Array:
    """Whole numbers from ``start`` to ``stop``; without ``step`` it is 1 or -1."""
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
    _bounded(lengths)
    offsets = offsets_of(lengths)
    owner = parents(offsets)
    with np.errstate(over="ignore"):
        terms = a[owner] + by[owner] * (np.arange(len(owner)) - offsets[:-1][owner])
    return list_array(offsets, pa.array(terms.astype(start.type.to_pandas_dtype()), start.type), valid)


def joined_elements(lists: pa.Array, separator: pa.Array, instead: pa.Array | None = None) -> pa.Array:
    """`array_join`: NULLs are left out, or ``instead`` stands for them."""
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


def split_text(text: pa.Array, separator: str, most: int) -> pa.Array:
    """At each separator, into at most so many parts; 0: into all."""
    return pc.split_pattern(text, separator, max_splits=most - 1 if most > 0 else None)


# parts


def any_in(offsets: Offsets, mask: Mask) -> Mask:
    """Per list whether one of its elements is marked."""
    counts = np.concatenate([[0], np.cumsum(mask)])
    has_any: Mask = counts[offsets[1:]] > counts[offsets[:-1]]
    return has_any


def _kept(offsets: Offsets, values: pa.Array, keep: Mask, valid: pa.Array | None) -> pa.Array:
    if valid is not None:
        keep = keep & truth(valid)[parents(offsets)]
    counts = np.concatenate([[0], np.cumsum(keep)])
    return list_array(counts[offsets], values.filter(pa.array(keep)), valid)


def _matches(offsets: Offsets, values: pa.Array, value: pa.Array) -> Mask:
    """Which elements are equal to the value of their row; NULL is equal to nothing."""
    wanted = value.take(pa.array(parents(offsets)))
    equal: Mask = (order(values, wanted) == 0) & present(values) & present(wanted)
    return equal


def _bounded(lengths: Raw) -> None:
    total = float(lengths.sum(dtype=np.float64))
    if total > MOST_MADE:
        raise EngineError(
            f"the ARRAYs of one step would have {total:,.0f} elements, more than the possible {MOST_MADE:,}",
            code="too-many-elements",
            hint="create smaller ARRAYs",
        )
