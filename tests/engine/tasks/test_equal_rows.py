"""A delete takes one equal row away, whatever it holds, and does not look at all rows of its key for it."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from tests.support.ticks import plan_of, stream
from watersmeet.kernel.match.pairs import Search
from watersmeet.runtime.coordinator.shapes import node_shapes
from watersmeet.runtime.tasks import side as module
from watersmeet.runtime.tasks.side import find_equal_rows
from watersmeet.state.runs.writer import sort_rows

QUERY = "SELECT l.x, l.s, l.a FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 2 AND l.t + 3"
TYPES = {"x": "DOUBLE", "s": "STRING", "a": "ARRAY<DOUBLE>"}
VALUES = {
    "x": [0.0, -0.0, float("nan"), None, 1.5],
    "s": ["", "a", "b\x00", None, "x" * 700],
    "a": [[], None, [0.0], [-0.0], [float("nan"), 1.0]],
}


def side_of(rows: int, rng: np.random.Generator):
    declared = stream(None, changes=True)
    declared["columns"] = {"t": "BIGINT", "k": "STRING", **TYPES}
    plan = plan_of(QUERY, {"l": declared, "r": stream(None, changes=True)}, output_mode="changelog")
    kinds = {"t": pa.int64(), "k": pa.string(), "v": pa.int64()}
    kinds |= {"x": pa.float64(), "s": pa.string(), "a": pa.list_(pa.float64())}
    (query,) = plan.queries
    schemas = {
        f"{query.name}/{side.name}": pa.schema([(name, kinds.get(name, pa.int64())) for name in side.kept])
        for side in query.sides
    }
    (shape,) = node_shapes(query, schemas, {}, zoned=False)
    side = shape.sides[0]
    drawn = {name: [values[n] for n in rng.integers(0, 5, rows)] for name, values in VALUES.items()}
    drawn |= {"t": rng.integers(0, 3, rows), "k": ["hot"] * rows}
    batch = pa.RecordBatch.from_arrays(
        [pa.array(drawn[f.name], f.type) for f in side.stored_schema], schema=side.stored_schema
    )
    return side, sort_rows(batch, np.zeros(rows, dtype=np.int64), side.layout)[0]


def test_both_ways_find_the_same(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    for _ in range(10):
        side, rows = side_of(300, rng)
        _, needles = side_of(40, rng)
        ways = []
        for few, many in ((10**9, 1), (-1, 0)):
            monkeypatch.setattr(module, "FREE_CANDIDATES", few)
            monkeypatch.setattr(module, "MAX_CANDIDATES_PER_ROW", many)
            found = list(
                itertools.chain(*(np.stack(p, 1).tolist() for p in find_equal_rows(side, needles, rows)))
            )
            assert [needle for needle, _ in found] == sorted(needle for needle, _ in found)
            ways.append(sorted(found))
        assert ways[0] == ways[1]
        assert ways[0]


def test_rows_of_one_key_are_not_compared_with_each_other(seed, monkeypatch):
    side, rows = side_of(3_000, np.random.default_rng(seed))
    monkeypatch.setattr(Search, "pairs", lambda search: pytest.fail("all candidates are looked at"))
    assert sum(len(n) for n, _ in find_equal_rows(side, rows, rows)) >= 3_000
