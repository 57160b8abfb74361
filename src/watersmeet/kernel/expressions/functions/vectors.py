"""Vectors: ARRAYs of FLOAT. A NULL element gives NULL.

FLOATs are added in Spark's order, for each rounding shows: eight products by themselves, then to what is
there so far, and those at the end one by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.arrays import any_in
from watersmeet.kernel.expressions.functions.base import Raw, raw
from watersmeet.kernel.expressions.functions.nested import offsets_of, parents, present, ranges
from watersmeet.kernel.expressions.held import Offsets, elements, list_array

Reals = npt.NDArray[np.float32]

_AT_ONCE = 8


def vector_norm(vector: pa.Array) -> pa.Array:
    offsets, values, none = _whole(vector)
    with np.errstate(all="ignore"):
        norms = _root(_sum(values * values, offsets))
    return pa.array(norms, pa.float32(), mask=none)


def vector_normalize(vector: pa.Array) -> pa.Array:
    """NULL of nothing but zeros."""
    offsets, values, none = _whole(vector)
    with np.errstate(all="ignore"):
        norm = _root(_sum(values * values, offsets))
        none = none | ((norm == 0) & (np.diff(offsets) > 0))
        normalized = values / norm[parents(offsets)]
    kept = ~none[parents(offsets)]
    lengths = np.where(none, 0, np.diff(offsets))
    return list_array(offsets_of(lengths), pa.array(normalized[kept], pa.float32()), pa.array(~none))


def vector_inner_product(left: pa.Array, right: pa.Array) -> pa.Array:
    offsets, a, b, none = _alike(left, right)
    with np.errstate(all="ignore"):
        return pa.array(_sum(a * b, offsets), pa.float32(), mask=none)


def vector_l2_distance(left: pa.Array, right: pa.Array) -> pa.Array:
    offsets, a, b, none = _alike(left, right)
    with np.errstate(all="ignore"):
        return pa.array(_root(_sum((a - b) * (a - b), offsets)), pa.float32(), mask=none)


def vector_cosine_similarity(left: pa.Array, right: pa.Array) -> pa.Array:
    """NULL if one is of nothing but zeros."""
    offsets, a, b, none = _alike(left, right)
    with np.errstate(all="ignore"):
        product, one, other = (_sum(products, offsets) for products in (a * b, a * a, b * b))
        norm = _root(one * other)
        return pa.array(product / norm, pa.float32(), mask=none | (norm == 0))


def _root(squares: Reals) -> Reals:
    roots: Reals = np.sqrt(squares.astype(np.float64)).astype(np.float32)
    return roots


def _whole(vector: pa.Array) -> tuple[Offsets, Reals, npt.NDArray[np.bool_]]:
    """(offsets, values, where it is NULL or an element is)."""
    offsets, values = elements(vector)
    return offsets, raw(values), ~present(vector) | any_in(offsets, ~present(values))


def _alike(left: pa.Array, right: pa.Array) -> tuple[Offsets, Reals, Reals, npt.NDArray[np.bool_]]:
    """Two vectors of one length, where both are whole; elsewhere of none."""
    (offsets_a, a, none_a), (offsets_b, b, none_b) = _whole(left), _whole(right)
    lengths = np.diff(offsets_a)
    different = lengths != np.diff(offsets_b)
    what = "two vectors are not of one dimension"
    base.check(different, "VECTOR_DIMENSION_MISMATCH", what, left, right)
    none = none_a | none_b
    own = np.where(none | different, 0, lengths)
    return (
        offsets_of(own),
        a[ranges(offsets_a[:-1], own)],
        b[ranges(offsets_b[:-1], own)],
        none,
    )


def _sum(values: Raw, offsets: Offsets) -> Reals:
    starts, lengths = offsets[:-1], np.diff(offsets)
    groups, rest = lengths // _AT_ONCE, lengths % _AT_ONCE
    totals = np.zeros(len(lengths), dtype=np.float32)
    first = np.repeat(starts, groups) + _AT_ONCE * ranges(np.zeros_like(groups), groups)
    sums = values[first]
    for n in range(1, _AT_ONCE):
        sums = sums + values[first + n]
    group = offsets_of(groups)[:-1]
    for n in range(int(groups.max(initial=0))):
        rows = np.flatnonzero(groups > n)
        totals[rows] += sums[group[rows] + n]
    for n in range(_AT_ONCE - 1):
        rows = np.flatnonzero(rest > n)
        totals[rows] += values[starts[rows] + _AT_ONCE * groups[rows] + n]
    return totals
