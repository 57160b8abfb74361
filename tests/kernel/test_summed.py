"""Sums of equal rows, against a plain dictionary."""

from __future__ import annotations

import math
import random
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from watersmeet.kernel.aggregate import consolidate_table

NAN = float("nan")
VALUES = {
    "real": (pa.float64(), [0.0, -0.0, NAN, 1.5, None]),
    "short": (pa.float32(), [0.0, -0.0, NAN, math.inf, None]),
    "text": (pa.string(), ["", "a", "A", "a ", None]),
    "bytes": (pa.binary(), [b"", b"a", None]),
    "number": (pa.int64(), [0, -(2**63), 2**63 - 1, None]),
    "exact": (pa.decimal128(38, 2), [Decimal("0.00"), Decimal("1.10"), Decimal(10) ** 35, None]),
    "day": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), None]),
    "list": (pa.list_(pa.float64()), [[], [0.0], [-0.0], [NAN], [None], None]),
    "struct": (pa.struct([("a", pa.float64())]), [{"a": 0.0}, {"a": -0.0}, {"a": None}, None]),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", None)], [], None],
    ),
    "maps": (
        pa.list_(pa.struct([("m", pa.map_(pa.int64(), pa.list_(pa.float64())))])),
        [
            [{"m": [(1, [0.0]), (2, None)]}],
            [{"m": [(2, None), (1, [-0.0])]}],
            [{"m": None}],
            [None],
            [],
            None,
        ],
    ),
    "maps_of_maps": (
        pa.map_(pa.string(), pa.map_(pa.string(), pa.int64())),
        [[("x", [("a", 1), ("b", 2)]), ("y", None)], [("y", None), ("x", [("b", 2), ("a", 1)])], [("x", [])]],
    ),
}


def plain(value, kind):
    """What equal values have in common."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return "NaN" if math.isnan(value) else value + 0.0
    if pa.types.is_map(kind):
        entries = ((plain(key, kind.key_type), plain(item, kind.item_type)) for key, item in value)
        return "map", frozenset(entries)
    if pa.types.is_list(kind):
        return tuple(plain(element, kind.value_type) for element in value)
    if pa.types.is_struct(kind):
        return tuple(plain(value[field.name], field.type) for field in kind)
    return value


@pytest.mark.parametrize("seed", range(25))
def test_like_a_dictionary(seed):
    draw = random.Random(seed)
    names = draw.sample(sorted(VALUES), draw.randint(1, 3))
    types = [VALUES[name][0] for name in names]
    rows = [[draw.choice(VALUES[name][1]) for name in names] for _ in range(draw.choice([0, 1, 300]))]
    diffs = [draw.choice([-1, 1, 1, 7]) for _ in rows]
    arrays = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(types)]
    table = consolidate_table(pa.table([*arrays, pa.array(diffs, pa.int64())], names=[*names, "d"]), "d")

    wanted: dict = {}
    for row, diff in zip(rows, diffs, strict=True):
        key = tuple(map(plain, row, types))
        wanted[key] = wanted.get(key, 0) + diff
    wanted = {key: diff for key, diff in wanted.items() if diff}
    found = [tuple(row.values()) for row in table.to_pylist()]
    assert len(found) == len(wanted), seed
    assert {tuple(map(plain, row, types)): row[-1] for row in found} == wanted, seed
    assert table.schema.types == [*types, pa.int64()]


def test_one_zero_goes_out_in_the_order_of_the_first():
    table = consolidate_table(pa.table({"a": [2.0, -0.0, 0.0, 2.0], "d": [1, 1, 2, 1]}), "d")
    assert str(table.to_pylist()) == "[{'a': 2.0, 'd': 2}, {'a': 0.0, 'd': 3}]"


def test_what_comes_and_goes_is_not_seen():
    table = consolidate_table(pa.table({"a": [1, 2, 1], "d": [1, 1, -1]}), "d")
    assert table.to_pylist() == [{"a": 2, "d": 1}]
