"""States that were made by conditions as they are written go on where rows are found by more of them now."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

import watersmeet
from watersmeet import LocalJob, MemoryStore
from watersmeet.plan.passes import run
from watersmeet.plan.planner import of_queries
from watersmeet.plan.query_evolution import as_written

SOURCES = """
CREATE TABLE l (k INT, t BIGINT, ts TIMESTAMP, v BIGINT, d DATE,
  WATERMARK FOR t AS t - 4, WATERMARK FOR ts AS ts)
WITH ('connector' = 'memory');
CREATE TABLE r (k INT, t BIGINT, ts TIMESTAMP, v BIGINT, d DATE,
  WATERMARK FOR t AS t - 4, WATERMARK FOR ts AS ts)
WITH ('connector' = 'memory');
"""
BOUND = "l.t BETWEEN r.t - {0} AND r.t + {0}"
CONDITIONS = (
    "((l.k = r.k AND l.v < 2) OR (r.k = l.k AND r.v < 2))",
    "abs(l.v - r.v) <= 1",
    "abs(l.t - r.t) <= 3",
    "NOT l.t > r.t",
    "NOT (l.v > r.v OR l.k <> r.k)",
    "timestampdiff(SECOND, l.ts, r.ts) BETWEEN -2 AND 2",
)

PLAIN = (
    "l.k = r.k AND l.v < 3",
    "l.v BETWEEN r.v - 2 AND r.v + 2",
    "l.ts <= r.ts + INTERVAL '1' HOUR",
    "l.v + r.v < 7.5 AND (l.d = r.d)",
    "l.d < r.ts",
)


def job_of(condition: str, reach: int) -> watersmeet.JobPlan:
    return watersmeet.plan_job(
        watersmeet.parse_job(
            f"{SOURCES} SELECT l.v, r.v AS w FROM l LEFT JOIN r ON {condition} AND {BOUND.format(reach)}"
        )
    )


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("reach", [6, 5], ids=["the same query", "a narrower one"])
def test_a_state_by_conditions_as_written_goes_on(seed, condition, reach):
    rng = random.Random(seed)
    ticks = [
        {
            name: [
                ({"k": rng.randrange(2), "t": t, "ts": f"2024-01-01T00:00:{t:02}", "v": rng.randrange(4)}, 1)
                for t in sorted(rng.randrange(first, first + 8) for _ in range(6))
            ]
            for name in "lr"
        }
        for first in (0, 5)
    ]
    plan, before = job_of(condition, reach), job_of(condition, 6)
    written = as_written(before.apart[0])
    assert written is not None
    assert written.fingerprint != before.apart[0].fingerprint
    store = MemoryStore()
    LocalJob(of_queries([written]), store).tick(ticks[0])
    expected = LocalJob(plan, MemoryStore())
    expected.tick(ticks[0])
    jobs = LocalJob(plan, store, change_queries=reach != 6), expected
    found, wanted = (
        Counter(
            (row["v"], row["w"])
            for row in job.tick(ticks[1], end=True).rows["console"]
            if reach == 6 or row["w"] is not None  # else the wider one has matched more
        )
        for job in jobs
    )
    assert found == wanted
    assert found


@pytest.mark.parametrize("condition", PLAIN)
def test_a_query_that_is_planned_as_it_is_written_is_not_planned_so_again(condition):
    (query,) = job_of(condition, 6).apart
    assert as_written(query) is None
    again, _ = run(replace(query.asked, as_written=True), "tree")
    assert again.nodes == query.nodes
