"""The heaviest keys of a run, against counting them."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.kernel.slots import hash_columns
from watersmeet.state.runs.heavy_hitters import (
    MAX_KEYS,
    MIN_ROWS,
    SHARE,
    TEXT,
    format_key,
    heavy_keys_in,
)


def heavy(column: pa.Array):
    hashes = hash_columns([column], len(column))
    order = np.argsort(hashes, kind="stable")
    batch = pa.record_batch({"k": column}).take(pa.array(order))
    return heavy_keys_in(hashes[order], batch, ["k"])


@pytest.mark.parametrize("seed", range(60))
def test_heaviest_keys_are_reported_with_their_row_counts(seed):
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([0, 1, 7, 8, 9, 100, 255, 256, 257, 5000]))
    keys = int(rng.choice([1, 3, 30, 40, 10_000]))
    values = (rng.random(rows) ** rng.choice([1.0, 3.0, 8.0]) * keys).astype(int).tolist()
    least = max(MIN_ROWS, rows * SHARE)
    expected = {key: count for key, count in Counter(values).items() if count >= least}
    told = heavy(pa.array(values, pa.int64()))
    assert [one.rows for one in told] == sorted(expected.values(), reverse=True)[:MAX_KEYS], f"seed {seed}"
    assert all(expected[json.loads(one.key)["k"]] == one.rows for one in told), f"seed {seed}"


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pa.array([None] * 9, pa.int64()), None),
        (pa.array(["x" * 5000] * 9), "x" * (TEXT - 1) + "…"),
        (pa.array([-0.0, 0.0] * 9), "0.0"),
        (pa.array([float("nan")] * 9), "nan"),
        (pa.array([2**62] * 9, pa.timestamp("us", "UTC")), f"<value out of range: {2**62}>"),
        (pa.array([-62_135_596_800_000_000] * 9, pa.timestamp("us")), "0001-01-01 00:00:00.000000"),
        (pa.array([2_000_000] * 9, pa.int32()).view(pa.date32()), None),
        (pa.array([b"\xff\x00"] * 9), "b'\\xff\\x00'"),
        (pa.array([b"\xff\xfe"] * 9).view(pa.string()), "\ufffd\ufffd"),
        (pa.array([b"\xff" * 5000] * 9).view(pa.string()), "\ufffd" * (TEXT - 1) + "…"),
        (pa.array(["\U0001f600" * 5000] * 9, pa.large_string()), "\U0001f600" * (TEXT - 1) + "…"),
        (pa.array([[b"\xff"]] * 9, pa.list_(pa.binary())).cast(pa.list_(pa.binary())), "list<item: binary>"),
        (pa.array([[2**62]] * 9, pa.list_(pa.timestamp("us"))), None),
    ],
)
def test_any_key_value_can_be_reported(column, told):
    (one,) = heavy(column)
    assert one.rows == len(column)
    shown = json.loads(one.key)["k"]
    if told is not None:
        assert shown in (told, told.replace("0.0", "-0.0"))


def test_a_run_tells_little_in_its_manifest():
    told = heavy(pa.array([f"{number}" * 400 for number in range(9) for _ in range(9)]))
    assert 1 <= len(told) <= MAX_KEYS
    assert sum(len(one.key) for one in told) <= 1000
    wide = pa.record_batch({f"c{number}": ["x" * 500] for number in range(20)})
    assert len(format_key(wide, wide.schema.names, 0)) < 500


def test_of_a_long_value_only_the_beginning_is_read():
    """Of 16 MB of bytes next to nothing is allocated by Python."""
    batch = pa.record_batch({"k": [b"\xff" * (16 << 20)]})
    tracemalloc.start()
    format_key(batch, ["k"], 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
