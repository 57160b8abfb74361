"""``measured.forecast``: what EXPLAIN forecasts by the states of jobs that have run.

After a wanted change: ``WATERSMEET_GOLDEN=write pytest tests/golden``, then read the difference.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import watersmeet
from watersmeet.cli.state_measurements import measure_query
from watersmeet.plan.explain import explain
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

HERE = Path(__file__).parent

STREAMS = """
CREATE TABLE o (id BIGINT, t TIMESTAMP, s STRING, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)
  WITH ('connector' = 'memory', 'rows_per_second' = '2.5');
CREATE TABLE d (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '2' HOURS)
  WITH ('connector' = 'memory');
CREATE TABLE few (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE TABLE x (id BIGINT, t BIGINT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE TABLE y (id BIGINT, t BIGINT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
"""
QUERIES = {
    "rows of a join, and windows over them": """
      SELECT window_end, count(*) AS n FROM TABLE(TUMBLE((
        SELECT o.id, o.s, o.t FROM o JOIN d ON d.id = o.id AND d.t BETWEEN o.t AND o.t + INTERVAL '5' MINUTES
      ), DESCRIPTOR(t), INTERVAL '1' HOUR)) GROUP BY window_start, window_end""",
    "integer times; y is far behind": "SELECT x.id, y.t FROM x LEFT JOIN y ON y.t BETWEEN x.t AND x.t + 5",
    "another order": """
      SELECT window_end, count(*) AS n FROM TABLE(TUMBLE((
        SELECT o.id, o.t FROM o JOIN d ON d.id = o.id AND d.t BETWEEN o.t AND o.t + INTERVAL '5' MINUTES
        JOIN few f ON f.id = o.id AND f.t = o.t
      ), DESCRIPTOR(t), INTERVAL '1' HOUR)) GROUP BY window_start, window_end""",
    "as of": "SELECT x.id, y.t FROM x LEFT ASOF JOIN y MATCH_CONDITION (x.t >= y.t) ON x.id = y.id",
    "nothing came but d": "SELECT o.id FROM o LEFT SEMI JOIN d ON d.id = o.id AND d.t = o.t",
}


def at(minutes: int) -> str:
    return (datetime(2024, 1, 1) + timedelta(minutes=minutes)).isoformat()


def forecast(name: str) -> str:
    asked = watersmeet.parse_job(STREAMS + QUERIES[name])
    plan = watersmeet.plan_job(asked)
    job = LocalJob(plan, MemoryStore())
    sources = {source.name for source in plan.sources}
    for tick in range(24):
        minutes = range(tick * 60, tick * 60 + 60)
        given = {
            "o": [] if "nothing" in name else [{"id": n, "t": at(n), "s": "x" * 50} for n in minutes],
            "d": [{"id": n // 2, "t": at(n)} for n in minutes],
            "few": [{"id": n, "t": at(n)} for n in minutes[::30]],
            "x": [{"id": n % 9, "t": n} for n in minutes],
            "y": [{"id": n % 9, "t": n // 3} for n in minutes],
        }
        job.tick({stream: [(row, 1) for row in rows] for stream, rows in given.items() if stream in sources})
    (query,) = plan.queries
    measured = measure_query(job.driver.manifest, asked.inserts[0], asked.options, query)
    text = explain(plan, {query.name: measured})
    return text[text.index("State forecast") : text.index("Output columns")]


def test_measured():
    got = "\n".join(f"-- {name}\n{forecast(name)}" for name in QUERIES)
    golden = HERE / "measured.forecast"
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        golden.write_text(got)
    assert got == golden.read_text()
