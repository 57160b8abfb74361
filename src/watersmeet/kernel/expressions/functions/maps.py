"""MAPs: lists of structs of key and value, in the order in which they were made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.expressions.functions import arrays, base
from watersmeet.kernel.expressions.functions.nested import (
    both_known,
    codes,
    make_array,
    normal_zeros,
    parents,
    present,
    truth,
)
from watersmeet.kernel.expressions.held import (
    elements,
    fields,
    list_array,
    struct_array,
    validity,
)

_DUPLICATED = "DUPLICATED_MAP_KEY"


def make_map(*values: pa.Array) -> pa.Array:
    """`map` of keys and values in turn."""
    return _checked(make_array(*values[::2]), make_array(*values[1::2]), None)


def map_of_arrays(keys: pa.Array, values: pa.Array) -> pa.Array:
    """`map_from_arrays`."""
    valid = both_known(keys, values)
    (offsets, _), (others, _) = elements(keys), elements(values)
    different = np.diff(offsets) != np.diff(others)
    what = "keys and values are not of one number"
    base.check(
        different, "The key array and value array of MapData must have the same length", what, keys, values
    )
    if valid is not None or different.any():
        same = pa.array(~different if valid is None else truth(valid) & ~different)
        keys, values = (arrays.chosen(array, _spread(same, array)) for array in (keys, values))
    return _checked(keys, values, valid)


def map_of_entries(entries: pa.Array) -> pa.Array:
    """`map_from_entries`: NULL if one of the entries is."""
    offsets, values = elements(entries)
    valid = present(entries) & ~arrays.any_in(offsets, ~present(values))
    whole = None if valid.all() else pa.array(valid)
    if whole is not None:
        entries = arrays.chosen(entries, _spread(whole, entries))
        offsets, values = elements(entries)
    keys, items = fields(values)
    return _checked(list_array(offsets, keys), list_array(offsets, items), whole)


def maps_together(*maps: pa.Array) -> pa.Array:
    """`map_concat`."""
    whole = arrays.put_together(*maps)
    offsets, values = elements(whole)
    keys, items = fields(values)
    return _checked(list_array(offsets, keys), list_array(offsets, items), validity(whole))


def with_values(maps: pa.Array, items: pa.Array) -> pa.Array:
    """`transform_values`."""
    offsets, values = elements(maps)
    return list_array(
        offsets, struct_array([fields(values)[0], elements(items)[1]], None, len(values)), validity(maps)
    )


def with_keys(maps: pa.Array, keys: pa.Array) -> pa.Array:
    """`transform_keys`."""
    offsets, values = elements(maps)
    return _checked(
        list_array(offsets, elements(keys)[1]), list_array(offsets, fields(values)[1]), validity(maps)
    )


def map_keys(maps: pa.Array) -> pa.Array:
    return _of_fields(maps, 0)


def map_values(maps: pa.Array) -> pa.Array:
    return _of_fields(maps, 1)


def has_key(maps: pa.Array, key: pa.Array) -> pa.Array:
    """`map_contains_key`."""
    places = arrays.place_of_element(map_keys(maps), key)
    return pc.greater(places, 0)


def value_of(maps: pa.Array, key: pa.Array) -> pa.Array:
    """Of a key, NULL if there is none."""
    keys, items = map_keys(maps), map_values(maps)
    place = arrays.place_of_element(keys, key)
    return arrays.item(
        items, pc.if_else(pc.equal(place, 0), pa.scalar(None, pa.int64()), place), "element_at"
    )


def maps_zipped(left: pa.Array, right: pa.Array) -> pa.Array:
    """Structs of key and both values, for all keys of the first and then further ones of the second."""
    valid = both_known(left, right)
    all_keys = arrays.union(map_keys(left), map_keys(right))
    offsets, keys = elements(all_keys)
    owner = pa.array(parents(offsets))
    items = [_looked_up(map_.take(owner), keys) for map_ in (left, right)]
    return list_array(offsets, struct_array([keys, *items], None, len(keys)), valid)


def text_to_map(text: pa.Array, between: str, within: str) -> pa.Array:
    """`str_to_map`."""
    pairs = arrays.split_text(text, between, 0)
    offsets, entries = elements(pairs)
    parts = arrays.split_text(entries, within, 2)
    keys, items = (arrays.item(parts, pa.nulls(len(parts), pa.int32()).fill_null(n), "get") for n in (0, 1))
    return _checked(list_array(offsets, keys), list_array(offsets, items), validity(text))


def _looked_up(maps: pa.Array, keys: pa.Array) -> pa.Array:
    return value_of(maps, keys)


def _of_fields(maps: pa.Array, place: int) -> pa.Array:
    offsets, values = elements(maps)
    return list_array(offsets, fields(values)[place], validity(maps))


def _spread(truths: pa.Array, lists: pa.Array) -> pa.Array:
    offsets, _ = elements(lists)
    return list_array(offsets, truths.take(pa.array(parents(offsets))))


def _checked(keys: pa.Array, items: pa.Array, valid: pa.Array | None) -> pa.Array:
    """MAPs of lists of keys and values; NULL where ``valid`` is False, where they are empty."""
    offsets, own = elements(keys)
    owner = parents(offsets)
    count = len(keys)
    null = np.zeros(count, dtype=np.bool_)
    null[owner[~present(own)]] = True
    base.check(null, "NULL_MAP_KEY", "a key of a MAP is NULL", *_masking(valid))
    twice = np.zeros(count, dtype=np.bool_)
    again = ~arrays.is_first(owner, codes(own))
    twice[owner[again]] = True
    base.check(twice, _DUPLICATED, "a key of a MAP is there twice", *_masking(valid))
    entries = struct_array([normal_zeros(own), elements(items)[1]], None, len(own))
    return list_array(offsets, entries, valid)


def _masking(valid: pa.Array | None) -> list[pa.Array]:
    return [] if valid is None else [pc.if_else(valid, True, None)]
