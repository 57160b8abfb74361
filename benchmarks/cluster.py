"""The same job on two executors with a core each, and in one process with two cores: their ticks in turn.

    python -m benchmarks.cluster [--rows N] [--ticks N] [--rounds N] [--kind inner|left] [--directory]
                                 [--parts] [--threads] [--conf NAME=VALUE]... [--of-cluster NAME=VALUE]...

In a round both play the same files and take turns: one tick here, one there. So what else the machine does
falls on both. Each has its state in an S3 server of its own on this machine, of which each executor has a
cache of its own (``--directory``: in a directory). A tick's seconds are all that passes until the next one
may begin, Spark's own part of it included; CPU seconds are those of all processes, the S3 server among them.
Ratios are of medians of ticks after the first `WARM_TICKS`, which are printed by themselves. ``--threads``:
CPU by the threads of the JVMs, too. ``--conf``: a setting of Spark, for both; ``--of-cluster``: there alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.measure import threads_of
from benchmarks.task_counts import text
from benchmarks.workloads import Workload, prepare
from tests.support.s3 import KEYS, make_bucket, s3_server

MASTERS = {"one process": "local[2]", "cluster": "local-cluster[2,1,1024]"}
WARM_TICKS = 10
PATIENCE_S = 120
SERVER = "S3 server"
GO = "go"


@dataclass(frozen=True)
class Asked:
    """Of one run of the job: where, and with what."""

    data: str
    folder: str
    kind: str
    master: str
    conf: dict[str, str]
    store: dict[str, str]


@dataclass(frozen=True)
class Tick:
    """Seconds: as the other side sees it, of its parts, and of CPU by whose it is."""

    seconds: float
    parts: Mapping[str, float]
    cpu_s: Mapping[str, float]


def _whose(process: psutil.Process) -> str | None:
    if process.pid == os.getpid():
        return "driver"
    command = " ".join(process.cmdline())
    if "CoarseGrainedExecutorBackend" in command:
        return "executors' JVMs"
    if process.name() == "java":
        return "driver's JVM"
    return "workers" if "daemon" in command else None


class _Used:
    """CPU seconds of this process and of all that it started, by whose they are, and by threads of JVMs."""

    def __init__(self, threads: bool) -> None:
        self._own = psutil.Process()
        self._by_thread = threads
        self._seconds: dict[tuple[str, int], float] = {}

    def now(self) -> dict[str, float]:
        for process in (self._own, *self._own.children(recursive=True)):
            try:
                whose = _whose(process)
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


def run(asked: Asked, threads: bool) -> None:
    """A tick for each line that comes in, and what it took as a line."""
    from watersmeet.engine.driver.results import TickResult
    from watersmeet.engine.spark.job import session
    from watersmeet.engine.spark.job.job import run_job
    from watersmeet.front.sql import parse_job
    from watersmeet.objects.setting import store_of
    from watersmeet.plan.planner import plan_job

    folder = Path(asked.folder)
    conf = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.local.dir": str(folder / "tmp"),
        "spark.executorEnv.TMPDIR": "./",  # the cache is there
        **asked.conf,
    }
    spark = session.start(session.settings(master=asked.master, conf=conf))
    context: Any = spark.sparkContext
    executors, until = context._jsc.sc(), time.monotonic() + PATIENCE_S
    while "cluster" in asked.master and executors.getExecutorMemoryStatus().size() < 3:
        if time.monotonic() > until:
            raise TimeoutError("executors do not come")
        time.sleep(0.1)
    settings = "".join(f"SET {name} = '{value}';\n" for name, value in asked.store.items())
    job = parse_job(settings + text(Path(asked.data), folder / "out", asked.kind))
    used = _Used(threads)

    def on_tick(result: TickResult, seconds: float, parts: Mapping[str, float]) -> None:
        print(json.dumps({"tick": result.tick, "parts": parts, "cpu_s": used.now()}), flush=True)
        sys.stdin.readline()

    print(json.dumps({"tick": 0, "parts": {}, "cpu_s": used.now()}), flush=True)
    sys.stdin.readline()
    run_job(
        job,
        plan_job(job),
        checkpoint=str(folder / "checkpoint"),
        until_caught_up=True,
        store=store_of(job.run),
        on_tick=on_tick,
    )
    spark.stop()


def serve() -> None:
    """An S3 server with a bucket, until the input ends."""
    with s3_server() as endpoint:
        store = {"state_store": f"s3://{make_bucket(endpoint)}/job", "state_store_endpoint": endpoint}
        print(json.dumps(store | {"state_store_allow_http": "true"}), flush=True)
        sys.stdin.read()


class Player:
    """One run of the job in a process, and the server of its state."""

    def __init__(self, process: subprocess.Popen[str], server: subprocess.Popen[str] | None) -> None:
        self._process = process
        self._server = None if server is None else psutil.Process(server.pid)
        self._before = self._told()

    def tick(self) -> Tick:
        assert self._process.stdin is not None
        began = time.perf_counter()
        self._process.stdin.write(f"{GO}\n")
        self._process.stdin.flush()
        told = self._told()
        seconds = time.perf_counter() - began
        before, self._before = self._before["cpu_s"], told
        return Tick(
            seconds, told["parts"], {who: now - before.get(who, 0.0) for who, now in told["cpu_s"].items()}
        )

    def _told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                told: dict[str, Any] = json.loads(line)
                if self._server is not None:
                    times = self._server.cpu_times()
                    told["cpu_s"][SERVER] = times.user + times.system
                return told
        raise EOFError("the job ended")


@contextmanager
def _child(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.cluster", *command],
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


def _round(stack: ExitStack, asked: argparse.Namespace, data: Path, folder: Path) -> dict[str, Player]:
    players = {}
    for number, (place, master) in enumerate(MASTERS.items()):
        own = folder / str(number)
        (own / "temporary").mkdir(parents=True)
        environment = {
            **os.environ, **KEYS, "TMPDIR": str(own / "temporary"), "SPARK_LOCAL_IP": "127.0.0.1"
        }  # fmt: skip
        store, server = {}, None
        if not asked.directory:
            server = stack.enter_context(_child(["--serve"], environment))
            assert server.stdout is not None
            store = json.loads(server.stdout.readline())
        given = [*asked.conf, *(asked.of_cluster if place == "cluster" else [])]
        conf = dict(one.split("=", 1) for one in given)
        played = Asked(str(data), str(own), asked.kind, master, conf, store)
        command = ["--run", json.dumps(vars(played)), *(["--threads"] if asked.threads else [])]
        players[place] = Player(stack.enter_context(_child(command, environment)), server)
    return players


def _middle(ticks: Sequence[Tick], of: Callable[[Tick], float]) -> float:
    return median(of(tick) for tick in ticks)


def _shown(ticks: Sequence[Tick], asked: argparse.Namespace) -> Iterator[str]:
    seconds = sorted(tick.seconds for tick in ticks)
    cpu_s = _middle(ticks, lambda tick: sum(tick.cpu_s.values()))
    yield (
        f"tick {median(seconds):.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f}), "
        f"{2 * asked.rows / median(seconds):,.0f} rows/s, {cpu_s:.2f} CPU s"
    )
    if asked.parts:
        names = dict.fromkeys(name for tick in ticks for name in tick.parts)
        parts = {name: median(tick.parts.get(name, 0.0) for tick in ticks) for name in names}
        rest = _middle(ticks, lambda tick: tick.seconds - sum(tick.parts.values()))
        yield ", ".join(f"{name} {value:.3f} s" for name, value in {**parts, "Spark's": rest}.items())
        whose = sorted({who for tick in ticks for who in tick.cpu_s})
        of_whom = {who: sum(tick.cpu_s.get(who, 0.0) for tick in ticks) / len(ticks) for who in whose}
        yield "CPU: " + ", ".join(f"{who} {value:.3f} s" for who, value in of_whom.items() if value > 0.002)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--rows", type=int, default=100_000, help="of a side and tick")
    parser.add_argument("--ticks", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", default="left", choices=("inner", "left"))
    parser.add_argument("--directory", action="store_true", help="state in a directory, not in an S3 server")
    parser.add_argument("--parts", action="store_true", help="print what the parts of ticks took, too")
    parser.add_argument("--threads", action="store_true", help="and CPU by threads of JVMs")
    parser.add_argument("--conf", action="append", default=[], help="NAME=VALUE of Spark")
    parser.add_argument("--of-cluster", action="append", default=[], help="NAME=VALUE of Spark, there alone")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.serve:
        serve()
        return 0
    if asked.run is not None:
        run(Asked(**json.loads(asked.run)), asked.threads)
        return 0
    by_time, by_cpu = [], []
    with tempfile.TemporaryDirectory(prefix="ws-") as name:
        data = prepare(Workload(f"{asked.rows}", asked.rows, asked.ticks), Path(name) / "data")
        for number in range(asked.rounds):
            ticks: dict[str, list[Tick]] = {place: [] for place in MASTERS}
            with ExitStack() as stack:
                players = _round(stack, asked, data, Path(name) / f"round{number}")
                for turn in range(asked.ticks):
                    for place in list(MASTERS)[:: -1 if turn % 2 else 1]:
                        ticks[place].append(players[place].tick())
            for what, some in (("first", slice(0, WARM_TICKS)), ("warm", slice(WARM_TICKS, None))):
                for place, of_place in ticks.items():
                    print(*(f"{what}, {place}: {line}" for line in _shown(of_place[some], asked)), sep="\n")
            sys.stdout.flush()
            one, cluster = (ticks[place][WARM_TICKS:] for place in MASTERS)
            by_time.append(_middle(one, lambda t: t.seconds) / _middle(cluster, lambda t: t.seconds))
            cpu = [_middle(some, lambda tick: sum(tick.cpu_s.values())) for some in (one, cluster)]
            by_cpu.append(cpu[0] / cpu[1])
    for what, ratios in (("speed", by_time), ("speed by CPU time", by_cpu)):
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"cluster to one process, {what}: {median(ratios):.2f} x {spread}, {len(ratios)} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
