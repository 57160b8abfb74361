"""Jobs in processes of their own that take turns: one plays a tick, then the other.

So what else the machine does falls on all of them. A tick's seconds are all that passes until the next one
may begin, Spark's own part of it included; CPU seconds are those of all processes of a job, by whose they
are. They are read from outside and between ticks: what that takes grows with the number of processes, and is
nobody's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.measure import threads_of
from benchmarks.task_counts import text
from tests.support.s3 import KEYS, Proxy, make_bucket, s3_server

PATIENCE_S = 120
SERVER = "S3 server"
GO = "go"


@dataclass(frozen=True)
class Asked:
    """Of one run of the job: where, and with what. ``settings``: as by SET."""

    data: str
    folder: str
    kind: str
    master: str
    conf: dict[str, str]
    settings: dict[str, str]


@dataclass(frozen=True)
class Tick:
    """Seconds: as the other side sees it, of its parts, and of CPU by whose it is."""

    seconds: float
    parts: Mapping[str, float]
    cpu_s: Mapping[str, float]


def _whose(process: psutil.Process) -> str | None:
    """Of a process that a driver has started."""
    command = " ".join(process.cmdline())
    if "CoarseGrainedExecutorBackend" in command:
        return "executors' JVMs"
    if process.name() == "java":
        return "driver's JVM"
    return "workers" if "daemon" in command else None


class _Used:
    """CPU seconds of a driver and of all that it started, by whose they are, and by threads of JVMs."""

    def __init__(self, driver: int, threads: bool) -> None:
        self._driver = psutil.Process(driver)
        self._by_thread = threads
        self._seconds: dict[tuple[str, int], float] = {}

    def now(self) -> dict[str, float]:
        for process in (self._driver, *self._driver.children(recursive=True)):
            try:
                whose = "driver" if process == self._driver else _whose(process)
                if whose is None:
                    continue
                if self._by_thread and "JVM" in whose:
                    for thread, (name, seconds) in threads_of(process.pid).items():
                        self._seconds[f"{whose}: {_short(name)}", int(thread)] = seconds
                else:
                    times = process.cpu_times()
                    self._seconds[whose, process.pid] = times.user + times.system
            except psutil.Error:
                continue
        total: dict[str, float] = {}
        for (whose, _), seconds in self._seconds.items():
            total[whose] = total.get(whose, 0.0) + seconds
        return total


def _short(name: str) -> str:
    for pattern, kind in (
        ("GC|G Conc|G Refine|G Service|G Main|VM Thread", "collector"),
        (r"^C CompilerThre|^C. Compiler", "compilers"),
        ("Executor task|stdout writer", "tasks"),
    ):
        if re.search(pattern, name):
            return kind
    return name


def run(asked: Asked) -> None:
    """A tick for each line that comes in, and what its parts took as a line."""
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.running import RunSettings, run_planned
    from watersmeet.runtime.coordinator.results import TickResult
    from watersmeet.runtime.spark.job import session

    folder = Path(asked.folder)
    conf = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.local.dir": str(folder / "tmp"),
        "spark.executorEnv.TMPDIR": "./",  # the cache is there
        **asked.conf,
    }
    spark = session.start(session.build_session_settings(master=asked.master, conf=conf))
    context: Any = spark.sparkContext
    executors, until = context._jsc.sc(), time.monotonic() + PATIENCE_S
    while "cluster" in asked.master and executors.getExecutorMemoryStatus().size() < 3:
        if time.monotonic() > until:
            raise TimeoutError("executors do not come")
        time.sleep(0.1)
    settings = {**asked.settings, "until_caught_up": "true"}
    job = parse_job(text(Path(asked.data), folder / "out", asked.kind), overrides=settings)

    def on_tick(result: TickResult, seconds: float, parts: Mapping[str, float]) -> None:
        print(json.dumps({"tick": result.tick, "parts": parts}), flush=True)
        sys.stdin.readline()

    print(json.dumps({"tick": 0, "parts": {}}), flush=True)
    sys.stdin.readline()
    run_planned(job, plan_job(job), RunSettings(str(folder / "checkpoint"), on_tick=on_tick))
    spark.stop()


def serve(delay_s: float | None) -> None:
    """An S3 server with a bucket, until the input ends. ``delay_s``: what the way to it takes, for each
    request; None: nothing is in between."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(s3_server())
        if delay_s is not None:
            endpoint = stack.enter_context(Proxy(endpoint, delay_s=delay_s)).endpoint
        store = {"state_store": f"s3://{make_bucket(endpoint)}/job", "state_store_endpoint": endpoint}
        print(json.dumps(store | {"state_store_allow_http": "true"}), flush=True)
        sys.stdin.read()


