"""Rows that were shed stay so when the job stops shedding, and its queries keep rows together again."""

from __future__ import annotations

from tests.support.ticks import arriving
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

DECLARED = """
CREATE TABLE l (k STRING, t BIGINT, i BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory');
CREATE TABLE r (k STRING, t BIGINT, i BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory');
CREATE SINK x WITH ('connector' = 'memory');
CREATE SINK y WITH ('connector' = 'memory');
INSERT INTO x SELECT l.i AS li, r.i AS ri FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 90 AND l.t + 90;
INSERT INTO y SELECT l.i AS li, r.i AS ri FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 80 AND l.t + 80;
"""  # noqa: E501


def plan_with_settings(settings):
    return plan_job(parse_job(settings + DECLARED))


def rows(*numbers):
    return [{"k": "k", "t": number, "i": number} for number in numbers]


def test_shed_rows_do_not_come_back_with_merges(monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    store, shed = MemoryStore(), set()
    for tick in range(8):
        job = LocalJob(
            plan_with_settings("SET max_rows = 5; SET at_limit = shed_oldest;"), store, partitions=2
        )
        output = job.tick(arriving(l=rows(3 * tick, 3 * tick + 1)))
        shed |= {row["i"] for alias, row in output.shed if alias == "l"}
    assert shed
    plan = plan_with_settings("")
    assert any(side.sharers for query in plan.queries for side in query.sides)
    for tick in range(6):
        LocalJob(plan, store, partitions=2).tick(arriving(l=rows(30 + tick)))
    output = LocalJob(plan, store, partitions=2).tick(arriving(r=rows(50)))
    for name in ("x", "y"):
        assert not {row["li"] for row in output.rows[name] if row["ri"] is not None} & shed
    last = LocalJob(plan, store, partitions=2).tick({}, end=True)
    for name in ("x", "y"):
        assert not {row["li"] for row in last.rows[name]} & shed
