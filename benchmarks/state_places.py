"""What a tick costs by where its state is: a directory, or tables of PostgreSQL on this machine.

    python -m benchmarks.state_places [--rows N] [--ticks N]

A join of two streams in this process, half of the rows of a tick on each side. Milliseconds that a tick
spends in calls to the store, medians; and what goes between driver and server, by a proxy that counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from tests.support.postgres import Postgres
from tests.support.postgres_proxy import PostgresProxy
from tests.support.tables import tables_at
from watersmeet import parse_job, plan_job
from watersmeet.objects.cache import Cache
from watersmeet.objects.postgres_store import TablesStore
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import LocalStore

JOB = """
CREATE TABLE l (k BIGINT, t BIGINT, a STRING, WATERMARK FOR t AS t - 0)
  WITH ('connector' = 'File', 'path' = '/l', 'format' = 'json');
CREATE TABLE r (k BIGINT, t BIGINT, b STRING, WATERMARK FOR t AS t - 0)
  WITH ('connector' = 'File', 'path' = '/r', 'format' = 'json');
CREATE TABLE out WITH ('connector' = 'File', 'path' = '/out', 'format' = 'json');
INSERT INTO out SELECT l.k, l.a, r.b FROM l LEFT JOIN r
  ON l.k = r.k AND r.t BETWEEN l.t - 5000 AND l.t + 5000;
"""
CALLS = ("write", "create", "read", "has", "names", "delete")


class Timed:
    """A store whose calls are counted; ``seconds``: spent in them."""

    def __init__(self, store: Any) -> None:
        self._store, self.seconds, self.calls = store, 0.0, 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        return self._timed(value) if name in CALLS else value

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **more: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **more)
            finally:
                self.seconds += time.perf_counter() - began
                self.calls += 1

        return timed


def rows_of(tick: int, rows: int) -> dict[str, list[tuple[dict[str, Any], int]]]:
    keys = range(tick * rows // 2, (tick + 1) * rows // 2)
    return {
        "l": [({"k": key, "t": key, "a": f"left {key:030d}"}, 1) for key in keys],
        "r": [({"k": key, "t": key, "b": f"right {key:030d}"}, 1) for key in keys],
    }


def measured(store: Any, rows: int, ticks: int) -> tuple[float, float, float]:
    """Milliseconds: of a tick, in calls of it; and calls."""
    timed = Timed(store)
    job = LocalJob(plan_job(parse_job(JOB)), timed)
    job.tick(rows_of(0, rows))
    walls, inside, calls = [], [], []
    for tick in range(1, ticks + 1):
        given = rows_of(tick, rows)
        job.driver.ledger.settle()
        timed.seconds, timed.calls, began = 0.0, 0, time.perf_counter()
        job.tick(given)
        walls.append((time.perf_counter() - began) * 1000)
        inside.append(timed.seconds * 1000)
        calls.append(timed.calls)
    job.driver.ledger.settle()
    return median(walls), median(inside), median(calls)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state_places")
    parser.add_argument("--rows", type=int, default=100_000, help="of a tick")
    parser.add_argument("--ticks", type=int, default=8)
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, Postgres(fsync=True) as server:

        def tables(url: str, pipeline: str) -> TablesStore:
            place = tables_at(url, pipeline).place
            return TablesStore(place, Cache(place.url, root=f"{folder}/cache"))

        print(f"{asked.rows:,} rows a tick: ms of a tick, ms in the store, calls")
        for name, store in (
            ("directory", LocalStore(f"{folder}/state")),
            ("PostgreSQL", tables(server.url, "measured")),
        ):
            print(name, *(f"{value:.0f}" for value in measured(store, asked.rows, asked.ticks)), sep=" | ")
        with PostgresProxy(server) as proxy:
            job = LocalJob(plan_job(parse_job(JOB)), tables(proxy.url, "counted"))
            job.tick(rows_of(0, asked.rows))
            job.driver.ledger.settle()
            proxy.forget()
            count = min(asked.ticks, 4)
            for tick in range(1, count + 1):
                job.tick(rows_of(tick, asked.rows))
                job.driver.ledger.settle()
            sent, given, connections = (
                value / count for value in (proxy.sent, proxy.given, proxy.connections)
            )
            print(f"a tick: {proxy.messages / count:.0f} messages to the server of up to 64 KB,", end=" ")
            print(f"{sent / 1e6:.2f} MB sent, {given / 1e6:.2f} MB given, {connections:.1f} connections")
    return 0


if __name__ == "__main__":
    sys.exit(main())