class Player:
    """One run of the job in a process, and the server of its state."""

    def __init__(
        self, process: subprocess.Popen[str], server: subprocess.Popen[str] | None, threads: bool
    ) -> None:
        self._process = process
        self._server = None if server is None else psutil.Process(server.pid)
        self._told()
        self._used = _Used(process.pid, threads)
        self._before = self._cpu_s()

    def tick(self) -> Tick:
        assert self._process.stdin is not None
        began = time.perf_counter()
        self._process.stdin.write(f"{GO}\n")
        self._process.stdin.flush()
        told = self._told()
        seconds = time.perf_counter() - began
        before, self._before = self._before, self._cpu_s()
        return Tick(
            seconds, told["parts"], {who: now - before.get(who, 0.0) for who, now in self._before.items()}
        )

    def _told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                told: dict[str, Any] = json.loads(line)
                return told
        raise EOFError("the job ended")

    def _cpu_s(self) -> dict[str, float]:
        used = self._used.now()
        if self._server is not None:
            times = self._server.cpu_times()
            used[SERVER] = times.user + times.system
        return used


@contextmanager
def child(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.turns", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(environment),
        text=True,
    )
    try:
        yield process
    finally:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for each in family:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()


def player(
    stack: ExitStack,
    asked: Asked,
    environment: Mapping[str, str],
    *,
    serve: Sequence[str] | None = None,
    threads: bool = False,
) -> Player:
    """A run of the job in a process of its own.

    Args:
        environment: what it is to have besides this process' own.
        serve: of an S3 server for its state, what that is told; None: the state is in a directory.
    """
    temporary = Path(asked.folder) / "temporary"
    temporary.mkdir(parents=True)
    own = {**os.environ, **KEYS, "TMPDIR": str(temporary), "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    server = None
    if serve is not None:
        server = stack.enter_context(child(["--serve", *serve], own))
        assert server.stdout is not None
        asked = replace(asked, settings=json.loads(server.stdout.readline()))
    return Player(stack.enter_context(child(["--run", json.dumps(vars(asked))], own)), server, threads)


def middle(ticks: Sequence[Tick], of: Callable[[Tick], float]) -> float:
    return median(of(tick) for tick in ticks)


def shown(ticks: Sequence[Tick], rows: int, *, parts: bool) -> Iterator[str]:
    """Medians, as lines. ``rows``: of a side and tick."""
    seconds = sorted(tick.seconds for tick in ticks)
    cpu_s = middle(ticks, lambda tick: sum(tick.cpu_s.values()))
    yield (
        f"tick {median(seconds):.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f}), "
        f"{2 * rows / median(seconds):,.0f} rows/s, {cpu_s:.2f} CPU s"
    )
    if parts:
        names = dict.fromkeys(name for tick in ticks for name in tick.parts)
        medians = {name: median(tick.parts.get(name, 0.0) for tick in ticks) for name in names}
        rest = middle(ticks, lambda tick: tick.seconds - sum(tick.parts.values()))
        yield ", ".join(f"{name} {value:.3f} s" for name, value in {**medians, "Spark's": rest}.items())
        whose = sorted({who for tick in ticks for who in tick.cpu_s})
        of_whom = {who: sum(tick.cpu_s.get(who, 0.0) for tick in ticks) / len(ticks) for who in whose}
        yield "CPU: " + ", ".join(f"{who} {value:.3f} s" for who, value in of_whom.items() if value > 0.002)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns")
    parser.add_argument("--run", help="what is played")
    parser.add_argument("--serve", action="store_true", help="an S3 server")
    parser.add_argument("--delay", type=float, help="seconds that a request is on its way")
    given = parser.parse_args(argv)
    if given.serve:
        serve(given.delay)
    else:
        run(Asked(**json.loads(given.run)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
