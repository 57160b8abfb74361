"""A standalone cluster of Spark on this machine: a master and workers, each a process, with executors in
processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

from tests.support.jvm_options import OF_CLUSTERS

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_PACKAGE = "org.apache.spark.deploy"
_HOST = "127.0.0.1"


class Cluster:
    """``url``: of the master. ``folder``: for logs and work."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**environment, "SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": _HOST}
        self._environment["SPARK_DAEMON_JAVA_OPTS"] = OF_CLUSTERS
        self._environment["SPARK_MASTER_OPTS"] = "-Dspark.master.rest.enabled=false"  # it has one port
        self._environment["SPARK_WORKER_OPTS"] = "-Dspark.decommission.enabled=true"  # by SIGPWR
        self._processes: list[subprocess.Popen[bytes]] = []
        log = self._start("master", "master.Master", "--host", _HOST, "--port", "0", "--webui-port", "0")
        self.url = _wait_for_log_match(log, r"(spark://127\.0\.0\.1:\d+)")

    def add_worker(self, *, cores: int = 1, memory: str = "1g") -> subprocess.Popen[bytes]:
        """A worker on which an executor may run, once it is registered."""
        name = f"worker{len(self._processes)}"
        work = self._folder / name
        log = self._start(
            name, "worker.Worker", "--host", _HOST, "--webui-port", "0", "--cores", str(cores),
            "--memory", memory, "--work-dir", str(work), self.url,
        )  # fmt: skip
        _wait_for_log_match(log, "(Successfully registered)")
        return self._processes[-1]

    def executors(self) -> list[psutil.Process]:
        """Of all workers, those that run."""
        return [
            child
            for process in self._processes
            if process.poll() is None
            for child in psutil.Process(process.pid).children(recursive=True)
            if any("CoarseGrainedExecutorBackend" in word for word in _command(child))
        ]

    def end(self) -> None:
        """Kill all of it, the executors, too."""
        ours = [child for p in self._processes if p.poll() is None for child in _with_children(p.pid)]
        for process in reversed(ours):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        for process in self._processes:
            process.wait()

    def _start(self, name: str, what: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        self._folder.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            command = [str(_CLASS), f"{_PACKAGE}.{what}", *arguments]
            environment = {**os.environ, **self._environment}
            self._processes.append(
                subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=self._folder)
            )
        return log


@contextmanager
def standalone(folder: Path, environment: Mapping[str, str], workers: int = 2) -> Iterator[Cluster]:
    """A cluster with workers of one core each."""
    cluster = Cluster(folder, environment)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.end()


def _with_children(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _wait_for_log_match(log: Path, pattern: str, timeout_s: float = 60) -> str:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        match = re.search(pattern, log.read_text(errors="replace"))
        if match:
            return match[1]
        time.sleep(0.05)
    raise TimeoutError(f"{log.name}: {log.read_text(errors='replace')[-2000:]}")
