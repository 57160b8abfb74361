"""ASOF joins with rows in no order: which of equal times is taken depends on the rows of a tick alone.

The oracle is a loop over the rows that have come: nearest time, then tick; of one tick's equal times any row
may be taken, but whatever the order of the rows the same one.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from watersmeet import local
from watersmeet.kernel.slots import hash_rows
from watersmeet.plan.explain import explain

RIGHT = "k STRING, t BIGINT, n INT, v DOUBLE, m MAP<STRING, INT>, a ARRAY<STRUCT<x: INT, y: STRING>>"
SOURCE = "WITH ('connector' = 'spark', 'format' = 'x')"


def build_asof_job(comparison: str, right: str = SOURCE, partitions: int = 1) -> Any:
    return local.job(
        f"""CREATE TABLE l (k STRING, t BIGINT, id BIGINT, WATERMARK FOR t AS t - 3) {SOURCE};
        CREATE TABLE r ({RIGHT}, WATERMARK FOR t AS t - 3) {right};
        CREATE SINK q WITH ('connector' = 'memory');
        INSERT INTO q SELECT l.id, r.t, r.n, r.v, r.m, r.a FROM l LEFT ASOF JOIN r
          MATCH_CONDITION ({comparison}) ON l.k = r.k AND r.t <= l.t + 9""",
        partitions=partitions,
    )


def drawn(draw: random.Random, now: int) -> dict[str, Any]:
    return {
        "k": draw.choice("ab"),
        "t": now + draw.randrange(3),
        "n": draw.choice([1, 2, None]),
        "v": draw.choice([0.5, float("nan"), None]),
        "m": draw.choice([{"x": 1}, {"x": 2}, {"y": None}, {}, None]),
        "a": draw.choice([[{"x": 1, "y": "z"}], [None], [], None]),
    }


def values(row: dict[str, Any]) -> str:
    return repr([dict(value) if name == "m" and value is not None else value for name, value in row.items()])


@pytest.mark.parametrize("comparison", ["l.t >= r.t", "l.t <= r.t"])
def test_order_of_rows_in_a_tick_does_not_decide_ties(comparison, seed):
    draw = random.Random(f"{seed} {comparison}")
    jobs = [build_asof_job(comparison, partitions=partitions) for partitions in (1, 1, 3)]
    ids, asked, came, ties = 0, {}, [], 0
    for tick in range(at_effort(quick=14, full=25)):
        right = [drawn(draw, tick) for _ in range(draw.randrange(9))]
        left = [{"k": draw.choice("ab"), "t": tick + draw.randrange(3), "id": ids + n} for n in range(4)]
        ids += 4
        asked |= {row["id"]: row for row in left}
        came += [(tick, row) for row in right]
        outputs = []
        for job in jobs:
            draw.shuffle(right)
            draw.shuffle(left)
            for name, rows in (("l", left), ("r", right)):
                for row in rows:
                    job.push(name, row)
            outputs.append({row["id"]: row for row in job.tick().table.to_pylist()})
        first = {key: values(row) for key, row in outputs[0].items()}
        for other in outputs[1:]:
            assert {key: values(row) for key, row in other.items()} == first, f"seed {seed}, tick {tick}"
        for key, row in outputs[0].items():
            best = nearest(asked[key], came, latest=">=" in comparison)
            shown = [
                values({"id": key, **{name: one[name] for name in ("t", "n", "v", "m", "a")}}) for one in best
            ]
            ties += len(set(shown)) > 1
            assert values(row) in shown or (not best and row["t"] is None), f"seed {seed}, tick {tick}"
    assert ties > at_effort(quick=2, full=5), f"seed {seed}"


def nearest(
    left: dict[str, Any], came: list[tuple[int, dict[str, Any]]], *, latest: bool
) -> list[dict[str, Any]]:
    """The rows of which one is to be taken."""
    may = [
        ((-row["t"] if latest else row["t"], tick), row)
        for tick, row in came
        if row["k"] == left["k"]
        and (row["t"] <= left["t"] if latest else left["t"] <= row["t"] <= left["t"] + 9)
    ]
    best = min((place for place, _ in may), default=None)
    return [row for place, row in may if place == best]


def test_explain_says_what_decides():
    in_order = "WITH ('connector' = 'memory')"
    texts = [explain(build_asof_job("l.t >= r.t", right).plan) for right in (SOURCE, in_order)]
    assert "by tick, in it by a hash of the row" in texts[0]
    assert "by tick, source partition, and place in it" in texts[1]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([{"a": 1}, {"a": 2}, {"b": 1}, {}, None, {"a": None}], pa.map_(pa.string(), pa.int64())),
        ([[{"a": 1}], [{"a": 2}], [None], [], None], pa.list_(pa.map_(pa.string(), pa.int64()))),
        ([(1, timedelta(1)), (1, timedelta(2)), (1, None), None], None),
    ],
)
def test_rows_of_all_types_have_hashes(values, kind):
    if kind is None:
        kind = pa.struct([("n", pa.int32()), ("d", pa.duration("us"))])
        values = [None if value is None else dict(zip("nd", value, strict=True)) for value in values]
    else:
        values = [
            list(v.items()) if isinstance(v, dict) else v and [w and list(w.items()) for w in v]
            for v in values
        ]
    array = pa.array([values[0], *values], type=kind)
    hashes = hash_rows([array, array], len(array)).tolist()
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == len(values)
    assert hash_rows([array.slice(1)], len(values)).tolist() == hash_rows([array], len(array)).tolist()[1:]
