"""Bands as the engine decides them against the same conditions by Spark, on values at the edges of types.

The session is as jobs have it: in ANSI mode.
"""

from __future__ import annotations

import pytest

from tests.support.ticks import QUERY, arriving, plan_of
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

NAN, INFINITE = float("nan"), float("inf")
TYPES = {
    "n": "INT", "b": "BIGINT", "s": "SMALLINT", "x": "DOUBLE", "f": "FLOAT", "m": "DECIMAL(10,2)",
    "q": "DECIMAL(12,4)", "w": "DECIMAL(38,18)", "d": "DATE", "ts": "TIMESTAMP", "c": "STRING",
}  # fmt: skip
VALUES = {
    "n": [0, 3, -10, 2**31 - 40_000, -(2**31) + 40_000, None],
    "b": [0, 3, 2**53, 2**53 + 1, -(2**62), 2**62, None],
    "s": [0, 3, -10, 32_000, 7, None],
    "x": [0.0, -0.0, 0.1, 0.30000000000000004, 0.2, 1e16, 1e16 + 2, 5e-324, NAN, INFINITE, -INFINITE, None],
    "f": [0.0, -0.0, 0.10000000149011612, 0.30000001192092896, 16777216.0, 3.4e38, NAN, INFINITE, None],
    "m": ["1.50", "-0.01", "99999999.99", "0.00", "0.49", None],
    "q": ["1.5000", "-0.0101", "99999999.9901", "0.0000", "0.4899", None],
    "w": ["1.000000000000000001", "1.000000000000000000", "-12345678901234567890.5", "0", None],
    "c": ["", "a", "a\x00", "abcdefgh", "abcdefgi", "abcdefgh\u00e9", "\u00e9", "\uffff", "\U0001f600", None],
    "d": ["2022-03-01", "2022-02-28", "1969-12-31", "0001-01-01", "9999-12-31", None],
    "ts": ["2022-03-01T00:00:00", "2022-02-28T23:59:59.999999", "1969-12-31T12:00:00", None],
}

CONDITIONS = [
    "l.c < r.c",
    "l.c >= r.c",
    "l.c BETWEEN r.c AND r.c",
    "l.n BETWEEN r.n - 10 AND r.n + 20",
    "l.n - r.s < 10",
    "l.b >= r.n",
    "l.b <= r.b",
    "-l.n >= -r.n - 3",
    "l.m BETWEEN r.m - 0.5 AND r.m + 1.51",
    "l.m > r.q - 0.0101",
    "l.m - r.q <= 0.0101",
    "l.q >= r.n - 1.5",
    "l.w > r.w",
    "l.w BETWEEN r.w AND r.m",
    "l.b >= r.m",
    "l.b > r.x",
    "l.b <= r.x",
    "l.n < r.x + 0.1",
    "l.m >= r.x",
    "l.x > r.x - 0.1",
    "l.x <= r.x + 0.1",
    "l.x - r.x <= 0.1",
    "l.x - r.x >= 0.1",
    "l.x - 1e16 < r.x",
    "l.x + 0.2D BETWEEN r.x AND r.x + 1",
    "l.x >= r.x AND l.x <= r.x",
    "l.f >= r.f",
    "l.f - r.f < 0.2",
    "l.f - r.f >= 1",
    "l.f + 1 > r.f",
    "l.f + 0.2 >= r.f",
    "l.f < r.x",
    "l.f >= r.n",
    "l.d BETWEEN r.d - 1 AND r.d + 1",
    "l.d <= r.ts",
    "l.ts BETWEEN r.ts - INTERVAL '1' DAY AND r.ts",
    "CAST(l.ts AS DATE) >= r.d - 1",
    "l.ts - r.ts < INTERVAL '1' SECOND",
    "abs(l.ts - r.ts) <= INTERVAL '1' DAY",
    "abs(timestampdiff(HOUR, r.ts, l.ts)) < 24",
    "timestampdiff(WEEK, l.ts, r.d) < 0",
    "unix_timestamp(l.ts) - to_unix_timestamp(r.d) BETWEEN -60 AND 43200",
    "abs(datediff(l.d, r.ts)) <= 1",
    "abs(l.n - r.s) < 10",
    "abs(l.m - r.q) <= 0.0101",
    "abs(l.x - r.x) <= 0.1",
    "abs(l.f - r.f) < 0.2",
    "0.1 > abs(l.n - r.x)",
    "NOT l.x > r.x - 0.1",
    "NOT (l.c < r.c OR l.n IS NULL)",
    "((l.b >= r.n AND l.s = 3) OR (l.b > r.b AND r.n <= l.b))",
]
PLACES = range(max(map(len, VALUES.values())))


def rows():
    """Each value of a type beside others of the other types, the same on both sides."""
    return [
        {"t": 0, "i": place, **{name: each[place % len(each)] for name, each in VALUES.items()}}
        for place in PLACES
    ]


@pytest.fixture(scope="module")
def pairs(spark):
    """Per condition the pairs that Spark accepts."""
    frames = []
    for side in ("l", "r"):
        raw = {name: kind if name in "nbsxf" else "STRING" for name, kind in TYPES.items()}
        data = [tuple(row[name] for name in ("i", *TYPES)) for row in rows()]
        frame = spark.createDataFrame(data, ", ".join(["i INT", *(f"{n} {k}" for n, k in raw.items())]))
        casts = [f"CAST({name} AS {kind}) AS {name}" for name, kind in TYPES.items()]
        frames.append(frame.selectExpr("i", *casts).alias(side))
    crossed = frames[0].crossJoin(frames[1])
    answers = [f"({condition}) AS c{n}" for n, condition in enumerate(CONDITIONS)]
    found = crossed.selectExpr("l.i AS li", "r.i AS ri", *answers).collect()
    return {c: {(row.li, row.ri) for row in found if row[f"c{n}"]} for n, c in enumerate(CONDITIONS)}


def find_accepted_pairs(condition, index):
    """The pairs that the engine accepts, looked up by time or by the band."""
    declared = {
        side: {"columns": {"t": "BIGINT", "i": "INT", **TYPES}, "time": {"t": {"lag": 0}}} for side in "lr"
    }
    plan = plan_of(f"SELECT l.i AS li, r.i AS ri FROM l JOIN r ON l.t = r.t AND {condition}", declared)
    job = LocalJob(plan, MemoryStore(), partitions=2)
    assert plan.queries[0].root.values.every, "it is no band"
    shape = job.driver.shapes[QUERY][0]
    begin = job.driver.begin

    def begin_with_index(*told, **named):
        tick = begin(*told, **named)
        for task in (shape.left, shape.right):
            tick.start.indexes[task.arrangement] = task.layout.indexes[index].name
        return tick

    job.driver.begin = begin_with_index
    output = [*job.tick(arriving(l=rows())).rows[QUERY], *job.tick(arriving(r=rows())).rows[QUERY]]
    found = [(row["li"], row["ri"]) for row in output]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.spark
@pytest.mark.parametrize("condition", CONDITIONS)
def test_bands_mean_what_spark_says(condition, pairs):
    assert pairs[condition], "nothing to see"
    for index in (0, -1):
        assert find_accepted_pairs(condition, index) == pairs[condition], index
