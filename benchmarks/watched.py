"""What it costs that a run is watched: the same job with metrics, log, spans and page, and without, in turn.

    python -m benchmarks.watched [--rows N] [--ticks N] [--every N] [--repeat N] [--queries N]

Two jobs on Spark take turns, tick by tick; one shows metrics, which are asked for every ``--every`` ticks (of
a second each, where Prometheus asks every 15 seconds), and logs, and somebody looks at its page. A pair's
ratio is of the CPU seconds of all their processes, and varies more than what is looked for. So the telling
itself is measured, too, in this process, ``--repeat`` times: CPU of a tick's report, of what the watchers do
with it, of an answer to Prometheus, of a second of the live view, with a tick in it and so many frames as it
draws, and of a second of the page of a job that has gone on for an hour of ticks of a second: what it looks
for beside a run, and the news whenever the history has been written.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from copy import copy
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.turns import Asked, Tick, middle, player
from benchmarks.workloads import Workload, prepare

MASTER = "local[2]"
WARM_TICKS = 5
PORT, PAGE_PORT = 29_464, 29_465
HOUR_TICKS = 3_600
SELECT = (
    "SELECT o.k FROM orders o LEFT JOIN deliveries d"
    " ON o.k = d.k AND d.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR"
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watched")
    parser.add_argument("--rows", type=int, default=1_000, help="of a side and tick")
    parser.add_argument("--ticks", type=int, default=40, help="0: only the telling is measured")
    parser.add_argument("--every", type=int, default=15, help="ticks after which metrics are asked for")
    parser.add_argument("--repeat", type=int, default=500)
    parser.add_argument("--queries", type=int, default=2, help="of the job whose telling is measured")
    asked = parser.parse_args(argv)
    tick_s = _pairs(asked.rows, asked.ticks, asked.every) if asked.ticks else None
    costs = telling(asked.queries, asked.repeat)
    for what, seconds in costs.items():
        print(f"{what}: {1000 * seconds:.3f} ms of CPU")
    if tick_s is not None:
        a_tick = costs[REPORTED] + costs[WATCHED] + costs[ASKED] / asked.every
        print(f"a tick: {1000 * tick_s:.0f} ms of CPU, {a_tick / tick_s:.2%} of it for being watched")
        print(f"the live view of a tick a second: {costs[VIEWED] / tick_s:.2%} of that")
        print(f"somebody looks at the page: {costs[PAGE] / tick_s:.2%} of a tick a second")
    return 0


def _pairs(rows: int, ticks: int, every: int) -> float:
    """CPU seconds of a tick that nobody watches, the median."""
    with tempfile.TemporaryDirectory(prefix="ws-") as name, ExitStack() as stack:
        data = prepare(Workload(f"{rows}", rows, ticks), Path(name) / "data")
        players = [
            player(stack, Asked(str(data), str(Path(name) / own), "left", MASTER, {}, settings), {})
            for own, settings in (
                (
                    "watched",
                    {"metrics": str(PORT), "ui": str(PAGE_PORT), "token_file": "none", "log_format": "json"},
                ),
                ("not watched", {}),
            )
        ]
        pairs: list[tuple[Tick, Tick]] = []
        for turn in range(ticks):
            played = {place: players[place].tick() for place in ((0, 1), (1, 0))[turn % 2]}
            if turn == 0:  # it listens
                stack.enter_context(_looked_at(f"http://127.0.0.1:{PAGE_PORT}/"))
            if turn % every == 0:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=60).read()
            if turn >= WARM_TICKS:
                pairs.append((played[0], played[1]))

    def cpu_s(tick: Tick) -> float:
        return sum(tick.cpu_s.values())

    ratios = sorted(cpu_s(watched) / cpu_s(plain) for watched, plain in pairs)
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    print(f"{len(pairs)} pairs: {median(ratios):.3f} x the CPU seconds (middle half {low:.3f} to {high:.3f})")
    return middle([plain for _, plain in pairs], cpu_s)


@contextmanager
def _looked_at(url: str) -> Iterator[None]:
    """Somebody has the page open: the whole document once, and its news as they come."""
    until = json.load(urllib.request.urlopen(f"{url}document.json", timeout=60))["until"]
    asked = urllib.request.Request(f"{url}events?after={until}", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked, timeout=60) as news:

        def look() -> None:
            with suppress(OSError, ValueError, AttributeError):  # one of the two has ended
                while news.read1():
                    pass

        threading.Thread(target=look, name="looks at the page", daemon=True).start()
        yield


REPORTED, WATCHED, ASKED = "the report of a tick", "what watchers do with it", "an answer to Prometheus"
VIEWED, PAGE = "a second of the live view", "a second of the page, an hour after the start"


def telling(queries: int, repeat: int) -> dict[str, float]:
    """CPU seconds, the medians, of a job with so many queries of two inputs each."""
    from prometheus_client import generate_latest

    from watersmeet.observe.listeners import WatchedRun
    from watersmeet.observe.log import LogToStream, LogWatcher
    from watersmeet.observe.metrics.endpoint import Endpoint
    from watersmeet.observe.reports import report_of
    from watersmeet.observe.spans import SpanWatcher
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.local.job import LocalJob
    from watersmeet.spec.monitoring import Address
    from watersmeet.state.store import MemoryStore

    tables = "".join(
        f"CREATE TABLE {side} (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND)"
        " WITH ('connector' = 'memory', 'rows_per_second' = '100');"
        for side in ("orders", "deliveries")
    )
    inserts = "".join(
        f"CREATE SINK s{n} WITH ('connector' = 'memory'); INSERT INTO s{n} {SELECT};" for n in range(queries)
    )
    plan = plan_job(parse_job(tables + inserts))
    rows = [({"k": n, "t": f"2024-01-01T00:00:{n % 60:02}"}, 1) for n in range(100)]
    result: Any = LocalJob(plan, MemoryStore()).tick({"orders": rows, "deliveries": rows}, clock_us=0).result
    parts = dict.fromkeys(("begin", "ingest", "advance", "join and write", "publish", "commit"), 0.1)
    run = WatchedRun("watched", plan, 1.0)
    endpoint = Endpoint(Address("127.0.0.1", 0))
    metrics = endpoint.watch(run, None)
    watchers = [metrics, LogWatcher(run), SpanWatcher(run)]
    report = replace(report_of(result, 0.6), phases=parts)

    def watch() -> None:
        for watcher in watchers:
            watcher.tick_begins(1)
        for watcher in watchers:
            watcher.tick(report, result)

    answered = b""

    def answer() -> None:
        nonlocal answered
        answered = generate_latest(endpoint)

    with open(os.devnull, "w") as nowhere, LogToStream("json", nowhere):
        costs = {
            REPORTED: _cpu_s(lambda: report_of(result, 0.6), repeat),
            WATCHED: _cpu_s(watch, repeat),
            ASKED: _cpu_s(answer, max(repeat // 10, 1)),
            VIEWED: _cpu_s(_second_of_view(plan, report, result), max(repeat // 10, 1)),
            PAGE: _second_of_page(queries),
        }
    metrics.ended(None)
    series = answered.count(b"\nwatersmeet_")
    print(f"{series:,} series of {queries} queries")
    return costs


def _second_of_view(plan: Any, report: Any, result: Any) -> Callable[[], None]:
    """What draws as much as the live view does in a second in which a tick has ended."""
    from rich.console import Console

    from watersmeet.observe.live.formatting import UNICODE
    from watersmeet.observe.live.frame import FrameRenderer, RunMoment, ViewSettings
    from watersmeet.observe.live.terminal import Terminal
    from watersmeet.observe.live.totals import RUNNING, RunTotals
    from watersmeet.observe.live.view import REDRAW_S

    console = Console(file=io.StringIO(), force_terminal=True, color_system="256", width=120, height=40)
    gathered, frames, terminal, seconds = RunTotals(plan), FrameRenderer(), Terminal(console), count()

    def second() -> None:
        n = next(seconds)
        gathered.add(report, copy(result))
        for part in range(round(1 / REDRAW_S)):
            now = RunMoment("watched.sql", RUNNING, n + part * REDRAW_S, round((n + part * REDRAW_S) * 1e6))
            terminal.draw(frames.lines(gathered.snapshot(), now, ViewSettings(119, 39, UNICODE)))

    return second


def _second_of_page(queries: int) -> float:
    """CPU seconds, on average: between two writes of the history it is looked for as often as it is beside a
    run, and once there is more of it."""
    from watersmeet.history.reader import HistoryReader
    from watersmeet.history.writer import LOCAL_PAUSE_S
    from watersmeet.page.live_server import LIVE_POLL_S
    from watersmeet.page.server import PageFeed

    pause = round(LOCAL_PAUSE_S)
    run: Any = import_module("tests.page.histories").Large(queries=queries, ticks=HOUR_TICKS)
    took = []
    feed, seconds = PageFeed(HistoryReader(run.store), "watched.sql", look_s=0.0), count()
    after = feed.past(next(seconds)).until_us

    def look() -> None:
        for _ in range(round(pause / LIVE_POLL_S) - 1):
            feed.past(next(seconds))
        feed.updates_after(feed.past(next(seconds)), after)

    with closing(run.keeping):
        for _ in range(20):
            for _ in range(pause):
                run.add()
            run.write()
            took.append(_cpu_s(look, 1))
            after = feed.past(next(seconds)).until_us
    return median(took) / pause


def _cpu_s(work: Callable[[], object], repeat: int) -> float:
    took = []
    for _ in range(repeat):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return median(took)


if __name__ == "__main__":
    sys.exit(main())
