"""A job in this process whose ticks are told as an engine tells them: what tests of watchers share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from watersmeet.observe.listeners import Listener, ListenerGroup, WatchedRun
from watersmeet.parser.statements import parse_job
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local.job import LocalJob
from watersmeet.state.store import MemoryStore

TEXT = """
CREATE TABLE orders (k STRING, t TIMESTAMP, v BIGINT, WATERMARK FOR t AS t - INTERVAL '2' SECONDS)
  WITH ('connector' = 'memory', 'rows_per_second' = '10');
CREATE TABLE deliveries (k STRING, t TIMESTAMP, v BIGINT, WATERMARK FOR t AS t - INTERVAL '2' SECONDS)
  WITH ('connector' = 'memory', 'rows_per_second' = '10');
CREATE TABLE steps (k STRING, n BIGINT, WATERMARK FOR n AS n - 5) WITH ('connector' = 'memory');
CREATE SINK delivered WITH ('connector' = 'memory');
CREATE SINK windows WITH ('connector' = 'memory');
CREATE SINK climbed WITH ('connector' = 'memory');
INSERT INTO delivered SELECT o.k, o.t, d.t AS u FROM orders o LEFT JOIN deliveries d
  ON o.k = d.k AND d.t BETWEEN o.t - INTERVAL '1' SECOND AND o.t + INTERVAL '1' SECOND AND d.v > 0;
INSERT INTO windows SELECT window_start, count(*) AS n
  FROM TABLE(TUMBLE((SELECT o.t FROM orders o JOIN deliveries d ON o.k = d.k AND d.t = o.t),
                    DESCRIPTOR(t), INTERVAL '10' SECONDS))
  GROUP BY window_start, window_end;
INSERT INTO climbed SELECT a.n, b.n AS m FROM steps a JOIN steps b
  ON a.k = b.k AND b.n BETWEEN a.n AND a.n + 3;
"""
"""Three queries: an outer join of times, windows over a join, a join of integer times."""


def at(second: int) -> str:
    return f"2026-11-26T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def row(second: int | None, k: str | None = "a", v: int = 1) -> tuple[dict[str, Any], int]:
    return {"k": k, "t": None if second is None else at(second), "v": v}, 1


TICKS: tuple[dict[str, Any], ...] = (
    {"orders": [row(10), row(11, "b"), row(None), row(12, None)], "deliveries": [row(10), row(10, v=0)]},
    {"orders": [row(100, "far")], "deliveries": [row(100)], "steps": [({"k": "a", "n": 7}, 1)]},
    {"orders": [row(3), row(101, "far")], "deliveries": [row(101, "far"), row(5)]},
)
"""In which something lands in most places of the account."""


@lru_cache
def _plan_of(text: str) -> JobPlan:
    return plan_job(parse_job(text))


class WatchedJob:
    """Its ticks are told to watchers; ``results``: what each was."""

    def __init__(self, *watchers: Listener, text: str = TEXT) -> None:
        self.plan = _plan_of(text)
        self._job = LocalJob(self.plan, MemoryStore(), partitions=2)
        self.watching = ListenerGroup(watchers)
        self.results: list[Any] = []

    def about(self, job: str = "shop", trigger_s: float = 1.0) -> WatchedRun:
        return WatchedRun(job, self.plan, trigger_s)

    def tick(self, rows: dict[str, Any], seconds: float = 0.5) -> Any:
        """One, as an engine tells of it; its result."""
        self.watching.begin(len(self.results) + 1)
        result = self._job.tick(rows, clock_us=1_795_000_000_000_000 + len(self.results)).result
        self.results.append(result)
        self.watching.behind({"orders": (7, "rows")})
        self.watching.tick(result, seconds, {"begin": seconds / 4, "ingest": seconds / 2})
        return result

    def ticks(self, every: Sequence[dict[str, Any]] = TICKS) -> Any:
        """Started, and all of them; the last one's result."""
        self.watching.start({}, None)
        for rows in every:
            self.tick(rows)
        return self.results[-1]
